"""Files in slices: what a rank writes of each Parameter, and a source that puts blocks together from files of all ranks.

Problem: the file of a rank has blocks of Parameters; whoever reads them, under another strategy and with another number of
ranks, must know where they belong. Method: every file carries the place of each of its blocks, and a checksum of it::

    {"rank": 1, "ranks": 4, "mark": "3_120", "slices": {"fc.weight": ["fc.weight", [64, 32], [16, 0], 2774911032]}}

A file that holds one block of a Parameter has it under the Parameter's own name, as MindSpore's tools expect; more than one
are called ``name@first,index``. Blocks that several ranks hold are equal, and are read from one of them. With
``remove_redundancy`` a block is written by one rank only: the one whose device JAX counts as replica 0; a copy that every rank
has for itself (data parallel) is dealt out by number.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding
from msgspec import Struct

from sporax.base.documents import MalformedError, decode
from sporax.base.errors import SporaxError, SporaxValueError
from sporax.mindspore.train._entries import Entry
from sporax.mindspore.train.checkpoint.files import LAYOUT, CheckpointFile, TensorSpec, open_checkpoint, write_stream
from sporax.mindspore.train.checkpoint.slices import Region, overlap, region_shape, volume, whole_region, within
from sporax.runtime.ranks import joint_arrays


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
        """Name within a file that has several blocks of the Parameter."""
        return f"{self.name}@{','.join(map(str, self.starts))}"


def held_slices(values: Mapping[str, Any], place: RankPlace, *, once: bool) -> Iterator[Slice]:
    """The blocks that a rank writes, on the host.

    Args:
        values: Parameters, JAX or numpy arrays by name; the same names in the same order on all ranks.
        place: of the rank.
        once: each block by one rank only; else all that the rank holds.
    """
    for number, (name, value) in enumerate(values.items()):
        # `parts` is there for tables in uneven slices, which are stored padded.
        parts = joint_arrays.slot(value, "parts")
        array = parts.array if parts is not None else value if isinstance(value, jax.Array) else _array(value)
        if not isinstance(array, jax.Array) or not isinstance(array.sharding, NamedSharding):
            # Every rank has a copy for itself.
            # Dealt out by number, so that no rank writes all copies.
            if not once or number % place.num_ranks == place.rank:
                own = array if isinstance(array, np.ndarray) else array.addressable_data(0)
                yield Slice(name, tuple(array.shape), (0,) * array.ndim, np.asarray(own))
            continue
        yield from _shards(name, array, parts, place, once)


def _array(value: Any) -> Any:
    return value if isinstance(value, np.ndarray) else value.raw


def _shards(name: str, array: jax.Array, parts: Any, place: RankPlace, once: bool) -> Iterator[Slice]:
    shape = tuple(array.shape)
    whole = shape
    if parts is not None:
        # The padded rows are no part of the whole.
        whole = (*shape[: parts.how.dim], parts.how.rows.num_rows, *shape[parts.how.dim + 1 :])
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
            yield Slice(name, whole, starts, np.asarray(shard.data))
        else:
            yield from _real_rows(name, whole, starts, np.asarray(shard.data), parts.how)


def _real_rows(
    name: str, whole: tuple[int, ...], starts: tuple[int, ...], values: np.ndarray[Any, Any], how: Any
) -> Iterator[Slice]:
    """The rows of a table in uneven parts that mean something, out of a shard of its blocks."""
    dim, rows = how.dim, how.rows
    # Each device has its rows in a block of fixed size, padded at the end.
    for offset in range(0, values.shape[dim], rows.block):
        number = (starts[dim] + offset) // rows.block
        inside = [slice(None)] * values.ndim
        inside[dim] = slice(offset, offset + rows.rows[number])
        yield Slice(name, whole, (*starts[:dim], rows.starts[number], *starts[dim + 1 :]), values[tuple(inside)])


# -------------------------------------------------------------------------------------------------------------- writing


def write_rank_file(
    path: Path, slices: list[Slice], place: RankPlace, mark: str = "", further: list[Entry] | None = None
) -> None:
    """Write the file of one rank, its layout in it.

    Args:
        path: of the file; the suffix says the format.
        slices: what the rank writes.
        place: of the rank.
        mark: of the save, equal on all ranks, so that files of two saves never mix.
        further: entries besides, as they are.

    Raises:
        SporaxTypeError: the format does not have a dtype, or strings.
        OSError: the file cannot be written; nothing of it is left.
    """
    blocks: dict[str, int] = {}
    for part in slices:
        blocks[part.name] = blocks.get(part.name, 0) + 1
    # Under its own name where that is unique: MindSpore's tools look for it.
    by_key: dict[str, Any] = {part.name if blocks[part.name] == 1 else part.key: part.values for part in slices}
    # Before the further entries, which have no place in a layout.
    keys = list(by_key)
    by_key.update({entry.name: entry.value for entry in further or []})
    specs = [
        TensorSpec(key, (0,), None) if isinstance(value, str) else TensorSpec(key, value.shape, value.dtype)
        for key, value in by_key.items()
    ]

    def layout(checksums: Mapping[str, int]) -> dict[str, str]:
        # `strict`: a key that two slices share would lose one of them.
        places = placed(dict(zip(keys, slices, strict=True)), checksums)
        document = {"rank": place.rank, "ranks": place.num_ranks, "mark": mark, "slices": places}
        return {LAYOUT: json.dumps(document)}

    write_stream(path, specs, lambda spec: by_key[spec.name], layout)


def placed(slices: Mapping[str, Slice], checksums: Mapping[str, int]) -> dict[str, list[Any]]:
    """What a file says of its slices, by key: name and shape of the Parameter, first indices, CRC-32 (see `SliceEntry`)."""
    return {key: [part.name, list(part.shape), list(part.starts), checksums[key]] for key, part in slices.items()}


# -------------------------------------------------------------------------------------------------------------- reading


class SliceEntry(Struct, frozen=True, array_like=True):
    """Where a slice of a file belongs: name and shape of the whole Parameter, first index in each dimension; its CRC-32."""

    name: str
    shape: tuple[int, ...]
    starts: tuple[int, ...]
    crc: int | None = None


class LayoutDocument(Struct, frozen=True):
    """What a rank's file says of itself: whose it is, among how many, the mark of the save, and its slices by key."""

    rank: int
    ranks: int
    mark: str
    slices: dict[str, SliceEntry]


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
    """Files of several ranks, open for reading (`loading.Source`).

    Attributes:
        where: what errors name.
        title: of the checkpoint, for errors.
        files: by rank.
        num_ranks: how many wrote it; 0 where that is not known.
    """

    where: str
    title: str
    files: dict[int, CheckpointFile] = field(default_factory=dict)
    num_ranks: int = 0
    _specs: dict[str, TensorSpec] = field(default_factory=dict, repr=False)
    _slices: dict[str, list[StoredSlice]] = field(default_factory=dict, repr=False)
    _checked: set[tuple[int, str]] = field(default_factory=set, repr=False)
    _keys: set[str] = field(default_factory=set, repr=False)

    def names(self) -> list[str]:
        """All Parameters."""
        return list(self._specs)

    def spec(self, name: str) -> TensorSpec:
        """Whole shape and dtype."""
        return self._specs[name]

    def slices(self, name: str) -> list[StoredSlice]:
        """The blocks of a Parameter, each once."""
        return self._slices[name]

    def read(self, name: str, region: Region | None = None) -> np.ndarray[Any, Any]:
        """The values of one block; of all by default.

        Raises:
            SporaxValueError: slices are missing, or one that is read as a whole is not what was written.
        """
        spec = self._specs[name]
        region = whole_region(spec.shape) if region is None else region
        self.check_complete(name, region)
        # Filled completely, since `check_complete` has passed.
        values = np.empty(region_shape(region), spec.dtype)
        for held in self._slices[name]:
            both = overlap(held.region, region)
            if both is None:
                continue
            # Parts of a slice have no checksum of their own.
            if both == held.region:
                self._check_slice(name, held)
            values[within(both, region)] = self.files[held.rank].read(held.key, within(both, held.region))
        return values

    def check_complete(self, name: str, region: Region | None = None) -> None:
        """Raise SporaxValueError unless files have all values of a block; nothing is read."""
        region = whole_region(self._specs[name].shape) if region is None else region
        parts = [overlap(held.region, region) for held in self._slices[name]]
        filled = sum(volume(part) for part in parts if part is not None)
        if filled == volume(region):
            return
        # The usual cause comes with the message.
        absent = [rank for rank in range(self.num_ranks) if rank not in self.files]
        rest = f"; the files of ranks {absent} are missing" if absent else ""
        raise SporaxValueError(
            f"For '{self.where}', parameter '{name}' in '{self.title}' must have {volume(region)} values in the block that is "
            f"asked for, but has {filled}{rest}."
        )

    def check_values(self, name: str, region: Region | None = None) -> None:
        """Compare the checksums of the slices that are within a block (of all by default) before they are used.

        Raises:
            SporaxValueError: one is not what was written.
        """
        region = whole_region(self._specs[name].shape) if region is None else region
        for held in self._slices[name]:
            if overlap(held.region, region) == held.region:
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

    def further(self, rank: int) -> Iterator[tuple[str, Any]]:
        """What a rank's file has besides slices: strings, and arrays that were appended."""
        # Their places were not given by the layout.
        file = self.files[rank]
        for name, spec in file.specs.items():
            if name not in self._keys:
                yield name, file.text(name) if spec.dtype is None else file.read(name, whole_region(spec.shape))

    @property
    def bytes_read(self) -> int:
        """Of values, so far."""
        return sum(file.bytes_read for file in self.files.values())

    def add(self, rank: int, file: CheckpointFile, places: Mapping[str, SliceEntry]) -> None:
        """Take up the slices of one rank's file.

        Args:
            rank: whose it is.
            file: the file.
            places: of its slices, by key.

        Raises:
            SporaxValueError: it does not fit those before.
        """
        for key, entry in places.items():
            name, shape, starts, crc = entry.name, entry.shape, entry.starts, entry.crc
            stored = file.specs.get(key)
            spec = TensorSpec(name, shape, stored.dtype if stored else None)
            fits = stored is not None and len(shape) == len(starts) == len(stored.shape)
            if fits and stored is not None:
                # A place outside of the whole would make numpy broadcast, or raise without a name.
                ends = [start + size for start, size in zip(starts, stored.shape, strict=True)]
                fits = all(start >= 0 and end <= size for start, end, size in zip(starts, ends, shape, strict=True))
            # The first rank to mention a Parameter says what it is; all others must agree.
            if not fits or stored is None or self._specs.setdefault(name, spec) != spec:
                raise SporaxValueError(
                    f"For '{self.where}', parameter '{name}' in '{file.path}' of rank {rank} does not fit: the file has "
                    f"{stored} at {starts}, other ranks {self._specs.get(name)}."
                )
            region = tuple(slice(start, start + size) for start, size in zip(starts, stored.shape, strict=True))
            before = self._slices.setdefault(name, [])
            # Copies on other ranks are not needed.
            if all(region != held.region for held in before):
                before.append(StoredSlice(region, rank, key, crc))
        self.files[rank] = file
        self._keys.update(places)


