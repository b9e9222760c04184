"""AdaFactor: second moments of matrices kept as row and column means."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from sporax.base.errors import SporaxTypeError, SporaxValueError
from sporax.mindspore.common import dtype as dtypes
from sporax.mindspore.common.initializer import initializer
from sporax.mindspore.common.parameter import Parameter
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.nn import _arguments as argument
from sporax.mindspore.nn.learning_rate_schedule import LearningRateSchedule
from sporax.mindspore.nn.optim._optimizer import Array, Optimizer, Step, is_zero
from sporax.runtime.state import frames


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
