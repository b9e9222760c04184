"""Checkpoints of training in Orbax's format, for paths that are no directories: ``gs://bucket/run``, ``s3://bucket/run``.

Orbax (extra ``orbax``) writes each shard once through TensorStore, which speaks to cloud storage, and commits a step when all
processes have written. Here is what is between it and a network: which arrays it gets, and which sharding restored ones have.
A Parameter is one entry of a flat tree, under its own name, so that JAX programs without Sporax can read it.

Reference: https://orbax.readthedocs.io
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding

from sporax.base.errors import For, SporaxImportError, SporaxNotImplementedError
from sporax.mindspore.common.tensor import wrap
from sporax.mindspore.nn.cell import Cell
from sporax.mindspore.train import _ranks
from sporax.mindspore.train._apply import sharding_of
from sporax.mindspore.train.checkpoint.loading import fitting_parameters, warn_of_missing
from sporax.mindspore.train.checkpoint.stores import Facts
from sporax.runtime.state import frames
from sporax.runtime.storage import StoredTensor

_WHERE = "ResumableCheckpoint"
_STATE, _FACTS = "state", "facts"


def orbax() -> Any:
    """Orbax's package of checkpoints.

    Raises:
        SporaxImportError: it is not installed.
    """
    try:
        # An optional package, imported at its first use.
        return importlib.import_module("orbax.checkpoint")
    except ImportError as error:
        raise SporaxImportError(
            f"For '{_WHERE}', backend='orbax' must come with the package orbax-checkpoint, but it cannot be imported: {error}. "
            "Install it with: pip install 'sporax[orbax]'."
        ) from None


class OrbaxStore:
    """Checkpoints that Orbax writes and reads.

    Args:
        directory: path or URL, the same on all processes.
        keep: how many complete ones stay; 0 for all.
        in_background: write in Orbax's threads.
        timeout_seconds: how long writing may take.

    Raises:
        SporaxImportError: Orbax is not installed.
    """

    def __init__(self, directory: str, keep: int, in_background: bool, timeout_seconds: int) -> None:
        self._orbax = orbax()
        self._directory = directory
        self._options = self._orbax.CheckpointManagerOptions(
            # Orbax takes None for all.
            max_to_keep=keep or None,
            step_prefix="step",
            # Folders of Orbax are called as those of `DirectoryStore`.
            enable_async_checkpointing=in_background,
            cleanup_tmp_directories=True,
            async_options=self._orbax.AsyncOptions(timeout_secs=timeout_seconds),
        )
        self._manager: Any = None

    def _managed(self) -> Any:
        """Orbax's manager, made at its first use: in a job of several processes after they have been joined."""
        if self._manager is None:
            # Parameters in Orbax's format of trees, the facts as JSON.
            handlers = {_STATE: self._orbax.PyTreeCheckpointHandler(), _FACTS: self._orbax.JsonCheckpointHandler()}
            self._manager = self._orbax.CheckpointManager(
                self._directory, options=self._options, item_handlers=handlers
            )
        return self._manager

    def open(self) -> None:
        """Make the directory; Orbax removes what is incomplete."""
        self._managed().reload()

    def newest(self) -> str:
        """Path of the newest complete checkpoint."""
        step = self._managed().latest_step()
        return "" if step is None else f"{self._directory}/step_{step}"

    def load(self, network: Cell, check: Callable[[Facts], None]) -> Facts | None:
        """Every device gets its own block where a step has placed the Parameter; else it is read whole."""
        step = self._managed().latest_step()
        if step is None:
            return None
        arguments = self._orbax.args
        # Facts first: they say whether the state fits at all.
        written = self._managed().restore(step, args=arguments.Composite(**{_FACTS: arguments.JsonRestore()}))
        facts = dict(written[_FACTS])
        check(facts)
        tree = self._managed().item_metadata(step)[_STATE].tree
        specs = {name: StoredTensor(name, tuple(stored.shape), np.dtype(stored.dtype)) for name, stored in tree.items()}
        targets = fitting_parameters(_WHERE, specs, network, strict=True)
        shapes, how = {}, {}
        for name, spec in specs.items():
            sharding = sharding_of(targets[name]) if name in targets else None
            # Orbax needs the shape of every entry, also of those that are not used.
            shapes[name] = jax.ShapeDtypeStruct(spec.shape, spec.dtype)
            how[name] = (
                # Without a sharding Orbax would use that of the job that saved, whose devices may not exist.
                self._orbax.RestoreArgs(restore_type=np.ndarray)
                if sharding is None
                else self._orbax.ArrayRestoreArgs(sharding=sharding, global_shape=spec.shape, dtype=spec.dtype)
            )
        restored = self._managed().restore(
            step, args=arguments.Composite(**{_STATE: arguments.PyTreeRestore(item=shapes, restore_args=how)})
        )
        for name, target in targets.items():
            target.set_data(wrap(jax.numpy.asarray(restored[_STATE][name])))
        warn_of_missing(_WHERE, network, targets)
        return facts

    def save(self, step: int, network: Cell, facts: Mapping[str, Any]) -> None:
        """Hand the arrays to Orbax, which copies them to the host before it returns.

        Raises:
            SporaxNotImplementedError: a Parameter is in a form that Orbax does not know.
            SporaxRuntimeError: Orbax left the step out.
        """
        arguments = self._orbax.args
        tree = {parameter.name: _stored(parameter) for parameter in network.get_parameters()}
        saved = self._managed().save(
            step,
            args=arguments.Composite(**{_STATE: arguments.PyTreeSave(tree), _FACTS: arguments.JsonSave(dict(facts))}),
            # `force`: Orbax would skip steps at which its own schedule does not save.
            force=True,
        )
        For(_WHERE).refuse_state(not saved, f"Orbax did not save step {step} to '{self._directory}'")

    def busy(self) -> bool:
        """Whether Orbax is still writing."""
        return bool(self._managed().is_saving_in_progress())

    def finish(self) -> None:
        """Wait until the last step is committed."""
        self._managed().wait_until_finished()
        self._managed().check_for_errors()


def _stored(parameter: Any) -> Any:
    """What Orbax gets of a Parameter: a sharded array, or the values of one that every process has for itself."""
    if frames.slot(parameter, "parts") is not None:
        raise SporaxNotImplementedError(
            f"For '{_WHERE}', backend='orbax' takes even slices, but parameter '{parameter.name}' is in uneven ones "
            "(manual_split); use backend='files'."
        )
    array = parameter.raw
    if not isinstance(array.sharding, NamedSharding):
        # Every device of the process has the same values.
        return np.asarray(array.addressable_data(0))
    if _ranks.is_on_some(array):
        raise SporaxNotImplementedError(
            f"For '{_WHERE}', backend='orbax' takes Parameters that all processes hold, but '{parameter.name}' belongs to a "
            "pipeline stage of some; use backend='files'."
        )
    return array
