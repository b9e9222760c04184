"""What a rank does when another is lost, and when it fails itself.

* A rank that raises tells the scheduler and ends at once, without waiting for the others.
* A rank that is killed, or whose machine is gone, is noticed by the scheduler (its connection breaks) and, where there is
  no scheduler, by JAX's heartbeats. The other ranks wait in a collective that will never finish: they are ended.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from sporax.launch.membership import Membership

HEARTBEAT_SECONDS = 10
"""A rank that has sent no heartbeat for so long (stopped, machine gone) counts as lost."""

SHUTDOWN_SECONDS = 300
"""How long a rank that is done waits for the others, which may still need it as coordinator."""

_GRACE_SECONDS = 3.0  # the launcher ends the other ranks itself; only where there is none they end on their own
_FAILED = 1

_membership: Membership | None = None


def start(membership: Membership) -> None:
    """Watch the other ranks from now on."""
    global _membership
    _membership = membership
    membership.watch(_end_because)


def stop() -> None:
    """Stop watching."""
    global _membership
    _membership = None


def say_goodbye() -> None:
    """At the end of the process: after an exception that nobody caught, leave without waiting for the others."""
    if _membership is None or getattr(sys, "last_type", None) is None:
        return
    _membership.leave()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(_FAILED)  # JAX would wait for all ranks to shut down together


def _end_because(reason: str) -> None:
    """End this process: what it waits for will not come."""
    membership = _membership
    if membership is None:
        return
    report(f"rank {membership.environment.rank} ends because {reason}")
    time.sleep(_GRACE_SECONDS)
    os._exit(_FAILED)


def note_start(name: str) -> None:
    """This rank hands a program that exchanges data to the device."""


def note_end(last: Any) -> None:
    """The device has taken it; `last` is ready when the other ranks have done their part."""


def report(text: str) -> None:
    """Say something in this rank's log."""
    print(f"sporax: {text}", file=sys.stderr, flush=True)
