"""What schedules of learning rates share, and those that follow no formula: other schedules in turn, or a metric.

A schedule computes new rates from the present ones, so several schedules and assignments of the user's may be mixed.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from sporax.base.errors import For, SporaxKeyError, SporaxNotImplementedError, SporaxValueError, check_type, named
from sporax.mindspore._declared import Declared, setting
from sporax.mindspore.common import Parameter, Tensor, dtypes, wrap
from sporax.mindspore.mint.optim._optimizer import INITIAL_RATE, Optimizer
from sporax.mindspore.nn._arguments import one_of
from sporax.runtime.state import frames


class _Rates:
    """What knows the learning rates that it changes."""

    _last_lr: list[Parameter]

    def get_last_lr(self) -> list[Tensor]:
        """The present rates of all groups."""
        return [rate.value() for rate in self._last_lr]


class LRScheduler(_Rates):
    """Base of schedules. A subclass has `get_lr`; it may have `_get_closed_form_lr`, for ``step(epoch)``.

    Making it does the first step, to epoch 0.

    Args:
        optimizer: whose rates it changes.
        last_epoch: how many steps were done before; -1 for none.

    Raises:
        SporaxTypeError: no optimizer of `experimental.optim` or `mint.optim`, or `last_epoch` is no int.
        SporaxValueError: `last_epoch` is below -1.
        SporaxKeyError: steps were done before, but a group has no ``initial_lr``.
    """

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        name = type(self).__name__
        check_optimizer(name, optimizer)
        check_integer(name, "last_epoch", last_epoch)
        For(name).refuse(last_epoch < -1, "'last_epoch' must be >= -1", last_epoch)
        for index, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                # Several schedules of one optimizer share the first rate.
                group.setdefault(INITIAL_RATE, group["lr"].value())
            elif INITIAL_RATE not in group:
                raise SporaxKeyError(
                    f"For '{name}', group {index} must have '{INITIAL_RATE}' when steps were done before."
                )
        self.base_lrs = [as_tensor(group[INITIAL_RATE]) for group in optimizer.param_groups]
        self.optimizer = optimizer
        self._last_lr = list(optimizer.lrs)
        self.groups_num = len(optimizer.param_groups)
        self.last_epoch = counter(f"last_epoch_{name}", last_epoch)
        self.step()

    def get_lr(self) -> list[Any]:
        """The rates of all groups at `last_epoch`."""
        raise SporaxNotImplementedError(f"For '{type(self).__name__}', 'get_lr' must be defined.")

    def step(self, epoch: Any = None) -> bool:
        """Go to the next epoch, or to `epoch`, and set the rates.

        Args:
            epoch: number or scalar Tensor.
        """
        if epoch is None:
            assign(self.last_epoch, wrap(self.last_epoch.array + 1))
            rates = self.get_lr()
        else:
            assign(self.last_epoch, epoch)
            # Without a closed form the recurrence gives the next rate.
            rates = getattr(self, "_get_closed_form_lr", self.get_lr)()
        for holder, rate in zip(self._last_lr, rates, strict=True):
            assign(holder, rate)
        return True


class DeclaredSchedule(Declared, LRScheduler, fields_only=True):
    """A schedule whose arguments are fields."""

    optimizer: Optimizer = setting(None, "whose rates it changes.", attribute=False)
    last_epoch: Any = setting(
        None, "how many steps were done before; -1 for none.", default=-1, attribute=False, is_last=True
    )

    def _prepare(self, **arguments: Any) -> None:
        LRScheduler.__init__(self, **arguments)


class ClosedSchedule(DeclaredSchedule):
    """A schedule that gives every group's next rate by the same formula, and knows the rate at any epoch without those before."""

    def get_lr(self) -> list[Any]:
        epoch = self.last_epoch.array
        return [
            wrap(self.next_rate(epoch, rate.array, base.array))
            for rate, base in zip(self._last_lr, self.base_lrs, strict=True)
        ]

    def next_rate(self, epoch: jax.Array, rate: jax.Array, base: jax.Array) -> jax.Array:
        """The rate at `epoch`.

        Args:
            epoch: number of steps, in float32.
            rate: the rate before.
            base: the rate at the start.
        """
        raise NotImplementedError

    def _get_closed_form_lr(self) -> list[Any]:
        return [wrap(self.rate_at(self.last_epoch.array, base.array)) for base in self.base_lrs]

    def rate_at(self, epoch: jax.Array, base: jax.Array) -> jax.Array:
        """The rate at `epoch`, when `base` is the one at the start."""
        raise NotImplementedError


