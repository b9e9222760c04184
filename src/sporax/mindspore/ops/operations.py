"""`mindspore.ops.operations`, which scripts import as ``P``: the primitive classes of `sporax.mindspore.ops`."""

from sporax.mindspore._names.missing import REFUSED, answer_missing_names, homes
from sporax.mindspore.ops._core.operator import PRIMITIVES

__path__: list[str] = []  # a package in MindSpore, see `sporax.mindspore._names.module_paths`

globals().update(PRIMITIVES)
identity = PRIMITIVES["Identity"]  # MindSpore's older name

__all__ = [*PRIMITIVES]

_INNER = """
ConvertToDynamic Dense Geqrf LerpScalar LogSoftmaxExt TransposeExtView TransposeView TypeAs ACosGrad AcoshGrad AsinGrad
AsinhGrad AtanGrad BiasAddGrad EluGrad FastGeLUGrad GeLUGrad GluGrad HShrinkGrad HSigmoidGrad HSwishGrad
LayerNormGrad LogSoftmaxGrad PReLUGrad ReLU6Grad ReciprocalGrad ReluGrad SiLUGrad SigmoidGrad SoftShrinkGrad
SoftplusGrad TanhGrad AntiQuant Dequant DynamicQuantExt FFN FusedInferAttentionScore MoeFinalizeRouting
MoeGatingTopKSoftmax Quant QuantBatchMatmul QuantV2 WeightQuantBatchMatmul
"""
_NOT_OFFERED = """
BasicLSTMCell BatchToSpaceNDV2 CacheSwapTable CholeskyTrsm CombinedNonMaxSuppression CompareAndBitpack ComputeAccidentalHits
CTCLossV2Grad CusBatchMatMul CusCholeskyTrsm CusFusedAbsMax1 CusImg2Col CusMatMulCube CusMatMulCubeDenseLeft
CusMatMulCubeDenseRight CusMatMulCubeFraczLeftCast CusMatMulCubeFraczRightMul CusMatrixCombine CusTranspose02314
DepthwiseConv2dNative DetTriangle Dilation2D DSDMatmul DynamicShape EditDistance ExtractGlimpse ExtractImagePatches
ExtractVolumePatches FractionalAvgPool FractionalMaxPool FusedAdaFactor FusedAdaFactorWithGlobalNorm FusedSparseAdam
FusedSparseFtrl FusedSparseLazyAdam FusedSparseProximalAdagrad GeSwitch GetNext InstanceNorm LambApplyOptimizerAssign
LambApplyWeightAssign LoadIm2Col MapCacheIdx MapUniform MatmulDDS MatrixLogarithm MatrixSolveLs Merge Morph
MultinomialWithReplacement NewIm2Col NonMaxSuppressionV3 NonMaxSuppressionWithOverlaps ParallelConcat Pull Push RaggedRange
ResizeArea RNNTLoss SampleDistortedBoundingBoxV2 ScaleAndTranslate ScatterAddWithAxis ScatterNonAliasingAdd
SparseApplyAdagrad SparseApplyFtrlV2 SparseSlice TransShape UpdateCache UpdateThorGradient
"""

REFUSED.update(f"{__name__}.{name}" for name in _NOT_OFFERED.split())
answer_missing_names(__name__, homes("sporax.mindspore.ops.auto_generate", _INNER))
