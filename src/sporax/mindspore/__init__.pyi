"""Made by tools/make_type_stubs.py; do not edit."""
# Operators and Tensors say more precisely than their bases what they take.
# mypy: disable-error-code="override"

import builtins
from collections.abc import Callable, Sequence
from typing import Any, Literal

from sporax.ir.config.parallel_config import ParallelMode as ParallelMode
from sporax.mindspore import amp as amp
from sporax.mindspore import boost as boost
from sporax.mindspore import common as common
from sporax.mindspore import communication as communication
from sporax.mindspore import context as context
from sporax.mindspore import dataset as dataset
from sporax.mindspore import device_context as device_context
from sporax.mindspore import experimental as experimental
from sporax.mindspore import graph as graph
from sporax.mindspore import hal as hal
from sporax.mindspore import log as log
from sporax.mindspore import mindrecord as mindrecord
from sporax.mindspore import mint as mint
from sporax.mindspore import nn as nn
from sporax.mindspore import numpy as numpy
from sporax.mindspore import ops as ops
from sporax.mindspore import parallel as parallel
from sporax.mindspore import profiler as profiler
from sporax.mindspore import runtime as runtime
from sporax.mindspore import train as train
from sporax.mindspore import version as version
from sporax.mindspore._run_check import run_check as run_check
from sporax.mindspore.amp._scalers import DynamicLossScaleManager as DynamicLossScaleManager
from sporax.mindspore.amp._scalers import FixedLossScaleManager as FixedLossScaleManager
from sporax.mindspore.amp._scalers import LossScaleManager as LossScaleManager
from sporax.mindspore.amp._training import build_train_network as build_train_network
from sporax.mindspore.common import dtype as dtype
from sporax.mindspore.common.api import JitConfig as JitConfig
from sporax.mindspore.common.api import _no_grad as _no_grad
from sporax.mindspore.common.api import from_numpy as from_numpy
from sporax.mindspore.common.api import is_tensor as is_tensor
from sporax.mindspore.common.api import ms_memory_recycle as ms_memory_recycle
from sporax.mindspore.common.api import mutable as mutable
from sporax.mindspore.common.api import set_recursion_limit as set_recursion_limit
from sporax.mindspore.common.dtype import DType as DType
from sporax.mindspore.common.dtype import DType as _DType
from sporax.mindspore.common.dtype import QuantDtype as QuantDtype
from sporax.mindspore.common.dtype import TensorType as TensorType
from sporax.mindspore.common.dtype import dtype_to_nptype as dtype_to_nptype
from sporax.mindspore.common.dtype import dtype_to_pytype as dtype_to_pytype
from sporax.mindspore.common.dtype import get_py_obj_dtype as get_py_obj_dtype
from sporax.mindspore.common.dtype import pytype_to_dtype as pytype_to_dtype
from sporax.mindspore.common.generator import Generator as Generator
from sporax.mindspore.common.generator import get_rng_state as get_rng_state
from sporax.mindspore.common.generator import initial_seed as initial_seed
from sporax.mindspore.common.generator import manual_seed as manual_seed
from sporax.mindspore.common.generator import seed as seed
from sporax.mindspore.common.generator import set_rng_state as set_rng_state
from sporax.mindspore.common.jit import jit as jit
from sporax.mindspore.common.jit import jit_class as jit_class
from sporax.mindspore.common.jit import lazy_inline as lazy_inline
from sporax.mindspore.common.jit import no_inline as no_inline
from sporax.mindspore.common.jit import recompilations as recompilations
from sporax.mindspore.common.parameter import Parameter as Parameter
from sporax.mindspore.common.parameter import ParameterTuple as ParameterTuple
from sporax.mindspore.common.recompute import recompute as recompute
from sporax.mindspore.common.seed import get_seed as get_seed
from sporax.mindspore.common.seed import set_seed as set_seed
from sporax.mindspore.common.sparse_tensor import COOTensor as COOTensor
from sporax.mindspore.common.sparse_tensor import CSRTensor as CSRTensor
from sporax.mindspore.common.sparse_tensor import RowTensor as RowTensor
from sporax.mindspore.common.sparse_tensor import SparseTensor as SparseTensor
from sporax.mindspore.common.symbol import Symbol as Symbol
from sporax.mindspore.common.tensor import Tensor as Tensor
from sporax.mindspore.common.tensor import tensor as tensor
from sporax.mindspore.common.transforms import GradOperation as GradOperation
from sporax.mindspore.common.transforms import get_grad as get_grad
from sporax.mindspore.common.transforms import grad as grad
from sporax.mindspore.common.transforms import jvp as jvp
from sporax.mindspore.common.transforms import value_and_grad as value_and_grad
from sporax.mindspore.common.transforms import vjp as vjp
from sporax.mindspore.common.vectorize import jacfwd as jacfwd
from sporax.mindspore.common.vectorize import jacrev as jacrev
from sporax.mindspore.common.vectorize import vmap as vmap
from sporax.mindspore.context._global import get_context as get_context
from sporax.mindspore.context._global import set_context as set_context
from sporax.mindspore.context._global import set_deterministic as set_deterministic
from sporax.mindspore.context._global import set_device as set_device
from sporax.mindspore.context._offload import get_offload_context as get_offload_context
from sporax.mindspore.context._offload import set_offload_context as set_offload_context
from sporax.mindspore.context._parallel import get_auto_parallel_context as get_auto_parallel_context
from sporax.mindspore.context._parallel import reset_auto_parallel_context as reset_auto_parallel_context
from sporax.mindspore.context._parallel import set_auto_parallel_context as set_auto_parallel_context
from sporax.mindspore.context._ps import get_ps_context as get_ps_context
from sporax.mindspore.context._ps import reset_ps_context as reset_ps_context
from sporax.mindspore.context._ps import set_ps_context as set_ps_context
from sporax.mindspore.context._search import get_algo_parameters as get_algo_parameters
from sporax.mindspore.context._search import reset_algo_parameters as reset_algo_parameters
from sporax.mindspore.context._search import set_algo_parameters as set_algo_parameters
from sporax.mindspore.log import get_level as get_level
from sporax.mindspore.log import get_log_config as get_log_config
from sporax.mindspore.mindrecord._errors import set_dec_mode as set_dec_mode
from sporax.mindspore.mindrecord._errors import set_enc_key as set_enc_key
from sporax.mindspore.mindrecord._errors import set_enc_mode as set_enc_mode
from sporax.mindspore.mindrecord._pages import FileReader as FileReader
from sporax.mindspore.mindrecord._pages import MindPage as MindPage
from sporax.mindspore.mindrecord._write import FileWriter as FileWriter
from sporax.mindspore.nn.second_order import ConvertNetUtils as ConvertNetUtils
from sporax.mindspore.ops._core.sharded_call import shard as shard
from sporax.mindspore.ops.control.composition import constexpr as constexpr
from sporax.mindspore.parallel._layout import Layout as Layout
from sporax.mindspore.parallel._pipeline import sync_pipeline_shared_parameters as sync_pipeline_shared_parameters
from sporax.mindspore.parallel.auto_parallel import set_op_strategy_config as set_op_strategy_config
from sporax.mindspore.parallel.function import reshard as reshard
from sporax.mindspore.profiler import Profiler as Profiler
from sporax.mindspore.runtime._memory import empty_cache as empty_cache
from sporax.mindspore.runtime._memory import max_memory_allocated as max_memory_allocated
from sporax.mindspore.runtime._memory import max_memory_reserved as max_memory_reserved
from sporax.mindspore.runtime._memory import memory_allocated as memory_allocated
from sporax.mindspore.runtime._memory import memory_reserved as memory_reserved
from sporax.mindspore.runtime._memory import memory_stats as memory_stats
from sporax.mindspore.runtime._memory import memory_summary as memory_summary
from sporax.mindspore.runtime._memory import reset_max_memory_allocated as reset_max_memory_allocated
from sporax.mindspore.runtime._memory import reset_max_memory_reserved as reset_max_memory_reserved
from sporax.mindspore.runtime._memory import reset_peak_memory_stats as reset_peak_memory_stats
from sporax.mindspore.runtime._memory import set_memory as set_memory
from sporax.mindspore.runtime._memory import synchronize as synchronize
from sporax.mindspore.runtime._streams import Event as Event
from sporax.mindspore.runtime._streams import Stream as Stream
from sporax.mindspore.runtime._streams import StreamCtx as StreamCtx
from sporax.mindspore.runtime._streams import communication_stream as communication_stream
from sporax.mindspore.runtime._streams import current_stream as current_stream
from sporax.mindspore.runtime._streams import default_stream as default_stream
from sporax.mindspore.runtime._streams import set_cur_stream as set_cur_stream
from sporax.mindspore.train._apply import load_param_into_net as load_param_into_net
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
from sporax.mindspore.train.callback._request_exit import OnRequestExit as OnRequestExit
from sporax.mindspore.train.callback._resumable import ResumableCheckpoint as ResumableCheckpoint
from sporax.mindspore.train.callback._resuming import BackupAndRestore as BackupAndRestore
from sporax.mindspore.train.callback._summary_collector import SummaryCollector as SummaryCollector
from sporax.mindspore.train.checkpoint.assembly import merge_sliced_parameter as merge_sliced_parameter
from sporax.mindspore.train.checkpoint.loading import load_distributed_checkpoint as load_distributed_checkpoint
from sporax.mindspore.train.checkpoint.loading import load_segmented_checkpoints as load_segmented_checkpoints
from sporax.mindspore.train.checkpoint.strategy import build_searched_strategy as build_searched_strategy
from sporax.mindspore.train.checkpoint.strategy import merge_pipeline_strategys as merge_pipeline_strategys
from sporax.mindspore.train.checkpoint.strategy import restore_group_info_list as restore_group_info_list
from sporax.mindspore.train.checkpoint.transform import rank_list_for_transform as rank_list_for_transform
from sporax.mindspore.train.checkpoint.transform import transform_checkpoint_by_rank as transform_checkpoint_by_rank
from sporax.mindspore.train.checkpoint.transform import transform_checkpoints as transform_checkpoints
from sporax.mindspore.train.checkpoint.unified import unified_safetensors as unified_safetensors
from sporax.mindspore.train.data_sink import data_sink as data_sink
from sporax.mindspore.train.dataset_helper import DatasetHelper as DatasetHelper
from sporax.mindspore.train.dataset_helper import connect_network_with_dataset as connect_network_with_dataset
from sporax.mindspore.train.export import export as export
from sporax.mindspore.train.export import load as load
from sporax.mindspore.train.metrics._classes import F1 as F1
from sporax.mindspore.train.metrics._classes import Fbeta as Fbeta
from sporax.mindspore.train.metrics._classes import Precision as Precision
from sporax.mindspore.train.metrics._classes import Recall as Recall
from sporax.mindspore.train.metrics._confusion import ConfusionMatrix as ConfusionMatrix
from sporax.mindspore.train.metrics._confusion import ConfusionMatrixMetric as ConfusionMatrixMetric
from sporax.mindspore.train.metrics._curves import BleuScore as BleuScore
from sporax.mindspore.train.metrics._curves import ROC as ROC
from sporax.mindspore.train.metrics._curves import auc as auc
from sporax.mindspore.train.metrics._metric import Metric as Metric
from sporax.mindspore.train.metrics._metric import get_metric_fn as get_metric_fn
from sporax.mindspore.train.metrics._metric import names as names
from sporax.mindspore.train.metrics._metric import rearrange_inputs as rearrange_inputs
from sporax.mindspore.train.metrics._simple import Accuracy as Accuracy
from sporax.mindspore.train.metrics._simple import CosineSimilarity as CosineSimilarity
from sporax.mindspore.train.metrics._simple import Loss as Loss
from sporax.mindspore.train.metrics._simple import MAE as MAE
from sporax.mindspore.train.metrics._simple import MSE as MSE
from sporax.mindspore.train.metrics._simple import Perplexity as Perplexity
from sporax.mindspore.train.metrics._simple import Top1CategoricalAccuracy as Top1CategoricalAccuracy
from sporax.mindspore.train.metrics._simple import Top5CategoricalAccuracy as Top5CategoricalAccuracy
from sporax.mindspore.train.metrics._simple import TopKCategoricalAccuracy as TopKCategoricalAccuracy
from sporax.mindspore.train.metrics._surfaces import Dice as Dice
from sporax.mindspore.train.metrics._surfaces import HausdorffDistance as HausdorffDistance
from sporax.mindspore.train.metrics._surfaces import MeanSurfaceDistance as MeanSurfaceDistance
from sporax.mindspore.train.metrics._surfaces import OcclusionSensitivity as OcclusionSensitivity
from sporax.mindspore.train.metrics._surfaces import RootMeanSquareDistance as RootMeanSquareDistance
from sporax.mindspore.train.model import Model as Model
from sporax.mindspore.train.serialization import async_ckpt_thread_status as async_ckpt_thread_status
from sporax.mindspore.train.serialization import ckpt_to_safetensors as ckpt_to_safetensors
from sporax.mindspore.train.serialization import load_checkpoint as load_checkpoint
from sporax.mindspore.train.serialization import load_checkpoint_async as load_checkpoint_async
from sporax.mindspore.train.serialization import safetensors_to_ckpt as safetensors_to_ckpt
from sporax.mindspore.train.serialization import save_checkpoint as save_checkpoint
from sporax.mindspore.train.summary import SummaryRecord as SummaryRecord
from sporax.mindspore.train.train_thor import ConvertModelUtils as ConvertModelUtils
from sporax.runtime.ranks.server_exchange import sample_ranges as sample_ranges

