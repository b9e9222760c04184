"""Optimizers that divide each gradient by a running size of its own (Adagrad, Adadelta, RMSprop), or step along it or its sign;
Adam and its relatives, moments of the gradient corrected for their start at zero; SGD, which is that of `mint` as well.
"""

from __future__ import annotations

from functools import partial
from types import ModuleType
from typing import Any

from sporax.base import update_rules
from sporax.base.errors import For, SporaxTypeError, named
from sporax.mindspore._declared import setting
from sporax.mindspore.common import Tensor
from sporax.mindspore.experimental.optim._scheduler import exactly_float
from sporax.mindspore.mint.optim import _optimizer as mint
from sporax.mindspore.mint.optim._optimizer import (
    DECAY,
    LR_DOC,
    MAXIMIZE,
    Array,
    Optimizer,
    betas,
    bias_correction,
    flag,
    not_negative,
    two_betas,
)
from sporax.mindspore.nn.optim._optimizer import Start
from sporax.mindspore.nn.optim.adagrad import adadelta
from sporax.mindspore.nn.optim.momentum import asgd, rprop


def _positive(name: str, what: str, value: Any) -> None:
    if isinstance(value, Tensor):
        value = value.item()
    not_negative(name, what, value)
    For(name).refuse(value == 0, f"{named(what)} must be > 0", value)


_rate = partial(setting, _positive, LR_DOC)
_eps = partial(setting, _positive, "added to the denominator.")


def adagrad(
    xp: ModuleType, gradient: Array, parameter: Array, total: Array, *, rate: Array, step: Array, lr_decay: float, eps: float
) -> tuple[Array, Array]:  # fmt: skip
    """The rule of `Adagrad`: new parameter and sum of squares."""
    total = total + xp.square(gradient)
    # The step number is 1 in the first step, which has the whole rate.
    rate = rate / (1 + (step - 1) * lr_decay)
    return parameter - rate * gradient / (xp.sqrt(total) + eps), total


class Adagrad(Optimizer):
    """Adagrad (Duchi et al. 2011).

    s = s + g²;  p = p - lr / (1 + (t - 1) · lr_decay) · g / (√s + eps).
    """

    lr: Any = _rate(default=1e-2)
    lr_decay: float = setting(not_negative, "how fast the learning rate falls.", default=0.0)
    weight_decay: float = DECAY
    initial_accumulator_value: float = setting(not_negative, "s before the first step.", default=0.0)
    eps: float = _eps(default=1e-10)
    maximize: bool = MAXIMIZE

    slots = ("accum",)
    starts = {"accum": Start("initial_accumulator_value")}
    rule = adagrad
    counts_in = "step_t"


def _at_most_one(name: str, what: str, value: Any) -> None:
    not_negative(name, what, value)
    For(name).refuse(value > 1, f"{named(what)} must be in [0, 1]", value)


class Adadelta(Optimizer):
    """Adadelta (Zeiler 2012).

    v = rho · v + (1 - rho) · g²;  d = √(u + eps) / √(v + eps) · g;  u = rho · u + (1 - rho) · d²;  p = p - lr · d.
    """

    lr: Any = _rate(default=1.0)
    rho: float = setting(_at_most_one, "decay rate of the averages, in [0, 1].", default=0.9)
    eps: float = setting(_positive, "added under both roots.", default=1e-6)
    weight_decay: float = DECAY
    maximize: bool = MAXIMIZE

    slots = ("accum", "accum_update")
    rule = adadelta


def rmsprop(
    xp: ModuleType, gradient: Array, parameter: Array, squares: Array, mean: Array, moment: Array, *, rate: Array,
    alpha: float, eps: float, momentum: float, centered: bool,
) -> tuple[Array, ...]:  # fmt: skip
    """The rule of `RMSprop`: new parameter, mean square, mean gradient and sum of changes."""
    squares = alpha * squares + (1 - alpha) * xp.square(gradient)
    spread = squares
    if centered:
        mean = alpha * mean + (1 - alpha) * gradient
        spread = squares - xp.square(mean)
    change = gradient / (xp.sqrt(spread) + eps)
    # The sum of changes without the rate, so that a new rate acts at once.
    if momentum:
        change = moment = momentum * moment + change
    return parameter - rate * change, squares, mean, moment