def open_rank_files(where: str, path: Path) -> SliceSource | None:
    """Open a rank's file and those of the other ranks next to it; None for a file that is not in slices.

    The other files have the same path, but for the number in ``rank_<N>``; those that are not there may be missed later.

    Raises:
        SporaxValueError: a file is broken, or belongs to another save.
    """
    first = open_checkpoint(where, path)
    if LAYOUT not in first.metadata:
        return None
    own = _layout(where, first)
    source = SliceSource(where, str(path), num_ranks=own.ranks)
    source.add(own.rank, first, own.slices)
    for rank in range(own.ranks):
        other_path = sibling(path, own.rank, rank)
        # A missing file matters only if its blocks are needed, which is checked at reading.
        if rank == own.rank or other_path is None or not other_path.is_file():
            continue
        file = open_checkpoint(where, other_path)
        other = _layout(where, file)
        # Files of two saves in one folder would give a mixture of two states.
        for what, expected in (("rank", rank), ("ranks", own.ranks), ("mark", own.mark)):
            if getattr(other, what) != expected:
                raise SporaxValueError(
                    f"For '{where}', '{other_path}' must belong to the same save as '{path}' of rank {own.rank}, but its "
                    f"'{what}' is {getattr(other, what)!r} and not {expected!r}."
                )
        source.add(rank, file, other.slices)
    return source


