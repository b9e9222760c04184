"""Norms, distances, and clipping and normalising by a norm.

A norm has no derivative at zero: the root's slope is infinite there and becomes NaN in a product. Where MindSpore gives
a finite gradient, the operand of the root is replaced before it is taken, not its result.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from sporax.base.errors import For, SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.ir.operator_dims import Call, Dims, Shapes, numbered
from sporax.mindspore.common import DType, Tensor
from sporax.mindspore.ops._core import Along, Array, check, extremes, operator, other_form, promote

Axes = int | tuple[int, ...] | None


def length(x: Array, p: float, axes: Axes = None, keepdims: bool = False) -> Array:
    """The p-norm of the vectors over `axes`; its gradient at the zero vector is zero."""
    magnitude = extremes.magnitude(x)
    if math.isinf(p):
        # Extremes with gradients that do not depend on rounding.
        return (extremes.largest if p > 0 else extremes.smallest)(magnitude, axes, keepdims)
    if p == 0:
        # The "0-norm" counts elements; it has no gradient.
        return jnp.sum(magnitude != 0, axes, keepdims=keepdims).astype(magnitude.dtype)
    if p == 1:
        return jnp.sum(magnitude, axes, keepdims=keepdims)
    # Squares and roots are exact where powers are not.
    powers = jnp.square(magnitude) if p == 2 else jnp.power(magnitude, p)
    total = jnp.sum(powers, axes, keepdims=keepdims)
    # The root has an infinite slope at 0; a 1 in its place keeps the gradient finite.
    positive = jnp.where(total == 0, jnp.ones((), total.dtype), total)
    root = jnp.sqrt(positive) if p == 2 else jnp.power(positive, 1 / p)
    return jnp.where(total == 0, jnp.zeros((), total.dtype), root)


def _converted(x: Array, dtype: DType | None) -> Array:
    return promote.inexact(x) if dtype is None else x.astype(dtype.np_dtype)


@operator(function="norm", method="norm")
def norm(
    A: Array,  # noqa: N803 - MindSpore's name
    ord: float | str | None = None,
    dim: Axes = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Array:
    """Norm of vectors or matrices.

    Args:
        A: tensor of floats.
        ord: None: the 2-norm of all elements over `dim`. A number: the p-norm of vectors, or a matrix norm (1, -1,
            2, -2, inf, -inf). ``"fro"``, ``"nuc"``: Frobenius and nuclear norm of matrices.
        dim: one dim for vectors, two for matrices; None: all (with an `ord`, of a vector or a matrix).
        keepdim: keep the reduced dims with size 1.
        dtype: convert to this first.
    """
    values = _converted(A, dtype)
    axes = check.axes("norm", dim, values.ndim, "dim")
    if ord is None:
        return length(values, 2, axes, keepdim)
    # With an `ord` it must be clear whether vectors or matrices are meant.
    if axes is None and values.ndim not in (1, 2):
        raise SporaxValueError(
            f"For 'norm', 'dim' must be given when 'ord' is and 'A' is neither a vector nor a matrix, but the shape is {A.shape}."
        )
    axes = tuple(range(values.ndim)) if axes is None else axes
    if len(axes) == 1:
        return _of_vectors("norm", values, ord, axes, keepdim)
    return _of_matrices("norm", values, ord, axes, keepdim)


def _of_vectors(name: str, values: Array, ord: Any, axes: Axes, keepdim: bool) -> Array:
    For(name).refuse(isinstance(ord, str), "'ord' must be a number for vectors", ord, show=repr)
    return length(values, float(ord), axes, keepdim)


def _of_matrices(name: str, values: Array, ord: Any, axes: tuple[int, ...], keepdim: bool) -> Array:
    check.one_of(name, ord, ("fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf), "ord")
    For(name).refuse(len(axes) != 2, "a matrix norm needs 2 dims", axes)
    if ord == "fro":
        return length(values, 2, axes, keepdim)
    return matrix_norm_of(values, ord, (axes[0], axes[1]), keepdim)


def matrix_norm_of(values: Array, ord: Any, axes: tuple[int, int], keepdim: bool) -> Array:
    """A norm of the matrices over `axes`; 1 and inf are the largest sum of a column and of a row, -1, -inf the smallest."""
    if ord not in (1, -1, math.inf, -math.inf):
        return jnp.linalg.norm(values, ord, axes, keepdim)
    summed, compared = axes if abs(ord) == 1 else axes[::-1]
    sums = jnp.sum(jnp.abs(values), summed, keepdims=True)
    result = (extremes.largest if ord > 0 else extremes.smallest)(sums, compared, True)
    return result if keepdim else jnp.squeeze(result, axes)


@operator(function="vector_norm", mint="")
def vector_norm(
    x: Array, ord: float = 2, axis: Axes = None, keepdims: bool = False, *, dtype: DType | None = None
) -> Array:
    """The `ord`-norm of the elements over `axis` (all by default), taken as one vector."""
    values = _converted(x, dtype)
    return _of_vectors("vector_norm", values, ord, check.axes("vector_norm", axis, values.ndim), keepdims)


@operator(function="matrix_norm", mint="")
def matrix_norm(
    A: Array,  # noqa: N803 - MindSpore's name
    ord: float | str = "fro",
    axis: tuple[int, ...] = (-2, -1),
    keepdims: bool = False,
    *,
    dtype: DType | None = None,
) -> Array:
    """Norm of the matrices in two dims: ``"fro"``, ``"nuc"``, 1, -1, 2, -2, inf or -inf."""
    values = _converted(A, dtype)
    return _of_matrices("matrix_norm", values, ord, check.axes("matrix_norm", axis, values.ndim) or (), keepdims)


@operator(function="", mint="norm")
def _mint_norm(
    input: Array, p: float | str = "fro", dim: Axes = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Array:
    """The `p`-norm of the elements over `dim`; ``"fro"`` is the 2-norm, ``"nuc"`` sums singular values."""
    values = _converted(input, dtype)
    axes = check.axes("norm", dim, values.ndim, "dim")
    if p == "nuc":
        return _of_matrices("norm", values, "nuc", axes or tuple(range(values.ndim)), keepdim)
    return _of_vectors("norm", values, 2 if p == "fro" else p, axes, keepdim)


@operator("LpNorm", function="")
def _lp_norm(input: check.Float, axis: Axes, p: int = 2, keep_dims: bool = False, epsilon: float = 1e-12) -> Array:
    """The `p`-norm over `axis`, at least `epsilon`."""
    size = length(input, p, check.axes("LpNorm", axis, input.ndim), keep_dims)
    # MindSpore limits the norm from below, not the operand.
    return extremes.larger(size, jnp.asarray(epsilon, size.dtype))


@operator("L2Loss", function="")
def _l2_loss(input_x: check.Float) -> Array:
    """Half the sum of squares."""
    return jnp.sum(jnp.square(input_x)) / 2


@operator("SquareSumAll", function="")
def _square_sum_all(x: check.Float, y: check.Float) -> tuple[Array, Array]:
    """Sums of squares of two tensors of one shape."""
    return jnp.sum(jnp.square(x)), jnp.sum(jnp.square(y))


def _of_rows(call: Call, shapes: Shapes) -> Dims:
    """Batches are sharded equally, rows of both inputs by themselves; vectors are whole."""
    named = zip(shapes, "pr", strict=True)
    return Dims(tuple((*numbered(len(shape) - 2, letter="b"), rows, "m!") for shape, rows in named))


@operator("Cdist", function="cdist", mint="", dims=_of_rows)
def cdist(x1: Array, x2: Array, p: float = 2.0) -> Array:
    """Distances of all rows of `x1` to all rows of `x2` in the p-norm: (…, n, d) and (…, m, d) give (…, n, m)."""
    check.floating("Cdist", x1=x1, x2=x2)
    check.same_dtype("Cdist", x1=x1, x2=x2)
    if x1.ndim < 2 or x2.ndim < 2 or x1.shape[-1] != x2.shape[-1]:
        raise For("Cdist").error("'x1' and 'x2' must be rows of one length in at least 2 dims", x1.shape, x2.shape)
    _check_order("Cdist", p)
    # All differences at once: (n, m, d) elements, whose gradient is exact near zero distance.
    return length(x1[..., :, None, :] - x2[..., None, :, :], p, -1)


def _check_order(name: str, p: Any) -> None:
    For(name).typed("p", p, "a number", int | float, takes_bool=False)
    For(name).refuse(p < 0, "'p' must be >= 0", p)


@operator(function="", mint="cdist")
def _mint_cdist(
    x1: Array, x2: Array, p: float = 2.0, compute_mode: str = "use_mm_for_euclid_dist_if_necessary"
) -> Array:
    """As `ops.cdist`. All values of `compute_mode` give the same: distances are computed from differences."""
    modes = ("use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist")
    check.one_of("cdist", compute_mode, modes, "compute_mode")
    return cdist.kernel(x1, x2, p)


@operator("Pdist", function="pdist")
def pdist(input: check.Float, p: float = 2.0) -> Array:
    """Distances of all pairs of rows of `input` (…, n, d), in the order (0, 1), (0, 2), …, (1, 2), …"""
    _check_order("Pdist", p)
    first, second = jnp.triu_indices(input.shape[-2], 1)
    return length(input[..., first, :] - input[..., second, :], p, -1)


@operator(function="dist")
def dist(input: check.One, other: check.One, p: float = 2) -> Array:
    """The p-norm of the difference of two tensors, broadcast."""
    check.broadcast("dist", input, other)
    return length(input - other, p)


@operator(function="cosine_similarity", mint="")
def cosine_similarity(x1: Array, x2: Array, dim: int = 1, eps: float = 1e-08) -> Array:
    """Cosine of the angle between vectors along `dim`; the product of their lengths counts as at least `eps`."""
    check.floating("cosine_similarity", x1=x1, x2=x2)
    check.broadcast("cosine_similarity", x1, x2)
    where = check.axis("cosine_similarity", dim, max(x1.ndim, x2.ndim), "dim")
    left, right = jnp.broadcast_arrays(x1, x2)
    lengths = length(left, 2, where) * length(right, 2, where)
    # `extremes.larger`, whose gradient does not depend on rounding.
    return jnp.sum(left * right, where) / extremes.larger(lengths, jnp.asarray(eps, lengths.dtype))


@operator("L2Normalize", function="", dims=Along("axis", 0))
def _l2_normalize(input_x: check.Float, axis: Axes = 0, epsilon: float = 1e-4) -> Array:
    """``x / sqrt(max(sum of squares over axis, epsilon))``."""
    total = jnp.sum(jnp.square(input_x), check.axes("L2Normalize", axis, input_x.ndim), keepdims=True)
    # Under the root, as MindSpore limits the sum of squares.
    return input_x * jax.lax.rsqrt(extremes.larger(total, jnp.asarray(epsilon, total.dtype)))


@operator(function="", mint="nn.functional.normalize")
def normalize(input: check.Float, p: float = 2.0, dim: Axes = 1, eps: float = 1e-12) -> Array:
    """Vectors along `dim` divided by their p-norm, or by `eps` where that is larger."""
    size = length(input, p, check.axes("normalize", dim, input.ndim, "dim"), True)
    return input / extremes.larger(size, jnp.asarray(eps, size.dtype))


@operator(function="renorm", method="renorm")
def renorm(input: Array, p: float, axis: int, maxnorm: float) -> Array:
    """Slices along `axis` with a p-norm above `maxnorm` scaled down to it."""
    check.floating("Renorm", input=input)
    For("Renorm").refuse(p <= 0 or maxnorm < 0, "'p' must be positive and 'maxnorm' >= 0", p, maxnorm)
    own_axis = check.axis("Renorm", axis, input.ndim)
    # Over all dims but the one whose slices are meant.
    size = length(input, p, tuple(dim for dim in range(input.ndim) if dim != own_axis), True)
    # 1e-7 keeps the scaled norm below the limit in spite of rounding.
    return input * jnp.where(size > maxnorm, maxnorm / (size + 1e-7), jnp.ones((), size.dtype))


other_form(renorm, "Renorm(p, dim, maxnorm)", "input p dim=axis maxnorm")


@operator(function="")
def _scaled_to_norm(x: Array, max_norm: float, norm_type: float, how: str) -> Any:
    """Tensors scaled down together so that their joint norm is at most `max_norm`; and that norm before."""
    # In float32 at least: squares of float16 overflow at 256.
    wide = [tensor.astype(jnp.promote_types(tensor.dtype, jnp.float32)) for tensor in x]
    total = length(jnp.stack([length(tensor, norm_type) for tensor in wide]), norm_type)
    # MindSpore's two functions differ in how they avoid a division by 0.
    ratio = max_norm / jnp.maximum(total, max_norm) if how == "global" else max_norm / (total + 1e-6)
    scale = jnp.minimum(ratio, 1)
    # Integers become float32.
    return *(promote.inexact(tensor) * scale.astype(promote.inexact(tensor).dtype) for tensor in x), total


def _as_tensors(name: str, x: Any) -> tuple[Any, ...]:
    items = tuple(x) if isinstance(x, tuple | list) else (x,)
    if not items or not all(isinstance(item, Tensor) for item in items):
        raise SporaxTypeError(f"For '{name}', 'x' must be a Tensor or a tuple or list of Tensors, but got {x!r}.")
    return items


@operator(function="clip_by_norm", composed=True)
def clip_by_norm(x: Any, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False) -> Any:
    """A tensor, or several taken as one vector, scaled down so that the norm is at most `max_norm`.

    Args:
        x: Tensor, or tuple or list of Tensors (a tuple is returned).
        max_norm: the limit.
        norm_type: which p-norm; may be inf.
        error_if_nonfinite: raise SporaxRuntimeError when the norm is NaN or infinite (outside compiled steps).
    """
    *scaled, total = _scaled_to_norm(_as_tensors("clip_by_norm", x), float(max_norm), float(norm_type), "norm")
    # The value is needed for the error, which a compiled step cannot raise.
    if error_if_nonfinite and not math.isfinite(float(total)):
        raise SporaxRuntimeError(f"For 'clip_by_norm', the norm must be finite, but got {float(total)}.")
    return tuple(scaled) if isinstance(x, tuple | list) else scaled[0]


@operator(function="clip_by_global_norm", composed=True)
def clip_by_global_norm(x: Any, clip_norm: float = 1.0, use_norm: None = None) -> Any:
    """Tensors times ``clip_norm / max(global norm, clip_norm)``, the global norm being that of all their elements.

    Args:
        x: Tensor, or tuple or list of Tensors; the result has the same form.
        clip_norm: the limit, positive.
        use_norm: None; as in MindSpore nothing else is supported.

    Raises:
        SporaxValueError: `clip_norm` is not positive, or `use_norm` is not None.
    """
    For("clip_by_global_norm").refuse(use_norm is not None, "'use_norm' must be None", use_norm, show=repr)
    For("clip_by_global_norm").typed("clip_norm", clip_norm, "a number", int | float, takes_bool=False)
    For("clip_by_global_norm").refuse(clip_norm <= 0, "'clip_norm' must be positive", clip_norm)
    tensors = _as_tensors("clip_by_global_norm", (x,) if isinstance(x, Tensor) else x)
    *scaled, _ = _scaled_to_norm(tensors, float(clip_norm), 2.0, "global")
    return scaled[0] if isinstance(x, Tensor) else tuple(scaled)
