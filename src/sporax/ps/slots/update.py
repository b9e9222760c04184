"""Optimizers of a server: update rules by name, applied to flat arrays or to rows, all in float32.

The formulas are `sporax.base.update_rules`', which the optimizers of `nn` use, too. Dense segments move as a whole. Rows of
a table move only when they have a gradient (as with LazyAdam); powers of beta count the updates of the table's slot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np
from msgspec import Struct

from sporax.base import update_rules
from sporax.base.errors import For
from sporax.ps.protocol.messages import OptimizerSpec

Arrays: TypeAlias = tuple[np.ndarray, ...]
Constants: TypeAlias = Mapping[str, float]


class UpdateRule(Struct, frozen=True):
    """One optimizer.

    Attributes:
        state: names of the state arrays, each with the constant that holds its first value (or a number).
        scalars: first values of state scalars.
        move: (gradient, parameter, state arrays, rate, constants, scalars) -> new parameter and state arrays.
    """

    state: tuple[tuple[str, str | float], ...]
    scalars: tuple[tuple[str, float], ...]
    move: Callable[[np.ndarray, np.ndarray, Arrays, np.float32, Constants, Constants], Arrays]


def _sgd(
    gradient: np.ndarray, value: np.ndarray, state: Arrays, rate: np.float32, constants: Constants, scalars: Constants
) -> Arrays:
    return update_rules.sgd(
        np,
        gradient,
        value,
        *state,
        rate=rate,
        momentum=np.float32(constants["momentum"]),
        dampening=constants.get("dampening", 0.0),
        nesterov=bool(constants.get("nesterov", 0)),
    )


def _plain_sgd(
    gradient: np.ndarray, value: np.ndarray, state: Arrays, rate: np.float32, constants: Constants, scalars: Constants
) -> Arrays:
    # As `update_rules.plain_sgd`, with the step's memory for the result: one new array less to go through.
    step = rate * gradient
    return (np.subtract(value, step, out=step),)


def _momentum(
    gradient: np.ndarray, value: np.ndarray, state: Arrays, rate: np.float32, constants: Constants, scalars: Constants
) -> Arrays:
    share = np.float32(constants["momentum"])
    nesterov = bool(constants.get("nesterov", 0))
    return update_rules.momentum(gradient, value, state[0], rate=rate, momentum=share, nesterov=nesterov)


def _adagrad(
    gradient: np.ndarray, value: np.ndarray, state: Arrays, rate: np.float32, constants: Constants, scalars: Constants
) -> Arrays:
    grows = bool(constants.get("update_slots", 1))
    return update_rules.adagrad(np, gradient, value, state[0], rate=rate, update_slots=grows)


def _adam(
    gradient: np.ndarray, value: np.ndarray, state: Arrays, rate: np.float32, constants: Constants, scalars: Constants
) -> Arrays:
    beta1, beta2 = constants["beta1"], constants["beta2"]
    return update_rules.adam(
        np,
        gradient,
        value,
        *state,
        rate=rate,
        factor=update_rules.adam_factor(np, np.float32(scalars["power1"]), np.float32(scalars["power2"])),
        beta1=beta1,
        beta2=beta2,
        # In float32, as `nn.Adam` computes it, so that both agree to the last bit.
        rest1=float(np.float32(1) - np.float32(beta1)),
        rest2=float(np.float32(1) - np.float32(beta2)),
        eps=constants["eps"],
        nesterov=bool(constants.get("nesterov", 0)),
    )


def _ftrl(
    gradient: np.ndarray, value: np.ndarray, state: Arrays, rate: np.float32, constants: Constants, scalars: Constants
) -> Arrays:
    return update_rules.ftrl(
        np, gradient, value, *state, rate=rate, power=constants["power"], l1=constants["l1"], l2=constants["l2"]
    )


_MOMENTS = (("moment1", 0.0), ("moment2", 0.0))
_POWERS = (("power1", 1.0), ("power2", 1.0))

RULES: dict[str, UpdateRule] = {
    "sgd": UpdateRule((), (), _plain_sgd),
    "sgd_momentum": UpdateRule((("accum", 0.0), ("stat", 1.0)), (), _sgd),
    "momentum": UpdateRule((("moments", 0.0),), (), _momentum),
    "adagrad": UpdateRule((("accum", "accum"),), (), _adagrad),
    "adam": UpdateRule(_MOMENTS, _POWERS, _adam),
    "amsgrad": UpdateRule((*_MOMENTS, ("vhat", 0.0)), _POWERS, _adam),
    "lazy_adam": UpdateRule(_MOMENTS, _POWERS, _adam),
    "ftrl": UpdateRule((("moments", "initial_accum"), ("linear", 0.0)), (), _ftrl),
}


def rule_of(spec: OptimizerSpec) -> UpdateRule:
    """The rule a spec names.

    Raises:
        SporaxValueError: there is none of that name.
    """
    For("sporax.ps").refuse(spec.rule not in RULES, f"'rule' must be one of {sorted(RULES)}, but got '{spec.rule}'")
    return RULES[spec.rule]


def first_state(spec: OptimizerSpec) -> tuple[float, ...]:
    """What each state array is filled with at first."""
    # Some first values are settings of the optimizer.
    return tuple(spec.constants[value] if isinstance(value, str) else float(value) for _, value in rule_of(spec).state)


def advanced(spec: OptimizerSpec, scalars: dict[str, float]) -> dict[str, float]:
    """State scalars after one more update: the powers of beta, in float32 as `nn.Adam` keeps them."""
    if "power1" not in scalars:
        return scalars
    return {
        "power1": float(np.float32(scalars["power1"]) * np.float32(spec.constants["beta1"])),
        "power2": float(np.float32(scalars["power2"]) * np.float32(spec.constants["beta2"])),
    }


def move(
    spec: OptimizerSpec, gradient: np.ndarray, value: np.ndarray, state: Arrays, rate: float, scalars: dict[str, float]
) -> Arrays:
    """New value and state arrays; nothing is changed in place.

    Args:
        spec: the optimizer.
        gradient, value, state: float32 arrays of one shape.
        rate: learning rate.
        scalars: state scalars, advanced already.
    """
    # The loss scale is taken out before the decay is added.
    if spec.scale != 1.0:
        gradient = gradient * np.float32(spec.scale)
    if spec.decay != 0.0:
        gradient = gradient + np.float32(spec.decay) * value
    return RULES[spec.rule].move(gradient, value, state, np.float32(rate), spec.constants, scalars)