def whole_file(where: str, path: Path) -> SliceSource:
    """A file of whole Parameters as a source of which any block can be read: one rank that holds everything.

    Args:
        where: what errors name.
        path: of the file. Its checksum, which would need all of it, is not compared.

    Raises:
        SporaxValueError: the file is broken.
    """
    file = open_checkpoint(where, path)
    source = SliceSource(where, str(path), num_ranks=1)
    arrays = {name: spec for name, spec in file.specs.items() if spec.dtype is not None}
    # No CRC: the file has one for everything.
    places = {name: SliceEntry(name, spec.shape, (0,) * len(spec.shape)) for name, spec in arrays.items()}
    source.add(0, file, places)
    return source


def _layout(where: str, file: CheckpointFile) -> LayoutDocument:
    try:
        return decode(file.metadata[LAYOUT], LayoutDocument)
    except (KeyError, MalformedError) as error:
        raise SporaxValueError(f"For '{where}', '{file.path}' does not say where its slices belong: {error}.") from None


def sibling(path: Path, rank: int, other: int) -> Path | None:
    """The file of another rank: the same path with its number in ``rank_<N>`` or ``rank<N>``; None if there is none in it."""
    exchanges = 0

    def renamed(part: str) -> str:
        nonlocal exchanges
        # Not in front of letters, and not followed by digits: "rank_1" is no part of "rank_12".
        text, count = re.subn(rf"(?<![A-Za-z])(rank_?){rank}(?!\d)", rf"\g<1>{other}", part)
        exchanges += count
        return text

    parts = [*path.parts]
    for number in range(
        len(parts) - 1, -1, -1
    ):  # the directory closest to the file; those above may be called so by chance
        parts[number] = renamed(parts[number])
        if exchanges:
            break
    return Path(*parts) if exchanges else None


def is_in_slices(path: Path) -> bool:
    """Whether a file can be read and is in slices."""
    try:
        return LAYOUT in open_checkpoint("load_checkpoint", path).metadata
    except (SporaxError, OSError):
        return False
