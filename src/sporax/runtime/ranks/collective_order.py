"""Collectives of one program happen in the order in which the program was written.

Ranks that exchange data twice must do so in the same order, or one would take the other's message for its own. XLA only
knows that a program is run by all ranks, and it

* may carry out independent collectives in any order: the same one everywhere, as long as programs are the same;
* takes a constant for the same constant everywhere, and replaces the sum of a constant over ranks by a product.

Here every rank compiles its own program, with its own rank written into it. So each operand of a collective is tied to the
result of the one before (`follow`, `record_collective`): one element of it is chosen, by a condition that is always true, between
itself and that result. The compiler cannot know the condition, because it depends on an input of the program.

JAX traces some functions by themselves: rules of differentiation, loop bodies, branches, `jax.checkpoint`. A value of one
trace must not be met in another. So the last result is kept for each trace, and whatever ranks exchange is an `Exchanged`,
which `ordered` carries out: it is differentiable, may thus run in a trace of its own, and takes an `order_token` along and gives
one back. Loop bodies and the like are ordered inside; against what is around them they are ordered by the data they take and
give.

Reuse of communication in what is compiled, as ``MS_COMM_COMPILER_OPT`` requests it (`lowering.passes.reused_collectives`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax

from sporax.ir.config.parallel_config import VARIABLE, reuse_limit
from sporax.lowering import passes
from sporax.runtime.process.dry_run import say_once
from sporax.runtime.session import SESSION, assigned

if TYPE_CHECKING:
    from sporax.lowering.passes.reused_collectives import Reuse

Tree: TypeAlias = Any
"""Arrays, or tuples and lists of them."""
AXIS = "rank"
"""Name of the mesh axis along which ranks are."""


def in_order(zero: jax.Array) -> AbstractContextManager[None]:
    """Context in which a program is traced.

    Args:
        zero: an input of the program, int32 scalar, that is 0 whenever it runs.
    """
    return assigned(SESSION.tracing, zero=zero, latest=())


def follow(array: jax.Array) -> jax.Array:
    """The array, available only after the collective before, and not a constant for the compiler. Costs one element."""
    if not array.size:
        return array
    first = (0,) * array.ndim
    zero = SESSION.tracing.zero
    assert zero is not None
    # A condition that XLA cannot decide, because it reads an input.
    always = zero == 0
    previous = _latest()
    other = _converted(zero if previous is None else previous, array.dtype)
    chosen = jnp.where(always, array[first], other)
    return array.at[first].set(chosen) if first else chosen  # no scatter into a scalar: see `lowering.jax_versions`


def record_collective(result: jax.Array | None) -> None:
    """Note that a collective gave this result, or that another trace gave this `order_token`."""
    tracing = SESSION.tracing
    if result is not None and result.size and tracing.zero is not None:
        here = _trace_state()
        # One entry per trace: only its last collective matters.
        others = (entry for entry in tracing.latest if entry[0] != here)
        tracing.latest = (*others, (here, result[(0,) * result.ndim]))


def order_token() -> jax.Array | None:
    """A number that stands for the last collective of this trace and can be handed to another; None before the first.

    A program gives its last token as a result, so that no collective is left out because no one looks at its result.
    """
    previous = _latest()
    # A token orders programs and is no part of the mathematics.
    return None if previous is None else lax.stop_gradient(_converted(previous, jnp.int32))


class Exchanged(Protocol):
    """Something that ranks do together, and the derivative of that."""

    def carry_out(self, *arguments: Tree) -> Tree:
        """What this rank gets for its arrays."""

    def pull_back(self, arguments: Tree, results: Tree, cotangents: Tree) -> Iterable[Tree]:
        """Cotangents of the arguments, given those of the results: of something that is `ordered` as well. None for integers."""


def ordered(exchanged: Exchanged, *arguments: Tree) -> Tree:
    """Carry something out after the collective before; differentiable, as often as its derivatives are."""
    # JAX traces a rule of differentiation by itself, so the order goes in and out of it as numbers.
    results, last = _ordered(exchanged, order_token(), *arguments)
    record_collective(last)
    return results


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _ordered(exchanged: Exchanged, before: jax.Array | None, *arguments: Tree) -> tuple[Tree, jax.Array | None]:
    record_collective(before)
    return exchanged.carry_out(*arguments), order_token()


def _forward(exchanged: Exchanged, before: jax.Array | None, *arguments: Tree) -> Tree:
    # Itself differentiable, for derivatives of derivatives. JAX runs this rule in the trace around the one of the call.
    own = order_token()
    results, last = _ordered(exchanged, before if own is None else own, *arguments)
    record_collective(last)
    return (results, last), (arguments, results)


def _backward(exchanged: Exchanged, saved: tuple[Tree, Tree], cotangents: tuple[Tree, Tree]) -> tuple[Tree, ...]:
    return None, *exchanged.pull_back(*saved, cotangents[0])


_ordered.defvjp(_forward, _backward)


def _latest() -> jax.Array | None:
    here = _trace_state()
    return next((element for state, element in SESSION.tracing.latest if state == here), None)


def _trace_state() -> Any:
    """Equal within one trace, different between two."""
    from jax.extend.core import get_opaque_trace_state  # takes long to load, and is needed by collectives only

    return get_opaque_trace_state(convention="nnx")


def _converted(element: jax.Array, dtype: Any) -> jax.Array:
    real = element.real if jnp.issubdtype(element.dtype, jnp.complexfloating) else element
    return real.astype(dtype)


def reusing(program: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A program of one device, inside of `shard_map`, whose equal collectives are calls, where the environment requests it."""
    limit = reuse_limit(os.environ)
    return passes.with_reuse(program, limit, partial(_report, name, limit)) if limit else program


def _report(name: str, limit: int, reuse: Reuse) -> None:
    # A program may be traced again, for its text or its memory.
    if jax.process_index() == 0:
        say_once(_words(name, limit, reuse))


def _words(name: str, limit: int, reuse: Reuse) -> str:
    if not reuse.calls:
        some = (
            f"no two of its communication operators ({reuse.operators}) are equal"
            if reuse.operators
            else "it has no communication operators"
        )
        return f"'{name}' reuses no communication ({VARIABLE}): {some}"
    return (
        f"'{name}' reuses communication ({VARIABLE}, at most {limit}): {reuse.calls} of {reuse.operators} operators are calls "
        f"now; subgraphs {reuse.subgraphs}, operators left {reuse.left}"
    )
