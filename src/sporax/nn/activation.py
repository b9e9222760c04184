"""Activation layers, each a Cell around the function of the same name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sporax import ops
from sporax.common.tensor import Tensor
from sporax.ir.errors import SporaxKeyError, SporaxTypeError
from sporax.nn.cell import Cell


def _layer(name: str, function: Callable[[Tensor], Tensor], doc: str) -> type[Cell]:
    def construct(self: Cell, x: Tensor) -> Tensor:
        return function(x)

    construct.__doc__ = "`x` of any shape."
    return type(name, (Cell,), {"construct": construct, "__doc__": doc, "__module__": __name__})


ReLU = _layer("ReLU", ops.relu, "The input where it is positive, zero elsewhere.")
ReLU6 = _layer("ReLU6", ops.relu6, "The input limited to [0, 6].")
Sigmoid = _layer("Sigmoid", ops.sigmoid, "1 / (1 + exp(-x)).")
Tanh = _layer("Tanh", ops.tanh, "Hyperbolic tangent.")
SiLU = _layer("SiLU", ops.silu, "x · sigmoid(x).")


class GELU(Cell):
    """Gaussian error linear unit.

    Args:
        approximate: by tanh (True) or by the error function.
    """

    def __init__(self, approximate: bool = True) -> None:
        super().__init__()
        if not isinstance(approximate, bool):
            raise SporaxTypeError(f"For 'GELU', 'approximate' must be a bool, but got {type(approximate).__name__}.")
        self.approximate = approximate

    def construct(self, x: Tensor) -> Tensor:
        """`x` of any shape."""
        return ops.gelu(x, "tanh" if self.approximate else "none")


class LeakyReLU(Cell):
    """The input where it is positive, `alpha` times the input elsewhere."""

    def __init__(self, alpha: float = 0.2) -> None:
        super().__init__()
        self.alpha = alpha

    def construct(self, x: Tensor) -> Tensor:
        """`x` of any shape."""
        # As maximum (minimum), so that the derivative at 0 is the mean of both slopes, as in MindSpore.
        return ops.maximum(x, x * self.alpha) if self.alpha <= 1 else ops.minimum(x, x * self.alpha)


class ELU(Cell):
    """The input where it is positive, ``alpha * (exp(x) - 1)`` elsewhere."""

    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__()
        self.alpha = alpha

    def construct(self, x: Tensor) -> Tensor:
        """`x` of any shape."""
        return ops.elu(x, self.alpha)


class Softmax(Cell):
    """Exponentials divided by their sum along `axis`."""

    def __init__(self, axis: int | tuple[int, ...] = -1) -> None:
        super().__init__()
        self.axis = axis

    def construct(self, x: Tensor) -> Tensor:
        """`x` of any shape."""
        return ops.softmax(x, self.axis)


class LogSoftmax(Cell):
    """Logarithm of softmax along `axis`."""

    def __init__(self, axis: int = -1) -> None:
        super().__init__()
        self.axis = axis

    def construct(self, x: Tensor) -> Tensor:
        """`x` of any shape."""
        return ops.log_softmax(x, self.axis)


_BY_NAME: dict[str, Callable[[], Cell]] = {
    "relu": ReLU,
    "relu6": ReLU6,
    "sigmoid": Sigmoid,
    "tanh": Tanh,
    "gelu": GELU,
    "silu": SiLU,
    "elu": ELU,
    "leakyrelu": LeakyReLU,
    "softmax": Softmax,
    "logsoftmax": LogSoftmax,
}


def get_activation(name: Any, prim_name: str | None = None) -> Cell | None:
    """The activation layer called `name`; None for None.

    Raises:
        SporaxTypeError: `name` is not a string.
        SporaxKeyError: no layer has this name.
    """
    if name is None:
        return None
    if not isinstance(name, str):
        raise SporaxTypeError(
            f"For '{prim_name or 'get_activation'}', the name must be a string, but got {type(name).__name__}."
        )
    if name not in _BY_NAME:
        raise SporaxKeyError(
            f"For '{prim_name or 'get_activation'}', the activation must be in {list(_BY_NAME)}, got '{name}'."
        )
    return _BY_NAME[name]()
