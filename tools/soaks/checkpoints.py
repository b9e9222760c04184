"""Checkpoints whose process is killed, or whose file is changed."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any

import numpy as np

import sporax.mindspore as ms
from soaks.scenario import SURVIVED, Scenario, Trial
from sporax.mindspore import Parameter, Tensor
from sporax.mindspore.train import serialization

_TYPES = ("ckpt", "safetensors")
_LONGEST_WRITE_SECONDS = 0.03


def kill(trial: Trial, case: Any) -> str:
    """A process that saves again and again is killed; the file must be one of those that it saved, complete."""
    draw = trial.draw
    suffix = draw.choice(_TYPES)
    path = trial.folder / f"killed.{suffix}"
    size = draw.choice([10, 1_000, 300_000])
    _save(path, 0, size)
    # This process has no threads of XLA, which a fork would lose.
    child = os.fork()
    if child == 0:
        for number in range(1, 1_000_000):
            _save(path, number, size)
    time.sleep(draw.random() * _LONGEST_WRITE_SECONDS)
    trial.faults.send(child, "of a process that saves")
    os.waitpid(child, 0)
    entries, check = serialization._parsed(path, suffix, False)
    check()
    (values,) = [entry.value for entry in entries]
    if values.shape != (size,) or len(set(values.tolist())) != 1:
        raise AssertionError(f"a torn file of {size} values")
    return SURVIVED


def _save(path: Path, number: int, size: int) -> None:
    serialization._unsliced_work(path, {"weight": np.full(size, number, np.int64)}, [])()


def change(trial: Trial, case: Any) -> str:
    """A file with changed, lost or doubled bytes is refused by its name, or holds what was saved."""
    draw = trial.draw
    path = trial.folder / f"changed.{draw.choice(_TYPES)}"
    saved = {f"p{n}": np.arange(draw.randint(0, 30), dtype=np.float32) + n for n in range(draw.randint(1, 5))}
    ms.save_checkpoint([Parameter(Tensor(value), name=name) for name, value in saved.items() if value.size], str(path))
    content = bytearray(path.read_bytes())
    position, how = _damage(draw, content)
    path.write_bytes(content)
    try:
        loaded = ms.load_checkpoint(str(path))
    except ValueError as error:
        if path.name not in str(error):
            raise AssertionError(f"the message does not name the file: {error}") from error
        return SURVIVED
    for name, parameter in loaded.items():
        if not np.array_equal(parameter.asnumpy(), saved[name]):
            raise AssertionError(f"'{name}' was loaded with other values ({how} at {position})")
    return SURVIVED


def _damage(draw: random.Random, content: bytearray) -> tuple[int, str]:
    """Change bytes; where and how."""
    position = draw.randrange(len(content))
    how = draw.choice(["flip", "lose", "double", "zero", "insert"])
    if how == "flip":
        content[position] ^= 1 << draw.randrange(8)
    elif how == "lose":
        del content[position : position + draw.randint(1, 40)]
    elif how == "double":
        content[position:position] = content[position : position + draw.randint(1, 40)]
    elif how == "zero":
        content[position : position + 8] = bytes(len(content[position : position + 8]))
    else:
        content[position:position] = draw.randbytes(draw.randint(1, 16))
    return position, how


KILLS_SCENARIO = Scenario("kills", kill, cases=192)
FILES_SCENARIO = Scenario("files", change, cases=192)
