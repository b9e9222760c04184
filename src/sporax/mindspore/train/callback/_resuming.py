"""Going on from what `ModelCheckpoint` has saved: which file, agreed on by all ranks, and what it must say besides weights.

Every rank lists the files that it finds; the newest epoch and step that all of them have is loaded by all. A rank that was
killed before it had written its file thus takes the others back to the checkpoint before. A file that is there is whole
(`base.atomic_file`), so none is ever half read.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from sporax.cluster.environment import RECOVERY_VARIABLE, RESUME
from sporax.ir.variables import read
from sporax.mindspore.common import seed
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.train import _ranks
from sporax.mindspore.train.serialization import load_checkpoint
from sporax.runtime.state import frames

POSITION = "sporax.position"
"""Entry of a file: the step, and the state of the random numbers of operators."""

_MOST_FILES = 64
"""How many of its newest files a rank tells the others of."""


def in_recovery() -> bool:
    """Whether the environment asks for runs that go on (MS_ENABLE_RECOVERY=1)."""
    return read(os.environ, RECOVERY_VARIABLE) == "1"


def asked_to_resume() -> bool:
    """Whether the command line asks for a run that goes on (`sporax run --resume`)."""
    return read(os.environ, RESUME) == "1"


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


def resume_from(path: Path, network: Any, step: int = 0) -> int:
    """Load a file into the training network, with the random numbers of that moment; a line says what is not in it.

    Args:
        path: the file.
        network: the training network.
        step: after which it was written, where it does not say so itself.

    Returns:
        The step after which it was written.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Parameters that are not in the file are told below
        parameters = load_checkpoint(str(path), network)
    stored = parameters.get(POSITION)
    missing = [item.name for _, item in network.parameters_and_names() if item.name not in parameters]
    if stored is not None:
        values = stored.asnumpy()
        # Behind the step are the words of the random state.
        frames.put(seed.operators, values[1:].astype(np.uint32))
        step = int(values[0])
    if (missing or stored is None) and _ranks.rank() == 0:
        states = (
            [f"{len(missing)} Parameters such as '{missing[0]}' (state of the optimizer), which begin again"]
            if missing
            else []
        )
        states += (
            ["random numbers, so dropout and shuffles differ from those of a run without a stop"]
            if stored is None
            else []
        )
        print(
            f"sporax: training goes on after step {step}, from '{path}'. Not in this file: {'; '.join(states)}. "
            "Checkpoints from now on have them.",
            file=sys.stderr,
            flush=True,
        )
    return step


def saved_step(path: Path) -> int:
    """The step after which a file was written; 0 where it does not say."""
    stored = load_checkpoint(str(path)).get(POSITION)
    return 0 if stored is None else int(stored.asnumpy()[0])
