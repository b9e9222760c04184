"""SGD, Adam and AdamW as PyTorch and `mindspore.mint.optim` define them."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from sporax.base import update_rules
from sporax.base.errors import SporaxValueError
from sporax.mindspore.common import dtype as dtypes
from sporax.mindspore.common.parameter import Parameter
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.mint.optim._optimizer import Array, GroupStep, Optimizer, check_betas, flag, not_negative
from sporax.runtime.state import frames


class SGD(Optimizer):
    """Gradient descent with optional momentum.

    With gradient g (plus ``weight_decay * p``): v is g in the first step, then momentum · v + (1 - dampening) · g;
    p = p - lr · v, or with `nesterov` p = p - lr · (g + momentum · v).

    Args:
        params, lr, weight_decay, maximize: see `Optimizer`.
        momentum: share of the velocity that stays.
        dampening: share of the gradient that is held back.
        nesterov: look ahead along the velocity; needs momentum and no dampening.
    """

    slots: tuple[str, ...] = ("momentum_buf",)
    is_strict = True

    def __init__(
        self, params: Any, lr: Any, momentum: float = 0, dampening: float = 0, weight_decay: float = 0,
        nesterov: bool = False, *, maximize: bool = False,
    ) -> None:  # fmt: skip
        settings = {"momentum": momentum, "weight_decay": weight_decay, "dampening": dampening, "nesterov": nesterov}
        super().__init__(params, {"lr": lr, **settings, "maximize": maximize})
        self.start_counting()

    def start_counting(self) -> None:
        """Make the counter of steps."""
        self.step_t = Parameter(Tensor(0, dtypes.int32), name="step_t", requires_grad=False)

    def check_settings(self, settings: dict[str, Any]) -> None:
        super().check_settings(settings)
        for what in ("momentum", "dampening"):
            not_negative("SGD", what, settings[what])
        flag("SGD", "nesterov", settings["nesterov"])
        if settings["nesterov"] and (settings["momentum"] <= 0 or settings["dampening"] != 0):
            raise SporaxValueError(
                "For 'SGD', 'nesterov' needs 'momentum' > 0 and 'dampening' 0, "
                f"but got {settings['momentum']} and {settings['dampening']}."
            )

    def prepare(self) -> Any:
        """Count the step; gives 1 for the first, and less for others."""
        done = self.step_t.array
        frames.write(self.step_t, done + 1)
        return 1 - done

    def step(self, at: GroupStep, gradient: Array, parameter: Array, *slots: Array) -> tuple[Array, ...]:
        (velocity,) = slots
        # Without momentum there is no velocity to keep.
        if not at.group["momentum"]:
            return update_rules.plain_sgd(gradient, parameter, rate=at.rate), velocity
        rule = {name: at.group[name] for name in ("momentum", "dampening", "nesterov")}
        return update_rules.sgd(jnp, gradient, parameter, velocity, at.shared, rate=at.rate, **rule)[:2]


class Adam(Optimizer):
    """Adam (Kingma & Ba 2014), with weight decay as a part of the gradient.

    m = β1 · m + (1 - β1) · g;  v = β2 · v + (1 - β2) · g²;
    p = p - lr / (1 - β1ᵗ) · m / (√v / √(1 - β2ᵗ) + eps).

    Args:
        params, lr, weight_decay, maximize: see `Optimizer`.
        betas: decay rates of the moments, in [0, 1).
        eps: added to the denominator.
        amsgrad: use the largest v so far (Reddi et al. 2018).
    """

    slots: tuple[str, ...] = ("exp_avg", "exp_avg_sq")
    is_strict = True
    beta_types: Any = float
    first_count = 0.0
    """What `state_step` starts from; checkpoints hold it."""

    def __init__(
        self, params: Any, lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0.0, amsgrad: bool = False, *, maximize: bool = False,
    ) -> None:  # fmt: skip
        settings = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**settings, "amsgrad": amsgrad, "maximize": maximize})
        self.state_step = Parameter(self.counter(), name="state_step", requires_grad=False)

    def counter(self) -> Tensor:
        """The counter of steps before the first one."""
        return Tensor([self.first_count], dtypes.float32)

    def check_settings(self, settings: dict[str, Any]) -> None:
        super().check_settings(settings)
        name, betas = type(self).__name__, settings["betas"]
        not_negative(name, "eps", settings["eps"])
        flag(name, "amsgrad", settings["amsgrad"])
        check_betas(name, betas, self.beta_types)

    def slots_of(self, group: dict[str, Any]) -> tuple[str, ...]:
        """Two moments, and with `amsgrad` the largest second one."""
        return (*self.slots, "max_exp_avg_sq") if group["amsgrad"] else self.slots

    def prepare(self) -> jax.Array:
        """Count the step; gives its number, 1 for the first."""
        count = self.state_step.array + 1
        frames.write(self.state_step, count)
        # The counter starts at `first_count`, the step number at 1.
        return count.reshape(()).astype(jnp.float32) - self.first_count

    def step(self, at: GroupStep, gradient: Array, parameter: Array, *slots: Array) -> tuple[Array, ...]:
        first, second, *largest = slots
        decay, (beta1, beta2) = at.group["weight_decay"], at.group["betas"]
        # Decoupled: not part of the moments.
        if decay and self.decoupled_decay:
            parameter = parameter - at.rate * decay * parameter
        first = beta1 * first + (1 - beta1) * gradient
        second = beta2 * second + (1 - beta2) * jnp.square(gradient)
        if at.group["amsgrad"]:
            largest = [jnp.maximum(largest[0], second)]
        spread = jnp.sqrt(largest[0] if at.group["amsgrad"] else second)
        # The correction is of the second moment, so its root divides the root.
        denominator = self.denominator(spread, jnp.sqrt(bias_correction(beta2, at.shared)), at.group["eps"])
        return parameter - at.rate / bias_correction(beta1, at.shared) * first / denominator, first, second, *largest

    def denominator(self, spread: jax.Array, correction: jax.Array, eps: float) -> jax.Array:
        """What the step is divided by, of √v and its bias correction."""
        return spread / correction + eps


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019): p loses ``lr * weight_decay * p`` before its step.

    Args: as `Adam`.
    """

    decoupled_decay = True
    first_count = -1.0

    def __init__(
        self, params: Any, lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 1e-2, amsgrad: bool = False, *, maximize: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize)


class FusedAdamW(AdamW):
    """Same as `AdamW`: every optimizer is one compiled program here, so there is nothing more to fuse."""


def bias_correction(beta: float, count: jax.Array) -> jax.Array:
    """``1 - beta ** count`` in float32, without the digits that subtraction from 1 loses."""
    # expm1 keeps the digits that 1 - beta ** count would lose.
    return -jnp.expm1(count * math.log(beta)) if beta else jnp.ones_like(count)
