"""A loop of unknown length that can be differentiated backwards.

Problem: XLA has no arrays of unknown size, so the states of a `while` loop cannot all be kept for its gradient, and JAX
refuses. Method: checkpoints at growing distances (after Griewank & Walther, "Revolve", 2000, in its simplest form): the
forward pass keeps every `stride`-th state in a buffer of fixed size; when the buffer is full it keeps every other one and
doubles the stride. The backward pass computes a state again from the last checkpoint before it. Up to `CHECKPOINTS` rounds
each round is computed again just once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

CHECKPOINTS = 64
"""States that a backward pass may keep: memory against computing rounds again."""

Arrays = list[jax.Array]


def while_loop(test: ClosedJaxpr, body: ClosedJaxpr, start: Sequence[jax.Array]) -> Arrays:
    """The last state of ``while test(*state): state = body(*state)``.

    Args:
        test: gives one bool.
        body: gives the next state; same shapes and dtypes.
        start: first state.
    """
    return list(_differentiable(test, body)(list(start), list(test.consts), list(body.consts)))


def _bind(program: ClosedJaxpr, consts: Arrays) -> Any:
    # Constants are arguments here, so that gradients can flow to what the loop closes over.
    return jaxpr_as_fun(ClosedJaxpr(program.jaxpr, consts))


def _with_checkpoints(goes_on: Any, step: Any, start: Arrays) -> tuple[Arrays, tuple[jax.Array, jax.Array, Arrays]]:
    """The last state; and the number of rounds, the stride of the checkpoints, and the checkpoints of each value.

    Which checkpoint is in which row follows from the stride: row k holds the state before round k * stride.
    """
    stored = [jnp.zeros((CHECKPOINTS, *value.shape), value.dtype) for value in start]

    def advance(carry: Any) -> Any:
        state, number, stride, stored = carry
        stored = jax.lax.cond(
            number % stride == 0,
            lambda stored: [
                jax.lax.dynamic_update_index_in_dim(k, s, number // stride, 0)
                for k, s in zip(stored, state, strict=True)
            ],
            lambda stored: stored,
            stored,
        )
        number += 1
        stored, stride = jax.lax.cond(
            number >= CHECKPOINTS * stride,
            # Every other checkpoint stays. The second half is filled with copies, which the next rounds overwrite.
            lambda stored, stride: ([jnp.concatenate([k[::2], k[::2]]) for k in stored], stride * 2),
            lambda stored, stride: (stored, stride),
            stored,
            stride,
        )
        return list(step(*state)), number, stride, stored

    zero, one = jnp.zeros((), jnp.int32), jnp.ones((), jnp.int32)
    first = (list(start), zero, one, stored)
    state, number, stride, stored = jax.lax.while_loop(lambda carry: goes_on(*carry[0])[0], advance, first)
    return state, (number, stride, stored)


def _differentiable(test: ClosedJaxpr, body: ClosedJaxpr) -> Any:
    def forward(start: Arrays, test_consts: Arrays, body_consts: Arrays) -> Arrays:
        goes_on, step = _bind(test, test_consts), _bind(body, body_consts)
        result: Arrays = jax.lax.while_loop(
            lambda state: goes_on(*state)[0], lambda state: list(step(*state)), list(start)
        )
        return result

    def keeping(start: Arrays, test_consts: Arrays, body_consts: Arrays) -> tuple[Arrays, Any]:
        state, checkpoints = _with_checkpoints(_bind(test, test_consts), _bind(body, body_consts), start)
        return state, (*checkpoints, test_consts, body_consts)

    def backward(saved: Any, cotangents: Arrays) -> Any:
        number, stride, stored, test_consts, body_consts = saved
        # Integers in the state (counters, indices) have no cotangents.
        real = [jnp.issubdtype(k.dtype, jnp.inexact) for k in stored]
        real_const = [jnp.issubdtype(jnp.result_type(c), jnp.inexact) for c in body_consts]

        def state_at(index: jax.Array) -> Arrays:
            """The state before round `index`, from the last checkpoint."""
            slot = index // stride
            state = [jax.lax.dynamic_index_in_dim(k, slot, 0, keepdims=False) for k in stored]
            step = _bind(body, body_consts)
            result: Arrays = jax.lax.fori_loop(slot * stride, index, lambda _, state: list(step(*state)), state)
            return result

        def back(carry: Any) -> Any:
            index, by_state, by_const = carry
            # Rounds are differentiated last to first.
            index -= 1
            state = state_at(index)

            def moving(floats: Arrays, consts: Arrays) -> Arrays:
                """Floating results of one round, as a function of the floating parts of its arguments."""
                results = _bind(body, _mixed(real_const, consts, body_consts))(*_mixed(real, floats, state))
                return [result for result, is_real in zip(results, real, strict=True) if is_real]

            _, pull = jax.vjp(moving, _chosen(real, state), _chosen(real_const, body_consts))
            by_state, more = pull(by_state)
            return index, by_state, [a + b for a, b in zip(by_const, more, strict=True)]

        # The body reads its constants in every round, so their cotangents add up.
        zeros = [jnp.zeros_like(const) for const in _chosen(real_const, body_consts)]
        first = (number, _chosen(real, cotangents), zeros)
        _, by_state, by_const = jax.lax.while_loop(lambda carry: carry[0] > 0, back, first)
        return (
            _mixed(real, by_state, [None] * len(real)),
            [None] * len(test_consts),
            _mixed(real_const, by_const, [None] * len(real_const)),
        )

    run = jax.custom_vjp(forward)
    run.defvjp(keeping, backward)
    return run


def _chosen(which: list[bool], values: Sequence[Any]) -> list[Any]:
    return [value for value, is_chosen in zip(values, which, strict=True) if is_chosen]


def _mixed(which: list[bool], chosen: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    """`others` with `chosen` in the places that `which` marks."""
    remaining = iter(chosen)
    return [next(remaining) if is_ours else other for is_ours, other in zip(which, others, strict=True)]
