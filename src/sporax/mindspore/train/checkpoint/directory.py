"""Checkpoints of one training run: a directory of slices for each step (`sporax.runtime.storage.slice_directory`).

runs/a/step_40/rank_0.safetensors    slices of process 0, with their places in the wholes
runs/a/step_40/rank_1.safetensors
runs/a/step_40/complete.json         written last, by rank 0: names and sizes of all files
runs/a/latest                        name of the newest complete checkpoint
"""

from __future__ import annotations

import shutil
from pathlib import Path

from sporax.base.atomic_file import atomic_write
from sporax.runtime.storage.slice_directory import MARKER, read_marker, write_marker

LATEST, PREFIX = "latest", "step_"
_WHERE = "ResumableCheckpoint"


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
    names = [f"rank_{rank}.safetensors" for rank in range(num_ranks)]
    write_marker(_WHERE, folder, names, timeout_seconds, {"step": step_of(folder)})
    # After the marker: "latest" must never name a checkpoint that is not complete.
    with atomic_write(folder.parent / LATEST) as file:
        file.write(folder.name.encode())
    if keep:
        for old in complete_checkpoints(folder.parent)[:-keep]:
            (old / MARKER).unlink(missing_ok=True)  # first, so that half of it is never taken for all of it
            shutil.rmtree(old, ignore_errors=True)


def complete_checkpoints(directory: Path) -> list[Path]:
    """The complete checkpoints in a directory, by step."""
    folders = [path for path in directory.glob(f"{PREFIX}*") if step_of(path) >= 0 and read_marker(path) is not None]
    return sorted(folders, key=step_of)


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
        if step_of(path) >= 0 and read_marker(path) is None:
            shutil.rmtree(path, ignore_errors=True)
