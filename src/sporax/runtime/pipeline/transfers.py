"""What an instruction of a pipeline runs besides programs of its own process: transfers, and programs that wait in line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax.sharding import NamedSharding

from sporax.lowering.marks.host_transfer import KIND
from sporax.runtime.pipeline.stage_transfer import Line


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
    parts = [
        jax.device_put(shard.data, shard.data.sharding.with_memory_kind(kind)) for shard in array.addressable_shards
    ]
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


class Mover:
    """Brings an array to the devices of another stage, sharded as it is read there."""

    __slots__ = ("sharding",)

    def __init__(self, sharding: Any) -> None:
        self.sharding = sharding

    def __call__(self, array: jax.Array) -> tuple[jax.Array]:
        """The array on the other devices."""
        return (jax.device_put(array, self.sharding),)