class RMSprop(Optimizer):
    """RMSprop (Hinton 2012), optionally with momentum and with the variance instead of the mean square.

    v = alpha · v + (1 - alpha) · g²;  p = p - lr · g / (√v + eps); with momentum, g / (…) is summed up in ``moment``.
    """

    lr: Any = _rate(default=1e-2)
    alpha: float = setting(not_negative, "decay rate of the mean square.", default=0.99)
    eps: float = _eps(default=1e-8)
    weight_decay: float = DECAY
    momentum: float = setting(not_negative, "share of the sum that stays.", default=0.0)
    centered: bool = setting(flag, "subtract the square of the mean gradient from v.", default=False)
    maximize: bool = setting(None, MAXIMIZE.doc, default=False)

    slots = ("mean_square", "mean_grad", "moment")
    rule = rmsprop


class ASGD(Optimizer):
    """Averaged stochastic gradient descent (Polyak & Juditsky 1992).

    p = p · (1 - lambd · eta) - eta · g;  eta = lr / (1 + lambd · lr · t) ^ alpha;
    from step `t0` on, ``ax`` holds the average of p, before that p itself.
    """

    lr: Any = _rate(default=1e-2)
    lambd: float = setting(exactly_float, "decay term.", default=1e-4)
    alpha: float = setting(None, "power with which eta falls.", default=0.75)
    t0: float = setting(exactly_float, "step at which averaging starts.", default=1e6)
    weight_decay: float = DECAY
    maximize: bool = setting(None, MAXIMIZE.doc, default=False)

    slots = ("mu", "eta", "ax")
    starts = {"mu": Start(1.0, scalar=True), "eta": Start(scalar=True)}
    rule = asgd
    counts_in = "step_t"


def _two_numbers(name: str, what: str, value: Any) -> None:
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise SporaxTypeError(f"For '{name}', '{what}' must be two numbers, but got {value!r}.")


def _two_factors(name: str, what: str, value: Any) -> None:
    _two_numbers(name, what, value)
    For(name).refuse(not 0 < value[0] < 1 < value[1], f"'{what}' must be in (0, 1) and above 1", value)


class Rprop(Optimizer):
    """Resilient propagation (Riedmiller & Braun 1993): steps by the sign of the gradient, of a length per element.

    A length grows while the sign stays and shrinks when it changes; then the element waits for one step.
    """

    lr: Any = setting(_positive, "the first length, a number or a scalar Tensor.", default=1e-2)
    etas: tuple[float, float] = setting(
        _two_factors, "factors by which a length shrinks, in (0, 1), and grows, above 1.", default=(0.5, 1.2)
    )
    step_sizes: tuple[float, float] = setting(_two_numbers, "the smallest and the largest length.", default=(1e-6, 50))
    maximize: bool = MAXIMIZE

    slots = ("prev", "step_size")
    rule = rprop
    counts_in = "step_t"

    def check_settings(self, settings: dict[str, Any]) -> None:
        super().check_settings(settings)
        # The sign alone counts, in which a decay would be lost.
        For("Rprop").refuse(settings["weight_decay"], "'weight_decay' must be 0", settings["weight_decay"])


class Adam(mint.Adam):
    """Adam (Kingma & Ba 2014), with weight decay as a part of the gradient and `eps` added before bias correction.

    m = β1 · m + (1 - β1) · g;  v = β2 · v + (1 - β2) · g²;
    p = p - lr · √(1 - β2ᵗ) / (1 - β1ᵗ) · m / (√v + eps).

    MindSpore 2.10 takes `amsgrad` and ignores it; here v is then the largest one so far.
    """

    betas: tuple[float, float] = betas(partial(two_betas, kinds=int | float))

    slots = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")
    is_strict = False
    corrects_eps = True
    # A scalar int, as in MindSpore's checkpoints.
    first_count = Optimizer.first_count

    def slots_of(self, group: dict[str, Any]) -> tuple[str, ...]:
        """The same with and without `amsgrad`, as in MindSpore's checkpoints."""
        return self.slots


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019): p loses ``lr * weight_decay * p`` before its step.

    Unlike in `Adam`, `eps` is added after bias correction.
    """

    weight_decay: float = mint.AdamW.weight_decay

    decoupled_decay = True
    corrects_eps = False


class _WithMoments(Optimizer, fields_only=True):
    """Adam's relatives."""

    lr: Any = _rate(default=2e-3)
    betas: tuple[float, float] = Adam.betas
    eps: float = _eps(default=1e-8)
    weight_decay: float = DECAY

    counts_in = "step_t"


