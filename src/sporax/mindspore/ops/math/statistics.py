"""Statistics of the elements: extremes, medians and quantiles, moments, counts, running results along a dimension."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.errors import For
from sporax.mindspore.common import DType, dtypes
from sporax.mindspore.ops._core import Along, Array, Operand, check, extremes, operator, other_form, promote
from sporax.mindspore.ops.math.reduction import picked_along

Axes = int | tuple[int, ...] | None


def _extreme(name: str, function: Callable[..., Array], doc: str) -> None:
    def kernel(
        input: Array,
        axis: Axes = None,
        keepdims: bool = False,
        *,
        initial: Operand | None = None,
        where: Array | None = None,
    ) -> Array:
        check.tensor(name, input=input)
        For(name).refuse(where is not None and initial is None, "'initial' must be given when 'where' is, but got None")
        # In the input's dtype, so that a Python float does not widen integers.
        start = None if initial is None else jnp.asarray(initial, input.dtype)
        return function(input, check.axes(name, axis, input.ndim), keepdims=keepdims, initial=start, where=where)

    kernel.__name__ = name
    kernel.__doc__ = doc + " over `axis`; not less extreme than `initial`; only of the elements in the mask `where`."
    # Torch's signature has neither start nor mask.
    other_form(operator(function=name, method=name)(kernel), None, "input dim=axis keepdim=keepdims", mint=name, dim=())


_extreme("amax", extremes.largest, "Largest element")
_extreme("amin", extremes.smallest, "Smallest element")


@operator(function="aminmax", method="aminmax")
def aminmax(input: check.One, *, axis: int = 0, keepdims: bool = False) -> tuple[Array, Array]:
    """Smallest and largest element along `axis`."""
    smallest, largest = (picked_along("aminmax", find, input, axis, keepdims)[1] for find in (jnp.argmin, jnp.argmax))
    return smallest, largest


@operator(function="", method="ptp")
def ptp(input: Array, axis: Axes = None, keepdims: bool = False) -> Array:
    """Largest minus smallest element over `axis`."""
    where = check.axes("ptp", axis, input.ndim)
    return extremes.spread(input, where, keepdims)


@operator("Argmin(axis, output_type)", function="")
def _argmin_primitive(x: Array, axis: int = -1, output_type: DType = dtypes.int32) -> Array:
    """Position of the smallest element along `axis`; in `output_type`."""
    positions = jnp.argmin(x, axis=check.axis("Argmin", axis, x.ndim))
    return positions.astype(output_type.np_dtype)


def _ranked(x: Array, axis: int, ignore_nan: bool) -> Array:
    """Position along `axis` of the lower median; of the first NaN where there is one, unless it is ignored."""
    order = jnp.argsort(x, axis, stable=True)  # NaN come last
    missing = jnp.isnan(x)
    valid = jnp.sum(~missing, axis, keepdims=True)
    if ignore_nan:
        # The lower of two middle elements, as in MindSpore.
        middle = jnp.maximum(valid - 1, 0) // 2
    else:
        # One NaN makes the median NaN: the first one in order is taken.
        middle = jnp.where(valid < x.shape[axis], valid, (x.shape[axis] - 1) // 2)
    return jnp.take_along_axis(order, middle, axis)


def _median(name: str, x: Array, axis: int, keepdims: bool, ignore_nan: bool) -> tuple[Array, Array]:
    check.tensor(name, input=x)
    rows = x[None] if not x.ndim else x
    where = check.axis(name, axis, x.ndim)
    For(name).refuse(not rows.shape[where], f"dim {axis} must not be empty, but the shape is {x.shape}")
    index = _ranked(rows, where, ignore_nan)
    # Picked, so that the gradient goes to this element alone.
    values = jnp.take_along_axis(rows, index, where)
    index = index.astype(jnp.int64)
    if keepdims and x.ndim:
        return values, index
    return jnp.squeeze(values, where), jnp.squeeze(index, where)


@operator(function="median", method="median")
def median(input: Array, axis: int = -1, keepdims: bool = False) -> tuple[Array, Array]:
    """The lower median along `axis` and its position; NaN where there is one."""
    return _median("median", input, axis, keepdims, False)


@operator(function="nanmedian", method="nanmedian")
def nanmedian(input: Array, axis: int = -1, keepdims: bool = False) -> tuple[Array, Array]:
    """The lower median along `axis` of what is not NaN, and its position."""
    return _median("nanmedian", input, axis, keepdims, True)


@operator("Median(global_median, axis, keep_dims, ignore_nan)", function="")
def _median_primitive(
    x: Array, global_median: bool = False, axis: int = 0, keep_dims: bool = False, ignore_nan: bool = False
) -> tuple[Array, Array]:
    """The lower median along `axis`, or of all elements, and its position (0 for that of all elements)."""
    if not global_median:
        return _median("Median", x, axis, keep_dims, ignore_nan)
    values, index = _median("Median", x.reshape(-1), 0, False, ignore_nan)
    # Of all elements no position is meant; MindSpore gives 0.
    return values, jnp.zeros_like(index)


@operator(function="", mint="median")
def _mint_median(input: Array, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower median of all elements; with `dim` the medians along it and their positions."""
    if dim is None:
        return _median("median", input.reshape(-1), 0, False, False)[0]
    return _median("median", input, dim, keepdim, False)


