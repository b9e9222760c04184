"""Which checkpoint files are this job's own, on a cluster whose jobs have ids (SPORAX_JOB_ID, which the operator sets).

A run that goes on because of the environment alone (MS_ENABLE_RECOVERY=1) must not go on from what an earlier job has left in
the same folder: it would find its work done. So a job notes, in a hidden file that carries its id, under which prefix it saves;
a job without such a note takes a prefix that no file has and trains from the start. `Model.train(resume=True)` is the user's
own word and goes on from whatever is there.
"""

from __future__ import annotations

import os
from pathlib import Path

from sporax.base.atomic_file import atomic_write
from sporax.ir.variables import read
from sporax.mindspore.train import _ranks


def job_id() -> str:
    """The id of this process's job; "" where it has none."""
    return str(read(os.environ, "SPORAX_JOB_ID"))


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