COMPATIBLE: int
GRAPH_MODE: int
Int: type[Any]
LAX: int
PYNATIVE_MODE: int
STRICT: int
Type: type[Any]
__version__: str
bfloat16: _DType
bool: _DType
bool_: _DType
byte: _DType
cdouble: _DType
cfloat: _DType
complex128: _DType
complex64: _DType
complex_type: tuple[Any, ...]
default_generator: Any
double: _DType
float: _DType
float16: _DType
float32: _DType
float64: _DType
float8_e4m3fn: _DType
float8_e5m2: _DType
float_: _DType
float_type: tuple[Any, ...]
half: _DType
int: _DType
int16: _DType
int32: _DType
int64: _DType
int8: _DType
int_: _DType
int_type: tuple[Any, ...]
intc: _DType
intp: _DType
list_: Any
long: _DType
number: Any
number_type: tuple[Any, ...]
qint4x2: _DType
short: _DType
single: _DType
string: Any
tensor_type: Any
tuple_: Any
type_none: Any
ubyte: _DType
uint: _DType
uint16: _DType
uint32: _DType
uint64: _DType
uint8: _DType
uint_type: tuple[Any, ...]
uintc: _DType
uintp: _DType
ulong: _DType
ushort: _DType

def ms_function(function: Any = ..., *, capture_mode: str = ..., jit_level: str = ..., dynamic: builtins.int = ..., fullgraph: builtins.bool = ..., backend: str = ..., input_signature: Any = ..., **options: Any) -> Any: ...
