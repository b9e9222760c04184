"""Fan in, fan out and gain: how far initial weights spread, and numbers that follow numpy's seed.

References: X. Glorot, Y. Bengio, "Understanding the difficulty of training deep feedforward neural networks", 2010; K. He et
al., "Delving deep into rectifiers", 2015.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sporax.base.errors import SporaxValueError

Shape = tuple[int, ...]


def fans(shape: Shape) -> tuple[int, int]:
    """Inputs and outputs one element of the result connects: (dim 1, dim 0) times the rest."""
    if len(shape) < 2:
        raise SporaxValueError(
            f"For 'initializer', fan in and fan out need at least 2 dimensions, but got shape {shape}."
        )
    # Size of the receptive field: 1 for a matrix.
    field = math.prod(shape[2:])
    return shape[1] * field, shape[0] * field


LEAKY_SLOPE = 0.01
"""Of MindSpore's leaky ReLU, where no slope is given."""


def gain(nonlinearity: str, slope: float) -> float:
    """What initial weights are multiplied by before a nonlinearity.

    Args:
        nonlinearity: its name.
        slope: of ``"leaky_relu"`` below zero; others have none.

    Raises:
        SporaxValueError: an unknown name.
    """
    # The gain of tanh is an empirical number, that of ReLU makes up for the half that it sets to zero.
    fixed = {"tanh": 5.0 / 3, "relu": math.sqrt(2.0)}
    if nonlinearity in fixed:
        return fixed[nonlinearity]
    if nonlinearity == "leaky_relu":
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity in ("sigmoid", "linear") or nonlinearity.startswith("conv"):
        return 1.0
    raise SporaxValueError(f"For 'initializer', the 'nonlinearity' is not known: '{nonlinearity}'.")


def fan_in_and_fan_out(shape: Shape) -> tuple[int, int]:
    """Inputs and outputs that one element of a weight of this shape connects."""
    return fans(tuple(shape))


def fan_of_mode(shape: Shape, mode: str) -> int:
    """One of both: ``mode`` is ``"fan_in"`` or ``"fan_out"``.

    Raises:
        SporaxValueError: another mode.
    """
    if mode.lower() not in ("fan_in", "fan_out"):
        raise SporaxValueError(f"For 'initializer', 'mode' must be 'fan_in' or 'fan_out', but got {mode!r}.")
    fan_in, fan_out = fans(tuple(shape))
    return fan_in if mode.lower() == "fan_in" else fan_out


def gain_of(nonlinearity: str, param: float | None = None) -> float:
    """What initial weights are multiplied by before a nonlinearity; `param` is the slope of ``"leaky_relu"``."""
    return gain(nonlinearity, LEAKY_SLOPE if param is None else param)


def filled_with(arr: np.ndarray[Any, Any], num: Any) -> np.ndarray[Any, Any]:
    """Fill a numpy array, in place where it has dimensions, and return it."""
    # A scalar cannot be filled by a slice, so it is filled as an array of one.
    filled = arr.reshape(1) if arr.shape == () else arr
    filled[:] = num
    return filled.reshape(arr.shape)


def fans_of_array(arr: Any) -> tuple[int, int]:
    """Inputs and outputs that one element of this array connects."""
    return fans(tuple(arr.shape))


def _numpy_seed() -> int:
    """A number that depends on numpy's seed alone."""
    # Drawn from numpy's stream, so that `np.random.seed` decides.
    return int(np.random.randint(low=1, high=1 << 63, dtype=np.int64))


def normal_numbers(mean: float, sigma: float, shape: Any) -> np.ndarray[Any, Any]:
    """Normal numbers, float32, that depend on numpy's seed alone.

    Raises:
        SporaxValueError: `sigma` is negative.
    """
    if sigma < 0:
        raise SporaxValueError(f"For 'initializer', 'sigma' must not be negative, but got {sigma}.")
    return np.random.default_rng(_numpy_seed()).normal(mean, sigma, shape).astype(np.float32)


def uniform_numbers(a: float, b: float, shape: Any) -> np.ndarray[Any, Any]:
    """Uniform numbers between `a` and `b`, float32, that depend on numpy's seed alone."""
    return np.random.default_rng(_numpy_seed()).uniform(a, b, shape).astype(np.float32)
