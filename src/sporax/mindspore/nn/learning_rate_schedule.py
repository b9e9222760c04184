"""Learning rates that depend on the step: as Cells of the step number, and as lists computed before training starts.

Each Cell compiles into the step. A list has one number per step; where a `decay_epoch` is given, progress counts whole epochs:
the rate changes only when an epoch ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from sporax.base.errors import For
from sporax.mindspore import ops
from sporax.mindspore._declared import setting
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.nn import _arguments as argument
from sporax.mindspore.nn.cell import Layer


class LearningRateSchedule(Layer):
    """Base of schedules: ``construct(global_step)`` gives the learning rate, a float32 scalar."""

    def construct(self, global_step: Tensor) -> Tensor:
        """The rate at `global_step`, an int32 scalar."""
        raise NotImplementedError


def _at_least_zero(name: str, what: str, value: float) -> float:
    For(name).refuse(argument.number(name, what, value) < 0, f"'{what}' must be >= 0", value)
    return float(value)


def _positive(name: str, what: str, value: float) -> float:
    For(name).refuse(argument.number(name, what, value) <= 0, f"'{what}' must be positive", value)
    return float(value)


class _Decay(LearningRateSchedule):
    """Start, factor, length and shape (continuous or in stairs) of a decay."""

    learning_rate: float = setting(_at_least_zero)
    decay_rate: float = setting(_at_least_zero)
    decay_steps: int = setting(argument.positive_int)
    is_stair: bool = setting(argument.boolean, default=False)

    def progress(self, global_step: Tensor) -> Tensor:
        """Steps done, in units of `decay_steps`."""
        share = global_step.float() / self.decay_steps
        return ops.floor(share) if self.is_stair else share


class ExponentialDecayLR(_Decay):
    """``learning_rate * decay_rate ** (step / decay_steps)``."""

    def construct(self, global_step: Tensor) -> Tensor:
        """The rate."""
        return self.learning_rate * ops.exp(self.progress(global_step) * math.log(self.decay_rate))


class NaturalExpDecayLR(_Decay):
    """``learning_rate * exp(-decay_rate * step)``; `is_stair` rounds the step down to a multiple of `decay_steps`.

    Without `is_stair` the rate does not depend on `decay_steps`, as in MindSpore.
    """

    def construct(self, global_step: Tensor) -> Tensor:
        """The rate."""
        steps = self.progress(global_step) * self.decay_steps if self.is_stair else global_step.float()
        return self.learning_rate * ops.exp(-self.decay_rate * steps)


class InverseDecayLR(_Decay):
    """``learning_rate / (1 + decay_rate * step / decay_steps)``."""

    def construct(self, global_step: Tensor) -> Tensor:
        """The rate."""
        return self.learning_rate / (1 + self.decay_rate * self.progress(global_step))


class CosineDecayLR(LearningRateSchedule):
    """From `max_lr` to `min_lr` along half a cosine over `decay_steps`, then `min_lr` (Loshchilov & Hutter 2016)."""

    def __init__(self, min_lr: float, max_lr: float, decay_steps: int) -> None:
        super().__init__()
        self.min_lr = _at_least_zero("CosineDecayLR", "min_lr", min_lr)
        self.max_lr = _at_least_zero("CosineDecayLR", "max_lr", max_lr)
        self.decay_steps = argument.positive_int("CosineDecayLR", "decay_steps", decay_steps)
        For("CosineDecayLR").refuse(self.min_lr >= self.max_lr, f"'min_lr' {min_lr} must be below 'max_lr' {max_lr}")
        self.delta = 0.5 * (self.max_lr - self.min_lr)

    def construct(self, global_step: Tensor) -> Tensor:
        """The rate."""
        share = ops.minimum(global_step.float() / self.decay_steps, 1.0)
        return self.min_lr + self.delta * (1.0 + ops.cos(math.pi * share))


class PolynomialDecayLR(LearningRateSchedule):
    """From `learning_rate` to `end_learning_rate` along a power of the remaining share of `decay_steps`."""

    learning_rate: float = setting(_at_least_zero)
    end_learning_rate: float = setting(_at_least_zero)
    decay_steps: int = setting(argument.positive_int)
    power: float = setting(_positive)
    update_decay_steps: bool = setting(argument.boolean, default=False)

    def _prepare(self) -> None:
        self.start_learning_rate = self.learning_rate
        self.diff_learning_rate = self.learning_rate - self.end_learning_rate

    def construct(self, global_step: Tensor) -> Tensor:
        """The rate."""
        step = global_step.float()
        # A tensor, since the horizon may depend on the step.
        steps = step * 0 + self.decay_steps
        if self.update_decay_steps:  # start over, with a longer horizon, whenever it is reached
            steps = steps * ops.maximum(ops.ceil(step / self.decay_steps), 1.0)
        else:
            step = ops.minimum(step, steps)
        rest = ops.pow(1 - step / steps, self.power)
        return self.diff_learning_rate * rest + self.end_learning_rate


class WarmUpLR(LearningRateSchedule):
    """Rises linearly to `learning_rate` within `warmup_steps`, then stays."""

    learning_rate: float = setting(_at_least_zero)
    warmup_steps: int = setting(argument.positive_int)

    def construct(self, global_step: Tensor) -> Tensor:
        """The rate."""
        return self.learning_rate * ops.minimum(global_step.float() / self.warmup_steps, 1.0)


_ANY = math.inf


def piecewise_constant_lr(milestone: Any, learning_rates: Any) -> list[float]:
    """Constant rates between milestones: ``learning_rates[i]`` for the steps from ``milestone[i-1]`` to ``milestone[i]``.

    Args:
        milestone: ascending step numbers, each where a rate ends.
        learning_rates: as many rates.

    Raises:
        SporaxTypeError, SporaxValueError: not two sequences of one length, or milestones that do not ascend.

    Example:
        >>> piecewise_constant_lr([2, 3], [0.1, 0.05])
        [0.1, 0.1, 0.05]
    """
    name = "piecewise_constant_lr"
    for what, value in (("milestone", milestone), ("learning_rates", learning_rates)):
        For(name).typed(what, value, "a tuple or list", tuple | list)
    if len(milestone) != len(learning_rates):
        raise For(name).error(
            f"'milestone' and 'learning_rates' must have one length, but got {len(milestone)} and {len(learning_rates)}"
        )
    rates: list[float] = []
    for end, rate in zip(milestone, learning_rates, strict=True):
        argument.positive_int(name, "milestone", end)
        For(name).refuse_type(not isinstance(rate, float), "'learning_rates' must hold floats", type(rate).__name__)
        # Equal milestones give a rate that is never used; falling ones are a mistake.
        For(name).refuse(end < len(rates), "'milestone' must ascend", milestone)
        rates += [rate] * (end - len(rates))
    return rates


def _epochs(name: str, total_step: Any, step_per_epoch: Any, **others: Any) -> list[int]:
    """The number of epochs done before each step."""
    argument.positive_int(name, "total_step", total_step)
    argument.positive_int(name, "step_per_epoch", step_per_epoch)
    for what, value in others.items():
        argument.positive_int(name, what, value)
    return [step // step_per_epoch for step in range(total_step)]


def _decay(name: str, doc: str, rate: Callable[[float, float, int, float], float]) -> Callable[..., list[float]]:
    """A function of decaying rates.

    Args:
        name: of it.
        doc: what it gives.
        rate: at an epoch, from the first rate, the decay rate, the epoch and its share of `decay_epoch`, which stairs round down.
    """

    def rates(
        learning_rate: float,
        decay_rate: float,
        total_step: int,
        step_per_epoch: int,
        decay_epoch: int,
        is_stair: bool = False,
    ) -> list[float]:
        epochs = _epochs(name, total_step, step_per_epoch, decay_epoch=decay_epoch)
        argument.exactly_float(name, "learning_rate", learning_rate, 0.0, _ANY, "()")
        argument.exactly_float(name, "decay_rate", decay_rate, 0.0, _ANY, "()")
        if argument.boolean(name, "is_stair", is_stair):
            epochs = [epoch // decay_epoch * decay_epoch for epoch in epochs]
        return [rate(learning_rate, decay_rate, epoch, epoch / decay_epoch) for epoch in epochs]

    rates.__name__, rates.__qualname__, rates.__doc__ = name, name, doc
    return rates


exponential_decay_lr = _decay(
    "exponential_decay_lr",
    "``learning_rate * decay_rate ** (epoch / decay_epoch)``; `is_stair` rounds the exponent down.",
    lambda first, decay, epoch, share: first * decay**share,
)
natural_exp_decay_lr = _decay(
    "natural_exp_decay_lr",
    "``learning_rate * exp(-decay_rate * epoch)``; `is_stair` rounds the epoch down to a multiple of `decay_epoch`.",
    lambda first, decay, epoch, share: first * math.exp(-decay * epoch),
)
inverse_decay_lr = _decay(
    "inverse_decay_lr",
    "``learning_rate / (1 + decay_rate * epoch / decay_epoch)``; `is_stair` rounds the quotient down.",
    lambda first, decay, epoch, share: first / (1 + decay * share),
)


def cosine_decay_lr(
    min_lr: float, max_lr: float, total_step: int, step_per_epoch: int, decay_epoch: int
) -> list[float]:
    """From `max_lr` to `min_lr` along half a cosine over `decay_epoch` epochs, then `min_lr`."""
    name = "cosine_decay_lr"
    epochs = _epochs(name, total_step, step_per_epoch, decay_epoch=decay_epoch)
    argument.exactly_float(name, "min_lr", min_lr, 0.0, _ANY)
    argument.exactly_float(name, "max_lr", max_lr, 0.0, _ANY, "()")
    For(name).refuse(min_lr >= max_lr, f"'min_lr' {min_lr} must be below 'max_lr' {max_lr}")
    # After `decay_epoch` the wave stays at its lowest point.
    waves = (math.cos(math.pi * min(epoch, decay_epoch) / decay_epoch) for epoch in epochs)
    return [min_lr + 0.5 * (max_lr - min_lr) * (1 + wave) for wave in waves]


def polynomial_decay_lr(
    learning_rate: float,
    end_learning_rate: float,
    total_step: int,
    step_per_epoch: int,
    decay_epoch: int,
    power: float,
    update_decay_epoch: bool = False,
) -> list[float]:
    """From `learning_rate` to `end_learning_rate` along a power of the remaining share of `decay_epoch`.

    With `update_decay_epoch` a longer decay starts whenever `decay_epoch` is reached; else the rate stays at its end.
    """
    name = "polynomial_decay_lr"
    epochs = _epochs(name, total_step, step_per_epoch, decay_epoch=decay_epoch)
    argument.exactly_float(name, "learning_rate", learning_rate, 0.0, _ANY, "()")
    argument.exactly_float(name, "end_learning_rate", end_learning_rate, 0.0, _ANY)
    argument.exactly_float(name, "power", power, 0.0, _ANY, "()")
    argument.boolean(name, "update_decay_epoch", update_decay_epoch)

    def rate(epoch: int) -> float:
        # At least one whole decay, also in epoch 0.
        length = decay_epoch * max(math.ceil(epoch / decay_epoch), 1) if update_decay_epoch else decay_epoch
        rest = 1 - min(epoch, length) / length
        return (learning_rate - end_learning_rate) * rest**power + end_learning_rate

    return [rate(epoch) for epoch in epochs]


def warmup_lr(learning_rate: float, total_step: int, step_per_epoch: int, warmup_epoch: int) -> list[float]:
    """Rises linearly to `learning_rate` within `warmup_epoch` epochs, then stays.

    Raises:
        SporaxTypeError, SporaxValueError: no such numbers.
    """
    name = "warmup_lr"
    argument.exactly_float(name, "learning_rate", learning_rate, 0.0, _ANY, "()")
    epochs = _epochs(name, total_step, step_per_epoch)
    For(name).typed("warmup_epoch", warmup_epoch, "an int", int, takes_bool=False)
    For(name).refuse(warmup_epoch < 0, "'warmup_epoch' must be >= 0", warmup_epoch)
    # Without a warm-up there is nothing to divide by.
    if warmup_epoch == 0:
        return [learning_rate] * total_step
    return [learning_rate * min(epoch / warmup_epoch, 1.0) for epoch in epochs]
