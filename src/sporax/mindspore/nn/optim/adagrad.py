"""Adagrad and its proximal form; Adadelta; RMSProp; follow the regularized leader; AdaFactor.

AdaFactor keeps the second moments of matrices as row and column means.
"""

from __future__ import annotations

import math
from functools import partial
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp

from sporax.base import update_rules
from sporax.base.errors import For, SporaxTypeError, SporaxValueError
from sporax.mindspore._declared import optional, setting
from sporax.mindspore.common import Parameter, Tensor, dtypes
from sporax.mindspore.common.initializer import initializer
from sporax.mindspore.nn import _arguments as argument
from sporax.mindspore.nn.learning_rate_schedule import LearningRateSchedule
from sporax.mindspore.nn.optim._optimizer import (
    DECAY,
    LOCKING,
    SCALE,
    Array,
    DeclaredOptimizer,
    Start,
    Step,
    is_zero,
    number,
    rates,
)
from sporax.mindspore.ops.nn import optimizer_steps
from sporax.runtime.state import frames

_at_least_zero = partial(number, low=0.0)


class _Accumulating(DeclaredOptimizer, fields_only=True):
    """What sums up squares from `accum` on."""

    accum: float = _at_least_zero("first value of s, a float >= 0.", default=0.1, attribute=False)
    learning_rate: Any = rates(default=0.001)

    slots = ("accum",)
    starts = {"accum": Start("accum")}
    renamed = {"accum": "accum_value"}

    def _prepare(self, *, accum: float) -> None:
        # The state has the name of its first value.
        self.accum_value = accum
        super()._prepare()


class Adagrad(_Accumulating):
    """Adagrad (Duchi et al. 2011): s = s + g²;  p = p - learning_rate · g / √s."""

    update_slots: bool = setting(argument.boolean, "whether s grows.", default=True)
    loss_scale: float = SCALE
    weight_decay: Any = DECAY

    rule = update_rules.adagrad
    served_as = "adagrad"


class ProximalAdagrad(_Accumulating):
    """Adagrad followed by a proximal step for L1 and L2 penalties (Duchi & Singer 2009).

    s = s + g²;  v = p - learning_rate · g / √s;
    p = sign(v) · max(|v| - learning_rate / √s · l1, 0) / (1 + learning_rate / √s · l2).
    """

    l1: float = _at_least_zero("penalty on the absolute value, a float >= 0.", default=0.0)
    l2: float = _at_least_zero("penalty on the square, a float >= 0.", default=0.0)
    use_locking: bool = LOCKING
    loss_scale: float = SCALE
    weight_decay: Any = DECAY

    rule = optimizer_steps.shrinking_adagrad
    lazy_rows = True


def adadelta(
    xp: ModuleType, gradient: Array, parameter: Array, squares: Array, updates: Array, *, rate: Array, rho: float, eps: float
) -> tuple[Array, Array, Array]:  # fmt: skip
    """The rule of `Adadelta`: new parameter, averages of the squares of gradients and of steps."""
    squares = rho * squares + (1 - rho) * xp.square(gradient)
    # The units of the step are those of the Parameter (Zeiler 2012, 3.2).
    step = xp.sqrt(updates + eps) / xp.sqrt(squares + eps) * gradient
    return parameter - rate * step, squares, rho * updates + (1 - rho) * xp.square(step)


class Adadelta(DeclaredOptimizer):
    """Adadelta (Zeiler 2012).

    a = rho · a + (1 - rho) · g²;  d = √(b + epsilon) / √(a + epsilon) · g;  b = rho · b + (1 - rho) · d²;
    p = p - learning_rate · d.
    """

    learning_rate: Any = rates(default=1.0)
    rho: float = number("share of the old averages that stays, in [0, 1].", default=0.9, low=0.0, high=1.0)
    epsilon: float = _at_least_zero("added under the roots.", default=1e-6)
    loss_scale: float = SCALE
    weight_decay: Any = DECAY

    slots = ("accum", "accum_update")
    rule = adadelta
    renamed = {"eps": "epsilon"}


