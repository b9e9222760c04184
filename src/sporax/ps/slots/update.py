"""Optimizers of a server: update rules by name, applied to flat arrays or to rows, all in float32.

The formulas are `sporax.base.update_rules`', which the optimizers of `nn` use, too. Dense segments move as a whole. Rows of
a table move only when they have a gradient (as with LazyAdam); powers of beta count the updates of the table's slot.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import TypeAlias

import numpy as np
from msgspec import Struct

from sporax.base import update_rules
from sporax.base.errors import For
from sporax.ps.protocol.messages import OptimizerSpec

Arrays: TypeAlias = tuple[np.ndarray, ...]


class UpdateRule(Struct, frozen=True):
    """One optimizer.

    Attributes:
        state: names of the state arrays, each with the constant that holds its first value (or a number).
        scalars: first values of state scalars.
        move: a function of `update_rules`, which takes its settings from the constants by name.
    """

    state: tuple[tuple[str, str | float], ...]
    scalars: tuple[tuple[str, float], ...]
    move: Callable[..., Arrays]


def _plain_sgd(xp: ModuleType, gradient: np.ndarray, value: np.ndarray, *, rate: np.float32) -> Arrays:
    # As `update_rules.plain_sgd`, with the step's memory for the result: one new array less to go through.
    step = rate * gradient
    return (np.subtract(value, step, out=step),)


_MOMENTS = (("moment1", 0.0), ("moment2", 0.0))
_POWERS = (("power1", 1.0), ("power2", 1.0))

RULES: dict[str, UpdateRule] = {
    "sgd": UpdateRule((), (), _plain_sgd),
    "sgd_momentum": UpdateRule((("accum", 0.0), ("stat", 1.0)), (), update_rules.sgd),
    "momentum": UpdateRule((("moments", 0.0),), (), update_rules.momentum),
    "adagrad": UpdateRule((("accum", "accum"),), (), update_rules.adagrad),
    "adam": UpdateRule(_MOMENTS, _POWERS, update_rules.adam),
    "amsgrad": UpdateRule((*_MOMENTS, ("vhat", 0.0)), _POWERS, update_rules.adam),
    "lazy_adam": UpdateRule(_MOMENTS, _POWERS, update_rules.adam),
    "ftrl": UpdateRule((("moments", "initial_accum"), ("linear", 0.0)), (), update_rules.ftrl),
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
    rule, speed = RULES[spec.rule], np.float32(rate)
    if rule.scalars:
        # Adam's correction of the bias, in float32 as on devices, so that both agree to the last bit.
        speed = speed * update_rules.adam_factor(np, *(np.float32(scalars[name]) for name, _ in rule.scalars))
    taken = update_rules.settings_of(rule.move)
    settings = {name: constant for name, constant in spec.constants.items() if name in taken}
    return rule.move(np, gradient, value, *state, rate=speed, **settings)
