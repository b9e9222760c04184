"""Slices of arrays: which of them a process writes, and a source that puts blocks together from the files of all processes.

Problem: the file of a process has blocks of arrays; whoever reads them, under another sharding and with another number of
processes, must know where they belong. Method: every file stores for each of its blocks the place in the whole and a checksum
(`SliceEntry`)::

    {"fc.weight@16,0": ["fc.weight", [64, 32], [16, 0], 2774911032]}

Blocks that several processes hold are equal, and are read from one of them. With `once` a block is written by one process
only: the one whose device JAX counts as replica 0; a copy that every process has for itself is dealt out by number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import Any

import jax
import numpy as np
from jax.sharding import Sharding, SingleDeviceSharding
from msgspec import Struct

from sporax.base.errors import SporaxValueError
from sporax.base.lazy_members import dataclass
from sporax.runtime.state import frames
from sporax.runtime.storage.entries import Region, StoredTensor, full_region, overlap, region_shape, volume, within
from sporax.runtime.storage.tensor_files import TensorFile


def _process_of(device: Any) -> int:
    return int(device.process_index)


@dataclass(frozen=True, slots=True)
class RankPlace:
    """A rank among those that save together.

    Attributes:
        rank: its number.
        num_ranks: how many there are.
        rank_of: the rank of a device.
    """

    rank: int
    num_ranks: int
    rank_of: Callable[[Any], int] = _process_of


def this_rank() -> RankPlace:
    """This process among those of its job."""
    return RankPlace(jax.process_index(), jax.process_count())


def slice_key(name: str, starts: tuple[int, ...]) -> str:
    """Name of a slice within a file that has several of a Parameter."""
    return f"{name}@{','.join(map(str, starts))}"


@dataclass(frozen=True, slots=True)
class Slice:
    """A block of a Parameter in memory.

    Attributes:
        name: of the Parameter.
        shape: of the whole.
        starts: first index of the block in each dimension.
        values: of the block, on the host.
    """

    name: str
    shape: tuple[int, ...]
    starts: tuple[int, ...]
    values: np.ndarray[Any, Any]

    @property
    def key(self) -> str:
        """See `slice_key`."""
        return slice_key(self.name, self.starts)


def held_slices(values: Mapping[str, Any], place: RankPlace, *, once: bool) -> Iterator[Slice]:
    """The blocks that a rank writes, on the host.

    Args:
        values: Parameters, JAX or numpy arrays by name; the same names in the same order on all ranks.
        place: of the rank.
        once: each block by one rank only; else all that the rank holds.
    """
    for number, (name, value) in enumerate(values.items()):
        # `parts` is there for tables in uneven slices, which are stored padded.
        parts = frames.slot(value, "parts")
        array = parts.array if parts is not None else value if isinstance(value, jax.Array | np.ndarray) else value.raw
        is_own = isinstance(array, jax.Array) and isinstance(array.sharding, SingleDeviceSharding)
        if not isinstance(array, jax.Array) or (is_own and array.is_fully_addressable):
            # Every rank has a copy for itself.
            # Dealt out by number, so that no rank writes all copies.
            if not once or number % place.num_ranks == place.rank:
                own = array if isinstance(array, np.ndarray) else array.addressable_data(0)
                yield Slice(name, tuple(array.shape), (0,) * array.ndim, np.asarray(own))
            continue
        yield from _shards(name, array, parts, place, once)


def _shards(name: str, array: jax.Array, parts: Any, place: RankPlace, once: bool) -> Iterator[Slice]:
    shape = tuple(array.shape)
    full = shape
    if parts is not None:
        # The padded rows are no part of the whole.
        full = (*shape[: parts.how.dim], parts.how.rows.num_rows, *shape[parts.how.dim + 1 :])
    written: set[tuple[int, ...]] = set()
    for shard in array.addressable_shards:
        # Replica 0 is the same device on all processes, so they agree without a message.
        if place.rank_of(shard.device) != place.rank or (once and shard.replica_id != 0):
            continue
        starts = tuple(part.indices(size)[0] for part, size in zip(shard.index, shape, strict=True))
        # Devices of one rank may hold the same block.
        if starts in written:
            continue
        written.add(starts)
        if parts is None:
            yield Slice(name, full, starts, np.asarray(shard.data))
        else:
            yield from _real_rows(name, full, starts, np.asarray(shard.data), parts.how)


def _real_rows(
    name: str, full: tuple[int, ...], starts: tuple[int, ...], values: np.ndarray[Any, Any], how: Any
) -> Iterator[Slice]:
    """The rows of a table in uneven parts that mean something, out of a shard of its blocks."""
    dim, rows = how.dim, how.rows
    # Each device has its rows in a block of fixed size, padded at the end.
    for offset in range(0, values.shape[dim], rows.block):
        number = (starts[dim] + offset) // rows.block
        inside = [slice(None)] * values.ndim
        inside[dim] = slice(offset, offset + rows.rows[number])
        yield Slice(name, full, (*starts[:dim], rows.starts[number], *starts[dim + 1 :]), values[tuple(inside)])


def placed(slices: Mapping[str, Slice], checksums: Mapping[str, int]) -> dict[str, list[Any]]:
    """What a file says of its slices, by key: name and shape of the Parameter, first indices, CRC-32 (see `SliceEntry`)."""
    return {key: [part.name, list(part.shape), list(part.starts), checksums[key]] for key, part in slices.items()}


class SliceEntry(Struct, frozen=True, array_like=True):
    """Where a slice of a file belongs: name and shape of the whole Parameter, first index in each dimension; its CRC-32."""

    name: str
    shape: tuple[int, ...]
    starts: tuple[int, ...]
    crc: int | None = None

    def fits(self, key: str, stored: tuple[int, ...]) -> bool:
        """Whether a slice of shape `stored` can be at this place, under this key."""
        # The key has the name, too, so that a change of one of them is noticed.
        if not len(self.shape) == len(self.starts) == len(stored) or key not in (
            self.name,
            slice_key(self.name, self.starts),
        ):
            return False
        # A place outside of the whole would make numpy broadcast, or raise without a name.
        inside = zip(self.starts, stored, self.shape, strict=True)
        return all(0 <= start <= start + size <= full for start, size, full in inside)


@dataclass(frozen=True, slots=True)
class StoredSlice:
    """A block in a file.

    Attributes:
        region: its place in the whole.
        rank: whose file it is.
        key: its name there.
        crc: of its values; None where the file does not say.
    """

    region: Region
    rank: int
    key: str
    crc: int | None


@dataclass(slots=True)
class SliceSource:
    """Files of several ranks, open for reading.

    Attributes:
        where: what errors name.
        title: of the checkpoint, for errors.
        files: by rank.
        num_ranks: how many wrote it; 0 where that is not known.
        mark: of the save, equal in all files; "" where they have none.
        checks_parts: whether the checksum of a slice is compared also where only a part of it is read.
        by_stage: whether the file of a rank has the Parameters of its pipeline stage alone.
    """

    where: str
    title: str
    files: dict[int, TensorFile] = field(default_factory=dict)
    num_ranks: int = 0
    mark: str = ""
    checks_parts: bool = False
    by_stage: bool = False
    _specs: dict[str, StoredTensor] = field(default_factory=dict, repr=False)
    _slices: dict[str, list[StoredSlice]] = field(default_factory=dict, repr=False)
    _checked: set[tuple[int, str]] = field(default_factory=set, repr=False)
    _keys: set[str] = field(default_factory=set, repr=False)

    def names(self) -> list[str]:
        """All Parameters."""
        return list(self._specs)

    def spec(self, name: str) -> StoredTensor:
        """Whole shape and dtype."""
        return self._specs[name]

    def has(self, name: str) -> bool:
        """Whether the files say where values of a Parameter belong."""
        return name in self._specs

    def slices(self, name: str) -> list[StoredSlice]:
        """The blocks of a Parameter, each once."""
        return self._slices[name]

    def read(self, name: str, region: Region | None = None) -> np.ndarray[Any, Any]:
        """The values of one block; of all by default.

        Raises:
            SporaxValueError: slices are missing, or one that is read as a whole is not what was written.
        """
        spec = self._specs[name]
        region = full_region(spec.shape) if region is None else region
        self.check_complete(name, region)
        # Filled completely, since `check_complete` has passed.
        values = np.empty(region_shape(region), spec.dtype)
        for held in self._slices[name]:
            both = overlap(held.region, region)
            if both is None:
                continue
            # Parts of a slice have no checksum of their own.
            if self.checks_parts or both == held.region:
                self._check_slice(name, held)
            values[within(both, region)] = self.files[held.rank].read(held.key, within(both, held.region))
        return values

    def check_complete(self, name: str, region: Region | None = None) -> None:
        """Raise SporaxValueError unless files have all values of a block; nothing is read."""
        region = full_region(self._specs[name].shape) if region is None else region
        parts = [overlap(held.region, region) for held in self._slices[name]]
        filled = sum(volume(part) for part in parts if part is not None)
        if filled == volume(region):
            return
        # The usual cause comes with the message.
        absent = [rank for rank in range(self.num_ranks) if rank not in self.files]
        rest = f"; the files of ranks {absent} are missing" if absent else ""
        raise SporaxValueError(
            f"For '{self.where}', parameter '{name}' in '{self.title}' must have {volume(region)} values in the block that is "
            f"requested, but has {filled}{rest}."
        )

    def check_values(self, name: str, region: Region | None = None) -> None:
        """Compare the checksums of the slices that reading a block (all by default) compares, before they are used.

        Raises:
            SporaxValueError: one is not what was written.
        """
        region = full_region(self._specs[name].shape) if region is None else region
        for held in self._slices[name]:
            both = overlap(held.region, region)
            if both == held.region or (self.checks_parts and both is not None):
                self._check_slice(name, held)

    def _check_slice(self, name: str, held: StoredSlice) -> None:
        # Compared once: several devices may read from one slice.
        if held.crc is None or (held.rank, held.key) in self._checked:
            return
        checksum = self.files[held.rank].crc32(held.key)
        if checksum != held.crc:
            raise SporaxValueError(
                f"For '{self.where}', parameter '{name}' in '{self.files[held.rank].path}' of rank {held.rank} is broken: "
                f"the file says its CRC-32 is {held.crc}, but the values have {checksum}."
            )
        self._checked.add((held.rank, held.key))

    def unplaced(self, rank: int) -> Iterator[tuple[str, StoredTensor]]:
        """What a process's file has whose place the file does not say."""
        return ((name, spec) for name, spec in self.files[rank].specs.items() if name not in self._keys)

    @property
    def bytes_read(self) -> int:
        """Of values, so far."""
        return sum(file.bytes_read for file in self.files.values())

    def add(self, rank: int, file: TensorFile, entries: Mapping[str, SliceEntry]) -> None:
        """Take up the slices of one rank's file.

        Args:
            entries: of its slices, by key.

        Raises:
            SporaxValueError: it does not fit those before.
        """
        for key, entry in entries.items():
            name, starts, stored = entry.name, entry.starts, file.specs.get(key)
            spec = StoredTensor(name, entry.shape, stored.dtype if stored else None)
            # The first rank to mention a Parameter says what it is; all others must agree.
            if stored is None or not entry.fits(key, stored.shape) or self._specs.setdefault(name, spec) != spec:
                raise SporaxValueError(
                    f"For '{self.where}', parameter '{name}' in '{file.path}' of rank {rank} does not fit: the file has "
                    f"{stored} at {starts}, other ranks {self._specs.get(name)}."
                )
            region = tuple(slice(start, start + size) for start, size in zip(starts, stored.shape, strict=True))
            before = self._slices.setdefault(name, [])
            # Copies on other ranks are not needed.
            if all(region != held.region for held in before):
                before.append(StoredSlice(region, rank, key, entry.crc))
        self.files[rank] = file
        self._keys.update(entries)


def placed_blocks(
    shape: tuple[int, ...], sharding: Sharding, read: Callable[[Region], np.ndarray[Any, Any]]
) -> jax.Array:
    """An array of which every device of this process gets its own block; equal ones are read once."""
    blocks: dict[tuple[tuple[int, int], ...], np.ndarray[Any, Any]] = {}

    def block(index: tuple[slice, ...] | None) -> np.ndarray[Any, Any]:
        # Slices of dimensions that are not sharded have no bounds.
        starts = [part.indices(size)[:2] for part, size in zip(index or (), shape, strict=True)]
        key = tuple(starts)
        if key not in blocks:
            blocks[key] = read(tuple(slice(*bounds) for bounds in starts))
        return blocks[key]

    return jax.make_array_from_callback(shape, sharding, block)
