"""Adagrad and its proximal form."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp

from sporax.base import update_rules
from sporax.mindspore.nn import _arguments as argument
from sporax.mindspore.nn.optim._optimizer import Array, Optimizer, Step


class Adagrad(Optimizer):
    """Adagrad (Duchi et al. 2011): s = s + g²;  p = p - learning_rate · g / √s.

    Args:
        params: Parameters or groups; see `Optimizer`.
        accum: first value of s, a float >= 0.
        learning_rate: number, list, Tensor or schedule.
        update_slots: whether s grows.
        loss_scale: gradients are divided by it.
        weight_decay: L2 penalty.
    """

    slots = ("accum",)

    def __init__(
        self,
        params: Any,
        accum: float = 0.1,
        learning_rate: Any = 0.001,
        update_slots: bool = True,
        loss_scale: float = 1.0,
        weight_decay: Any = 0.0,
    ) -> None:
        super().__init__(learning_rate, params, weight_decay, loss_scale)
        self.update_slots = argument.boolean("Adagrad", "update_slots", update_slots)
        self.accum_value = argument.exactly_float("Adagrad", "accum", accum, 0.0, math.inf)
        self.add_slot("accum", self.accum_value)

    def move(self, gradient: Array, parameter: Array, *slots: Array, at: Step) -> tuple[Array, ...]:
        """See the class."""
        return update_rules.adagrad(jnp, gradient, parameter, slots[0], rate=at.rate, update_slots=self.update_slots)

    def server_rule(self) -> tuple[str, dict[str, float]]:
        """See `Optimizer`."""
        return "adagrad", {"accum": self.accum_value, "update_slots": float(self.update_slots)}


class ProximalAdagrad(Optimizer):
    """Adagrad followed by a proximal step for L1 and L2 penalties (Duchi & Singer 2009).

    s = s + g²;  v = p - learning_rate · g / √s;
    p = sign(v) · max(|v| - learning_rate / √s · l1, 0) / (1 + learning_rate / √s · l2).

    Args:
        params: Parameters or groups; see `Optimizer`.
        accum: first value of s, a float >= 0.
        learning_rate: number, list, Tensor or schedule.
        l1, l2: penalties, floats >= 0.
        use_locking: accepted for compatibility; steps never overlap.
        loss_scale: gradients are divided by it.
        weight_decay: L2 penalty through the gradient.
    """

    slots = ("accum",)
    lazy_rows = True

    def __init__(
        self,
        params: Any,
        accum: float = 0.1,
        learning_rate: Any = 0.001,
        l1: float = 0.0,
        l2: float = 0.0,
        use_locking: bool = False,
        loss_scale: float = 1.0,
        weight_decay: Any = 0.0,
    ) -> None:
        super().__init__(learning_rate, params, weight_decay, loss_scale)
        name = "ProximalAdagrad"
        self.l1 = argument.exactly_float(name, "l1", l1, 0.0, math.inf)
        self.l2 = argument.exactly_float(name, "l2", l2, 0.0, math.inf)
        argument.boolean(name, "use_locking", use_locking)
        self.add_slot("accum", argument.exactly_float(name, "accum", accum, 0.0, math.inf))

    def move(self, gradient: Array, parameter: Array, *slots: Array, at: Step) -> tuple[Array, ...]:
        """See the class."""
        squares = slots[0] + jnp.square(gradient)
        rate = at.rate / jnp.sqrt(squares)
        moved = parameter - rate * gradient
        # Soft thresholding: small values become 0.
        shrunk = jnp.sign(moved) * jnp.maximum(jnp.abs(moved) - rate * self.l1, 0.0)
        # Without l1 the sign would only cost.
        return (shrunk if self.l1 > 0 else moved) / (1.0 + rate * self.l2), squares
