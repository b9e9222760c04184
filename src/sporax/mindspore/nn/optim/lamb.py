"""LAMB: Adam with a trust ratio for each Parameter."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from sporax.mindspore.nn.optim._optimizer import Array, Optimizer, Step
from sporax.mindspore.nn.optim.adam import check_betas, complement


class Lamb(Optimizer):
    """LAMB, for large batches (You et al. 2019).

    m, v as in Adam with bias correction;  d = m / (√v + eps) + weight_decay · p;
    p = p - learning_rate · ‖p‖ / ‖d‖ · d, where the ratio is 1 if one of both norms is 0.

    Args:
        params: Parameters or groups; see `Optimizer`.
        learning_rate: number, list, Tensor or schedule.
        beta1, beta2: decay rates of the moments, floats in (0, 1).
        eps: added to √v.
        weight_decay: decoupled decay.
    """

    may_be_dealt = True
    slots = ("lamb_m", "lamb_v")
    decoupled_decay = True

    def __init__(
        self,
        params: Any,
        learning_rate: Any,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-6,
        weight_decay: Any = 0.0,
    ) -> None:
        super().__init__(learning_rate, params, weight_decay)
        check_betas("Lamb", beta1, beta2, eps)
        self.beta1, self.beta2, self.eps = beta1, beta2, float(eps)
        self.rest1, self.rest2 = complement(beta1), complement(beta2)
        self.add_slot("lamb_m")
        self.add_slot("lamb_v")

    def move(self, gradient: Array, parameter: Array, *slots: Array, at: Step) -> tuple[Array, ...]:
        """See the class."""
        first, second = slots
        step = (at.number + 1).astype(jnp.float32)
        first = self.beta1 * first + self.rest1 * gradient
        second = self.beta2 * second + self.rest2 * jnp.square(gradient)
        mean, variance = first / (1.0 - self.beta1**step), second / (1.0 - self.beta2**step)
        direction = mean / (jnp.sqrt(variance) + self.eps) + at.decay * parameter
        # Norms of the whole Parameter, not of its elements.
        weight_norm, norm = jnp.linalg.norm(parameter), jnp.linalg.norm(direction)
        # The inner `where` keeps the unused branch free of a division by 0.
        trust = jnp.where((weight_norm > 0) & (norm > 0), weight_norm / jnp.where(norm > 0, norm, 1.0), 1.0)
        return parameter - at.rate * trust * direction, first, second
