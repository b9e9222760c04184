"""Adam and its relatives: AdaMax takes the maximum norm, LAMB a trust ratio for each Parameter.

LARS: any optimizer, with gradients scaled layer by layer.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base import update_rules
from sporax.base.errors import For, SporaxTypeError, SporaxValueError, check_type, did_you_mean
from sporax.mindspore._declared import REQUIRED, setting
from sporax.mindspore.common import Parameter, wrap
from sporax.mindspore.nn import _arguments as argument
from sporax.mindspore.nn.cell import Cell
from sporax.mindspore.nn.optim._optimizer import (
    DECAY,
    LOCKING,
    SCALE,
    Array,
    DeclaredOptimizer,
    Optimizer,
    Start,
    Step,
    _decay_at,
    _rate_at,
    number,
    rates,
)
from sporax.mindspore.ops._core.parameters import taking
from sporax.mindspore.ops.nn import optimizer_steps
from sporax.runtime.state import frames

_beta = partial(number, "decay rate of the moment, a float in (0, 1).", low=0.0, high=1.0, ends="()")
_epsilon = partial(argument.within, low=0.0, high=math.inf, ends="()")


class _WithMoments(DeclaredOptimizer, fields_only=True):
    """What has running means of gradients and of their squares, or largest ones."""

    learning_rate: Any = rates(default=1e-3)
    beta1: float = _beta(default=0.9)
    beta2: float = _beta(default=0.999)
    eps: float = setting(_epsilon, "added to √v.", default=1e-8)


class Adam(_WithMoments):
    """Adam (Kingma & Ba 2014) as MindSpore computes it: the bias correction goes into the learning rate.

    m = beta1 · m + (1 - beta1) · g;  v = beta2 · v + (1 - beta2) · g²;
    p = p - learning_rate · √(1 - beta2ᵗ) / (1 - beta1ᵗ) · m / (√v + eps).

    Args:
        kwargs: ``use_lazy``: rows of sparse tables without gradient stay as they are; see `LazyAdam`. Not with `use_amsgrad`.
            ``use_offload``: state stays on the host, which moves the Parameters: `target` is "CPU". Not with the other two.
    """

    use_locking: bool = LOCKING
    use_nesterov: bool = setting(argument.boolean, "use beta1 · m + (1 - beta1) · g in place of m.", default=False)
    weight_decay: Any = DECAY
    loss_scale: float = SCALE
    use_amsgrad: bool = setting(argument.boolean, "use the largest v so far (Reddi et al. 2018).", default=False)
    kwargs: bool = setting(default=REQUIRED, attribute=False, kind=inspect.Parameter.VAR_KEYWORD)

    slots: tuple[str, ...] = ("moment1", "moment2")
    rule = update_rules.adam
    renamed = {"nesterov": "use_nesterov"}
    power_shape: tuple[int, ...] = ()
    """Shape of the powers of beta, which checkpoints hold."""

    def _prepare(self, *, kwargs: dict[str, bool]) -> None:
        for name, value in kwargs.items():
            if name not in ("use_lazy", "use_offload"):
                names = inspect.signature(Adam.__init__).parameters
                raise SporaxTypeError(f"For 'Adam', there is no argument '{name}'.{did_you_mean(name, names)}")
            if argument.boolean("Adam", name, value) and self.use_amsgrad:
                words = "For lazy Adam and Adam with offload, there is no parameter named 'use_amsgrad'"
                raise SporaxValueError(f"{words}, but '{name}' is True, too.")
        self.lazy_rows = kwargs.get("use_lazy", type(self).lazy_rows)
        offloads = kwargs.get("use_offload", False)
        For("Adam").refuse(offloads and self.lazy_rows, "'use_lazy' and 'use_offload' can not both be True")
        # They begin at 1 and are raised before their first use.
        for name in ("beta1_power", "beta2_power"):
            self.add_number(name, 1.0, self.power_shape)
        self.slots = ("moment1", "moment2", "vhat") if self.use_amsgrad else Adam.slots
        super()._prepare()
        if offloads:
            self.target = "CPU"

    def prepare(self) -> Any:
        """Raise the powers of beta; gives the factor of the learning rate."""
        first = self.beta1_power.array * self.beta1
        second = self.beta2_power.array * self.beta2
        frames.write(self.beta1_power, first)
        frames.write(self.beta2_power, second)
        factor: jax.Array = update_rules.adam_factor(jnp, first, second)
        return factor.reshape(())

    def move(self, gradient: Array, parameter: Array, *slots: Array, at: Step) -> tuple[Array, ...]:
        """As `rule`, at a rate that corrects the bias."""
        return super().move(gradient, parameter, *slots, at=replace(at, rate=at.rate * at.shared))

    @property
    def served_as(self) -> str:
        """See `Optimizer`."""
        return "amsgrad" if self.use_amsgrad else "lazy_adam" if self.lazy_rows else "adam"


class LazyAdam(Adam):
    """Adam that leaves rows without gradient alone, moments included, in tables of sparse lookups.

    A table is one whose layer was made with ``sparse=True`` (`EmbeddingLookup`). MindSpore gets the indices of the rows
    with the gradient; here a row counts as looked up when its gradient is not zero throughout. Gradients of tables on the
    host are ids and rows (`docs/memory.md`), others are dense.

    Args: as `Adam`, without `use_amsgrad`.
    """

    lazy_rows = True
    power_shape = (1,)

    @taking(Adam.__init__, "use_amsgrad kwargs")
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)


class AdamOffload(Adam):
    """`Adam`, whose state MindSpore keeps and updates on the host. Here it stays on the device, and a warning says so.

    MindSpore has deprecated it in favour of `Adam`. To keep less state on each device, shard it (`enable_parallel_optimizer`).

    Args: as `Adam`, without `use_amsgrad`.
    """

    power_shape = (1,)

    @taking(Adam.__init__, "use_amsgrad kwargs")
    def __init__(self, **settings: Any) -> None:
        warnings.warn(
            "For 'AdamOffload', the state of the optimizer is kept on the device, not on the host: it works like 'Adam'.",
            stacklevel=2,
        )
        super().__init__(**settings)


def adam_without_correction(
    xp: ModuleType, gradient: Array, parameter: Array, first: Array, second: Array, *, rate: Array, decay: Any, beta1: Any,
    beta2: Any, eps: Any,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """The rule of `AdamWeightDecay`: new parameter and both moments."""
    # The state may be more precise than the Parameter.
    gradient, parameter = gradient.astype(first.dtype), parameter.astype(first.dtype)
    # Derived classes that make their state themselves have Tensors here, as MindSpore does.
    beta1, beta2, eps = (float(np.asarray(number).item()) for number in (beta1, beta2, eps))
    rests = update_rules.complement(beta1), update_rules.complement(beta2)
    first, second = update_rules.moments(xp, gradient, first, second, beta1, beta2, *rests)
    return parameter - rate * (first / (xp.sqrt(second) + eps) + decay * parameter), first, second


class _Decoupled(_WithMoments, fields_only=True):
    """Adam's moments, with a weight decay that is no part of them."""

    eps: float = setting(_epsilon, "added to √v.", default=1e-6)
    weight_decay: Any = setting(None, "decoupled decay.", default=0.0)

    may_be_dealt = True
    decoupled_decay = True
    slots = ("moments1", "moments2")


