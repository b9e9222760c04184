"""RMSProp."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp

from sporax.mindspore.nn import _arguments as argument
from sporax.mindspore.nn.optim._optimizer import Array, Optimizer, Step


class RMSProp(Optimizer):
    """RMSProp (Tieleman & Hinton 2012), optionally centered (Graves 2013).

    s = decay · s + (1 - decay) · g²;  v = momentum · v + learning_rate · g / √(s + epsilon);  p = p - v.
    `centered` keeps the mean gradient too, a = decay · a + (1 - decay) · g, and divides by √(s - a² + epsilon).

    Args:
        params: Parameters or groups; see `Optimizer`.
        learning_rate: number, list, Tensor or schedule.
        decay: share of the old averages that stays.
        momentum: share of the velocity that stays.
        epsilon: added under the root.
        use_locking: accepted for compatibility; steps never overlap.
        centered: divide by the deviation instead of the root of the mean square.
        loss_scale: gradients are divided by it.
        weight_decay: L2 penalty.
    """

    slots: tuple[str, ...] = ("mean_square", "moment")

    def __init__(
        self,
        params: Any,
        learning_rate: Any = 0.1,
        decay: float = 0.9,
        momentum: float = 0.0,
        epsilon: float = 1e-10,
        use_locking: bool = False,
        centered: bool = False,
        loss_scale: float = 1.0,
        weight_decay: Any = 0.0,
    ) -> None:
        super().__init__(learning_rate, params, weight_decay, loss_scale)
        self.decay = argument.exactly_float("RMSProp", "decay", decay, 0.0, math.inf)
        self.momentum = argument.exactly_float("RMSProp", "momentum", momentum, 0.0, math.inf)
        self.epsilon = argument.exactly_float("RMSProp", "epsilon", epsilon, 0.0, math.inf, "()")
        argument.boolean("RMSProp", "use_locking", use_locking)
        self.centered = argument.boolean("RMSProp", "centered", centered)
        if centered:
            self.slots = (*RMSProp.slots, "mean_grad")
            self.add_slot("mean_grad")
        # 1 as in MindSpore: the first steps are small ones.
        self.add_slot("mean_square", 1.0)
        self.add_slot("moment")

    def move(self, gradient: Array, parameter: Array, *slots: Array, at: Step) -> tuple[Array, ...]:
        """See the class."""
        squares, velocity, *means = slots
        squares = self.decay * squares + (1 - self.decay) * jnp.square(gradient)
        means = [self.decay * mean + (1 - self.decay) * gradient for mean in means]
        # Centred: the variance instead of the mean square.
        variance = squares - jnp.square(means[0]) if means else squares
        velocity = self.momentum * velocity + at.rate * gradient / jnp.sqrt(variance + self.epsilon)
        return parameter - velocity, squares, velocity, *means
