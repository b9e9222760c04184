"""Callbacks: what happens besides the steps while `Model` trains and evaluates."""

from typing import TYPE_CHECKING

from sporax.mindspore._names.missing import missing_names
from sporax.mindspore.train.callback._backup import BackupAndRestore
from sporax.mindspore.train.callback._callback import Callback, RunContext
from sporax.mindspore.train.callback._callback import CallbackManager as _CallbackManager
from sporax.mindspore.train.callback._callback import InternalCallbackParam as _InternalCallbackParam
from sporax.mindspore.train.callback._checkpoint_config import CheckpointConfig
from sporax.mindspore.train.callback._model_checkpoint import ModelCheckpoint
from sporax.mindspore.train.callback._monitors import History, LambdaCallback, LossMonitor, TimeMonitor
from sporax.mindspore.train.callback._plateau import EarlyStopping, LearningRateScheduler, ReduceLROnPlateau
from sporax.mindspore.train.callback._progress import Progress
from sporax.mindspore.train.callback._request_exit import OnRequestExit
from sporax.mindspore.train.callback._resumable import ResumableCheckpoint
from sporax.mindspore.train.callback._summary_collector import SummaryCollector
from sporax.mindspore.train.callback._track import Track
from sporax.mindspore.train.callback._trackers import MLflowTracker, TensorBoardTracker, Tracker, WandbTracker

__all__ = [
    "Callback",
    "RunContext",
    "LossMonitor",
    "TimeMonitor",
    "History",
    "LambdaCallback",
    "CheckpointConfig",
    "ModelCheckpoint",
    "LearningRateScheduler",
    "EarlyStopping",
    "ReduceLROnPlateau",
    "OnRequestExit",
    "BackupAndRestore",
    "ResumableCheckpoint",
    "SummaryCollector",
    "Progress",
    "Track",
    "Tracker",
    "TensorBoardTracker",
    "MLflowTracker",
    "WandbTracker",
]
if not TYPE_CHECKING:  # checkers should see a missing name themselves
    __getattr__ = missing_names(__name__)
