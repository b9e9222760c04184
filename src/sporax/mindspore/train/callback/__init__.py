"""Callbacks: what happens besides the steps while `Model` trains and evaluates."""

from sporax.mindspore._names.doors import door
from sporax.mindspore._names.missing import homes

_HOMES = {
    **homes("sporax.mindspore.train.callback._backup", "BackupAndRestore"),
    **homes("sporax.mindspore.train.callback._callback", "Callback RunContext"),
    "_CallbackManager": "sporax.mindspore.train.callback._callback:CallbackManager",
    "_InternalCallbackParam": "sporax.mindspore.train.callback._callback:InternalCallbackParam",
    **homes("sporax.mindspore.train.callback._checkpoint_config", "CheckpointConfig"),
    **homes("sporax.mindspore.train.callback._model_checkpoint", "ModelCheckpoint"),
    **homes("sporax.mindspore.train.callback._monitors", "History LambdaCallback LossMonitor TimeMonitor"),
    **homes("sporax.mindspore.train.callback._plateau", "EarlyStopping LearningRateScheduler ReduceLROnPlateau"),
    **homes("sporax.mindspore.train.callback._progress", "Progress"),
    **homes("sporax.mindspore.train.callback._request_exit", "OnRequestExit"),
    **homes("sporax.mindspore.train.callback._resumable", "ResumableCheckpoint"),
    **homes("sporax.mindspore.train.callback._summary_collector", "SummaryCollector"),
    **homes("sporax.mindspore.train.callback._track", "Track"),
    **homes("sporax.mindspore.train.callback._trackers", "MLflowTracker TensorBoardTracker Tracker WandbTracker"),
}

__all__ = [name for name in _HOMES if not name.startswith("_")]
__getattr__, __dir__ = door(__name__, _HOMES)
