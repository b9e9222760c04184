"""Dry runs: this process imitates one rank of a job; the other ranks and their devices are not there.

JAX is configured as if this CPU had as many devices as the job has ranks. A program for N devices compiles nearly as fast as one
for two, and is the one that every rank of the job would run: the same collectives, the same memory. So in a dry run

* a compiled step is compiled for all ranks, its text and what it needs are reported (`rehearse`), and
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
"""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from sporax.base.errors import SporaxNotImplementedError
from sporax.cluster.environment import DRY_RUN_DIRECTORY, RankEnvironment
from sporax.runtime.process.dry_run_report import COMPUTING_LEVEL, CompiledStep, DryRun, say
from sporax.runtime.session import SESSION


def active() -> bool:
    """Whether this process only imitates a rank."""
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
        f"DRY RUN, level {place.simulation_level}: this process imitates rank {place.rank} of {place.size}. {results}. "
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


@contextmanager
def alone() -> Iterator[None]:
    """Context in which one rank's part of a program is traced: collectives answer by themselves."""
    outer, SESSION.simulating = SESSION.simulating, True
    try:
        yield
    finally:
        SESSION.simulating = outer


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
        program: what it was lowered from; a `DryRunProgram` where ranks exchange data.
        name: of the step.

    Returns:
        What is called in its place; raises TypeError for arguments of other shapes.
    """
    assert SESSION.dry_run is not None
    compiled, step = SESSION.dry_run.add(lowered, name)
    if SESSION.dry_run.level < COMPUTING_LEVEL:
        return _Unrun(lowered)
    return _Timed(program.own if isinstance(program, DryRunProgram) else compiled, step)


def rehearse_planned(lowered: jax.stages.Lowered, num_written: int, name: str) -> Callable[[], Sequence[jax.Array]]:
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


def _shape(array: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(array.shape, array.dtype)
