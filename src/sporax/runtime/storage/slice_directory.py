"""Directories of slices: every process writes the slices that it owns, and a marker says when all have.

    step_40/rank_0.safetensors    slices of process 0, with their places in the wholes
    step_40/rank_1.safetensors
    step_40/complete.json         written last, by one process: names, sizes and checksums of all files

A slice that several devices hold belongs to the one that JAX counts as replica 0, so it is written once. A directory without
its marker, or whose files have other sizes than the marker says, does not exist for readers. Slices carry their places, so
any process of any other job reads the blocks it needs, whatever sharding either has.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct

from sporax.base.atomic_file import atomic_write
from sporax.base.documents import MalformedError, decode
from sporax.base.errors import SporaxRuntimeError, SporaxValueError
from sporax.base.lazy_members import dataclass
from sporax.runtime.storage.entries import StoredTensor
from sporax.runtime.storage.slices import Slice, SliceEntry, SliceSource, placed
from sporax.runtime.storage.tensor_files import open_safetensors, write_safetensors

MARKER = "complete.json"
_POLL_SECONDS = 0.02
"""How often the process that writes the marker looks for the files of the others."""
_SLICES, _FACTS = "slices", "facts"


def write_slices(path: Path, slices: Sequence[Slice], facts: Mapping[str, Any]) -> None:
    """Write the file of one process.

    Args:
        path: of the file; its directory is made if needed.
        slices: what the process owns.
        facts: what else is stored, as JSON.

    Raises:
        SporaxTypeError: the format does not have a dtype.
        OSError: the file cannot be written; nothing of it is left.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Keys hold the first indices, so blocks of one array do not collide.
    by_key = {part.key: part for part in slices}
    specs = [StoredTensor.of(key, part.values) for key, part in by_key.items()]

    def metadata(checksums: Mapping[str, int]) -> dict[str, str]:
        return {_SLICES: json.dumps(placed(by_key, checksums)), _FACTS: json.dumps(dict(facts))}

    write_safetensors(path, specs, lambda spec: by_key[spec.name].values, metadata)


def write_marker(
    where: str, folder: Path, names: Sequence[str], timeout_seconds: float, facts: Mapping[str, Any]
) -> None:
    """Wait for the files of all processes and write the marker; one process calls it.

    Args:
        where: what errors name.
        names: of the files, by process.
        timeout_seconds: how long to wait for them.
        facts: what else the marker says.

    Raises:
        SporaxRuntimeError: a process did not write in time.
    """
    paths = [folder / name for name in names]
    deadline = time.monotonic() + timeout_seconds
    # Files appear under their names when they are whole (`atomic_write`), so existence is enough.
    while not all(path.is_file() for path in paths):
        if time.monotonic() > deadline:
            missing = [rank for rank, path in enumerate(paths) if not path.is_file()]
            raise SporaxRuntimeError(
                f"For '{where}', ranks {missing} wrote nothing to '{folder}' within {timeout_seconds} s; the checkpoint before "
                "is still the latest."
            )
        time.sleep(_POLL_SECONDS)
    # Sizes and checksums distinguish files of this save from those of an earlier one with the same names.
    content = {
        **facts,
        "files": {path.name: path.stat().st_size for path in paths},
        "sums": {path.name: open_safetensors(where, path).metadata.get("crc_num", "") for path in paths},
    }
    with atomic_write(folder / MARKER) as file:
        file.write(json.dumps(content).encode())


class MarkerDocument(Struct, frozen=True):
    """The marker of a complete directory, as far as it is read: the size of each file in bytes, and its checksum."""

    files: dict[str, Annotated[int, Meta(ge=0)]]
    sums: dict[str, str] = {}


def read_marker(folder: Path) -> MarkerDocument | None:
    """The marker of a complete directory; None where it is missing, or a file is, or has another size than it says."""
    try:
        marker = decode((folder / MARKER).read_bytes(), MarkerDocument)
        # Sizes are quick to look at; values are compared when the directory is opened or read.
        is_complete = all((folder / name).stat().st_size == size for name, size in marker.files.items())
        return marker if marker.files and is_complete else None
    except (OSError, MalformedError):
        return None


@dataclass(slots=True)
class SliceDirectory(SliceSource):
    """A complete directory, open for reading.

    Attributes:
        facts: what each process stored besides.
    """

    facts: dict[int, dict[str, Any]] = field(default_factory=dict)


def open_directory(where: str, folder: Path, *, verify: bool = True, checks_parts: bool = False) -> SliceDirectory:
    """Open a complete directory.

    Args:
        where: what errors name.
        verify: compare the checksums of all files first.
        checks_parts: compare the checksum of a slice also where a part of it is read.

    Raises:
        SporaxValueError: it is not complete, or a file is broken.
    """
    marker = read_marker(folder)
    if marker is None:
        raise SporaxValueError(
            f"For '{where}', '{folder}' must be a complete checkpoint, but '{MARKER}' or a file is missing or of another size."
        )
    source = SliceDirectory(where, str(folder), num_ranks=len(marker.files), checks_parts=checks_parts)
    for name in marker.files:
        # "rank_3.safetensors", or with the mark of a save behind the number: "rank_3-5f0c.safetensors".
        rank = int(Path(name).stem.removeprefix("rank_").partition("-")[0])
        file = open_safetensors(where, folder / name, verify=verify)
        # A job that was restarted may have written this file again, without the marker.
        if name in marker.sums and file.metadata.get("crc_num", "") != marker.sums[name]:
            raise SporaxValueError(
                f"For '{where}', '{file.path}' of rank {rank} must be of the save that '{MARKER}' describes, with the CRC-32 "
                f"{marker.sums[name]}, but has {file.metadata.get('crc_num', '')!r}."
            )
        try:
            entries = decode(file.metadata[_SLICES], dict[str, SliceEntry])
            source.facts[rank] = decode(file.metadata[_FACTS], dict[str, Any])
        except (KeyError, MalformedError) as error:
            raise SporaxValueError(
                f"For '{where}', '{file.path}' of rank {rank} does not say where its slices belong: {error}."
            ) from None
        source.add(rank, file, entries)
    return source
