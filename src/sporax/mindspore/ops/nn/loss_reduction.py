"""What losses share: how they reduce, and checks of a prediction next to its target."""

from __future__ import annotations

from typing import Literal

import jax.numpy as jnp

from sporax.base.errors import SporaxValueError
from sporax.mindspore.ops._core import check
from sporax.mindspore.ops._core.operator import Array

Reduction = Literal["mean", "sum", "none"]


def reduced(loss: Array, reduction: str, count: Array | int | None = None) -> Array:
    """`loss` as it is, its sum, or its sum over `count` (the number of its elements by default)."""
    if reduction == "none":
        return loss
    total = jnp.sum(loss)
    # A given count may be 0: the result is then NaN, as in MindSpore.
    return total if reduction == "sum" else total / (loss.size if count is None else count)


def check_broadcast_pair(name: str, prediction: Array, target: Array) -> None:
    """Both are floating, and their shapes broadcast."""
    check.floating(name, input=prediction, target=target)
    check.broadcast(name, prediction, target)


def check_equal_shapes(name: str, prediction: Array, target: Array) -> None:
    """The prediction is floating, and the target has its shape."""
    check.floating(name, input=prediction)
    check.tensor(name, target=target)
    if prediction.shape != target.shape:
        raise SporaxValueError(
            f"For '{name}', 'input' and 'target' must have one shape, but got {prediction.shape} and {target.shape}."
        )
