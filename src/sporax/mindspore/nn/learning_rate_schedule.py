"""Learning rates that depend on the step. Each is a Cell of the step number, so it compiles into the step."""

from __future__ import annotations

import math

from sporax.base.errors import SporaxValueError
from sporax.mindspore import ops
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.nn import _arguments as argument
from sporax.mindspore.nn.cell import Cell


class LearningRateSchedule(Cell):
    """Base of schedules: ``construct(global_step)`` gives the learning rate, a float32 scalar."""

    def construct(self, global_step: Tensor) -> Tensor:
        """The rate at `global_step`, an int32 scalar."""
        raise NotImplementedError


def _at_least_zero(name: str, what: str, value: float) -> float:
    SporaxValueError.raise_if(argument.number(name, what, value) < 0, name, what, "be >= 0", value)
    return float(value)


class _Decay(LearningRateSchedule):
    """Start, factor, length and shape (continuous or in stairs) of a decay."""

    def __init__(self, learning_rate: float, decay_rate: float, decay_steps: int, is_stair: bool = False) -> None:
        super().__init__()
        name = type(self).__name__
        self.learning_rate = _at_least_zero(name, "learning_rate", learning_rate)
        self.decay_rate = _at_least_zero(name, "decay_rate", decay_rate)
        self.decay_steps = argument.positive_int(name, "decay_steps", decay_steps)
        self.is_stair = argument.boolean(name, "is_stair", is_stair)

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
        if self.min_lr >= self.max_lr:
            raise SporaxValueError(f"For 'CosineDecayLR', 'min_lr' {min_lr} must be below 'max_lr' {max_lr}.")

    def construct(self, global_step: Tensor) -> Tensor:
        """The rate."""
        share = ops.minimum(global_step.float() / self.decay_steps, 1.0)
        return self.min_lr + 0.5 * (self.max_lr - self.min_lr) * (1.0 + ops.cos(math.pi * share))


class PolynomialDecayLR(LearningRateSchedule):
    """From `learning_rate` to `end_learning_rate` along a power of the remaining share of `decay_steps`."""

    def __init__(
        self,
        learning_rate: float,
        end_learning_rate: float,
        decay_steps: int,
        power: float,
        update_decay_steps: bool = False,
    ) -> None:
        super().__init__()
        name = "PolynomialDecayLR"
        self.learning_rate = _at_least_zero(name, "learning_rate", learning_rate)
        self.end_learning_rate = _at_least_zero(name, "end_learning_rate", end_learning_rate)
        self.decay_steps = argument.positive_int(name, "decay_steps", decay_steps)
        self.power = argument.number(name, "power", power)
        self.update_decay_steps = argument.boolean(name, "update_decay_steps", update_decay_steps)
        SporaxValueError.raise_if(self.power <= 0, name, "power", "be positive", power)

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
        return (self.learning_rate - self.end_learning_rate) * rest + self.end_learning_rate


class WarmUpLR(LearningRateSchedule):
    """Rises linearly to `learning_rate` within `warmup_steps`, then stays."""

    def __init__(self, learning_rate: float, warmup_steps: int) -> None:
        super().__init__()
        self.learning_rate = _at_least_zero("WarmUpLR", "learning_rate", learning_rate)
        self.warmup_steps = argument.positive_int("WarmUpLR", "warmup_steps", warmup_steps)

    def construct(self, global_step: Tensor) -> Tensor:
        """The rate."""
        return self.learning_rate * ops.minimum(global_step.float() / self.warmup_steps, 1.0)
