"""`ResumableCheckpoint`: saves the whole state of training in slices, and goes on from the newest complete checkpoint.

The state is that of the training network (weights, optimizer, loss scale, step), the stream of random numbers, and the number
of steps. A run that is started again with the same script loads it, and its data pipeline is read up to the same place,
so that the steps that follow are those of a run that was never interrupted.
"""

from __future__ import annotations

import os
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from sporax.base.errors import For, SporaxTypeError, SporaxValueError
from sporax.mindspore import context
from sporax.mindspore.common import seed
from sporax.mindspore.train import _ranks
from sporax.mindspore.train.callback._callback import Callback, RunContext
from sporax.mindspore.train.callback._model_checkpoint import ModelCheckpoint
from sporax.mindspore.train.callback._resuming import job_id
from sporax.mindspore.train.checkpoint.stores import DirectoryStore, Facts, Store
from sporax.runtime.session import SESSION
from sporax.runtime.state import frames

_WHERE = "ResumableCheckpoint"


class ResumableCheckpoint(Callback):
    """Saves the state of training every so many steps, and resumes from it.

    Each process writes the slices that it owns to ``<directory>/step_<N>/rank_<R>.safetensors``; all processes must see the
    directory. A checkpoint counts once all ranks have written. Loading works under any other strategy and number of devices.

    Args:
        directory: where checkpoints go; made if needed. With ``backend="orbax"`` also a cloud path (``gs://bucket/run``).
        save_steps: save every so many steps, and at the end.
        keep: how many complete checkpoints stay; 0 for all.
        async_save: copy to the host and write in a thread while training goes on.
        when_busy: if the save before is still being written: ``"wait"`` for it, or ``"skip"`` this one.
        resume: go on from the newest complete checkpoint, if there is one.
        timeout_seconds: how long rank 0 waits for the files of the others.
        backend: ``"files"``, or ``"orbax"``: Orbax writes and reads, in its own format.

    Raises:
        SporaxTypeError, SporaxValueError: an argument is not valid.
        SporaxImportError: ``backend="orbax"`` without the package.
    """

    receives_evaluation_in_fit = False

    def __init__(
        self,
        directory: str,
        save_steps: int = 1000,
        keep: int = 3,
        async_save: bool = True,
        when_busy: str = "wait",
        resume: bool = True,
        timeout_seconds: int = 600,
        backend: str = "files",
    ) -> None:
        if not isinstance(directory, str) or not directory:
            raise SporaxTypeError(f"For '{_WHERE}', 'directory' must be a path, but got {directory!r}.")
        self._save_steps = For(_WHERE).integer("save_steps", save_steps, 1)
        keep = For(_WHERE).integer("keep", keep, 0)
        in_background = For(_WHERE).boolean("async_save", async_save)
        self._skips = For(_WHERE).text("when_busy", when_busy, ("wait", "skip")) == "skip"
        self._resume = For(_WHERE).boolean("resume", resume)
        timeout = For(_WHERE).integer("timeout_seconds", timeout_seconds, 1)
        with_orbax = For(_WHERE).text("backend", backend, ("files", "orbax")) == "orbax"
        # Only Orbax knows cloud paths.
        is_url = "://" in directory
        if is_url and not with_orbax:
            raise SporaxValueError(
                f"For '{_WHERE}', 'directory' must be a path of the file system with backend='files', but got '{directory}'; "
                "backend='orbax' writes to cloud paths."
            )
        place = directory if is_url else os.path.realpath(directory)
        self._store: Store = (
            _orbax_store(place, keep, in_background, timeout)
            if with_orbax
            else DirectoryStore(Path(place), keep, in_background, timeout)
        )
        self._saved_step = 0

    @property
    def latest(self) -> str:
        """The newest complete checkpoint; "" where there is none."""
        return self._store.newest()

    def on_train_begin(self, run_context: RunContext) -> None:
        """Load the newest complete checkpoint; the loop then goes on behind its step."""
        if context.plans_only():
            return
        facts = run_context.original_args()
        self._store.open()
        if not self._resume and not facts.get("resume"):
            return
        job = "" if self._resume else facts.get("resume_job", "")
        try:
            # Whose it is, and the number of steps, are checked before anything is loaded.
            stored = self._store.load(facts.train_network, partial(_check_facts, facts.batch_num, job))
        except _OfAnotherJobError:
            return
        if stored is None:
            return
        # The stream of random numbers goes on where it was.
        frames.put(seed.operators, np.asarray(stored["random"], np.uint32))
        facts.resume_step = self._saved_step = int(stored["step"])

    def on_train_step_end(self, run_context: RunContext) -> None:
        """Save, if it is time to."""
        facts = run_context.original_args()
        if facts.cur_step_num >= self._saved_step + self._save_steps and not context.plans_only():
            # All ranks skip, or none: a checkpoint needs all of their files.
            if self._skips and _ranks.any_rank(self._store.busy()):
                return
            self._save(facts)

    def on_train_end(self, run_context: RunContext) -> None:
        """Save the last state, and wait until it is complete."""
        facts = run_context.original_args()
        if context.plans_only():
            return
        if facts.cur_step_num != self._saved_step:
            self._save(facts)
        self._store.finish()

    def _save(self, facts: Any) -> None:
        step = int(facts.cur_step_num)
        stored = {
            "step": step,
            "random": np.asarray(seed.operators.raw).tolist(),
            "batch_num": int(facts.batch_num),
            "ranks": jax.process_count(),
            "job": job_id(),
        }
        self._store.save(step, facts.train_network, stored)
        self._saved_step = step


