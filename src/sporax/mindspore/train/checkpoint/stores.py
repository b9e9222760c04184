"""Where `ResumableCheckpoint` keeps the state of training: the seam between the callback and what writes files.

| store | where | written by |
|---|---|---|
| `DirectoryStore` | a directory that all processes see | this package |
| `orbax_store.OrbaxStore` | a directory, or a cloud path | Orbax |

`DirectoryStore` keeps a directory of slices for each step (`sporax.runtime.storage.slice_directory`)::

    runs/a/step_40/rank_0.safetensors    slices of process 0, with their places in the wholes
    runs/a/step_40/rank_1.safetensors
    runs/a/step_40/complete.json         written last, by rank 0: names and sizes of all files
    runs/a/latest                        name of the newest complete checkpoint
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import jax

from sporax.base import atomic_write
from sporax.mindspore._names.missing import late
from sporax.mindspore.nn.cell import Cell
from sporax.mindspore.train import _ranks
from sporax.mindspore.train._apply import load_param_into_net
from sporax.mindspore.train._entries import BackgroundWriter
from sporax.mindspore.train._stored import StoredValues, deferred_parameter
from sporax.runtime import storage

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
    storage.write_marker(_WHERE, folder, names, timeout_seconds, {"step": step_of(folder)})
    # After the marker: "latest" must never name a checkpoint that is not complete.
    with atomic_write(folder.parent / LATEST) as file:
        file.write(folder.name.encode())
    if keep:
        for old in complete_checkpoints(folder.parent)[:-keep]:
            (old / storage.MARKER).unlink(missing_ok=True)  # first, so that half of it is never taken for all of it
            shutil.rmtree(old, ignore_errors=True)


def complete_checkpoints(directory: Path) -> list[Path]:
    """The complete checkpoints in a directory, by step."""
    folders = [
        path for path in directory.glob(f"{PREFIX}*") if step_of(path) >= 0 and storage.read_marker(path) is not None
    ]
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
        if step_of(path) >= 0 and storage.read_marker(path) is None:
            shutil.rmtree(path, ignore_errors=True)


# `Model` imports this module; a run that starts afresh needs no reader of strategies and slices.
load_source_into_net = late("sporax.mindspore.train.checkpoint.loading:load_source_into_net")

Facts = dict[str, Any]
"""What is kept besides Parameters, as JSON."""


class Store(Protocol):
    """Checkpoints of one training run. All ranks call each method, but for `busy` and `newest`."""

    def open(self) -> None:
        """Get ready for a run; what a killed one has left half written is removed."""

    def newest(self) -> str:
        """Path of the newest complete checkpoint; "" where there is none."""

    def load(self, network: Cell, check: Callable[[Facts], None]) -> Facts | None:
        """Load the newest complete checkpoint into a network, and give its facts; None where there is none.

        Args:
            network: the network.
            check: raises if the facts do not fit; called before anything is loaded.
        """

    def save(self, step: int, network: Cell, facts: Facts) -> None:
        """Take the state to the host and write it; an error of the save before comes up here."""

    def busy(self) -> bool:
        """Whether this process is still writing."""

    def finish(self) -> None:
        """Wait until all that was saved is complete."""


class DirectoryStore:
    """Checkpoints in a directory, as the module describes it.

    Args:
        directory: where they go.
        keep: how many complete ones stay; 0 for all.
        in_background: write in a thread.
        timeout_seconds: how long rank 0 waits for the files of the others.
    """

    def __init__(self, directory: Path, keep: int, in_background: bool, timeout_seconds: float) -> None:
        self._directory, self._keep = directory, keep
        self._in_background, self._timeout = in_background, timeout_seconds
        self._writer = BackgroundWriter()

    def open(self) -> None:
        """Make the directory, and remove what is incomplete."""
        self._directory.mkdir(parents=True, exist_ok=True)
        # One rank deletes: two would race.
        if _ranks.rank() == 0:
            remove_incomplete(self._directory)
        _ranks.any_rank(False)  # no rank looks, or writes, before that is done

    def newest(self) -> str:
        """Path of the newest complete checkpoint."""
        folder = latest_checkpoint(self._directory)
        return str(folder) if folder else ""

    def load(self, network: Cell, check: Callable[[Facts], None]) -> Facts | None:
        """Load all values, or, as one of several processes, the blocks that the devices of this one need.

        Parameters that no step has placed yet are then read when the first step is compiled. What is read is compared with its
        checksums: whole files here, else slice by slice.
        """
        folder = latest_checkpoint(self._directory)
        if folder is None:
            return None
        is_alone = jax.process_count() == 1
        # A process that is alone reads everything anyway.
        source = storage.open_directory("ResumableCheckpoint", folder, verify=is_alone)
        # A job with more ranks than before has ranks without facts of their own; those of rank 0 serve all.
        facts = source.facts.get(_ranks.rank(), source.facts[0])
        check(facts)
        if is_alone:
            load_source_into_net("ResumableCheckpoint", source, network, strict=True)
        else:
            # Deferred: the blocks of this process are known once the step has been compiled.
            stored = {name: deferred_parameter(StoredValues(source, name), name) for name in source.names()}
            load_param_into_net(network, stored, strict_load=True)
        return facts

    def save(self, step: int, network: Cell, facts: Mapping[str, Any]) -> None:
        """Write the slices that this process owns; rank 0 says when all have."""
        rank, num_ranks = _ranks.rank(), jax.process_count()
        parameters = {parameter.name: parameter for parameter in network.get_parameters()}
        # The copy to the host is made before training goes on and changes the values.
        slices = list(storage.held_slices(parameters, storage.this_rank(), once=True))
        folder = self._directory / f"{PREFIX}{step}"

        def write() -> None:
            storage.write_slices(folder / f"rank_{rank}.safetensors", slices, facts)
            # The marker must come last, so the one that writes it waits for all.
            if rank == 0:
                complete(folder, num_ranks, self._timeout, self._keep)

        self._writer.start(write)
        # The caller gets errors at once.
        if not self._in_background:
            self._writer.wait()

    def busy(self) -> bool:
        """Whether this process is still writing."""
        return self._writer.busy()

    def finish(self) -> None:
        """Wait for the thread."""
        self._writer.wait()
