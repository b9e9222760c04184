"""Gradient descent, with and without momentum; averaged stochastic gradient descent; resilient backpropagation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from sporax.base import update_rules
from sporax.base.errors import SporaxValueError, check_type
from sporax.mindspore._declared import setting
from sporax.mindspore.common import Parameter, Tensor, dtypes
from sporax.mindspore.nn import _arguments as argument
from sporax.mindspore.nn.optim._optimizer import Array, Optimizer, Step


class SGD(Optimizer):
    r"""Stochastic gradient descent with optional momentum.

    With gradient g (plus ``weight_decay * p``): v starts as the first g, then v = momentum · v + (1 - dampening) · g;
    p = p - learning_rate · v, or with `nesterov` p = p - learning_rate · (g + momentum · v).

    Args:
        params, learning_rate, weight_decay, loss_scale: see `Optimizer`.
        momentum: share of the velocity that stays, >= 0.
        dampening: share of the gradient that is held back.
        nesterov: look ahead along the velocity; needs momentum and no dampening.
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
        SporaxValueError.raise_if(self.dampening < 0, "SGD", "dampening", "be >= 0", dampening)
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
        params, learning_rate, weight_decay, loss_scale: see `Optimizer`.
        momentum: share of the velocity that stays, a float >= 0.
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
    SporaxValueError.raise_if(argument.number(name, "momentum", value) < 0, name, "momentum", "be >= 0", value)
    return float(value)


class ASGD(Optimizer):
    """Averaged stochastic gradient descent (Polyak & Juditsky 1992).

    p = p · (1 - lambd · eta) - eta · g;  eta = learning_rate / (1 + lambd · learning_rate · t) ^ alpha;
    from step `t0` on, ``ax`` holds the average of p, before that p itself.

    Args:
        params, learning_rate, weight_decay: see `Optimizer`.
        lambd: decay term.
        alpha: power with which eta falls.
        t0: step at which averaging starts.
    """

    params: Any = setting()
    learning_rate: Any = setting(default=0.1)
    lambd: float = setting(argument.exactly_float, default=1e-4, low=-math.inf, high=math.inf)
    alpha: float = setting(argument.exactly_float, default=0.75, low=-math.inf, high=math.inf)
    t0: float = setting(argument.exactly_float, default=1e6, low=-math.inf, high=math.inf)
    weight_decay: Any = setting(default=0.0)

    slots = ("mu", "eta", "ax")

    def _prepare(self) -> None:
        # Scalars for each Parameter, as in MindSpore's checkpoints.
        self.add_slot("mu", lambda _: jnp.ones((), jnp.float32), joint="_")
        self.add_slot("eta", lambda _: jnp.zeros((), jnp.float32), joint="_")
        self.add_slot("ax", prefix="ax_")

    def move(self, gradient: Array, parameter: Array, *slots: Array, at: Step) -> tuple[Array, ...]:
        """See the class."""
        step = (at.number + 1).astype(jnp.float32)
        return asgd(
            gradient, parameter, *slots, rate=at.rate, step=step, lambd=self.lambd, alpha=self.alpha, t0=self.t0
        )


def asgd(
    gradient: Array, parameter: Array, share: Array, eta: Array, average: Array, *, rate: Array, step: Array, lambd: float,
    alpha: float, t0: float,
) -> tuple[Array, ...]:  # fmt: skip
    """The rule of `ASGD`: new parameter, share of the next one in the average, its step size, and the average.

    Args:
        step: number of the step, 1 for the first, in float32.
    """
    # The rate is known only at the first step.
    eta = jnp.where(step == 1, rate, eta)
    parameter = parameter * (1.0 - lambd * eta) - eta * gradient
    # The share is 1 until averaging starts, so the average is the Parameter itself.
    average = jnp.where(share == 1.0, parameter, average + (parameter - average) * share)
    eta = rate / (1.0 + lambd * rate * step) ** alpha
    return parameter, 1.0 / jnp.maximum(1.0, step - t0), eta, average


class Rprop(Optimizer):
    """Resilient backpropagation (Riedmiller & Braun 1993): only the sign of the gradient counts.

    Each element has a step size of its own, which starts at the learning rate, grows while the sign of its gradient stays
    and shrinks when it turns; an element whose sign turned pauses for one step.

    Args:
        params, weight_decay: see `Optimizer`.
        learning_rate: first step size.
        etas: factors to shrink and to grow by, below and above 1.
        step_sizes: smallest and largest step size.

    Raises:
        SporaxTypeError, SporaxValueError: no such factors or sizes.
    """

    params: Any = setting()
    learning_rate: Any = setting(default=0.1)
    etas: tuple[float, float] = setting(default=(0.5, 1.2), attribute=False)
    step_sizes: tuple[float, float] = setting(default=(1e-6, 50.0), attribute=False)
    weight_decay: Any = setting(default=0.0)

    slots = ("prev", "step_size")

    def _prepare(self, etas: tuple[float, float], step_sizes: tuple[float, float]) -> None:
        for what, value in (("etas", etas), ("step_sizes", step_sizes)):
            check_type("Rprop", what, value, "a tuple", tuple)
            SporaxValueError.raise_if(len(value) != 2, "Rprop", what, "have two elements", len(value))
        if step_sizes[0] > step_sizes[1]:
            raise SporaxValueError(f"For 'Rprop', 'step_sizes' must be in ascending order, but got {step_sizes}.")
        self.shrink = argument.exactly_float("Rprop", "etas[0]", etas[0], 0.0, 1.0, "()")
        self.grow = argument.exactly_float("Rprop", "etas[1]", etas[1], 1.0, math.inf, "()")
        self.smallest = argument.exactly_float("Rprop", "step_sizes[0]", step_sizes[0], -math.inf, math.inf)
        self.largest = argument.exactly_float("Rprop", "step_sizes[1]", step_sizes[1], -math.inf, math.inf)
        self.add_slot("prev")
        self.add_slot("step_size")

    def move(self, gradient: Array, parameter: Array, *slots: Array, at: Step) -> tuple[Array, ...]:
        """See the class."""
        before, size = slots
        # Every element starts with the learning rate.
        size = jnp.where(at.number == 0, at.rate, size)
        limits = (self.smallest, self.largest)
        return rprop(gradient, parameter, before, size, etas=(self.shrink, self.grow), limits=limits)


def rprop(
    gradient: Array, parameter: Array, before: Array, size: Array, *, etas: Sequence[float], limits: Sequence[float]
) -> tuple[Array, Array, Array]:
    """The rule of `Rprop`: new parameter, the gradient whose signs count in the next step, and the step sizes."""
    agreement = gradient * before
    shrink, grow = etas
    factor = jnp.where(agreement > 0, grow, jnp.where(agreement < 0, shrink, 1.0)).astype(size.dtype)
    size = jnp.clip(size * factor, *limits)
    # An element whose sign turned pauses, and its sign is forgotten.
    gradient = jnp.where(agreement < 0, 0.0, gradient).astype(gradient.dtype)
    return parameter - jnp.sign(gradient) * size, gradient, size
