"""How functions of this package become names of `sporax.mindspore.mint`, and checks that many of them share.

Functions of `mint` with a form of their own: largest and smallest elements, and a few that are not in `ops`.

The parts that batch normalisation over several devices is made of, as `sporax.mindspore.mint` offers them.

A device computes the statistics of its own batch (`batch_norm_stats`), all devices exchange them, each joins them
(`batch_norm_gather_stats_with_counts`) and normalises (`batch_norm_elemt`). Channels are dim 1; `invstd` is one over the
standard deviation.

Random functions of `sporax.mindspore.mint`. All draw from the operators' stream (`sporax.mindspore.set_seed`).

Functions of `sporax.mindspore.mint` that make tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.errors import For, SporaxNotImplementedError, SporaxTypeError, SporaxValueError
from sporax.mindspore import ops
from sporax.mindspore.common import DType, dtypes, seed as seeds
from sporax.mindspore.common.tensor import Tensor, wrap_numpy
from sporax.mindspore.ops._core import MINT, Array, check, known, operator, renamed
from sporax.mindspore.ops.random import distributions
from sporax.mindspore.ops.random.dropout import one_shape


def offer(*functions: Callable[..., Any], place: str = "") -> None:
    """Make functions names of `sporax.mindspore.mint`, below `place` (such as ``"nn.functional."``)."""
    for function in functions:
        MINT[place + function.__name__] = function


def same_device(name: str, device: str | None) -> None:
    """Raise SporaxNotImplementedError unless `device` is None: tensors live where `set_device` says."""
    if device is not None:
        raise For(name).fault(
            SporaxNotImplementedError,
            "'device' must be None",
            f"{device!r}; tensors are made on the device of the context (set_device)",
        )


def max(input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Tensor | None = None) -> Any:
    """The largest element; along `dim`, the largest elements and their positions (int64); or the larger of two tensors.

    Args:
        input: tensor.
        dim: the dimension; or, as in ``max(input, other)``, the other tensor.
        keepdim: keep the dimension with size 1.
        other: tensor to compare with, element by element.
    """
    return _extreme("max", ops.reduce_max, ops.maximum, ops.ArgMaxWithValue, input, dim, keepdim, other)


def min(input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Tensor | None = None) -> Any:
    """The smallest element; along `dim`, the smallest elements and their positions (int64); or the smaller of two tensors.

    Args: as `max`.
    """
    return _extreme("min", ops.reduce_min, ops.minimum, ops.ArgMinWithValue, input, dim, keepdim, other)


def _extreme(
    name: str, reduced: Any, pairwise: Any, along: Any, input: Tensor, dim: Any, keepdim: bool, other: Tensor | None
) -> Any:
    # ``max(input, other)`` has the other tensor in the place of `dim`.
    if isinstance(dim, Tensor) and other is None:
        dim, other = None, dim
    if other is not None:
        if dim is not None or keepdim:
            raise For(name).type_error(f"'other' stands alone, but got 'dim' {dim} and 'keepdim' {keepdim} too")
        return pairwise(input, other)
    if dim is None:
        For(name).refuse_type(keepdim, "'keepdim' needs a 'dim', but that is None")
        return reduced(input)
    # The operator gives positions first, PyTorch's form values first.
    positions, values = along(dim, keepdim)(input)
    return values, positions


def _unique(array: np.ndarray[Any, Any], inverse: bool, counts: bool, axis: int | None) -> list[np.ndarray[Any, Any]]:
    """The different elements, and what else is requested; numpy gives a bare array where nothing is."""
    # Its overloads know no bools that are variables.
    unique_of: Any = np.unique
    result = unique_of(array, return_inverse=inverse, return_counts=counts, axis=axis)
    return list(result) if inverse or counts else [result]


def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The different elements, in ascending order; outside compiled steps only.

    Args:
        input: tensor.
        sorted: accepted for compatibility; they are in order either way.
        return_inverse: also give for each element its position in the result (int64).
        return_counts: also give how often each occurs (int64).
        dim: compare slices along this dimension instead of single elements.
    """
    where = None if dim is None else check.axis("unique", dim, input.ndim)
    # How many different elements there are is a shape, so values must be known.
    values, *others = _unique(known("unique", "input", input), return_inverse, return_counts, where)
    if not others:
        return wrap_numpy(values)
    if return_inverse:
        others[0] = others[0].reshape(input.shape if where is None else -1)
    return (wrap_numpy(values), *(wrap_numpy(other.astype(np.int64)) for other in others))


