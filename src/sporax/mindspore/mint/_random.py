"""Random functions of `sporax.mindspore.mint`. All draw from the operators' stream (`sporax.mindspore.set_seed`).

Functions of `sporax.mindspore.mint` that make tensors.
"""

from __future__ import annotations

from typing import Any

from sporax.base.errors import SporaxNotImplementedError, SporaxTypeError, SporaxValueError, check_type
from sporax.mindspore import ops
from sporax.mindspore.common import dtype as dtypes
from sporax.mindspore.common import seed as seeds
from sporax.mindspore.common.dtype import DType
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.mint._registry import offer, same_device
from sporax.mindspore.ops.random import distributions


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
    check_type("full", "fill_value", fill_value, "a number", bool | int | float)
    return ops.full(size, fill_value, dtype=dtype)


def full_like(input: Tensor, fill_value: Any, *, dtype: DType | None = None) -> Tensor:
    """A tensor of one number in the shape (and dtype) of `input`."""
    return ops.full_like(input, fill_value, dtype=dtype)


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
    SporaxNotImplementedError.raise_if(pin_memory, "empty", "pin_memory", "be False", "True")
    return ops.zeros(one_shape(size), dtype)


def empty_like(input: Tensor, *, dtype: DType | None = None, device: str | None = None) -> Tensor:
    """A tensor to be filled later, in the shape (and dtype) of `input`; it holds zeros, see `empty`."""
    same_device("empty_like", device)
    return ops.zeros_like(input, dtype=dtype)


def arange(start: Any = 0, end: Any = None, step: Any = 1, *, dtype: DType | None = None) -> Tensor:
    """Numbers from `start` up to `end` (without it); int64, or float32 when a float is among the arguments."""
    return ops.arange(start, end, step, dtype=dtype)


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


def eye(n: int, m: int | None = None, dtype: DType | None = None) -> Tensor:
    """Ones on the diagonal of an n × m matrix (n × n without `m`); float32 by default."""
    return ops.eye(n, m, dtype)


def clone(input: Tensor) -> Tensor:
    """A copy, through which gradients flow."""
    return ops.deepcopy(input)


def one_shape(sizes: tuple[Any, ...]) -> Any:
    """The shape in ``f(2, 3)`` and in ``f((2, 3))``."""
    # PyTorch takes both forms.
    return tuple(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], tuple | list) else sizes


offer(zeros, ones, full, full_like, empty, empty_like, arange, linspace, eye, clone)


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
    SporaxTypeError.raise_if(len(args) not in (2, 3), "randint", "the arguments", "be (low=0, high, size)", len(args))
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
    if len(args) not in (2, 3):
        raise SporaxTypeError(f"For 'randint_like', the arguments must be (input, low=0, high), but got {len(args)}.")
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
