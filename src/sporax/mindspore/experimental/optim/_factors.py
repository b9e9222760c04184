"""Schedules that multiply the learning rate by a factor at each step or at some steps."""

from __future__ import annotations

from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp

from sporax.base.errors import SporaxValueError, check_type
from sporax.mindspore.experimental.optim._scheduler import (
    ClosedSchedule,
    LRScheduler,
    as_tensor,
    check_integer,
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
        if power < 0:
            raise SporaxValueError(f"For 'PolynomialLR', 'power' must be >= 0, but got {power}.")
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
        # The first rate stays.
        if epoch <= 0:
            return self.get_last_lr()
        return [as_tensor(rate) * factor(epoch) for factor, rate in zip(self.lr_lambdas, self._last_lr, strict=True)]
