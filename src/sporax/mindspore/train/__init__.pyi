"""Made by tools/make_type_stubs.py; do not edit."""
# Operators and Tensors say more precisely than their bases what they take.
# mypy: disable-error-code="override"

import builtins
from collections.abc import Callable, Sequence
from typing import Any, Literal

from sporax.mindspore.common.dtype import DType as _DType
from sporax.mindspore.common.tensor import Tensor as Tensor
from sporax.mindspore.train.amp import build_train_network as build_train_network
from sporax.mindspore.train.callback import BackupAndRestore as BackupAndRestore
from sporax.mindspore.train.callback import Callback as Callback
from sporax.mindspore.train.callback import CheckpointConfig as CheckpointConfig
from sporax.mindspore.train.callback import EarlyStopping as EarlyStopping
from sporax.mindspore.train.callback import History as History
from sporax.mindspore.train.callback import LambdaCallback as LambdaCallback
from sporax.mindspore.train.callback import LearningRateScheduler as LearningRateScheduler
from sporax.mindspore.train.callback import LossMonitor as LossMonitor
from sporax.mindspore.train.callback import MLflowTracker as MLflowTracker
from sporax.mindspore.train.callback import ModelCheckpoint as ModelCheckpoint
from sporax.mindspore.train.callback import OnRequestExit as OnRequestExit
from sporax.mindspore.train.callback import Progress as Progress
from sporax.mindspore.train.callback import ReduceLROnPlateau as ReduceLROnPlateau
from sporax.mindspore.train.callback import ResumableCheckpoint as ResumableCheckpoint
from sporax.mindspore.train.callback import RunContext as RunContext
from sporax.mindspore.train.callback import SummaryCollector as SummaryCollector
from sporax.mindspore.train.callback import TensorBoardTracker as TensorBoardTracker
from sporax.mindspore.train.callback import TimeMonitor as TimeMonitor
from sporax.mindspore.train.callback import Track as Track
from sporax.mindspore.train.callback import Tracker as Tracker
from sporax.mindspore.train.callback import WandbTracker as WandbTracker
from sporax.mindspore.train.checkpoint import build_searched_strategy as build_searched_strategy
from sporax.mindspore.train.checkpoint import load_distributed_checkpoint as load_distributed_checkpoint
from sporax.mindspore.train.checkpoint import load_segmented_checkpoints as load_segmented_checkpoints
from sporax.mindspore.train.checkpoint import merge_pipeline_strategys as merge_pipeline_strategys
from sporax.mindspore.train.checkpoint import merge_sliced_parameter as merge_sliced_parameter
from sporax.mindspore.train.checkpoint import rank_list_for_transform as rank_list_for_transform
from sporax.mindspore.train.checkpoint import restore_group_info_list as restore_group_info_list
from sporax.mindspore.train.checkpoint import transform_checkpoint_by_rank as transform_checkpoint_by_rank
from sporax.mindspore.train.checkpoint import transform_checkpoints as transform_checkpoints
from sporax.mindspore.train.checkpoint import unified_safetensors as unified_safetensors
from sporax.mindspore.train.data_sink import data_sink as data_sink
from sporax.mindspore.train.dataset_helper import DatasetHelper as DatasetHelper
from sporax.mindspore.train.dataset_helper import connect_network_with_dataset as connect_network_with_dataset
from sporax.mindspore.train.export import export as export
from sporax.mindspore.train.export import load as load
from sporax.mindspore.train.interop import load_torch_weights as load_torch_weights
from sporax.mindspore.train.interop import torch_names as torch_names
from sporax.mindspore.train.loss_scale_manager import DynamicLossScaleManager as DynamicLossScaleManager
from sporax.mindspore.train.loss_scale_manager import FixedLossScaleManager as FixedLossScaleManager
from sporax.mindspore.train.loss_scale_manager import LossScaleManager as LossScaleManager
from sporax.mindspore.train.metrics import Accuracy as Accuracy
from sporax.mindspore.train.metrics import BleuScore as BleuScore
from sporax.mindspore.train.metrics import ConfusionMatrix as ConfusionMatrix
from sporax.mindspore.train.metrics import ConfusionMatrixMetric as ConfusionMatrixMetric
from sporax.mindspore.train.metrics import CosineSimilarity as CosineSimilarity
from sporax.mindspore.train.metrics import Dice as Dice
from sporax.mindspore.train.metrics import F1 as F1
from sporax.mindspore.train.metrics import Fbeta as Fbeta
from sporax.mindspore.train.metrics import HausdorffDistance as HausdorffDistance
from sporax.mindspore.train.metrics import Loss as Loss
from sporax.mindspore.train.metrics import MAE as MAE
from sporax.mindspore.train.metrics import MSE as MSE
from sporax.mindspore.train.metrics import MeanSurfaceDistance as MeanSurfaceDistance
from sporax.mindspore.train.metrics import Metric as Metric
from sporax.mindspore.train.metrics import OcclusionSensitivity as OcclusionSensitivity
from sporax.mindspore.train.metrics import Perplexity as Perplexity
from sporax.mindspore.train.metrics import Precision as Precision
from sporax.mindspore.train.metrics import ROC as ROC
from sporax.mindspore.train.metrics import Recall as Recall
from sporax.mindspore.train.metrics import RootMeanSquareDistance as RootMeanSquareDistance
from sporax.mindspore.train.metrics import Top1CategoricalAccuracy as Top1CategoricalAccuracy
from sporax.mindspore.train.metrics import Top5CategoricalAccuracy as Top5CategoricalAccuracy
from sporax.mindspore.train.metrics import TopKCategoricalAccuracy as TopKCategoricalAccuracy
from sporax.mindspore.train.metrics import auc as auc
from sporax.mindspore.train.metrics import get_metric_fn as get_metric_fn
from sporax.mindspore.train.metrics import names as names
from sporax.mindspore.train.metrics import rearrange_inputs as rearrange_inputs
from sporax.mindspore.train.model import Model as Model
from sporax.mindspore.train.serialization import async_ckpt_thread_status as async_ckpt_thread_status
from sporax.mindspore.train.serialization import ckpt_to_safetensors as ckpt_to_safetensors
from sporax.mindspore.train.serialization import load_checkpoint as load_checkpoint
from sporax.mindspore.train.serialization import load_checkpoint_async as load_checkpoint_async
from sporax.mindspore.train.serialization import load_param_into_net as load_param_into_net
from sporax.mindspore.train.serialization import safetensors_to_ckpt as safetensors_to_ckpt
from sporax.mindspore.train.serialization import save_checkpoint as save_checkpoint
from sporax.mindspore.train.summary import SummaryRecord as SummaryRecord
from sporax.mindspore.train.train_thor import ConvertModelUtils as ConvertModelUtils
from sporax.mindspore.train.train_thor import ConvertNetUtils as ConvertNetUtils


