"""`ResumableCheckpoint`: saves the whole state of training in slices, and goes on from the newest complete checkpoint.

The state is that of the training network (weights, optimizer, loss scale, step), the stream of random numbers, and the number
of steps. A run that is started again with the same script loads it, and its data pipeline is read up to the same place,
so that the steps that follow are those of a run that was never interrupted.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import jax
import numpy as np

from sporax import context
from sporax.common import seed
from sporax.ir.errors import SporaxTypeError, SporaxValueError
from sporax.runtime import state
from sporax.train import _ranks
from sporax.train._background import BackgroundWriter
from sporax.train._checks import check_bool, check_count, check_text
from sporax.train.callback._callback import Callback, RunContext
from sporax.train.callback._model_checkpoint import ModelCheckpoint
from sporax.train.checkpoint.directory import (
    PREFIX,
    complete,
    latest_checkpoint,
    open_directory,
    remove_incomplete,
    write_slices,
)
from sporax.train.checkpoint.loading import load_source_into_net
from sporax.train.checkpoint.slice_files import held_slices, this_rank

_WHERE = "ResumableCheckpoint"


class ResumableCheckpoint(Callback):
    """Saves the state of training every so many steps, and resumes from it.

    Each process writes the slices that it owns to ``<directory>/step_<N>/rank_<R>.safetensors``; all processes must see the
    directory. A checkpoint counts once all ranks have written. Loading works under any other strategy and number of devices.

    Args:
        directory: where checkpoints go; made if needed.
        save_steps: save every so many steps, and at the end.
        keep: how many complete checkpoints stay; 0 for all.
        async_save: copy to the host and write in a thread while training goes on.
        when_busy: if the save before is still being written: ``"wait"`` for it, or ``"skip"`` this one.
        resume: go on from the newest complete checkpoint, if there is one.
        timeout_seconds: how long rank 0 waits for the files of the others.

    Raises:
        SporaxTypeError, SporaxValueError: an argument is not valid.
    """

    hears_evaluation_in_fit = False

    def __init__(
        self,
        directory: str,
        save_steps: int = 1000,
        keep: int = 3,
        async_save: bool = True,
        when_busy: str = "wait",
        resume: bool = True,
        timeout_seconds: int = 600,
    ) -> None:
        if not isinstance(directory, str) or not directory:
            raise SporaxTypeError(f"For '{_WHERE}', 'directory' must be a path, but got {directory!r}.")
        self._directory = Path(os.path.realpath(directory))
        self._save_steps = check_count(_WHERE, "save_steps", save_steps, minimum=1)
        self._keep = check_count(_WHERE, "keep", keep, minimum=0)
        self._async = check_bool(_WHERE, "async_save", async_save)
        self._skips = check_text(_WHERE, "when_busy", when_busy, ("wait", "skip")) == "skip"
        self._resume = check_bool(_WHERE, "resume", resume)
        self._timeout = check_count(_WHERE, "timeout_seconds", timeout_seconds, minimum=1)
        self._writer = BackgroundWriter()
        self._saved_step = 0

    @property
    def latest(self) -> str:
        """The newest complete checkpoint; "" where there is none."""
        folder = latest_checkpoint(self._directory)
        return str(folder) if folder else ""

    def on_train_begin(self, run_context: RunContext) -> None:
        """Load the newest complete checkpoint; the loop then goes on behind its step."""
        if context.plans_only():
            return
        self._directory.mkdir(parents=True, exist_ok=True)
        facts = run_context.original_args()
        if _ranks.rank() == 0:
            remove_incomplete(self._directory)
        _ranks.any_rank(False)  # no rank looks, or writes, before that is done
        resumes = self._resume or bool(facts.get("resume"))
        folder = latest_checkpoint(self._directory) if resumes else None
        if folder is None:
            return
        source = open_directory(folder)
        load_source_into_net(_WHERE, source, facts.train_network, strict=True)
        kept = source.facts.get(_ranks.rank(), source.facts[0])
        state.put(seed.operators, np.asarray(kept["random"], np.uint32))  # type: ignore[arg-type]  # a Variable takes numpy arrays too
        facts.resume_step = self._saved_step = int(kept["step"])

    def on_train_step_end(self, run_context: RunContext) -> None:
        """Save, if it is time to."""
        facts = run_context.original_args()
        if facts.cur_step_num >= self._saved_step + self._save_steps and not context.plans_only():
            if self._skips and _ranks.any_rank(self._writer.busy()):
                return
            self._save(facts)

    def on_train_end(self, run_context: RunContext) -> None:
        """Save the last state, and wait until it is complete."""
        facts = run_context.original_args()
        if facts.cur_step_num != self._saved_step and not context.plans_only():
            self._save(facts)
        self._writer.wait()

    def _save(self, facts: Any) -> None:
        rank, num_ranks = _ranks.rank(), jax.process_count()
        step = int(facts.cur_step_num)
        parameters = {parameter.name: parameter for parameter in facts.train_network.get_parameters()}
        slices = list(held_slices(parameters, this_rank(), once=True))
        kept = {"step": step, "random": np.asarray(seed.operators.raw).tolist()}
        folder = self._directory / f"{PREFIX}{step}"

        def write() -> None:
            write_slices(folder, rank, slices, kept)
            if rank == 0:
                complete(folder, num_ranks, self._timeout, self._keep)

        self._writer.start(write)
        if not self._async:
            self._writer.wait()
        self._saved_step = step


def check_resume(resume: Any, callbacks: list[Callback]) -> bool:
    """`resume` of `Model.train`.

    Raises:
        SporaxTypeError: it is no bool.
        SporaxValueError: no callback saves what could be resumed from.
    """
    able = any(isinstance(callback, ResumableCheckpoint | ModelCheckpoint) for callback in callbacks)
    if check_bool("Model.train", "resume", resume) and not able:
        raise SporaxValueError(
            "For 'Model.train', 'resume' must come with a ResumableCheckpoint or ModelCheckpoint among 'callbacks', but there is "
            "none."
        )
    return bool(resume)
