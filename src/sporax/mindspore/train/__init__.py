"""Training tools: `Model`, callbacks, metrics and checkpoints (`mindspore.train`)."""

from sporax.mindspore._names.doors import door
from sporax.mindspore._names.missing import homes, homes_in
from sporax.mindspore.train import callback, checkpoint, metrics  # doors themselves

_FROM_AMP = homes(
    "sporax.mindspore.amp", "build_train_network DynamicLossScaleManager FixedLossScaleManager LossScaleManager"
)
_HOMES = _FROM_AMP | homes_in(
    __name__,
    f"""
    data_sink: data_sink
    dataset_helper: DatasetHelper connect_network_with_dataset
    export: export load
    interop: load_torch_weights torch_names
    model: Model
    serialization: async_ckpt_thread_status ckpt_to_safetensors load_checkpoint load_checkpoint_async
        load_param_into_net safetensors_to_ckpt save_checkpoint
    summary: SummaryRecord
    train_thor: ConvertModelUtils ConvertNetUtils
    callback: {" ".join(callback.__all__)}
    checkpoint: {" ".join(checkpoint.__all__)}
    metrics: {" ".join(metrics.__all__)}
    """,
)

__all__ = [*_HOMES]
__getattr__, __dir__ = door(
    __name__, _HOMES, unlisted={name: f"{__name__}.{name}" for name in ("amp", "loss_scale_manager")}
)
