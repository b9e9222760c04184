"""Gradient descent, with and without momentum."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from sporax.base import update_rules
from sporax.base.errors import SporaxValueError, check_type
from sporax.mindspore.common import dtype as dtypes
from sporax.mindspore.common.parameter import Parameter
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.nn import _arguments as argument
from sporax.mindspore.nn.optim._optimizer import Array, Optimizer, Step


class SGD(Optimizer):
    r"""Stochastic gradient descent with optional momentum.

    With gradient g (plus ``weight_decay * p``): v starts as the first g, then v = momentum · v + (1 - dampening) · g;
    p = p - learning_rate · v, or with `nesterov` p = p - learning_rate · (g + momentum · v).

    Args:
        params: Parameters or groups; see `Optimizer`.
        learning_rate: number, list, Tensor or schedule.
        momentum: share of the velocity that stays, >= 0.
        dampening: share of the gradient that is held back.
        weight_decay: L2 penalty.
        nesterov: look ahead along the velocity; needs momentum and no dampening.
        loss_scale: gradients are divided by it.
    """

    slots = ("accum", "stat")

    def __init__(
        self,
        params: Any,
        learning_rate: Any = 0.1,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: Any = 0.0,
        nesterov: bool = False,
        loss_scale: float = 1.0,
    ) -> None:
        super().__init__(learning_rate, params, weight_decay, loss_scale)
        share = _momentum("SGD", momentum)
        self.dampening = argument.number("SGD", "dampening", dampening)
        if self.dampening < 0:
            raise SporaxValueError(f"For 'SGD', 'dampening' must be >= 0, but got {dampening}.")
        self.nesterov = argument.boolean("SGD", "nesterov", nesterov)
        if nesterov and (share <= 0 or self.dampening != 0):
            raise SporaxValueError(
                f"For 'SGD', 'nesterov' needs 'momentum' > 0 and 'dampening' 0, but got {momentum} and {dampening}."
            )
        self.has_momentum = share > 0
        # A Parameter, as in MindSpore's checkpoints.
        self.momentum = Parameter(Tensor(share, dtypes.float32), name="momentum")
        self.add_slot("accum")
        # 1 until the first step, which starts the velocity with the whole gradient.
        self.add_slot("stat", 1.0)

    def move(self, gradient: Array, parameter: Array, *slots: Array, at: Step) -> tuple[Array, ...]:
        """See the class."""
        velocity, first = slots
        if not self.has_momentum:
            return update_rules.plain_sgd(gradient, parameter, rate=at.rate), velocity, first
        return update_rules.sgd(
            jnp,
            gradient,
            parameter,
            velocity,
            first,
            rate=at.rate,
            momentum=self.momentum.array,
            dampening=self.dampening,
            nesterov=self.nesterov,
        )

    def server_rule(self) -> tuple[str, dict[str, float]]:
        """See `Optimizer`."""
        if not self.has_momentum:
            return "sgd", {}
        constants = {"momentum": float(self.momentum.asnumpy()), "dampening": self.dampening}
        return "sgd_momentum", {**constants, "nesterov": float(self.nesterov)}


class Momentum(Optimizer):
    """Gradient descent with momentum: v = momentum · v + g; p = p - learning_rate · v.

    With `use_nesterov` p = p - learning_rate · (g + momentum · v) (Sutskever et al. 2013).

    Args:
        params: Parameters or groups; see `Optimizer`.
        learning_rate: number, list, Tensor or schedule.
        momentum: share of the velocity that stays, a float >= 0.
        weight_decay: L2 penalty.
        loss_scale: gradients are divided by it.
        use_nesterov: look ahead along the velocity.
    """

    slots = ("moments",)

    def __init__(
        self,
        params: Any,
        learning_rate: Any,
        momentum: float,
        weight_decay: Any = 0.0,
        loss_scale: float = 1.0,
        use_nesterov: bool = False,
    ) -> None:
        super().__init__(learning_rate, params, weight_decay, loss_scale)
        check_type("Momentum", "momentum", momentum, "float", float)
        self.use_nesterov = argument.boolean("Momentum", "use_nesterov", use_nesterov)
        self.momentum = Parameter(Tensor(_momentum("Momentum", momentum), dtypes.float32), name="momentum")
        self.add_slot("moments")

    def move(self, gradient: Array, parameter: Array, *slots: Array, at: Step) -> tuple[Array, ...]:
        """See the class."""
        (velocity,) = slots
        return update_rules.momentum(
            gradient, parameter, velocity, rate=at.rate, momentum=self.momentum.array, nesterov=self.use_nesterov
        )

    def server_rule(self) -> tuple[str, dict[str, float]]:
        """See `Optimizer`."""
        return "momentum", {"momentum": float(self.momentum.asnumpy()), "nesterov": float(self.use_nesterov)}


def _momentum(name: str, value: Any) -> float:
    if argument.number(name, "momentum", value) < 0:
        raise SporaxValueError(f"For '{name}', 'momentum' must be >= 0, but got {value}.")
    return float(value)
