"""Learning rates as lists, one number per step, computed before training starts.

Where a `decay_epoch` is given, progress counts whole epochs: the rate changes only when an epoch ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from sporax.base.errors import SporaxTypeError, SporaxValueError, check_type
from sporax.mindspore.nn import _arguments as argument

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
        check_type(name, what, value, "a tuple or list", tuple | list)
    if len(milestone) != len(learning_rates):
        raise SporaxValueError(
            f"For '{name}', 'milestone' and 'learning_rates' must have one length, "
            f"but got {len(milestone)} and {len(learning_rates)}."
        )
    rates: list[float] = []
    for end, rate in zip(milestone, learning_rates, strict=True):
        argument.positive_int(name, "milestone", end)
        if not isinstance(rate, float):
            raise SporaxTypeError(f"For '{name}', 'learning_rates' must hold floats, but got {type(rate).__name__}.")
        # Equal milestones give a rate that is never used; falling ones are a mistake.
        SporaxValueError.raise_if(end < len(rates), name, "milestone", "ascend", milestone)
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
    if min_lr >= max_lr:
        raise SporaxValueError(f"For '{name}', 'min_lr' {min_lr} must be below 'max_lr' {max_lr}.")
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
    check_type(name, "warmup_epoch", warmup_epoch, "an int", int, takes_bool=False)
    SporaxValueError.raise_if(warmup_epoch < 0, name, "warmup_epoch", "be >= 0", warmup_epoch)
    # Without a warm-up there is nothing to divide by.
    if warmup_epoch == 0:
        return [learning_rate] * total_step
    return [learning_rate * min(epoch / warmup_epoch, 1.0) for epoch in epochs]
