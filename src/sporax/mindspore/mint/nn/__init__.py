"""Layers of `mindspore.mint.nn`, whose names and arguments follow PyTorch's."""

from sporax.mindspore._names.doors import door
from sporax.mindspore._names.missing import homes_in

_HOMES = {"functional": f"{__name__}.functional"} | homes_in(
    __name__,
    """
    _layer: ELU GELU GLU SELU Hardshrink Hardsigmoid Hardswish Hardtanh LogSigmoid LogSoftmax Mish PReLU ReLU
        ReLU6 Sigmoid SiLU Softmax Softshrink Tanh Threshold BCELoss BCEWithLogitsLoss CosineEmbeddingLoss
        CrossEntropyLoss KLDivLoss L1Loss MSELoss NLLLoss SmoothL1Loss SoftMarginLoss Dropout Dropout2d Flatten Fold
        Identity PixelShuffle Unfold Upsample UpsamplingBilinear2d UpsamplingNearest2d ConstantPad1d ConstantPad2d
        ConstantPad3d ReflectionPad1d ReflectionPad2d ReflectionPad3d ReplicationPad1d ReplicationPad2d
        ReplicationPad3d ZeroPad1d ZeroPad2d ZeroPad3d
    _convolution: Conv1d Conv2d Conv3d ConvTranspose2d AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d
        AdaptiveMaxPool1d AdaptiveMaxPool2d AvgPool1d AvgPool2d AvgPool3d MaxPool2d MaxUnpool2d
    _weights: BatchNorm1d BatchNorm2d BatchNorm3d Embedding GroupNorm LayerNorm Linear SyncBatchNorm
    """,
)

__all__ = [*_HOMES]
__getattr__, __dir__ = door(__name__, _HOMES)