def counter(name: str, value: float) -> Parameter:
    """A number that a schedule keeps, in float32 as in MindSpore."""
    return Parameter(Tensor(value, dtypes.float32), name=name, requires_grad=False)


def assign(holder: Parameter, value: Any) -> None:
    """Set a number that a schedule keeps, or a rate."""
    frames.write(holder, as_tensor(value).array)


def as_tensor(value: Any) -> Tensor:
    """A copy of a number or scalar Tensor, in float32; steps may reuse the memory of what they update."""
    return wrap(jnp.array(value.array if isinstance(value, Tensor) else value, jnp.float32).reshape(()))


def per_group(name: str, what: str, value: Any, optimizer: Optimizer) -> list[Any]:
    """A setting of each group, from a list of them or one for all."""
    count = len(optimizer.param_groups)
    if not isinstance(value, list | tuple):
        return [value] * count
    For(name).refuse(len(value) != count, f"{named(what)} must have one entry per group ({count})", len(value))
    return list(value)


def check_optimizer(name: str, optimizer: object) -> Any:
    """`optimizer`, if it has groups with rates that may be set, else SporaxTypeError."""
    return For(name).typed("optimizer", optimizer, "one of experimental.optim or mint.optim", Optimizer)


check_integer = partial(check_type, expected="an int", types=int, takes_bool=False)
number = partial(check_type, expected="a number", types=int | float, takes_bool=False)
exactly_float = partial(check_type, expected="a float", types=float)


def share(name: str, what: str, value: Any, may_be_zero: bool = True) -> float:
    """`value`, a number in [0, 1], or (0, 1], else SporaxTypeError or SporaxValueError."""
    is_outside = not 0 <= number(name, what, value) <= 1 or (value == 0 and not may_be_zero)
    For(name).refuse(is_outside, f"{named(what)} must be in {'[' if may_be_zero else '('}0, 1]", value)
    return value


class SequentialLR(_Rates):
    """Several schedules one after the other, each from its own epoch 0.

    Args:
        optimizer: whose rates change.
        schedulers: list of schedules of this optimizer.
        milestones: list of ints: the epochs at which the next one begins, one fewer than `schedulers`.
        last_epoch: how many steps were done before; -1 for none.

    Raises:
        SporaxValueError: a schedule of another optimizer, or another number of milestones.
    """

    def __init__(
        self, optimizer: Optimizer, schedulers: list[Any], milestones: list[int], last_epoch: int = -1
    ) -> None:
        for index, scheduler in enumerate(schedulers):
            if scheduler.optimizer is not optimizer:
                raise SporaxValueError(
                    f"For 'SequentialLR', all schedulers must be of the given optimizer, but number {index} is not."
                )
        if len(milestones) != len(schedulers) - 1:
            raise For("SequentialLR").error(
                "there must be one milestone fewer than schedulers", len(milestones), len(schedulers)
            )
        self._schedulers = schedulers
        self.milestones = milestones
        self.optimizer = optimizer
        self.last_epoch = counter("last_epoch_SequentialLR", last_epoch + 1)
        # Making the schedulers has done the first step of each; undo them all and do that of the first again.
        for group in optimizer.param_groups:
            assign(group["lr"], group[INITIAL_RATE])
        for scheduler in schedulers:
            assign(scheduler.last_epoch, wrap(scheduler.last_epoch.array - 1))
        schedulers[0].step()
        self._last_lr = list(optimizer.lrs)

    def step(self) -> None:
        """Go to the next epoch and set the rates."""
        epoch = int(self.last_epoch.item()) + 1
        assign(self.last_epoch, epoch)
        index = bisect_right(self.milestones, epoch)
        if index > 0 and self.milestones[index - 1] == epoch:
            # A schedule begins with its own epoch 0.
            self._schedulers[index].step(0)
        else:
            self._schedulers[index].step()


