"""Training tools: `Model`, callbacks, metrics and checkpoints (`mindspore.train`)."""

from typing import TYPE_CHECKING

from sporax.mindspore._names.missing import missing_names
from sporax.mindspore.train import (
    amp,
    callback,
    checkpoint,
    interop,
    loss_scale_manager,
    metrics,
    model,
    serialization,
    summary,
)
from sporax.mindspore.train.amp import build_train_network
from sporax.mindspore.train.callback import *  # noqa: F403 - their names are listed in callback.__all__
from sporax.mindspore.train.checkpoint import *  # noqa: F403 - their names are listed in checkpoint.__all__
from sporax.mindspore.train.data_sink import data_sink
from sporax.mindspore.train.dataset_helper import DatasetHelper, connect_network_with_dataset
from sporax.mindspore.train.export import export, load
from sporax.mindspore.train.interop import load_torch_weights, torch_names
from sporax.mindspore.train.loss_scale_manager import DynamicLossScaleManager, FixedLossScaleManager, LossScaleManager
from sporax.mindspore.train.metrics import *  # noqa: F403 - their names are listed in metrics.__all__
from sporax.mindspore.train.model import Model
from sporax.mindspore.train.serialization import (
    async_ckpt_thread_status,
    ckpt_to_safetensors,
    load_checkpoint,
    load_checkpoint_async,
    load_param_into_net,
    safetensors_to_ckpt,
    save_checkpoint,
)
from sporax.mindspore.train.summary import SummaryRecord
from sporax.mindspore.train.train_thor import ConvertModelUtils, ConvertNetUtils

__all__ = [
    "ConvertModelUtils",
    "ConvertNetUtils",
    "DatasetHelper",
    "Model",
    "build_train_network",
    "connect_network_with_dataset",
    "data_sink",
    "export",
    "load",
    *callback.__all__,
    *checkpoint.__all__,
    *interop.__all__,
    *loss_scale_manager.__all__,
    *metrics.__all__,
    *serialization.__all__,
    *summary.__all__,
]
if not TYPE_CHECKING:  # checkers should see a missing name themselves
    __getattr__ = missing_names(__name__)
