"""Shared parts of `experimental.optim`: limits of settings and the step counter, which `mint.optim` does not have."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from sporax.base.errors import SporaxValueError
from sporax.mindspore.common import dtype as dtypes
from sporax.mindspore.common.parameter import Parameter
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.mint.optim._optimizer import Optimizer, check_betas, not_negative
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
    if value == 0:
        raise SporaxValueError(f"For '{name}', '{what}' must be > 0, but got {value}.")
