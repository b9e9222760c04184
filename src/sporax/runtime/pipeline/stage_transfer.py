"""What brings arrays between stages, which other processes may drive.

Problem: the two stages may shard the array differently, and no process sees all of it. Method (`DeviceTransfer`): every target
device lists the blocks that it lacks, each with one source device that has it. Blocks inside one process are copied. Blocks
between two processes go in rounds: a round is one program over the devices of just these two processes, in which every device
sends or receives at most one block (a collective permute). All processes work out the same rounds in the same order.

Around it: `ByDevices` for arrays in host memory, `CachedTransfer` for what no step changes, and `InLine` for programs that wait
for their turn among the exchanges.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from sporax.lowering.marks.host_transfer import KIND
from sporax.runtime.process import step_verification

Box = tuple[tuple[int, int], ...]
"""Start and end in every dimension of the whole array."""

_AXIS = "device"


@dataclass(frozen=True, slots=True)
class BlockMessage:
    """A block that one device needs from another."""

    source: Any
    target: Any
    box: Box

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the block."""
        return tuple(end - start for start, end in self.box)


class Line:
    """Programs in which processes exchange data, one after another.

    On CPUs two programs that do not depend on each other may run at the same time, and their messages would mix. All processes
    start them in one global order, so each waits only for one that the others have started as well: no deadlock.
    """

    def __init__(self) -> None:
        # GPUs and TPUs run the programs of a device in the order of their start.
        self.waits = jax.default_backend() == "cpu"
        self.last: list[jax.Array] = []

    def next(self, program: Callable[..., Any], *arrays: jax.Array) -> Any:
        """Start a program when the one before has ended."""
        if self.waits:
            self.finish()
        results = program(*arrays)
        self.last = jax.tree.leaves(results)
        return results

    def finish(self) -> None:
        """Wait for the last one."""
        jax.block_until_ready([array for array in self.last if not array.is_deleted()])


Round = tuple[BlockMessage, ...]
"""Messages between the same two processes, of one shape; a device takes part in one of them at most."""


def messages(shape: tuple[int, ...], source: NamedSharding, target: NamedSharding) -> list[BlockMessage]:
    """The blocks that the target devices need, each from the nearest device that has it: itself, the same process, then
    the device of the same place in its stage."""
    has, needs = _boxes(shape, source), _boxes(shape, target)
    holders: dict[Box, list[tuple[int, Any]]] = {}
    # Copies of a block on several devices make several possible sources.
    for place, (device, box) in enumerate(has.items()):
        holders.setdefault(box, []).append((place, device))
    blocks = []
    for place, (device, needed) in enumerate(needs.items()):
        for box, having in holders.items():
            common = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(box, needed, strict=True))
            # Nothing in common.
            if any(start >= end for start, end in common):
                continue
            # One holder of equal blocks is enough; the nearest costs no transfer or the shortest one.
            _, nearest = min(having, key=lambda holder: _distance(holder, (place, device)))
            blocks.append(BlockMessage(nearest, device, common))
    return blocks


def rounds(remote: Sequence[BlockMessage]) -> list[Round]:
    """Messages between processes as rounds, in an order that depends on nothing but the messages."""
    groups: dict[tuple[Any, ...], list[list[BlockMessage]]] = {}
    for message in remote:
        # One program serves all messages of a round, so they have one shape.
        key = (message.source.process_index, message.target.process_index, message.shape)
        open_rounds = groups.setdefault(key, [])
        for open_round in open_rounds:
            if all(message.source != other.source and message.target != other.target for other in open_round):
                open_round.append(message)
                break
        else:
            open_rounds.append([message])
    # Sorted by processes and shape, so that all processes start the rounds in one order.
    return [tuple(open_round) for key in sorted(groups) for open_round in groups[key]]


