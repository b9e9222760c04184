"""Training tools: `Model`, callbacks, metrics and checkpoints (`mindspore.train`)."""

from sporax.mindspore._names.doors import door
from sporax.mindspore._names.missing import homes
from sporax.mindspore.train import callback, checkpoint, metrics  # doors themselves

_HOMES = {
    **homes("sporax.mindspore.train.amp", "build_train_network"),
    **homes("sporax.mindspore.train.data_sink", "data_sink"),
    **homes("sporax.mindspore.train.dataset_helper", "DatasetHelper connect_network_with_dataset"),
    **homes("sporax.mindspore.train.export", "export load"),
    **homes("sporax.mindspore.train.interop", "load_torch_weights torch_names"),
    **homes(
        "sporax.mindspore.train.loss_scale_manager",
        """
        DynamicLossScaleManager FixedLossScaleManager LossScaleManager
        """,
    ),
    **homes("sporax.mindspore.train.model", "Model"),
    **homes(
        "sporax.mindspore.train.serialization",
        """
        async_ckpt_thread_status ckpt_to_safetensors load_checkpoint load_checkpoint_async load_param_into_net
        safetensors_to_ckpt save_checkpoint
        """,
    ),
    **homes("sporax.mindspore.train.summary", "SummaryRecord"),
    **homes("sporax.mindspore.train.train_thor", "ConvertModelUtils ConvertNetUtils"),
    **homes("sporax.mindspore.train.callback", " ".join(callback.__all__)),
    **homes("sporax.mindspore.train.checkpoint", " ".join(checkpoint.__all__)),
    **homes("sporax.mindspore.train.metrics", " ".join(metrics.__all__)),
}

__all__ = [*_HOMES]
__getattr__, __dir__ = door(__name__, _HOMES)
