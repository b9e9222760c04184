"""Long trials with a seed: kills while checkpoints are saved, changed files, eight devices against one, ends of ranks.

Each case is drawn from the seed and its own number alone, so one that fails can be run again:
``--only fuzz --first 17 --cases 1``.

Run: python tools/soak.py [--seed 0] [--cases 600] [--only kills|files|fuzz|jobs] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8".strip()

import numpy as np
from soak_jobs import end_of_a_rank

import sporax.mindspore as ms
from sporax.mindspore import Parameter, Tensor, context, nn, ops
from sporax.mindspore.train import serialization

KINDS = ("ckpt", "safetensors")
_LONGEST_WRITE_SECONDS = 0.03


def kill(draw: random.Random, folder: Path) -> None:
    """A process that saves again and again is killed; the file must be one of those that it saved, whole."""
    kind = draw.choice(KINDS)
    path = folder / f"killed.{kind}"
    size = draw.choice([10, 1_000, 300_000])
    _save(path, 0, size)
    child = os.fork()
    if child == 0:
        for number in range(1, 1_000_000):
            _save(path, number, size)
    time.sleep(draw.random() * _LONGEST_WRITE_SECONDS)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    entries, check = serialization._parsed(path, kind, False)
    check()
    (values,) = [entry.value for entry in entries]
    if values.shape != (size,) or len(set(values.tolist())) != 1:
        raise AssertionError(f"a torn file of {size} values")


def _save(path: Path, number: int, size: int) -> None:
    serialization._unsliced_work(path, {"weight": np.full(size, number, np.int64)}, [])()


def changed_file(draw: random.Random, folder: Path) -> None:
    """A file with changed, lost or doubled bytes is refused by its name, or holds what was saved."""
    kind = draw.choice(KINDS)
    path = folder / f"changed.{kind}"
    saved = {f"p{n}": np.arange(draw.randint(0, 30), dtype=np.float32) + n for n in range(draw.randint(1, 5))}
    ms.save_checkpoint([Parameter(Tensor(value), name=name) for name, value in saved.items() if value.size], str(path))
    content = bytearray(path.read_bytes())
    place = draw.randrange(len(content))
    how = draw.choice(["flip", "cut", "double", "zero", "insert"])
    if how == "flip":
        content[place] ^= 1 << draw.randrange(8)
    elif how == "cut":
        del content[place : place + draw.randint(1, 40)]
    elif how == "double":
        content[place:place] = content[place : place + draw.randint(1, 40)]
    elif how == "zero":
        content[place : place + 8] = bytes(len(content[place : place + 8]))
    else:
        content[place:place] = draw.randbytes(draw.randint(1, 16))
    path.write_bytes(content)
    try:
        loaded = ms.load_checkpoint(str(path))
    except ValueError as error:
        if path.name not in str(error):
            raise AssertionError(f"the message does not name the file: {error}") from error
        return
    for name, parameter in loaded.items():
        if not np.array_equal(parameter.asnumpy(), saved[name]):
            raise AssertionError(f"'{name}' was loaded with other values ({how} at {place})")


WIDTH = 16
Layer = tuple[str, Any]


class Network(nn.Cell):
    """A chain of operators, each with the strategy that was drawn for it."""

    def __init__(self, layers: list[Layer], values: np.random.Generator) -> None:
        super().__init__()
        self.layers = tuple(layers)
        self.operators = []
        for number, (name, strategy) in enumerate(layers):
            operator = {
                "MatMul": ops.MatMul,
                "Add": ops.Add,
                "Mul": ops.Mul,
                "ReLU": ops.ReLU,
                "Tanh": ops.Tanh,
                "Softmax": ops.Softmax,
                "ReduceMax": lambda: ops.ReduceMax(keep_dims=True),
            }[name]()
            self.operators.append(operator.shard(strategy) if strategy else operator)
            shape = {"MatMul": (WIDTH, WIDTH), "Add": (WIDTH,), "Mul": (WIDTH,)}.get(name)
            if shape:
                weight = (values.normal(size=shape) / 4).astype(np.float32)
                setattr(self, f"weight{number}", Parameter(Tensor(weight), name=f"weight{number}"))

    def construct(self, x: Tensor) -> Tensor:
        """The mean of the last result's squares."""
        for number, ((name, _), operator) in enumerate(zip(self.layers, self.operators, strict=True)):
            if name in ("MatMul", "Add", "Mul"):
                x = operator(x, getattr(self, f"weight{number}"))
            elif name == "ReduceMax":
                x = x - operator(x, 1)
            else:
                x = operator(x)
        return ops.ReduceMean()(x * x)


