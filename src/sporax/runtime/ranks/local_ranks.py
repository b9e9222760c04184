"""One process that acts for several ranks: data parallelism over its own devices.

Problem: a script that trains in one process, with one batch and one set of Parameters, should compute what as many ranks as
there are devices would compute, each with its part of the batch: sums and means of gradients, statistics of batch
normalisation, explicit collectives.

Method: a step runs as a program of all ranks (`sporax.runtime.ranks.joint_arrays`), as between processes, but one process holds
the copies of all of them. The batch is divided into as many parts as there are ranks. Each rank computes gradients from its
part, and collectives combine them. What leaves the step is one value where all ranks have the same
(`sporax.lowering.passes.varying`); where they differ it is the mean of a number, or of what is made of numbers alone, and the
rows of all ranks of what has a row for each sample. Gradients that are not combined yet stay different on each rank, as arrays
of an axis of their own (`is_own`).

Which programs these are is found out by tracing: one that computes gradients of weights, or exchanges data, stops its first
trace (`need`) and is traced again with the part of one rank. All others, such as evaluations, take whole batches. So do those
that exchange data and read no weight: as outside of compiled code, what they get is the same on all ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from sporax.base.errors import SporaxRuntimeError
from sporax.base.lazy_members import dataclass
from sporax.lowering import passes
from sporax.runtime import world
from sporax.runtime.process.dry_run import say
from sporax.runtime.ranks import exchanges, groups, joint_arrays
from sporax.runtime.ranks.collective_order import AXIS
from sporax.runtime.session import SESSION, assigned
from sporax.runtime.state import frames

if TYPE_CHECKING:
    from jax.extend.core import ClosedJaxpr

_OWN = "own"
"""The axis of arrays that differ from rank to rank outside of a step."""
_START = "start one process for each device: `sporax run --worker_num"


class Traced(Protocol):
    """The first trace of a step: `sporax.runtime.program.discovery`."""

    frame: frames.DiscoveryFrame
    result: Any
    of_rank: ClosedJaxpr | None

    @property
    def written(self) -> tuple[Any, ...]:
        """The variables that are updated."""


class PartsNeeded(BaseException):
    """A program was traced with whole batches, and every rank needs a part. No `Exception`, so that traced code lets it pass.

    Attributes:
        reads_nothing: it exchanges data, and has read no variable before.
    """

    def __init__(self, reads_nothing: bool) -> None:
        super().__init__()
        self.reads_nothing = reads_nothing


class Leaves(Enum):
    """How a result leaves a step."""

    EQUAL = "equal"
    MEAN = "mean"
    ROWS = "rows"
    OWN = "own"


def is_inside() -> bool:
    """Whether what runs now is one rank's part of a step."""
    return SESSION.tracing.one_rank


def inside() -> AbstractContextManager[None]:
    """Context in which one rank's part of a step runs."""
    return assigned(SESSION.tracing, one_rank=True)


def need(exchange: bool = False) -> None:
    """Say that what is traced now must be one rank's part, where this process acts for several ranks.

    Args:
        exchange: since it exchanges data, and not since it computes gradients of weights.

    Raises:
        PartsNeeded: it is traced with whole batches.
    """
    if world.num_ranks_here() > 1 and not SESSION.tracing.one_rank and frames.compiling():
        raise PartsNeeded(exchange and not getattr(frames.current_frame(), "found", True))


def refuse(what: str) -> None:
    """Refuse what depends on the number of a rank: ranks of one process run one program.

    Raises:
        SporaxRuntimeError: this process acts for several ranks.
    """
    count = world.num_ranks_here()
    if count > 1:
        raise SporaxRuntimeError(
            f"For '{what}', each rank must be a process, but this process acts for {count} ranks, which run one program: "
            f"{_START} {count * jax.process_count()}`."
        )


