"""Inner primitives of `mindspore.ops.auto_generate`, which its own functions call.

Problem: programs for language models build these inner primitives themselves, `AddExt` or `SplitWithSize`, to give each a
strategy of its own. They differ from the public ones in what they take at the call, not in what they compute. Method: one
operator per name with the parameters of MindSpore's, made of the kernels of the public operators.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.errors import For, SporaxTypeError
from sporax.ir.operator_dims import Call, Dims, Shapes, numbered
from sporax.mindspore.common import DType, Tensor
from sporax.mindspore.ops._core import PRIMITIVES, Array, Operand, Primitive, check, operator, other_form, promote
from sporax.mindspore.ops._core.dims import FOLLOWS, Along, Product, along
from sporax.mindspore.ops.array import manipulation, rearrangement, scatter, sorting
from sporax.mindspore.ops.linalg import products
from sporax.mindspore.ops.linalg.grouped import GroupedMatmul, GroupedMatmulV4
from sporax.mindspore.ops.math import reduction
from sporax.mindspore.ops.nn import activation
from sporax.mindspore.ops.nn.convolution import Setting, _biased, _convolved, conv_transpose2d

GENERATED: dict[str, type[Any]] = {
    "GroupedMatmul": GroupedMatmul,
    "GroupedMatmulV4": GroupedMatmulV4,
    "OneHotExt": type("OneHotExt", (PRIMITIVES["OneHot"],), {"__doc__": "As `OneHot`; the depth is `num_classes`."}),
}
"""Primitive classes that are here and not in `sporax.mindspore.ops`."""

Axes = int | tuple[int, ...] | None


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


@operator("BatchMatMulExt()", function="", classes=GENERATED, dims=Product())
def _batch_matmul_ext(input: check.Rank3, mat2: check.Rank3) -> Array:
    """Products of the matrices in two three-dimensional tensors."""
    return products._batch_matmul.kernel(input, mat2)


@operator("ConvertToDynamic(is_dynamic_rank)", function="", classes=GENERATED, dims=FOLLOWS)
def _convert_to_dynamic(input: Array, is_dynamic_rank: bool = False) -> Array:
    """A copy; in MindSpore its sizes, with `is_dynamic_rank` their number, too, are unknown to the compiler."""
    return jnp.array(input, copy=True)


other_form(reduction.sum, "SumExt()", "input dim keepdim dtype", classes=GENERATED)
other_form(reduction.mean, "MeanExt()", "input=x dim=axis keepdim=keep_dims dtype", classes=GENERATED)
other_form(reduction.prod, "ProdExt()", "input dim=axis keepdim=keep_dims dtype", classes=GENERATED)
other_form(products.matmul, "MatMulExt()", classes=GENERATED, dims=Product())
other_form(activation.elu, "EluExt(alpha)", "input=input_x alpha", classes=GENERATED)
other_form(activation.swiglu, "Swiglu()", classes=GENERATED, dims=Along("dim", -1))
other_form(manipulation.stack, "StackExt(dim)", "tensors dim=axis", classes=GENERATED)
other_form(rearrangement.diagonal, "Diagonal(offset, dim1, dim2)", classes=GENERATED)
other_form(sorting._mint_topk, "TopkExt()", classes=GENERATED, dims=Along("dim", -1))


@operator("SplitWithSize()", function="", classes=GENERATED, dims=Along("dim", 0))
def _split_with_size(input: Array, split_size: tuple[int, ...], dim: int = 0) -> tuple[Array, ...]:
    """Parts of the sizes in `split_size` along `dim`.

    Raises:
        SporaxValueError: a size is negative, or they do not add up to that of `dim`.
    """
    where = check.axis("SplitWithSize", dim, input.ndim, "dim")
    size = input.shape[where]
    if min(split_size, default=0) < 0 or sum(split_size) != size:
        raise For("SplitWithSize").error(f"the sum of 'split_size' must be {size}, the size of dim {where}", split_size)
    return tuple(jnp.split(input, np.cumsum(split_size)[:-1].tolist(), where))


@operator("MaxDim()", function="", classes=GENERATED, dims=Along("dim", 0))
def _max_dim(input: Array, dim: int, keepdim: bool = False) -> tuple[Array, Array]:
    """The largest elements along `dim`, and their positions (int64)."""
    return reduction.picked_along("MaxDim", jnp.argmax, input, dim, keepdim, "dim")[::-1]


@operator("MinDim()", function="", classes=GENERATED, dims=Along("dim", 0))
def _min_dim(input: Array, dim: int, keepdim: bool = False) -> tuple[Array, Array]:
    """The smallest elements along `dim`, and their positions (int64)."""
    return reduction.picked_along("MinDim", jnp.argmin, input, dim, keepdim, "dim")[::-1]


@operator("Scatter()", function="", classes=GENERATED)
def _scatter(input: Array, dim: int, index: Array, src: Array, reduce: Literal["none"] = "none") -> Array:
    """`input` with the elements of `src` put to the places `index` along `dim`; sums are `ops.scatter_add`."""
    return scatter.scatter.kernel(input, dim, index, src)


@operator("SliceExt()", function="", classes=GENERATED, dims=Along("dim", 0))
def _slice_ext(input: Array, dim: int, start: int, end: int, step: int) -> Array:
    """Elements `start` to `end` along `dim`, as Python counts them, each `step`-th one."""
    where = check.axis("SliceExt", dim, input.ndim, "dim")
    For("SliceExt").refuse(step < 1, "'step' must be positive", step)
    return input[(*(slice(None),) * where, slice(start, end, step))]


@operator("InplaceCopy", function="", classes=GENERATED)
def _inplace_copy(input: Array, src: Array) -> Array:
    """`src`, broadcast and converted to the shape and dtype of `input`.

    Raises:
        SporaxValueError: it cannot be broadcast to that shape.
    """
    pairs = zip(reversed(src.shape), reversed(input.shape), strict=False)
    if src.ndim > input.ndim or any(size not in (1, full) for size, full in pairs):
        raise For("InplaceCopy").error(f"'src' must be broadcast to the shape {input.shape}", src.shape)
    return jnp.broadcast_to(src, input.shape).astype(input.dtype)


class InplaceCopy(Primitive):
    """The elements of `src` written into `input`, which is returned; `non_blocking` has no meaning here."""

    operator = _inplace_copy

    def __call__(self, input: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
        """`input` with its new elements."""
        input._replace(super().__call__(input, src).array)
        return input


GENERATED["InplaceCopy"] = InplaceCopy


def _diagonals(call: Call, shapes: Shapes) -> Dims:
    rank = len(shapes[0])
    return Dims((numbered(rank, along(call, "axis1", 1, rank) | along(call, "axis2", 0, rank)),))


@operator("TraceV2()", function="", classes=GENERATED, dims=_diagonals)
def _trace_v2(input: Array, offset: int = 0, axis1: int = 1, axis2: int = 0, dtype: DType | None = None) -> Array:
    """Sums of the diagonals of the matrices along two dims; bools and integers are summed in int64."""
    exact = not jnp.issubdtype(input.dtype, jnp.inexact)
    return jnp.trace(input, offset, axis1, axis2, dtype.np_dtype if dtype else jnp.int64 if exact else None)


def batches_of_matrices(call: Call, shapes: Shapes) -> Dims:
    """Matrices and what they are applied to are whole, their batches are sharded equally."""
    return Dims(tuple(numbered(len(shape), range(len(shapes[0]) - 2, len(shape))) for shape in shapes))


@operator("SolveTriangular()", function="", classes=GENERATED, dims=batches_of_matrices)
def _solve_triangular(a: Array, b: Array, trans: int = 0, lower: bool = False, unit_diagonal: bool = False) -> Array:
    """x of ``a x = b``, or with the transpose (`trans` 1) or adjoint (2) of `a`, of which one triangle is read."""
    check.one_of("SolveTriangular", trans, (0, 1, 2), "trans")
    columns = b[..., None] if b.ndim == a.ndim - 1 else b
    result = jax.lax.linalg.triangular_solve(
        a,
        columns,
        left_side=True,
        lower=lower,
        transpose_a=trans > 0,
        conjugate_a=trans == 2,
        unit_diagonal=unit_diagonal,
    )
    return result.reshape(b.shape)


@operator("DropoutExt()", function="", classes=GENERATED)
def _dropout_ext(input: Array, p: float, seed: Array, offset: Array) -> tuple[Array, Array]:
    """`ops.dropout` whose mask is a function of two numbers; and the mask, a bool for each element, as no kernel packs them."""
    key = jax.random.fold_in(jax.random.key(seed.reshape(())), offset.reshape(()))
    mask = jax.random.bernoulli(key, 1 - p, input.shape)
    return jnp.where(mask, input / (1 - p) if p < 1 else 0, 0).astype(input.dtype), mask


def _indexed_dims(call: Call, shapes: Shapes) -> Dims:
    """The tensor may be sharded where indices point; these are whole."""
    return Dims((numbered(len(shapes[0])), *(numbered(len(shape), range(len(shape)), "x") for shape in shapes[1:])))


@operator("Index()", function="", classes=GENERATED, dims=_indexed_dims)
def _index(input: Array, indices: tuple[Array, ...]) -> Array:
    """``input[indices]``: elements at positions along the first dims, or the rows there."""
    return input[indices]


def _channels(call: Call, shapes: Shapes) -> Dims:
    """Images and kernels are whole; channels are sharded where one group has all."""
    mark = "!" if call.get("groups", 1) != 1 else ""
    spatial = len(shapes[0]) - 2
    first, second = f"in{mark}", f"out{mark}"
    kernel = (first, second) if call.get("transposed", False) else (second, first)
    images, kernels = (numbered(spatial, range(spatial), letter) for letter in "xk")
    return Dims((("n", first, *images), (*kernel, *kernels), *[(second,)] * (len(shapes) - 2)))


@operator("Convolution()", function="", classes=GENERATED, dims=_channels)
def _convolution(
    input: Array,
    weight: Array,
    bias: Array | None = None,
    stride: Setting = 1,
    padding: Setting = 0,
    dilation: Setting = 1,
    transposed: bool = False,
    output_padding: Setting = 0,
    groups: int = 1,
) -> Array:
    """`conv2d` of images (or `conv1d`, `conv3d`, by the rank), with `padding` cells around; or `conv_transpose2d`."""
    if transposed:
        return conv_transpose2d.kernel(input, weight, bias, stride, padding, output_padding, groups, dilation)
    return _biased(_convolved("Convolution", input, weight, stride, "pad", padding, dilation, groups), bias)


def _cosine(name: str, over_all: bool) -> None:
    transform = getattr(jax.scipy.fft, name.lower())

    def run(x: Array, type: int, sizes: Any, axes: Any, norm: str | None) -> Array:
        check.one_of(name, type, (2,), "type")
        check.one_of(name, norm, (None, "ortho"), "norm")
        x = x if jnp.issubdtype(x.dtype, jnp.inexact) else x.astype(jnp.float32)
        # It is linear: complex values by their parts.
        parts = (x.real, x.imag) if jnp.iscomplexobj(x) else (x,)
        results = [transform(part, type, sizes, axes, "ortho") for part in parts]
        return jax.lax.complex(*results) if len(results) == 2 else results[0]

    def kernel(x: Array, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
        return run(x, type, n, axis, norm)

    def kernel_n(
        x: Array,
        type: int = 2,
        s: tuple[int, ...] | None = None,
        axes: tuple[int, ...] | None = None,
        norm: str | None = None,
    ) -> Array:
        return run(x, type, s, axes, norm)

    chosen = kernel_n if over_all else kernel
    chosen.__name__ = f"_{name.lower()}"
    chosen.__doc__ = (
        "Orthonormal cosine transform of type 2, or its inverse (Makhoul 1980), along dims that may be resized."
    )
    operator(f"{name}()", function="", classes=GENERATED, dims=Along("axes", None) if over_all else Along("axis", -1))(
        chosen
    )


for _transform in ("DCT", "IDCT", "DCTN", "IDCTN"):
    _cosine(_transform, _transform.endswith("N"))


def _pulled(name: str, cotangent: Array, *values: Array, position: int = 0, **attributes: float) -> Array:
    """The gradient with respect to one of the inputs of a primitive."""

    def forward(value: Array) -> Array | tuple[Array, ...]:
        return PRIMITIVES[name].operator.kernel(*values[:position], value, *values[position + 1 :], **attributes)

    result, pull = jax.vjp(forward, values[position])
    # The first of several results has the gradient.
    return pull((cotangent, *map(jnp.zeros_like, result[1:])) if isinstance(result, tuple) else cotangent)[0]


def _norm_grad(
    x: Array, dy: Array, variance: Array, mean: Array, gamma: Array, first: int, params: int
) -> tuple[Array, ...]:
    axes, leading = tuple(range(first % x.ndim, x.ndim)), tuple(range(params % x.ndim))
    scale = jax.lax.rsqrt(variance.reshape(mean.shape) + 1e-12)
    normal, scaled = (x - mean) * scale, dy * gamma
    inner = jnp.mean(scaled, axes, keepdims=True) + normal * jnp.mean(scaled * normal, axes, keepdims=True)
    return scale * (scaled - inner), jnp.sum(dy * normal, leading), jnp.sum(dy, leading)


_GRADIENTS: dict[str, Callable[..., Array | tuple[Array, ...]]] = {
    "ACosGrad()": lambda x, dout: _pulled("ACos", dout, x),
    "AcoshGrad()": lambda out, dout: dout / jnp.sinh(out),
    "AsinGrad()": lambda x, dout: _pulled("Asin", dout, x),
    "AsinhGrad()": lambda out, dout: dout / jnp.cosh(out),
    "AtanGrad()": lambda x, dout: _pulled("Atan", dout, x),
    "BiasAddGrad(data_format)": lambda dout, data_format="NCHW": jnp.sum(
        dout, tuple(dim for dim in range(dout.ndim) if dim != (1 if data_format[:2] == "NC" else dout.ndim - 1))
    ),
    "EluGrad()": lambda dout, out: dout * jnp.where(out > 0, 1, out + 1),
    "FastGeLUGrad()": lambda dy, x: _pulled("FastGeLU", dy, x),
    "GeLUGrad()": lambda dy, x, y: _pulled("GeLU", dy, x),
    "GluGrad(axis)": lambda grads, x, axis=-1: jax.vjp(lambda value: jax.nn.glu(value, axis), x)[1](grads)[0],
    "HShrinkGrad(lambd)": lambda gradients, features, lambd=0.5: _pulled("HShrink", gradients, features, lambd=lambd),
    "HSigmoidGrad()": lambda grads, input_x: _pulled("HSigmoid", grads, input_x),
    "HSwishGrad()": lambda y_grad, x: _pulled("HSwish", y_grad, x),
    "LayerNormGrad(begin_norm_axis, begin_params_axis)": (
        lambda x, dy, variance, mean, gamma, begin_norm_axis=1, begin_params_axis=1: _norm_grad(
            x, dy, variance, mean, gamma, begin_norm_axis, begin_params_axis
        )
    ),
    "LogSoftmaxGrad(axis)": lambda logits, grad, axis=-1: grad - jnp.exp(logits) * jnp.sum(grad, axis, keepdims=True),
    "PReLUGrad()": lambda dy, x, weight: tuple(_pulled("PReLU", dy, x, weight, position=place) for place in (0, 1)),
    "ReLU6Grad()": lambda y_backprop, x: jnp.where((x > 0) & (x < 6), y_backprop, 0),
    "ReciprocalGrad()": lambda y, dy: -dy * y * y,
    "ReluGrad()": lambda y_backprop, x: jnp.where(x > 0, y_backprop, 0),
    "SiLUGrad()": lambda dout, x: _pulled("SiLU", dout, x),
    "SigmoidGrad()": lambda y, dy: dy * y * (1 - y),
    "SoftShrinkGrad(lambd)": lambda input_grad, input_x, lambd=0.5: _pulled(
        "SoftShrink", input_grad, input_x, lambd=lambd
    ),
    "SoftplusGrad()": lambda gradients, features: gradients * jax.nn.sigmoid(features),
    "TanhGrad()": lambda y, dy: dy * (1 - y * y),
}
"""Kernels of gradients, which programs that write gradients out call: by name and what the constructor takes."""


for _form, _compute in _GRADIENTS.items():
    _hints = {"data_format": Literal["NCHW", "NHWC", "NCDHW"], "lambd": float}
    _compute.__annotations__ = {
        name: Array if parameter.default is parameter.empty else _hints.get(name, int)
        for name, parameter in inspect.signature(_compute).parameters.items()
    }
    _compute.__doc__ = f"The gradient of `{_form.partition('Grad')[0]}`, of what MindSpore's kernel takes."
    operator(_form, function="", classes=GENERATED)(_compute)