def _layer(draw: random.Random) -> Layer:
    name = draw.choice(["MatMul", "MatMul", "Add", "Mul", "ReLU", "Tanh", "Softmax", "ReduceMax"])
    if draw.random() < 0.3:
        return name, None
    parts = draw.choice([(a, b, c) for a in (1, 2, 4, 8) for b in (1, 2, 4, 8) for c in (1, 2, 4, 8) if a * b * c <= 8])
    rows, columns, more = parts
    if name == "MatMul":
        return name, ((rows, columns), (columns, more))
    if name in ("Add", "Mul"):
        return name, ((rows, columns), (columns,))
    return name, ((rows, 1 if name == "Softmax" else columns),)


def eight_against_one(draw: random.Random, folder: Path) -> None:
    """A random network, cut at random over eight devices, has the loss and the gradients of one device."""
    layers = [("MatMul", None), *(_layer(draw) for _ in range(draw.randint(1, 4)))]
    seed = draw.randrange(2**31)
    settings = draw.choice([{}, {"dataset_strategy": "full_batch"}, {"gradient_fp32_sync": False}])
    results = []
    for parallel in (False, True):
        context.reset_auto_parallel_context()
        if parallel:
            context.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8, **settings)
        values = np.random.default_rng(seed)
        network = Network(layers if parallel else [(name, None) for name, _ in layers], values)
        x = Tensor(values.normal(size=(16, WIDTH)).astype(np.float32))
        loss, gradients = ms.value_and_grad(network, None, network.trainable_params())(x)
        results.append([loss.asnumpy(), *(gradient.asnumpy() for gradient in gradients)])
    context.reset_auto_parallel_context()
    for alone, cut in zip(*results, strict=True):
        np.testing.assert_allclose(cut, alone, rtol=2e-4, atol=1e-6, err_msg=f"{layers} {settings}")


TRIALS: dict[str, Callable[[random.Random, Path], None]] = {
    "kills": kill,
    "files": changed_file,
    "fuzz": eight_against_one,
    "jobs": end_of_a_rank,
}
SHARES = {"kills": 0.32, "files": 0.32, "fuzz": 0.32, "jobs": 0.04}
"""Of all cases; a job takes some ten seconds."""


def run(name: str, seed: int, first: int, cases: int) -> dict[str, Any]:
    """Run the cases of one kind; what failed is told at once."""
    failed = []
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(first, first + cases):
            try:
                TRIALS[name](random.Random(f"{name} {seed} {number}"), Path(folder))
            except Exception as error:  # a trial that fails in any way is a finding
                failed.append(number)
                print(f"{name} {number}: {type(error).__name__}: {str(error)[:4000]}", file=sys.stderr, flush=True)
    return {
        "tried": cases,
        "survived": cases - len(failed),
        "failed": failed,
        "seconds": round(time.monotonic() - start),
    }


def main(words: list[str] | None = None) -> int:
    """Run the trials and print their figures; 1 where one failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="another seed draws other cases (0)")
    parser.add_argument("--cases", type=int, default=600, help="in all, of all kinds (600)")
    parser.add_argument("--first", type=int, default=0, help="number of the first case of each kind (0)")
    parser.add_argument("--only", choices=TRIALS, help="one kind alone")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args(words)
    context.set_context(mode=context.GRAPH_MODE)
    names = [arguments.only] if arguments.only else list(TRIALS)
    # Kills fork this process, which must not have started XLA's threads by then: they come first.
    cases = {name: arguments.cases if arguments.only else math.ceil(arguments.cases * SHARES[name]) for name in names}
    figures = {name: run(name, arguments.seed, arguments.first, cases[name]) for name in names}
    text = json.dumps({"seed": arguments.seed, **figures}, indent=1)
    print(text)
    if arguments.json is not None:
        arguments.json.write_text(text + "\n", encoding="utf-8")
    return int(any(trial["failed"] for trial in figures.values()))


if __name__ == "__main__":
    sys.exit(main())
