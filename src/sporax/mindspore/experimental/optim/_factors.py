"""Schedules that multiply the learning rate by a factor at each step or at some steps; triangles and cosines."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from sporax.base.errors import SporaxValueError, check_type
from sporax.mindspore.common.tensor import wrap
from sporax.mindspore.experimental.optim._scheduler import (
    ClosedSchedule,
    LRScheduler,
    as_tensor,
    assign,
    check_integer,
    check_optimizer,
    counter,
    exactly_float,
    number,
    per_group,
    share,
)
from sporax.mindspore.mint.optim._optimizer import Optimizer


class StepLR(ClosedSchedule):
    """Multiply the rate by `gamma` every `step_size` epochs.

    Args:
        optimizer, last_epoch: as of `LRScheduler`.
        step_size: int, number of epochs.
        gamma: float, factor.
    """

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        check_integer("StepLR", "step_size", step_size)
        exactly_float("StepLR", "gamma", gamma)
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def next_rate(self, epoch: jax.Array, rate: jax.Array, base: jax.Array) -> jax.Array:
        return jnp.where((epoch == 0) | (epoch % self.step_size != 0), rate, rate * self.gamma)

    def rate_at(self, epoch: jax.Array, base: jax.Array) -> jax.Array:
        return base * self.gamma ** (epoch // self.step_size)


class MultiStepLR(ClosedSchedule):
    """Multiply the rate by `gamma` at each milestone.

    Args:
        optimizer, last_epoch: as of `LRScheduler`.
        milestones: list of epochs, ints; one that is there twice counts twice.
        gamma: factor.
    """

    def __init__(self, optimizer: Optimizer, milestones: list[int], gamma: float = 0.1, last_epoch: int = -1) -> None:
        check_type("MultiStepLR", "milestones", milestones, "a list", list)
        for milestone in milestones:
            check_integer("MultiStepLR", "milestones", milestone)
        number("MultiStepLR", "gamma", gamma)
        self.milestones = Counter(milestones)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def next_rate(self, epoch: jax.Array, rate: jax.Array, base: jax.Array) -> jax.Array:
        for milestone, times in self.milestones.items():
            rate = jnp.where(epoch == milestone, rate * self.gamma**times, rate)
        return rate

    def rate_at(self, epoch: jax.Array, base: jax.Array) -> jax.Array:
        for milestone, times in self.milestones.items():
            base = jnp.where(epoch >= milestone, base * self.gamma**times, base)
        return base


class ConstantLR(ClosedSchedule):
    """Multiply the rate by `factor` until epoch `total_iters`.

    Args:
        optimizer, last_epoch: as of `LRScheduler`.
        factor: in [0, 1].
        total_iters: int, number of epochs.
    """

    def __init__(
        self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5, last_epoch: int = -1
    ) -> None:
        share("ConstantLR", "factor", factor)
        check_integer("ConstantLR", "total_iters", total_iters)
        self.factor = factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def next_rate(self, epoch: jax.Array, rate: jax.Array, base: jax.Array) -> jax.Array:
        # Nothing is left of a rate that was multiplied by 0.
        restored = base if self.factor == 0 else rate / self.factor
        return jnp.where(epoch == 0, rate * self.factor, jnp.where(epoch != self.total_iters, rate, restored))

    def rate_at(self, epoch: jax.Array, base: jax.Array) -> jax.Array:
        return jnp.where(epoch >= self.total_iters, base, base * self.factor)


class LinearLR(ClosedSchedule):
    """Multiply the first rate by a factor that goes from `start_factor` to `end_factor` in `total_iters` epochs.

    Args:
        optimizer, last_epoch: as of `LRScheduler`.
        start_factor: in (0, 1].
        end_factor: in [0, 1].
        total_iters: int, number of epochs.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        share("LinearLR", "start_factor", start_factor, may_be_zero=False)
        share("LinearLR", "end_factor", end_factor)
        check_integer("LinearLR", "total_iters", total_iters)
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def next_rate(self, epoch: jax.Array, rate: jax.Array, base: jax.Array) -> jax.Array:
        change = self.end_factor - self.start_factor
        # The factor of the epoch before, by which the present rate was multiplied.
        before = self.total_iters * self.start_factor + (epoch - 1) * change
        following = jnp.where(epoch > self.total_iters, rate, rate * (1.0 + change / before))
        return jnp.where(epoch == 0, rate * self.start_factor, following)

    def rate_at(self, epoch: jax.Array, base: jax.Array) -> jax.Array:
        done = jnp.minimum(self.total_iters, epoch) / self.total_iters
        return base * (self.start_factor + (self.end_factor - self.start_factor) * done)


