"""Callbacks: what happens besides the steps while `Model` trains and evaluates."""

from sporax.ir.missing import missing_names
from sporax.train.callback._callback import Callback, RunContext
from sporax.train.callback._callback import CallbackManager as _CallbackManager
from sporax.train.callback._callback import InternalCallbackParam as _InternalCallbackParam
from sporax.train.callback._checkpoint_config import CheckpointConfig
from sporax.train.callback._model_checkpoint import ModelCheckpoint
from sporax.train.callback._monitors import History, LambdaCallback, LossMonitor, TimeMonitor

__all__ = [
    "Callback",
    "RunContext",
    "LossMonitor",
    "TimeMonitor",
    "History",
    "LambdaCallback",
    "CheckpointConfig",
    "ModelCheckpoint",
]
__getattr__ = missing_names(__name__)