def _quantile(name: str, function: Callable[..., Array]) -> Any:
    def kernel(input: Array, q: Operand, axis: int | None = None, keepdims: bool = False) -> Array:
        check.floating(name, input=input)
        # JAX wants level and input in one dtype.
        level = jnp.asarray(q, input.dtype)
        where = None if axis is None else check.axis(name, axis, input.ndim)
        return function(input, level, axis=where, keepdims=keepdims)

    kernel.__name__, kernel.__doc__ = name, "Quantiles along `axis` at the levels `q` in [0, 1], interpolated linearly."
    return operator(function=name, method=name)(kernel)


quantile = _quantile("quantile", jnp.quantile)
nanquantile = _quantile("nanquantile", jnp.nanquantile)


def _ignoring_nan(name: str, function: Callable[..., Array], doc: str, own: str, mint: str = "") -> Any:
    def kernel(input: Array, axis: Axes = None, keepdims: bool = False, *, dtype: DType | None = None) -> Array:
        check.tensor(name, input=input)
        values = input if dtype is None else input.astype(dtype.np_dtype)
        return function(values, axis=check.axes(name, axis, input.ndim), keepdims=keepdims)

    kernel.__name__, kernel.__doc__ = name, doc
    return operator(function=own, method=own, mint=mint)(kernel)


def _nansum(values: Array, **settings: Any) -> Array:
    # Integers keep their dtype, as in MindSpore.
    return jnp.nansum(values, **settings, dtype=None if values.dtype == jnp.bool_ else values.dtype)


nansum = _ignoring_nan(
    "nansum", _nansum, "Sum over `axis` of what is not NaN.", "nansum", "nansum(dim=axis, keepdim=keepdims)"
)
nanmean = _ignoring_nan("nanmean", jnp.nanmean, "Mean over `axis` of what is not NaN.", "nanmean")


@operator(function="std_mean")
def std_mean(input: Array, axis: Axes = None, ddof: int = 0, keepdims: bool = False) -> tuple[Array, Array]:
    """Standard deviation and mean over `axis`; see `ops.std`."""
    variance, mean = var_mean.kernel(input, axis, ddof, keepdims)
    # From the variance: a second pass for the mean would be needed otherwise.
    return jnp.sqrt(variance), mean


@operator(function="var_mean")
def var_mean(input: Array, axis: Axes = None, ddof: int = 0, keepdims: bool = False) -> tuple[Array, Array]:
    """Variance and mean over `axis`; `ddof` is taken off the number of elements."""
    values, where = promote.inexact(input), check.axes("var_mean", axis, input.ndim)
    variance = jnp.var(values, where, ddof=int(ddof), keepdims=keepdims)
    return variance, jnp.mean(values, where, keepdims=keepdims)


# With Bessel's correction by default.
_MINT_MOMENTS = "input dim=axis * correction=ddof keepdim=keepdims"
other_form(std_mean, None, _MINT_MOMENTS, mint="std_mean", correction=1)
other_form(var_mean, None, _MINT_MOMENTS, mint="var_mean", correction=1)


@operator("ReduceStd(axis, unbiased, keep_dims)", function="")
def _reduce_std(x: Array, axis: Axes = (), unbiased: bool = True, keep_dims: bool = False) -> tuple[Array, Array]:
    """Standard deviation and mean over `axis` (all when empty); `unbiased` divides by one less than the number."""
    return std_mean.kernel(x, axis, int(unbiased), keep_dims)


