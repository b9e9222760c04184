"""Going on from what `ModelCheckpoint` has saved: which file, agreed on by all ranks, and what it must say besides weights.

Every rank lists the files that it finds; the newest epoch and step that all of them have is loaded by all. A rank that was
killed before it had written its file thus takes the others back to the checkpoint before. A file that is there is whole
(`base.atomic_file`), so none is ever half read.

Which checkpoint files are this job's own, on a cluster whose jobs have ids (SPORAX_JOB_ID, which the operator sets).

A run that goes on because of the environment alone (MS_ENABLE_RECOVERY=1) must not go on from what an earlier job has left in
the same folder: it would find its work done. So a job notes, in a hidden file that carries its id, under which prefix it saves;
a job without such a note takes a prefix that no file has and trains from the start. `Model.train(resume=True)` is the user's
own word and goes on from whatever is there.

`BackupAndRestore`: goes on where a run that was interrupted stood.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from sporax.base import atomic_write
from sporax.base.errors import For
from sporax.cluster import RECOVERY_VARIABLE, RESUME
from sporax.ir import variables
from sporax.mindspore import context
from sporax.mindspore.common import Tensor, seed
from sporax.mindspore.train import _ranks
from sporax.mindspore.train.callback._callback import Callback, RunContext
from sporax.mindspore.train.serialization import load_checkpoint, save_checkpoint
from sporax.runtime.state import frames

POSITION = "sporax.position"
"""Entry of a file: the step, and the state of the random numbers of operators."""

_MOST_FILES = 64
"""How many of its newest files a rank reports to the others."""


def in_recovery() -> bool:
    """Whether the environment requests runs that go on (MS_ENABLE_RECOVERY=1)."""
    return variables.read(os.environ, RECOVERY_VARIABLE) == "1"


def is_resume_requested() -> bool:
    """Whether the command line requests a run that goes on (`sporax run --resume`)."""
    return variables.read(os.environ, RESUME) == "1"


def position(step: int) -> Tensor:
    """What is to be kept of this moment besides Parameters."""
    random = np.asarray(seed.operators.raw).astype(np.uint32)
    # One array for both, as a checkpoint's entries are arrays.
    return Tensor(np.concatenate([np.asarray([step], np.uint32), random]))


def newest_common_file(
    directory: Path, prefix: str, suffix: str, *, exactly: bool = False
) -> tuple[Path, tuple[int, int]] | None:
    """The newest file that every rank has, with its epoch and step; None where there is none. All ranks must call it.

    Args:
        directory: where the files are.
        prefix: what their names begin with.
        suffix: what their names end with.
        exactly: leave out files that later runs wrote as `prefix_1` and so on.
    """
    number = "" if exactly else r"(?:_\d+)?"
    pattern = re.compile(re.escape(prefix) + number + r"-(\d+)_(\d+)\." + suffix)
    files: dict[tuple[int, int], Path] = {}
    # In the order of their times: of two files for one step the newer one counts.
    for path in sorted(directory.iterdir(), key=_written) if directory.is_dir() else []:
        match = pattern.fullmatch(path.name)
        if match:
            files[int(match[1]), int(match[2])] = path
    # Older ones are never the newest that all have.
    newest = sorted(files)[-_MOST_FILES:]
    common = _ranks.common_pairs(newest, _MOST_FILES)
    return (files[common[-1]], common[-1]) if common else None


def _written(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:  # deleted by another rank that shares the directory
        return 0


def resume_from(path: Path, network: Any, step: int = 0, is_part: bool = False) -> int:
    """Load a file into the training network, with the random numbers of that moment; a line says what is not in it.

    Args:
        path: the file.
        network: the training network.
        step: after which it was written, where it does not say so itself.
        is_part: `saved_network` leaves out a part of the training network.

    Returns:
        The step after which it was written.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Parameters that are not in the file are reported below
        parameters = load_checkpoint(str(path), network)
    stored = parameters.get(POSITION)
    missing = [item.name for _, item in network.parameters_and_names() if item.name not in parameters]
    if stored is not None:
        values = stored.asnumpy()
        # Behind the step are the words of the random state.
        frames.put(seed.operators, values[1:].astype(np.uint32))
        step = int(values[0])
    states = []
    if missing:
        states.append(f"{len(missing)} Parameters such as '{missing[0]}' (state of the optimizer), which begin again")
    if stored is None:
        states.append("random numbers, so dropout and shuffles differ from those of a run without a stop")
    if states and _ranks.rank() == 0:
        is_short = bool(missing) and is_part
        later = "'saved_network' leaves the former out of later ones, too" if is_short else "Later ones have them"
        print(
            f"sporax: training goes on after step {step}, from '{path}'. Not in this file: {'; '.join(states)}. {later}.",
            file=sys.stderr,
            flush=True,
        )
    return step