def adamax(
    xp: ModuleType, gradient: Array, parameter: Array, first: Array, largest: Array, *, rate: Array, step: Array,
    betas: tuple[float, float], eps: float,
) -> tuple[Array, ...]:  # fmt: skip
    """The rule of `Adamax`: new parameter, first moment and largest gradient."""
    beta1, beta2 = betas
    first = beta1 * first + (1 - beta1) * gradient
    # eps inside of the maximum, as in PyTorch.
    largest = xp.maximum(beta2 * largest, xp.abs(gradient) + eps)
    return parameter - rate / bias_correction(beta1, step) * first / largest, first, largest


class Adamax(_WithMoments):
    """Adam by the largest gradient instead of the second moment (Kingma & Ba 2014, section 7).

    m = β1 · m + (1 - β1) · g;  u = max(β2 · u, |g| + eps);  p = p - lr / (1 - β1ᵗ) · m / u.
    """

    maximize: bool = MAXIMIZE

    slots = ("exp_avg", "exp_inf")
    rule = adamax


_NESTEROV_BASE = 0.96
"""Dozat 2016: momentum of step t is β1 · (1 - 0.96 ^ (t · momentum_decay) / 2)."""


def nadam(
    xp: ModuleType, gradient: Array, parameter: Array, first: Array, second: Array, product: Array, *, rate: Array,
    step: Array, betas: tuple[float, float], eps: float, momentum_decay: float,
) -> tuple[Array, ...]:  # fmt: skip
    """The rule of `NAdam`: new parameter, both moments and the product of all momenta so far."""
    beta1, beta2 = betas
    # Momenta of this step and the next (Dozat 2016).
    momentum, following = (
        beta1 * (1.0 - 0.5 * _NESTEROV_BASE ** (number * momentum_decay)) for number in (step, step + 1)
    )
    product = product * momentum
    first, second = update_rules.moments(xp, gradient, first, second, beta1, beta2, 1 - beta1, 1 - beta2)
    denominator = xp.sqrt(second / bias_correction(beta2, step)) + eps
    along = rate * (1.0 - momentum) / (1.0 - product) * gradient
    # The part that looks ahead uses the next momentum.
    ahead = rate * following / (1.0 - product * following) * first
    return parameter - (along + ahead) / denominator, first, second, product


class NAdam(_WithMoments):
    """Adam with Nesterov's momentum (Dozat 2016)."""

    momentum_decay: float = setting(not_negative, "how fast the momentum grows to β1.", default=4e-3)

    slots = ("exp_avg", "exp_avg_sq", "mu_product")
    starts = {"mu_product": Start(1.0, scalar=True)}
    rule = nadam


_LEAST_LENGTH = 5.0
"""Liu et al. 2020: below, the variance of the second moment is not tractable, so the step is not scaled by it."""


def radam(
    xp: ModuleType, gradient: Array, parameter: Array, first: Array, second: Array, *, rate: Array, step: Array,
    betas: tuple[float, float], eps: float,
) -> tuple[Array, ...]:  # fmt: skip
    """The rule of `RAdam`: new parameter and both moments."""
    beta1, beta2 = betas
    first, second = update_rules.moments(xp, gradient, first, second, beta1, beta2, 1 - beta1, 1 - beta2)
    rest = bias_correction(beta2, step)
    limit = 2 / (1 - beta2) - 1
    length = limit - 2 * step * (1 - rest) / rest
    is_scaled = length > _LEAST_LENGTH
    # The formula must not take the root of a negative number on the way that is not taken.
    safe = xp.where(is_scaled, length, _LEAST_LENGTH)
    rectified = xp.sqrt((safe - 4) * (safe - 2) * limit / ((limit - 4) * (limit - 2) * safe))
    scale = xp.where(is_scaled, rectified * xp.sqrt(rest) / (xp.sqrt(second) + eps), 1.0)
    return parameter - rate * first / bias_correction(beta1, step) * scale, first, second


class RAdam(_WithMoments):
    """Adam whose first steps are not scaled by the second moment, while that is a bad estimate (Liu et al. 2020)."""

    lr: Any = _rate(default=1e-3)

    slots = ("exp_avg", "exp_avg_sq")
    rule = radam


class SGD(mint.SGD):
    """Gradient descent with optional momentum; see `mint.optim.SGD`.

    Its state has MindSpore's names for it: ``accum`` is the velocity, ``stat`` is 1 until the first step.
    """

    weight_decay: float = DECAY

    slots = ("accum", "stat")
    starts = {"stat": Start(1.0)}
    is_strict = False
    counts_in = ""