@operator(function="cov", method="cov")
def cov(input: Array, *, correction: int = 1, fweights: Array | None = None, aweights: Array | None = None) -> Array:
    """Covariances of the rows, each of which is a variable and each column an observation.

    Args:
        input: (variables, observations), or one variable.
        correction: taken off the number of observations.
        fweights: how often each observation was made, integers.
        aweights: how much each observation counts.
    """
    check.rank("cov", (0, 1, 2), input=input)
    values = jnp.atleast_1d(promote.inexact(input))
    # Half precision gives float32, as in MindSpore.
    values = values.astype(jnp.promote_types(values.dtype, jnp.float32))
    return jnp.cov(values, ddof=correction, fweights=fweights, aweights=aweights)


@operator(function="count_nonzero", method="count_nonzero(dim=axis)")
def count_nonzero(x: Array, axis: Axes = (), keep_dims: bool = False, dtype: DType = dtypes.int32) -> Array:
    """Number of elements over `axis` that are not zero, in `dtype`."""
    counts = jnp.count_nonzero(x, check.axes("count_nonzero", axis, x.ndim), keepdims=keep_dims)
    return counts.astype(dtype.np_dtype)


@operator(function="", mint="count_nonzero")
def _mint_count_nonzero(input: Array, dim: Axes = None) -> Array:
    """Number of elements over `dim` that are not zero (int64)."""
    return jnp.count_nonzero(input, check.axes("count_nonzero", dim, input.ndim, "dim")).astype(jnp.int64)


@operator(function="bincount", method="bincount", mint="bincount", composed=True)
def bincount(input: Any, weights: Any = None, minlength: int = 0) -> Any:
    """How often each number from 0 to the largest occurs in a vector of non-negative integers, or the sum of `weights`.

    The result's size depends on the values: a compiled step with it runs operator by operator.
    """
    For("bincount").refuse(input.ndim != 1, f"'input' must be a vector, but its shape is {input.shape}")
    values = input.asnumpy()
    if values.dtype.kind not in "iu":
        # MindSpore rounds towards 0.
        values = values.real.astype(np.int64)
        input = input.astype(dtypes.int64)
    if values.size and values.min() < 0:
        raise For("bincount").error(f"'input' must not be negative, but holds {values.min()}")
    size = max(int(minlength), int(values.max()) + 1 if values.size else 0)
    return _counted(input, size) if weights is None else _weighed(input, weights, size)


@operator(function="")
def _counted(input: Array, size: int) -> Array:
    """Number of occurrences of each of `size` values (float32, as MindSpore gives it)."""
    return jnp.zeros((size,), jnp.float32).at[input].add(1)


@operator(function="")
def _weighed(input: Array, weights: Array, size: int) -> Array:
    """Sum of the weights of each of `size` values."""
    return jnp.zeros((size,), weights.dtype).at[input].add(weights)


@operator("Histogram(bins, min, max)", function="histc", method="histc")
def histc(input: Array, bins: int = 100, min: float = 0.0, max: float = 0.0) -> Array:
    """Number of elements in each of `bins` equal intervals of [min, max], or of the input's range when both are 0.

    Elements outside count for nothing; the last interval includes `max`. The dtype stays; of float16 it is float32.
    """
    check.tensor("histc", input=input)
    For("histc").refuse(bins <= 0 or min > max, f"'bins' must be > 0 and 'min' <= 'max', but got {bins}, {min}, {max}")
    values = promote.inexact(input).reshape(-1)
    # Both 0 is MindSpore's way to request the input's own range.
    low, high = (jnp.min(values), jnp.max(values)) if min == max == 0 else (jnp.asarray(min), jnp.asarray(max))
    # A range without width gets one on both sides.
    low, high = jnp.where(low == high, low - 1, low), jnp.where(low == high, high + 1, high)
    cell = jnp.clip(jnp.floor((values - low) / (high - low) * bins), 0, bins - 1).astype(jnp.int32)
    inside = (values >= low) & (values <= high)
    counts = jnp.zeros((bins,), jnp.float32).at[cell].add(inside.astype(jnp.float32))
    return counts if input.dtype == np.float16 else counts.astype(input.dtype)


other_form(histc, mint="histc", min=0, max=0)


