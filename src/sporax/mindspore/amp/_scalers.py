"""Loss scaling: for functional training (`LossScaler`) and for `Model` (`LossScaleManager`).

Gradients below about 6e-8 vanish in float16. The loss is multiplied by a scale and the gradients divided by it, so that
small ones survive; a dynamic scale grows until gradients overflow, and then shrinks (Micikevicius et al. 2018).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import jax

from sporax.base.errors import For
from sporax.mindspore import nn, ops
from sporax.mindspore.common import Parameter, Tensor, dtypes
from sporax.mindspore.nn.loss_scale import every_finite
from sporax.runtime.state import ordered_trees


def all_finite(inputs: Any) -> Tensor:
    """Whether no element is infinite or not a number: a Bool scalar.

    Args:
        inputs: a Tensor, or a container of Tensors.

    Example:
        >>> is_finite = all_finite(grads)
    """
    return every_finite(tuple(_tensors(inputs)))


def _tensors(inputs: Any) -> list[Tensor]:
    # A Tensor is a leaf, not a tree of its own; containers of any depth are allowed, as in MindSpore.
    return jax.tree.leaves(inputs, is_leaf=lambda leaf: isinstance(leaf, Tensor))


def _mapped(function: Any, inputs: Any) -> Any:
    return ordered_trees.mapped(function, inputs, is_leaf=lambda leaf: isinstance(leaf, Tensor))


class LossScaler(ABC):
    """Scales losses up and gradients down. Subclasses say when the scale changes."""

    @abstractmethod
    def scale(self, inputs: Any) -> Any:
        """The loss (or a container of Tensors) times the scale."""

    @abstractmethod
    def unscale(self, inputs: Any) -> Any:
        """Gradients divided by the scale."""

    @abstractmethod
    def adjust(self, grads_finite: Any) -> bool:
        """Adjust the scale after a step; says whether it is of the adjusting kind."""


class _Scaler(LossScaler):
    def __init__(self, scale_value: float) -> None:
        # A Parameter, so that a compiled step can change the scale without being compiled again.
        self.scale_value = Parameter(
            Tensor(_at_least_one(type(self).__name__, "scale_value", scale_value), dtypes.float32), name="scale_value"
        )

    def scale(self, inputs: Any) -> Any:
        """The loss (or a container of Tensors) times the scale, in the dtypes they have."""
        # The scale takes the dtype of the value: promotion would make float16 gradients float32.
        return _mapped(lambda value: value * self.scale_value.astype(value.dtype), inputs)

    def unscale(self, inputs: Any) -> Any:
        """Gradients divided by the scale, in the dtypes they have."""
        # The reciprocal is taken in float32, where it is exact for powers of two, before the cast.
        return _mapped(lambda value: value * (1.0 / self.scale_value).astype(value.dtype), inputs)


class StaticLossScaler(_Scaler):
    """A scale that stays.

    Args:
        scale_value: the scale, >= 1.

    Raises:
        SporaxTypeError, SporaxValueError: no such number.
    """

    def adjust(self, grads_finite: Any) -> bool:
        """Nothing to adjust: False."""
        return False


class DynamicLossScaler(_Scaler):
    """A scale that falls by a factor after an overflow and rises by it after `scale_window` good steps.

    Args:
        scale_value: first scale, >= 1.
        scale_factor: the factor, a positive int.
        scale_window: how many steps in a row must be good.

    Raises:
        SporaxTypeError, SporaxValueError: no such numbers.

    Example:
        >>> scaler = DynamicLossScaler(1024, 2, 50)
        >>> def step(x, y):
        ...     loss, grads = value_and_grad(lambda: scaler.scale(forward(x, y)), None, weights)()
        ...     grads = scaler.unscale(grads)
        ...     finite = all_finite(grads)
        ...     scaler.adjust(finite)
        ...     return scaler.unscale(loss)
    """

    def __init__(self, scale_value: float, scale_factor: int, scale_window: int) -> None:
        super().__init__(scale_value)
        self.scale_factor = _positive_int("scale_factor", scale_factor)
        self.scale_window = _positive_int("scale_window", scale_window)
        self.counter = Parameter(Tensor(0, dtypes.int32), name="counter")

    def adjust(self, grads_finite: Any) -> bool:
        """Adjust the scale by whether the gradients of this step were finite (a Bool Tensor); True."""
        # No Python branch: the flag is a tracer in a compiled step, so both outcomes are computed and one is selected.
        scale = self.scale_value
        raised = scale * self.scale_factor
        due = self.counter == self.scale_window - 1
        # A scale that would become infinite stays as it is.
        risen = ops.where(ops.logical_and(due, ops.isfinite(raised)), raised, scale)
        # Below 1 it would lose what it is there to save.
        fallen = ops.maximum(scale / self.scale_factor, 1.0)
        finite = grads_finite if isinstance(grads_finite, Tensor) else Tensor(bool(grads_finite))
        ops.assign(self.scale_value, ops.where(finite, risen, fallen))
        # The counter starts again after a full window and after each overflow; the bool, as 0 or 1, does the latter.
        ops.assign(self.counter, (self.counter + 1) % self.scale_window * finite.astype(dtypes.int32))
        return True


class LossScaleManager:
    """Where `Model` gets a scale. Subclasses define all three methods."""

    def get_loss_scale(self) -> float:
        """The present scale."""
        raise NotImplementedError

    def update_loss_scale(self, overflow: bool) -> None:
        """Take note of whether a step overflowed."""
        raise NotImplementedError

    def get_update_cell(self) -> Any:
        """The Cell that keeps the scale inside the compiled step; None for a plain scale without overflow check."""
        raise NotImplementedError


class FixedLossScaleManager(LossScaleManager):
    """A scale that stays.

    Args:
        loss_scale: the scale, >= 1. Without `drop_overflow_update` the optimizer must be made with the same `loss_scale`.
        drop_overflow_update: leave out the update of a step that overflows.

    Raises:
        SporaxValueError: `loss_scale` below 1.
    """

    def __init__(self, loss_scale: float = 128.0, drop_overflow_update: bool = True) -> None:
        self._loss_scale = _at_least_one("FixedLossScaleManager", "loss_scale", loss_scale)
        self._drop_overflow_update = drop_overflow_update

    def get_loss_scale(self) -> float:
        """The scale."""
        return self._loss_scale

    def get_drop_overflow_update(self) -> bool:
        """Whether the update of a step that overflows is left out."""
        return self._drop_overflow_update

    def update_loss_scale(self, overflow: bool) -> None:
        """Nothing changes."""

    def get_update_cell(self) -> Any:
        """A `FixedLossScaleUpdateCell`, or None."""
        # Without the check there is nothing to update inside the step, and `Model` multiplies by the plain number.
        return nn.FixedLossScaleUpdateCell(self._loss_scale) if self._drop_overflow_update else None


class DynamicLossScaleManager(LossScaleManager):
    """A scale that falls by a factor after an overflow and rises by it after `scale_window` good steps.

    Args:
        init_loss_scale: first scale, >= 1.
        scale_factor: the factor.
        scale_window: how many steps in a row must be good.

    Raises:
        SporaxTypeError, SporaxValueError: no such numbers.
    """

    # MindSpore's defaults: too high at first, since a fall takes one step and a rise a whole window.
    def __init__(self, init_loss_scale: float = 2**24, scale_factor: int = 2, scale_window: int = 2000) -> None:
        self.loss_scale = _at_least_one("DynamicLossScaleManager", "init_loss_scale", init_loss_scale)
        self.scale_factor = _positive_int("scale_factor", scale_factor)
        self.scale_window = _positive_int("scale_window", scale_window)
        self.increase_ratio, self.decrease_ratio = scale_factor, 1 / scale_factor
        self.cur_iter, self.last_overflow_iter = 1, 0
        self.bad_step, self.bad_step_max = 0, 1000

    def get_loss_scale(self) -> float:
        return self.loss_scale

    def get_drop_overflow_update(self) -> bool:
        """True: the update of a step that overflows is left out."""
        return True

    def update_loss_scale(self, overflow: bool) -> None:
        """Let the scale fall or rise.

        Raises:
            SporaxRuntimeError: more than `bad_step_max` steps in a row have overflowed.
        """
        self.bad_step = self.bad_step + 1 if overflow else 0
        if overflow:
            # Same limits as the Cell inside the step, for those who call the manager by hand.
            self.loss_scale = max(self.loss_scale * self.decrease_ratio, 1)
            self.last_overflow_iter = self.cur_iter
        elif (self.cur_iter - self.last_overflow_iter) % self.scale_window == 0:
            self.loss_scale *= self.increase_ratio
        where = For("DynamicLossScaleManager")
        where.refuse_state(self.bad_step > self.bad_step_max, "the loss must not overflow without end", self.bad_step)
        self.cur_iter += 1

    def get_update_cell(self) -> Any:
        """A `DynamicLossScaleUpdateCell` that starts from the present scale."""
        return nn.DynamicLossScaleUpdateCell(self.loss_scale, self.scale_factor, self.scale_window)


def _at_least_one(name: str, what: str, value: Any) -> Any:
    # bool is a subclass of int, but True is no scale.
    For(name).typed(what, value, "a number", int | float, takes_bool=False)
    For(name).refuse(not 1 <= value < math.inf, f"'{what}' must be >= 1 and finite", value)
    return value


def _positive_int(what: str, value: Any) -> int:
    For(what).typed("the value", value, "an int", int, takes_bool=False)
    For(what).refuse(value < 1, "the value must be > 0", value)
    return value
