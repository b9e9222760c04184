"""Adagrad and its proximal form; Adadelta; RMSProp; follow the regularized leader; AdaFactor.

AdaFactor keeps the second moments of matrices as row and column means.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from sporax.base import update_rules
from sporax.base.errors import SporaxTypeError, SporaxValueError
from sporax.mindspore._declared import setting
from sporax.mindspore.common import Parameter, Tensor, dtypes
from sporax.mindspore.common.initializer import initializer
from sporax.mindspore.nn import _arguments as argument
from sporax.mindspore.nn.learning_rate_schedule import LearningRateSchedule
from sporax.mindspore.nn.optim._optimizer import Array, Optimizer, Step, is_zero
from sporax.mindspore.ops.nn import optimizer_steps
from sporax.runtime.state import frames


class Adagrad(Optimizer):
    """Adagrad (Duchi et al. 2011): s = s + g²;  p = p - learning_rate · g / √s.

    Args:
        params, learning_rate, loss_scale, weight_decay: see `Optimizer`.
    """

    params: Any = setting()
    accum: float = setting(None, "first value of s, a float >= 0.", default=0.1, attribute=False)
    learning_rate: Any = setting(default=0.001)
    update_slots: bool = setting(argument.boolean, "whether s grows.", default=True)
    loss_scale: float = setting(default=1.0)
    weight_decay: Any = setting(default=0.0)

    slots = ("accum",)

    def _prepare(self, accum: float) -> None:
        self.accum_value = argument.exactly_float("Adagrad", "accum", accum, 0.0, math.inf)
        self.add_slot("accum", self.accum_value)

    def move(self, gradient: Array, parameter: Array, *slots: Array, at: Step) -> tuple[Array, ...]:
        """See the class."""
        return update_rules.adagrad(jnp, gradient, parameter, slots[0], rate=at.rate, update_slots=self.update_slots)

    def server_rule(self) -> tuple[str, dict[str, float]]:
        """See `Optimizer`."""
        return "adagrad", {"accum": self.accum_value, "update_slots": float(self.update_slots)}


class ProximalAdagrad(Optimizer):
    """Adagrad followed by a proximal step for L1 and L2 penalties (Duchi & Singer 2009).

    s = s + g²;  v = p - learning_rate · g / √s;
    p = sign(v) · max(|v| - learning_rate / √s · l1, 0) / (1 + learning_rate / √s · l2).

    Args:
        params, learning_rate, loss_scale: see `Optimizer`.
        l1, l2: penalties, floats >= 0.
    """

    params: Any = setting()
    accum: float = setting(None, "first value of s, a float >= 0.", default=0.1, attribute=False)
    learning_rate: Any = setting(default=0.001)
    l1: float = setting(argument.exactly_float, default=0.0, low=0.0, high=math.inf)
    l2: float = setting(argument.exactly_float, default=0.0, low=0.0, high=math.inf)
    use_locking: bool = setting(argument.boolean, "accepted for compatibility; steps never overlap.", default=False)
    loss_scale: float = setting(default=1.0)
    weight_decay: Any = setting(None, "L2 penalty through the gradient.", default=0.0)

    slots = ("accum",)
    lazy_rows = True

    def _prepare(self, accum: float) -> None:
        name = "ProximalAdagrad"
        self.add_slot("accum", argument.exactly_float(name, "accum", accum, 0.0, math.inf))

    def move(self, gradient: Array, parameter: Array, *slots: Array, at: Step) -> tuple[Array, ...]:
        """See the class."""
        return optimizer_steps.proximal_adagrad(parameter, *slots, at.rate, self.l1, self.l2, gradient)


class Adadelta(Optimizer):
    """Adadelta (Zeiler 2012).

    a = rho · a + (1 - rho) · g²;  d = √(b + epsilon) / √(a + epsilon) · g;  b = rho · b + (1 - rho) · d²;
    p = p - learning_rate · d.

    Args:
        params, learning_rate, loss_scale, weight_decay: see `Optimizer`.
    """

    params: Any = setting()
    learning_rate: Any = setting(default=1.0)
    rho: float = setting(
        argument.exactly_float, "share of the old averages that stays, in [0, 1].", default=0.9, low=0.0, high=1.0
    )
    epsilon: float = setting(argument.exactly_float, "added under the roots.", default=1e-6, low=0.0, high=math.inf)
    loss_scale: float = setting(default=1.0)
    weight_decay: Any = setting(default=0.0)

    slots = ("accum", "accum_update")

    def _prepare(self) -> None:
        self.add_slot("accum")
        self.add_slot("accum_update")

    def move(self, gradient: Array, parameter: Array, *slots: Array, at: Step) -> tuple[Array, ...]:
        """See the class."""
        return adadelta(gradient, parameter, *slots, rate=at.rate, rho=self.rho, eps=self.epsilon)


def adadelta(
    gradient: Array, parameter: Array, squares: Array, updates: Array, *, rate: Array, rho: float, eps: float
) -> tuple[Array, Array, Array]:
    """The rule of `Adadelta`: new parameter, averages of the squares of gradients and of steps."""
    squares = rho * squares + (1 - rho) * jnp.square(gradient)
    # The units of the step are those of the Parameter (Zeiler 2012, 3.2).
    step = jnp.sqrt(updates + eps) / jnp.sqrt(squares + eps) * gradient
    return parameter - rate * step, squares, rho * updates + (1 - rho) * jnp.square(step)


class RMSProp(Optimizer):
    """RMSProp (Tieleman & Hinton 2012), optionally centered (Graves 2013).

    s = decay · s + (1 - decay) · g²;  v = momentum · v + learning_rate · g / √(s + epsilon);  p = p - v.
    `centered` keeps the mean gradient too, a = decay · a + (1 - decay) · g, and divides by √(s - a² + epsilon).

    Args:
        params, learning_rate, loss_scale, weight_decay: see `Optimizer`.
        decay: share of the old averages that stays.
        momentum: share of the velocity that stays.
        epsilon: added under the root.
        use_locking: accepted for compatibility; steps never overlap.
        centered: divide by the deviation instead of the root of the mean square.
    """

    params: Any = setting()
    learning_rate: Any = setting(default=0.1)
    decay: float = setting(argument.exactly_float, default=0.9, low=0.0, high=math.inf)
    momentum: float = setting(argument.exactly_float, default=0.0, low=0.0, high=math.inf)
    epsilon: float = setting(argument.exactly_float, default=1e-10, low=0.0, high=math.inf, ends="()")
    use_locking: bool = setting(argument.boolean, default=False)
    centered: bool = setting(argument.boolean, default=False)
    loss_scale: float = setting(default=1.0)
    weight_decay: Any = setting(default=0.0)

    slots: tuple[str, ...] = ("ms", "moment")

    def _prepare(self) -> None:
        if self.centered:
            self.slots = (*RMSProp.slots, "mg")
            self.add_slot("mg", prefix="mean_grad")
        # 1 as in MindSpore: the first steps are small ones.
        self.add_slot("ms", 1.0, prefix="mean_square")
        self.add_slot("moment")

    def move(self, gradient: Array, parameter: Array, *slots: Array, at: Step) -> tuple[Array, ...]:
        """See the class."""
        squares, velocity, *means = slots
        settings = (self.decay, self.momentum, self.epsilon)
        if not means:
            return optimizer_steps.rmsprop(parameter, squares, velocity, at.rate, gradient, *settings)
        moved, mean, *others = optimizer_steps.centered_rmsprop(
            parameter, *means, squares, velocity, gradient, at.rate, *settings
        )
        return moved, *others, mean


class FTRL(Optimizer):
    """FTRL-Proximal (McMahan et al. 2013), which leaves unimportant weights at exactly 0.

    n' = n + g²;  z = z + g - (n'^-lr_power - n^-lr_power) / learning_rate · p;
    p = (sign(z) · l1 - z) / (n'^-lr_power / learning_rate + 2 · l2) where |z| > l1, else 0.

    Args:
        params: Parameters or groups without rates of their own; see `Optimizer`.
        initial_accum: first value of n, a float >= 0.
        learning_rate: a float > 0.
        lr_power: power of n, a float <= 0.
        l1, l2: penalties, floats >= 0.
        use_locking: accepted for compatibility; steps never overlap.
        loss_scale: gradients are divided by it.
        weight_decay: L2 penalty through the gradient.

    Raises:
        SporaxValueError: a learning rate that varies, or a number out of range.
    """

    slots = ("moments", "linear")
    lazy_rows = True

    def __init__(
        self,
        params: Any,
        initial_accum: float = 0.1,
        learning_rate: float = 0.001,
        lr_power: float = -0.5,
        l1: float = 0.0,
        l2: float = 0.0,
        use_locking: bool = False,
        loss_scale: float = 1.0,
        weight_decay: Any = 0.0,
    ) -> None:
        super().__init__(learning_rate, params, weight_decay, loss_scale)
        # The rate is part of the accumulated sums, so it must not change.
        if len(self.rates) > 1 or not isinstance(self.rates[0], Parameter):
            raise SporaxValueError(
                "For 'FTRL', the learning rate must be one number, but it varies with the step or the group."
            )
        argument.exactly_float("FTRL", "learning_rate", learning_rate, 0.0, math.inf, "()")
        self.power = -argument.exactly_float("FTRL", "lr_power", lr_power, -math.inf, 0.0)
        self.l1 = argument.exactly_float("FTRL", "l1", l1, 0.0, math.inf)
        self.l2 = argument.exactly_float("FTRL", "l2", l2, 0.0, math.inf)
        argument.boolean("FTRL", "use_locking", use_locking)
        self.initial_accum = argument.exactly_float("FTRL", "initial_accum", initial_accum, 0.0, math.inf)
        self.add_slot("moments", self.initial_accum)
        self.add_slot("linear")

    def _exempt_from_decay(self, parameter: Parameter) -> bool:
        """FTRL decays every Parameter."""
        return False

    def move(self, gradient: Array, parameter: Array, *slots: Array, at: Step) -> tuple[Array, ...]:
        """See the class."""
        squares, linear = slots
        return update_rules.ftrl(
            jnp, gradient, parameter, squares, linear, rate=at.rate, power=self.power, l1=self.l1, l2=self.l2
        )

    def server_rule(self) -> tuple[str, dict[str, float]]:
        """See `Optimizer`."""
        return "ftrl", {"initial_accum": self.initial_accum, "power": self.power, "l1": self.l1, "l2": self.l2}


class AdaFactor(Optimizer):
    """AdaFactor (Shazeer & Stern 2018).

    Args:
        params, loss_scale: see `Optimizer`.
        learning_rate: number or schedule; None together with `relative_step`.
        eps: added to squared gradients, and smallest scale of a Parameter.
        clip_threshold: largest root mean square of an update.
        decay_rate: the second moment's decay at step t is ``1 - t ** -decay_rate``.
        beta1: decay of the first moment; None or 0 for none.
        weight_decay: decoupled decay.
        scale_parameter: multiply the rate by the root mean square of the Parameter.
        relative_step: the rate is ``min(1e-2, 1 / √t)`` (with `warmup_init` ``min(1e-6 · t, 1 / √t)``).
        warmup_init: see above.
        compression: keep moments in half precision.

    Raises:
        SporaxTypeError, SporaxValueError: settings that contradict each other, or out of range.
    """

    may_be_dealt = True
    decoupled_decay = True

    def __init__(
        self,
        params: Any,
        learning_rate: Any = None,
        eps: tuple[float, float] = (1e-30, 1e-3),
        clip_threshold: float = 1.0,
        decay_rate: float = 0.8,
        beta1: float | None = 0.9,
        weight_decay: float = 0.0,
        scale_parameter: bool = True,
        relative_step: bool = True,
        warmup_init: bool = False,
        compression: bool = False,
        loss_scale: float = 1.0,
    ) -> None:
        if (learning_rate is None) != bool(relative_step):
            raise SporaxValueError(
                "For 'AdaFactor', give either 'learning_rate' or 'relative_step', "
                f"but got {learning_rate!r} and {relative_step!r}."
            )
        if warmup_init and not relative_step:
            raise SporaxValueError("For 'AdaFactor', 'warmup_init' needs 'relative_step', but that is False.")
        super().__init__(0.0 if learning_rate is None else learning_rate, params, weight_decay, loss_scale)
        name = "AdaFactor"
        if not isinstance(eps, tuple | list) or len(eps) != 2:
            raise (SporaxValueError if isinstance(eps, tuple | list) else SporaxTypeError)(
                f"For '{name}', 'eps' must be two floats, but got {eps!r}."
            )
        self.eps = tuple(argument.exactly_float(name, "eps", value, 0.0, math.inf) for value in eps)
        self.clip_threshold = argument.exactly_float(name, "clip_threshold", clip_threshold, 0.0, math.inf)
        self.decay_rate = argument.exactly_float(name, "decay_rate", decay_rate, 0.0, 1.0, "()")
        self.beta1 = argument.within(name, "beta1", 0.0 if beta1 is None else beta1, 0.0, 1.0, "[)")
        argument.within(name, "weight_decay", weight_decay, 0.0, 1.0, "[)")
        self.relative_step = argument.boolean(name, "relative_step", relative_step)
        self.warmup_init = argument.boolean(name, "warmup_init", warmup_init)
        # A schedule is taken as it is, as in MindSpore.
        scheduled = isinstance(learning_rate, LearningRateSchedule)
        self.scale_parameter = argument.boolean(name, "scale_parameter", scale_parameter) and not scheduled
        self.compression = argument.boolean(name, "compression", compression)
        # Without beta1 there is no first moment to keep.
        self.slots = ("exp_avg_sq_row", "exp_avg_sq_col", "exp_avg_sq", *(("exp_avg",) if self.beta1 else ()))
        self._make_state()
        self.afactor_step = Parameter(Tensor([0.0], dtypes.float32), name="afactor_step")

    def _exempt_from_decay(self, parameter: Parameter) -> bool:
        """AdaFactor decays every Parameter."""
        return False

    def _make_state(self) -> None:
        def zeros(shape: tuple[int, ...], like: Parameter) -> Tensor:
            # Half precision halves the memory of the moments.
            return initializer("zeros", shape, dtypes.float16 if self.compression else like.dtype)

        if self.beta1:
            self.add_slot("exp_avg", lambda p: zeros(p.shape, p))
        # Matrices keep row and column means, vectors all squares; the others have size 1.
        self.add_slot("exp_avg_sq", lambda p: zeros((1,) if p.ndim > 1 else p.shape, p), joint="_")
        self.add_slot(
            "exp_avg_sq_col", lambda p: zeros(p.shape[:-2] + p.shape[-1:] if p.ndim > 1 else (1,), p), joint="_"
        )
        self.add_slot("exp_avg_sq_row", lambda p: zeros(p.shape[:-1] if p.ndim > 1 else (1,), p), joint="_")

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
            first = [self.beta1 * first[0] + (1.0 - self.beta1) * update]
            update = first[0]
        if not is_zero(at.decay):
            # Decoupled: multiplied by the rate, not by the gradient.
            values = values - at.decay * rate * values
        return values - update, row, col, squares, *first


def _root_mean_square(array: jax.Array) -> jax.Array:
    return jnp.sqrt(jnp.mean(jnp.square(array)))