class ExponentialLR(ClosedSchedule):
    """Multiply the rate by `gamma` at each step.

    Args:
        optimizer, last_epoch: as of `LRScheduler`.
        gamma: float, factor.
    """

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        exactly_float("ExponentialLR", "gamma", gamma)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def next_rate(self, epoch: jax.Array, rate: jax.Array, base: jax.Array) -> jax.Array:
        return jnp.where(epoch == 0, rate, rate * self.gamma)

    def rate_at(self, epoch: jax.Array, base: jax.Array) -> jax.Array:
        return base * self.gamma**epoch


class PolynomialLR(ClosedSchedule):
    """Multiply the first rate by ``(1 - epoch / total_iters) ** power``.

    Args:
        optimizer, last_epoch: as of `LRScheduler`.
        total_iters: int, number of epochs until 0.
        power: float, at least 0.
    """

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1) -> None:
        exactly_float("PolynomialLR", "power", power)
        SporaxValueError.raise_if(power < 0, "PolynomialLR", "power", "be >= 0", power)
        check_integer("PolynomialLR", "total_iters", total_iters)
        self.total_iters = total_iters
        self.power = power
        super().__init__(optimizer, last_epoch)

    def next_rate(self, epoch: jax.Array, rate: jax.Array, base: jax.Array) -> jax.Array:
        is_over = (epoch == 0) | (epoch > self.total_iters)
        # No division by zero where the result is not used.
        present = jnp.where(is_over, 1.0, epoch)
        left, before = 1.0 - present / self.total_iters, 1.0 - (present - 1) / self.total_iters
        return jnp.where(is_over, rate, rate * (left / before) ** self.power)

    def rate_at(self, epoch: jax.Array, base: jax.Array) -> jax.Array:
        return base * (1.0 - jnp.minimum(self.total_iters, epoch) / self.total_iters) ** self.power


class LambdaLR(LRScheduler):
    """Multiply the first rate by what a function gives for the epoch.

    Args:
        optimizer, last_epoch: as of `LRScheduler`.
        lr_lambda: a function of the epoch, a scalar Tensor, or a list with one per group.
    """

    def __init__(self, optimizer: Optimizer, lr_lambda: Any, last_epoch: int = -1) -> None:
        self.lr_lambdas = per_group("LambdaLR", "lr_lambda", lr_lambda, optimizer)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        epoch = self.last_epoch.value()
        return [base * factor(epoch) for factor, base in zip(self.lr_lambdas, self.base_lrs, strict=True)]


class MultiplicativeLR(LRScheduler):
    """Multiply the rate by what a function gives for the epoch, from epoch 1 on.

    Args:
        optimizer, last_epoch: as of `LRScheduler`.
        lr_lambda: a function of the epoch, a scalar Tensor, or a list with one per group.
    """

    def __init__(self, optimizer: Optimizer, lr_lambda: Any, last_epoch: int = -1) -> None:
        self.lr_lambdas = per_group("MultiplicativeLR", "lr_lambda", lr_lambda, optimizer)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        epoch = self.last_epoch.value()
        if epoch <= 0:
            return self.get_last_lr()
        return [as_tensor(rate) * factor(epoch) for factor, rate in zip(self.lr_lambdas, self._last_lr, strict=True)]


