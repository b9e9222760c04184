"""`mindspore.ops.auto_generate`: the operators of `ops`, and the inner primitives that MindSpore makes of a table.

MindSpore has a class for each kernel of that table, and its own tests and programs for language models call these. Those that
take at the call what a public function takes, in the same order, are doors to it: ``name=function``. Others: `ops._generated`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from sporax.mindspore._names.missing import missing_name, resolved
from sporax.mindspore.ops._core.operator import FUNCTIONS, MINT, PRIMITIVES, Composition, class_form
from sporax.mindspore.ops._generated import GENERATED

__path__: list[str] = []  # a package in MindSpore, see `sporax.mindspore._names.module_paths`

_FUNCTIONS = """
AddcmulExt=addcmul Arange=arange BitwiseAndScalar=bitwise_and BitwiseAndTensor=bitwise_and BitwiseOrScalar=bitwise_or
BitwiseOrTensor=bitwise_or BitwiseXorScalar=bitwise_xor BitwiseXorTensor=bitwise_xor BoolNot=bool_not
ClampScalar=clamp ClampTensor=clamp Dense=dense DiagonalView=diagonal Divs=div EqScalar=equal ExpandAs=expand_as
ExpandDimsView=expand_dims FFT2=fft2 FFT=fft FFTFreq=fftfreq FFTN=fftn FFTShift=fftshift FloorDivScalar=floor_div
FmodScalar=fmod FmodTensor=fmod FullLike=full_like GatherNdExt=gather_nd Geqrf=geqrf GreaterEqualScalar=greater_equal
HFFT2=hfft2 HFFT=hfft HFFTN=hfftn IFFT2=ifft2 IFFT=ifft IFFTN=ifftn IFFTShift=ifftshift IHFFT2=ihfft2 IHFFT=ihfft
IHFFTN=ihfftn IndexFillScalar=index_fill IndexFillTensor=index_fill IRFFT2=irfft2 IRFFT=irfft IRFFTN=irfftn
LerpScalar=lerp LessScalar=less MaskedFillScalar=masked_fill Muls=mul OnesLikeExt=ones_like PowScalarTensor=pow
PowTensorScalar=pow RandpermExt=randperm RemainderScalarTensor=remainder RemainderTensorScalar=remainder
RemainderTensorTensor=remainder Repeat=tile RepeatInterleaveInt=repeat_interleave
RepeatInterleaveTensor=repeat_interleave RFFT2=rfft2 RFFT=rfft RFFTFreq=rfftfreq RFFTN=rfftn SelectV2=select
TransposeView=transpose TypeAs=type_as View=reshape ViewAs=view_as XLogYScalarOther=xlogy XLogYScalarSelf=xlogy
ZerosLikeExt=zeros_like
"""
_MINT = """
AcosExt=acos AcoshExt=acosh AdaptiveAvgPool1D=nn.functional.adaptive_avg_pool1d
AdaptiveAvgPool2DExt=nn.functional.adaptive_avg_pool2d AdaptiveAvgPool3DExt=nn.functional.adaptive_avg_pool3d
Addbmm=addbmm AddcdivExt=addcdiv Addmm=addmm Addmv=addmv AddScalar=add Any=any AnyExt=any ArgMaxExt=argmax
ArgMinExt=argmin ArgSort=argsort AsinExt=asin AsinhExt=asinh Atan2Ext=atan2 AtanExt=atan
AvgPool1D=nn.functional.avg_pool1d AvgPool2D=nn.functional.avg_pool2d AvgPool3DExt=nn.functional.avg_pool3d
Baddbmm=baddbmm BincountExt=bincount BitwiseNot=bitwise_not BroadcastToView=broadcast_to Chunk=chunk ChunkView=chunk
Clone=clone Col2ImExt=nn.functional.fold Conv1DExt=nn.functional.conv1d Conv2DExt=nn.functional.conv2d
Conv3DExt=nn.functional.conv3d CosineEmbeddingLoss=nn.functional.cosine_embedding_loss CumminExt=cummin
CumsumExt=cumsum DiagExt=diag DivMod=div Dot=dot Embedding=nn.functional.embedding EmptyLike=empty_like EqualExt=equal
Exp2=exp2 FlattenExt=flatten Frac=frac GeluExt=nn.functional.gelu GroupNorm=nn.functional.group_norm
Hardtanh=nn.functional.hardtanh HistcExt=histc Im2ColExt=nn.functional.unfold ImagView=imag IndexAddExt=index_add
IndexSelect=index_select IsNegInf=isneginf KLDiv=nn.functional.kl_div Kthvalue=kthvalue
L1LossExt=nn.functional.l1_loss LayerNormExt=nn.functional.layer_norm LeakyReLUExt=nn.functional.leaky_relu
LinalgQr=qr LinSpaceExt=linspace Log10=log10 Log2=log2 LogAddExp2=logaddexp2 LogAddExp=logaddexp
LogSigmoid=nn.functional.logsigmoid LogSoftmaxExt=nn.functional.log_softmax LogSumExp=logsumexp
MatrixInverseExt=inverse Max=amax MedianDim=median MedianExt=median Min=amin MishExt=nn.functional.mish Mm=mm
MSELossExt=nn.functional.mse_loss Mv=mv Nansum=nansum Narrow=narrow NarrowView=narrow NonZeroExt=nonzero Norm=norm
Outer=outer PixelShuffle=nn.functional.pixel_shuffle RealView=real ScatterAddExt=scatter_add
SeLUExt=nn.functional.selu SoftplusExt=nn.functional.softplus SortExt=sort SplitTensor=split Std=std StdMean=std_mean
SubScalar=sub Take=take TExt=t Threshold=nn.functional.threshold TraceExt=trace TransposeExtView=transpose
TriangularSolve=triangular_solve TrilExt=tril UnstackExtView=unbind Var=var VarMean=var_mean Vdot=vdot
"""
"""Functions of `mint`, by their dotted names."""

DOORS = {
    name: (functions, function)
    for functions, table in ((FUNCTIONS, _FUNCTIONS), (MINT, _MINT))
    for name, function in (pair.split("=") for pair in table.split())
}
"""By name: the register of its function, and the function's name there."""


def _door(name: str, functions: Mapping[str, Callable[..., Any]], function: str) -> type[Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        if function not in functions:  # those of `mint` are there once its package is
            resolved("sporax.mindspore.mint:__name__")
        called = functions[function]
        # By name: what the primitive takes by position, the function may take by keyword alone.
        return called(**dict(zip(inspect.signature(called).parameters, args, strict=False)), **kwargs)

    kernel.__doc__ = f"The primitive of `{function}`."
    return class_form(name, (), Composition(name, kernel))


INNER = {name: _door(name, *place) for name, place in DOORS.items()}
"""Primitive classes that are here and not in `sporax.mindspore.ops`."""

globals().update(FUNCTIONS)
globals().update(PRIMITIVES)
globals().update(GENERATED)
globals().update(INNER)

__all__ = [*FUNCTIONS, *PRIMITIVES, *GENERATED, *INNER]

_BY_NAME = {f"{name.lower()}ext": name for name in INNER}
_BY_NAME |= {name.lower(): name for name in __all__ if isinstance(globals()[name], type)}


def __getattr__(name: str) -> Any:
    """Instances of the primitives, such as ``dropout_ext_op``, one of each as in MindSpore, and functions such as ``sub_ext``."""
    primitive = _BY_NAME.get(name.removesuffix("_op").replace("_", ""))
    if primitive is None or not name.endswith(("_op", "_ext")):
        return missing_name(__name__, name)
    made = globals()[name] = globals()[primitive]()
    return made
