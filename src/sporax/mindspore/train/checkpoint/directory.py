"""Checkpoints as directories: every process writes the slices that it owns, and a marker says when all have.

    runs/a/step_40/rank_0.safetensors    slices of process 0, with their places in the wholes
    runs/a/step_40/rank_1.safetensors
    runs/a/step_40/complete.json         written last, by rank 0: names and sizes of all files
    runs/a/latest                        name of the newest complete checkpoint

A slice that several devices hold belongs to the one that JAX counts as replica 0, so it is written once. A checkpoint without
its marker, or whose files have other sizes than the marker says, does not exist for readers. Slices carry their places, so
any process of any other job reads the blocks it needs, whatever strategy either was sharded by.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct

from sporax.base.atomic_file import atomic_write
from sporax.base.documents import MalformedError, decode
from sporax.base.errors import SporaxRuntimeError, SporaxValueError
from sporax.mindspore.train.checkpoint.files import TensorSpec, open_checkpoint, write_stream
from sporax.mindspore.train.checkpoint.slice_files import Slice, SliceEntry, SliceSource, placed

MARKER, LATEST, PREFIX = "complete.json", "latest", "step_"
# Seconds; how often rank 0 looks for the files of the others.
_POLL_SECONDS = 0.02
_SLICES, _FACTS = "slices", "facts"
_WHERE = "ResumableCheckpoint"


def write_slices(folder: Path, rank: int, slices: list[Slice], facts: Mapping[str, Any]) -> Path:
    """Write the file of one process.

    Args:
        folder: of the checkpoint; made if needed.
        rank: of the process.
        slices: what it owns.
        facts: what else to keep, as JSON.

    Raises:
        OSError: the file cannot be written; nothing of it is left.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # Keys hold the first indices, so blocks of one Parameter do not collide.
    by_key = {part.key: part for part in slices}
    specs = [TensorSpec(key, part.values.shape, part.values.dtype) for key, part in by_key.items()]
    path = folder / f"rank_{rank}.safetensors"

    def metadata(checksums: Mapping[str, int]) -> dict[str, str]:
        return {_SLICES: json.dumps(placed(by_key, checksums)), _FACTS: json.dumps(dict(facts))}

    write_stream(path, specs, lambda spec: by_key[spec.name].values, metadata)
    return path


def complete(folder: Path, num_ranks: int, timeout_seconds: float, keep: int = 0) -> None:
    """Wait for the files of all ranks, write the marker, and delete what is not to be kept; rank 0 calls it.

    Args:
        folder: of the checkpoint.
        num_ranks: how many processes write to it.
        timeout_seconds: how long to wait for them.
        keep: how many complete checkpoints stay, this one included; 0 for all.

    Raises:
        SporaxRuntimeError: a rank did not write in time; the checkpoints before are as they were.
    """
    paths = [folder / f"rank_{rank}.safetensors" for rank in range(num_ranks)]
    deadline = time.monotonic() + timeout_seconds
    # Files appear under their names when they are whole (`atomic_write`), so existence is enough.
    while not all(path.is_file() for path in paths):
        if time.monotonic() > deadline:
            missing = [rank for rank, path in enumerate(paths) if not path.is_file()]
            raise SporaxRuntimeError(
                f"For 'ResumableCheckpoint', ranks {missing} wrote nothing to '{folder}' within {timeout_seconds} s; the "
                "checkpoint before is still the latest."
            )
        time.sleep(_POLL_SECONDS)
    # Sizes and checksums tell files of this save from those of an earlier one for the same step.
    content = {
        "step": step_of(folder),
        "files": {path.name: path.stat().st_size for path in paths},
        "sums": {path.name: _checksum_of(path) for path in paths},
    }
    with atomic_write(folder / MARKER) as file:
        file.write(json.dumps(content).encode())
    # After the marker: "latest" must never name a checkpoint that is not complete.
    with atomic_write(folder.parent / LATEST) as file:
        file.write(folder.name.encode())
    if keep:
        for old in complete_checkpoints(folder.parent)[:-keep]:
            (old / MARKER).unlink(missing_ok=True)  # first, so that half of it is never taken for all of it
            shutil.rmtree(old, ignore_errors=True)