class CyclicLR(LRScheduler):
    """Go from `base_lr` to `max_lr` and back, again and again (Smith 2017).

    Args:
        optimizer, last_epoch: as of `LRScheduler`.
        base_lr, max_lr: bounds, for all groups or a list with one per group.
        step_size_up, step_size_down: number of steps up and down; down as up when None.
        mode: ``"triangular"``, ``"triangular2"`` (half as high in each cycle), ``"exp_range"`` (``gamma ** step`` as high).
        gamma: see `mode`.
        scale_fn: the height as a function, instead of `mode`, of a scalar Tensor.
        scale_mode: whether `scale_fn` gets the number of the ``"cycle"``, from 1, or that of the step (``"iterations"``).
    """

    def __init__(
        self, optimizer: Optimizer, base_lr: Any, max_lr: Any, step_size_up: int = 2000,
        step_size_down: int | None = None, mode: str = "triangular", gamma: float = 1.0,
        scale_fn: Callable[[Any], Any] | None = None, scale_mode: str = "cycle", last_epoch: int = -1,
    ) -> None:  # fmt: skip
        check_optimizer("CyclicLR", optimizer)
        heights: dict[str, Callable[[Any], Any]] = {
            "triangular": lambda cycle: 1.0,
            "triangular2": lambda cycle: 1 / 2.0 ** (cycle - 1),
            "exp_range": lambda step: gamma**step,
        }
        if scale_fn is None and mode not in heights:
            raise SporaxValueError(f"For 'CyclicLR', 'mode' must be in {list(heights)}, but got {mode!r}.")
        lowest = per_group("CyclicLR", "base_lr", base_lr, optimizer)
        self.max_lrs = [as_tensor(rate) for rate in per_group("CyclicLR", "max_lr", max_lr, optimizer)]
        if last_epoch == -1:
            # A continued run keeps its rates.
            for rate, group in zip(lowest, optimizer.param_groups, strict=True):
                assign(group["lr"], rate)
        down = step_size_up if step_size_down is None else step_size_down
        self.total_step_size = float(step_size_up + down)
        self.step_up_ratio = step_size_up / self.total_step_size
        self.mode = mode
        self.gamma = gamma
        self.scale_fn = heights[mode] if scale_fn is None else scale_fn
        self.scale_mode = scale_mode
        if scale_fn is None:
            # "exp_range" is a function of the step.
            self.scale_mode = "iterations" if mode == "exp_range" else "cycle"
        self._lowest = [as_tensor(rate) for rate in lowest]
        super().__init__(optimizer, last_epoch)
        # The base class has taken the first rates, but the cycle starts at the lowest.
        self.base_lrs = self._lowest

    def get_lr(self) -> list[Any]:
        epoch = self.last_epoch.array
        cycle = jnp.floor(1 + epoch / self.total_step_size)
        place = 1.0 + epoch / self.total_step_size - cycle
        ratio = self.step_up_ratio
        # When all steps go up there is no way down, and its formula divides by zero.
        falling = (place - 1) / (ratio - 1) if ratio < 1 else jnp.ones_like(place)
        height = wrap(jnp.where(place <= ratio, place / ratio, falling))
        scale = self.scale_fn(wrap(cycle if self.scale_mode == "cycle" else epoch))
        return [low + (high - low) * height * scale for low, high in zip(self._lowest, self.max_lrs, strict=True)]


