"""Update rules of optimizers: one source for optimizers on the devices and for parameter servers.

Each function takes the array namespace first (``jax.numpy`` on devices, ``numpy`` on servers), then the gradient, the
parameter and its state, then settings by name, and returns the new parameter and state. With the same operations in the same
order, both namespaces give the same bits as long as a compiler does not fuse multiplications with additions.

References: SGD with momentum (Sutskever et al. 2013), Adagrad (Duchi et al. 2011), Adam (Kingma & Ba 2014),
FTRL-Proximal (McMahan et al. 2013).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any, Protocol, Self, TypeVar

import numpy as np


class NumericArray(Protocol):
    """What the rules compute with arrays of either namespace."""

    def __add__(self, other: Self, /) -> Self: ...
    def __sub__(self, other: Self, /) -> Self: ...
    def __mul__(self, other: Self, /) -> Self: ...
    def __truediv__(self, other: Any, /) -> Self: ...
    def __pow__(self, other: float, /) -> Self: ...
    def __gt__(self, other: Any, /) -> Self: ...
    def __radd__(self, other: float, /) -> Self: ...
    def __rsub__(self, other: float, /) -> Self: ...
    def __rmul__(self, other: float, /) -> Self: ...


class Scalar(Protocol):
    """A factor: a number, or an array without dimensions."""

    def __mul__(self, other: Any, /) -> Any: ...
    def __rsub__(self, other: float, /) -> Any: ...


ArrayT = TypeVar("ArrayT", bound=NumericArray)
ScalarT = TypeVar("ScalarT", bound=Scalar)


@functools.cache
def settings_of(rule: Callable[..., object]) -> tuple[str, ...]:
    """Names of the settings that a rule takes."""
    parameters = inspect.signature(rule).parameters.values()
    return tuple(parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY)


def sgd(
    xp: ModuleType,
    gradient: ArrayT,
    parameter: ArrayT,
    velocity: ArrayT,
    first: ArrayT,
    *,
    rate: Scalar,
    momentum: Scalar,
    dampening: float = 0.0,
    nesterov: bool = False,
) -> tuple[ArrayT, ArrayT, ArrayT]:
    """SGD with momentum; `first` is 1 until the first step, in which the velocity becomes the gradient."""
    following = momentum * velocity + (1.0 - dampening) * gradient
    velocity = xp.where(first > 0, gradient, following)
    step = gradient + momentum * velocity if nesterov else velocity
    return parameter - rate * step, velocity, xp.zeros_like(first)


def plain_sgd(gradient: ArrayT, parameter: ArrayT, *, rate: Scalar) -> ArrayT:
    """SGD without momentum: p = p - rate · g."""
    changed: ArrayT = parameter - rate * gradient
    return changed


def momentum(
    xp: ModuleType,
    gradient: ArrayT,
    parameter: ArrayT,
    velocity: ArrayT,
    *,
    rate: Scalar,
    momentum: Scalar,
    nesterov: bool = False,
) -> tuple[ArrayT, ArrayT]:
    """v = momentum · v + g; p = p - rate · v, or p - rate · (g + momentum · v) with `nesterov`."""
    velocity = momentum * velocity + gradient
    return parameter - rate * (gradient + momentum * velocity if nesterov else velocity), velocity


def adagrad(
    xp: ModuleType, gradient: ArrayT, parameter: ArrayT, squares: ArrayT, *, rate: Scalar, update_slots: bool = True
) -> tuple[ArrayT, ArrayT]:
    """s = s + g²; p = p - rate · g / √s."""
    squares = squares + xp.square(gradient) if update_slots else squares
    return parameter - rate * gradient / xp.sqrt(squares), squares


def adam_factor(xp: ModuleType, power1: ScalarT, power2: ScalarT) -> ScalarT:
    """Factor of the learning rate that corrects the bias: √(1 - beta2ᵗ) / (1 - beta1ᵗ)."""
    factor: ScalarT = xp.sqrt(1.0 - power2) / (1.0 - power1)
    return factor


def complement(beta: float) -> float:
    """``1 - beta`` as float32 arithmetic gives it: the powers of beta are float32, and both must cancel."""
    return float(np.float32(1) - np.float32(beta))


def moments(
    xp: ModuleType, gradient: ArrayT, first: ArrayT, second: ArrayT, beta1: Scalar, beta2: Scalar, rest1: Scalar, rest2: Scalar
) -> tuple[ArrayT, ArrayT]:  # fmt: skip
    """Running means of the gradient and of its square; `rest1` and `rest2` are what the betas lack of 1."""
    return beta1 * first + rest1 * gradient, beta2 * second + rest2 * xp.square(gradient)


def adam_of(
    xp: ModuleType, gradient: ArrayT, parameter: ArrayT, first: ArrayT, second: ArrayT, *largest: ArrayT, rate: Scalar,
    beta1: Scalar, beta2: Scalar, rest1: Scalar, rest2: Scalar, eps: Scalar, nesterov: bool = False,
) -> tuple[ArrayT, ...]:  # fmt: skip
    """Adam, AMSGrad with a third state, with a `rate` that corrects the bias already, and what betas lack of 1."""
    first, second = moments(xp, gradient, first, second, beta1, beta2, rest1, rest2)
    bound = [xp.maximum(largest[0], second)] if largest else []
    direction = beta1 * first + rest1 * gradient if nesterov else first
    return parameter - rate * direction / (xp.sqrt(bound[0] if bound else second) + eps), first, second, *bound


def adam(
    xp: ModuleType, *arrays: ArrayT, rate: Scalar, beta1: float, beta2: float, eps: float, nesterov: bool = False
) -> tuple[ArrayT, ...]:
    """As `adam_of`, from the betas alone."""
    rests: dict[str, Any] = {"rest1": complement(beta1), "rest2": complement(beta2)}
    return adam_of(xp, *arrays, rate=rate, beta1=beta1, beta2=beta2, eps=eps, nesterov=nesterov, **rests)


def ftrl(
    xp: ModuleType,
    gradient: ArrayT,
    parameter: ArrayT,
    squares: ArrayT,
    linear: ArrayT,
    *,
    rate: Scalar,
    power: float,
    l1: float,
    l2: float,
) -> tuple[ArrayT, ArrayT, ArrayT]:
    """FTRL-Proximal; see `nn.FTRL` for the formula. `power` is the negated ``lr_power``."""
    total = squares + xp.square(gradient)
    slope = total**power
    linear = linear + gradient - (slope - squares**power) / rate * parameter
    solved = (xp.sign(linear) * l1 - linear) / (slope / rate + 2.0 * l2)
    return xp.where(xp.abs(linear) > l1, solved, xp.zeros_like(solved)), total, linear
