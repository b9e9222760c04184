"""Where `ResumableCheckpoint` keeps the state of training: the seam between the callback and what writes files.

| store | where | written by |
|---|---|---|
| `DirectoryStore` | a directory that all processes see | this package, `directory` |
| `orbax_store.OrbaxStore` | a directory, or a cloud path | Orbax |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import jax

from sporax.mindspore._names.missing import late
from sporax.mindspore.nn.cell import Cell
from sporax.mindspore.train import _ranks
from sporax.mindspore.train._apply import load_param_into_net
from sporax.mindspore.train._background import BackgroundWriter
from sporax.mindspore.train._stored.deferred import StoredValues, deferred_parameter
from sporax.mindspore.train.checkpoint.directory import PREFIX, complete, latest_checkpoint, remove_incomplete
from sporax.runtime.storage.slice_directory import open_directory, write_slices
from sporax.runtime.storage.slices import held_slices, this_rank

# `Model` asks for this module; a run that starts afresh needs no reader of strategies and slices.
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
    """Checkpoints as `checkpoint.directory` describes them.

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
        source = open_directory("ResumableCheckpoint", folder, verify=is_alone)
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
        slices = list(held_slices(parameters, this_rank(), once=True))
        folder = self._directory / f"{PREFIX}{step}"

        def write() -> None:
            write_slices(folder / f"rank_{rank}.safetensors", slices, facts)
            # The marker must come last, so the one that writes it waits for all.
            if rank == 0:
                complete(folder, num_ranks, self._timeout, self._keep)

        self._writer.start(write)
        # The caller hears of errors at once.
        if not self._in_background:
            self._writer.wait()

    def busy(self) -> bool:
        """Whether this process is still writing."""
        return self._writer.busy()

    def finish(self) -> None:
        """Wait for the thread."""
        self._writer.wait()
