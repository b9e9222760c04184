"""Random operators. Each draws one key from the operators' stream (`sporax.mindspore.common.seed`)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from sporax.base.errors import SporaxTypeError, SporaxValueError, check_type
from sporax.ir.operator_dims import Call, Dims, Shapes, StrategyEntry, numbered
from sporax.mindspore.common import dtype as dtypes
from sporax.mindspore.common import seed as seeds
from sporax.mindspore.common.dtype import DType
from sporax.mindspore.common.tensor import Tensor, wrap
from sporax.mindspore.ops._core import check
from sporax.mindspore.ops._core.operator import FUNCTIONS, PRIMITIVES, Array, Operand, Primitive, export, operator
from sporax.runtime.random.random_streams import Generator


def _key_dims(call: Call, shapes: Shapes) -> Dims:
    """An input, and a random key, which has no entry."""
    names, key = numbered(len(shapes[0])), numbered(len(shapes[1]), range(len(shapes[1])), "k")
    return Dims((names, key), (StrategyEntry(names, shapes[0]),), leader=0)


@operator("Dropout", function="", dims=_key_dims)
def _dropout(x: Array, key: Array, keep_prob: float = 0.5) -> tuple[Array, Array]:
    """Elements kept with probability `keep_prob` and divided by it, zero elsewhere; and the mask (Srivastava et al. 2014)."""
    check.floating("Dropout", x=x)
    mask = jax.random.bernoulli(key, keep_prob, x.shape)
    # Divided by the share that is kept, so that the mean stays.
    result = jnp.where(mask, x / jnp.asarray(keep_prob, x.dtype), jnp.zeros((), x.dtype))
    # The mask in the input's dtype, as MindSpore gives it.
    return result, mask.astype(x.dtype)


def _checked_probability(name: str, what: str, value: Any, zero: bool) -> float:
    check_type(name, what, value, "a number", int | float, takes_bool=False)
    # The class form cannot drop everything, the function can.
    if not (0.0 <= value <= 1.0 if zero else 0.0 < value <= 1.0):
        raise SporaxValueError(f"For '{name}', '{what}' must be in {'[0' if zero else '(0'}, 1], but got {value}.")
    return float(value)


class Dropout(Primitive):
    """Class form of dropout: returns the result and the mask.

    Args:
        keep_prob: probability of an element to be kept, in (0, 1].
        Seed0, Seed1: a stream of this operator's own when one of them is not 0.

    Raises:
        SporaxValueError, SporaxTypeError: `keep_prob` is no such number.
    """

    operator = _dropout
    attribute_names = ("keep_prob",)
    defaults = {"keep_prob": 0.5}

    def __init__(self, keep_prob: float = 0.5, Seed0: int = 0, Seed1: int = 0) -> None:  # noqa: N803 - MindSpore's names
        super().__init__(keep_prob=_checked_probability("Dropout", "keep_prob", keep_prob, zero=False))
        # A stream of its own, only if a seed is given.
        self._stream = Generator((Seed1 << 32) + Seed0) if Seed0 or Seed1 else seeds.operators

    def __call__(self, x: Any) -> Any:
        """Draw a mask and apply it."""
        # The key is an operand: a new one must not compile again.
        return super().__call__(x, wrap(self._stream.next_key()))


PRIMITIVES["Dropout"] = Dropout


def dropout(input: Any, p: float = 0.5, training: bool = True, seed: int | None = None) -> Any:
    """Elements zeroed with probability `p`, the others divided by ``1 - p``; nothing happens unless `training`.

    Args:
        input: floating tensor.
        p: probability of an element to be zeroed, in [0, 1].
        training: whether to drop at all.
        seed: draw from a stream of its own, for a mask that can be repeated.
    """
    _checked_probability("dropout", "p", p, zero=True)
    if not training or p == 0:
        return input
    # Dividing by a share of 0 would give NaN.
    if p == 1:
        return FUNCTIONS["zeros_like"](input)
    stream = seeds.operators if seed is None else Generator(seed)
    return _dropout(input, wrap(stream.next_key()), 1.0 - p)[0]


@operator(function="")
def _draw_normal(key: Array, shape: tuple[int, ...], dtype: DType | None = None) -> Array:
    """Standard normal numbers."""
    return jax.random.normal(key, shape, jnp.float32 if dtype is None else dtype.np_dtype)


@operator(function="")
def _draw_uniform(key: Array, shape: tuple[int, ...], dtype: DType | None = None) -> Array:
    """Uniform numbers in [0, 1)."""
    return jax.random.uniform(key, shape, jnp.float32 if dtype is None else dtype.np_dtype)


@operator(function="")
def _draw_integers(key: Array, shape: tuple[int, ...], low: int, high: int, dtype: DType | None = None) -> Array:
    """Uniform integers in [low, high)."""
    return jax.random.randint(key, shape, low, high, jnp.int64 if dtype is None else dtype.np_dtype)


def _key(seed: int | None) -> Tensor:
    return wrap((seeds.operators if seed is None else Generator(seed)).next_key())


def _sizes(sizes: tuple[Any, ...]) -> Any:
    return tuple(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], tuple | list) else sizes


def standard_normal(shape: Any, seed: int | None = None) -> Tensor:
    """Standard normal float32 numbers."""
    return _draw_normal(_key(seed), check.shape("standard_normal", _sizes((shape,))))


def normal(shape: Any, mean: Any, stddev: Any, seed: int | None = None) -> Tensor:
    """Normal numbers around `mean` with deviation `stddev`."""
    return standard_normal(shape, seed) * stddev + mean


@operator(function="")
def _draw_integers_between(key: Array, low: Operand, high: Operand, shape: tuple[int, ...]) -> Array:
    """Uniform integers (int32) in [low, high), which may be traced."""
    for name, bound in (("minval", low), ("maxval", high)):
        if not jnp.issubdtype(jnp.asarray(bound).dtype, jnp.integer):
            raise SporaxTypeError.must("uniform", name, "be an integer where 'dtype' is Int32", check.describe(bound))
        if jnp.ndim(bound):
            raise SporaxValueError(
                f"For 'uniform', '{name}' must be a scalar tensor, but its shape is {jnp.shape(bound)}."
            )
    return jax.random.randint(key, shape, low, high, jnp.int32)


def uniform(shape: Any, minval: Any, maxval: Any, seed: int | None = None, dtype: DType = dtypes.float32) -> Tensor:
    """Uniform numbers in [minval, maxval); whole ones where `dtype` is int32, whose bounds are integers of no dimension.

    Raises:
        SporaxTypeError: bounds that are no integers, for int32.
        SporaxValueError: bounds with dimensions, for int32.
    """
    if dtype == dtypes.int32:
        return _draw_integers_between(_key(seed), minval, maxval, check.shape("uniform", _sizes((shape,))))
    unit = _draw_uniform(_key(seed), check.shape("uniform", _sizes((shape,))), dtype)
    # Scaled afterwards, so that bounds may be Tensors.
    return unit * (maxval - minval) + minval


def randn(*size: Any, dtype: DType | None = None, seed: int | None = None) -> Tensor:
    """Standard normal numbers."""
    return _draw_normal(_key(seed), check.shape("randn", _sizes(size)), dtype)


def rand(*size: Any, dtype: DType | None = None, seed: int | None = None) -> Tensor:
    """Uniform numbers in [0, 1)."""
    return _draw_uniform(_key(seed), check.shape("rand", _sizes(size)), dtype)


def randint(low: int, high: int, size: Any, seed: int | None = None, *, dtype: DType | None = None) -> Tensor:
    """Uniform integers in [low, high)."""
    return _draw_integers(_key(seed), check.shape("randint", _sizes((size,))), low, high, dtype)


export(dropout, standard_normal, normal, uniform, randn, rand, randint)
