"""Averaged stochastic gradient descent."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp

from sporax.mindspore.nn import _arguments as argument
from sporax.mindspore.nn.optim._optimizer import Array, Optimizer, Step


class ASGD(Optimizer):
    """Averaged stochastic gradient descent (Polyak & Juditsky 1992).

    p = p · (1 - lambd · eta) - eta · g;  eta = learning_rate / (1 + lambd · learning_rate · t) ^ alpha;
    from step `t0` on, ``ax_`` holds the average of p, before that p itself.

    Args:
        params: Parameters or groups; see `Optimizer`.
        learning_rate: number, list, Tensor or schedule.
        lambd: decay term.
        alpha: power with which eta falls.
        t0: step at which averaging starts.
        weight_decay: L2 penalty.
    """

    slots = ("mu_", "eta_", "ax_")

    def __init__(
        self,
        params: Any,
        learning_rate: Any = 0.1,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: Any = 0.0,
    ) -> None:
        super().__init__(learning_rate, params, weight_decay)
        self.lambd = argument.exactly_float("ASGD", "lambd", lambd, -math.inf, math.inf)
        self.alpha = argument.exactly_float("ASGD", "alpha", alpha, -math.inf, math.inf)
        self.t0 = argument.exactly_float("ASGD", "t0", t0, -math.inf, math.inf)
        # Scalars for each Parameter, as in MindSpore's checkpoints.
        self.add_slot("mu_", lambda _: jnp.ones((), jnp.float32), joint="")
        self.add_slot("eta_", lambda _: jnp.zeros((), jnp.float32), joint="")
        self.add_slot("ax_")

    def move(self, gradient: Array, parameter: Array, *slots: Array, at: Step) -> tuple[Array, ...]:
        """See the class."""
        share, eta, average = slots
        step = (at.number + 1).astype(jnp.float32)
        # The rate is known only at the first step.
        eta = jnp.where(at.number == 0, at.rate, eta)
        parameter = parameter * (1.0 - self.lambd * eta) - eta * gradient
        # The share is 1 until averaging starts, so the average is the Parameter itself.
        average = jnp.where(share == 1.0, parameter, average + (parameter - average) * share)
        eta = at.rate / (1.0 + self.lambd * at.rate * step) ** self.alpha
        return parameter, 1.0 / jnp.maximum(1.0, step - self.t0), eta, average
