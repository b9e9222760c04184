"""Data between two ranks at a time: sends and receives, in an order that cannot block.

An `Exchange` is everything one rank sends and receives at once. Its messages are carried out one after another in an
order that all ranks agree on without talking: by (source, destination), and several between the same two in the order
given. Each message is a program (or part of one) in which only its two ranks take part.

The derivative of an exchange is the exchange of the cotangents in the opposite direction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp

from sporax.ir.errors import SporaxRuntimeError
from sporax.runtime import collectives, groups, joint, state


@dataclass(frozen=True, slots=True)
class Message:
    """An array on its way.

    Attributes:
        peer: world rank of the other side.
        shape, dtype: of the array.
    """

    peer: int
    shape: tuple[int, ...]
    dtype: Any


@dataclass(frozen=True, slots=True)
class Exchange:
    """What one rank sends and receives at once."""

    sends: tuple[Message, ...]
    receives: tuple[Message, ...]

    @property
    def reversed(self) -> Exchange:
        """The same in the opposite direction."""
        return Exchange(self.receives, self.sends)


@dataclass(frozen=True, slots=True)
class _Step:
    """One message as both of its ranks see it, with its place among the sends and receives of this one."""

    source: int
    destination: int
    message: Message
    send: int | None = None
    receive: int | None = None


def run(exchange: Exchange, arrays: Sequence[jax.Array]) -> tuple[jax.Array, ...]:
    """Send `arrays`, one for each of the exchange's sends; returns what was received. Differentiable.

    Raises:
        SporaxRuntimeError: a message to this rank itself has no counterpart in this exchange.
    """
    return _differentiable(exchange, *arrays)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _differentiable(exchange: Exchange, *arrays: jax.Array) -> tuple[jax.Array, ...]:
    return _carry_out(exchange, arrays)


def _forward(exchange: Exchange, *arrays: jax.Array) -> tuple[tuple[jax.Array, ...], None]:
    return _carry_out(exchange, arrays), None


def _backward(exchange: Exchange, _: None, cotangents: tuple[Any, ...]) -> tuple[Any, ...]:
    inexact = [jnp.issubdtype(message.dtype, jnp.inexact) for message in exchange.receives]
    given = [
        cotangent if real else jnp.zeros(message.shape, message.dtype)
        for cotangent, real, message in zip(cotangents, inexact, exchange.receives, strict=True)
    ]
    found = _carry_out(exchange.reversed, given)
    return tuple(array if jnp.issubdtype(array.dtype, jnp.inexact) else None for array in found)


_differentiable.defvjp(_forward, _backward)


def send(message: Message, array: jax.Array) -> jax.Array:
    """Send one array and give it back, so that something can depend on it. Its derivative is what the receiver returns.

    Raises:
        SporaxRuntimeError: the receiver is this rank itself.
    """
    return _differentiable_send(message, array)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _differentiable_send(message: Message, array: jax.Array) -> jax.Array:
    _carry_out(Exchange((message,), ()), [array])
    return array


def _send_forward(message: Message, array: jax.Array) -> tuple[jax.Array, None]:
    return _differentiable_send(message, array), None


def _send_backward(message: Message, _: None, cotangent: Any) -> tuple[Any]:
    (returned,) = _carry_out(Exchange((), (message,)), [])
    return (returned if jnp.issubdtype(returned.dtype, jnp.inexact) else None,)


_differentiable_send.defvjp(_send_forward, _send_backward)


def _carry_out(exchange: Exchange, arrays: Sequence[jax.Array]) -> tuple[jax.Array, ...]:
    received: dict[int, jax.Array] = {}
    for step in _steps(exchange):
        payload = arrays[step.send] if step.send is not None else None
        if step.source == step.destination:
            assert payload is not None
            received[_place(step.receive)] = payload
            continue
        if payload is None:
            payload = jnp.zeros(step.message.shape, step.message.dtype)
        arrived = _transfer(step, payload)
        if step.receive is None:
            collectives.keep(arrived)
        else:
            received[step.receive] = arrived
    return tuple(received[index] for index in range(len(exchange.receives)))


def _transfer(step: _Step, payload: jax.Array) -> jax.Array:
    """Carry one message; gives what arrived (zeros at the source)."""
    if state.compiling():
        state.note_communication()
        return collectives.permute(payload, [(step.source, step.destination)])
    if isinstance(payload, jax.core.Tracer):
        raise SporaxRuntimeError(
            "For 'Send', messages must be sent step by step or in a program compiled by Sporax (GRAPH_MODE, @jit), but "
            "this one is inside a transformation that JAX compiles by itself."
        )
    devices = tuple(joint.all_devices()[rank] for rank in (step.source, step.destination))
    return joint.to_local(joint.run(_message_program(devices), "Send", joint.to_joint(payload, devices)))


@cache
def _message_program(devices: joint.Devices) -> Any:
    def message(payload: jax.Array) -> jax.Array:
        return collectives.permute(payload, [(0, 1)])

    return joint.compile_jointly(message, devices)


def _steps(exchange: Exchange) -> list[_Step]:
    """The messages in the order all ranks agree on."""
    me = groups.this_rank()
    to_self = [index for index, message in enumerate(exchange.receives) if message.peer == me]
    steps = []
    for index, message in enumerate(exchange.sends):
        own = to_self.pop(0) if message.peer == me and to_self else None
        if message.peer == me and own is None:
            raise _unmatched(me)
        steps.append(_Step(me, message.peer, message, send=index, receive=own))
    if to_self:
        raise _unmatched(me)
    for index, message in enumerate(exchange.receives):
        if message.peer != me:
            steps.append(_Step(message.peer, me, message, receive=index))
    return sorted(steps, key=lambda step: (step.source, step.destination))  # stable: equal ones stay as given


def _unmatched(rank: int) -> SporaxRuntimeError:
    return SporaxRuntimeError(
        f"For 'Send', a message from a rank to itself must be sent and received in one exchange, but rank {rank} does "
        "only one of both."
    )


def _place(receive: int | None) -> int:
    assert receive is not None
    return receive
