"""Errors that depend on values: raised after a compiled step has run.

A program cannot raise. It hands the condition to the host (`fail_when`), which notes the error; whoever ran the program
waits for it and raises (`raise_noted`). Programs without such conditions do not wait.
"""

from __future__ import annotations

from typing import Any

import jax

from sporax.runtime.session import SESSION
from sporax.runtime.state import frames


def fail_when(flag: Any, error: BaseException) -> None:
    """Make the program that is being traced raise `error` when `flag`, a bool array, is true."""

    def note(happened: Any) -> None:
        if bool(happened):
            SESSION.failed_checks.append(error)

    frames.note_check()
    jax.debug.callback(note, flag)


def raise_noted(outputs: Any) -> None:
    """Wait for a program that has conditions, and raise the first error of this run.

    Args:
        outputs: arrays that the program gave.
    """
    jax.block_until_ready(outputs)
    # Outputs can be ready before the callbacks of their program have run.
    jax.effects_barrier()
    if SESSION.failed_checks:
        # Later conditions often fail because of the first one, and none may be left for the next run.
        error = SESSION.failed_checks[0]
        SESSION.failed_checks.clear()
        # The error object is part of the compiled program; without this its traceback would grow with every run.
        raise error.with_traceback(None)
