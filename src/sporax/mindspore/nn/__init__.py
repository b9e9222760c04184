"""Layers, losses, optimizers and the Cells that train: `mindspore.nn`."""

from inspect import ismodule
from typing import TYPE_CHECKING, Any

from sporax.mindspore._names.missing import homes, missing_names
from sporax.mindspore.nn import utils
from sporax.mindspore.nn.activation import (
    _BY_NAME,
    CELU,
    ELU,
    GELU,
    GLU,
    LRN,
    FastGelu,
    Hardtanh,
    HShrink,
    HSigmoid,
    HSwish,
    LeakyReLU,
    LogSigmoid,
    LogSoftmax,
    Mish,
    PReLU,
    ReLU,
    ReLU6,
    RReLU,
    SeLU,
    Sigmoid,
    SiLU,
    Softmax,
    Softmax2d,
    Softmin,
    SoftShrink,
    Softsign,
    Tanh,
    Tanhshrink,
    Threshold,
    get_activation,
)
from sporax.mindspore.nn.attention import (
    MultiheadAttention,
    Transformer,
    TransformerDecoder,
    TransformerDecoderLayer,
    TransformerEncoder,
    TransformerEncoderLayer,
)
from sporax.mindspore.nn.basic import Dense, Dropout, Embedding, Flatten, Identity
from sporax.mindspore.nn.cell import Cell
from sporax.mindspore.nn.combined import Conv2dBnAct, DenseBnAct, TimeDistributed
from sporax.mindspore.nn.container import CellDict, CellList, SequentialCell
from sporax.mindspore.nn.convolution import Conv1d, Conv2d, Conv3d
from sporax.mindspore.nn.deconvolution import Conv1dTranspose, Conv2dTranspose, Conv3dTranspose
from sporax.mindspore.nn.derivatives import Jvp, Vjp
from sporax.mindspore.nn.dropout import Dropout1d, Dropout2d, Dropout3d
from sporax.mindspore.nn.dynamic_lr import (
    cosine_decay_lr,
    exponential_decay_lr,
    inverse_decay_lr,
    natural_exp_decay_lr,
    piecewise_constant_lr,
    polynomial_decay_lr,
    warmup_lr,
)
from sporax.mindspore.nn.embedding import EmbeddingLookup, MultiFieldEmbeddingLookup
from sporax.mindspore.nn.former_functions import Moments, Range, Roll
from sporax.mindspore.nn.grad_reducer import DistributedGradReducer
from sporax.mindspore.nn.graph_cell import GraphCell
from sporax.mindspore.nn.image import (
    PSNR,
    CentralCrop,
    ChannelShuffle,
    ImageGradients,
    PixelShuffle,
    PixelUnshuffle,
    ResizeBilinear,
    Unfold,
    Upsample,
)
from sporax.mindspore.nn.jax_cell import JaxCell
from sporax.mindspore.nn.learning_rate_schedule import (
    CosineDecayLR,
    ExponentialDecayLR,
    InverseDecayLR,
    LearningRateSchedule,
    NaturalExpDecayLR,
    PolynomialDecayLR,
    WarmUpLR,
)
from sporax.mindspore.nn.likelihood_loss import (
    BCELoss,
    CTCLoss,
    DiceLoss,
    FocalLoss,
    GaussianNLLLoss,
    KLDivLoss,
    MultiClassDiceLoss,
    MultiLabelSoftMarginLoss,
    NLLLoss,
    PoissonNLLLoss,
    SampledSoftmaxLoss,
)
from sporax.mindspore.nn.loss import (
    BCEWithLogitsLoss,
    CrossEntropyLoss,
    L1Loss,
    L1LossExt,
    LossBase,
    MAELoss,
    MSELoss,
    SoftmaxCrossEntropyWithLogits,
)
from sporax.mindspore.nn.loss import LossBase as _Loss
from sporax.mindspore.nn.loss_scale import (
    DynamicLossScaleUpdateCell,
    FixedLossScaleUpdateCell,
    TrainOneStepWithLossScaleCell,
)
from sporax.mindspore.nn.margin_loss import (
    CosineEmbeddingLoss,
    HingeEmbeddingLoss,
    HuberLoss,
    MarginRankingLoss,
    MultilabelMarginLoss,
    MultiMarginLoss,
    RMSELoss,
    SmoothL1Loss,
    SoftMarginLoss,
    TripletMarginLoss,
    TripletMarginWithDistanceLoss,
)
from sporax.mindspore.nn.mathematics import (
    BiDense,
    ClipByNorm,
    DiGamma,
    IGamma,
    L1Regularizer,
    LBeta,
    LGamma,
    MatDet,
    MatInverse,
    MatrixSetDiag,
    Norm,
    OneHot,
    ReduceLogSumExp,
    Tril,
    Triu,
    Unflatten,
)
from sporax.mindspore.nn.mathematics import MatMul as MatMul
from sporax.mindspore.nn.normalization import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    GroupNorm,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
    LayerNorm,
    RMSNorm,
    SyncBatchNorm,
)
from sporax.mindspore.nn.optim import (
    ASGD,
    FTRL,
    LARS,
    SGD,
    Adadelta,
    AdaFactor,
    Adagrad,
    Adam,
    AdaMax,
    AdamOffload,
    AdamWeightDecay,
    Lamb,
    LazyAdam,
    Momentum,
    OptaxOptimizer,
    Optimizer,
    ProximalAdagrad,
    RMSProp,
    Rprop,
    thor,
)
from sporax.mindspore.nn.padding import (
    ConstantPad1d,
    ConstantPad2d,
    ConstantPad3d,
    Pad,
    ReflectionPad1d,
    ReflectionPad2d,
    ReflectionPad3d,
    ReplicationPad1d,
    ReplicationPad2d,
    ReplicationPad3d,
    ZeroPad2d,
)
from sporax.mindspore.nn.pooling import (
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AdaptiveAvgPool3d,
    AdaptiveMaxPool1d,
    AdaptiveMaxPool2d,
    AdaptiveMaxPool3d,
    AvgPool1d,
    AvgPool2d,
    AvgPool3d,
    FractionalMaxPool2d,
    FractionalMaxPool3d,
    LPPool1d,
    LPPool2d,
    MaxPool1d,
    MaxPool2d,
    MaxPool3d,
    MaxUnpool1d,
    MaxUnpool2d,
    MaxUnpool3d,
)
from sporax.mindspore.nn.recurrent import GRU, LSTM, RNN, GRUCell, LSTMCell, RNNCell
from sporax.mindspore.nn.second_order import Conv2dThor, DenseThor, EmbeddingLookupThor, EmbeddingThor
from sporax.mindspore.nn.similarity import MSSSIM, SSIM
from sporax.mindspore.nn.sparse import SparseTensorDenseMatmul, SparseToDense
from sporax.mindspore.nn.utils import no_init_parameters
from sporax.mindspore.nn.wrap import (
    ForwardValueAndGrad,
    ParameterUpdate,
    TrainOneStepCell,
    WithEvalCell,
    WithGradCell,
    WithLossCell,
)

