"""Arrays and programs over the devices of several ranks.

An array of this process is *local*: it lives on this rank's device alone. A program in which ranks exchange data runs on
*joint* arrays: one `jax.Array` over the devices of all its ranks, of which every process holds (and can see) its own
copies only, one for each rank that it acts for. Copies may differ from rank to rank; nothing but a collective makes them equal.
That is why a joint array claims to be replicated: shape and dtype are those of the local array, 0-d included, and nothing has to
be reshaped.

JAX starts programs without waiting for the end of those before, and on CPUs two that do not depend on each other may run at
the same time. Two joint ones must not: their messages would mix. So each takes a number from the one before (`zero`).

Turning one form into the other moves no data but costs some microseconds, too much for every parameter at every step. So
a *variable* (`runtime.state.frames`) is in one form at a time: slot ``raw`` or slot ``joint`` is set, never both, and reading
for the other one changes the form (`change_form`). A training loop
whose step is a joint program thus converts nothing but its batch and its loss.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec, Sharding

from sporax.base.errors import SporaxRuntimeError
from sporax.lowering import marks as trace_marks
from sporax.lowering.compiler_options import merged_options
from sporax.runtime import world as distributed
from sporax.runtime.process import dry_run
from sporax.runtime.ranks.collective_order import AXIS, in_order, order_token, reusing
from sporax.runtime.session import SESSION
from sporax.runtime.state import frames
from sporax.runtime.state.frames import Variable

# XLA would merge collectives that are ready at the same time into one with many small buffers, which is slow over gloo
# and hides what a fusion setting requested.
UNMERGED = {"xla_disable_hlo_passes": "cpu-all-reduce-combiner"}

Devices = tuple[jax.Device, ...]


# Joint programs are made of these devices in rank order.
def all_devices() -> Devices:
    """The device of each rank.

    Raises:
        SporaxRuntimeError: before `init`.
    """
    world = distributed.world()
    if world is None:
        raise SporaxRuntimeError("For 'communication', the ranks must have been joined: call init() first.")
    here = distributed.num_ranks_here()
    if here == 1:
        return world.devices
    of_processes = [
        [device for device in jax.devices() if device.process_index == process] for process in range(world.size)
    ]
    fewest = min(map(len, of_processes))
    if here > fewest:
        raise SporaxRuntimeError(
            f"For 'set_auto_parallel_context', 'device_num' is {here * world.size}, but a process has {fewest} devices."
        )
    return tuple(device for own in of_processes for device in own[:here])


def own_devices(devices: Devices | None = None) -> Devices:
    """Those of `devices`, of all ranks if None, that are of ranks that this process acts for."""
    devices = all_devices() if devices is None else devices
    return tuple(device for device in devices if device.process_index == jax.process_index())


@cache
def mesh(devices: Devices) -> Mesh:
    """The mesh of these devices: one axis, in the given order."""
    return Mesh(np.array(devices), (AXIS,), axis_types=(AxisType.Auto,))


@cache
def _sharding(devices: Devices, on_host: bool = False) -> NamedSharding:
    return NamedSharding(mesh(devices), PartitionSpec(), memory_kind=trace_marks.KIND if on_host else None)


def to_joint(array: jax.Array, devices: Devices) -> jax.Array:
    """The joint form of a local array, over `devices`, one of which is this rank's. In a dry run it stays as it is.

    A process that acts for several ranks gives each of them the array; one that has a copy for each stays as it is.
    """
    if dry_run.active():
        return array
    if distributed.num_ranks_here() > 1:
        own = own_devices(devices)
        has_copies = (
            isinstance(array, jax.Array) and array.sharding.device_set == set(own) and array.is_fully_replicated
        )
        copies = array if has_copies else jax.device_put(array, _sharding(own))
        return copies if own == devices else of_shards(copies, _sharding(devices))
    # `device_put` would leave a JAX array as it is, but takes as long as all the rest of this.
    here = jax.device_put(array) if isinstance(array, np.ndarray) else array
    return jax.make_array_from_single_device_arrays(
        array.shape, _sharding(devices, trace_marks.is_on_host(here)), [here]
    )


def to_local(array: jax.Array) -> jax.Array:
    """This rank's copy of a joint array; a process that acts for several ranks has the copies of these."""
    if distributed.num_ranks_here() == 1:
        return array.addressable_data(0)
    if array.is_fully_addressable:
        return array
    return of_shards(array, _sharding(own_devices(tuple(mesh_of(array).devices.flat))))


