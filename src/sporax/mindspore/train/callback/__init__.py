"""Callbacks: what happens besides the steps while `Model` trains and evaluates."""

from sporax.mindspore._names.doors import door
from sporax.mindspore._names.missing import homes_in

_HOMES = homes_in(
    __name__,
    """
    _resuming: BackupAndRestore
    _callback: Callback RunContext _set_cur_net=set_cur_net
        _CallbackManager=CallbackManager _InternalCallbackParam=InternalCallbackParam
    _model_checkpoint: ModelCheckpoint CheckpointConfig
    _monitors: History LambdaCallback LossMonitor TimeMonitor
    _plateau: EarlyStopping LearningRateScheduler ReduceLROnPlateau
    _progress: Progress
    _request_exit: OnRequestExit
    _resumable: ResumableCheckpoint
    _summary_collector: SummaryCollector
    _track: Track MLflowTracker TensorBoardTracker Tracker WandbTracker
    """,
)

__all__ = [name for name in _HOMES if not name.startswith("_")]
__getattr__, __dir__ = door(__name__, _HOMES)