_activation = _BY_NAME  # the name that scripts import

# Cells that divide a batch live with the parallel settings, one layer up, and are loaded when they are requested.
_FROM_PARALLEL = {
    **homes("sporax.mindspore.parallel.nn", "PipelineCell MicroBatchInterleaved PipelineGradReducer"),
    "GradAccumulationCell": "sporax.mindspore.parallel.nn:GradAccumulation",
}

_FROM_MINT = {  # the same classes under other names
    "Linear": "sporax.mindspore.mint.nn:Linear",
    **{
        f"{name}Ext": f"sporax.mindspore.mint.nn:{name}"
        for name in (
            "AvgPool1d AvgPool2d AvgPool3d Dropout Dropout2d Embedding LayerNorm LogSoftmax MaxPool2d PReLU"
        ).split()
    },
}

_MORE = {
    "probability": "sporax.mindspore.nn.probability",
    # Part of `nn` before 2.0. `Transformer` and its layers are other classes now, so these are in `nn.transformer` only.
    **homes(
        "sporax.mindspore.parallel._transformer",
        """
        AttentionMask EmbeddingOpParallelConfig FeedForward MoEConfig MultiHeadAttention OpParallelConfig
        TransformerOpParallelConfig TransformerRecomputeConfig VocabEmbedding
        """,
    ),
    **homes(  # likewise
        "sporax.mindspore.train.metrics",
        """
        names get_metric_fn rearrange_inputs Metric Accuracy Loss MAE MSE TopKCategoricalAccuracy Top1CategoricalAccuracy
        Top5CategoricalAccuracy Precision Recall Fbeta F1 Perplexity ROC auc CosineSimilarity ConfusionMatrix
        ConfusionMatrixMetric BleuScore Dice HausdorffDistance MeanSurfaceDistance RootMeanSquareDistance OcclusionSensitivity
        """,
    ),
}
# Names that this module needs, and does not offer.
_HELPERS = ("TYPE_CHECKING", "Any", "homes", "ismodule", "missing_names")
__all__ = [name for name, value in list(globals().items()) if not (name.startswith("_") or ismodule(value))]
__all__ = [*(name for name in __all__ if name not in _HELPERS), *_FROM_PARALLEL, *_FROM_MINT, "utils"]


if TYPE_CHECKING:  # from a layer above
    PipelineCell: Any
    MicroBatchInterleaved: Any
    GradAccumulationCell: Any
    PipelineGradReducer: Any
    Linear: Any
    AvgPool1dExt: Any
    AvgPool2dExt: Any
    AvgPool3dExt: Any
    DropoutExt: Any
    Dropout2dExt: Any
    EmbeddingExt: Any
    LayerNormExt: Any
    LogSoftmaxExt: Any
    MaxPool2dExt: Any
    PReLUExt: Any
else:  # checkers should see a missing name themselves
    __getattr__ = missing_names(__name__, {**_FROM_PARALLEL, **_FROM_MINT, **_MORE})
