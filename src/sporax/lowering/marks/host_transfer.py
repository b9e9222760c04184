"""Work and values in host memory, as equations of a step.

`run_on_host` runs a function on the host, and its derivative, too. Variables and activations that are in host memory are
fetched and returned by explicit transfers; `without_round_trips` takes those out of a program that bring an array to where
it comes from, and those whose results no one reads.

On backends without a host memory of their own (nothing but one kind of memory) programs run as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TypeAlias, TypeVar, cast

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Var
from jax.sharding import Sharding

from sporax.lowering.jax_versions import computed_on
from sporax.lowering.rewriter import Atom, JaxprRewriter, needed, num_bytes

HOST, DEVICE = jax.memory.Space.Host, jax.memory.Space.Device
Space: TypeAlias = Hashable
"""`HOST` or `DEVICE`."""
_HOST_WORK = "device_host"
ResultT = TypeVar("ResultT")
ShardingT = TypeVar("ShardingT", bound=Sharding)
KIND = "pinned_host"
"""Name of the memory that holds variables of the host between steps."""


def to_host(arrays: Sequence[jax.Array]) -> list[jax.Array]:
    """The arrays in host memory."""
    return [jax.device_put(array, HOST) for array in arrays]


def to_device(arrays: Sequence[jax.Array]) -> list[jax.Array]:
    """The arrays in device memory."""
    return [jax.device_put(array, DEVICE) for array in arrays]


def run_on_host(function: Callable[..., Sequence[ResultT]], *arrays: jax.Array) -> list[ResultT]:
    """``function(*arrays)``, computed by the host.

    The arrays keep their type, that of device memory: XLA brings them to the host where it computes. JAX could type them as
    host memory, but then every constant inside `function` and inside derivatives would have to be typed so as well.
    """
    with place_of_work(on_host=True):
        return list(function(*arrays))


def place_of_work(on_host: bool) -> AbstractContextManager[object]:
    """Context in which operations are computed by the host, or where the program runs."""
    return computed_on(_HOST_WORK) if on_host else nullcontext()


def runs_on_host(eqn: JaxprEqn) -> bool:
    """Whether an equation is computed by the host."""
    return bool(eqn.ctx.compute_type == _HOST_WORK)


def stored_on_host(array: jax.Array) -> jax.Array:
    """The array in host memory, where its devices have one."""
    sharding = on_host_of(array.sharding)
    return array if sharding == array.sharding else jax.device_put(array, sharding)


def on_host_of(sharding: ShardingT) -> ShardingT:
    """The same sharding in the host memory of its devices, where they have one."""
    # Devices of other processes do not say what memory they have; it is what those here have.
    return cast("ShardingT", sharding.with_memory_kind(KIND)) if has_host_memory() else sharding


def has_host_memory() -> bool:
    """Whether devices of this process have a host memory of their own."""
    return any(memory.kind == KIND for device in jax.local_devices() for memory in device.addressable_memories())


def is_on_host(array: object) -> bool:
    """Whether an array is in host memory."""
    return getattr(getattr(array, "sharding", None), "memory_kind", None) == KIND


def without_round_trips(program: ClosedJaxpr) -> ClosedJaxpr:
    """The same program; what comes from one memory is not brought to the other one to be brought back."""
    return _WithoutRoundTrips(program).run()


class _WithoutRoundTrips(JaxprRewriter):
    def __init__(self, program: ClosedJaxpr) -> None:
        super().__init__(program)
        self.origin: dict[Var, Atom] = {}

    def visit(self, eqn: JaxprEqn) -> None:
        if not moves(eqn):
            self.keep(eqn)
            return
        before, target = self.read(eqn.invars[0]), eqn.params["devices"][0]
        # Back to where it came from, where the first array still is; or to the memory in which the value is already.
        for there in (self.origin.get(before), before) if isinstance(before, Var) else ():
            if there is not None and space_of(there) == target:
                self.rename(eqn.outvars, [there])
                return
        self.origin[eqn.outvars[0]] = before
        self.keep(eqn)

    def run(self) -> ClosedJaxpr:
        self.walk()
        results = list(map(self.read, self.program.jaxpr.outvars))
        # A transfer whose result only other transfers read that are gone is no longer needed.
        self.eqns = needed(self.eqns, results, moves)
        return self.finish(results)


def transfers(program: ClosedJaxpr | Jaxpr) -> list[tuple[str, int]]:
    """What a program sends between both memories: direction and bytes of each transfer, in order.

    In a program of all devices these are the bytes of each device. Transfers inside of loops are counted once.
    """
    entries: list[tuple[str, int]] = []
    for eqn in getattr(program, "jaxpr", program).eqns:
        if moves(eqn):
            direction = "to host" if eqn.params["devices"][0] == HOST else "to device"
            entries.append((direction, num_bytes(eqn.outvars[0])))
        # Loops and calls have programs of their own.
        for body in eqn.params.values():
            if isinstance(body, ClosedJaxpr | Jaxpr):
                entries += transfers(body)
    return entries


def moves(eqn: JaxprEqn) -> bool:
    """Whether an equation brings one array to a memory."""
    targets = eqn.params.get("devices", ())
    return eqn.primitive.name == "device_put" and len(targets) == 1 and isinstance(targets[0], jax.memory.Space)


def transferred(writer: JaxprRewriter, atom: Atom, space: Space) -> Atom:
    """Write a transfer of a value to a memory; gives the value there."""
    # JAX builds the equation, so that its parameters fit the version of JAX.
    return writer.emit(lambda array: jax.device_put(array, space), atom)[0]


def space_of(var: Atom) -> Space:
    """The memory in which a value is."""
    return getattr(var.aval, "memory_space", DEVICE)