def _below_one(name: str, what: str, value: Any) -> Any:
    For(name).refuse(value >= 1.0, f"{named(what)} must be < 1", value)
    return value


def _min_or_max(name: str, what: str, value: Any) -> Any:
    For(name).refuse(value not in ("min", "max"), f"{named(what)} must be 'min' or 'max'", value, show=repr)
    return value


class ReduceLROnPlateau(Declared, _Rates):
    """Multiply the rate by `factor` when a metric has not become better for more than `patience` steps.

    Raises:
        SporaxTypeError, SporaxValueError: settings of another kind.
    """

    optimizer: Optimizer = setting(lambda name, what, value: check_optimizer(name, value), "whose rates change.")
    mode: str = setting(_min_or_max, 'whether the metric should become ``"min"`` or ``"max"``.', default="min")
    factor: float = setting(_below_one, "below 1.", default=0.1)
    patience: int = setting(None, "number of steps without improvement that are tolerated.", default=10)
    threshold: float = setting(None, "how much better counts as better.", default=1e-4)
    threshold_mode: str = setting(
        one_of,
        'whether `threshold` is a share of the best value (``"rel"``) or a difference (``"abs"``).',
        default="rel",
        allowed=("rel", "abs"),
    )
    cooldown: int = setting(None, "number of steps after a change that do not count.", default=0)
    min_lr: Any = setting(None, "lowest rate, for all groups or a list with one per group.", default=0, attribute=False)
    eps: float = setting(None, "a smaller change is left out.", default=1e-8)

    def _prepare(self, *, min_lr: Any = 0) -> None:
        name = type(self).__name__
        self.min_lrs = [as_tensor(rate) for rate in per_group(name, "min_lr", min_lr, self.optimizer)]
        self.last_epoch = counter(f"last_epoch_{name}", 0)
        self.best = counter("best", math.inf if self.mode == "min" else -math.inf)
        self.cooldown_counter = counter("cooldown_counter", 0)
        self.wait = counter("wait", 0)
        self._last_lr = list(self.optimizer.lrs)

    def step(self, metrics: Any) -> bool:
        """Take the metric of one more epoch, a number or scalar Tensor, and set the rates."""
        current, best, cooldown = as_tensor(metrics).array, self.best.array, self.cooldown_counter.array
        is_better = self._is_better(current, best)
        wait = jnp.where(is_better | (cooldown > 0), 0.0, self.wait.array + 1)
        cooldown = jnp.maximum(cooldown - 1, 0.0)
        is_due = wait > self.patience
        for holder, lowest in zip(self._last_lr, self.min_lrs, strict=True):
            lower = jnp.maximum(holder.array * self.factor, lowest.array)
            # A change that is too small is left out.
            is_lower = is_due & (holder.array > lower + self.eps)
            assign(holder, wrap(jnp.where(is_lower, lower, holder.array)))
        assign(self.last_epoch, wrap(self.last_epoch.array + 1))
        assign(self.best, wrap(jnp.where(is_better, current, best)))
        assign(self.cooldown_counter, wrap(jnp.where(is_due, self.cooldown, cooldown)))
        assign(self.wait, wrap(jnp.where(is_due, 0.0, wait)))
        return True

    def in_cooldown(self) -> bool:
        """Whether steps do not count at present."""
        return bool(self.cooldown_counter.item() > 0)

    def _is_better(self, current: jax.Array, best: jax.Array) -> jax.Array:
        sign = -1.0 if self.mode == "min" else 1.0
        # Relative to the best value, which may be negative, or absolute.
        step = sign * self.threshold
        bound = best * (1.0 + step) if self.threshold_mode == "rel" else best + step
        return current < bound if self.mode == "min" else current > bound
