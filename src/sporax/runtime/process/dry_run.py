"""Dry runs: this process simulates one rank of a job; the other ranks and their devices are not there.

JAX is configured as if this CPU had as many devices as the job has ranks. A program for N devices compiles nearly as fast as one
for two, and is the one that every rank of the job would run: the same collectives, the same memory. So in a dry run

* a compiled step is compiled for all ranks, its text and what it needs are reported (`for_dry_run`), and
* it is not run (levels 0 to 2): Parameters keep their values, and what the step gives is zeros; or
* this rank's part of it is run (level 3), and timed.

Where a collective must have a result, in level 3 and for operators that run step by step, the other ranks are taken to hold
what this one holds: a sum is this rank's value times the number of members (`sporax.runtime.ranks.collectives`).

=====  =============================================================================
level  what a step leaves
=====  =============================================================================
0      its compiled text, the collectives in it, and how long it took to compile
1, 2   also the memory it needs on one rank; XLA plans operators' results and their
       working memory together, so the two levels are the same
3      also how long this rank's part of it takes to compute
=====  =============================================================================

What a dry run has found out about the steps of a rank, and the files that it leaves (`sporax.runtime.process.dry_run`).
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, field
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.errors import SporaxNotImplementedError
from sporax.base.lazy_members import dataclass
from sporax.base.progress import activity, reported
from sporax.cluster.environment import DRY_RUN_DIRECTORY, RankEnvironment
from sporax.runtime.process.compiled_text import CompiledText
from sporax.runtime.session import SESSION, assigned

MEMORY_LEVEL, COMPUTING_LEVEL = 1, 3


@dataclass
class CompiledStep:
    """What is known of one compiled step.

    Attributes:
        name: of the program.
        compile_seconds: time XLA took.
        collectives: how often each kind is in the program.
        argument_bytes, output_bytes, reused_bytes, temporary_bytes: memory on one rank: what goes in, what comes out, how
            much of that reuses an argument's buffer, and everything in between.
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
        # What reuses the buffer of an argument is counted among arguments and among results.
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
            words.append(f"ran {len(self.run_seconds)} times, {np.median(self.run_seconds) * 1e3:.3g} ms each")
        return ", ".join(words)


@dataclass
class DryRun:
    """The dry run of this process.

    Attributes:
        rank, size: the rank that is simulated, and how many the job has.
        level: see the module's table.
        directory: takes the steps' texts and ``summary.json``.
        steps: what was compiled so far.
    """

    rank: int
    size: int
    level: int
    directory: Path
    steps: list[CompiledStep] = field(default_factory=list)

    def add(self, lowered: jax.stages.Lowered, name: str) -> tuple[jax.stages.Compiled, CompiledStep]:
        """Compile a step and report it."""
        started = time.perf_counter()
        with reported(), activity(f"compiling {name} for {self.size} ranks"):
            compiled = lowered.compile()
        seconds = time.perf_counter() - started
        text = compiled.as_text() or ""
        counts = Counter(instruction.opcode for _, instruction in CompiledText.of(text).collectives())
        step = CompiledStep(name, seconds, dict(counts))
        memory = compiled.memory_analysis() if self.level >= MEMORY_LEVEL else None
        if memory is not None:
            step.argument_bytes, step.output_bytes = memory.argument_size_in_bytes, memory.output_size_in_bytes
            step.reused_bytes, step.temporary_bytes = memory.alias_size_in_bytes, memory.temp_size_in_bytes
        self.steps.append(step)
        # Steps are numbered, since one network may compile several programs of the same name.
        (self.directory / f"{len(self.steps)}_{name}.txt").write_text(text)
        say(str(step))
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
                say(str(step))
        say(
            f"the dry run of rank {self.rank} is over; {len(self.steps)} compiled steps are described in {self.directory}"
        )


def say(text: str) -> None:
    """Report something to the user."""
    print(f"sporax: {text}", file=sys.stderr, flush=True)


say_once = cache(say)
"""The same, and nothing where it was reported before."""


def _megabytes(count: int | None) -> str:
    return f"{(count or 0) / 2**20:.3g} MB"


def active() -> bool:
    """Whether this process only simulates a rank."""
    return SESSION.dry_run is not None


def simulating() -> bool:
    """Whether what is traced now computes one rank's part, without the others."""
    return SESSION.simulating


