"""LAMB: Adam with a trust ratio for each Parameter; lARS: any optimizer, with gradients scaled layer by layer."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from sporax.base.errors import check_type
from sporax.mindspore.common.parameter import Parameter
from sporax.mindspore.common.tensor import wrap
from sporax.mindspore.nn import _arguments as argument
from sporax.mindspore.nn.cell import Cell
from sporax.mindspore.nn.optim._optimizer import Array, Optimizer, Step, _decay_at, _rate_at
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


def _default_filter(parameter: Parameter) -> bool:
    return "LayerNorm" not in parameter.name and "bias" not in parameter.name


class LARS(Optimizer):
    """Layer-wise adaptive rates (You et al. 2017) around another optimizer.

    g = trust · (g + weight_decay · p) with trust = coefficient · ‖p‖ / (‖g‖ + weight_decay · ‖p‖ + epsilon); then the
    other optimizer moves p. Weight decay and loss scale of that optimizer are applied here and no longer there.

    Args:
        optimizer: the other optimizer.
        epsilon: added to the denominator.
        coefficient: trust coefficient.
        use_clip: keep trust · learning_rate from exceeding the learning rate.
        lars_filter: which Parameters are scaled; by default all but biases and those of layer norms.

    Raises:
        SporaxTypeError: an argument of the wrong kind.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        epsilon: float = 1e-5,
        coefficient: float = 0.001,
        use_clip: bool = False,
        lars_filter: Callable[[Parameter], bool] = _default_filter,
    ) -> None:
        # Not `Optimizer.__init__`: groups and state are those of the other optimizer.
        Cell.__init__(self, auto_prefix=False)
        check_type("LARS", "optimizer", optimizer, "an Optimizer", Optimizer)
        self.epsilon = argument.exactly_float("LARS", "epsilon", epsilon, -math.inf, math.inf)
        self.coefficient = argument.exactly_float("LARS", "coefficient", coefficient, -math.inf, math.inf)
        self.use_clip = argument.boolean("LARS", "use_clip", use_clip)
        self.opt = optimizer
        self.parameters = self.params = optimizer.parameters
        self.global_step = optimizer.global_step
        self.rates = optimizer.rates
        self.is_group = optimizer.is_group
        self.settings = optimizer.settings
        self.loss_scale = optimizer.loss_scale
        self.scaled = tuple(bool(lars_filter(parameter)) for parameter in self.parameters)
        # Both are applied here, and must not be applied twice.
        optimizer.settings = tuple(dataclasses.replace(setting, decay=0.0) for setting in optimizer.settings)
        optimizer.loss_scale = 1.0

    def construct(self, gradients: Any) -> Any:
        """See the class."""
        number = self.global_step.array[0]
        adapted = []
        for gradient, parameter, setting, scaled in zip(
            self._checked(gradients), self.parameters, self.settings, self.scaled, strict=True
        ):
            # Before the norm is taken: the scale would change the ratio.
            if self.loss_scale != 1.0:
                gradient = gradient * jnp.asarray(1.0 / self.loss_scale, gradient.dtype)
            if scaled:
                decay, rate = _decay_at(setting.decay, number), _rate_at(self.rates[setting.rate], number)
                gradient = self._adapt(gradient, parameter.array, decay, rate)
            adapted.append(wrap(gradient))
        return self.opt(tuple(adapted))

    def _adapt(self, gradient: Any, value: Any, decay: Any, rate: Any) -> Any:
        weight_norm, norm = jnp.linalg.norm(value), jnp.linalg.norm(gradient)
        trust = self.coefficient * weight_norm / (norm + decay * weight_norm + self.epsilon)
        # A Parameter of zeros would stop to learn.
        trust = jnp.where((weight_norm > 0) & (norm > 0), trust, 1.0)
        if self.use_clip:
            trust = jnp.minimum(trust / rate, 1.0)
        return (trust * (gradient + decay * value)).astype(gradient.dtype)
