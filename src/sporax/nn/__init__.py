"""Layers, losses, optimizers and the Cells that train: `mindspore.nn`."""

from sporax.nn import utils
from sporax.nn.activation import (
    ELU,
    GELU,
    LeakyReLU,
    LogSoftmax,
    ReLU,
    ReLU6,
    Sigmoid,
    SiLU,
    Softmax,
    Tanh,
    get_activation,
)
from sporax.nn.basic import Dense, Dropout, Embedding, Flatten, Identity
from sporax.nn.cell import Cell
from sporax.nn.container import CellDict, CellList, SequentialCell
from sporax.nn.convolution import Conv1d, Conv2d, Conv3d
from sporax.nn.deconvolution import Conv1dTranspose, Conv2dTranspose, Conv3dTranspose
from sporax.nn.dynamic_lr import (
    cosine_decay_lr,
    exponential_decay_lr,
    inverse_decay_lr,
    natural_exp_decay_lr,
    piecewise_constant_lr,
    polynomial_decay_lr,
    warmup_lr,
)
from sporax.nn.learning_rate_schedule import (
    CosineDecayLR,
    ExponentialDecayLR,
    InverseDecayLR,
    LearningRateSchedule,
    NaturalExpDecayLR,
    PolynomialDecayLR,
    WarmUpLR,
)
from sporax.nn.loss import (
    BCEWithLogitsLoss,
    CrossEntropyLoss,
    L1Loss,
    LossBase,
    MAELoss,
    MSELoss,
    SoftmaxCrossEntropyWithLogits,
)
from sporax.nn.normalization import BatchNorm1d, BatchNorm2d, LayerNorm
from sporax.nn.optim import (
    ASGD,
    FTRL,
    LARS,
    SGD,
    AdaFactor,
    Adadelta,
    Adagrad,
    Adam,
    AdaMax,
    AdamWeightDecay,
    Lamb,
    LazyAdam,
    Momentum,
    OptaxOptimizer,
    Optimizer,
    ProximalAdagrad,
    RMSProp,
    Rprop,
)
from sporax.nn.pooling import (
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AdaptiveAvgPool3d,
    AdaptiveMaxPool1d,
    AdaptiveMaxPool2d,
    AdaptiveMaxPool3d,
    AvgPool1d,
    AvgPool2d,
    AvgPool3d,
    LPPool1d,
    LPPool2d,
    MaxPool1d,
    MaxPool2d,
    MaxPool3d,
    MaxUnpool1d,
    MaxUnpool2d,
    MaxUnpool3d,
)
from sporax.nn.wrap import ForwardValueAndGrad, ParameterUpdate, TrainOneStepCell, WithEvalCell, WithLossCell

__all__ = [name for name in dir() if not name.startswith("_")]