def saved_step(path: Path) -> int:
    """The step after which a file was written; 0 where it does not say."""
    stored = load_checkpoint(str(path)).get(POSITION)
    return 0 if stored is None else int(stored.asnumpy()[0])


def job_id() -> str:
    """The id of this process's job; "" where it has none."""
    return str(variables.read(os.environ, "SPORAX_JOB_ID"))


def own_prefix(directory: Path, prefix: str, unused: str, job: str) -> str:
    """The prefix under which a job saves in a directory. All ranks must call it.

    Args:
        directory: where files go.
        prefix: what the user calls them.
        unused: the prefix to take, and to note, where the job has none yet.
        job: its id.
    """
    note = directory / f".{prefix}.{job}.job"
    known = _content(note)
    # No rank saves before all of those that share the directory have chosen.
    _ranks.any_rank(False)
    if not known:
        _write(note, unused)
    return known or unused


def is_own(file: Path, job: str) -> bool:
    """Whether a job has noted that it wrote a file."""
    return _content(_note_of(file)) == job


def note_own(file: Path, job: str) -> None:
    """Note which job has written a file."""
    _write(_note_of(file), job)


def _note_of(file: Path) -> Path:
    return file.with_name(f".{file.name}.job")


def _content(note: Path) -> str:
    return note.read_text(encoding="utf-8") if note.is_file() else ""


def _write(note: Path, text: str) -> None:
    with atomic_write(note) as file:
        file.write(text.encode())


class BackupAndRestore(Callback):
    """Saves the training network after epochs, and loads what an earlier run saved.

    Args:
        backup_dir: directory of the file ``backup.ckpt``; made if needed.
        save_freq: ``"epoch"``, or every so many epochs.
        delete_checkpoint: delete the file when training ends as planned.

    Raises:
        SporaxTypeError, SporaxValueError: an argument is not valid.
    """

    def __init__(self, backup_dir: str, save_freq: Any = "epoch", delete_checkpoint: bool = True) -> None:
        For("BackupAndRestore").typed("backup_dir", backup_dir, "a string", str)
        self.save_freq = 1 if save_freq == "epoch" else For("BackupAndRestore").integer("save_freq", save_freq, 1)
        self.delete_checkpoint = For("BackupAndRestore").boolean("delete_checkpoint", delete_checkpoint)
        directory = Path(os.path.realpath(backup_dir))
        # A run that is only planned leaves no files.
        if not context.plans_only():
            directory.mkdir(parents=True, exist_ok=True)
        self.backup_file = str(directory / "backup.ckpt")

    def on_train_begin(self, run_context: RunContext) -> None:
        """Load what is there."""
        # As MindSpore: what is there is from an interrupted run.
        if os.path.exists(self.backup_file):
            load_checkpoint(self.backup_file, net=run_context.original_args().train_network)

    def on_train_epoch_end(self, run_context: RunContext) -> None:
        """Save, if it is this epoch's turn."""
        facts = run_context.original_args()
        if facts.cur_epoch_num % self.save_freq == 0:
            save_checkpoint(facts.train_network, self.backup_file)

    def on_train_end(self, run_context: RunContext) -> None:
        """Delete the file, if that was requested."""
        if self.delete_checkpoint:
            Path(self.backup_file).unlink(missing_ok=True)
