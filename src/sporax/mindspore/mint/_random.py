"""Random functions of `sporax.mindspore.mint`. All draw from the operators' stream (`sporax.mindspore.set_seed`)."""

from __future__ import annotations

from typing import Any

from sporax.base.errors import SporaxTypeError
from sporax.mindspore import ops
from sporax.mindspore.common import dtype as dtypes
from sporax.mindspore.common import seed as seeds
from sporax.mindspore.common.dtype import DType
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.mint._creation import one_shape
from sporax.mindspore.mint._registry import offer, same_device
from sporax.mindspore.ops.random import distributions


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
    if len(args) not in (2, 3):
        raise SporaxTypeError(f"For 'randint', the arguments must be (low=0, high, size), but got {len(args)}.")
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
