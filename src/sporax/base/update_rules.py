"""Update rules of optimizers: one source for optimizers on the devices and for parameter servers.

Each function takes the array namespace first (``jax.numpy`` on devices, ``numpy`` on servers) and then the gradient,
the parameter and its state, and returns the new parameter and state. With the same operations in the same order, both
namespaces give the same bits as long as a compiler does not fuse multiplications with additions.

References: SGD with momentum (Sutskever et al. 2013), Adagrad (Duchi et al. 2011), Adam (Kingma & Ba 2014),
FTRL-Proximal (McMahan et al. 2013).
"""

from __future__ import annotations

from typing import Any


def sgd(
    xp: Any,
    gradient: Any,
    parameter: Any,
    velocity: Any,
    first: Any,
    *,
    rate: Any,
    momentum: Any,
    dampening: float,
    nesterov: bool,
) -> tuple[Any, Any, Any]:
    """SGD with momentum; `first` is 1 until the first step, in which the velocity becomes the gradient."""
    following = momentum * velocity + (1.0 - dampening) * gradient
    velocity = xp.where(first > 0, gradient, following)
    step = gradient + momentum * velocity if nesterov else velocity
    return parameter - rate * step, velocity, xp.zeros_like(first)


def plain_sgd(gradient: Any, parameter: Any, *, rate: Any) -> Any:
    """SGD without momentum: p = p - rate · g."""
    return parameter - rate * gradient


def momentum(
    gradient: Any, parameter: Any, velocity: Any, *, rate: Any, momentum: Any, nesterov: bool
) -> tuple[Any, Any]:
    """v = momentum · v + g; p = p - rate · v, or p - rate · (g + momentum · v) with `nesterov`."""
    velocity = momentum * velocity + gradient
    return parameter - rate * (gradient + momentum * velocity if nesterov else velocity), velocity


def adagrad(
    xp: Any, gradient: Any, parameter: Any, squares: Any, *, rate: Any, update_slots: bool = True
) -> tuple[Any, Any]:
    """s = s + g²; p = p - rate · g / √s."""
    squares = squares + xp.square(gradient) if update_slots else squares
    return parameter - rate * gradient / xp.sqrt(squares), squares


def adam_factor(xp: Any, power1: Any, power2: Any) -> Any:
    """Factor of the learning rate that corrects the bias: √(1 - beta2ᵗ) / (1 - beta1ᵗ)."""
    return xp.sqrt(1.0 - power2) / (1.0 - power1)


def adam(
    xp: Any,
    gradient: Any,
    parameter: Any,
    first: Any,
    second: Any,
    *largest: Any,
    rate: Any,
    factor: Any,
    beta1: float,
    beta2: float,
    rest1: float,
    rest2: float,
    eps: float,
    nesterov: bool = False,
) -> tuple[Any, ...]:
    """Adam, AMSGrad with a third state; `rest1` and `rest2` are 1 - beta in float32, `factor` is `adam_factor`'s."""
    first = beta1 * first + rest1 * gradient
    second = beta2 * second + rest2 * xp.square(gradient)
    bound = [xp.maximum(largest[0], second)] if largest else []
    direction = beta1 * first + rest1 * gradient if nesterov else first
    step = rate * factor * direction / (xp.sqrt(bound[0] if bound else second) + eps)
    return parameter - step, first, second, *bound


def ftrl(
    xp: Any, gradient: Any, parameter: Any, squares: Any, linear: Any, *, rate: Any, power: float, l1: float, l2: float
) -> tuple[Any, Any, Any]:
    """FTRL-Proximal; see `nn.FTRL` for the formula. `power` is the negated ``lr_power``."""
    total = squares + xp.square(gradient)
    slope = total**power
    linear = linear + gradient - (slope - squares**power) / rate * parameter
    solved = (xp.sign(linear) * l1 - linear) / (slope / rate + 2.0 * l2)
    return xp.where(xp.abs(linear) > l1, solved, xp.zeros_like(solved)), total, linear