def of_shards(array: jax.Array, sharding: NamedSharding) -> jax.Array:
    """The shards that this process has of an array as an array of their shape, whatever they are parts of."""
    shards = {shard.device: shard.data for shard in array.addressable_shards}
    pieces = [shards[device] for device in sharding.mesh.devices.flat if device in shards]
    return jax.make_array_from_single_device_arrays(pieces[0].shape, sharding, pieces)


def replicated(array: jax.Array) -> jax.Array:
    """An array that is sharded over several processes, whole on every device; all these processes must request it.

    Raises:
        SporaxRuntimeError: it is on devices of other processes alone.
    """
    if not array.sharding.addressable_devices:
        devices: set[Any] = array.sharding.device_set
        ranks = sorted({device.process_index for device in devices})
        raise SporaxRuntimeError(
            f"For 'asnumpy', an array of shape {array.shape} belongs to a pipeline stage of rank {ranks}, and rank "
            f"{jax.process_index()} holds no part of it: read it there, or save a checkpoint, which has all stages."
        )
    if array.is_fully_addressable or array.is_fully_replicated:
        return array
    sharding = NamedSharding(mesh_of(array), PartitionSpec())
    gathered: jax.Array = jax.jit(_same, out_shardings=sharding)(array)
    return gathered


def _same(array: jax.Array) -> jax.Array:
    return array


def mesh_of(array: jax.Array) -> Mesh:
    """The devices of a joint array."""
    assert isinstance(array.sharding, NamedSharding)
    mesh = array.sharding.mesh
    assert isinstance(mesh, Mesh)
    return mesh


def place(array: Any, sharding: Sharding) -> jax.Array:
    """Bring a whole array to the devices of `sharding`; every process has all of it."""
    # The usual case at every step after the first one.
    if getattr(array, "sharding", None) == sharding:
        placed: jax.Array = array
    elif sharding.is_fully_addressable or not getattr(array, "is_fully_addressable", True):
        (placed,) = _put([array], [sharding])
    else:
        # A process cannot put data on another one's devices, so each takes its own slices of the global array.
        values = np.asarray(array)
        placed = jax.make_array_from_callback(values.shape, sharding, lambda index: values[index])
    return placed


def place_all(arrays: Sequence[Any], shardings: Sequence[Sharding]) -> list[jax.Array]:
    """As `place`, of many arrays; where all devices are of this process in one transfer."""
    moved = [
        number
        for number, (array, sharding) in enumerate(zip(arrays, shardings, strict=True))
        if getattr(array, "sharding", None) != sharding and sharding.is_fully_addressable
    ]
    put = _put([arrays[number] for number in moved], [shardings[number] for number in moved])
    placed = dict(zip(moved, put, strict=True))
    return [
        placed[number] if number in placed else place(array, sharding)
        for number, (array, sharding) in enumerate(zip(arrays, shardings, strict=True))
    ]


def _put(arrays: Sequence[Any], shardings: Sequence[Sharding]) -> list[jax.Array]:
    """Arrays on other devices. What the host can read is sharded there: JAX would compile a program for each shape."""
    put: dict[int, jax.Array] = {}
    for on_host in (True, False):
        numbers = [number for number, array in enumerate(arrays) if _is_readable(array) is on_host]
        values = [np.asarray(arrays[number]) if on_host else arrays[number] for number in numbers]
        # Copied: a step gives its variables' buffers away, and the host's memory may be in use elsewhere.
        sent = jax.device_put(values, [shardings[number] for number in numbers], may_alias=False if on_host else None)
        put.update(zip(numbers, sent, strict=True))
    return [put[number] for number in range(len(arrays))]


def _is_readable(array: Any) -> bool:
    """Whether the host reads the array where it is: one of numpy, or of JAX on a CPU."""
    if isinstance(array, np.ndarray):
        return True
    if isinstance(array, jax.core.Tracer) or not isinstance(array, jax.Array) or not array.is_fully_addressable:
        return False
    devices: set[Any] = array.sharding.device_set
    on_cpu = len(devices) == 1 and all(device.platform == "cpu" for device in devices)
    return on_cpu and not jnp.issubdtype(array.dtype, jax.dtypes.extended)


