"""Where data may be exchanged between ranks: contexts that forbid it, and checks of them.

A module of its own, since what is differentiated asks for it also where no rank exchanges anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sporax.base.errors import SporaxRuntimeError
from sporax.runtime.session import SESSION


class ReverseModeNeeded(Exception):  # noqa: N818 - nothing is wrong
    """An exchange was met in a function that was to be differentiated in forward mode."""


@contextmanager
def forward_mode_refused() -> Iterator[None]:
    """Context in which exchanges raise `ReverseModeNeeded`: JAX knows their derivatives in reverse mode alone."""
    tracing = SESSION.tracing
    outer, tracing.forward_mode = tracing.forward_mode, True
    try:
        yield
    finally:
        tracing.forward_mode = outer


@contextmanager
def refused(what: str) -> Iterator[None]:
    """Context in which exchanges are errors, because not all ranks run what is inside: `what` it is, for the message."""
    tracing = SESSION.tracing
    outer, tracing.refused = tracing.refused, what
    try:
        yield
    finally:
        tracing.refused = outer


def check_mode() -> None:
    """Check that data may be exchanged here.

    Raises:
        ReverseModeNeeded: inside `forward_mode_refused`.
        SporaxRuntimeError: inside `refused`.
    """
    check_reverse()
    if what := SESSION.tracing.refused:
        raise SporaxRuntimeError(f"For '{what}', communication operators must stand outside of it.")


def check_reverse() -> None:
    """Check that what comes is not differentiated in forward mode.

    Raises:
        ReverseModeNeeded: inside `forward_mode_refused`.
    """
    if SESSION.tracing.forward_mode:
        raise ReverseModeNeeded
