"""Dropout in two steps, as programs before MindSpore 1.5 write it, and permutations padded to a fixed length.

`DropoutGenMask` draws a mask of single bits, so it takes an eighth of the memory of one of bytes, and `DropoutDoMask` applies
it. MindSpore's kernels write masks in pieces of 128 bits; the masks here have the same sizes.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from sporax.base.errors import SporaxTypeError, SporaxValueError
from sporax.ir.operator_dims import Call, Dims, Shapes, StrategyEntry, numbered
from sporax.mindspore.common import dtype as dtypes
from sporax.mindspore.common import seed as seeds
from sporax.mindspore.common.dtype import DType
from sporax.mindspore.common.tensor import wrap
from sporax.mindspore.ops._core import check
from sporax.mindspore.ops._core.operator import PRIMITIVES, Array, Operand, Primitive, operator
from sporax.mindspore.ops._core.parameters import known_ints
from sporax.runtime.random.random_streams import Generator

_PIECE_BITS = 128


def _bit_dims(call: Call, shapes: Shapes) -> Dims | None:
    """The strategy is for the tensor that a mask is drawn for; the key, the probability and the bits have no entry."""
    shape = call.get("shape", ())
    if not isinstance(shape, tuple):
        return None
    inputs = tuple(numbered(len(size), range(len(size)), f"{number}.") for number, size in enumerate(shapes))
    return Dims(inputs, (StrategyEntry(numbered(len(shape)), shape),))


@operator(function="", dims=_bit_dims)
def _bits(key: Array, keep_prob: Operand, shape: tuple[int, ...]) -> Array:
    """One bit per element of `shape`, 1 with probability `keep_prob`, in bytes (the lowest bit first), padded with zeros."""
    count = math.prod(shape)
    bits = jax.random.bernoulli(key, jnp.asarray(keep_prob, jnp.float32).reshape(()), (count,))
    return jnp.packbits(jnp.pad(bits, (0, -count % _PIECE_BITS)), bitorder="little")


class DropoutGenMask(Primitive):
    """A mask of bits for `DropoutDoMask`.

    Args:
        Seed0, Seed1: a stream of this operator's own when one of them is not 0.

    Inputs: shape, a tuple of ints; keep_prob, probability of a 1, a number or a Tensor of one element.

    Returns a vector (uint8) of 16 bytes for each 128 elements of `shape` that were begun.
    """

    operator = _bits

    def __init__(self, Seed0: int = 0, Seed1: int = 0) -> None:  # noqa: N803 - MindSpore's names
        for name, value in (("Seed0", Seed0), ("Seed1", Seed1)):
            if isinstance(value, bool) or not isinstance(value, int):
                raise SporaxTypeError(
                    f"For 'DropoutGenMask', the type of '{name}' should be 'int', but got type '{type(value).__name__}'."
                )
        super().__init__()
        self._stream = Generator((Seed1 << 32) + Seed0) if Seed0 or Seed1 else seeds.operators

    def __call__(self, shape: Any, keep_prob: Any) -> Any:
        """Draw the mask."""
        return super().__call__(wrap(self._stream.next_key()), keep_prob, check.shape(self.name, shape))


def _mask_dims(call: Call, shapes: Shapes) -> Dims:
    """An input, the bits of its mask and a probability, which have no entry."""
    names = numbered(len(shapes[0]))
    rest = (numbered(len(size), range(len(size)), f"{number}.") for number, size in enumerate(shapes[1:]))
    return Dims((names, *rest), (StrategyEntry(names, shapes[0]),), leader=0)


@operator("DropoutDoMask()", function="", dims=_mask_dims)
def _masked(input_x: Array, mask: Array, keep_prob: Operand) -> Array:
    """`input_x` divided by `keep_prob` where the mask of `DropoutGenMask` has a 1, zero elsewhere.

    Raises:
        SporaxTypeError: `input_x` is not floating, or the mask is not uint8.
        SporaxValueError: the mask has too few bits.
    """
    check.floating("DropoutDoMask", input_x=input_x)
    if mask.dtype != jnp.uint8:
        raise SporaxTypeError(f"For 'DropoutDoMask', 'mask' must be uint8, but got {check.describe(mask)}.")
    if mask.size * 8 < input_x.size:
        raise SporaxValueError(
            f"For 'DropoutDoMask', 'mask' must have a bit for each of the {input_x.size} elements of 'input_x', but it has "
            f"{mask.size * 8}."
        )
    bits = jnp.unpackbits(mask.reshape(-1), count=input_x.size, bitorder="little").reshape(input_x.shape)
    rate = jnp.asarray(keep_prob, input_x.dtype).reshape(())
    return jnp.where(bits == 1, input_x / rate, jnp.zeros((), input_x.dtype))


@operator(function="")
def _padded_permutation(key: Array, n: Operand, max_length: int, pad: int, dtype: DType) -> Array:
    """The numbers below `n` in random order, then `pad`; `max_length` elements in all."""
    positions = jnp.arange(max_length)
    count = jnp.asarray(n).reshape(())
    # Places behind `n` are ordered behind all others.
    order = jnp.argsort(jnp.where(positions < count, jax.random.uniform(key, (max_length,)), 2.0))
    return jnp.where(positions < count, order, pad).astype(dtype.np_dtype)


class Randperm(Primitive):
    """The numbers 0 to n - 1 in random order, filled up with `pad` to a fixed length.

    Args:
        max_length: length of the result; at least n.
        pad: what fills it up.
        dtype: of the result.

    Inputs: n, an int or a Tensor of one integer. Where its value is not known before the step runs, a larger one than
    `max_length` counts as `max_length`.

    Raises:
        SporaxValueError: `max_length` is not positive, or n is larger.
    """

    operator = _padded_permutation
    attribute_names = ("max_length", "pad", "dtype")

    def __init__(self, max_length: int = 1, pad: int = -1, dtype: DType = dtypes.int32) -> None:
        super().__init__(max_length=max_length, pad=pad, dtype=dtype)
        if max_length < 1:
            raise SporaxValueError(f"For 'Randperm', 'max_length' must be int and must > 0, but got '{max_length}'.")

    def __call__(self, n: Any) -> Any:
        """Draw the permutation."""
        sizes = known_ints(n)
        size = sizes[0] if isinstance(sizes, tuple) and len(sizes) == 1 else sizes
        if isinstance(size, int) and not 0 <= size <= self.max_length:
            raise SporaxValueError(
                f"For 'Randperm', 'n' must be in [0, {self.max_length}], where {self.max_length} is 'max_length', but got {size}."
            )
        return super().__call__(wrap(seeds.operators.next_key()), size)


PRIMITIVES.update(DropoutGenMask=DropoutGenMask, Randperm=Randperm)
