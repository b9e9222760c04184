"""Whether operators that run now take part in gradients: off inside `_no_grad`.

Gradients here come from transformations of pure functions, so what must not be differentiated has to be said while the
function is traced: operators stop the gradients of their results while the switch is off.
"""

from __future__ import annotations

import threading


# Per thread: what one thread switches off must not stop the gradients of another one.
class _Switch(threading.local):
    on = True


_switch = _Switch()


def is_on() -> bool:
    """Whether gradients flow through the operators of this thread."""
    return _switch.on


def turn(on: bool) -> None:
    """Let gradients flow through the operators that follow, or not."""
    _switch.on = on
