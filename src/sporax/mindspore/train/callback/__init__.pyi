"""Made by tools/make_type_stubs.py; do not edit."""
# Operators and Tensors say more precisely than their bases what they take.
# mypy: disable-error-code="override"

import builtins
from collections.abc import Callable, Sequence
from typing import Any, Literal

from sporax.mindspore.common.dtype import DType as _DType
from sporax.mindspore.common.tensor import Tensor as Tensor
from sporax.mindspore.train.callback._callback import Callback as Callback
from sporax.mindspore.train.callback._callback import RunContext as RunContext
from sporax.mindspore.train.callback._checkpoint_config import CheckpointConfig as CheckpointConfig
from sporax.mindspore.train.callback._model_checkpoint import ModelCheckpoint as ModelCheckpoint
from sporax.mindspore.train.callback._monitors import History as History
from sporax.mindspore.train.callback._monitors import LambdaCallback as LambdaCallback
from sporax.mindspore.train.callback._monitors import LossMonitor as LossMonitor
from sporax.mindspore.train.callback._monitors import TimeMonitor as TimeMonitor
from sporax.mindspore.train.callback._plateau import EarlyStopping as EarlyStopping
from sporax.mindspore.train.callback._plateau import LearningRateScheduler as LearningRateScheduler
from sporax.mindspore.train.callback._plateau import ReduceLROnPlateau as ReduceLROnPlateau
from sporax.mindspore.train.callback._progress import Progress as Progress
from sporax.mindspore.train.callback._request_exit import OnRequestExit as OnRequestExit
from sporax.mindspore.train.callback._resumable import ResumableCheckpoint as ResumableCheckpoint
from sporax.mindspore.train.callback._resuming import BackupAndRestore as BackupAndRestore
from sporax.mindspore.train.callback._summary_collector import SummaryCollector as SummaryCollector
from sporax.mindspore.train.callback._track import MLflowTracker as MLflowTracker
from sporax.mindspore.train.callback._track import TensorBoardTracker as TensorBoardTracker
from sporax.mindspore.train.callback._track import Track as Track
from sporax.mindspore.train.callback._track import Tracker as Tracker
from sporax.mindspore.train.callback._track import WandbTracker as WandbTracker


