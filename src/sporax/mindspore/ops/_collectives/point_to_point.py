"""Data between two ranks at a time: sends and receives, in an order that cannot block.

An `Exchange` is everything one rank sends and receives at once. Its messages are carried out one after another in an
order that all ranks agree on without talking: by (source, destination), and several between the same two in the order
given. Each message is a program (or part of one) in which only its two ranks take part.

The derivative of an exchange is the exchange of the cotangents in the opposite direction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp

from sporax.base.errors import SporaxRuntimeError
from sporax.runtime.ranks import Tree, check_mode, collectives, exchanges, groups, joint_arrays, local_ranks, ordered
from sporax.runtime.state import frames


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

    def carry_out(self, *arrays: jax.Array) -> tuple[jax.Array, ...]:
        """What was received."""
        return _carry_out(self, arrays)

    def pull_back(self, arguments: Tree, results: Tree, cotangents: Tree) -> Iterable[jax.Array | None]:
        """The same in the opposite direction."""
        filled = map(_filled, self.receives, cotangents)
        return map(_as_cotangent, ordered(Exchange(self.receives, self.sends), *filled))


@dataclass(frozen=True, slots=True)
class _Send:
    """One array that is sent, and given back."""

    message: Message

    def carry_out(self, array: jax.Array) -> jax.Array:
        """The array itself."""
        _carry_out(Exchange((self.message,), ()), [array])
        return array

    def pull_back(self, arguments: Tree, results: Tree, cotangents: Tree) -> Iterable[jax.Array | None]:
        """What the receiver returns."""
        return (_as_cotangent(ordered(_Receive(self.message), cotangents)),)


@dataclass(frozen=True, slots=True)
class _Receive:
    """One array that is received after there is another one."""

    message: Message

    def carry_out(self, after: jax.Array) -> jax.Array:
        """What arrived."""
        (arrived,) = _carry_out(Exchange((), (self.message,)), [])
        return arrived

    def pull_back(self, arguments: Tree, results: Tree, cotangents: Tree) -> Iterable[jax.Array | None]:
        """The cotangent is sent back; zeros for the other array."""
        sent = ordered(_Send(self.message), _filled(self.message, cotangents))
        return (_as_cotangent(_zeros_after(arguments[0], sent)),)


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
    check_mode()
    received: tuple[jax.Array, ...] = ordered(exchange, *arrays)
    return received


def send(message: Message, array: jax.Array) -> jax.Array:
    """Send one array and give it back, so that something can depend on it. Its derivative is what the receiver returns.

    Raises:
        SporaxRuntimeError: the receiver is this rank itself.
    """
    check_mode()
    sent: jax.Array = ordered(_Send(message), array)
    return sent


def receive(message: Message, after: jax.Array) -> jax.Array:
    """Receive one array. Its derivative is sent back, provided that `after` is differentiated, which gets zeros."""
    check_mode()
    arrived: jax.Array = ordered(_Receive(message), after)
    return arrived


def _filled(message: Message, cotangent: jax.Array) -> jax.Array:
    """No cotangent arrives for integers, but their sender waits for a message, so zeros are sent."""
    return cotangent if jnp.issubdtype(message.dtype, jnp.inexact) else jnp.zeros(message.shape, message.dtype)


def _zeros_after(after: jax.Array, sent: jax.Array) -> jax.Array:
    """Zeros like `after`, whose derivative needs that of what was sent, which is a message too."""
    zeros = jnp.zeros_like(after)
    if not sent.size or not jnp.issubdtype(after.dtype, jnp.inexact):
        return zeros
    one = sent[(0,) * sent.ndim]
    # Adding zero times an element would turn an infinity into NaN; a select that is never taken does not.
    return zeros + jnp.where(False, one.real if jnp.isrealobj(after) else one, 0).astype(after.dtype)


def _as_cotangent(array: jax.Array) -> jax.Array | None:
    """Integers have no tangent space in JAX."""
    return array if jnp.issubdtype(array.dtype, jnp.inexact) else None


def _carry_out(exchange: Exchange, arrays: Sequence[jax.Array]) -> tuple[jax.Array, ...]:
    local_ranks.refuse("Send")
    received: dict[int, jax.Array] = {}
    for step in _steps(exchange):
        payload = arrays[step.send] if step.send is not None else None
        if step.source == step.destination:
            assert payload is not None
            assert step.receive is not None
            received[step.receive] = payload
            continue
        # A permute takes an input on every device; what the receiver puts in is not read.
        if payload is None:
            payload = jnp.zeros(step.message.shape, step.message.dtype)
        arrived = _transfer(step, payload)
        if step.receive is not None:
            received[step.receive] = arrived
    return tuple(received[index] for index in range(len(exchange.receives)))


def _transfer(step: _Step, payload: jax.Array) -> jax.Array:
    """Carry one message; gives what arrived (zeros at the source)."""
    if frames.compiling():
        frames.note_communication((step.source, step.destination))
        return exchanges.permute(payload, [(step.source, step.destination)])
    # Values must exist here: a tracer of JAX's own transformation has none.
    collectives.check_known("Send", [payload])
    # Only the two ranks take part, and others need not know of the message.
    devices = tuple(joint_arrays.all_devices()[rank] for rank in (step.source, step.destination))
    return joint_arrays.to_local(
        joint_arrays.run(_message_program(devices), "Send", devices, joint_arrays.to_joint(payload, devices))
    )


@cache
def _message_program(devices: joint_arrays.Devices) -> Any:
    def message(payload: jax.Array) -> jax.Array:
        return exchanges.permute(payload, [(0, 1)])

    return joint_arrays.compile_jointly(message, devices)


def _steps(exchange: Exchange) -> list[_Step]:
    """The messages in the order all ranks agree on."""
    me = groups.this_rank()
    # Messages to oneself are matched in their order and copied: no permute has one device as both ends.
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