def divided(name: str, arrays: Sequence[Any]) -> tuple[bool, ...]:
    """Which inputs of a step are divided into parts, one for each rank: those with a row for each sample.

    Args:
        arrays: all inputs. Scalars, and arrays of one element next to larger batches, are for all ranks.

    Raises:
        SporaxRuntimeError: the batch does not divide by the ranks, or an input has neither its rows nor one element.
    """
    count = world.num_ranks_here()
    batches = [array.shape[0] for array in arrays if array.ndim and not is_own(array)]
    if not batches:
        return (False,) * len(arrays)
    rows = max(batches[0], 1) if batches[0] != 1 else max(batches)
    if rows % count:
        raise SporaxRuntimeError(
            f"For '{name}', the batch must be divisible by the {count} ranks that this process acts for, one on each device, but "
            f"it has {rows} rows. Drop the remainder (`batch(n, drop_remainder=True)`), or set 'device_num'. Where the "
            f"script's own sampler reads one rank's share, {_START} {count * jax.process_count()}`."
        )
    for number, array in enumerate(arrays):
        if array.ndim and array.size != 1 and array.shape[0] != rows and not is_own(array):
            raise SporaxRuntimeError(
                f"For '{name}', an input must have a row for each of the {rows} samples, or one element, to be divided between "
                f"the {count} ranks that this process acts for, but input {number} has shape {tuple(array.shape)}. Keep it as "
                f"an attribute of the network, or {_START} {count * jax.process_count()}`."
            )
    _report(count, rows)
    return tuple(bool(array.ndim) and array.shape[0] == rows and not is_own(array) for array in arrays)


@cache
def _report(count: int, rows: int) -> None:
    """Say once what becomes of a batch: a script that reads a share by hand would see that it is smaller than it should be."""
    say(f"this process acts for {count} ranks, which share a batch of {rows} rows.")


