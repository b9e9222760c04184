"""Classes sampled for a loss over very many of them: uniformly, or by ranks with probabilities that fall like 1/rank.

Unique classes are drawn one after the other, and what was drawn before is put back. How many tries that took goes into the
expected counts, which the sampled softmax needs.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.errors import SporaxValueError
from sporax.ir.operator_dims import Call, Dims, Shapes, StrategyEntry, numbered
from sporax.mindspore.ops._core import check
from sporax.mindspore.ops._core.operator import Array, operator
from sporax.mindspore.ops.random.distributions import class_form, drawn, stream


def _checked(
    name: str, true_classes: Array, num_true: int, num_sampled: int, unique: bool, range_max: int, remove: bool
) -> None:
    check.integral(name, true_classes=true_classes)
    if min(num_true, num_sampled, range_max) < 1:
        raise SporaxValueError(
            f"For '{name}', 'num_true', 'num_sampled' and 'range_max' must be >= 1, but got {num_true}, {num_sampled} and "
            f"{range_max}."
        )
    if true_classes.ndim != 2 or true_classes.shape[1] != num_true:
        raise SporaxValueError.must(name, "true_classes", f"have shape (n, {num_true})", true_classes.shape)
    left = range_max - (true_classes.size if remove else 0)
    if left < (num_sampled if unique else 1):
        raise SporaxValueError(
            f"For '{name}', {num_sampled} classes cannot be sampled from {range_max} "
            f"({left} when every true class is left out); make 'num_sampled' smaller"
            f"{' or let true classes be sampled too' if remove else ''}."
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


def _sampler(name: str, falling: bool, doc: str) -> None:
    """Register one sampler's forms; `falling` is whether the probability of a class falls with its number."""

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
    _KERNELS[name] = operator(function="", dims=_sampler_dims)(_forms)


_KERNELS: dict[str, Any] = {}
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
_sampler("UniformCandidateSampler", False, _UNIFORM)
_sampler("LogUniformCandidateSampler", True, _FALLING)
class_form(
    "UniformCandidateSampler", _KERNELS["UniformCandidateSampler"],
    "num_true num_sampled unique range_max seed remove_accidental_hits", {"seed": 0, "remove_accidental_hits": False},
    shape_first=False,
)  # fmt: skip
class_form(
    "LogUniformCandidateSampler", _KERNELS["LogUniformCandidateSampler"],
    "num_true num_sampled unique range_max seed",
    {"num_true": 1, "num_sampled": 5, "unique": True, "range_max": 5, "seed": 0}, shape_first=False,
)  # fmt: skip


@operator(function="uniform_candidate_sampler", composed=True)
def uniform_candidate_sampler(
    true_classes: Any,
    num_true: int,
    num_sampled: int,
    unique: bool,
    range_max: int,
    seed: int = 0,
    remove_accidental_hits: bool = False,
) -> Any:
    """Classes drawn uniformly."""
    settings = (num_true, num_sampled, unique, range_max, remove_accidental_hits)
    return drawn(_KERNELS["UniformCandidateSampler"], stream(seed or None), true_classes, *settings)


@operator(function="log_uniform_candidate_sampler", composed=True)
def log_uniform_candidate_sampler(
    true_classes: Any, num_true: int = 1, num_sampled: int = 5, unique: bool = True, range_max: int = 5, seed: int = 0
) -> Any:
    """Classes drawn with falling probabilities."""
    settings = (num_true, num_sampled, unique, range_max)
    return drawn(_KERNELS["LogUniformCandidateSampler"], stream(seed or None), true_classes, *settings)


uniform_candidate_sampler.__doc__, log_uniform_candidate_sampler.__doc__ = _UNIFORM, _FALLING