@operator("CumProd(exclusive, reverse)", function="", dims=Along("axis", 0))
def _cumprod_primitive(x: Array, axis: int, exclusive: bool = False, reverse: bool = False) -> Array:
    """Running product along `axis`; `exclusive` leaves out the element itself, `reverse` starts at the end."""
    where = check.axis("CumProd", axis, x.ndim)
    values = jnp.flip(x, where) if reverse else x
    if exclusive:
        head = jnp.ones_like(jax.lax.slice_in_dim(values, 0, 1, axis=where))
        values = jnp.concatenate([head, jax.lax.slice_in_dim(values, 0, x.shape[where] - 1, axis=where)], where)
    total = jnp.cumprod(values, where, dtype=x.dtype)
    return jnp.flip(total, where) if reverse else total


@operator(function="cumprod", method="cumprod", mint="cumprod")
def cumprod(input: Array, dim: int, dtype: DType | None = None) -> Array:
    """Running product along `dim`; integers and bools are multiplied in int64."""
    # Products of narrow integers overflow soon; MindSpore widens them.
    wide = input.dtype == np.bool_ or jnp.issubdtype(input.dtype, jnp.integer)
    kind = dtype.np_dtype if dtype is not None else jnp.int64 if wide else input.dtype
    return jnp.cumprod(input.astype(kind), check.axis("cumprod", dim, input.ndim, "dim"), dtype=kind)


def _running(name: str, own: str, keeps: Callable[[Array, Array], Array], index_dtype: Any, doc: str) -> None:
    def compute(input: Array, axis: int) -> tuple[Array, Array]:
        check.tensor(name, input=input)
        where = check.axis(name, axis, input.ndim)
        rows = jnp.atleast_1d(input)
        positions = jax.lax.broadcasted_iota(jnp.int64, rows.shape, where)

        # Of the running winner and the next element, which is later.
        def later(left: tuple[Array, Array], right: tuple[Array, Array]) -> tuple[Array, Array]:
            newer = keeps(right[0], left[0])
            return jnp.where(newer, right[0], left[0]), jnp.where(newer, right[1], left[1])

        # Associative, so XLA may compute it in logarithmic depth. No gradient flows here: values are picked below.
        _, index = jax.lax.associative_scan(later, (jax.lax.stop_gradient(rows), positions), axis=where)
        values = jnp.take_along_axis(rows, index, where)  # so that the gradient goes to the element that was taken
        return values.reshape(input.shape), index.reshape(input.shape)

    def kernel(input: Array, axis: int) -> tuple[Array, Array]:
        values, index = compute(input, axis)
        return values, index.astype(index_dtype)

    def torch_like(input: Array, dim: int) -> tuple[Array, Array]:
        return compute(input, dim)

    for form in (kernel, torch_like):
        form.__name__, form.__doc__ = own, doc
    operator(function="", mint=own)(torch_like)
    operator(name, function=own, method=own)(kernel)


def _not_less(new: Array, old: Array) -> Array:
    # A NaN wins and stays, as in MindSpore; equal elements give the later position.
    return (new >= old) | jnp.isnan(new)


def _not_more(new: Array, old: Array) -> Array:
    return (new <= old) | jnp.isnan(new)


_running(
    "Cummax", "cummax", _not_less, jnp.int64, "Running maximum along `axis`, and the position of its last occurrence."
)
_running(
    "Cummin", "cummin", _not_more, jnp.int32, "Running minimum along `axis`, and the position of its last occurrence."
)


@operator(function="logcumsumexp", method="logcumsumexp")
def logcumsumexp(input: Array, axis: int) -> Array:
    """Logarithm of the running sum of exponentials along `axis`, computed without overflow."""
    check.floating("logcumsumexp", input=input)
    return jax.lax.cumlogsumexp(input, check.axis("logcumsumexp", axis, input.ndim))


@operator(function="diff", method="diff", mint="diff(input=x, dim=axis)")
def diff(x: check.One, n: int = 1, axis: int = -1, prepend: Array | None = None, append: Array | None = None) -> Array:
    """Differences of neighbours along `axis`, taken `n` times, after joining `prepend` and `append` to the ends."""
    For("diff").refuse(not x.ndim or n < 0, "'x' needs a dimension and 'n' must be >= 0", x.shape, n)
    return jnp.diff(x, n, check.axis("diff", axis, x.ndim), prepend=prepend, append=append)


@operator(function="trapz")
def trapz(y: Array, x: Array | None = None, *, dx: float = 1.0, dim: int = -1) -> Array:
    """Integral along `dim` by the trapezoidal rule, at the points `x` or at distances `dx`."""
    values = promote.inexact(y)
    return jnp.trapezoid(values, x, dx, check.axis("trapz", dim, y.ndim, "dim")).astype(values.dtype)
