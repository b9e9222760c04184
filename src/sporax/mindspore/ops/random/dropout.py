"""Dropout, and other random operators. Each draws one key from the operators' stream (`sporax.mindspore.common.seed`).

Programs before MindSpore 1.5 write dropout in two steps: `DropoutGenMask` draws a mask of single bits, so it takes an eighth of
the memory of one of bytes, and `DropoutDoMask` applies it. MindSpore's kernels write masks in pieces of 128 bits; the masks here
have the same sizes.

Classes sampled for a loss over very many of them: uniformly, or by ranks with probabilities that fall like 1/rank.

Unique classes are drawn one after the other, and what was drawn before is put back. How many tries that took goes into the
expected counts, which the sampled softmax needs.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.errors import For, SporaxTypeError, SporaxValueError, named
from sporax.ir.operator_dims import Call, Dims, Shapes, StrategyEntry, numbered
from sporax.mindspore.common import DType, Tensor, dtypes, seed as seeds, wrap
from sporax.mindspore.common._random_streams import Generator
from sporax.mindspore.ops._core import FUNCTIONS, PRIMITIVES, Array, Operand, Primitive, check, export, operator
from sporax.mindspore.ops._core.parameters import known_ints, taking
from sporax.mindspore.ops.random.distributions import draw, drawn, stream


def _key_dims(call: Call, shapes: Shapes) -> Dims:
    """An input, and a random key, which has no entry."""
    names, key = numbered(len(shapes[0])), numbered(len(shapes[1]), range(len(shapes[1])), "k")
    return Dims((names, key), (StrategyEntry(names, shapes[0]),), leader=0)


@operator("Dropout", function="", dims=_key_dims)
def _dropout(x: check.Float, key: Array, keep_prob: float = 0.5) -> tuple[Array, Array]:
    """Elements kept with probability `keep_prob` and divided by it, zero elsewhere; and the mask (Srivastava et al. 2014)."""
    mask = jax.random.bernoulli(key, keep_prob, x.shape)
    # Divided by the share that is kept, so that the mean stays.
    result = jnp.where(mask, x / jnp.asarray(keep_prob, x.dtype), jnp.zeros((), x.dtype))
    # The mask in the input's dtype, as MindSpore gives it.
    return result, mask.astype(x.dtype)


def _checked_probability(name: str, what: str, value: Any, zero: bool) -> float:
    For(name).typed(what, value, "a number", int | float, takes_bool=False)
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
    return _dropout(input, wrap(stream(seed).next_key()), 1.0 - p)[0]


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


def one_shape(sizes: tuple[Any, ...]) -> Any:
    """The shape in ``f(2, 3)`` and in ``f((2, 3))``."""
    return tuple(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], tuple | list) else sizes


def standard_normal(shape: Any, seed: int | None = None) -> Tensor:
    """Standard normal float32 numbers."""
    return drawn(_draw_normal, stream(seed), check.shape("standard_normal", one_shape((shape,))))


def normal(shape: Any, mean: Any, stddev: Any, seed: int | None = None) -> Tensor:
    """Normal numbers around `mean` with deviation `stddev`."""
    return standard_normal(shape, seed) * stddev + mean


@operator(function="")
def _draw_integers_between(key: Array, low: Operand, high: Operand, shape: tuple[int, ...]) -> Array:
    """Uniform integers (int32) in [low, high), which may be traced."""
    for name, bound in (("minval", low), ("maxval", high)):
        if not jnp.issubdtype(jnp.asarray(bound).dtype, jnp.integer):
            raise For("uniform").type_error(
                f"{named(name)} must be an integer where 'dtype' is Int32", check.describe(bound)
            )
        For("uniform").refuse(jnp.ndim(bound), f"'{name}' must be a scalar tensor, but its shape is {jnp.shape(bound)}")
    return jax.random.randint(key, shape, low, high, jnp.int32)


def uniform(shape: Any, minval: Any, maxval: Any, seed: int | None = None, dtype: DType = dtypes.float32) -> Tensor:
    """Uniform numbers in [minval, maxval); whole ones where `dtype` is int32, whose bounds are integers of no dimension.

    Raises:
        SporaxTypeError: bounds that are no integers, for int32.
        SporaxValueError: bounds with dimensions, for int32.
    """
    if dtype == dtypes.int32:
        return drawn(_draw_integers_between, stream(seed), minval, maxval, check.shape("uniform", one_shape((shape,))))
    unit = drawn(_draw_uniform, stream(seed), check.shape("uniform", one_shape((shape,))), dtype)
    # Scaled afterwards, so that bounds may be Tensors.
    return unit * (maxval - minval) + minval


def randn(*size: Any, dtype: DType | None = None, seed: int | None = None) -> Tensor:
    """Standard normal numbers."""
    return drawn(_draw_normal, stream(seed), check.shape("randn", one_shape(size)), dtype)


def rand(*size: Any, dtype: DType | None = None, seed: int | None = None) -> Tensor:
    """Uniform numbers in [0, 1)."""
    return drawn(_draw_uniform, stream(seed), check.shape("rand", one_shape(size)), dtype)


def randint(low: int, high: int, size: Any, seed: int | None = None, *, dtype: DType | None = None) -> Tensor:
    """Uniform integers in [low, high)."""
    return drawn(_draw_integers, stream(seed), check.shape("randint", one_shape((size,))), low, high, dtype)


export(dropout, standard_normal, normal, uniform, randn, rand, randint)

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
def _masked(input_x: check.Float, mask: Array, keep_prob: Operand) -> Array:
    """`input_x` divided by `keep_prob` where the mask of `DropoutGenMask` has a 1, zero elsewhere.

    Raises:
        SporaxTypeError: `input_x` is not floating, or the mask is not uint8.
        SporaxValueError: the mask has too few bits.
    """
    For("DropoutDoMask").refuse_type(mask.dtype != jnp.uint8, "'mask' must be uint8", check.describe(mask))
    if mask.size * 8 < input_x.size:
        raise For("DropoutDoMask").error(
            f"'mask' must have a bit for each of the {input_x.size} elements of 'input_x', but it has {mask.size * 8}"
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
        For("Randperm").refuse(max_length < 1, "'max_length' must be int and must > 0", f"'{max_length}'")

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


def _checked(
    name: str, true_classes: Array, num_true: int, num_sampled: int, unique: bool, range_max: int, remove: bool
) -> None:
    check.integral(name, true_classes=true_classes)
    if min(num_true, num_sampled, range_max) < 1:
        raise For(name).error(
            f"'num_true', 'num_sampled' and 'range_max' must be >= 1, but got {num_true}, {num_sampled} and {range_max}"
        )
    if true_classes.ndim != 2 or true_classes.shape[1] != num_true:
        raise For(name).error(f"'true_classes' must have shape (n, {num_true})", true_classes.shape)
    left = range_max - (true_classes.size if remove else 0)
    if left < (num_sampled if unique else 1):
        raise For(name).error(
            f"{num_sampled} classes cannot be sampled from {range_max} ({left} when every true class is left out); "
            f"make 'num_sampled' smaller{(' or let true classes be sampled too' if remove else '')}"
        )


def _one_by_one(key: Array, probability: Array, refused: Array, count: int, unique: bool) -> tuple[Array, Array]:
    """`count` classes that are not `refused` (nor drawn before, when `unique`), and the number of tries."""

    def lacking(state: tuple[Any, ...]) -> Array:
        number = state[0]
        return number < count

    def attempt(state: tuple[Any, ...]) -> tuple[Any, ...]:
        number, tries, refused, drawn_so_far = state
        # A new key for each try, from one draw of the stream.
        drawn_class = jax.random.categorical(jax.random.fold_in(key, tries), jnp.log(probability))
        taken = ~refused[drawn_class]
        drawn_so_far = drawn_so_far.at[jnp.where(taken, number, count)].set(drawn_class, mode="drop")
        # Only unique draws refuse a class for later ones.
        refused = refused.at[drawn_class].set(refused[drawn_class] | (taken & unique))
        return number + taken, tries + 1, refused, drawn_so_far

    start = (jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32), refused, jnp.zeros(count, jnp.int64))
    _, tries, _, classes = jax.lax.while_loop(lacking, attempt, start)
    return classes, tries


def _sampler_dims(call: Call, shapes: Shapes) -> Dims:
    """A strategy shards the true classes, whatever draws."""
    classes = ("n", "true")
    return Dims((numbered(len(shapes[0]), range(len(shapes[0]))), classes), (StrategyEntry(classes, shapes[1]),))


def _sampler(name: str, own: str, falling: bool, doc: str, attributes: str, **defaults: Any) -> None:
    """Register one sampler's class and function; `falling` is whether the probability of a class falls with its number."""

    def _forms(
        key: Array,
        true_classes: Array,
        num_true: int,
        num_sampled: int,
        unique: bool,
        range_max: int,
        remove_accidental_hits: bool = False,
    ) -> tuple[Array, Array, Array]:
        _checked(name, true_classes, num_true, num_sampled, unique, range_max, remove_accidental_hits)
        # Probabilities that fall like 1 / rank, by differences of logarithms (Zipf).
        ranks = np.log(np.arange(range_max + 1) + 1.0)
        share = np.diff(ranks) / ranks[-1] if falling else np.full(range_max, 1 / range_max)
        probability = jnp.asarray(share, jnp.float32)
        refused = jnp.zeros(range_max, bool)
        if remove_accidental_hits:
            refused = refused.at[true_classes.reshape(-1)].set(True)
        classes, tries = _one_by_one(key, probability, refused, num_sampled, unique)

        def expected(chosen: Array) -> Array:
            chance = probability[chosen]
            # Without refusals the expectation is linear; otherwise it is the probability to be among the tries.
            return jnp.where(tries == num_sampled, num_sampled * chance, -jnp.expm1(tries * jnp.log1p(-chance)))

        return classes.astype(true_classes.dtype), expected(true_classes), expected(classes)

    _forms.__doc__ = doc
    kernel = draw(name, attributes, _sampler_dims, **defaults)(_forms)

    def function(*, seed: int = 0, **settings: Any) -> Any:
        return drawn(kernel, stream(seed or None), **settings)

    function.__name__, function.__doc__ = own, doc
    # Of both functions the uniform one alone can leave true classes out, and says so last.
    last = "remove_accidental_hits"
    form = taking(_forms, f"key {last}", **defaults) if falling else taking(_forms, "key", last)
    operator(function=own, composed=True)(form(function))


_RESULT = """

    Args:
        true_classes: (n, num_true), integers in [0, range_max).
        num_true, num_sampled: numbers of true classes a sample and of classes to draw.
        unique: draw no class twice.
        range_max: number of classes.
        seed: draw from a stream of its own; 0: from that of all operators.
        remove_accidental_hits: do not draw true classes.

    Returns:
        The sampled classes (num_sampled,), and how often the true (n, num_true) and the sampled classes (num_sampled,) are
        expected among so many draws, float32.
    """
_UNIFORM = "Classes drawn uniformly from [0, range_max)." + _RESULT
_FALLING = (
    "Classes drawn from [0, range_max); class k has probability log((k + 2) / (k + 1)) / log(range_max + 1)." + _RESULT
)
_SETTINGS = "num_true num_sampled unique range_max seed"
_sampler("UniformCandidateSampler", "uniform_candidate_sampler", False, _UNIFORM, _SETTINGS + " remove_accidental_hits")
_sampler(
    "LogUniformCandidateSampler", "log_uniform_candidate_sampler", True, _FALLING, _SETTINGS,
    num_true=1, num_sampled=5, unique=True, range_max=5,
)  # fmt: skip