class DeviceTransfer:
    """Brings arrays of one shape from one sharding to another.

    Args:
        array: shape and dtype.
        source, target: its sharding, and the one that it gets.
    """

    def __init__(self, array: Any, source: NamedSharding, target: NamedSharding, line: Line) -> None:
        self.line = line
        self.shape, self.dtype, self.target = tuple(array.shape), array.dtype, target
        self.me = jax.process_index()
        every = messages(self.shape, source, target)
        self.origins = _boxes(self.shape, source)
        self.needs = _boxes(self.shape, target)
        # Devices of one process: JAX copies between them without a program.
        here = [message for message in every if message.source.process_index == message.target.process_index == self.me]
        self.copies = here
        between = [message for message in every if message.source.process_index != message.target.process_index]
        self.rounds = [_Exchange(round_, self.dtype) for round_ in rounds(between) if self.me in _processes(round_)]
        self.receives = any(device.process_index == self.me for device in self.needs)
        own = [device for device in self.origins if device.process_index == self.me]
        self.only = own[0] if len(own) == 1 else None  # the quick way

    @property
    def involves_this_process(self) -> bool:
        """Whether this process has anything to do."""
        return self.receives or bool(self.rounds)

    def __call__(self, array: jax.Array | None) -> tuple[jax.Array | None]:
        """Bring an array; processes that do not hold any of it give None, and those that get nothing get None."""
        shards: dict[Any, jax.Array] = {}
        if array is not None and self.only is not None:
            # `addressable_data` is much quicker than going through all shards.
            shards[self.only] = array.addressable_data(0)
        elif array is not None:
            shards = {shard.device: shard.data for shard in array.addressable_shards}
        arrived: dict[Any, list[tuple[Box, jax.Array]]] = {}
        for message in self.copies:
            block = jax.device_put(self._block(shards, message), message.target)
            arrived.setdefault(message.target, []).append((message.box, block))
        for exchange in self.rounds:
            if exchange.sends:
                exchange([self._block(shards, message) for message in exchange.messages], self.line)
                continue
            for message, block in zip(exchange.messages, exchange([], self.line), strict=True):
                arrived.setdefault(message.target, []).append((message.box, block))
        # A sender goes on: its part ends with its last message.
        if not self.receives:
            return (None,)
        parts = [self._assembled(device, blocks) for device, blocks in arrived.items()]
        if len(self.needs) == 1:  # a program takes an array of one device in either form, and this one is there already
            return (parts[0],)
        return (jax.make_array_from_single_device_arrays(self.shape, self.target, parts, dtype=self.dtype),)

    def _block(self, shards: dict[Any, jax.Array], message: BlockMessage) -> jax.Array:
        """The part of a source device's shard that a message carries."""
        origin, shard = self.origins[message.source], shards[message.source]
        if origin == message.box:
            return shard
        starts = tuple(start - first for (start, _), (first, _) in zip(message.box, origin, strict=True))
        block: jax.Array = _slice(shard, starts, message.shape)
        return block

    def _assembled(self, device: Any, blocks: list[tuple[Box, jax.Array]]) -> jax.Array:
        needed = self.needs[device]
        # The usual case, equal slices on both sides: the block is the shard.
        if blocks[0][0] == needed:
            return blocks[0][1]
        starts = tuple(
            tuple(start - first for (start, _), (first, _) in zip(box, needed, strict=True)) for box, _ in blocks
        )
        shape = tuple(end - start for start, end in needed)
        joined: jax.Array = _put_together(tuple(block for _, block in blocks), starts, shape)
        return joined


def without_shards(array: Any, sharding: NamedSharding) -> jax.Array:
    """An array whose devices all belong to other processes."""
    return jax.make_array_from_single_device_arrays(tuple(array.shape), sharding, [], dtype=array.dtype)


def is_here(sharding: NamedSharding) -> bool:
    """Whether this process drives one of the devices."""
    return bool(sharding.addressable_devices)


def _boxes(shape: tuple[int, ...], sharding: NamedSharding) -> dict[Any, Box]:
    """What every device has, in the order of the mesh."""
    indices = sharding.devices_indices_map(shape)
    return {
        device: tuple(part.indices(size)[:2] for part, size in zip(indices[device], shape, strict=True))
        for device in sharding.mesh.devices.flat
    }


def _distance(holder: tuple[int, Any], needer: tuple[int, Any]) -> tuple[bool, bool, int, int]:
    # Tuples compare from the left: the device itself, then its process, then the nearest place in the stage.
    (place, device), (place_needed, target) = holder, needer
    return device != target, device.process_index != target.process_index, abs(place - place_needed), place


def _processes(round_: Round) -> tuple[int, int]:
    return round_[0].source.process_index, round_[0].target.process_index


class _Exchange:
    """A round as this process takes part in it.

    Args:
        dtype: of their blocks.
    """

    def __init__(self, round_: Round, dtype: Any) -> None:
        self.messages = round_
        self.sends = round_[0].source.process_index == jax.process_index()
        self.program, self.sharding = _program(round_, dtype)
        # Made once: a receiver puts the same array into every exchange.
        self.zeros = None if self.sends else self._joined([_zeros(message, dtype) for message in round_])

    def __call__(self, blocks: list[jax.Array], line: Line) -> list[jax.Array]:
        """Send blocks, one per message; or receive them."""
        taken = line.next(self.program, self.zeros if self.zeros is not None else self._joined(blocks))
        if self.sends:
            return []
        if len(self.messages) == 1:  # the quick way
            return [taken.addressable_data(0)]
        received = {shard.device: shard.data for shard in taken.addressable_shards}
        return [received[message.target] for message in self.messages]

    def _joined(self, blocks: list[jax.Array]) -> jax.Array:
        """Every device has a block of its own under one shape, so the array claims to be replicated."""
        return jax.make_array_from_single_device_arrays(self.messages[0].shape, self.sharding, blocks)


