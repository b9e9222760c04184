"""What a dry run has found out about the steps of a rank, and the files that it leaves (`sporax.runtime.process.dry_run`)."""

from __future__ import annotations

import json
import re
import sys
import time
from collections import Counter
from dataclasses import asdict, field
from pathlib import Path

import jax
import numpy as np

from sporax.base.made_later import dataclass
from sporax.base.progress import activity, reported
from sporax.runtime.process.compiled_text import COLLECTIVES

MEMORY_LEVEL, COMPUTING_LEVEL = 1, 3
# "-start" is the asynchronous form; its "-done" half is not counted.
_COLLECTIVE = re.compile(rf" ({'|'.join(COLLECTIVES)})(?:-start)?\(")


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
        rank, size: the rank that is imitated, and how many the job has.
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
        step = CompiledStep(name, seconds, dict(Counter(_COLLECTIVE.findall(text))))
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
    """Tell the user something."""
    print(f"sporax: {text}", file=sys.stderr, flush=True)


def _megabytes(count: int | None) -> str:
    return f"{(count or 0) / 2**20:.3g} MB"