def start(place: RankEnvironment) -> None:
    """Begin a dry run of the rank at `place`. The backend must have been cleared."""
    assert place.rank is not None
    assert place.simulation_level is not None
    # JAX reads both settings once, when its backend starts.
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", place.size)
    directory = Path(os.environ.get(DRY_RUN_DIRECTORY) or "dry_run").absolute() / f"rank_{place.rank}"
    directory.mkdir(parents=True, exist_ok=True)
    # Files of an earlier run with more steps would be taken for files of this one.
    for earlier in directory.glob("[0-9]*_*.txt"):
        earlier.unlink()
    SESSION.dry_run = DryRun(place.rank, place.size, place.simulation_level, directory)
    atexit.register(_close, SESSION.dry_run)
    results = (
        "Steps are compiled and run for this rank alone, as if all ranks had its data"
        if place.simulation_level >= COMPUTING_LEVEL
        else "Steps are compiled and not run: Parameters stay as they are, results are zeros"
    )
    say(
        f"DRY RUN, level {place.simulation_level}: this process simulates rank {place.rank} of {place.size}. {results}. "
        "Losses and metrics mean nothing."
    )


def stop() -> None:
    """End the dry run, if there is one."""
    if SESSION.dry_run is not None:
        SESSION.dry_run.close()
        SESSION.dry_run = None


# Another dry run may have begun since, or this one may be closed already.
def _close(run: DryRun) -> None:
    if SESSION.dry_run is run:
        run.close()


def alone() -> AbstractContextManager[None]:
    """Context in which one rank's part of a program is traced: collectives answer by themselves."""
    return assigned(SESSION, simulating=True)


class DryRunProgram:
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
        # Arguments are one rank's arrays here, but a joint array has the same shape and dtype.
        shapes = jax.tree.map(lambda array: jax.ShapeDtypeStruct(array.shape, array.dtype), args)
        lowered: jax.stages.Lowered = self.everyone.lower(*shapes)
        return lowered

    def __call__(self, *args: Any) -> Any:
        """Compute this rank's part."""
        return self.own(*args)


def for_dry_run(lowered: jax.stages.Lowered, program: Any, name: str) -> Callable[..., Any]:
    """Compile and report a step that takes ``(written, …)`` and gives ``(written, …)``, with whatever else.

    Args:
        program: what it was lowered from; a `DryRunProgram` where ranks exchange data.

    Returns:
        What is called in its place; raises TypeError for arguments of other shapes.
    """
    assert SESSION.dry_run is not None
    compiled, step = SESSION.dry_run.add(lowered, name)
    if SESSION.dry_run.level < COMPUTING_LEVEL:
        return _Unrun(lowered)
    return _Timed(program.own if isinstance(program, DryRunProgram) else compiled, step)


def planned_for_dry_run(lowered: jax.stages.Lowered, num_written: int, name: str) -> Callable[[], Sequence[jax.Array]]:
    """Compile and report a step that is sharded over the devices; returns what gives its outputs: zeros.

    Raises:
        SporaxNotImplementedError: in a level that would have to compute it.
    """
    assert SESSION.dry_run is not None
    if SESSION.dry_run.level >= COMPUTING_LEVEL:
        raise SporaxNotImplementedError(
            f"For 'sporax run', sim_level must be at most {COMPUTING_LEVEL - 1} for a step that is sharded over devices "
            f"(semi-automatic and automatic parallelism), but got {SESSION.dry_run.level}: one rank's part is not computed "
            "without the others. `sporax run --local_devices N` computes all of it."
        )
    SESSION.dry_run.add(lowered, name)
    outputs = jax.tree.leaves(lowered.out_info)[num_written:]
    return lambda: [jnp.zeros(output.shape, output.dtype) for output in outputs]


class _Unrun:
    """Stands for a compiled step: written variables stay, results are zeros."""

    def __init__(self, lowered: jax.stages.Lowered) -> None:
        self._expected = [(argument.shape, argument.dtype) for argument in jax.tree.leaves(lowered.in_avals)]
        self._results = lowered.out_info

    def __call__(self, written: Sequence[jax.Array], *others: Any) -> Any:
        # As a compiled program does it, so that the caller compiles again for the new shapes.
        if [(array.shape, array.dtype) for array in jax.tree.leaves((written, others))] != self._expected:
            raise TypeError("arguments of other shapes")
        zeros = jax.tree.map(lambda result: jnp.zeros(result.shape, result.dtype), self._results)
        return _with_first(zeros, written)


def _with_first(results: Any, written: Sequence[jax.Array]) -> Any:
    """The results of a step with other values of the written variables: ``(written, outputs)``, or that and a number."""
    first, second = results
    if isinstance(first, tuple):  # a program of all ranks also gives the next one's `zero`
        return _with_first(first, written), second
    return list(written), second


class _Timed:
    """Runs one rank's part of a step and notes how long it takes."""

    def __init__(self, program: Any, step: CompiledStep) -> None:
        self._program = program
        self._step = step

    def __call__(self, *args: Any) -> Any:
        # Compiled before the clock starts.
        if not isinstance(self._program, jax.stages.Compiled):
            self._program = self._program.lower(*args).compile()
        started = time.perf_counter()
        results = jax.block_until_ready(self._program(*args))
        self._step.run_seconds.append(time.perf_counter() - started)
        return results
