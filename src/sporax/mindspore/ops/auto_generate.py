"""`mindspore.ops.auto_generate`: the operators of `ops`, and the inner primitives that MindSpore makes of a table.

MindSpore has a class for each kernel of that table, and its own tests and programs for language models call these. Those that
take at the call what a public function takes, in the same order, are doors to it: ``name=function``.

Inner primitives of `mindspore.ops.auto_generate`, which its own functions call.

Problem: programs for language models build these inner primitives themselves, `AddExt` or `SplitWithSize`, to give each a
strategy of its own. They differ from the public ones in what they take at the call, not in what they compute. Method: one
operator per name with the parameters of MindSpore's, made of the kernels of the public operators.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.errors import SporaxTypeError, SporaxValueError
from sporax.mindspore._names.missing import answer_missing_names
from sporax.mindspore.common.dtype import DType
from sporax.mindspore.ops._core import check
from sporax.mindspore.ops._core import promotion as promote
from sporax.mindspore.ops._core.dims import Along, Product
from sporax.mindspore.ops._core.operator import (
    FUNCTIONS,
    MINT,
    PRIMITIVES,
    Array,
    Composition,
    Operand,
    class_form,
    operator,
)
from sporax.mindspore.ops.array import join_split, scatter, sorting
from sporax.mindspore.ops.linalg import products
from sporax.mindspore.ops.linalg.grouped import GroupedMatmul, GroupedMatmulV4
from sporax.mindspore.ops.math import reduction
from sporax.mindspore.ops.nn import activation

GENERATED: dict[str, type[Any]] = {"GroupedMatmul": GroupedMatmul, "GroupedMatmulV4": GroupedMatmulV4}
"""Primitive classes that are here and not in `sporax.mindspore.ops`."""

Axes = int | tuple[int, ...] | None


# --------------------------------------------------------------------------------------------------------- arithmetic


def _scaled(name: str, input: Any, other: Any, alpha: float) -> tuple[Array, Array]:
    """Both operands in their common dtype, the second times `alpha`."""
    check.broadcast(name, input, other)
    left, right = promote.pair(name, input, other)
    if isinstance(alpha, float) and not jnp.issubdtype(left.dtype, jnp.inexact):
        raise SporaxTypeError(
            f"For '{name}', a float 'alpha' needs floating 'input' and 'other', but got {alpha} with {left.dtype}."
        )
    return left, right if alpha == 1 else right * jnp.asarray(alpha, right.dtype)


@operator("AddExt()", function="", classes=GENERATED)
def _add_ext(input: Operand, other: Operand, alpha: int | float = 1) -> Array:
    """``input + alpha * other``.

    Raises:
        SporaxTypeError: a float `alpha` with integers.
    """
    return jnp.add(*_scaled("AddExt", input, other, alpha))


@operator("SubExt()", function="", classes=GENERATED)
def _sub_ext(input: Operand, other: Operand, alpha: int | float = 1) -> Array:
    """``input - alpha * other``; of bools, whether they differ.

    Raises:
        SporaxTypeError: a float `alpha` with integers.
    """
    left, right = _scaled("SubExt", input, other, alpha)
    return jnp.logical_xor(left, right) if left.dtype == np.bool_ else jnp.subtract(left, right)


@operator("SumExt()", function="", classes=GENERATED)
def _sum_ext(input: Array, dim: Axes = None, keepdim: bool = False, dtype: DType | None = None) -> Array:
    """Sum over `dim`; bools and integers are summed in int64 unless `dtype` says otherwise."""
    return reduction.sum.kernel(input, dim, keepdim, dtype=dtype)


@operator("MeanExt()", function="", classes=GENERATED)
def _mean_ext(input: Array, dim: Axes = None, keepdim: bool = False, dtype: DType | None = None) -> Array:
    """Mean over `dim`, in the dtype of `input` or in `dtype`."""
    return reduction.mean.kernel(input, dim, keepdim, dtype=dtype)


@operator("ProdExt()", function="", classes=GENERATED)
def _prod_ext(input: Array, dim: Axes = None, keepdim: bool = False, dtype: DType | None = None) -> Array:
    """Product over `dim`; bools and integers are multiplied in int64 unless `dtype` says otherwise."""
    return reduction.prod.kernel(input, dim, keepdim, dtype)


@operator("MatMulExt()", function="", classes=GENERATED, dims=Product())
def _matmul_ext(input: Array, other: Array) -> Array:
    """Matrix product of tensors with any number of leading dimensions (broadcast), or of vectors."""
    return products.matmul.kernel(input, other)


@operator("BatchMatMulExt()", function="", classes=GENERATED, dims=Product())
def _batch_matmul_ext(input: Array, mat2: Array) -> Array:
    """Products of the matrices in two three-dimensional tensors."""
    check.rank("BatchMatMulExt", 3, input=input, mat2=mat2)
    return products._batch_matmul.kernel(input, mat2)


@operator("Swiglu()", function="", classes=GENERATED)
def _swiglu(input: Array, dim: int = -1) -> Array:
    """The swish of the first half along `dim` times the second (Shazeer 2020)."""
    return activation.swiglu.kernel(input, dim)


# --------------------------------------------------------------------------------------------------- parts and extremes


@operator("StackExt(dim)", function="", classes=GENERATED)
def _stack_ext(tensors: tuple[Array, ...], dim: int = 0) -> Array:
    """Tensors of one shape joined along a new dimension."""
    return join_split.stack.kernel(tensors, dim)


@operator("SplitWithSize()", function="", classes=GENERATED, dims=Along("dim", 0))
def _split_with_size(input: Array, split_size: tuple[int, ...], dim: int = 0) -> tuple[Array, ...]:
    """Parts of the sizes in `split_size` along `dim`.

    Raises:
        SporaxValueError: a size is negative, or they do not add up to that of `dim`.
    """
    where = check.axis("SplitWithSize", dim, input.ndim, "dim")
    size = input.shape[where]
    if min(split_size, default=0) < 0 or sum(split_size) != size:
        raise SporaxValueError(
            f"For 'SplitWithSize', the sum of 'split_size' must be {size}, the size of dim {where}, but got {split_size}."
        )
    return tuple(jnp.split(input, np.cumsum(split_size)[:-1].tolist(), where))


@operator("SplitTensor()", function="", classes=GENERATED)
def _split_tensor(input: Array, split_size: int, dim: int = 0) -> tuple[Array, ...]:
    """Parts of the size `split_size` along `dim`; the last may be smaller."""
    return join_split.split.kernel(input, split_size, dim)


@operator("TopkExt()", function="", classes=GENERATED, dims=Along("dim", -1))
def _topk_ext(input: Array, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Array, Array]:
    """The `k` largest (or smallest) elements along `dim` in order, and their positions (int64)."""
    return sorting._mint_topk.kernel(input, k, dim, largest, sorted)


def _extreme_along(name: str, pick: Any, input: Array, dim: int, keepdim: bool) -> tuple[Array, Array]:
    """The element that `pick` chooses along `dim`, which also gets the gradient, and its position (int64)."""
    check.tensor(name, input=input)
    where = check.axis(name, dim, input.ndim, "dim")
    if not input.ndim:
        return input, jnp.zeros((), jnp.int64)
    place = jnp.expand_dims(pick(jax.lax.stop_gradient(input), where), where).astype(jnp.int64)
    values = jnp.take_along_axis(input, place, where)
    return (values, place) if keepdim else (jnp.squeeze(values, where), jnp.squeeze(place, where))


@operator("MaxDim()", function="", classes=GENERATED)
def _max_dim(input: Array, dim: int, keepdim: bool = False) -> tuple[Array, Array]:
    """The largest elements along `dim`, and their positions (int64)."""
    return _extreme_along("MaxDim", jnp.argmax, input, dim, keepdim)


@operator("MinDim()", function="", classes=GENERATED)
def _min_dim(input: Array, dim: int, keepdim: bool = False) -> tuple[Array, Array]:
    """The smallest elements along `dim`, and their positions (int64)."""
    return _extreme_along("MinDim", jnp.argmin, input, dim, keepdim)


@operator("Scatter()", function="", classes=GENERATED)
def _scatter(input: Array, dim: int, index: Array, src: Array, reduce: Literal["none"] = "none") -> Array:
    """`input` with the elements of `src` put to the places `index` along `dim`; sums are `ops.scatter_add`."""
    return scatter.scatter.kernel(input, dim, index, src)


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
SeLUExt=nn.functional.selu SoftplusExt=nn.functional.softplus SortExt=sort Std=std StdMean=std_mean SubScalar=sub
Take=take TExt=t Threshold=nn.functional.threshold TraceExt=trace TransposeExtView=transpose
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

answer_missing_names(__name__)
