"""Gradient descent, with and without momentum; averaged stochastic gradient descent; resilient backpropagation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from sporax.base import update_rules
from sporax.base.errors import For, SporaxValueError, named
from sporax.mindspore._declared import setting
from sporax.mindspore.nn import _arguments as argument
from sporax.mindspore.nn.optim._optimizer import (
    DECAY,
    RATE_DOC,
    SCALE,
    Array,
    DeclaredOptimizer,
    Start,
    Step,
    number,
    rates,
)


def _not_negative(name: str, what: str, value: Any) -> float:
    For(name).refuse(argument.number(name, what, value) < 0, f"{named(what)} must be >= 0", value)
    return float(value)


def _float(name: str, what: str, value: Any) -> float:
    return _not_negative(name, what, For(name).typed(what, value, "float", float))


class SGD(DeclaredOptimizer):
    r"""Stochastic gradient descent with optional momentum.

    With gradient g (plus ``weight_decay * p``): v starts as the first g, then v = momentum · v + (1 - dampening) · g;
    p = p - learning_rate · v, or with `nesterov` p = p - learning_rate · (g + momentum · v).
    """

    learning_rate: Any = rates(default=0.1)
    momentum: float = setting(_not_negative, "share of the velocity that stays, >= 0.", default=0.0, attribute=False)
    dampening: float = setting(_not_negative, "share of the gradient that is held back.", default=0.0)
    weight_decay: Any = DECAY
    nesterov: bool = setting(
        argument.boolean, "look ahead along the velocity; needs momentum and no dampening.", default=False
    )
    loss_scale: float = SCALE

    slots = ("accum", "stat")
    # 1 until the first step, which starts the velocity with the whole gradient.
    starts = {"stat": Start(1.0)}
    rule = update_rules.sgd
    served_as = "sgd_momentum"

    def _prepare(self, *, momentum: float) -> None:
        if self.nesterov and (momentum <= 0 or self.dampening != 0):
            raise For("SGD").error("'nesterov' needs 'momentum' > 0 and 'dampening' 0", momentum, self.dampening)
        self.has_momentum = momentum > 0
        super()._prepare(momentum=momentum)

    def move(self, gradient: Array, parameter: Array, *slots: Array, at: Step) -> tuple[Array, ...]:
        """As `rule`, or without momentum, which leaves the state as it is."""
        if self.has_momentum:
            return super().move(gradient, parameter, *slots, at=at)
        return update_rules.plain_sgd(gradient, parameter, rate=at.rate), *slots

    def server_rule(self) -> tuple[str, dict[str, float]]:
        """See `Optimizer`."""
        return super().server_rule() if self.has_momentum else ("sgd", {})


class Momentum(DeclaredOptimizer):
    """Gradient descent with momentum: v = momentum · v + g; p = p - learning_rate · v.

    With `use_nesterov` p = p - learning_rate · (g + momentum · v) (Sutskever et al. 2013).
    """

    learning_rate: Any = setting(None, RATE_DOC)
    momentum: float = setting(_float, "share of the velocity that stays, a float >= 0.", attribute=False)
    weight_decay: Any = DECAY
    loss_scale: float = SCALE
    use_nesterov: bool = setting(argument.boolean, "look ahead along the velocity.", default=False)

    slots = ("moments",)
    rule = update_rules.momentum
    renamed = {"nesterov": "use_nesterov"}
    served_as = "momentum"


def asgd(
    xp: ModuleType, gradient: Array, parameter: Array, share: Array, eta: Array, average: Array, *, rate: Array, step: Array,
    lambd: float, alpha: float, t0: float,
) -> tuple[Array, ...]:  # fmt: skip
    """The rule of `ASGD`: new parameter, share of the next one in the average, its step size, and the average.

    Args:
        step: number of the step, 1 for the first, in float32.
    """
    # The rate is known only at the first step.
    eta = xp.where(step == 1, rate, eta)
    parameter = parameter * (1.0 - lambd * eta) - eta * gradient
    # The share is 1 until averaging starts, so the average is the Parameter itself.
    average = xp.where(share == 1.0, parameter, average + (parameter - average) * share)
    eta = rate / (1.0 + lambd * rate * step) ** alpha
    return parameter, 1.0 / xp.maximum(1.0, step - t0), eta, average


class ASGD(DeclaredOptimizer):
    """Averaged stochastic gradient descent (Polyak & Juditsky 1992).

    p = p · (1 - lambd · eta) - eta · g;  eta = learning_rate / (1 + lambd · learning_rate · t) ^ alpha;
    from step `t0` on, ``ax`` holds the average of p, before that p itself.
    """

    learning_rate: Any = rates(default=0.1)
    lambd: float = number("decay term.", default=1e-4)
    alpha: float = number("power with which eta falls.", default=0.75)
    t0: float = number("step at which averaging starts.", default=1e6)
    weight_decay: Any = DECAY

    slots = ("mu", "eta", "ax")
    starts = {"mu": Start(1.0, scalar=True), "eta": Start(scalar=True), "ax": Start(prefix="ax_.")}
    rule = asgd


def rprop(
    xp: ModuleType, gradient: Array, parameter: Array, before: Array, size: Array, *, rate: Array, step: Array,
    etas: Sequence[float], step_sizes: Sequence[float],
) -> tuple[Array, Array, Array]:  # fmt: skip
    """The rule of `Rprop`: new parameter, the gradient whose signs count in the next step, and the step sizes."""
    # Every element starts with the learning rate.
    size = xp.where(step == 1, rate, size)
    agreement = gradient * before
    shrink, grow = etas
    factor = xp.where(agreement > 0, grow, xp.where(agreement < 0, shrink, 1.0)).astype(size.dtype)
    size = xp.clip(size * factor, *step_sizes)
    # An element whose sign turned pauses, and its sign is forgotten.
    gradient = xp.where(agreement < 0, 0.0, gradient).astype(gradient.dtype)
    return parameter - xp.sign(gradient) * size, gradient, size


def _pair(name: str, what: str, value: Any, limits: Sequence[tuple[float, float, str]]) -> tuple[float, ...]:
    For(name).typed(what, value, "a tuple", tuple)
    For(name).refuse(len(value) != 2, f"{named(what)} must have two elements", len(value))
    pairs = enumerate(zip(value, limits, strict=True))
    return tuple(argument.exactly_float(name, f"{what}[{index}]", part, *limit) for index, (part, limit) in pairs)


class Rprop(DeclaredOptimizer):
    """Resilient backpropagation (Riedmiller & Braun 1993): only the sign of the gradient counts.

    Each element has a step size of its own, which starts at the learning rate, grows while the sign of its gradient stays
    and shrinks when it turns; an element whose sign turned pauses for one step.

    Raises:
        SporaxTypeError, SporaxValueError: no such factors or sizes.
    """

    learning_rate: Any = rates(default=0.1)
    etas: tuple[float, float] = setting(
        _pair,
        "factors to shrink and to grow by, below and above 1.",
        default=(0.5, 1.2),
        limits=((0.0, 1.0, "()"), (1.0, math.inf, "()")),
    )
    step_sizes: tuple[float, float] = setting(
        _pair, "smallest and largest step size.", default=(1e-6, 50.0), limits=((-math.inf, math.inf, "[]"),) * 2
    )
    weight_decay: Any = DECAY

    slots = ("prev", "step_size")
    rule = rprop

    def _prepare(self) -> None:
        if self.step_sizes[0] > self.step_sizes[1]:
            raise SporaxValueError(f"For 'Rprop', 'step_sizes' must be in ascending order, but got {self.step_sizes}.")
        super()._prepare()
