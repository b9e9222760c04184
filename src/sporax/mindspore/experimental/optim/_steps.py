"""Optimizers that take steps along the gradient or its sign: SGD, ASGD, Rprop."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax.numpy as jnp

from sporax.base.errors import SporaxTypeError, SporaxValueError
from sporax.mindspore.common.parameter import Parameter
from sporax.mindspore.experimental.optim._scaled import CountingOptimizer, scalar_slot
from sporax.mindspore.mint import optim as mint
from sporax.mindspore.mint.optim._optimizer import Array, GroupStep, filled_like


class SGD(mint.SGD):
    """Gradient descent with optional momentum; see `mint.optim.SGD`.

    Its state has MindSpore's names for it: ``accum`` is the velocity, ``stat`` is 1 until the first step.

    Args: as `mint.optim.SGD`.
    """

    slots = ("accum", "stat")
    is_strict = False

    def __init__(
        self,
        params: Any,
        lr: Any,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
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


class ASGD(CountingOptimizer):
    """Averaged stochastic gradient descent (Polyak & Juditsky 1992).

    p = p · (1 - lambd · eta) - eta · g;  eta = lr / (1 + lambd · lr · t) ^ alpha;
    from step `t0` on, ``ax`` holds the average of p, before that p itself.

    Args:
        params: Parameters, or groups: dicts with ``params`` and settings of their own.
        lr: learning rate, a number or a scalar Tensor.
        lambd: decay term.
        alpha: power with which eta falls.
        t0: step at which averaging starts.
        weight_decay: L2 penalty.
        maximize: go up instead of down.

    Raises:
        SporaxTypeError, SporaxValueError: settings of another kind.
    """

    slots = ("mu", "eta", "ax")

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0.0,
        maximize: bool = False,
    ) -> None:
        settings = {"lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0}
        super().__init__(params, {**settings, "weight_decay": weight_decay, "maximize": maximize})

    def check_settings(self, settings: dict[str, Any]) -> None:
        super().check_settings(settings)
        for what in ("lambd", "t0"):
            if not isinstance(settings[what], float):
                raise SporaxTypeError(f"For 'ASGD', '{what}' must be a float, but got {type(settings[what]).__name__}.")

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
        self,
        params: Any,
        lr: Any = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        maximize: bool = False,
    ) -> None:
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
        if settings["weight_decay"]:
            raise SporaxValueError(f"For 'Rprop', 'weight_decay' must be 0, but got {settings['weight_decay']}.")

    def step(self, at: GroupStep, gradient: Array, parameter: Array, *slots: Array) -> tuple[Array, ...]:
        before, length = slots
        agreement = gradient * before
        shrink, grow = at.group["etas"]
        factor = jnp.where(agreement > 0, grow, jnp.where(agreement < 0, shrink, 1.0))
        # Every element starts with the learning rate.
        length = jnp.clip(jnp.where(at.shared == 1, at.rate, length) * factor, *at.group["step_sizes"])
        gradient = jnp.where(agreement < 0, 0.0, gradient)
        return parameter - jnp.sign(gradient) * length, gradient, length
