"""Whether operators outside of compiled steps wait for their results: `runtime.launch_blocking`.

JAX hands an operator to the device and goes on. An error on the device then shows where the result is read first. With this
switch on, each operator waits, so the error names the line that called it; and a clock around the line measures it.
"""

from __future__ import annotations

from sporax.base.made_later import dataclass


@dataclass(slots=True)
class _Switch:
    on: bool = False


_SWITCH = _Switch()


def is_on() -> bool:
    """Whether operators wait."""
    return _SWITCH.on


def turn(on: bool) -> None:
    """Let operators wait for their results from now on, or not."""
    _SWITCH.on = on


def launch_blocking() -> None:
    """Let each operator outside of compiled steps wait for its result; as ``set_context(pynative_synchronize=True)``."""
    turn(True)