class CosineAnnealingLR(ClosedSchedule):
    """Go from the first rate to `eta_min` in `T_max` epochs and back, along a cosine (Loshchilov & Hutter 2017).

    Args:
        optimizer, last_epoch: as of `LRScheduler`.
        T_max: int, number of epochs.
        eta_min: the lowest rate.
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:  # noqa: N803 (MindSpore's name)
        number("CosineAnnealingLR", "eta_min", eta_min)
        check_integer("CosineAnnealingLR", "T_max", T_max)
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def next_rate(self, epoch: jax.Array, rate: jax.Array, base: jax.Array) -> jax.Array:
        lowest, angle = self.eta_min, math.pi / self.T_max
        # From the lowest rate on the recurrence would divide by zero.
        upwards = rate + (base - lowest) * (1 - math.cos(angle)) / 2
        is_lowest = (epoch - 1 - self.T_max) % (2 * self.T_max) == 0
        before = jnp.where(is_lowest, 1.0, 1 + jnp.cos(angle * (epoch - 1)))
        following = (1 + jnp.cos(angle * epoch)) / before * (rate - lowest) + lowest
        return jnp.where(epoch == 0, rate, jnp.where(is_lowest, upwards, following))

    def rate_at(self, epoch: jax.Array, base: jax.Array) -> jax.Array:
        return self.eta_min + (base - self.eta_min) * (1 + jnp.cos(math.pi * epoch / self.T_max)) / 2


class CosineAnnealingWarmRestarts(LRScheduler):
    """Go from the first rate to `eta_min` along a cosine, then start again (Loshchilov & Hutter 2017).

    Args:
        optimizer, last_epoch: as of `LRScheduler`.
        T_0: int, number of epochs until the first restart.
        T_mult: int, by how much longer it takes after each restart.
        eta_min: the lowest rate.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        T_0: int,  # noqa: N803 (MindSpore's name)
        T_mult: int = 1,  # noqa: N803 (MindSpore's name)
        eta_min: float = 0,
        last_epoch: int = -1,
    ) -> None:
        for what, value in (("T_0", T_0), ("T_mult", T_mult)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise SporaxValueError.must("CosineAnnealingWarmRestarts", what, "be an int >= 1", repr(value))
        number("CosineAnnealingWarmRestarts", "eta_min", eta_min)
        self.T_0 = counter("T_0", T_0)
        self.T_i = counter("T_i", T_0)
        self.T_mult = T_mult
        self.eta_min = eta_min
        self.T_cur = counter("T_cur", last_epoch)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        share = (1 + jnp.cos(math.pi * self.T_cur.array / self.T_i.array)) / 2
        return [wrap(self.eta_min + (base.array - self.eta_min) * share) for base in self.base_lrs]

    def step(self, epoch: Any = None) -> bool:
        """Go to the next epoch, or to `epoch`, which may be between two, and set the rates.

        Raises:
            SporaxValueError: `epoch` is negative.
        """
        # After the first step epochs follow one another.
        if epoch is None and self.last_epoch.item() >= 0:
            following = self.T_cur.array + 1
            is_over = following >= self.T_i.array
            assign(self.T_cur, wrap(jnp.where(is_over, following - self.T_i.array, following)))
            assign(self.T_i, wrap(jnp.where(is_over, self.T_i.array * self.T_mult, self.T_i.array)))
            epoch = self.last_epoch.item() + 1
        else:
            epoch = 0.0 if epoch is None else float(as_tensor(epoch).item())
            self._restart_before(epoch)
        assign(self.last_epoch, math.floor(epoch))
        for holder, rate in zip(self._last_lr, self.get_lr(), strict=True):
            # `epoch` may be between two whole ones.
            assign(holder, rate)
        return True

    def _restart_before(self, epoch: float) -> None:
        """Set how long the last restart before `epoch` is ago, and how long it is until the next."""
        SporaxValueError.raise_if(epoch < 0, "CosineAnnealingWarmRestarts", "epoch", "be >= 0", epoch)
        length = float(self.T_0.item())
        if self.T_mult == 1:
            epoch %= length
        while epoch >= length:
            epoch -= length
            length *= self.T_mult
        assign(self.T_cur, epoch)
        assign(self.T_i, length)
