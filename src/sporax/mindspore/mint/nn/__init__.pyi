"""Made by tools/make_type_stubs.py; do not edit."""
# Operators and Tensors say more precisely than their bases what they take.
# mypy: disable-error-code="override"

import builtins
from collections.abc import Callable, Sequence
from typing import Any, Literal

from sporax.mindspore.common.dtype import DType as _DType
from sporax.mindspore.common.tensor import Tensor as Tensor
from sporax.mindspore.mint.nn import functional as functional
from sporax.mindspore.mint.nn._activation import BCELoss as BCELoss
from sporax.mindspore.mint.nn._activation import BCEWithLogitsLoss as BCEWithLogitsLoss
from sporax.mindspore.mint.nn._activation import CosineEmbeddingLoss as CosineEmbeddingLoss
from sporax.mindspore.mint.nn._activation import CrossEntropyLoss as CrossEntropyLoss
from sporax.mindspore.mint.nn._activation import ELU as ELU
from sporax.mindspore.mint.nn._activation import GELU as GELU
from sporax.mindspore.mint.nn._activation import GLU as GLU
from sporax.mindspore.mint.nn._activation import Hardshrink as Hardshrink
from sporax.mindspore.mint.nn._activation import Hardsigmoid as Hardsigmoid
from sporax.mindspore.mint.nn._activation import Hardswish as Hardswish
from sporax.mindspore.mint.nn._activation import Hardtanh as Hardtanh
from sporax.mindspore.mint.nn._activation import KLDivLoss as KLDivLoss
from sporax.mindspore.mint.nn._activation import L1Loss as L1Loss
from sporax.mindspore.mint.nn._activation import LogSigmoid as LogSigmoid
from sporax.mindspore.mint.nn._activation import LogSoftmax as LogSoftmax
from sporax.mindspore.mint.nn._activation import MSELoss as MSELoss
from sporax.mindspore.mint.nn._activation import Mish as Mish
from sporax.mindspore.mint.nn._activation import NLLLoss as NLLLoss
from sporax.mindspore.mint.nn._activation import PReLU as PReLU
from sporax.mindspore.mint.nn._activation import ReLU as ReLU
from sporax.mindspore.mint.nn._activation import ReLU6 as ReLU6
from sporax.mindspore.mint.nn._activation import SELU as SELU
from sporax.mindspore.mint.nn._activation import SiLU as SiLU
from sporax.mindspore.mint.nn._activation import Sigmoid as Sigmoid
from sporax.mindspore.mint.nn._activation import SmoothL1Loss as SmoothL1Loss
from sporax.mindspore.mint.nn._activation import SoftMarginLoss as SoftMarginLoss
from sporax.mindspore.mint.nn._activation import Softmax as Softmax
from sporax.mindspore.mint.nn._activation import Softshrink as Softshrink
from sporax.mindspore.mint.nn._activation import Tanh as Tanh
from sporax.mindspore.mint.nn._activation import Threshold as Threshold
from sporax.mindspore.mint.nn._convolution import AdaptiveAvgPool1d as AdaptiveAvgPool1d
from sporax.mindspore.mint.nn._convolution import AdaptiveAvgPool2d as AdaptiveAvgPool2d
from sporax.mindspore.mint.nn._convolution import AdaptiveAvgPool3d as AdaptiveAvgPool3d
from sporax.mindspore.mint.nn._convolution import AdaptiveMaxPool1d as AdaptiveMaxPool1d
from sporax.mindspore.mint.nn._convolution import AdaptiveMaxPool2d as AdaptiveMaxPool2d
from sporax.mindspore.mint.nn._convolution import AvgPool1d as AvgPool1d
from sporax.mindspore.mint.nn._convolution import AvgPool2d as AvgPool2d
from sporax.mindspore.mint.nn._convolution import AvgPool3d as AvgPool3d
from sporax.mindspore.mint.nn._convolution import Conv1d as Conv1d
from sporax.mindspore.mint.nn._convolution import Conv2d as Conv2d
from sporax.mindspore.mint.nn._convolution import Conv3d as Conv3d
from sporax.mindspore.mint.nn._convolution import ConvTranspose2d as ConvTranspose2d
from sporax.mindspore.mint.nn._convolution import MaxPool2d as MaxPool2d
from sporax.mindspore.mint.nn._convolution import MaxUnpool2d as MaxUnpool2d
from sporax.mindspore.mint.nn._linear import Embedding as Embedding
from sporax.mindspore.mint.nn._linear import Linear as Linear
from sporax.mindspore.mint.nn._normalization import BatchNorm1d as BatchNorm1d
from sporax.mindspore.mint.nn._normalization import BatchNorm2d as BatchNorm2d
from sporax.mindspore.mint.nn._normalization import BatchNorm3d as BatchNorm3d
from sporax.mindspore.mint.nn._normalization import GroupNorm as GroupNorm
from sporax.mindspore.mint.nn._normalization import LayerNorm as LayerNorm
from sporax.mindspore.mint.nn._normalization import SyncBatchNorm as SyncBatchNorm
from sporax.mindspore.mint.nn._shaping import ConstantPad1d as ConstantPad1d
from sporax.mindspore.mint.nn._shaping import ConstantPad2d as ConstantPad2d
from sporax.mindspore.mint.nn._shaping import ConstantPad3d as ConstantPad3d
from sporax.mindspore.mint.nn._shaping import Dropout as Dropout
from sporax.mindspore.mint.nn._shaping import Dropout2d as Dropout2d
from sporax.mindspore.mint.nn._shaping import Flatten as Flatten
from sporax.mindspore.mint.nn._shaping import Fold as Fold
from sporax.mindspore.mint.nn._shaping import Identity as Identity
from sporax.mindspore.mint.nn._shaping import PixelShuffle as PixelShuffle
from sporax.mindspore.mint.nn._shaping import ReflectionPad1d as ReflectionPad1d
from sporax.mindspore.mint.nn._shaping import ReflectionPad2d as ReflectionPad2d
from sporax.mindspore.mint.nn._shaping import ReflectionPad3d as ReflectionPad3d
from sporax.mindspore.mint.nn._shaping import ReplicationPad1d as ReplicationPad1d
from sporax.mindspore.mint.nn._shaping import ReplicationPad2d as ReplicationPad2d
from sporax.mindspore.mint.nn._shaping import ReplicationPad3d as ReplicationPad3d
from sporax.mindspore.mint.nn._shaping import Unfold as Unfold
from sporax.mindspore.mint.nn._shaping import Upsample as Upsample
from sporax.mindspore.mint.nn._shaping import UpsamplingBilinear2d as UpsamplingBilinear2d
from sporax.mindspore.mint.nn._shaping import UpsamplingNearest2d as UpsamplingNearest2d
from sporax.mindspore.mint.nn._shaping import ZeroPad1d as ZeroPad1d
from sporax.mindspore.mint.nn._shaping import ZeroPad2d as ZeroPad2d
from sporax.mindspore.mint.nn._shaping import ZeroPad3d as ZeroPad3d


