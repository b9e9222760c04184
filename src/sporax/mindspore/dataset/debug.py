"""Hooks that look at what each transform of a `map` takes and gives: `mindspore.dataset.debug`.

`dataset.config.set_debug_mode` puts them in; a program may also put one between the operations of a `map` itself.
"""

from __future__ import annotations

from collections.abc import Sized
from typing import Any

import numpy as np

from sporax.mindspore.dataset._hooks import DebugHook
from sporax.mindspore.dataset._rows import is_pillow

__path__: list[str] = []  # a package in MindSpore, see `sporax.mindspore._names.module_paths`

__all__ = ["DebugHook", "PrintDataHook", "PrintMetaDataHook"]


class PrintMetaDataHook(DebugHook):
    """Prints dtype and shape, or kind and size, of each column."""

    def compute(self, *args: Any) -> Any:
        """See DebugHook."""
        for number, value in enumerate(*args):
            line = f"Column {number}. "
            if isinstance(value, np.ndarray):
                line += f"The dtype is [{value.dtype}]. The shape is [{value.shape}]."
            elif is_pillow(value):
                line += f"The type is [{type(value)}]. The shape is [{value.size}]."
            elif isinstance(value, Sized):
                line += f"The type is [{type(value)}]. The size is [{len(value)}]."
            print(line, flush=True)
        return args


class PrintDataHook(DebugHook):
    """Prints the values of each column."""

    def compute(self, *args: Any) -> Any:
        """See DebugHook."""
        for number, value in enumerate(*args):
            print(f"Column {number}. The data is [{np.asarray(value) if is_pillow(value) else value}].", flush=True)
        return args
