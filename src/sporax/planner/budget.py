"""How long a search may take: one value in place of clocks that are read everywhere.

Problem: a plan is found by searches that call solvers that call methods, and each of them must know when to stop. Passing
seconds around makes everybody measure what has passed since its own start.

Method: a budget is an end on the monotonic clock, which all processes of one machine share. Who hands a part of its time on
makes a smaller budget of it; no part ends later than the whole.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

QUESTION_SECONDS = 30.0
"""Time for a question about other plans of a step."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Time that a computation may take.

    Attributes:
        start: when it began, on the monotonic clock in seconds.
        end: when it is over, on the same clock; infinite where nothing limits it.

    Example:
        >>> Budget.of(60.0).part(0.5).seconds <= 30.0
        True
    """

    start: float
    end: float

    @classmethod
    def of(cls, seconds: float) -> Budget:
        """A budget that starts now."""
        now = time.monotonic()
        return cls(now, now + seconds)

    @classmethod
    def unlimited(cls) -> Budget:
        """A budget that never ends; it still measures how long something took."""
        return cls.of(math.inf)

    @property
    def seconds(self) -> float:
        """The whole of it, used or not."""
        return self.end - self.start

    @property
    def is_limited(self) -> bool:
        """Whether it ends at all."""
        return math.isfinite(self.end)

    @property
    def used(self) -> float:
        """Seconds since its start."""
        return time.monotonic() - self.start

    @property
    def left(self) -> float:
        """Seconds until its end; 0 when it is over."""
        return max(self.end - time.monotonic(), 0.0)

    @property
    def is_over(self) -> bool:
        """Whether there is no time left."""
        return time.monotonic() >= self.end

    def part(self, share: float) -> Budget:
        """A budget that starts now and has a share, between 0 and 1, of the time that is left."""
        return Budget.of(share * self.left)

    def at_most(self, seconds: float) -> Budget:
        """A budget that starts now, has at most so many seconds, and ends no later than this one."""
        now = time.monotonic()
        return Budget(now, min(now + seconds, self.end))

    def longer(self, seconds: float) -> Budget:
        """The same budget with some seconds of grace at its end."""
        return Budget(self.start, self.end + seconds)


UNLIMITED = Budget.unlimited()
"""For defaults: never over."""
