"""Looking at values from inside a program."""

from __future__ import annotations

from typing import Any

import jax

from sporax.common.tensor import Tensor
from sporax.ops._core.operator import PRIMITIVES, export


class Print:
    """Prints tensors and strings to standard output, one per line, when the program runs, compiled or not."""

    def __call__(self, *args: Any) -> None:
        """Print `args`: Tensors, strings, numbers."""

        def show(*arrays: Any) -> None:
            remaining = iter(arrays)
            print(*(next(remaining) if isinstance(value, Tensor) else value for value in args), sep="\n")

        jax.debug.callback(show, *(value.array for value in args if isinstance(value, Tensor)))


def print_(*input_x: Any) -> None:
    """Functional form of `Print`."""
    Print()(*input_x)


PRIMITIVES["Print"] = Print
export(print_)
