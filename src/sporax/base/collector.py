"""Python's collector of garbage, and work that makes many objects and no garbage.

Problem: the more objects there are, the longer a collection takes, and work that makes 100,000 objects starts a hundred
of them. Method: the collector rests meanwhile, and what was made counts as old afterwards: the next small collections pass over
it. Objects whose last reference goes away are freed as before. Reference: `gc.freeze` of Python's library.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def gc_paused() -> Iterator[None]:
    """No search for garbage inside; nor after it, where the program has switched the collector off."""
    if not gc.isenabled():  # by the program, or by an import that led here
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        if not gc.get_freeze_count():
            # There and back: among the oldest objects, instead of the youngest, which the next collection would look at.
            gc.freeze()
            gc.unfreeze()
        gc.enable()
