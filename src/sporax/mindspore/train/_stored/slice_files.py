"""Files in slices: what a rank writes of each Parameter into a file of its own, next to those of the other ranks.

A file of either format carries whose it is and the places of its blocks (`sporax.runtime.storage.slices`)::

    {"rank": 1, "ranks": 4, "mark": "3_120", "slices": {"fc.weight": ["fc.weight", [64, 32], [16, 0], 2774911032]}}

A file that holds one block of a Parameter has it under the Parameter's own name, as MindSpore's tools expect; more than one
are called ``name@first,index``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from sporax.base.documents import MalformedError, decode
from sporax.base.errors import SporaxError, SporaxValueError
from sporax.mindspore.train._stored.files import LAYOUT, open_checkpoint, text_in, write_stream
from sporax.runtime.storage.entries import CheckpointEntry, full_region
from sporax.runtime.storage.slices import RankPlace, Slice, SliceEntry, SliceSource, placed
from sporax.runtime.storage.tensor_files import StoredTensor, TensorFile

# -------------------------------------------------------------------------------------------------------------- writing


def write_rank_file(
    path: Path, slices: list[Slice], place: RankPlace, mark: str = "", further: list[CheckpointEntry] | None = None
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
        StoredTensor(key, (0,), None) if isinstance(value, str) else StoredTensor(key, value.shape, value.dtype)
        for key, value in by_key.items()
    ]

    def layout(checksums: Mapping[str, int]) -> dict[str, str]:
        # `strict`: a key that two slices share would lose one of them.
        entries = placed(dict(zip(keys, slices, strict=True)), checksums)
        document = {"rank": place.rank, "ranks": place.num_ranks, "mark": mark, "slices": entries}
        return {LAYOUT: json.dumps(document)}

    write_stream(path, specs, lambda spec: by_key[spec.name], layout)


# -------------------------------------------------------------------------------------------------------------- reading


class LayoutDocument(Struct, frozen=True):
    """What a rank's file says of itself: whose it is, among how many, the mark of the save, and its slices by key."""

    rank: int
    ranks: int
    mark: str
    slices: dict[str, SliceEntry]


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


def unsliced_file(where: str, path: Path) -> SliceSource:
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
    entries = {name: SliceEntry(name, spec.shape, (0,) * len(spec.shape)) for name, spec in arrays.items()}
    source.add(0, file, entries)
    return source


def further_entries(source: SliceSource, rank: int) -> Iterator[tuple[str, Any]]:
    """What a rank's file has besides slices: strings, and arrays that were appended."""
    file = source.files[rank]
    for name, spec in source.unplaced(rank):
        yield name, text_in(file, name) if spec.dtype is None else file.read(name, full_region(spec.shape))


def _layout(where: str, file: TensorFile) -> LayoutDocument:
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
