"""Layers, losses, optimizers and the Cells that train: `mindspore.nn`."""

import sporax.mindspore.ops  # a Cell's Tensors need their operators
from sporax.mindspore._names.doors import door
from sporax.mindspore._names.missing import homes_in

_OWN = homes_in(
    __name__,
    """
    activation: CELU ELU GELU GLU LRN FastGelu Hardtanh HShrink HSigmoid HSwish LeakyReLU LogSigmoid LogSoftmax Mish
        PReLU ReLU ReLU6 RReLU SeLU Sigmoid SiLU Softmax Softmax2d Softmin SoftShrink Softsign Tanh Tanhshrink Threshold
        get_activation
    attention: MultiheadAttention Transformer TransformerDecoder TransformerDecoderLayer TransformerEncoder
        TransformerEncoderLayer
    basic: Dense Dropout Embedding Flatten Identity Dropout1d Dropout2d Dropout3d
    cell: Cell
    combined: Conv2dBnAct DenseBnAct TimeDistributed
    container: CellDict CellList SequentialCell
    convolution: Conv1d Conv2d Conv3d Conv1dTranspose Conv2dTranspose Conv3dTranspose
    embedding: EmbeddingLookup MultiFieldEmbeddingLookup
    grad_reducer: DistributedGradReducer
    image: PSNR CentralCrop ChannelShuffle ImageGradients PixelShuffle PixelUnshuffle ResizeBilinear Unfold Upsample
        MSSSIM SSIM ConstantPad1d ConstantPad2d ConstantPad3d Pad ReflectionPad1d ReflectionPad2d ReflectionPad3d
        ReplicationPad1d ReplicationPad2d ReplicationPad3d ZeroPad2d
    jax_cell: GraphCell JaxCell
    learning_rate_schedule: CosineDecayLR ExponentialDecayLR InverseDecayLR LearningRateSchedule NaturalExpDecayLR
        PolynomialDecayLR WarmUpLR cosine_decay_lr exponential_decay_lr inverse_decay_lr natural_exp_decay_lr
        piecewise_constant_lr polynomial_decay_lr warmup_lr
    likelihood_loss: BCELoss CTCLoss DiceLoss FocalLoss GaussianNLLLoss KLDivLoss MultiClassDiceLoss
        MultiLabelSoftMarginLoss NLLLoss PoissonNLLLoss SampledSoftmaxLoss
    loss: BCEWithLogitsLoss CosineEmbeddingLoss CrossEntropyLoss HingeEmbeddingLoss HuberLoss L1Loss L1LossExt LossBase
        MAELoss MarginRankingLoss MSELoss MultilabelMarginLoss MultiMarginLoss RMSELoss SmoothL1Loss
        SoftmaxCrossEntropyWithLogits SoftMarginLoss TripletMarginLoss TripletMarginWithDistanceLoss
    loss_scale: DynamicLossScaleUpdateCell FixedLossScaleUpdateCell TrainOneStepWithLossScaleCell
    mathematics: BiDense ClipByNorm DiGamma IGamma L1Regularizer LBeta LGamma MatDet MatInverse MatrixDiag
        MatrixDiagPart MatrixSetDiag Norm OneHot ReduceLogSumExp Tril Triu Unflatten MatMul Moments Range Roll
        SparseTensorDenseMatmul SparseToDense
    normalization: BatchNorm1d BatchNorm2d BatchNorm3d GroupNorm InstanceNorm1d InstanceNorm2d InstanceNorm3d LayerNorm
        RMSNorm SyncBatchNorm
    optim: ASGD FTRL LARS SGD Adadelta AdaFactor Adagrad Adam AdaMax AdamOffload AdamWeightDecay Lamb LazyAdam Momentum
        OptaxOptimizer Optimizer ProximalAdagrad RMSProp Rprop thor
    pooling: AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d
        AvgPool1d AvgPool2d AvgPool3d FractionalMaxPool2d FractionalMaxPool3d LPPool1d LPPool2d MaxPool1d MaxPool2d
        MaxPool3d MaxUnpool1d MaxUnpool2d MaxUnpool3d
    recurrent: GRU LSTM RNN GRUCell LSTMCell RNNCell
    second_order: Conv2dThor DenseThor EmbeddingLookupThor EmbeddingThor
    wrap: ForwardValueAndGrad ParameterUpdate TrainOneStepCell WithEvalCell WithGradCell WithLossCell Jvp Vjp
    """,
)

# Cells that divide a batch live with the parallel settings, one layer up; those of `mint` are under other names. A helper of
# Parameters is in `nn.utils` in MindSpore.
_FROM_ABOVE = homes_in(
    "sporax.mindspore",
    """
    common.parameter: no_init_parameters
    parallel.nn: PipelineCell MicroBatchInterleaved PipelineGradReducer GradAccumulationCell=GradAccumulation
    mint.nn: Linear AvgPool1dExt=AvgPool1d AvgPool2dExt=AvgPool2d AvgPool3dExt=AvgPool3d DropoutExt=Dropout
        Dropout2dExt=Dropout2d EmbeddingExt=Embedding LayerNormExt=LayerNorm LogSoftmaxExt=LogSoftmax
        MaxPool2dExt=MaxPool2d PReLUExt=PReLU
    """,
)

# Part of `nn` before 2.0. `Transformer` and its layers are other classes now, so these are in `nn.transformer` only.
_MORE = {"probability": "sporax.mindspore.nn.probability"} | homes_in(
    "sporax.mindspore",
    """
    parallel._transformer: AttentionMask EmbeddingOpParallelConfig FeedForward MoEConfig MultiHeadAttention
        OpParallelConfig TransformerOpParallelConfig TransformerRecomputeConfig VocabEmbedding
    train.metrics: names get_metric_fn rearrange_inputs Metric Accuracy Loss MAE MSE TopKCategoricalAccuracy
        Top1CategoricalAccuracy Top5CategoricalAccuracy Precision Recall Fbeta F1 Perplexity ROC auc CosineSimilarity
        ConfusionMatrix ConfusionMatrixMetric BleuScore Dice HausdorffDistance MeanSurfaceDistance
        RootMeanSquareDistance OcclusionSensitivity
    """,
)
_FOR_SCRIPTS = {  # names of MindSpore's modules that scripts import
    "_activation": "sporax.mindspore.nn.activation:_BY_NAME",
    "_Loss": "sporax.mindspore.nn.loss:LossBase",
    "RNNCellBase": "sporax.mindspore.nn.recurrent:RNNCellBase",
}

_HOMES = {"utils": "sporax.mindspore.nn.utils", **_OWN, **_FROM_ABOVE}

__all__ = [*_HOMES]
__getattr__, __dir__ = door(__name__, _HOMES, {**_MORE, **_FOR_SCRIPTS})
