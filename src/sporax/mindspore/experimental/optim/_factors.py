"""Schedules that multiply the learning rate by a factor at each step or at some steps; triangles and cosines."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from sporax.base.errors import For, SporaxValueError, named
from sporax.mindspore._declared import setting
from sporax.mindspore.common.tensor import wrap
from sporax.mindspore.experimental.optim._scheduler import (
    ClosedSchedule,
    DeclaredSchedule,
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


class StepLR(ClosedSchedule):
    """Multiply the rate by `gamma` every `step_size` epochs."""

    step_size: int = setting(check_integer, "number of epochs.")
    gamma: float = setting(exactly_float, "factor.", default=0.1)

    def next_rate(self, epoch: jax.Array, rate: jax.Array, base: jax.Array) -> jax.Array:
        return jnp.where((epoch == 0) | (epoch % self.step_size != 0), rate, rate * self.gamma)

    def rate_at(self, epoch: jax.Array, base: jax.Array) -> jax.Array:
        return base * self.gamma ** (epoch // self.step_size)


def _epochs(name: str, what: str, value: Any) -> Counter[int]:
    return Counter(check_integer(name, what, epoch) for epoch in For(name).typed(what, value, "a list", list))


class MultiStepLR(ClosedSchedule):
    """Multiply the rate by `gamma` at each milestone."""

    milestones: Any = setting(_epochs, "list of epochs, ints; one that is there twice counts twice.")
    gamma: float = setting(number, "factor.", default=0.1)

    def next_rate(self, epoch: jax.Array, rate: jax.Array, base: jax.Array) -> jax.Array:
        for milestone, times in self.milestones.items():
            rate = jnp.where(epoch == milestone, rate * self.gamma**times, rate)
        return rate

    def rate_at(self, epoch: jax.Array, base: jax.Array) -> jax.Array:
        for milestone, times in self.milestones.items():
            base = jnp.where(epoch >= milestone, base * self.gamma**times, base)
        return base


class ConstantLR(ClosedSchedule):
    """Multiply the rate by `factor` until epoch `total_iters`."""

    factor: float = setting(share, "in [0, 1].", default=1.0 / 3)
    total_iters: int = setting(check_integer, "number of epochs.", default=5)

    def next_rate(self, epoch: jax.Array, rate: jax.Array, base: jax.Array) -> jax.Array:
        # Nothing is left of a rate that was multiplied by 0.
        restored = base if self.factor == 0 else rate / self.factor
        return jnp.where(epoch == 0, rate * self.factor, jnp.where(epoch != self.total_iters, rate, restored))

    def rate_at(self, epoch: jax.Array, base: jax.Array) -> jax.Array:
        return jnp.where(epoch >= self.total_iters, base, base * self.factor)


class LinearLR(ClosedSchedule):
    """Multiply the first rate by a factor that goes from `start_factor` to `end_factor` in `total_iters` epochs."""

    start_factor: float = setting(share, "in (0, 1].", default=1.0 / 3, may_be_zero=False)
    end_factor: float = setting(share, "in [0, 1].", default=1.0)
    total_iters: int = setting(check_integer, "number of epochs.", default=5)

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
    """Multiply the rate by `gamma` at each step."""

    gamma: float = setting(exactly_float, "factor.")

    def next_rate(self, epoch: jax.Array, rate: jax.Array, base: jax.Array) -> jax.Array:
        return jnp.where(epoch == 0, rate, rate * self.gamma)

    def rate_at(self, epoch: jax.Array, base: jax.Array) -> jax.Array:
        return base * self.gamma**epoch


def _power(name: str, what: str, value: Any) -> float:
    For(name).refuse(exactly_float(name, what, value) < 0, f"{named(what)} must be >= 0", value)
    return value


class PolynomialLR(ClosedSchedule):
    """Multiply the first rate by ``(1 - epoch / total_iters) ** power``."""

    total_iters: int = setting(check_integer, "number of epochs until 0.", default=5)
    power: float = setting(_power, "a float, at least 0.", default=1.0)

    def next_rate(self, epoch: jax.Array, rate: jax.Array, base: jax.Array) -> jax.Array:
        is_over = (epoch == 0) | (epoch > self.total_iters)
        # No division by zero where the result is not used.
        present = jnp.where(is_over, 1.0, epoch)
        left, before = 1.0 - present / self.total_iters, 1.0 - (present - 1) / self.total_iters
        return jnp.where(is_over, rate, rate * (left / before) ** self.power)

    def rate_at(self, epoch: jax.Array, base: jax.Array) -> jax.Array:
        return base * (1.0 - jnp.minimum(self.total_iters, epoch) / self.total_iters) ** self.power


_FUNCTION = setting(None, "a function of the epoch, a scalar Tensor, or a list with one per group.", attribute=False)


class _ByFunction(DeclaredSchedule, fields_only=True):
    """What calls a function of the user's, `lr_lambda`, at each step."""

    def _prepare(self, **arguments: Any) -> None:
        self.lr_lambdas = per_group(
            type(self).__name__, "lr_lambda", arguments.pop("lr_lambda"), arguments["optimizer"]
        )
        super()._prepare(**arguments)


