"""Dry runs: this process imitates one rank of a job; the other ranks and their devices are not there.

JAX is told that this CPU has as many devices as the job has ranks. A program for N devices compiles nearly as fast as one
for two, and is the one that every rank of the job would run: the same collectives, the same memory. So in a dry run

* a compiled step is compiled for all ranks, its text and what it needs are reported (`rehearse`), and
* it is not run (levels 0 to 2): Parameters keep their values, and what the step gives is zeros; or
* this rank's part of it is run (level 3), and timed.

Where a collective must have a result, in level 3 and for operators that run step by step, the other ranks are taken to hold
what this one holds: a sum is this rank's value times the number of members (`sporax.runtime.collectives`).

=====  =============================================================================
level  what a step leaves
=====  =============================================================================
0      its compiled text, the collectives in it, and how long it took to compile
1, 2   also the memory it needs on one rank; XLA plans operators' results and their
       working memory together, so the two levels are the same
3      also how long this rank's part of it takes to compute
=====  =============================================================================
"""

from __future__ import annotations

import atexit
import json
import os
import re
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from sporax.cluster.environment import DRY_RUN_DIRECTORY, RankEnvironment
from sporax.ir.errors import SporaxNotImplementedError
from sporax.planner.report.progress import doing, shown

MEMORY_LEVEL, COMPUTING_LEVEL = 1, 3
_COLLECTIVE = re.compile(r" (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(?:-start)?\(")


@dataclass
class Step:
    """What is known of one compiled step.

    Attributes:
        name: of the program.
        compile_seconds: time XLA took.
        collectives: how often each kind is in the program.
        argument_bytes, output_bytes, reused_bytes, temporary_bytes: memory on one rank: what goes in, what comes out, how
            much of that lies where an argument lay, and everything in between.
        run_seconds: time of each run of this rank's part.
    """

    name: str
    compile_seconds: float
    collectives: dict[str, int]
    argument_bytes: int | None = None
    output_bytes: int | None = None
    reused_bytes: int | None = None
    temporary_bytes: int | None = None
    run_seconds: list[float] = field(default_factory=list)

    @property
    def peak_bytes(self) -> int | None:
        """The most memory that the step needs on one rank."""
        parts = (self.argument_bytes, self.output_bytes, self.temporary_bytes)
        return None if self.reused_bytes is None else sum(part or 0 for part in parts) - self.reused_bytes

    def __str__(self) -> str:
        words = [f"{self.name}: compiled in {self.compile_seconds:.2f} s"]
        words += [f"{count} x {kind}" for kind, count in self.collectives.items()] or ["no collectives"]
        if self.peak_bytes is not None:
            words.append(
                f"{_megabytes(self.peak_bytes)} on one rank ({_megabytes(self.argument_bytes)} arguments, "
                f"{_megabytes(self.output_bytes)} results, of which {_megabytes(self.reused_bytes)} in place of arguments, "
                f"{_megabytes(self.temporary_bytes)} in between)"
            )
        if self.run_seconds:
            words.append(f"ran {len(self.run_seconds)} times, {statistics.median(self.run_seconds) * 1e3:.3g} ms each")
        return ", ".join(words)


@dataclass
class DryRun:
    """The dry run of this process.

    Attributes:
        rank, size: the rank that is imitated, and how many the job has.
        level: see the module's table.
        directory: takes the steps' texts and ``summary.json``.
        steps: what was compiled so far.
    """

    rank: int
    size: int
    level: int
    directory: Path
    steps: list[Step] = field(default_factory=list)

    def add(self, lowered: jax.stages.Lowered, name: str) -> tuple[jax.stages.Compiled, Step]:
        """Compile a step and report it."""
        started = time.perf_counter()
        with shown(), doing(f"compiling {name} for {self.size} ranks"):
            compiled = lowered.compile()
        seconds = time.perf_counter() - started
        text = compiled.as_text() or ""
        step = Step(name, seconds, dict(Counter(_COLLECTIVE.findall(text))))
        memory = compiled.memory_analysis() if self.level >= MEMORY_LEVEL else None
        if memory is not None:
            step.argument_bytes, step.output_bytes = memory.argument_size_in_bytes, memory.output_size_in_bytes
            step.reused_bytes, step.temporary_bytes = memory.alias_size_in_bytes, memory.temp_size_in_bytes
        self.steps.append(step)
        (self.directory / f"{len(self.steps)}_{name}.txt").write_text(text)
        _say(str(step))
        self.save()
        return compiled, step

    def save(self) -> None:
        """Write ``summary.json``."""
        steps = [{**asdict(step), "peak_bytes": step.peak_bytes} for step in self.steps]
        summary = {"rank": self.rank, "size": self.size, "level": self.level, "steps": steps}
        (self.directory / "summary.json").write_text(json.dumps(summary, indent=1))

    def close(self) -> None:
        """The last word."""
        self.save()
        if self.level >= COMPUTING_LEVEL:
            for step in self.steps:
                _say(str(step))
        _say(
            f"the dry run of rank {self.rank} is over; {len(self.steps)} compiled steps are described in {self.directory}"
        )


_running: DryRun | None = None
_imitating = False


def active() -> bool:
    """Whether this process only imitates a rank."""
    return _running is not None


def imitating() -> bool:
    """Whether what is traced now computes one rank's part, without the others."""
    return _imitating