def _checksum_of(path: Path) -> str:
    """What a file says is its checksum; it is compared with the values when the checkpoint is opened."""
    return open_checkpoint(_WHERE, path).metadata.get("crc_num", "")


def complete_checkpoints(directory: Path) -> list[Path]:
    """The complete checkpoints in a directory, by step."""
    folders = [path for path in directory.glob(f"{PREFIX}*") if step_of(path) >= 0 and is_complete(path)]
    return sorted(folders, key=step_of)


class MarkerDocument(Struct, frozen=True):
    """The marker of a complete checkpoint, as far as it is read: the size of each file in bytes, and its checksum."""

    files: dict[str, Annotated[int, Meta(ge=0)]]
    sums: dict[str, str] = {}


def is_complete(folder: Path) -> bool:
    """Whether the marker is there and all files have the sizes it says."""
    try:
        files = decode((folder / MARKER).read_bytes(), MarkerDocument).files
        # Sizes are cheap to look at; values are compared when the checkpoint is opened.
        return bool(files) and all((folder / name).stat().st_size == size for name, size in files.items())
    except (OSError, MalformedError):
        return False


def step_of(folder: Path) -> int:
    """The step in the name of a checkpoint; -1 where there is none."""
    number = folder.name.removeprefix(PREFIX)
    return int(number) if number != folder.name and number.isdecimal() else -1


def latest_checkpoint(directory: Path) -> Path | None:
    """The newest complete checkpoint: the one that ``latest`` names, or a newer one whose name was not yet written."""
    # "latest" is for people and scripts; the markers decide.
    folders = complete_checkpoints(directory) if directory.is_dir() else []
    return folders[-1] if folders else None


def remove_incomplete(directory: Path) -> None:
    """Delete what jobs that ended while they were saving have left, so that their files never mix with new ones."""
    for path in directory.glob(f"{PREFIX}*"):
        # Folders with other names belong to the user.
        if step_of(path) >= 0 and not is_complete(path):
            shutil.rmtree(path, ignore_errors=True)


# -------------------------------------------------------------------------------------------------------------- reading


@dataclass(slots=True)
class SliceDirectory(SliceSource):
    """A complete checkpoint, open for reading (`loading.Source`).

    Attributes:
        facts: what each rank kept besides.
    """

    facts: dict[int, dict[str, Any]] = field(default_factory=dict)


def open_directory(folder: Path, *, verify: bool = True) -> SliceDirectory:
    """Open a complete checkpoint.

    Args:
        folder: of the checkpoint.
        verify: compare the checksums of all files first.

    Raises:
        SporaxValueError: it is not complete, or a file is broken.
    """
    if not is_complete(folder):
        raise SporaxValueError(
            f"For 'ResumableCheckpoint', '{folder}' must be a complete checkpoint, but '{MARKER}' or a file is missing or of "
            "another size."
        )
    marker = decode((folder / MARKER).read_bytes(), MarkerDocument)
    source = SliceDirectory(_WHERE, str(folder), num_ranks=len(marker.files))
    for name in marker.files:
        rank = int(Path(name).stem.removeprefix("rank_"))
        file = open_checkpoint(_WHERE, folder / name, verify=verify)
        # A job that was restarted may have written this rank's file again, without rank 0's marker.
        if name in marker.sums and file.metadata.get("crc_num", "") != marker.sums[name]:
            raise SporaxValueError(
                f"For '{_WHERE}', '{file.path}' of rank {rank} must be of the save that '{MARKER}' tells of, with the CRC-32 "
                f"{marker.sums[name]}, but has {file.metadata.get('crc_num', '')!r}."
            )
        try:
            places = decode(file.metadata[_SLICES], dict[str, SliceEntry])
            source.facts[rank] = decode(file.metadata[_FACTS], dict[str, Any])
        except (KeyError, MalformedError) as error:
            raise SporaxValueError(
                f"For '{_WHERE}', '{file.path}' of rank {rank} does not say where its slices belong: {error}."
            ) from None
        source.add(rank, file, places)
    return source
