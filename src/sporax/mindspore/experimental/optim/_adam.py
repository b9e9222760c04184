"""Adam and its relatives, moments of the gradient corrected for their start at zero; SGD, which is that of `mint` as well."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from sporax.mindspore.common import dtype as dtypes
from sporax.mindspore.common.parameter import Parameter
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.experimental.optim._scaled import CountingOptimizer, scalar_slot
from sporax.mindspore.mint.optim import _optimizers as mint
from sporax.mindspore.mint.optim._optimizer import Array, GroupStep, filled_like
from sporax.mindspore.mint.optim._optimizers import bias_correction

_NESTEROV_BASE = 0.96
"""Dozat 2016: momentum of step t is β1 · (1 - 0.96 ^ (t · momentum_decay) / 2)."""

_LEAST_LENGTH = 5.0
"""Liu et al. 2020: below, the variance of the second moment is not tractable, so the step is not scaled by it."""


class Adam(mint.Adam):
    """Adam (Kingma & Ba 2014), with weight decay as a part of the gradient and `eps` added before bias correction.

    m = β1 · m + (1 - β1) · g;  v = β2 · v + (1 - β2) · g²;
    p = p - lr · √(1 - β2ᵗ) / (1 - β1ᵗ) · m / (√v + eps).

    MindSpore 2.10 takes `amsgrad` and ignores it; here v is then the largest one so far.

    Args:
        params, lr, weight_decay, maximize: see `Optimizer`.
        betas: decay rates of the moments, in [0, 1).
        eps: added to the denominator.
        amsgrad: use the largest v so far (Reddi et al. 2018).
    """

    slots = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")
    is_strict = False
    beta_types = int | float

    def slots_of(self, group: dict[str, Any]) -> tuple[str, ...]:
        """The same with and without `amsgrad`, as in MindSpore's checkpoints."""
        return self.slots

    # A scalar int, as in MindSpore's checkpoints.
    def counter(self) -> Tensor:
        return Tensor(0, dtypes.int32)

    def denominator(self, spread: jax.Array, correction: jax.Array, eps: float) -> jax.Array:
        # Before bias correction, so the correction divides eps, too.
        return (spread + eps) / correction


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019): p loses ``lr * weight_decay * p`` before its step.

    Unlike in `Adam`, `eps` is added after bias correction.

    Args: as `Adam`.
    """

    decoupled_decay = True

    def __init__(
        self, params: Any, lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 1e-2, amsgrad: bool = False, *, maximize: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize)

    def denominator(self, spread: jax.Array, correction: jax.Array, eps: float) -> jax.Array:
        return spread / correction + eps


class Adamax(CountingOptimizer):
    """Adam by the largest gradient instead of the second moment (Kingma & Ba 2014, section 7).

    m = β1 · m + (1 - β1) · g;  u = max(β2 · u, |g| + eps);  p = p - lr / (1 - β1ᵗ) · m / u.

    Args: as `Adam`.
    """

    slots = ("exp_avg", "exp_inf")
    positive = ("eps",)

    def __init__(
        self, params: Any, lr: Any = 2e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0.0, *, maximize: bool = False,
    ) -> None:  # fmt: skip
        settings = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**settings, "maximize": maximize})

    def step(self, at: GroupStep, gradient: Array, parameter: Array, *slots: Array) -> tuple[Array, ...]:
        first, largest = slots
        beta1, beta2 = at.group["betas"]
        first = beta1 * first + (1 - beta1) * gradient
        # eps inside of the maximum, as in PyTorch.
        largest = jnp.maximum(beta2 * largest, jnp.abs(gradient) + at.group["eps"])
        return parameter - at.rate / bias_correction(beta1, at.shared) * first / largest, first, largest


class NAdam(CountingOptimizer):
    """Adam with Nesterov's momentum (Dozat 2016).

    Args:
        params, lr, betas, eps, weight_decay: as of `Adam`.
        momentum_decay: how fast the momentum grows to β1.
    """

    slots = ("exp_avg", "exp_avg_sq", "mu_product")
    positive = ("eps",)
    nonnegative = ("momentum_decay",)

    def __init__(
        self, params: Any, lr: Any = 2e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0.0, momentum_decay: float = 4e-3,
    ) -> None:  # fmt: skip
        settings = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**settings, "momentum_decay": momentum_decay})

    def new_slot(self, slot: str, parameter: Parameter) -> Parameter:
        """Zeros, and 1 for the product of all momenta so far."""
        return scalar_slot(slot, parameter, 1.0) if slot == "mu_product" else super().new_slot(slot, parameter)

    def step(self, at: GroupStep, gradient: Array, parameter: Array, *slots: Array) -> tuple[Array, ...]:
        first, second, product = slots
        beta1, beta2 = at.group["betas"]
        # Momenta of this step and the next (Dozat 2016).
        momentum, following = (
            beta1 * (1.0 - 0.5 * _NESTEROV_BASE ** (step * at.group["momentum_decay"]))
            for step in (at.shared, at.shared + 1)
        )
        product = product * momentum
        first = beta1 * first + (1 - beta1) * gradient
        second = beta2 * second + (1 - beta2) * jnp.square(gradient)
        denominator = jnp.sqrt(second / bias_correction(beta2, at.shared)) + at.group["eps"]
        along = at.rate * (1.0 - momentum) / (1.0 - product) * gradient
        # The part that looks ahead uses the next momentum.
        ahead = at.rate * following / (1.0 - product * following) * first
        return parameter - (along + ahead) / denominator, first, second, product


class RAdam(CountingOptimizer):
    """Adam whose first steps are not scaled by the second moment, while that is a bad estimate (Liu et al. 2020).

    Args: as `Adam`.
    """

    slots = ("exp_avg", "exp_avg_sq")
    positive = ("eps",)

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    def step(self, at: GroupStep, gradient: Array, parameter: Array, *slots: Array) -> tuple[Array, ...]:
        first, second = slots
        beta1, beta2 = at.group["betas"]
        first = beta1 * first + (1 - beta1) * gradient
        second = beta2 * second + (1 - beta2) * jnp.square(gradient)
        rest = bias_correction(beta2, at.shared)
        limit = 2 / (1 - beta2) - 1
        length = limit - 2 * at.shared * (1 - rest) / rest
        is_scaled = length > _LEAST_LENGTH
        # The formula must not take the root of a negative number on the way that is not taken.
        safe = jnp.where(is_scaled, length, _LEAST_LENGTH)
        rectified = jnp.sqrt((safe - 4) * (safe - 2) * limit / ((limit - 4) * (limit - 2) * safe))
        scale = jnp.where(is_scaled, rectified * jnp.sqrt(rest) / (jnp.sqrt(second) + at.group["eps"]), 1.0)
        return parameter - at.rate * first / bias_correction(beta1, at.shared) * scale, first, second


class SGD(mint.SGD):
    """Gradient descent with optional momentum; see `mint.optim.SGD`.

    Its state has MindSpore's names for it: ``accum`` is the velocity, ``stat`` is 1 until the first step.

    Args: as `mint.optim.SGD`.
    """

    slots = ("accum", "stat")
    is_strict = False

    def __init__(
        self, params: Any, lr: Any, momentum: float = 0, dampening: float = 0, weight_decay: float = 0.0,
        nesterov: bool = False, *, maximize: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(params, lr, momentum, dampening, weight_decay, nesterov, maximize=maximize)

    def start_counting(self) -> None:
        """``stat`` tells whether a Parameter was moved before."""

    def prepare(self) -> None:
        """Nothing is shared."""

    def new_slot(self, slot: str, parameter: Parameter) -> Parameter:
        """Zeros; ones for ``stat``."""
        return filled_like(parameter, f"{slot}.{parameter.name}", 1.0 if slot == "stat" else 0.0)

    def step(self, at: GroupStep, gradient: Array, parameter: Array, *slots: Array) -> tuple[Array, ...]:
        velocity, is_new = slots
        moved, velocity = super().step(replace(at, shared=is_new), gradient, parameter, velocity)
        # Without momentum MindSpore's `stat` never changes.
        return moved, velocity, jnp.zeros_like(is_new) if at.group["momentum"] else is_new