def start(place: RankEnvironment) -> None:
    """Begin a dry run of the rank at `place`. The backend must have been cleared."""
    global _running
    assert place.rank is not None
    assert place.simulation_level is not None
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", place.size)
    directory = Path(os.environ.get(DRY_RUN_DIRECTORY) or "dry_run").absolute() / f"rank_{place.rank}"
    directory.mkdir(parents=True, exist_ok=True)
    for earlier in directory.glob("[0-9]*_*.txt"):
        earlier.unlink()
    _running = DryRun(place.rank, place.size, place.simulation_level, directory)
    atexit.register(_close, _running)
    results = (
        "Steps are compiled and run for this rank alone, as if all ranks had its data"
        if place.simulation_level >= COMPUTING_LEVEL
        else "Steps are compiled and not run: Parameters stay as they are, results are zeros"
    )
    _say(
        f"DRY RUN, level {place.simulation_level}: this process imitates rank {place.rank} of {place.size}. {results}. "
        "Losses and metrics mean nothing."
    )


def stop() -> None:
    """End the dry run, if there is one."""
    global _running
    if _running is not None:
        _running.close()
        _running = None


def _close(run: DryRun) -> None:
    if _running is run:
        run.close()


@contextmanager
def alone() -> Iterator[None]:
    """Context in which one rank's part of a program is traced: collectives answer by themselves."""
    global _imitating
    outer, _imitating = _imitating, True
    try:
        yield
    finally:
        _imitating = outer


class Rehearsal:
    """A program of all ranks in a dry run.

    Args:
        everyone: the program of all ranks, as `jax.jit` gives it.
        own: this rank's part of it.
    """

    def __init__(self, everyone: Any, own: Any) -> None:
        self.everyone = everyone
        self.own = own

    def lower(self, *args: Any) -> jax.stages.Lowered:
        """The program of all ranks, for arguments of these shapes."""
        shapes = jax.tree.map(_shape, args)
        lowered: jax.stages.Lowered = self.everyone.lower(*shapes)
        return lowered

    def __call__(self, *args: Any) -> Any:
        """Compute this rank's part."""
        return self.own(*args)


def rehearse(lowered: jax.stages.Lowered, program: Any, name: str) -> Callable[..., Any]:
    """Compile and report a step that takes ``(written, …)`` and gives ``(written, …)``, with whatever else.

    Args:
        lowered: the step.
        program: what it was lowered from; a `Rehearsal` where ranks exchange data.
        name: of the step.

    Returns:
        What is called in its place; raises TypeError for arguments of other shapes.
    """
    assert _running is not None
    compiled, step = _running.add(lowered, name)
    if _running.level < COMPUTING_LEVEL:
        return _Unrun(lowered)
    return _Timed(program.own if isinstance(program, Rehearsal) else compiled, step)


def rehearse_planned(lowered: jax.stages.Lowered, num_written: int, name: str) -> Callable[[], Sequence[jax.Array]]:
    """Compile and report a step that is cut over the devices; returns what gives its outputs: zeros.

    Raises:
        SporaxNotImplementedError: in a level that would have to compute it.
    """
    assert _running is not None
    if _running.level >= COMPUTING_LEVEL:
        raise SporaxNotImplementedError(
            f"For 'sporax run', sim_level must be at most {COMPUTING_LEVEL - 1} for a step that is cut over devices "
            f"(semi-automatic and automatic parallelism), but got {_running.level}: one rank's part is not computed without "
            "the others. `sporax run --local_devices N` computes all of it."
        )
    _running.add(lowered, name)
    outputs = jax.tree.leaves(lowered.out_info)[num_written:]
    return lambda: [jnp.zeros(each.shape, each.dtype) for each in outputs]


class _Unrun:
    """Stands for a compiled step: written variables stay, results are zeros."""

    def __init__(self, lowered: jax.stages.Lowered) -> None:
        self._expected = [(each.shape, each.dtype) for each in jax.tree.leaves(lowered.in_avals)]
        self._results = lowered.out_info

    def __call__(self, written: Sequence[jax.Array], *others: Any) -> Any:
        if [(each.shape, each.dtype) for each in jax.tree.leaves((written, others))] != self._expected:
            raise TypeError("arguments of other shapes")
        zeros = jax.tree.map(lambda each: jnp.zeros(each.shape, each.dtype), self._results)
        return _with_first(zeros, written)


def _with_first(results: Any, written: Sequence[jax.Array]) -> Any:
    """The results of a step with other values of the written variables: ``(written, outputs)``, or that and a number."""
    first, second = results
    if isinstance(first, tuple):  # a program of all ranks also gives the next one's `zero`
        return _with_first(first, written), second
    return list(written), second


class _Timed:
    """Runs one rank's part of a step and notes how long it takes."""

    def __init__(self, program: Any, step: Step) -> None:
        self._program = program
        self._step = step

    def __call__(self, *args: Any) -> Any:
        if not isinstance(self._program, jax.stages.Compiled):
            self._program = self._program.lower(*args).compile()
        started = time.perf_counter()
        results = jax.block_until_ready(self._program(*args))
        self._step.run_seconds.append(time.perf_counter() - started)
        return results


def _shape(array: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(array.shape, array.dtype)


def _megabytes(count: int | None) -> str:
    return f"{(count or 0) / 2**20:.3g} MB"


def _say(text: str) -> None:
    print(f"sporax: {text}", file=sys.stderr, flush=True)
