"""Layers that zero whole rows, channels or volumes at random while training."""

from __future__ import annotations

from sporax.mindspore import ops
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.nn import _arguments as argument
from sporax.mindspore.nn.cell import Cell


class Dropout1d(Cell):
    """Zeroes channels of (N, C, L) or (C, L) at random while training, and scales the others so that the mean stays.

    Args:
        p: probability of a channel to be zeroed, in [0, 1].

    Raises:
        SporaxTypeError, SporaxValueError: no such probability.
    """

    # A static method, so that subclasses exchange the function alone.
    _drop = staticmethod(ops.dropout1d)

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self.p = argument.exactly_float(type(self).__name__, "p", p, 0.0, 1.0)

    def construct(self, x: Tensor) -> Tensor:
        """`x` with channels."""
        return self._drop(x, self.p, self.training)

    def extend_repr(self) -> str:
        """Probability."""
        return f"p={self.p}"


class Dropout2d(Dropout1d):
    """Zeroes channels of (N, C, H, W) at random while training; `p` as in `Dropout1d`."""

    _drop = staticmethod(ops.dropout2d)


class Dropout3d(Dropout1d):
    """Zeroes channels of (N, C, D, H, W) at random while training; `p` as in `Dropout1d`."""

    _drop = staticmethod(ops.dropout3d)