@cache
def _program(round_: Round, dtype: Any) -> tuple[Any, NamedSharding]:
    """The compiled program of a round, and the sharding of its array."""
    devices = [device for message in round_ for device in (message.source, message.target)]
    mesh = Mesh(np.array(devices), (_AXIS,), axis_types=(AxisType.Auto,))
    # Devices stand in the mesh as sender, receiver, sender, receiver.
    pairs = [(2 * number, 2 * number + 1) for number in range(len(round_))]
    everywhere = NamedSharding(mesh, PartitionSpec())

    def transfer(block: jax.Array) -> jax.Array:
        moved: jax.Array = lax.ppermute(block, _AXIS, pairs)
        return moved

    mapped = jax.shard_map(transfer, mesh=mesh, in_specs=everywhere.spec, out_specs=everywhere.spec, check_vma=False)
    shape = jax.ShapeDtypeStruct(round_[0].shape, dtype, sharding=everywhere)
    jitted = jax.jit(mapped, out_shardings=everywhere)
    return step_verification.compiled(jitted, "transfer between stages", [shape]), everywhere


def _zeros(message: BlockMessage, dtype: Any) -> jax.Array:
    """What a device that receives gives into a round."""
    zeros: jax.Array = jax.device_put(np.zeros(message.shape, dtype), message.target)
    # A numpy array goes to the device without compiling a program for its shape.
    return zeros


def _sliced(shard: jax.Array, starts: tuple[int, ...], shape: tuple[int, ...]) -> jax.Array:
    ends = tuple(start + size for start, size in zip(starts, shape, strict=True))
    return lax.slice(shard, starts, ends)


# Positions are static: XLA reads a static slice in place, and there are few different ones.
_slice = jax.jit(_sliced, static_argnums=(1, 2))


def _join(blocks: tuple[jax.Array, ...], starts: tuple[tuple[int, ...], ...], shape: tuple[int, ...]) -> jax.Array:
    joined = jnp.zeros(shape, blocks[0].dtype)
    for block, start in zip(blocks, starts, strict=True):
        joined = lax.dynamic_update_slice(joined, block, start)
    return joined


_put_together = jax.jit(_join, static_argnums=(1, 2))


class InLine:
    """A program of a stage that several processes drive."""

    def __init__(self, executable: Any, line: Line) -> None:
        self.executable, self.line = executable, line

    def __call__(self, *arrays: jax.Array) -> Any:
        """Start it when the program before has ended."""
        return self.line.next(self.executable, *arrays)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.executable, name)


class ByDevices:
    """Brings what is in host memory to another stage's host: processes exchange what their devices hold.

    Args:
        transfer: between devices.
        source, target: where the array is kept, and where its copy is.
    """

    def __init__(self, transfer: Any, source: NamedSharding, target: NamedSharding) -> None:
        self.transfer = transfer
        self.fetches, self.returns = source.memory_kind == KIND, target.memory_kind == KIND

    def __call__(self, array: jax.Array | None) -> tuple[jax.Array | None]:
        """Bring an array, as `DeviceTransfer` does."""
        (arrived,) = self.transfer(in_memory(array, "device") if self.fetches else array)
        return (in_memory(arrived, KIND) if self.returns else arrived,)


def in_memory(array: jax.Array | None, kind: str) -> jax.Array | None:
    """The parts of an array that this process has, on the same devices in another memory."""
    if array is None:
        return None
    # Part by part: JAX would run a program for an array that is on devices of several processes.
    parts = [jax.device_put(part.data, part.data.sharding.with_memory_kind(kind)) for part in array.addressable_shards]
    sharding = array.sharding.with_memory_kind(kind)
    return jax.make_array_from_single_device_arrays(array.shape, sharding, parts, dtype=array.dtype)


class CachedTransfer:
    """Brings a variable again only when it has got another value than before.

    Processes that receive it have nothing of it in their hands, and all must agree on whether it is sent. So what is compared is
    the argument of the step, which every process has and which scripts set on all of them.
    """

    def __init__(self, mover: Any, position: int) -> None:
        self.mover = mover
        self.position = position
        # A value that no argument is, so that the first call always moves.
        self.last: Any = self
        self.due = True
        self.copy: Any = None

    def begin(self, arguments: Sequence[Any]) -> None:
        """A step begins with these arguments."""
        self.due = arguments[self.position] is not self.last
        self.last = arguments[self.position]

    def __call__(self, array: jax.Array | None) -> Any:
        """The array where it is read; the one of an earlier step where nothing has changed."""
        if self.due:
            self.copy = self.mover(array)
        return self.copy