class RMSProp(DeclaredOptimizer):
    """RMSProp (Tieleman & Hinton 2012), optionally centered (Graves 2013).

    s = decay · s + (1 - decay) · g²;  v = momentum · v + learning_rate · g / √(s + epsilon);  p = p - v.
    `centered` keeps the mean gradient too, a = decay · a + (1 - decay) · g, and divides by √(s - a² + epsilon).
    """

    learning_rate: Any = rates(default=0.1)
    decay: float = _at_least_zero("share of the old averages that stays.", default=0.9)
    momentum: float = _at_least_zero("share of the velocity that stays.", default=0.0)
    epsilon: float = _at_least_zero("added under the root.", default=1e-10, ends="()")
    use_locking: bool = LOCKING
    centered: bool = setting(
        argument.boolean, "divide by the deviation instead of the root of the mean square.", default=False
    )
    loss_scale: float = SCALE
    weight_decay: Any = DECAY

    slots: tuple[str, ...] = ("ms", "moment")
    # 1 as in MindSpore: the first steps are small ones.
    starts = {"mg": Start(prefix="mean_grad."), "ms": Start(1.0, "mean_square.")}
    rule = optimizer_steps.rmsprop
    renamed = {"share": "decay"}

    def _prepare(self) -> None:
        if self.centered:
            self.slots = ("mg", *self.slots)
        super()._prepare()


class FTRL(DeclaredOptimizer):
    """FTRL-Proximal (McMahan et al. 2013), which leaves unimportant weights at exactly 0.

    n' = n + g²;  z = z + g - (n'^-lr_power - n^-lr_power) / learning_rate · p;
    p = (sign(z) · l1 - z) / (n'^-lr_power / learning_rate + 2 · l2) where |z| > l1, else 0.

    Args:
        params: Parameters or groups without rates of their own; see `Optimizer`.

    Raises:
        SporaxValueError: a learning rate that varies, or a number out of range.
    """

    initial_accum: float = _at_least_zero("first value of n, a float >= 0.", default=0.1)
    learning_rate: float = _at_least_zero("a float > 0.", default=0.001, ends="()")
    lr_power: float = number("power of n, a float <= 0.", default=-0.5, attribute=False, high=0.0)
    l1: float = _at_least_zero("penalty on the absolute value, a float >= 0.", default=0.0)
    l2: float = _at_least_zero("penalty on the square, a float >= 0.", default=0.0)
    use_locking: bool = LOCKING
    loss_scale: float = SCALE
    weight_decay: Any = DECAY

    slots = ("moments", "linear")
    starts = {"moments": Start("initial_accum")}
    rule = update_rules.ftrl
    spares_norms = False
    lazy_rows = True
    served_as = "ftrl"

    def _begin(self, values: dict[str, Any]) -> None:
        super()._begin(values)
        # The rate is part of the accumulated sums, so it must not change.
        if len(self.rates) > 1 or not isinstance(self.rates[0], Parameter):
            raise For("FTRL").error("the learning rate must be one number, but it varies with the step or the group")

    def _prepare(self, *, lr_power: float) -> None:
        self.power = -lr_power
        super()._prepare()


def _two_floats(name: str, what: str, value: Any) -> tuple[float, ...]:
    if not isinstance(value, tuple | list) or len(value) != 2:
        kind = SporaxValueError if isinstance(value, tuple | list) else SporaxTypeError
        raise kind(f"For '{name}', '{what}' must be two floats, but got {value!r}.")
    return tuple(argument.exactly_float(name, what, part, 0.0, math.inf) for part in value)


