"""Adadelta."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp

from sporax.mindspore.nn import _arguments as argument
from sporax.mindspore.nn.optim._optimizer import Array, Optimizer, Step


class Adadelta(Optimizer):
    """Adadelta (Zeiler 2012).

    a = rho · a + (1 - rho) · g²;  d = √(b + epsilon) / √(a + epsilon) · g;  b = rho · b + (1 - rho) · d²;
    p = p - learning_rate · d.

    Args:
        params: Parameters or groups; see `Optimizer`.
        learning_rate: number, list, Tensor or schedule.
        rho: share of the old averages that stays, in [0, 1].
        epsilon: added under the roots.
        loss_scale: gradients are divided by it.
        weight_decay: L2 penalty.
    """

    slots = ("accum", "accum_update")

    def __init__(
        self,
        params: Any,
        learning_rate: Any = 1.0,
        rho: float = 0.9,
        epsilon: float = 1e-6,
        loss_scale: float = 1.0,
        weight_decay: Any = 0.0,
    ) -> None:
        super().__init__(learning_rate, params, weight_decay, loss_scale)
        self.rho = argument.exactly_float("Adadelta", "rho", rho, 0.0, 1.0)
        self.epsilon = argument.exactly_float("Adadelta", "epsilon", epsilon, 0.0, math.inf)
        self.add_slot("accum")
        self.add_slot("accum_update")

    def move(self, gradient: Array, parameter: Array, *slots: Array, at: Step) -> tuple[Array, ...]:
        """See the class."""
        squares, updates = slots
        squares = self.rho * squares + (1 - self.rho) * jnp.square(gradient)
        # The units of the step are those of the Parameter (Zeiler 2012, 3.2).
        step = jnp.sqrt(updates + self.epsilon) / jnp.sqrt(squares + self.epsilon) * gradient
        updates = self.rho * updates + (1 - self.rho) * jnp.square(step)
        return parameter - at.rate * step, squares, updates
