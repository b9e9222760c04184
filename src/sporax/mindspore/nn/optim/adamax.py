"""AdaMax: Adam with the maximum norm."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from sporax.mindspore.common import dtype as dtypes
from sporax.mindspore.common.parameter import Parameter
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.nn.optim._optimizer import Array, Optimizer, Step
from sporax.mindspore.nn.optim.adam import check_betas, complement
from sporax.runtime.state import frames


class AdaMax(Optimizer):
    """AdaMax (Kingma & Ba 2014, section 7).

    m = beta1 · m + (1 - beta1) · g;  u = max(beta2 · u, |g|);  p = p - learning_rate / (1 - beta1ᵗ) · m / (u + eps).

    Args:
        params: Parameters or groups; see `Optimizer`.
        learning_rate: number, list, Tensor or schedule.
        beta1, beta2: decay rates, floats in (0, 1).
        eps: added to u.
        weight_decay: L2 penalty.
        loss_scale: gradients are divided by it.
    """

    slots = ("moment1", "moment2")

    def __init__(
        self,
        params: Any,
        learning_rate: Any = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
        weight_decay: Any = 0.0,
        loss_scale: float = 1.0,
    ) -> None:
        super().__init__(learning_rate, params, weight_decay, loss_scale)
        check_betas("AdaMax", beta1, beta2, eps)
        self.beta1, self.beta2, self.eps = beta1, beta2, float(eps)
        self.rest1 = complement(beta1)
        self.beta1_power = Parameter(Tensor([1.0], dtypes.float32), name="beta1_power")
        self.add_slot("moment1")
        self.add_slot("moment2")

    def prepare(self) -> Any:
        """Raise the power of beta1; gives the factor of the learning rate."""
        power = self.beta1_power.array * self.beta1
        frames.write(self.beta1_power, power)
        # Of shape (1,) in checkpoints, a scalar in the rule.
        return (1.0 / (1.0 - power))[0]

    def move(self, gradient: Array, parameter: Array, *slots: Array, at: Step) -> tuple[Array, ...]:
        """See the class."""
        first, largest = slots
        first = self.beta1 * first + self.rest1 * gradient
        largest = jnp.maximum(self.beta2 * largest, jnp.abs(gradient))
        return parameter - at.rate * at.shared * first / (largest + self.eps), first, largest
