"""Hooks that look at what each transform of a `map` takes and gives: `mindspore.dataset.debug`.

`dataset.config.set_debug_mode` puts them in; a program may also put one between the operations of a `map` itself.
"""

from __future__ import annotations

import abc
from collections.abc import Sized
from typing import Any

import numpy as np

from sporax.mindspore.dataset._rows import is_pillow


class DebugHook(abc.ABC):
    """Base of hooks: define `compute`.

    Args:
        prev_op_name: name of the operation that a hook belongs to; set where debug mode puts the hook in.

    Example:
        >>> class Stop(DebugHook):
        ...     def compute(self, *args):
        ...         breakpoint()
    """

    def __init__(self, prev_op_name: str | None = None) -> None:
        self.prev_op_name = prev_op_name
        self.is_first_op: bool | None = None

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        """Say which operation it is, and show the values of a row's columns to `compute`."""
        if self.prev_op_name:
            what = "INPUT" if self.is_first_op else "OUTPUT"
            print(f"[Dataset debugger] Print the [{what}] of the operation [{self.prev_op_name}].", flush=True)
        self.compute(args)
        return args

    @abc.abstractmethod
    def compute(self, *args: Any) -> Any:
        """What to do.

        Args:
            args: one tuple with the values of the columns of a row.
        """

    def set_previous_op_name(self, prev_op_name: str | None) -> None:
        """Set the name of the operation that the hook belongs to."""
        self.prev_op_name = prev_op_name

    def set_is_first(self, is_first_op: bool) -> None:
        """Set whether it looks at what the first operation takes, not at what an operation gives."""
        self.is_first_op = is_first_op


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
