"""What this process's main thread is doing, seen from another thread.

`Circles` finds a loop that gets nowhere, such as ``while not ready: pass``: the thread is seen at the same few lines again and
again, and whatever a look at its variables shows is the same as before. A loop that counts, that works off a list, or that
computes new numbers is no such loop, and neither is one long call of compiled code (an XLA compilation, a decomposition in
NumPy), during which no line of Python runs.
"""

from __future__ import annotations

import dis
import sys
import threading
import time
import traceback
from collections.abc import Iterable
from itertools import takewhile
from types import FrameType, ModuleType
from typing import Any

import numpy as np

_LAUNCHER = "sporax.launch."
_OURS = ("sporax", "jax", "jaxlib", "numpy")
_LOOKS, _PAUSE_SECONDS = 20, 0.002  # at once, so that all lines of a small loop are seen soon
_QUOTED_FRAMES = 6
_MOST_VALUES = 200  # of one frame or object
_PLAIN = (int, float, complex, bool, str, bytes, type(None))
_CONTAINERS = (list, dict, set, frozenset, tuple, bytearray)

State = tuple[Any, ...]
"""Where the thread is, line by line from the outermost call on, and what is in the variables there."""


def frame() -> FrameType | None:
    """The innermost Python frame of the main thread."""
    return sys._current_frames().get(threading.main_thread().ident or 0)


def is_inside() -> bool:
    """Whether the main thread is in Sporax or JAX, where it waits for the device, and not in the user's own code."""
    innermost = frame()
    return innermost is not None and innermost.f_globals.get("__name__", "").partition(".")[0] in _OURS


def stack() -> str:
    """Where the main thread is, as the end of a traceback."""
    calls = takewhile(_is_users, (each for each, _ in traceback.walk_stack(frame())))
    shown = reversed([(each, each.f_lineno) for each, _ in zip(calls, range(_QUOTED_FRAMES), strict=False)])
    return "".join(traceback.StackSummary.extract(shown).format()).rstrip()


def _is_users(here: FrameType) -> bool:
    """Whether a call happens inside the user's program, and not around it."""
    return not here.f_globals.get("__name__", "").startswith(_LAUNCHER)


class Circles:
    """For how long the main thread has got nowhere although it runs."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew."""
        self._seen: set[State] = set()
        self._runs = False
        self._since = time.monotonic()

    def look(self) -> float:
        """Seconds since it was last seen somewhere new; 0 as long as it may be in one long call."""
        before = frame()
        for _ in range(_LOOKS):
            now = frame()
            if now is None:
                return 0.0
            if (state := _state(now)) not in self._seen:
                self._seen.add(state)
                self._since, self._runs = time.monotonic(), False
            else:
                self._runs |= now is not before or _jumps(now)
            before = now
            time.sleep(_PAUSE_SECONDS)
        return time.monotonic() - self._since if self._runs else 0.0


def _jumps(here: FrameType) -> bool:
    """Whether a call runs Python itself, and not a compiled function: it is about to go back to the head of a loop."""
    return dis.opname[here.f_code.co_code[here.f_lasti]].startswith(("JUMP", "RESUME"))


def _state(innermost: FrameType) -> State:
    found: list[Any] = []
    here: FrameType | None = innermost
    while here is not None:
        found += (id(here.f_code), here.f_lineno, _all(here.f_locals.values()))
        here = here.f_back
    return tuple(found)


def _all(values: Iterable[Any]) -> State:
    return tuple(_print(value) for value, _ in zip(tuple(values), range(_MOST_VALUES), strict=False))


def _print(value: Any, deep: bool = True) -> Any:
    """What changes when a value does, as far as can be seen quickly."""
    try:
        return _looked_at(value, deep)
    except Exception:  # a value may be of any kind, and raise whatever it likes when it is looked at
        return id(value)


def _looked_at(value: Any, deep: bool) -> Any:
    if isinstance(value, np.generic):
        return value.tobytes()
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, np.ndarray) and value.dtype != object:
        return id(value), value.ravel()[:8].tobytes() if value.flags.c_contiguous else b""
    if isinstance(value, _CONTAINERS):
        return id(value), len(value)
    held = getattr(value, "__dict__", None) if deep and not isinstance(value, ModuleType) else None
    if type(held) is not dict:
        return id(value)
    return id(value), tuple(
        _print(each, False) for each, _ in zip(tuple(held.values()), range(_MOST_VALUES), strict=False)
    )
