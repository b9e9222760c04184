"""Made by tools/make_type_stubs.py; do not edit."""
# Operators and Tensors say more precisely than their bases what they take.
# mypy: disable-error-code="override"

import builtins
from collections.abc import Callable, Sequence
from typing import Any, Literal

from sporax import amp as amp
from sporax import boost as boost
from sporax import common as common
from sporax import communication as communication
from sporax import context as context
from sporax import dataset as dataset
from sporax import device_context as device_context
from sporax import experimental as experimental
from sporax import graph as graph
from sporax import hal as hal
from sporax import ir as ir
from sporax import log as log
from sporax import mindrecord as mindrecord
from sporax import mint as mint
from sporax import nn as nn
from sporax import numpy as numpy
from sporax import ops as ops
from sporax import parallel as parallel
from sporax import planner as planner
from sporax import profiler as profiler
from sporax import runtime as runtime
from sporax import train as train
from sporax import version as version
from sporax._run_check import run_check as run_check
from sporax.amp._scalers import DynamicLossScaleManager as DynamicLossScaleManager
from sporax.amp._scalers import FixedLossScaleManager as FixedLossScaleManager
from sporax.amp._scalers import LossScaleManager as LossScaleManager
from sporax.amp._training import build_train_network as build_train_network
from sporax.common import dtype as dtype
from sporax.common.api import _no_grad as _no_grad
from sporax.common.api import ms_memory_recycle as ms_memory_recycle
from sporax.common.dtype import DType as DType
from sporax.common.dtype import DType as _DType
from sporax.common.dtype import QuantDtype as QuantDtype
from sporax.common.dtype import TensorType as TensorType
from sporax.common.dtype import dtype_to_nptype as dtype_to_nptype
from sporax.common.dtype import dtype_to_pytype as dtype_to_pytype
from sporax.common.dtype import get_py_obj_dtype as get_py_obj_dtype
from sporax.common.dtype import pytype_to_dtype as pytype_to_dtype
from sporax.common.generator import Generator as Generator
from sporax.common.generator import get_rng_state as get_rng_state
from sporax.common.generator import initial_seed as initial_seed
from sporax.common.generator import manual_seed as manual_seed
from sporax.common.generator import seed as seed
from sporax.common.generator import set_rng_state as set_rng_state
from sporax.common.jit import jit as jit
from sporax.common.jit import jit_class as jit_class
from sporax.common.jit import lazy_inline as lazy_inline
from sporax.common.jit import no_inline as no_inline
from sporax.common.jit import recompilations as recompilations
from sporax.common.jit_config import JitConfig as JitConfig
from sporax.common.parameter import Parameter as Parameter
from sporax.common.parameter import ParameterTuple as ParameterTuple
from sporax.common.recompute import recompute as recompute
from sporax.common.seed import get_seed as get_seed
from sporax.common.seed import set_seed as set_seed
from sporax.common.sparse_tensor import COOTensor as COOTensor
from sporax.common.sparse_tensor import CSRTensor as CSRTensor
from sporax.common.sparse_tensor import RowTensor as RowTensor
from sporax.common.sparse_tensor import SparseTensor as SparseTensor
from sporax.common.symbol import Symbol as Symbol
from sporax.common.tensor import Tensor as Tensor
from sporax.common.tensor import tensor as tensor
from sporax.common.toplevel import from_numpy as from_numpy
from sporax.common.toplevel import is_tensor as is_tensor
from sporax.common.toplevel import mutable as mutable
from sporax.common.toplevel import set_recursion_limit as set_recursion_limit
from sporax.common.transforms import GradOperation as GradOperation
from sporax.common.transforms import get_grad as get_grad
from sporax.common.transforms import grad as grad
from sporax.common.transforms import jvp as jvp
from sporax.common.transforms import value_and_grad as value_and_grad
from sporax.common.transforms import vjp as vjp
from sporax.common.vectorize import jacfwd as jacfwd
from sporax.common.vectorize import jacrev as jacrev
from sporax.common.vectorize import vmap as vmap
from sporax.context._global import get_context as get_context
from sporax.context._global import set_context as set_context
from sporax.context._global import set_deterministic as set_deterministic
from sporax.context._global import set_device as set_device
from sporax.context._offload import get_offload_context as get_offload_context
from sporax.context._offload import set_offload_context as set_offload_context
from sporax.context._parallel import get_auto_parallel_context as get_auto_parallel_context
from sporax.context._parallel import reset_auto_parallel_context as reset_auto_parallel_context
from sporax.context._parallel import set_auto_parallel_context as set_auto_parallel_context
from sporax.context._ps import get_ps_context as get_ps_context
from sporax.context._ps import reset_ps_context as reset_ps_context
from sporax.context._ps import set_ps_context as set_ps_context
from sporax.context._search import get_algo_parameters as get_algo_parameters
from sporax.context._search import reset_algo_parameters as reset_algo_parameters
from sporax.context._search import set_algo_parameters as set_algo_parameters
from sporax.ir.parallel_config import ParallelMode as ParallelMode
from sporax.log import get_level as get_level
from sporax.log import get_log_config as get_log_config
from sporax.mindrecord._errors import set_dec_mode as set_dec_mode
from sporax.mindrecord._errors import set_enc_key as set_enc_key
from sporax.mindrecord._errors import set_enc_mode as set_enc_mode
from sporax.mindrecord._pages import MindPage as MindPage
from sporax.mindrecord._read import FileReader as FileReader
from sporax.mindrecord._write import FileWriter as FileWriter
from sporax.nn.second_order import ConvertNetUtils as ConvertNetUtils
from sporax.ops._core.shard import shard as shard
from sporax.ops.control.composition import constexpr as constexpr
from sporax.parallel._layout import Layout as Layout
from sporax.parallel._pipeline import sync_pipeline_shared_parameters as sync_pipeline_shared_parameters
from sporax.parallel._strategy_files import set_op_strategy_config as set_op_strategy_config
from sporax.profiler import Profiler as Profiler
from sporax.runtime.memory import empty_cache as empty_cache
from sporax.runtime.memory import max_memory_allocated as max_memory_allocated
from sporax.runtime.memory import max_memory_reserved as max_memory_reserved
from sporax.runtime.memory import memory_allocated as memory_allocated
from sporax.runtime.memory import memory_reserved as memory_reserved
from sporax.runtime.memory import memory_stats as memory_stats
from sporax.runtime.memory import memory_summary as memory_summary
from sporax.runtime.memory import reset_max_memory_allocated as reset_max_memory_allocated
from sporax.runtime.memory import reset_max_memory_reserved as reset_max_memory_reserved
from sporax.runtime.memory import reset_peak_memory_stats as reset_peak_memory_stats
from sporax.runtime.memory import set_memory as set_memory
from sporax.runtime.memory import synchronize as synchronize
from sporax.runtime.parameter_server import sample_ranges as sample_ranges
from sporax.runtime.plain import plan as plan
from sporax.runtime.streams import Event as Event
from sporax.runtime.streams import Stream as Stream
from sporax.runtime.streams import StreamCtx as StreamCtx
from sporax.runtime.streams import communication_stream as communication_stream
from sporax.runtime.streams import current_stream as current_stream
from sporax.runtime.streams import default_stream as default_stream
from sporax.runtime.streams import set_cur_stream as set_cur_stream
from sporax.train._apply import load_param_into_net as load_param_into_net
from sporax.train.callback._backup import BackupAndRestore as BackupAndRestore
from sporax.train.callback._callback import Callback as Callback
from sporax.train.callback._callback import RunContext as RunContext
from sporax.train.callback._checkpoint_config import CheckpointConfig as CheckpointConfig
from sporax.train.callback._model_checkpoint import ModelCheckpoint as ModelCheckpoint
from sporax.train.callback._monitors import History as History
from sporax.train.callback._monitors import LambdaCallback as LambdaCallback
from sporax.train.callback._monitors import LossMonitor as LossMonitor
from sporax.train.callback._monitors import TimeMonitor as TimeMonitor
from sporax.train.callback._plateau import EarlyStopping as EarlyStopping
from sporax.train.callback._plateau import LearningRateScheduler as LearningRateScheduler
from sporax.train.callback._plateau import ReduceLROnPlateau as ReduceLROnPlateau
from sporax.train.callback._request_exit import OnRequestExit as OnRequestExit
from sporax.train.callback._resumable import ResumableCheckpoint as ResumableCheckpoint
from sporax.train.callback._summary_collector import SummaryCollector as SummaryCollector
from sporax.train.checkpoint.loading import load_distributed_checkpoint as load_distributed_checkpoint
from sporax.train.checkpoint.loading import load_segmented_checkpoints as load_segmented_checkpoints
from sporax.train.checkpoint.merging import merge_sliced_parameter as merge_sliced_parameter
from sporax.train.checkpoint.strategy import build_searched_strategy as build_searched_strategy
from sporax.train.checkpoint.strategy import merge_pipeline_strategys as merge_pipeline_strategys
from sporax.train.checkpoint.strategy import restore_group_info_list as restore_group_info_list
from sporax.train.checkpoint.transform import rank_list_for_transform as rank_list_for_transform
from sporax.train.checkpoint.transform import transform_checkpoint_by_rank as transform_checkpoint_by_rank
from sporax.train.checkpoint.transform import transform_checkpoints as transform_checkpoints
from sporax.train.checkpoint.unified import unified_safetensors as unified_safetensors
from sporax.train.data_sink import data_sink as data_sink
from sporax.train.dataset_helper import DatasetHelper as DatasetHelper
from sporax.train.dataset_helper import connect_network_with_dataset as connect_network_with_dataset
from sporax.train.export import export as export
from sporax.train.export import load as load
from sporax.train.metrics import get_metric_fn as get_metric_fn
from sporax.train.metrics import names as names
from sporax.train.metrics._classes import F1 as F1
from sporax.train.metrics._classes import Fbeta as Fbeta
from sporax.train.metrics._classes import Precision as Precision
from sporax.train.metrics._classes import Recall as Recall
from sporax.train.metrics._confusion import ConfusionMatrix as ConfusionMatrix
from sporax.train.metrics._confusion import ConfusionMatrixMetric as ConfusionMatrixMetric
from sporax.train.metrics._curves import ROC as ROC
from sporax.train.metrics._curves import auc as auc
from sporax.train.metrics._metric import Metric as Metric
from sporax.train.metrics._metric import rearrange_inputs as rearrange_inputs
from sporax.train.metrics._occlusion import OcclusionSensitivity as OcclusionSensitivity
from sporax.train.metrics._simple import Accuracy as Accuracy
from sporax.train.metrics._simple import CosineSimilarity as CosineSimilarity
from sporax.train.metrics._simple import Loss as Loss
from sporax.train.metrics._simple import MAE as MAE
from sporax.train.metrics._simple import MSE as MSE
from sporax.train.metrics._simple import Perplexity as Perplexity
from sporax.train.metrics._simple import Top1CategoricalAccuracy as Top1CategoricalAccuracy
from sporax.train.metrics._simple import Top5CategoricalAccuracy as Top5CategoricalAccuracy
from sporax.train.metrics._simple import TopKCategoricalAccuracy as TopKCategoricalAccuracy
from sporax.train.metrics._surfaces import Dice as Dice
from sporax.train.metrics._surfaces import HausdorffDistance as HausdorffDistance
from sporax.train.metrics._surfaces import MeanSurfaceDistance as MeanSurfaceDistance
from sporax.train.metrics._surfaces import RootMeanSquareDistance as RootMeanSquareDistance
from sporax.train.metrics._text import BleuScore as BleuScore
from sporax.train.model import Model as Model
from sporax.train.serialization import async_ckpt_thread_status as async_ckpt_thread_status
from sporax.train.serialization import ckpt_to_safetensors as ckpt_to_safetensors
from sporax.train.serialization import load_checkpoint as load_checkpoint
from sporax.train.serialization import load_checkpoint_async as load_checkpoint_async
from sporax.train.serialization import safetensors_to_ckpt as safetensors_to_ckpt
from sporax.train.serialization import save_checkpoint as save_checkpoint
from sporax.train.summary import SummaryRecord as SummaryRecord
from sporax.train.train_thor import ConvertModelUtils as ConvertModelUtils

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
