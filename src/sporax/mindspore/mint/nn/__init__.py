"""Layers of `mindspore.mint.nn`, whose names and arguments follow PyTorch's."""

from inspect import ismodule
from typing import TYPE_CHECKING

from sporax.mindspore._names.missing import missing_names
from sporax.mindspore.mint.nn import functional
from sporax.mindspore.mint.nn._activation import (
    ELU,
    GELU,
    GLU,
    SELU,
    Hardshrink,
    Hardsigmoid,
    Hardswish,
    Hardtanh,
    LogSigmoid,
    LogSoftmax,
    Mish,
    PReLU,
    ReLU,
    ReLU6,
    Sigmoid,
    SiLU,
    Softmax,
    Softshrink,
    Tanh,
    Threshold,
)
from sporax.mindspore.mint.nn._convolution import Conv1d, Conv2d, Conv3d, ConvTranspose2d
from sporax.mindspore.mint.nn._linear import Embedding, Linear
from sporax.mindspore.mint.nn._loss import (
    BCELoss,
    BCEWithLogitsLoss,
    CosineEmbeddingLoss,
    CrossEntropyLoss,
    KLDivLoss,
    L1Loss,
    MSELoss,
    NLLLoss,
    SmoothL1Loss,
    SoftMarginLoss,
)
from sporax.mindspore.mint.nn._normalization import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    GroupNorm,
    LayerNorm,
    SyncBatchNorm,
)
from sporax.mindspore.mint.nn._padding import (
    ConstantPad1d,
    ConstantPad2d,
    ConstantPad3d,
    ReflectionPad1d,
    ReflectionPad2d,
    ReflectionPad3d,
    ReplicationPad1d,
    ReplicationPad2d,
    ReplicationPad3d,
    ZeroPad1d,
    ZeroPad2d,
    ZeroPad3d,
)
from sporax.mindspore.mint.nn._pooling import (
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AdaptiveAvgPool3d,
    AdaptiveMaxPool1d,
    AdaptiveMaxPool2d,
    AvgPool1d,
    AvgPool2d,
    AvgPool3d,
    MaxPool2d,
    MaxUnpool2d,
)
from sporax.mindspore.mint.nn._shaping import (
    Dropout,
    Dropout2d,
    Flatten,
    Fold,
    Identity,
    PixelShuffle,
    Unfold,
    Upsample,
    UpsamplingBilinear2d,
    UpsamplingNearest2d,
)

_OTHERS = ("TYPE_CHECKING", "ismodule", "missing_names")
__all__ = [name for name, value in list(globals().items()) if not (name.startswith("_") or ismodule(value))]
__all__ = [*(name for name in __all__ if name not in _OTHERS), "functional"]

if not TYPE_CHECKING:  # checkers should see a missing name themselves
    __getattr__ = missing_names(__name__)