def add(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """``input + alpha * other``."""
    # Without a factor the product is left out, which keeps the dtype of integers.
    return ops.add(input, other) if type(alpha) is int and alpha == 1 else ops.add(input, other * alpha)


def sub(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """``input - alpha * other``."""
    return ops.sub(input, other) if type(alpha) is int and alpha == 1 else ops.sub(input, other * alpha)


def equal(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same shape and elements; outside compiled steps only. See `eq` for each element."""
    for name, value in (("input", input), ("other", other)):
        For("equal").typed(name, value, "a Tensor", Tensor)
    # Tensors of different shapes are different, whatever would broadcast.
    return input.shape == other.shape and bool(ops.reduce_all(ops.equal(input, other)).item())


def argmin(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Position (int64) of the first smallest element along `dim`, or in the flattened tensor."""
    return ops.argmin(input, dim, keepdim).astype(dtypes.int64)


def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """How often each of the numbers 0, 1, … occurs (int64), or the sum of their `weights`; outside compiled steps only.

    Args:
        input: integers >= 0, (n,).
        weights: (n,), added instead of ones.
        minlength: least number of results.
    """
    counts = ops.bincount(input, weights, minlength)
    return counts.astype(dtypes.int64) if weights is None else counts


def addr_(input: Tensor, vec1: Tensor, vec2: Tensor, beta: float = 1, alpha: float = 1) -> Tensor:
    """``beta * input + alpha * outer(vec1, vec2)``, written to `input`, which is returned."""
    # With beta 0, NaN in the input must not come through.
    result = ops.outer(vec1, vec2) * alpha + (input * beta if beta != 0 else 0)
    input._replace(result.astype(input.dtype).array)
    return input


def item(input: Tensor) -> Any:
    """The one element of `input` as a Python number."""
    return input.item()


@operator(function="", mint="conv_tbc")
def conv_tbc(input: Array, weight: Array, bias: Array, pad: int = 0) -> Array:
    """Cross-correlation of sequences with time first.

    Args:
        input: (time, n, c_in).
        weight: (kernel, c_in, c_out).
        bias: (c_out,), added to each channel.
        pad: zeros at both ends of the time.
    """
    check.rank("conv_tbc", 3, input=input, weight=weight)
    result = jax.lax.conv_general_dilated(input, weight, (1,), [(pad, pad)], dimension_numbers=("WNC", "WIO", "WNC"))
    return result + bias


isnan = renamed(ops.isnan, {"tensor": "input"})

offer(max, min, argmin, bincount, unique, add, sub, equal, addr_, item)
MINT.update(isnan=isnan, fix=ops.trunc, ge=ops.ge, conv2d=MINT["nn.functional.conv2d"])


@operator(function="", mint="batch_norm_stats")
def batch_norm_stats(input: Array, eps: float) -> tuple[Array, Array]:
    """Mean and `invstd` of each channel of `input` (n, channels, …), in float32 at least."""
    check.floating("batch_norm_stats", input=input)
    axes = (0, *range(2, input.ndim))
    # The variance of float16 numbers loses too much.
    wide = input.astype(jnp.promote_types(input.dtype, jnp.float32))
    return jnp.mean(wide, axes), jax.lax.rsqrt(jnp.var(wide, axes) + eps)


@operator(function="", mint="batch_norm_elemt")
def batch_norm_elemt(
    input: Array,
    weight: Array | None = None,
    bias: Array | None = None,
    mean: Array | None = None,
    invstd: Array | None = None,
    eps: float = 1e-5,
) -> Array:
    """``(input - mean) * invstd * weight + bias``, each (channels,); what is None is left out.

    `eps` has no part in it: it is in `invstd` already.
    """
    check.floating("batch_norm_elemt", input=input)
    spread = (-1, *[1] * (input.ndim - 2))
    result = input.astype(jnp.promote_types(input.dtype, jnp.float32))
    if mean is not None:
        result = result - mean.reshape(spread)
    for factor in (invstd, weight):
        result = result if factor is None else result * factor.reshape(spread)
    return (result if bias is None else result + bias.reshape(spread)).astype(input.dtype)


@operator(function="")
def _joined(mean: Array, invstd: Array, counts: Array, eps: float) -> tuple[Array, Array, Array]:
    """Mean, `invstd` and unbiased variance over all devices; see `batch_norm_gather_stats_with_counts`."""
    # Devices with more samples count more.
    share = (counts / jnp.sum(counts)).astype(mean.dtype)[:, None]
    middle = jnp.sum(mean * share, 0)
    # `invstd` turned back into a variance.
    own = 1 / jnp.square(invstd) - eps
    # Variance within devices plus that of their means.
    variance = jnp.sum((own + jnp.square(mean - middle)) * share, 0)
    total = jnp.sum(counts).astype(mean.dtype)
    return middle, jax.lax.rsqrt(variance + eps), variance * total / (total - 1)


@operator(function="", mint="batch_norm_gather_stats_with_counts", composed=True)
def batch_norm_gather_stats_with_counts(
    input: Any, mean: Any, invstd: Any, running_mean: Any = None, running_var: Any = None, momentum: float = 0.1,
    eps: float = 1e-5, counts: Any = None,
) -> Any:  # fmt: skip
    """Mean and `invstd` of all devices' batches from those of each.

    Args:
        input: (n, channels, …), of which only the sizes count, and only without `counts`.
        mean, invstd: (devices, channels).
        running_mean, running_var: (channels,); they move towards the joint statistics. None: nothing moves.
        momentum: share of the joint statistics in the moving ones.
        eps: what `invstd` was made with.
        counts: (devices,): elements of a channel on each device; all equal by default.
    """
    if counts is None:
        counts = jnp.full((mean.shape[0],), input.size // input.shape[1], jnp.float32)
    middle, deviation, variance = _joined(mean, invstd, counts, float(eps))
    for statistic, new in ((running_mean, middle), (running_var, variance)):
        if statistic is not None:
            moved = statistic * (1 - momentum) + new * momentum
            # Statistics are no part of the loss.
            statistic._replace(jax.lax.stop_gradient(moved.astype(statistic.dtype).array))
    return middle, deviation


def zeros(size: Any, *, dtype: DType | None = None) -> Tensor:
    """Zeros in a shape (int, tuple or list); float32 by default."""
    return ops.zeros(size, dtype)


def ones(size: Any, *, dtype: DType | None = None) -> Tensor:
    """Ones in a shape (int, tuple or list); float32 by default."""
    return ops.ones(size, dtype)


def full(size: Any, fill_value: Any, *, dtype: DType | None = None) -> Tensor:
    """A tensor of one number, which also gives the dtype when there is none: int64, float32 or bool.

    Raises:
        SporaxTypeError: `size` is no shape, or `fill_value` no number.
    """
    For("full").typed("fill_value", fill_value, "a number", bool | int | float)
    return ops.full(size, fill_value, dtype=dtype)


def empty(*size: Any, dtype: DType | None = None, device: str | None = None, pin_memory: bool = False) -> Tensor:
    """A tensor to be filled later: ``empty(2, 3)`` or ``empty((2, 3))``; float32 by default.

    It holds zeros: arrays are immutable here, so there is no memory to leave as it is.

    Args:
        size: the shape.
        dtype: element type.
        device: must be None: tensors are made on the device of the context.
        pin_memory: must be False.

    Raises:
        SporaxNotImplementedError: `device` or `pin_memory` is requested.
    """
    same_device("empty", device)
    For("empty").refuse(pin_memory, "'pin_memory' must be False", "True", kind=SporaxNotImplementedError)
    return ops.zeros(one_shape(size), dtype)


def empty_like(input: Tensor, *, dtype: DType | None = None, device: str | None = None) -> Tensor:
    """A tensor to be filled later, in the shape (and dtype) of `input`; it holds zeros, see `empty`."""
    same_device("empty_like", device)
    return ops.zeros_like(input, dtype=dtype)


def linspace(start: Any, end: Any, steps: int, *, dtype: DType | None = None) -> Tensor:
    """`steps` numbers at equal distances, both ends included; float32 by default.

    Raises:
        SporaxValueError: `steps` is negative.
    """
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 0:
        raise SporaxValueError(f"For 'linspace', 'steps' must be an int >= 0, but got {steps!r}.")
    # The bounds must be numbers, as the result's shape and values are made on the host.
    first, last = (bound.item() if isinstance(bound, Tensor) else bound for bound in (start, end))
    numbers = ops.linspace(first, last, steps)
    return numbers if dtype is None else numbers.astype(dtype)


def clone(input: Tensor) -> Tensor:
    """A copy, through which gradients flow."""
    return ops.deepcopy(input)


offer(zeros, ones, full, empty, empty_like, linspace, clone)
MINT.update(full_like=ops.full_like, arange=ops.arange, eye=ops.eye)


def rand(*size: Any, generator: None = None, dtype: DType | None = None, device: str | None = None) -> Tensor:
    """Uniform numbers in [0, 1): ``rand(2, 3)`` or ``rand((2, 3))``; float32 by default.

    Args:
        size: the shape.
        generator: must be None: there is one stream for all operators.
        dtype: a floating dtype.
        device: must be None: tensors are made on the device of the context.

    Raises:
        SporaxTypeError: `generator` is given.
        SporaxNotImplementedError: `device` is given.
    """
    _one_stream("rand", generator, device)
    return ops.rand(*size, dtype=dtype)


def randn(*size: Any, generator: None = None, dtype: DType | None = None, device: str | None = None) -> Tensor:
    """Standard normal numbers; arguments as `rand`."""
    _one_stream("randn", generator, device)
    return ops.randn(*size, dtype=dtype)


def rand_like(input: Tensor, *, dtype: DType | None = None, device: str | None = None) -> Tensor:
    """Uniform numbers in [0, 1) in the shape (and dtype) of `input`."""
    same_device("rand_like", device)
    return ops.rand_like(input, dtype=dtype)


def randn_like(input: Tensor, *, dtype: DType | None = None, device: str | None = None) -> Tensor:
    """Standard normal numbers in the shape (and dtype) of `input`."""
    same_device("randn_like", device)
    return ops.randn_like(input, dtype=dtype)


def randint(*args: Any, generator: None = None, dtype: DType | None = None, device: str | None = None) -> Tensor:
    """Uniform integers: ``randint(high, size)`` in [0, high), ``randint(low, high, size)`` in [low, high); int64 by default.

    Raises:
        SporaxTypeError: another number of arguments, or a `generator`.
        SporaxValueError: `low` is not below `high`.
        SporaxNotImplementedError: `device` is given.
    """
    _one_stream("randint", generator, device)
    For("randint").refuse_type(len(args) not in (2, 3), "the arguments must be (low=0, high, size)", len(args))
    # Two arguments: the numbers begin at 0.
    low, high = args[:2] if len(args) == 3 else (0, args[0])
    return distributions.drawn(
        distributions._integers, seeds.operators, one_shape((args[-1],)), low, high, dtype or dtypes.int64
    )


def randint_like(*args: Any, dtype: DType | None = None, device: str | None = None) -> Tensor:
    """Uniform integers: ``randint_like(input, high)`` in [0, high), ``randint_like(input, low, high)`` in [low, high).

    They have the shape (and dtype) of `input`.

    Raises:
        SporaxTypeError: another number of arguments.
        SporaxValueError: `low` is not below `high`.
    """
    same_device("randint_like", device)
    For("randint_like").refuse_type(len(args) not in (2, 3), "the arguments must be (input, low=0, high)", len(args))
    low = args[1] if len(args) == 3 else 0
    return ops.randint_like(args[0], low, args[-1], dtype=dtype)


def randperm(n: int, *, generator: None = None, dtype: DType = dtypes.int64) -> Tensor:
    """The numbers 0 to n - 1 in random order. `generator` must be None: there is one stream for all operators."""
    _one_stream("randperm", generator)
    return ops.randperm(n, dtype=dtype)


def normal(mean: Any = 0.0, std: Any = 1.0, size: Any = None, generator: None = None) -> Tensor:
    """Normal numbers around `mean` with deviation `std`.

    Args:
        mean, std: numbers, or tensors that are broadcast against each other.
        size: the shape, when both are numbers.
        generator: must be None: there is one stream for all operators.

    Raises:
        SporaxTypeError: there is no shape, or there are two.
    """
    _one_stream("normal", generator)
    tensors = [tensor for tensor in (mean, std) if isinstance(tensor, Tensor)]
    if (size is None) != bool(tensors):
        which = "both" if tensors else "neither"
        raise SporaxTypeError(f"For 'normal', give either tensors for 'mean' and 'std' or a 'size', but got {which}.")
    if tensors:
        # The sum has the shape to which both broadcast.
        size = (mean + std).shape
    return ops.standard_normal(tuple(size)) * std + mean


def bernoulli(input: Tensor, *, generator: None = None) -> Tensor:
    """1 with the probabilities in `input`, else 0, in its dtype. `generator` must be None."""
    _one_stream("bernoulli", generator)
    return ops.bernoulli(input, input)


def multinomial(input: Tensor, num_samples: int, replacement: bool = False, *, generator: None = None) -> Tensor:
    """Choices (int64) among the last dim of `input` (n,) or (rows, n), with probabilities in proportion to it.

    `generator` must be None: there is one stream for all operators.
    """
    _one_stream("multinomial", generator)
    return ops.multinomial(input, num_samples, replacement).astype(dtypes.int64)


def _one_stream(name: str, generator: Any, device: str | None = None) -> None:
    if generator is not None:
        raise SporaxTypeError(
            f"For '{name}', 'generator' must be None, but got {type(generator).__name__}; all operators share one stream, "
            "which set_seed starts again."
        )
    same_device(name, device)


offer(rand, randn, rand_like, randn_like, randint, randint_like, randperm, normal, bernoulli, multinomial)
