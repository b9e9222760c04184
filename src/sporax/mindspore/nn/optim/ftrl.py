"""Follow the regularized leader."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp

from sporax.base import update_rules
from sporax.base.errors import SporaxValueError
from sporax.mindspore.common.parameter import Parameter
from sporax.mindspore.nn import _arguments as argument
from sporax.mindspore.nn.optim._optimizer import Array, Optimizer, Step


class FTRL(Optimizer):
    """FTRL-Proximal (McMahan et al. 2013), which leaves unimportant weights at exactly 0.

    n' = n + g²;  z = z + g - (n'^-lr_power - n^-lr_power) / learning_rate · p;
    p = (sign(z) · l1 - z) / (n'^-lr_power / learning_rate + 2 · l2) where |z| > l1, else 0.

    Args:
        params: Parameters or groups without rates of their own; see `Optimizer`.
        initial_accum: first value of n, a float >= 0.
        learning_rate: a float > 0.
        lr_power: power of n, a float <= 0.
        l1, l2: penalties, floats >= 0.
        use_locking: accepted for compatibility; steps never overlap.
        loss_scale: gradients are divided by it.
        weight_decay: L2 penalty through the gradient.

    Raises:
        SporaxValueError: a learning rate that varies, or a number out of range.
    """

    slots = ("moments", "linear")
    lazy_rows = True

    def __init__(
        self,
        params: Any,
        initial_accum: float = 0.1,
        learning_rate: float = 0.001,
        lr_power: float = -0.5,
        l1: float = 0.0,
        l2: float = 0.0,
        use_locking: bool = False,
        loss_scale: float = 1.0,
        weight_decay: Any = 0.0,
    ) -> None:
        super().__init__(learning_rate, params, weight_decay, loss_scale)
        # The rate is part of the accumulated sums, so it must not change.
        if len(self.rates) > 1 or not isinstance(self.rates[0], Parameter):
            raise SporaxValueError(
                "For 'FTRL', the learning rate must be one number, but it varies with the step or the group."
            )
        argument.exactly_float("FTRL", "learning_rate", learning_rate, 0.0, math.inf, "()")
        self.power = -argument.exactly_float("FTRL", "lr_power", lr_power, -math.inf, 0.0)
        self.l1 = argument.exactly_float("FTRL", "l1", l1, 0.0, math.inf)
        self.l2 = argument.exactly_float("FTRL", "l2", l2, 0.0, math.inf)
        argument.boolean("FTRL", "use_locking", use_locking)
        self.initial_accum = argument.exactly_float("FTRL", "initial_accum", initial_accum, 0.0, math.inf)
        self.add_slot("moments", self.initial_accum)
        self.add_slot("linear")

    def _exempt_from_decay(self, parameter: Parameter) -> bool:
        """FTRL decays every Parameter."""
        return False

    def move(self, gradient: Array, parameter: Array, *slots: Array, at: Step) -> tuple[Array, ...]:
        """See the class."""
        squares, linear = slots
        return update_rules.ftrl(
            jnp, gradient, parameter, squares, linear, rate=at.rate, power=self.power, l1=self.l1, l2=self.l2
        )

    def server_rule(self) -> tuple[str, dict[str, float]]:
        """See `Optimizer`."""
        return "ftrl", {"initial_accum": self.initial_accum, "power": self.power, "l1": self.l1, "l2": self.l2}
