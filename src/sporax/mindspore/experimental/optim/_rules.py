"""Optimizers that divide each gradient by a running size of its own (Adagrad, Adadelta, RMSprop), or step along it or its sign;
Adam and its relatives, moments of the gradient corrected for their start at zero; SGD, which is that of `mint` as well.

Shared parts of `experimental.optim`: limits of settings and the step counter, which `mint.optim` does not have.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from sporax.base.errors import SporaxTypeError, SporaxValueError, check_type
from sporax.mindspore.common import Parameter, Tensor, dtypes
from sporax.mindspore.mint.optim import _optimizer as mint
from sporax.mindspore.mint.optim._optimizer import (
    Array,
    GroupStep,
    Optimizer,
    bias_correction,
    check_betas,
    filled_like,
    flag,
    not_negative,
)
from sporax.mindspore.nn.optim.adagrad import adadelta
from sporax.mindspore.nn.optim.momentum import asgd, rprop
from sporax.mindspore.ops._core.parameters import taking
from sporax.runtime.state import frames


class LimitedOptimizer(Optimizer):
    """An optimizer whose learning rate starts above 0 and whose other settings have limits."""

    positive: tuple[str, ...] = ()
    """Settings that must be above 0."""

    nonnegative: tuple[str, ...] = ()
    """Settings that must not be below 0."""

    def __init__(self, params: Any, settings: dict[str, Any]) -> None:
        # Checked before the base class makes Parameters of it.
        _positive(type(self).__name__, "lr", settings["lr"])
        super().__init__(params, settings)

    def check_settings(self, settings: dict[str, Any]) -> None:
        super().check_settings(settings)
        name = type(self).__name__
        for what in self.positive:
            _positive(name, what, settings[what])
        for what in self.nonnegative:
            not_negative(name, what, settings[what])
        if "betas" in settings:
            check_betas(name, settings["betas"], int | float)


class CountingOptimizer(LimitedOptimizer):
    """One that counts its steps in ``step_t``."""

    def __init__(self, params: Any, settings: dict[str, Any]) -> None:
        super().__init__(params, settings)
        self.step_t = Parameter(Tensor(0, dtypes.int32), name="step_t", requires_grad=False)

    def prepare(self) -> jax.Array:
        """Count the step; gives its number, 1 for the first, in float32."""
        count = self.step_t.array + 1
        frames.write(self.step_t, count)
        return count.astype(jnp.float32)


def scalar_slot(slot: str, parameter: Parameter, value: float) -> Parameter:
    """A state of one number per Parameter."""
    return Parameter(Tensor(value, dtypes.float32), name=f"{slot}_{parameter.name}")


def _positive(name: str, what: str, value: Any) -> None:
    if isinstance(value, Tensor):
        value = value.item()
    not_negative(name, what, value)
    SporaxValueError.raise_if(value == 0, name, what, "be > 0", value)


class Adagrad(CountingOptimizer):
    """Adagrad (Duchi et al. 2011).

    s = s + g²;  p = p - lr / (1 + (t - 1) · lr_decay) · g / (√s + eps).

    Args:
        params, lr, weight_decay, maximize: see `Optimizer`.
        lr_decay: how fast the learning rate falls.
        initial_accumulator_value: s before the first step.
        eps: added to the denominator.
    """

    slots = ("accum",)
    positive = ("eps",)
    nonnegative = ("lr_decay", "initial_accumulator_value")

    def __init__(
        self, params: Any, lr: Any = 1e-2, lr_decay: float = 0.0, weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0, eps: float = 1e-10, *, maximize: bool = False,
    ) -> None:  # fmt: skip
        settings = {"lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay}
        settings["initial_accumulator_value"] = initial_accumulator_value
        super().__init__(params, {**settings, "maximize": maximize})

    def new_slot(self, slot: str, parameter: Parameter) -> Parameter:
        """Filled with `initial_accumulator_value`."""
        return filled_like(parameter, f"{slot}.{parameter.name}", self.defaults["initial_accumulator_value"])

    def step(self, at: GroupStep, gradient: Array, parameter: Array, *slots: Array) -> tuple[Array, ...]:
        total = slots[0] + jnp.square(gradient)
        # The step number is 1 in the first step, which has the whole rate.
        rate = at.rate / (1 + (at.shared - 1) * at.group["lr_decay"])
        return parameter - rate * gradient / (jnp.sqrt(total) + at.group["eps"]), total


class Adadelta(LimitedOptimizer):
    """Adadelta (Zeiler 2012).

    v = rho · v + (1 - rho) · g²;  d = √(u + eps) / √(v + eps) · g;  u = rho · u + (1 - rho) · d²;  p = p - lr · d.

    Args:
        params, lr, eps, weight_decay, maximize: as of `Adagrad`; `eps` is added under both roots.
        rho: decay rate of the averages, in [0, 1].
    """

    slots = ("accum", "accum_update")
    positive = ("eps",)
    nonnegative = ("rho",)

    def __init__(
        self, params: Any, lr: Any = 1.0, rho: float = 0.9, eps: float = 1e-6, weight_decay: float = 0.0, *,
        maximize: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(params, {"lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize})

    def check_settings(self, settings: dict[str, Any]) -> None:
        super().check_settings(settings)
        SporaxValueError.raise_if(settings["rho"] > 1, "Adadelta", "rho", "be in [0, 1]", settings["rho"])

    def step(self, at: GroupStep, gradient: Array, parameter: Array, *slots: Array) -> tuple[Array, ...]:
        return adadelta(gradient, parameter, *slots, rate=at.rate, rho=at.group["rho"], eps=at.group["eps"])


class RMSprop(LimitedOptimizer):
    """RMSprop (Hinton 2012), optionally with momentum and with the variance instead of the mean square.

    v = alpha · v + (1 - alpha) · g²;  p = p - lr · g / (√v + eps); with momentum, g / (…) is summed up in ``moment``.

    Args:
        params, lr, eps, weight_decay, maximize: as of `Adagrad`.
        alpha: decay rate of the mean square.
        momentum: share of the sum that stays.
        centered: subtract the square of the mean gradient from v.
    """

    slots = ("mean_square", "mean_grad", "moment")
    positive = ("eps",)
    nonnegative = ("alpha", "momentum")

    def __init__(
        self, params: Any, lr: Any = 1e-2, alpha: float = 0.99, eps: float = 1e-8, weight_decay: float = 0.0,
        momentum: float = 0.0, centered: bool = False, maximize: bool = False,
    ) -> None:  # fmt: skip
        settings = {"lr": lr, "momentum": momentum, "alpha": alpha, "eps": eps, "centered": centered}
        super().__init__(params, {**settings, "weight_decay": weight_decay, "maximize": maximize})

    def check_settings(self, settings: dict[str, Any]) -> None:
        super().check_settings(settings)
        flag("RMSprop", "centered", settings["centered"])

    def step(self, at: GroupStep, gradient: Array, parameter: Array, *slots: Array) -> tuple[Array, ...]:
        squares, mean, moment = slots
        alpha = at.group["alpha"]
        squares = alpha * squares + (1 - alpha) * jnp.square(gradient)
        spread = squares
        if at.group["centered"]:
            mean = alpha * mean + (1 - alpha) * gradient
            spread = squares - jnp.square(mean)
        change = gradient / (jnp.sqrt(spread) + at.group["eps"])
        # The sum of changes without the rate, so that a new rate acts at once.
        if at.group["momentum"]:
            change = moment = at.group["momentum"] * moment + change
        return parameter - at.rate * change, squares, mean, moment


class ASGD(CountingOptimizer):
    """Averaged stochastic gradient descent (Polyak & Juditsky 1992).

    p = p · (1 - lambd · eta) - eta · g;  eta = lr / (1 + lambd · lr · t) ^ alpha;
    from step `t0` on, ``ax`` holds the average of p, before that p itself.

    Args:
        params, lr, weight_decay, maximize: see `Optimizer`.
        lambd: decay term.
        alpha: power with which eta falls.
        t0: step at which averaging starts.
    """

    slots = ("mu", "eta", "ax")

    def __init__(
        self, params: Any, lr: Any = 1e-2, lambd: float = 1e-4, alpha: float = 0.75, t0: float = 1e6,
        weight_decay: float = 0.0, maximize: bool = False,
    ) -> None:  # fmt: skip
        settings = {"lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0}
        super().__init__(params, {**settings, "weight_decay": weight_decay, "maximize": maximize})

    def check_settings(self, settings: dict[str, Any]) -> None:
        super().check_settings(settings)
        for what in ("lambd", "t0"):
            check_type("ASGD", what, settings[what], "a float", float)

    def new_slot(self, slot: str, parameter: Parameter) -> Parameter:
        """One number each for ``mu`` (1) and ``eta`` (0), zeros for the average."""
        if slot == "ax":
            return super().new_slot(slot, parameter)
        return scalar_slot(slot, parameter, 1.0 if slot == "mu" else 0.0)

    def step(self, at: GroupStep, gradient: Array, parameter: Array, *slots: Array) -> tuple[Array, ...]:
        settings = {name: at.group[name] for name in ("lambd", "alpha", "t0")}
        return asgd(gradient, parameter, *slots, rate=at.rate, step=at.shared, **settings)


class Rprop(CountingOptimizer):
    """Resilient propagation (Riedmiller & Braun 1993): steps by the sign of the gradient, of a length per element.

    A length grows while the sign stays and shrinks when it changes; then the element waits for one step.

    Args:
        params, lr, maximize: as of `ASGD`; `lr` is the first length.
        etas: factors by which a length shrinks, in (0, 1), and grows, above 1.
        step_sizes: the smallest and the largest length.
    """

    slots = ("prev", "step_size")

    def __init__(
        self, params: Any, lr: Any = 1e-2, etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50), *, maximize: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(params, {"lr": lr, "etas": etas, "step_sizes": step_sizes, "maximize": maximize})

    def check_settings(self, settings: dict[str, Any]) -> None:
        super().check_settings(settings)
        for what in ("etas", "step_sizes"):
            if not isinstance(settings[what], tuple | list) or len(settings[what]) != 2:
                raise SporaxTypeError(f"For 'Rprop', '{what}' must be two numbers, but got {settings[what]!r}.")
        shrink, grow = settings["etas"]
        if not 0 < shrink < 1 < grow:
            raise SporaxValueError(f"For 'Rprop', 'etas' must be in (0, 1) and above 1, but got {settings['etas']}.")
        # The sign alone counts, in which a decay would be lost.
        SporaxValueError.raise_if(settings["weight_decay"], "Rprop", "weight_decay", "be 0", settings["weight_decay"])

    def step(self, at: GroupStep, gradient: Array, parameter: Array, *slots: Array) -> tuple[Array, ...]:
        before, length = slots
        # Every element starts with the learning rate.
        length = jnp.where(at.shared == 1, at.rate, length)
        return rprop(gradient, parameter, before, length, etas=at.group["etas"], limits=at.group["step_sizes"])


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

    @taking(Adam.__init__, weight_decay=1e-2)
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)

    def denominator(self, spread: jax.Array, correction: jax.Array, eps: float) -> jax.Array:
        return spread / correction + eps


class Adamax(CountingOptimizer):
    """Adam by the largest gradient instead of the second moment (Kingma & Ba 2014, section 7).

    m = β1 · m + (1 - β1) · g;  u = max(β2 · u, |g| + eps);  p = p - lr / (1 - β1ᵗ) · m / u.

    Args: as `Adam`.
    """

    slots = ("exp_avg", "exp_inf")
    positive = ("eps",)

    @taking(Adam.__init__, "amsgrad", lr=2e-3)
    def __init__(self, params: Any, **settings: Any) -> None:
        super().__init__(params, settings)

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

    @taking(Adam.__init__, "amsgrad maximize", lr=2e-3)
    def __init__(self, params: Any, *, momentum_decay: float = 4e-3, **settings: Any) -> None:
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

    @taking(Adam.__init__, "amsgrad maximize")
    def __init__(self, params: Any, **settings: Any) -> None:
        super().__init__(params, settings)

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

    @taking(mint.SGD.__init__, weight_decay=0.0)
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)

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
