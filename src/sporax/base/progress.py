"""Progress messages while the user waits for a plan.

Code that may take long names its activity with `activity`. `reported` prints it on standard error after some seconds: on one
line that changes in a terminal, as plain lines elsewhere. Shorter activities print nothing.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import TextIO

from sporax.base.lazy_members import dataclass

DELAY_SECONDS = 4.0
"""What is over sooner is not worth a word."""
_REFRESH_SECONDS = 0.5
"""Between pictures on a terminal, where a line is written over."""
_LOOK_SECONDS = 2.0
"""Between looks for plain lines: no line can come sooner than `_CHANGED_SECONDS`."""
_CHANGED_SECONDS, _AGAIN_SECONDS = 10.0, 30.0
"""Between plain lines: where something else is done, and where it still goes on."""


@dataclass(frozen=True, slots=True, eq=False)
class Activity:
    """Something that takes a while.

    Attributes:
        what: for people.
        since: of `time.monotonic`.
    """

    what: str
    since: float


_activities: list[Activity] = []
"""What this process does for plans, each a part of the one before it."""


@contextmanager
def activity(what: str) -> Iterator[None]:
    """Says what is done inside, or, as a decorator, by a function."""
    activity = Activity(what, time.monotonic())
    _activities.append(activity)
    try:
        yield
    finally:
        _activities.remove(activity)


@contextmanager
def reported(speaks: bool = True, file: TextIO | None = None, delay: float = DELAY_SECONDS) -> Iterator[None]:
    """Shows what is done inside, if it takes long; inside of another one, that one does.

    Args:
        speaks: False for processes that have nothing to say: one of many speaks for all.
        file: where; standard error by default.
        delay: seconds after which there is something to say.
    """
    if not speaks or _activities:
        yield
        return
    over = Event()
    teller = Thread(target=_report, args=(over, file or sys.stderr, delay), daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()


def _report(over: Event, file: TextIO, delay: float) -> None:
    start = time.monotonic()
    if over.wait(delay):
        return
    if file.isatty():
        console = importlib.import_module("rich.console").Console(file=file)  # by name: few have to wait for it
        with console.status(_words(start)) as status:
            while not over.wait(_REFRESH_SECONDS):
                status.update(_words(start))
    else:
        _report_in_lines(over, file, start)


def _report_in_lines(over: Event, file: TextIO, start: float) -> None:
    """A line for what lasts, and one now and then while nothing changes."""
    text, last = "", -_AGAIN_SECONDS
    while True:
        now, what = time.monotonic(), _what()
        if now - last >= (_AGAIN_SECONDS if what == text else _CHANGED_SECONDS):
            text, last = what, now
            print(f"sporax: {_words(start)}", file=file, flush=True)
        if over.wait(_LOOK_SECONDS):
            print(f"sporax: done in {time.monotonic() - start:.0f} s", file=file, flush=True)
            return


def _what() -> str:
    """The outermost activity and the innermost."""
    names = [activity.what for activity in (*_activities[:1], *_activities[-1:])]
    return ": ".join(dict.fromkeys(names)) or "planning"


def _words(start: float) -> str:
    """``"search (dynamic_programming): what fits into the memory, 12 s"``: what is done, and how long all of it has taken."""
    return f"{_what()}, {time.monotonic() - start:.0f} s"
