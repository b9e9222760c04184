"""A tensor meets a statement that needs its value: what is rewritten for it (see the package)."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType

from sporax.base.errors import SporaxTypeError
from sporax.mindspore import autograph
from sporax.mindspore.common import tensor
from sporax.runtime.state import frames

_PACKAGE = str(Path(__file__).parents[2])
_COMPREHENSIONS = frozenset(("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"))
# Conversions that rewritten code can do without; others need real values in any case.
_ASKED = frozenset(("bool", "int", "float", "index", "str"))


def meet(what: str) -> None:
    """A tensor whose value is not known was asked for it: rewrite the function that asks, where that helps.

    Args:
        what: what was asked for.

    Raises:
        Retrace: the function has been rewritten.
        SporaxTypeError: it had been, and this place of it cannot be.
    """
    if what not in _ASKED or not frames.compiling():
        return
    # The user's code may ask through a library, whose functions are not rewritten.
    frame = _asking()
    if frame is None:
        return
    code = frame.f_code
    if autograph.is_rewritten(code):
        if what != "str":
            # Text is printed later, so a tensor in it does no harm.
            raise SporaxTypeError(
                f"For '{what}', the value of this tensor is not known while the step is being compiled, and Python needs it "
                f"in this expression.\n  In file {code.co_filename}, line {frame.f_lineno}; use ops.where, ops.cond or "
                "ops.while_loop there."
            )
        return
    # The frame that runs now keeps the old code, so the step is traced again from its beginning.
    autograph.rewrite(code)
    raise frames.Retrace(code.co_qualname)


def _asking() -> FrameType | None:
    """The user's frame, if it asked directly."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename == tensor.__file__:
        frame = frame.f_back
    # Comprehensions may have frames of their own.
    while frame is not None and frame.f_code.co_name in _COMPREHENSIONS:
        frame = frame.f_back
    if frame is None or frame.f_code.co_filename.startswith(_PACKAGE):
        return None
    return frame


_UNBOUND = re.compile(r"local variable '(\w+)'")


def start_as_global(error: UnboundLocalError) -> None:
    """A local variable was read before it was bound: where there is a global of its name, it starts with that one's value.

    MindSpore reads the global, too; the global stays what it is.

    Args:
        error: what Python has raised.

    Raises:
        Retrace: the function has been rewritten so.
    """
    trace, match = error.__traceback__, _UNBOUND.search(str(error))
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or match is None:
        return
    frame, name = trace.tb_frame, match[1]
    if name not in frame.f_globals or frame.f_code.co_filename.startswith(_PACKAGE):
        return
    if autograph.start_as_global(frame.f_code, name):
        raise frames.Retrace(frame.f_code.co_qualname)
