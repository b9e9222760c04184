"""Attributes that are settings of the process: read when they are asked for, and not when their object is made.

A script may set the parallel mode, or call `init`, after it has made a training Cell. What such a Cell kept of the settings
before would be wrong without a word, so it keeps nothing: compiled steps depend on the settings themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def late_setting(name: str, present: Callable[[], Any], doc: str) -> Any:
    """A property of a Cell with the present setting, until someone sets the attribute.

    Args:
        name: of the attribute.
        present: gives the setting.
        doc: what it is.
    """
    own = f"_own_{name}"

    def read(cell: Any) -> Any:
        return cell.__dict__[own] if own in cell.__dict__ else present()

    def write(cell: Any, value: Any) -> None:
        # By `__setattr__` of Cells, so that compiled steps know of it.
        setattr(cell, own, value)

    return property(read, write, doc=doc)
