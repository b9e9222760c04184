"""How fast a run is: samples and tokens per second, model FLOPs utilization, time of compiling, memory.

One count for all who report it: the default progress, `Progress`, `TimeMonitor`, and trackers. Tokens are known where the first
column of a batch is a matrix of whole numbers (ids of tokens). The utilization needs the FLOPs of a step, which a plan knows, and
the rates of the devices, which its hardware profile knows; it is left out where one of them is unknown.
"""

from __future__ import annotations

import resource
import sys
import time
from typing import Any

import jax

from sporax.base.made_later import dataclass
from sporax.mindspore.common.tensor import Tensor
from sporax.runtime.session import SESSION


def memory_bytes() -> int:
    """Most memory that was in use: of the first device where it can tell, else of this process."""
    stats = jax.local_devices()[0].memory_stats()
    if stats and "peak_bytes_in_use" in stats:
        return int(stats["peak_bytes_in_use"])
    # The system counts in KiB, on macOS in bytes.
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


@dataclass(frozen=True, slots=True)
class Figures:
    """What is known of some steps.

    Attributes:
        steps: how many.
        seconds: they took, with what was compiled in between.
        compile_seconds: of them for tracing, planning and compiling.
        samples, tokens: of the steps; 0 where they are unknown.
        of_one_second: model FLOPs utilization of a step of one second, and the hardware of whose rates it is a share; None
            where they are unknown.
    """

    steps: int
    seconds: float
    compile_seconds: float
    samples: int
    tokens: int
    of_one_second: tuple[float, str] | None

    @property
    def utilization(self) -> float | None:
        """Model FLOPs utilization of the steps, 0 to 1."""
        return None if self.of_one_second is None else self.of_one_second[0] * self.steps / self.running_seconds

    @property
    def running_seconds(self) -> float:
        """Without compiling."""
        return max(self.seconds - self.compile_seconds, 1e-9)

    def rates(self) -> list[str]:
        """Words for what is known: tokens per second and utilization."""
        words = [f"{self.tokens / self.running_seconds:.0f} tokens/s"] if self.tokens else []
        if self.of_one_second is not None:
            words.append(f"MFU {100 * (self.utilization or 0.0):.3g} % ({self.of_one_second[1]})")
        return words

    def values(self) -> dict[str, float]:
        """What is known, by name."""
        found = {"samples_per_second": self.samples / self.running_seconds} if self.samples else {}
        if self.tokens:
            found["tokens_per_second"] = self.tokens / self.running_seconds
        if self.utilization is not None:
            found["mfu"] = self.utilization
        if self.steps:
            found["step_seconds"] = self.running_seconds / self.steps
        return found


class FigureCount:
    """Counts the steps of a run from `begin` on."""

    def __init__(self) -> None:
        self._planned: Any = None
        self._utilization: tuple[float, str] | None = None

    def begin(self, facts: Any) -> None:
        """Start again.

        Args:
            facts: of the run, see `RunContext`.
        """
        self._started = time.perf_counter()
        self._compiled = SESSION.compile_seconds
        self._first_step = facts.get("cur_step_num", 0)
        self._samples = self._tokens = 0

    def add(self, facts: Any) -> None:
        """A step, or a group of them, has ended."""
        samples = facts.get("num_samples", 0)
        self._samples += samples
        self._tokens += samples * tokens_of_sample(facts.get("train_dataset_element"))

    def figures(self, facts: Any) -> Figures:
        """What is known by now."""
        seconds = time.perf_counter() - self._started
        compiling = SESSION.compile_seconds - self._compiled
        steps = facts.get("cur_step_num", 0) - self._first_step
        return Figures(steps, seconds, compiling, self._samples, self._tokens, self._of_one_second(facts))

    def _of_one_second(self, facts: Any) -> tuple[float, str] | None:
        """The utilization of one step per second; worked out once for each plan, since it walks through all operators."""
        planned = getattr(getattr(facts.get("train_network"), "program", None), "planned", None)
        if planned is not self._planned:
            self._planned, self._utilization = planned, None if planned is None else planned.utilization()
        return self._utilization


def tokens_of_sample(batch: Any) -> int:
    """How many tokens a sample of a batch has: the second dimension of its first column, if that has ids; else 0."""
    first = batch[0] if isinstance(batch, tuple | list) and batch else None
    if isinstance(first, Tensor) and first.ndim == 2 and "int" in str(first.dtype).lower():
        return int(first.shape[1])
    return 0
