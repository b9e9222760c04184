"""Records some steps of a program: ``sporax run --profile DIR [--profile_steps 5:8]``.

Problem: where a step's time goes. A profiler that runs from the first line to the last records imports, compilation
and thousands of equal steps. Method: this process counts steps, and JAX's profiler runs during the chosen ones only. A step
ends when a compiled program has updated a trainable variable, or when a planned function of plain JAX returns; it begins where
the one before ended, so that reading data counts. Before the first and after the last recorded step the process waits for its
devices; in between nothing is waited for.

This module does not load JAX: `sporax run` begins before the user's script decides how JAX is loaded.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from sporax.cluster.environment import PROFILE, PROFILE_STEPS
from sporax.ir.variables import read
from sporax.runtime.session import SESSION

T = TypeVar("T")

# By name: it loads JAX.
_TRACE = "sporax.runtime.process.recorded_operators"


def begin(environ: Mapping[str, str]) -> None:
    """Record steps of this process where the environment requests it.

    Raises:
        SporaxValueError: the steps are no range.
    """
    directory = read(environ, PROFILE)
    if directory:
        first, last = read(environ, PROFILE_STEPS)
        SESSION.recording = StepRecording(Path(directory).absolute(), first, last)


def end() -> None:
    """Write what was recorded, if that has not happened, and report it."""
    recording, SESSION.recording = SESSION.recording, None
    if recording is not None:
        recording.finish()


@dataclass(slots=True)
class StepRecording:
    """Counts the steps of this process, and records those from `first` to `last` - 1.

    Attributes:
        directory: of the recording; each rank has a folder of its own in it.
        first, last: steps, counted from 0.
        done: how many steps have ended.
        started: when the recording began, by `time.perf_counter`; None while nothing is recorded.
        written: whether it is over.
    """

    directory: Path
    first: int
    last: int
    done: int = 0
    started: float | None = None
    written: bool = False
    _depth: int = 0
    _step: Any = field(default=None)

    def around(self, run: Callable[[], T], variables: Sequence[Any] = (), *, ends_step: bool = False) -> T:
        """Run a program that may be the end of a step.

        Args:
            ends_step: it ends a step, whatever it updates.
        """
        # A program that another one calls is a part of it.
        if self._depth or self.written:
            return run()
        if self.started is None and self.done >= self.first:
            self._start()
        self._depth += 1
        try:
            results = run()
        finally:
            self._depth -= 1
        if ends_step or any(getattr(variable, "requires_grad", False) for variable in variables):
            self._ended([results, *(getattr(variable, "raw", None) for variable in variables)])
        return results

    def _start(self) -> None:
        importlib.import_module(_TRACE).start(self.directory)
        self.started = time.perf_counter()
        self._open_step()

    def _open_step(self) -> None:
        self._step = importlib.import_module(_TRACE).step_annotation(self.done)
        self._step.__enter__()

    def _close_step(self) -> None:
        if self._step is not None:
            self._step.__exit__(None, None, None)
            self._step = None

    def _ended(self, values: list[Any]) -> None:
        self.done += 1
        if self.done in (self.first, self.last):
            importlib.import_module(_TRACE).wait_for(values)
        self._close_step()
        if self.done == self.last:
            self.finish()
        elif self.done == self.first:
            self._start()
        elif self.started is not None:
            self._open_step()

    def finish(self) -> None:
        """Write what was recorded, and report it."""
        if self.written:
            return
        self.written = True
        self._close_step()
        if self.started is None:
            print(
                f"sporax run: --profile has recorded nothing: the program ended after {self.done} steps, and steps "
                f"{self.first}:{self.last} were requested (--profile_steps). A step ends when a compiled program has updated "
                "trainable Parameters, or when a function of sporax.plan returns.",
                file=sys.stderr,
            )
            return
        seconds = time.perf_counter() - self.started
        self.started = None
        if self.done < self.last:
            print(
                f"sporax run: --profile has recorded {self.done - self.first} of {self.last - self.first} steps: the program "
                f"ended after {self.done}.",
                file=sys.stderr,
            )
        importlib.import_module(_TRACE).finish(self.directory, self.first, self.done - self.first, seconds)
