"""Record which operators MindSpore's layers have as attributes, in `src/sporax/mindspore/nn/layer_operators.txt`.

Run with MindSpore 2.10 (CPU): python tools/golden/make_layer_operators.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import mindspore as ms
from mindspore import nn, ops

OUT = Path(__file__).parents[2] / "src" / "sporax" / "mindspore" / "nn" / "layer_operators.txt"
HEAD = "# Attributes of MindSpore 2.10's layers that are operators. Written by tools/golden/make_layer_operators.py.\n"
LAYERS = """
Dense(3,4) ; Conv1d(3,4,3) ; Conv2d(3,4,3) ; Conv3d(3,4,3) ; Conv1dTranspose(3,4,3) ; Conv2dTranspose(3,4,3) ;
Conv3dTranspose(3,4,3) ; Embedding(8,4) ; EmbeddingLookup(8,4) ; MultiFieldEmbeddingLookup(8,4,2) ; BatchNorm1d(3) ;
BatchNorm2d(3) ; BatchNorm3d(3) ; InstanceNorm1d(3) ; InstanceNorm2d(3) ; InstanceNorm3d(3) ; GroupNorm(2,4) ;
LayerNorm((4,)) ; SyncBatchNorm(3) ; MaxPool1d(3) ; MaxPool2d(3) ; MaxPool3d(3) ; AvgPool1d(3) ; AvgPool2d(3) ;
AvgPool3d(3) ; AdaptiveAvgPool1d(2) ; AdaptiveAvgPool2d(2) ; AdaptiveAvgPool3d(2) ; AdaptiveMaxPool1d(2) ;
AdaptiveMaxPool2d(2) ; AdaptiveMaxPool3d(2) ; LPPool1d(1,3) ; LPPool2d(1,3) ; MaxUnpool1d(3) ; MaxUnpool2d(3) ;
MaxUnpool3d(3) ; FractionalMaxPool2d(2,(1,1)) ; FractionalMaxPool3d(2,(1,1,1)) ; Dropout(p=0.1) ; Dropout1d() ;
Dropout2d() ; Dropout3d() ; Flatten() ; Identity() ; Norm() ; OneHot(depth=3) ; Pad(((1,1),(0,0))) ;
Unfold([1,2,2,1],[1,1,1,1],[1,1,1,1]) ; Range(0,8,2) ; Tril() ; Triu() ; L1Regularizer(0.1) ; ClipByNorm() ;
MatrixSetDiag() ; Roll(1,0) ; Unflatten(0,(1,1)) ; Upsample(scale_factor=2) ; PixelShuffle(2) ; PixelUnshuffle(2) ;
ChannelShuffle(2) ; CosineSimilarity() ; Moments() ; ReduceLogSumExp(0) ; LGamma() ; DiGamma() ; IGamma() ; LBeta()
; MatMul() ; MatInverse() ; MatDet() ; CentralCrop(0.5) ; SSIM() ; MSSSIM() ; PSNR() ; ImageGradients() ;
SparseToDense() ; SparseTensorDenseMatmul() ; ReLU() ; ReLU6() ; LeakyReLU() ; RReLU() ; ELU() ; CELU() ; GELU() ;
FastGelu() ; Sigmoid() ; LogSigmoid() ; Tanh() ; Tanhshrink() ; HSigmoid() ; HSwish() ; Hardtanh() ; HShrink() ;
SoftShrink() ; Softmax() ; LogSoftmax() ; Softmin() ; Softmax2d() ; Softsign() ; Mish() ; SiLU() ; PReLU() ; SeLU()
; GLU() ; Threshold(0.1,2) ; LSTM(3,4) ; LSTMCell(3,4) ; GRU(3,4) ; GRUCell(3,4) ; RNN(3,4) ; RNNCell(3,4) ;
MultiheadAttention(4,2) ; TransformerEncoderLayer(4,2) ; TransformerDecoderLayer(4,2) ;
TransformerEncoder(nn.TransformerEncoderLayer(4,2),2) ; Transformer(4,2,1,1) ; L1Loss() ; MSELoss() ; RMSELoss() ;
MAELoss() ; SmoothL1Loss() ; SoftMarginLoss() ; SoftmaxCrossEntropyWithLogits() ; BCELoss() ; BCEWithLogitsLoss() ;
CrossEntropyLoss() ; NLLLoss() ; CosineEmbeddingLoss() ; DiceLoss() ; MultiClassDiceLoss() ; FocalLoss() ;
HuberLoss() ; KLDivLoss() ; MarginRankingLoss() ; MultiLabelSoftMarginLoss() ; MultiMarginLoss() ;
MultilabelMarginLoss() ; PoissonNLLLoss() ; GaussianNLLLoss() ; TripletMarginLoss() ; HingeEmbeddingLoss() ;
SampledSoftmaxLoss(2,4,1) ; CTCLoss() ; Conv2dBnAct(3,4,3) ; DenseBnAct(3,4) ; SequentialCell(nn.Dense(3,4)) ;
CellList([nn.Dense(3,4)]) ; CellDict({"a":nn.Dense(3,4)}) ; TimeDistributed(nn.Dense(3,4),1) ;
WithLossCell(nn.Dense(3,4),nn.L1Loss()) ; WithEvalCell(nn.Dense(3,4),nn.L1Loss()) ;
ForwardValueAndGrad(nn.Dense(3,4)) ; ParameterUpdate(ms.Parameter(tensor)) ;
DistributedGradReducer([ms.Parameter(tensor)]) ;
TrainOneStepCell(nn.Dense(3,4),nn.SGD(nn.Dense(3,4).trainable_params())) ;
TrainOneStepWithLossScaleCell(nn.Dense(3,4),nn.SGD(nn.Dense(3,4).trainable_params()),tensor) ;
DynamicLossScaleUpdateCell(8.0,2,4) ; FixedLossScaleUpdateCell(8.0) ; MicroBatchInterleaved(nn.Dense(3,4)) ;
PipelineCell(nn.Dense(3,4),2) ; GradAccumulationCell(nn.Dense(3,4),2) ; Adam([ms.Parameter(tensor)]) ;
AdamWeightDecay([ms.Parameter(tensor)]) ; Momentum([ms.Parameter(tensor)],0.1,0.9) ; SGD([ms.Parameter(tensor)]) ;
LARS(nn.SGD([ms.Parameter(tensor)])) ; LazyAdam([ms.Parameter(tensor)]) ; FTRL([ms.Parameter(tensor)]) ;
RMSProp([ms.Parameter(tensor)]) ; Adagrad([ms.Parameter(tensor)]) ; Adadelta([ms.Parameter(tensor)]) ;
ProximalAdagrad([ms.Parameter(tensor)]) ; ASGD([ms.Parameter(tensor)]) ; Rprop([ms.Parameter(tensor)]) ;
AdaFactor([ms.Parameter(tensor)],learning_rate=0.1,relative_step=False) ; AdamOffload([ms.Parameter(tensor)]) ;
ReflectionPad1d(1) ; ReflectionPad2d(1) ; ReflectionPad3d(1) ; ReplicationPad1d(1) ; ReplicationPad2d(1) ;
ReplicationPad3d(1) ; ZeroPad2d(1) ; ConstantPad1d(1,0.) ; ConstantPad2d(1,0.) ; ConstantPad3d(1,0.) ;
ExponentialDecayLR(0.1,0.9,4) ; CosineDecayLR(0.01,0.1,4) ; PolynomialDecayLR(0.1,0.01,4,2.0) ; WarmUpLR(0.1,4) ;
NaturalExpDecayLR(0.1,0.9,4) ; InverseDecayLR(0.1,0.9,4) ; Jvp(nn.Dense(3,4)) ; Vjp(nn.Dense(3,4)) ; LossBase() ;
Lamb([ms.Parameter(tensor)],0.1) ; BiDense(2,3,4) ; AdaMax([ms.Parameter(tensor)]) ; LRN() ;
TripletMarginWithDistanceLoss()
"""


def operators(layer: nn.Cell) -> dict[str, str]:
    """Name of the primitive by attribute."""
    return {name: value.name for name, value in sorted(layer.__dict__.items()) if isinstance(value, ops.Primitive)}


def main() -> None:
    """Write the table; what all losses have stands at their base."""
    tensor = ms.Tensor(np.ones(1, np.float32))
    names = {"nn": nn, "ms": ms, "tensor": tensor}
    layers = [eval(f"nn.{call.strip()}", names) for call in LAYERS.split(";")]
    tables = {type(layer).__name__: operators(layer) for layer in layers}
    for layer in layers:
        for base in type(layer).__mro__[1:]:
            common = tables.get(base.__name__, {}).items()
            own = tables[type(layer).__name__]
            tables[type(layer).__name__] = {name: kind for name, kind in own.items() if (name, kind) not in common}
    lines = [" ".join([name, *map("=".join, table.items())]) for name, table in sorted(tables.items()) if table]
    OUT.write_text(HEAD + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