class LambdaLR(_ByFunction):
    """Multiply the first rate by what a function gives for the epoch."""

    lr_lambda: Any = _FUNCTION

    def get_lr(self) -> list[Any]:
        epoch = self.last_epoch.value()
        return [base * factor(epoch) for factor, base in zip(self.lr_lambdas, self.base_lrs, strict=True)]


class MultiplicativeLR(_ByFunction):
    """Multiply the rate by what a function gives for the epoch, from epoch 1 on."""

    lr_lambda: Any = _FUNCTION

    def get_lr(self) -> list[Any]:
        epoch = self.last_epoch.value()
        if epoch <= 0:
            return self.get_last_lr()
        return [as_tensor(rate) * factor(epoch) for factor, rate in zip(self.lr_lambdas, self._last_lr, strict=True)]


_HEIGHTS: dict[str, Callable[[Any, float], Any]] = {
    "triangular": lambda cycle, gamma: 1.0,
    "triangular2": lambda cycle, gamma: 1 / 2.0 ** (cycle - 1),
    "exp_range": lambda step, gamma: gamma**step,
}


class CyclicLR(DeclaredSchedule):
    """Go from `base_lr` to `max_lr` and back, again and again (Smith 2017).

    Args:
        base_lr, max_lr: bounds, for all groups or a list with one per group.
        step_size_up, step_size_down: number of steps up and down; down as up when None.
    """

    base_lr: Any = setting(attribute=False)
    max_lr: Any = setting(attribute=False)
    step_size_up: int = setting(default=2000, attribute=False)
    step_size_down: int | None = setting(default=None, attribute=False)
    mode: str = setting(
        None,
        '``"triangular"``, ``"triangular2"`` (half as high in each cycle), ``"exp_range"`` (``gamma ** step`` as high).',
        default="triangular",
    )
    gamma: float = setting(None, "see `mode`.", default=1.0)
    scale_fn: Any = setting(None, "the height as a function, instead of `mode`, of a scalar Tensor.", default=None)
    scale_mode: str = setting(
        None,
        'whether `scale_fn` gets the number of the ``"cycle"``, from 1, or that of the step (``"iterations"``).',
        default="cycle",
    )

    def _prepare(self, **arguments: Any) -> None:
        names = ("base_lr", "max_lr", "step_size_up", "step_size_down")
        base_lr, max_lr, step_size_up, step_size_down = (arguments.pop(name) for name in names)
        optimizer = check_optimizer("CyclicLR", arguments["optimizer"])
        if self.scale_fn is None:
            if self.mode not in _HEIGHTS:
                raise SporaxValueError(f"For 'CyclicLR', 'mode' must be in {list(_HEIGHTS)}, but got {self.mode!r}.")
            height = _HEIGHTS[self.mode]
            self.scale_fn = lambda place: height(place, self.gamma)
            # "exp_range" is a function of the step.
            self.scale_mode = "iterations" if self.mode == "exp_range" else "cycle"
        lowest = per_group("CyclicLR", "base_lr", base_lr, optimizer)
        self.max_lrs = [as_tensor(rate) for rate in per_group("CyclicLR", "max_lr", max_lr, optimizer)]
        if arguments["last_epoch"] == -1:
            # A continued run keeps its rates.
            for rate, group in zip(lowest, optimizer.param_groups, strict=True):
                assign(group["lr"], rate)
        self.total_step_size = float(step_size_up + (step_size_up if step_size_down is None else step_size_down))
        self.step_up_ratio = step_size_up / self.total_step_size
        self._lowest = [as_tensor(rate) for rate in lowest]
        super()._prepare(**arguments)
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
    """Go from the first rate to `eta_min` in `T_max` epochs and back, along a cosine (Loshchilov & Hutter 2017)."""

    T_max: int = setting(check_integer, "number of epochs.")
    eta_min: float = setting(number, "the lowest rate.", default=0.0)

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


def _at_least_one(name: str, what: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise For(name).error(f"{named(what)} must be an int >= 1", repr(value))
    return value


class CosineAnnealingWarmRestarts(DeclaredSchedule):
    """Go from the first rate to `eta_min` along a cosine, then start again (Loshchilov & Hutter 2017)."""

    T_0: Any = setting(_at_least_one, "number of epochs until the first restart.", attribute=False)
    T_mult: int = setting(_at_least_one, "by how much longer it takes after each restart.", default=1)
    eta_min: float = setting(number, "the lowest rate.", default=0)

    def _prepare(self, **arguments: Any) -> None:
        first = arguments.pop("T_0")
        self.T_0 = counter("T_0", first)
        self.T_i = counter("T_i", first)
        self.T_cur = counter("T_cur", arguments["last_epoch"])
        super()._prepare(**arguments)

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
        For("CosineAnnealingWarmRestarts").refuse(epoch < 0, "'epoch' must be >= 0", epoch)
        length = float(self.T_0.item())
        if self.T_mult == 1:
            epoch %= length
        while epoch >= length:
            epoch -= length
            length *= self.T_mult
        assign(self.T_cur, epoch)
        assign(self.T_i, length)
