"""Optimizers that divide each gradient by a running size of its own (Adagrad, Adadelta, RMSprop), or step along it or its sign.

Shared parts of `experimental.optim`: limits of settings and the step counter, which `mint.optim` does not have.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from sporax.base.errors import SporaxTypeError, SporaxValueError, check_type
from sporax.mindspore.common import dtype as dtypes
from sporax.mindspore.common.parameter import Parameter
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.mint.optim._optimizer import (
    Array,
    GroupStep,
    Optimizer,
    check_betas,
    filled_like,
    flag,
    not_negative,
)
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
        squares, changes = slots
        rho, eps = at.group["rho"], at.group["eps"]
        squares = rho * squares + (1 - rho) * jnp.square(gradient)
        change = jnp.sqrt(changes + eps) / jnp.sqrt(squares + eps) * gradient
        return parameter - at.rate * change, squares, rho * changes + (1 - rho) * jnp.square(change)


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
        share, eta, average = slots
        # The rate is known only at the first step.
        eta = jnp.where(at.shared == 1, at.rate, eta)
        parameter = parameter * (1.0 - at.group["lambd"] * eta) - eta * gradient
        average = jnp.where(share == 1.0, parameter, average + (parameter - average) * share)
        eta = at.rate / (1.0 + at.group["lambd"] * at.rate * at.shared) ** at.group["alpha"]
        return parameter, 1.0 / jnp.maximum(1.0, at.shared - at.group["t0"]), eta, average


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
        agreement = gradient * before
        shrink, grow = at.group["etas"]
        factor = jnp.where(agreement > 0, grow, jnp.where(agreement < 0, shrink, 1.0))
        # Every element starts with the learning rate.
        length = jnp.clip(jnp.where(at.shared == 1, at.rate, length) * factor, *at.group["step_sizes"])
        gradient = jnp.where(agreement < 0, 0.0, gradient)
        return parameter - jnp.sign(gradient) * length, gradient, length