def part_shape(array: Any) -> tuple[int, ...]:
    """The shape of one rank's part of an array."""
    return (array.shape[0] // world.num_ranks_here(), *array.shape[1:])


def parts(array: Any, devices: joint_arrays.Devices) -> jax.Array:
    """The rows of an array divided between the ranks, as a joint array."""
    own = joint_arrays.mesh(joint_arrays.own_devices(devices))
    by_rows = jax.device_put(array, NamedSharding(own, PartitionSpec(AXIS)))
    return joint_arrays.of_shards(by_rows, NamedSharding(joint_arrays.mesh(devices), PartitionSpec()))


def is_own(array: Any) -> bool:
    """Whether an array outside of a step differs from rank to rank."""
    sharding = getattr(array, "sharding", None)
    return isinstance(sharding, NamedSharding) and sharding.mesh.axis_names == (_OWN,)


def positions_of_own(arrays: Sequence[Any]) -> tuple[int, ...]:
    """Which of these arrays differ from rank to rank."""
    if world.num_ranks_here() == 1:
        return ()
    return tuple(place for place, array in enumerate(arrays) if is_own(array))


def own(array: jax.Array) -> jax.Array:
    """A joint array that differs from rank to rank, as it is outside of a step."""
    devices = joint_arrays.own_devices(tuple(joint_arrays.mesh_of(array).devices.flat))
    return joint_arrays.of_shards(array, NamedSharding(_own_mesh(devices), PartitionSpec()))


def rows_together(array: jax.Array) -> jax.Array:
    """The rows of all ranks of this process, of an array that differs from rank to rank; whole on every device."""
    devices = joint_arrays.own_devices()
    shards = {shard.device: shard.data for shard in array.addressable_shards}
    shape = (array.shape[0] * len(devices), *array.shape[1:])
    by_rows = NamedSharding(joint_arrays.mesh(devices), PartitionSpec(AXIS))
    joined = jax.make_array_from_single_device_arrays(shape, by_rows, [shards[device] for device in devices])
    result: jax.Array = jax.device_put(joined, NamedSharding(joint_arrays.mesh(devices), PartitionSpec()))
    return result


def differs(array: jax.Array) -> bool:
    """Whether the ranks that this process acts for have different values of an array. Waits for it."""
    if not array.is_fully_replicated:
        return False
    first, *others = (np.asarray(shard.data).tobytes() for shard in array.addressable_shards)
    return any(other != first for other in others)


@cache
def _own_mesh(devices: joint_arrays.Devices) -> Mesh:
    return Mesh(np.array(devices), (_OWN,), axis_types=(AxisType.Auto,))


class JointReads(frames.Frame):
    """Frame around one rank's part that runs operator by operator: Parameters that it reads come to the devices of all ranks."""

    def __init__(self, devices: joint_arrays.Devices) -> None:
        super().__init__()
        self._devices = devices
        self._inside = inside()

    def __enter__(self) -> frames.Frame:
        self._inside.__enter__()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._inside.__exit__(*error)

    def read(self, variable: frames.Variable) -> jax.Array:
        """Value of `variable`, on all devices."""
        if variable not in self.values:
            bring(variable, self._devices)
        return super().read(variable)


def bring(variable: frames.Variable, devices: joint_arrays.Devices) -> None:
    """Bring a variable to the devices of all ranks, once: operators would bring it at each use."""
    array = variable.raw
    everywhere = joint_arrays.to_joint(array, devices)
    if everywhere is not array:
        frames.put(variable, everywhere)


def settle(variables: Sequence[Any], arrays: list[Any]) -> None:
    """Bring variables and inputs that earlier steps have left on the devices of other ranks to where they are used now.

    One program runs on the same devices throughout, and not all of what it uses may have been there.
    """
    for variable in variables:
        array = frames.slot(variable, "raw")
        settled = _settled(array)
        if settled is not array:
            frames.put(variable, settled)
    arrays[:] = map(_settled, arrays)


def _settled(array: Any) -> Any:
    sharding = getattr(array, "sharding", None)
    if not isinstance(sharding, NamedSharding) or sharding.mesh.axis_names not in ((AXIS,), (_OWN,)):
        return array
    devices = joint_arrays.own_devices() if world.num_ranks_here() > 1 else ()
    if sharding.device_set == set(devices) or not sharding.is_fully_addressable:
        return array
    first = array.addressable_data(0)
    return joint_arrays.to_joint(first, devices) if devices else first


@dataclass(frozen=True, slots=True)
class Parts:
    """How a step takes its inputs and gives its results.

    Attributes:
        inputs: which inputs are divided.
        results: how each array among the results leaves.
    """

    inputs: tuple[bool, ...]
    results: tuple[Leaves, ...]

    def taken(self, arrays: Sequence[Any], devices: joint_arrays.Devices) -> list[jax.Array]:
        """The inputs in joint form."""
        return [
            parts(array, devices) if is_divided else joint_arrays.to_joint(array, devices)
            for array, is_divided in zip(arrays, self.inputs, strict=True)
        ]

    def own_results(self, arrays: Sequence[jax.Array]) -> list[jax.Array]:
        """The results of the program, as they are outside of it."""
        return [
            own(array) if leaves is Leaves.OWN else joint_arrays.to_local(array)
            for array, leaves in zip(arrays, self.results, strict=True)
        ]

    def program(self, program: Callable[..., Any]) -> Callable[..., Any]:
        """``(written, read, inputs) -> (written, results)`` of one rank, as part of the program of all."""
        count, first = world.num_ranks_here(), groups.this_rank()
        size = groups.find(None).size
        everyone, here = (exchanges.Axis(size, tuple(ranks), 0) for ranks in (range(size), range(first, first + count)))

        def of_rank(*arguments: Any) -> Any:
            with inside():
                written, results = program(*arguments)
            return written, [
                _leaving(everyone, here, result, how) for result, how in zip(results, self.results, strict=True)
            ]

        of_rank.__name__ = of_rank.__qualname__ = program.__name__
        return of_rank


def _leaving(everyone: exchanges.Axis, here: exchanges.Axis, result: jax.Array, how: Leaves) -> jax.Array:
    if how is Leaves.MEAN:
        # A sum of halves may overflow where their mean does not.
        wide = result.astype(jnp.promote_types(result.dtype, jnp.float32))
        return (exchanges.reduce(everyone, wide, "sum") / everyone.count).astype(result.dtype)
    return exchanges.gather(here, result) if how is Leaves.ROWS else result


def parts_of(name: str, discovery: Traced, inputs: tuple[bool, ...], arrays: Sequence[Any]) -> Parts:
    """How a step takes its inputs and gives its results.

    Args:
        discovery: its trace, of one rank's part.
        inputs: which inputs are divided.
        arrays: the inputs, whole.

    Raises:
        SporaxRuntimeError: ranks would differ where there can be one value only.
    """
    of_inputs = [
        passes.DIFFERENT if is_part else passes.GRADIENT if is_own(array) else passes.EQUAL
        for is_part, array in zip(inputs, arrays, strict=True)
    ]
    reads: dict[int, int] = {}
    # Statistics of batches differ from the first step on, and what is computed from them, until nothing changes.
    while True:
        labels = _labels(discovery, of_inputs, reads)
        of_written = zip(discovery.written, labels, strict=False)
        now = {discovery.frame.found[variable]: label for variable, label in of_written if label != passes.EQUAL}
        if now == reads:
            break
        reads = now
    _check_variables(name, [variable for variable, number in discovery.frame.found.items() if number in reads])
    leaves = [leaf for leaf in jax.tree.leaves(discovery.result) if isinstance(leaf, jax.Array)]
    rows = next((part_shape(array)[0] for array, is_part in zip(arrays, inputs, strict=True) if is_part), 0)
    ways = zip(labels[len(discovery.written) :], leaves, strict=True)
    return Parts(inputs, tuple(_way(name, number, *way, rows) for number, way in enumerate(ways)))


def _labels(discovery: Traced, inputs: Sequence[int], reads: dict[int, int]) -> list[int]:
    assert discovery.of_rank is not None
    (eqn,) = (eqn for eqn in discovery.of_rank.jaxpr.eqns if eqn.primitive.name == "shard_map")
    # Constants of the trace come first, the number that orders programs last; both are equal everywhere.
    known = [passes.EQUAL] * (len(eqn.invars) - len(inputs) - 1)
    return passes.labels_of_results(eqn.params["jaxpr"], [*known, *inputs, passes.EQUAL], reads)[:-1]


def _check_variables(name: str, variables: Sequence[Any]) -> None:
    """Refuse Parameters that would become different on each rank; statistics may."""
    for variable in variables:
        if getattr(variable, "layerwise_parallel", False):
            refuse(f"{name}: Parameter {variable.name} with layerwise_parallel")
        if getattr(variable, "requires_grad", False):
            count = world.num_ranks_here()
            raise SporaxRuntimeError(
                f"For '{name}', the gradient of Parameter '{variable.name}' must be combined over the {count} ranks that this "
                "process acts for, or each of them would train alone. Use nn.DistributedGradReducer or ops.AllReduce."
            )


def _way(name: str, number: int, label: int, result: Any, rows: int) -> Leaves:
    if label == passes.EQUAL:
        return Leaves.EQUAL
    is_number = result.size == 1 and (result.ndim == 0 or rows != 1)
    if jnp.issubdtype(result.dtype, jnp.inexact) and (is_number or label == passes.NUMBER):
        return Leaves.MEAN
    if label == passes.GRADIENT:
        return Leaves.OWN
    if result.ndim and result.shape[0] == rows:
        return Leaves.ROWS
    raise no_single_value(name, number, result)


def no_single_value(name: str, number: int, result: Any) -> SporaxRuntimeError:
    """The error of a result that differs from rank to rank and cannot be one value."""
    return SporaxRuntimeError(
        f"For '{name}', a result must be equal on the {world.num_ranks_here()} ranks that this process acts for, a number "
        f"of which the mean is meant, or a row for each sample, but result {number} has shape {tuple(result.shape)} and dtype "
        f"{result.dtype}. Combine it in the step with ops.AllReduce."
    )
