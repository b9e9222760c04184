"""Adam and its relatives: AdaMax takes the maximum norm, LAMB a trust ratio for each Parameter.

LARS: any optimizer, with gradients scaled layer by layer.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable
from inspect import signature
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base import update_rules
from sporax.base.errors import SporaxTypeError, SporaxValueError, check_type, did_you_mean
from sporax.mindspore._declared import setting
from sporax.mindspore.common import Parameter, Tensor, dtypes, wrap
from sporax.mindspore.nn import _arguments as argument
from sporax.mindspore.nn.cell import Cell
from sporax.mindspore.nn.optim._optimizer import Array, Optimizer, Step, _decay_at, _rate_at
from sporax.mindspore.ops._core.parameters import taking
from sporax.mindspore.ops.nn import optimizer_steps
from sporax.runtime.state import frames


class Adam(Optimizer):
    """Adam (Kingma & Ba 2014) as MindSpore computes it: the bias correction goes into the learning rate.

    m = beta1 · m + (1 - beta1) · g;  v = beta2 · v + (1 - beta2) · g²;
    p = p - learning_rate · √(1 - beta2ᵗ) / (1 - beta1ᵗ) · m / (√v + eps).

    Args:
        params, learning_rate, weight_decay, loss_scale: see `Optimizer`.
        beta1, beta2: decay rates of the moments, floats in (0, 1).
        eps: added to √v.
        use_locking: accepted for compatibility; steps never overlap.
        use_nesterov: use beta1 · m + (1 - beta1) · g in place of m.
        use_amsgrad: use the largest v so far (Reddi et al. 2018).
        use_lazy: rows of sparse tables without gradient stay as they are; see `LazyAdam`. Not with `use_amsgrad`.
        use_offload: state stays on the host, which moves the Parameters: `target` is "CPU". Not with the other two.
    """

    slots: tuple[str, ...] = ("moment1", "moment2")
    power_shape: tuple[int, ...] = ()
    """Shape of the powers of beta, which checkpoints hold."""

    def __init__(
        self,
        params: Any,
        learning_rate: Any = 1e-3,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
        use_locking: bool = False,
        use_nesterov: bool = False,
        weight_decay: Any = 0.0,
        loss_scale: float = 1.0,
        use_amsgrad: bool = False,
        **kwargs: bool,
    ) -> None:
        super().__init__(learning_rate, params, weight_decay, loss_scale)
        for name, value in kwargs.items():
            if name not in ("use_lazy", "use_offload"):
                names = signature(Adam.__init__).parameters
                raise SporaxTypeError(f"For 'Adam', there is no argument '{name}'.{did_you_mean(name, names)}")
            if argument.boolean("Adam", name, value) and use_amsgrad:
                words = "For lazy Adam and Adam with offload, there is no parameter named 'use_amsgrad'"
                raise SporaxValueError(f"{words}, but '{name}' is True, too.")
        self.lazy_rows = kwargs.get("use_lazy", type(self).lazy_rows)
        offloads = kwargs.get("use_offload", False)
        if offloads and self.lazy_rows:
            raise SporaxValueError("For 'Adam', 'use_lazy' and 'use_offload' can not both be True.")
        take_betas(self, "Adam", beta1, beta2, eps)
        argument.boolean("Adam", "use_locking", use_locking)
        self.use_nesterov = argument.boolean("Adam", "use_nesterov", use_nesterov)
        self.use_amsgrad = argument.boolean("Adam", "use_amsgrad", use_amsgrad)
        # They begin at 1 and are raised before their first use.
        for name in ("beta1_power", "beta2_power"):
            setattr(self, name, Parameter(Tensor(np.ones(self.power_shape, np.float32)), name=name))
        self.slots = ("moment1", "moment2", "vhat") if use_amsgrad else Adam.slots
        for slot in self.slots:
            self.add_slot(slot)
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
        """See the class."""
        return update_rules.adam(
            jnp,
            gradient,
            parameter,
            *slots,
            rate=at.rate,
            factor=at.shared,
            beta1=self.beta1,
            beta2=self.beta2,
            rest1=self.rest1,
            rest2=self.rest2,
            eps=self.eps,
            nesterov=self.use_nesterov,
        )

    def server_rule(self) -> tuple[str, dict[str, float]]:
        """See `Optimizer`."""
        constants = {"beta1": self.beta1, "beta2": self.beta2, "eps": self.eps, "nesterov": float(self.use_nesterov)}
        return "amsgrad" if self.use_amsgrad else "lazy_adam" if self.lazy_rows else "adam", constants


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


class AdamWeightDecay(Optimizer):
    """Adam with decoupled weight decay and without bias correction, as BERT was trained (Devlin et al. 2018).

    m = beta1 · m + (1 - beta1) · g;  v = beta2 · v + (1 - beta2) · g²;
    p = p - learning_rate · (m / (√v + eps) + weight_decay · p).

    Args:
        params, learning_rate: see `Optimizer`.
        beta1, beta2, eps: as of `Adam`.
    """

    params: Any = setting()
    learning_rate: Any = setting(default=1e-3)
    beta1: float = setting(default=0.9, attribute=False)
    beta2: float = setting(default=0.999, attribute=False)
    eps: float = setting(default=1e-6, attribute=False)
    weight_decay: Any = setting(None, "decoupled decay.", default=0.0)

    may_be_dealt = True
    slots = ("moments1", "moments2")
    decoupled_decay = True

    def _prepare(self, beta1: float, beta2: float, eps: float) -> None:
        take_betas(self, "AdamWeightDecay", beta1, beta2, eps)
        self.add_slot("moments1", prefix="adam_m")
        self.add_slot("moments2", prefix="adam_v")

    def move(self, gradient: Array, parameter: Array, *slots: Array, at: Step) -> tuple[Array, ...]:
        """See the class."""
        first, second = slots
        # The state may be more precise than the Parameter.
        gradient, parameter = gradient.astype(first.dtype), parameter.astype(first.dtype)
        # Derived classes that make their state themselves have Tensors here, as MindSpore does.
        beta1, beta2, eps = (float(np.asarray(number).item()) for number in (self.beta1, self.beta2, self.eps))
        first = beta1 * first + complement(beta1) * gradient
        second = beta2 * second + complement(beta2) * jnp.square(gradient)
        direction = first / (jnp.sqrt(second) + eps)
        return parameter - at.rate * (direction + at.decay * parameter), first, second


def take_betas(optimizer: Any, name: str, beta1: float, beta2: float, eps: float) -> None:
    """Set both decay rates, floats in (0, 1), what they lack of 1, and eps, which is positive."""
    optimizer.beta1 = argument.exactly_float(name, "beta1", beta1, 0.0, 1.0, "()")
    optimizer.beta2 = argument.exactly_float(name, "beta2", beta2, 0.0, 1.0, "()")
    optimizer.eps = argument.within(name, "eps", eps, 0.0, math.inf, "()")
    # As float32 gives it, see `complement`.
    optimizer.rest1, optimizer.rest2 = complement(beta1), complement(beta2)


def complement(beta: float) -> float:
    """``1 - beta`` as float32 arithmetic gives it: the powers of beta are float32, and both must cancel."""
    return float(np.float32(1) - np.float32(beta))


class AdaMax(Optimizer):
    """AdaMax (Kingma & Ba 2014, section 7).

    m = beta1 · m + (1 - beta1) · g;  u = max(beta2 · u, |g|);  p = p - learning_rate / (1 - beta1ᵗ) · m / (u + eps).

    Args:
        params, learning_rate, weight_decay, loss_scale: see `Optimizer`.
        beta1, beta2: decay rates, floats in (0, 1).
    """

    params: Any = setting()
    learning_rate: Any = setting(default=0.001)
    beta1: float = setting(default=0.9, attribute=False)
    beta2: float = setting(default=0.999, attribute=False)
    eps: float = setting(None, "added to u.", default=1e-8, attribute=False)
    weight_decay: Any = setting(default=0.0)
    loss_scale: float = setting(default=1.0)

    slots = ("moment1", "moment2")

    def _prepare(self, beta1: float, beta2: float, eps: float) -> None:
        take_betas(self, "AdaMax", beta1, beta2, eps)
        self.beta1_power = Parameter(Tensor([1.0], dtypes.float32), name="beta1_power")
        self.add_slot("moment1")
        self.add_slot("moment2")

    def prepare(self) -> Any:
        """Raise the power of beta1; gives the factor of the learning rate."""
        power = self.beta1_power.array * self.beta1
        frames.write(self.beta1_power, power)
        # Of shape (1,) in checkpoints, a scalar in the rule.
        return (1.0 / (1.0 - power))[0]

    def move(self, gradient: Array, parameter: Array, *slots: Array, at: Step) -> tuple[Array, ...]:
        """See the class."""
        first, largest = slots
        first = self.beta1 * first + self.rest1 * gradient
        largest = jnp.maximum(self.beta2 * largest, jnp.abs(gradient))
        return parameter - at.rate * at.shared * first / (largest + self.eps), first, largest


class Lamb(Optimizer):
    """LAMB, for large batches (You et al. 2019).

    m, v as in Adam with bias correction;  d = m / (√v + eps) + weight_decay · p;
    p = p - learning_rate · ‖p‖ / ‖d‖ · d, where the ratio is 1 if one of both norms is 0.

    Args:
        params, learning_rate: see `Optimizer`.
        beta1, beta2, eps: as of `Adam`.
    """

    params: Any = setting()
    learning_rate: Any = setting()
    beta1: float = setting(default=0.9, attribute=False)
    beta2: float = setting(default=0.999, attribute=False)
    eps: float = setting(default=1e-6, attribute=False)
    weight_decay: Any = setting(None, "decoupled decay.", default=0.0)

    may_be_dealt = True
    slots = ("moments1", "moments2")
    decoupled_decay = True

    def _prepare(self, beta1: float, beta2: float, eps: float) -> None:
        take_betas(self, "Lamb", beta1, beta2, eps)
        self.add_slot("moments1", prefix="lamb_m")
        self.add_slot("moments2", prefix="lamb_v")

    def move(self, gradient: Array, parameter: Array, *slots: Array, at: Step) -> tuple[Array, ...]:
        """See the class."""
        first, second = slots
        step = (at.number + 1).astype(jnp.float32)
        first = self.beta1 * first + self.rest1 * gradient
        second = self.beta2 * second + self.rest2 * jnp.square(gradient)
        mean, variance = first / (1.0 - self.beta1**step), second / (1.0 - self.beta2**step)
        direction = mean / (jnp.sqrt(variance) + self.eps) + at.decay * parameter
        # Norms of the whole Parameter, not of its elements.
        weight_norm, norm = jnp.linalg.norm(parameter), jnp.linalg.norm(direction)
        # The inner `where` keeps the unused branch free of a division by 0.
        trust = jnp.where((weight_norm > 0) & (norm > 0), weight_norm / jnp.where(norm > 0, norm, 1.0), 1.0)
        return parameter - at.rate * trust * direction, first, second


def _default_filter(parameter: Parameter) -> bool:
    return "LayerNorm" not in parameter.name and "bias" not in parameter.name


class LARS(Optimizer):
    """Layer-wise adaptive rates (You et al. 2017) around another optimizer.

    g = trust · (g + weight_decay · p) with trust = coefficient · ‖p‖ / (‖g‖ + weight_decay · ‖p‖ + epsilon); then the
    other optimizer moves p. Weight decay and loss scale of that optimizer are applied here and no longer there.

    Args:
        optimizer: the other optimizer.
        epsilon: added to the denominator.
        coefficient: trust coefficient.
        use_clip: keep trust · learning_rate from exceeding the learning rate.
        lars_filter: which Parameters are scaled; by default all but biases and those of layer norms.

    Raises:
        SporaxTypeError: an argument of the wrong kind.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        epsilon: float = 1e-5,
        coefficient: float = 0.001,
        use_clip: bool = False,
        lars_filter: Callable[[Parameter], bool] = _default_filter,
    ) -> None:
        # Not `Optimizer.__init__`: groups and state are those of the other optimizer.
        Cell.__init__(self, auto_prefix=False)
        check_type("LARS", "optimizer", optimizer, "an Optimizer", Optimizer)
        self.epsilon = argument.exactly_float("LARS", "epsilon", epsilon, -math.inf, math.inf)
        self.coefficient = argument.exactly_float("LARS", "coefficient", coefficient, -math.inf, math.inf)
        self.use_clip = argument.boolean("LARS", "use_clip", use_clip)
        self.opt = optimizer
        self.parameters = self.params = optimizer.parameters
        self.global_step = optimizer.global_step
        self.rates = optimizer.rates
        self.is_group = optimizer.is_group
        self.settings = optimizer.settings
        self.loss_scale = optimizer.loss_scale
        self.scaled = tuple(bool(lars_filter(parameter)) for parameter in self.parameters)
        # Both are applied here, and must not be applied twice.
        optimizer.settings = tuple(dataclasses.replace(setting, decay=0.0) for setting in optimizer.settings)
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
                decay, rate = _decay_at(own.decay, number), _rate_at(self.rates[own.rate], number)
                gradient = self._adapt(gradient, parameter.array, decay, rate)
            adapted.append(wrap(gradient))
        return self.opt(tuple(adapted))

    def _adapt(self, gradient: Any, value: Any, decay: Any, rate: Any) -> Any:
        norms = jnp.linalg.norm(value), jnp.linalg.norm(gradient)
        settings = (self.epsilon, self.coefficient, self.use_clip)
        return optimizer_steps.lars(value, gradient, norms, decay, rate, *settings)
