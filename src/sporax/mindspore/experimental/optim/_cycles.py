"""Schedules that go up and down: triangles and cosines."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from sporax.base.errors import SporaxValueError
from sporax.mindspore.common.tensor import wrap
from sporax.mindspore.experimental.optim._scheduler import (
    ClosedSchedule,
    LRScheduler,
    as_tensor,
    assign,
    check_integer,
    check_optimizer,
    counter,
    number,
    per_group,
)
from sporax.mindspore.mint.optim._optimizer import Optimizer


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
        self,
        optimizer: Optimizer,
        base_lr: Any,
        max_lr: Any,
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[Any], Any] | None = None,
        scale_mode: str = "cycle",
        last_epoch: int = -1,
    ) -> None:
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
        if epoch < 0:
            raise SporaxValueError(f"For 'CosineAnnealingWarmRestarts', 'epoch' must be >= 0, but got {epoch}.")
        length = float(self.T_0.item())
        if self.T_mult == 1:
            epoch %= length
        while epoch >= length:
            epoch -= length
            length *= self.T_mult
        assign(self.T_cur, epoch)
        assign(self.T_i, length)