class AdamWeightDecay(_Decoupled):
    """Adam with decoupled weight decay and without bias correction, as BERT was trained (Devlin et al. 2018).

    m = beta1 · m + (1 - beta1) · g;  v = beta2 · v + (1 - beta2) · g²;
    p = p - learning_rate · (m / (√v + eps) + weight_decay · p).
    """

    learning_rate: Any = rates(default=1e-3)

    starts = {"moments1": Start(prefix="adam_m."), "moments2": Start(prefix="adam_v.")}
    rule = adam_without_correction


def adamax(
    xp: ModuleType, gradient: Array, parameter: Array, first: Array, largest: Array, *, rate: Array, shared: Array,
    beta1: float, beta2: float, eps: float,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """The rule of `AdaMax`; `shared` is the factor of the rate that corrects the bias."""
    first = beta1 * first + update_rules.complement(beta1) * gradient
    largest = xp.maximum(beta2 * largest, xp.abs(gradient))
    return parameter - rate * shared * first / (largest + eps), first, largest


class AdaMax(_WithMoments):
    """AdaMax (Kingma & Ba 2014, section 7).

    m = beta1 · m + (1 - beta1) · g;  u = max(beta2 · u, |g|);  p = p - learning_rate / (1 - beta1ᵗ) · m / (u + eps).
    """

    learning_rate: Any = rates(default=0.001)
    eps: float = setting(_epsilon, "added to u.", default=1e-8)
    weight_decay: Any = DECAY
    loss_scale: float = SCALE

    slots = ("moment1", "moment2")
    rule = adamax

    def _prepare(self) -> None:
        self.add_number("beta1_power", 1.0, (1,))
        super()._prepare()

    def prepare(self) -> Any:
        """Raise the power of beta1; gives the factor of the learning rate."""
        power = self.beta1_power.array * self.beta1
        frames.write(self.beta1_power, power)
        # Of shape (1,) in checkpoints, a scalar in the rule.
        return (1.0 / (1.0 - power))[0]


def lamb(
    xp: ModuleType, gradient: Array, parameter: Array, first: Array, second: Array, *, rate: Array, step: Array, decay: Any,
    beta1: float, beta2: float, eps: float,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """The rule of `Lamb`: new parameter and both moments."""
    rests = update_rules.complement(beta1), update_rules.complement(beta2)
    first, second = update_rules.moments(xp, gradient, first, second, beta1, beta2, *rests)
    mean, variance = first / (1.0 - beta1**step), second / (1.0 - beta2**step)
    direction = mean / (xp.sqrt(variance) + eps) + decay * parameter
    # Norms of the whole Parameter, not of its elements.
    weight_norm, norm = xp.linalg.norm(parameter), xp.linalg.norm(direction)
    # The inner `where` keeps the unused branch free of a division by 0.
    trust = xp.where((weight_norm > 0) & (norm > 0), weight_norm / xp.where(norm > 0, norm, 1.0), 1.0)
    return parameter - rate * trust * direction, first, second


class Lamb(_Decoupled):
    """LAMB, for large batches (You et al. 2019).

    m, v as in Adam with bias correction;  d = m / (√v + eps) + weight_decay · p;
    p = p - learning_rate · ‖p‖ / ‖d‖ · d, where the ratio is 1 if one of both norms is 0.
    """

    learning_rate: Any = rates()

    starts = {"moments1": Start(prefix="lamb_m."), "moments2": Start(prefix="lamb_v.")}
    rule = lamb


def _default_filter(parameter: Parameter) -> bool:
    return "LayerNorm" not in parameter.name and "bias" not in parameter.name


_an_optimizer = partial(check_type, expected="an Optimizer", types=Optimizer)


class LARS(Optimizer):
    """Layer-wise adaptive rates (You et al. 2017) around another optimizer.

    g = trust · (g + weight_decay · p) with trust = coefficient · ‖p‖ / (‖g‖ + weight_decay · ‖p‖ + epsilon); then the
    other optimizer moves p. Weight decay and loss scale of that optimizer are applied here and no longer there.

    Raises:
        SporaxTypeError: an argument of the wrong kind.
    """

    optimizer: Optimizer = setting(_an_optimizer, "the other optimizer.", attribute=False)
    epsilon: float = number("added to the denominator.", default=1e-5)
    coefficient: float = number("trust coefficient.", default=0.001)
    use_clip: bool = setting(
        argument.boolean, "keep trust · learning_rate from exceeding the learning rate.", default=False
    )
    lars_filter: Callable[[Parameter], bool] = setting(
        None,
        "which Parameters are scaled; by default all but biases and those of layer norms.",
        default=_default_filter,
        attribute=False,
    )

    def _begin(self, values: dict[str, Any]) -> None:
        # Not that of `Optimizer`: groups and state are those of the other optimizer.
        Cell.__init__(self, auto_prefix=False)

    def _prepare(self, *, optimizer: Optimizer, lars_filter: Callable[[Parameter], bool]) -> None:
        self.opt = optimizer
        self.parameters = self.params = optimizer.parameters
        self.global_step = optimizer.global_step
        self.rates = optimizer.rates
        self.is_group = optimizer.is_group
        self.settings = optimizer.settings
        self.loss_scale = optimizer.loss_scale
        self.scaled = tuple(bool(lars_filter(parameter)) for parameter in self.parameters)
        # Both are applied here, and must not be applied twice.
        optimizer.settings = tuple(replace(own, decay=0.0) for own in optimizer.settings)
        optimizer.loss_scale = 1.0

    def construct(self, gradients: Any) -> Any:
        """See the class."""
        number = self.global_step.array[0]
        adapted = []
        for gradient, parameter, own, scaled in zip(
            self._checked(gradients), self.parameters, self.settings, self.scaled, strict=True
        ):
            # Before the norm is taken: the scale would change the ratio.
            if self.loss_scale != 1.0:
                gradient = gradient * jnp.asarray(1.0 / self.loss_scale, gradient.dtype)
            if scaled:
                value, norms = parameter.array, (jnp.linalg.norm(parameter.array), jnp.linalg.norm(gradient))
                decay, rate = _decay_at(own.decay, number), _rate_at(self.rates[own.rate], number)
                settings = (self.epsilon, self.coefficient, self.use_clip)
                gradient = optimizer_steps.lars(value, gradient, norms, decay, rate, *settings)
            adapted.append(wrap(gradient))
        return self.opt(tuple(adapted))
