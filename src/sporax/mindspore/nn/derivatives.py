"""Derivatives of networks as Cells: `Jvp` and `Vjp` of older programs."""

from __future__ import annotations

from typing import Any

from sporax.base.errors import SporaxTypeError
from sporax.mindspore import ops
from sporax.mindspore.nn.cell import Cell


class Jvp(Cell):
    """Outputs of a network and their derivative in a direction: ``Jvp(net)(*inputs, v)``. Use `ops.jvp` in new code.

    Args:
        fn: function or Cell of Tensors.
    """

    def __init__(self, fn: Any) -> None:
        super().__init__()
        _check_function("Jvp", fn)
        self.fn = fn

    def construct(self, *args: Any) -> tuple[Any, Any]:
        """Inputs, then the direction: a Tensor for one input, a tuple for several."""
        *inputs, directions = args
        return ops.jvp(self.fn, tuple(inputs), directions)


class Vjp(Cell):
    """Outputs of a network and the gradients of its inputs: ``Vjp(net)(*inputs, v)``. Use `ops.vjp` in new code.

    Args:
        fn: function or Cell of Tensors.
    """

    def __init__(self, fn: Any) -> None:
        super().__init__()
        _check_function("Vjp", fn)
        self.fn = fn

    def construct(self, *args: Any) -> tuple[Any, Any]:
        """Inputs, then the cotangent: a Tensor for one output, a tuple for several."""
        *inputs, cotangents = args
        outputs, backward = ops.vjp(self.fn, *inputs)
        gradients = backward(*cotangents) if isinstance(cotangents, tuple) else backward(cotangents)
        # One input: its gradient by itself.
        return outputs, gradients if len(inputs) > 1 else gradients[0]


def _check_function(name: str, fn: Any) -> None:
    if not callable(fn):
        raise SporaxTypeError(f"For '{name}', 'fn' must be a function or a Cell, but got {type(fn).__name__}.")
