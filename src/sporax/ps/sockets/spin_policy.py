"""How a reader waits: it looks for a moment before it sleeps, as long as that finds something."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

_LOOK_SECONDS = 1e-4  # before a reader sleeps; to be woken takes about a third of this
_MOST_WAITS_WITHOUT = (
    256  # where answers take as long as a look, less than a hundredth of the time goes into looks in vain
)
T = TypeVar("T")


class SpinPolicy:
    """Whether it pays to look for a moment before one sleeps.

    Problem: where the other process has a core of its own, its answer comes while one looks. Where it shares this one, or other
    processes want both, looking keeps it from running. Method: each look that finds nothing doubles the number of waits without.
    """

    def __init__(self) -> None:
        self.waits_without = self._missed = 0

    def look(self, attempt: Callable[[], T | None]) -> T | None:
        """What an attempt gives while one looks; None where it does not pay now, or nothing has come."""
        if not self.pays():
            return None
        ends = time.perf_counter() + _LOOK_SECONDS
        while (found := attempt()) is None and time.perf_counter() < ends:
            pass
        self.note(has_found=found is not None)
        return found

    def pays(self) -> bool:
        """Whether to look now; then `note` takes what that gave."""
        if self.waits_without:
            self.waits_without -= 1
            return False
        return True

    def note(self, *, has_found: bool) -> None:
        """Whether something was there."""
        if has_found:
            self._missed = 0
        else:
            self._missed += 1
            self.waits_without = min(1 << self._missed, _MOST_WAITS_WITHOUT)