class AdaFactor(DeclaredOptimizer):
    """AdaFactor (Shazeer & Stern 2018).

    Args:
        eps: added to squared gradients, and smallest scale of a Parameter.

    Raises:
        SporaxTypeError, SporaxValueError: settings that contradict each other, or out of range.
    """

    learning_rate: Any = setting(None, "number or schedule; None together with `relative_step`.", default=None)
    eps: tuple[float, float] = setting(_two_floats, default=(1e-30, 1e-3))
    clip_threshold: float = _at_least_zero("largest root mean square of an update.", default=1.0)
    decay_rate: float = number(
        "the second moment's decay at step t is ``1 - t ** -decay_rate``.", default=0.8, low=0.0, high=1.0, ends="()"
    )
    beta1: float | None = setting(
        optional(partial(argument.within, low=0.0, high=1.0, ends="[)"), 0.0),
        "decay of the first moment; None or 0 for none.",
        default=0.9,
    )
    weight_decay: float = setting(argument.within, "decoupled decay.", default=0.0, low=0.0, high=1.0, ends="[)")
    scale_parameter: bool = setting(
        argument.boolean, "multiply the rate by the root mean square of the Parameter.", default=True
    )
    relative_step: bool = setting(
        argument.boolean,
        "the rate is ``min(1e-2, 1 / √t)`` (with `warmup_init` ``min(1e-6 · t, 1 / √t)``).",
        default=True,
    )
    warmup_init: bool = setting(argument.boolean, "see `relative_step`.", default=False)
    compression: bool = setting(argument.boolean, "keep moments in half precision.", default=False)
    loss_scale: float = SCALE

    may_be_dealt = True
    decoupled_decay = True
    spares_norms = False
    starts = {slot: Start(prefix=f"{slot}_") for slot in ("exp_avg_sq", "exp_avg_sq_col", "exp_avg_sq_row")}

    def _begin(self, values: dict[str, Any]) -> None:
        rate, relative = values["learning_rate"], values["relative_step"]
        if (rate is None) != bool(relative):
            raise For("AdaFactor").error("give either 'learning_rate' or 'relative_step'", rate, relative, show=repr)
        if values["warmup_init"] and not relative:
            raise SporaxValueError("For 'AdaFactor', 'warmup_init' needs 'relative_step', but that is False.")
        values["learning_rate"] = 0.0 if rate is None else rate
        super()._begin(values)
        # A schedule is taken as it is, as in MindSpore.
        self._scheduled = isinstance(rate, LearningRateSchedule)

    def _prepare(self) -> None:
        self.scale_parameter = self.scale_parameter and not self._scheduled
        # Without beta1 there is no first moment to keep.
        self.slots = ("exp_avg_sq_row", "exp_avg_sq_col", "exp_avg_sq", *(("exp_avg",) if self.beta1 else ()))
        self._make_state()
        self.afactor_step = Parameter(Tensor([0.0], dtypes.float32), name="afactor_step")

    def _make_state(self) -> None:
        def zeros(shape: tuple[int, ...], like: Parameter) -> Tensor:
            # Half precision halves the memory of the moments.
            return initializer("zeros", shape, dtypes.float16 if self.compression else like.dtype)

        if self.beta1:
            self.add_slot("exp_avg", lambda p: zeros(p.shape, p))
        # Matrices keep row and column means, vectors all squares; the others have size 1.
        self.add_slot("exp_avg_sq", lambda p: zeros((1,) if p.ndim > 1 else p.shape, p))
        self.add_slot("exp_avg_sq_col", lambda p: zeros(p.shape[:-2] + p.shape[-1:] if p.ndim > 1 else (1,), p))
        self.add_slot("exp_avg_sq_row", lambda p: zeros(p.shape[:-1] if p.ndim > 1 else (1,), p))

    def prepare(self) -> Any:
        """Count the step; gives the relative rate (or None) and the decay of the second moment."""
        step = self.afactor_step.array + 1
        frames.write(self.afactor_step, step)
        slowest = 1e-6 * step if self.warmup_init else jnp.full_like(step, 1e-2)
        rate = jnp.minimum(slowest, 1.0 / jnp.sqrt(step))[0] if self.relative_step else None
        return rate, 1.0 - step[0] ** -self.decay_rate

    def move(self, gradient: Array, parameter: Array, *slots: Array, at: Step) -> tuple[Array, ...]:
        """See the class."""
        rate, decay = at.shared
        rate = at.rate if rate is None else rate
        gradient, values = gradient.astype(jnp.float32), parameter.astype(jnp.float32)
        if self.scale_parameter:
            # Relative to the Parameter's own size.
            rate = rate * jnp.maximum(self.eps[1], _root_mean_square(values))
        row, col, squares, *first = (slot.astype(jnp.float32) for slot in slots)
        square = jnp.square(gradient) + self.eps[0]
        if gradient.ndim > 1:
            row = decay * row + (1.0 - decay) * jnp.mean(square, -1)
            col = decay * col + (1.0 - decay) * jnp.mean(square, -2)
            # The product of row and column, divided by the mean, is the estimate of the squares.
            share = row / jnp.mean(row, -1, keepdims=True)
            update = gradient * jax.lax.rsqrt(share)[..., None] * jax.lax.rsqrt(col)[..., None, :]
        else:
            squares = decay * squares + (1.0 - decay) * square
            update = gradient * jax.lax.rsqrt(squares)
        # Limits the root mean square of the update, not of the gradient.
        update = update / jnp.maximum(1.0, _root_mean_square(update) / self.clip_threshold) * rate
        if first:
            beta1 = self.beta1 or 0.0
            first = [beta1 * first[0] + (1.0 - beta1) * update]
            update = first[0]
        if not is_zero(at.decay):
            # Decoupled: multiplied by the rate, not by the gradient.
            values = values - at.decay * rate * values
        return values - update, row, col, squares, *first


def _root_mean_square(array: jax.Array) -> jax.Array:
    return jnp.sqrt(jnp.mean(jnp.square(array)))
