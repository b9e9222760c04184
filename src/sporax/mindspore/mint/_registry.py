"""How functions of this package become names of `sporax.mindspore.mint`, and checks that many of them share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sporax.base.errors import SporaxNotImplementedError
from sporax.mindspore.ops._core.operator import MINT


def offer(*functions: Callable[..., Any], place: str = "") -> None:
    """Make functions names of `sporax.mindspore.mint`, below `place` (such as ``"nn.functional."``)."""
    for function in functions:
        MINT[place + function.__name__] = function


def same_device(name: str, device: str | None) -> None:
    """Raise SporaxNotImplementedError unless `device` is None: tensors live where `set_device` says."""
    if device is not None:
        raise SporaxNotImplementedError.must(
            name, "device", "be None", f"{device!r}; tensors are made on the device of the context (set_device)"
        )