def zero(devices: Devices) -> jax.Array:
    """The last input of every joint program; see `collective_order`. Ready when the joint program before has ended."""
    turn = SESSION.turn
    if turn.zero is not None and turn.devices != devices:
        still_there = set(turn.devices) <= set(jax.devices())  # not after `release` and a new `init`
        # This rank's copy is ready when the program before has ended here, which is all that the order needs.
        turn.zero = to_joint(turn.zero.addressable_data(0), devices) if still_there else None
    if turn.zero is None:
        turn.zero = to_joint(jnp.zeros((), jnp.int32), devices)
    turn.devices = devices
    return turn.zero


def by_rank(function: Callable[..., Any], devices: Devices, *, is_step: bool = False) -> Callable[..., Any]:
    """`function`, written for one rank's local arrays, as one of joint arrays.

    It takes `zero` as its last argument, and gives the function's results and the next program's `zero`. Equal collectives of a
    step may become calls.
    """

    def program(*arguments: Any) -> Any:
        *arrays, nothing = arguments
        with in_order(nothing):
            results = function(*arrays)
            last = order_token()
        # Always 0, but the compiler cannot know it, so the last collective cannot be removed.
        return results, lax.optimization_barrier(nothing) if last is None else jnp.where(nothing == 0, nothing, last)

    program.__name__ = program.__qualname__ = function.__name__
    mapped = reusing(program, function.__name__) if is_step else program
    everywhere = PartitionSpec()
    return jax.shard_map(mapped, mesh=mesh(devices), in_specs=everywhere, out_specs=everywhere, check_vma=False)


def compile_jointly(
    function: Callable[..., Any],
    devices: Devices,
    donate: Sequence[int] = (),
    options: Mapping[str, Any] = MappingProxyType({}),
    is_step: bool = False,
) -> Any:
    """Compile `function`, written for one rank's local arrays, into a program of joint arrays and `zero`.

    Ranks may compile different functions, as long as they exchange data in the same order.

    Args:
        function: of local arrays.
        devices: of all ranks that take part.
        donate: the arguments whose buffers results may take.
        is_step: whether it is a step of the user's, and no single exchange.
    """
    options = merged_options(UNMERGED if devices[0].platform == "cpu" else {}, options)
    program = jax.jit(
        by_rank(function, devices, is_step=is_step), donate_argnums=tuple(donate), compiler_options=options
    )
    return (
        dry_run.DryRunProgram(program, jax.jit(_alone(function), donate_argnums=tuple(donate)))
        if dry_run.active()
        else program
    )


def _alone(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` as this rank would compute it if the others held what it holds; takes and gives `zero` as `by_rank`."""

    def program(*arguments: Any) -> Any:
        *arrays, nothing = arguments
        with in_order(nothing), dry_run.alone():
            return function(*arrays), nothing

    program.__name__ = program.__qualname__ = function.__name__
    return program


def run(program: Callable[..., Any], name: str, devices: Devices, *arrays: Any, members: Devices = ()) -> Any:
    """Run a program of joint arrays.

    Args:
        name: is in the report if other ranks never come.
        members: devices of the ranks that exchange data in it, where those are not all.

    Raises:
        SporaxRuntimeError: another rank is lost.
    """
    watchdog = SESSION.watchdog
    if watchdog is not None:
        watchdog.note_start(name, members or devices)
    try:
        results, SESSION.turn.zero = program(*arrays, zero(devices))
    except (RuntimeError, ValueError) as error:
        # XLA's message says that a connection broke; the watchdog knows which rank was lost.
        raise (error if watchdog is None else watchdog.explain(name, error)) from None
    if watchdog is not None:
        watchdog.note_end(SESSION.turn.zero)
    return results


def change_form(variable: Variable, name: str) -> jax.Array:
    """Body of a variable's ``__getattr__``: bring it into the form called `name`.

    Args:
        name: ``"raw"`` or ``"joint"``.

    Raises:
        AttributeError: any other name, or the variable has neither form yet.
    """
    here = object.__getattribute__  # past `__getattr__`, which has led here
    if name == "joint":
        # Deleting the other form at once keeps a single one that is up to date.
        variable.joint = to_joint(variable.raw, all_devices())
        del variable.raw
    elif name == "raw" and (place := frames.slot(variable, "filed")) is not None:
        values: jax.Array = place.full()  # it stays in its file
        return values
    elif name == "raw" and (parts := frames.slot(variable, "parts")) is not None:
        frames.put(variable, parts.full())
    elif name == "raw" and (row := frames.slot(variable, "row")) is not None:
        frames.put(variable, row.full())
    elif name == "raw":
        variable.raw = to_local(here(variable, "joint"))
        del variable.joint
    array: jax.Array = here(variable, name)
    return array