class _OfAnotherJobError(Exception):
    """A checkpoint was written by another job than the one that may go on from it."""


def _check_facts(batch_num: int, job: str, stored: Facts) -> None:
    """Raise unless a checkpoint is one of a job, where one is given, and fits this run."""
    if job and stored.get("job", "") != job:
        raise _OfAnotherJobError
    _check_epoch(batch_num, stored)


def _check_epoch(batch_num: int, stored: Facts) -> None:
    """Raise unless an epoch has as many steps as when the checkpoint was saved, so that the place in the data is the same."""
    saved = stored.get("batch_num", batch_num)
    # The place in the data is counted in steps.
    if saved != batch_num:
        raise SporaxValueError(
            f"For '{_WHERE}', an epoch must have {saved} steps, as when step {stored['step']} was saved by {stored['ranks']} "
            f"rank(s), but the data set has {batch_num} for each of {jax.process_count()} rank(s). The batch of all ranks must "
            "stay the same, so it must divide by the number of ranks."
        )


def _orbax_store(directory: str, keep: int, in_background: bool, timeout_seconds: int) -> Store:
    # An optional package, imported where it is requested.
    from sporax.mindspore.train.checkpoint.orbax_store import OrbaxStore

    return OrbaxStore(directory, keep, in_background, timeout_seconds)


def check_resume(resume: object, callbacks: list[Callback], requested: bool) -> bool:
    """`resume` of `Model.train`.

    Args:
        resume: of the call.
        callbacks: of the call.
        requested: whether the command line requests it; then a training that saves nothing begins, with a warning.

    Raises:
        SporaxTypeError: it is no bool.
        SporaxValueError: no callback saves what could be resumed from.
    """
    SESSION.looked_for_checkpoint = True
    able = any(isinstance(callback, ResumableCheckpoint | ModelCheckpoint) for callback in callbacks)
    if For("Model.train").boolean("resume", resume) and not able:
        raise For("Model.train").error(
            "'resume' must come with a ResumableCheckpoint or ModelCheckpoint among 'callbacks', but there is none"
        )
    if requested and not able:
        warnings.warn(
            "For 'Model.train', `sporax run --resume` has no effect without a ResumableCheckpoint or ModelCheckpoint among "
            "'callbacks': training begins.",
            stacklevel=4,
        )
    return bool(resume)
