"""Looking at values from inside a program."""

from __future__ import annotations

from typing import Any

import jax

from sporax.common.tensor import Tensor
from sporax.ops._operator import PRIMITIVES, export


class Print:
    """Prints tensors and strings to standard output when the program runs, compiled or not; returns its first tensor."""

    def __call__(self, *values: Any) -> Any:
        """Print `values`, one per line."""
        fields = [value if isinstance(value, str) else "{}" for value in values]
        template = "\n".join(
            field.replace("{", "{{").replace("}", "}}") if field != "{}" else field for field in fields
        )
        arrays = [value.array if isinstance(value, Tensor) else value for value in values if not isinstance(value, str)]
        jax.debug.print(template, *arrays, ordered=False)
        return next((value for value in values if isinstance(value, Tensor)), None)


def print_(*values: Any) -> Any:
    """Functional form of `Print`."""
    return Print()(*values)


PRIMITIVES["Print"] = Print
export(print_)
