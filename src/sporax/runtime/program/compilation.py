"""What is known of each compilation of a program."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Compilation:
    """One compilation of a program.

    Attributes:
        reason: what differed from what had been compiled before.
        trace_seconds: time to find the program's variables; XLA compiles at the first call after that.
        num_read, num_written: how many variables the program reads only, and updates.
    """

    reason: str
    trace_seconds: float
    num_read: int
    num_written: int

    def __str__(self) -> str:
        return (
            f"{self.reason} ({self.num_read} variables read, {self.num_written} updated; "
            f"traced in {self.trace_seconds:.2f} s)"
        )
