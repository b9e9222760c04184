"""`mindspore.ops._primitive_cache`: primitives that functions make again at every call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def _get_cache_prim(cls: Callable[..., Any]) -> Callable[..., Any]:
    """`cls` itself: making a primitive costs little here, and its programs are kept by attributes, not by object."""
    return cls
