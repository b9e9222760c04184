"""SGD, Adam and AdamW as PyTorch and `mindspore.mint.optim` define them, and what they share with those of `experimental.optim`.

That is groups of Parameters with own settings, and state. To whoever runs a step they are like any optimizer of
`sporax.mindspore.nn`. Unlike those, they keep every setting in `param_groups`, where it may be looked up and changed at any time.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from sporax.base import update_rules
from sporax.base.errors import SporaxKeyError, SporaxTypeError, SporaxValueError, check_type
from sporax.mindspore.common import Parameter, ParameterTuple, Tensor, dtypes, no_init_parameters, wrap
from sporax.mindspore.common.initializer import initializer
from sporax.mindspore.nn.cell import Cell
from sporax.mindspore.nn.optim._optimizer import Array as Array, Optimizer as StepOptimizer
from sporax.mindspore.ops._core.parameters import taking
from sporax.runtime.state import frames

INITIAL_RATE = "initial_lr"
"""Where the schedules of `experimental.optim.lr_scheduler` keep the rate that a group started with."""


@dataclass(frozen=True, slots=True)
class GroupStep:
    """What `Optimizer.step` may use besides gradient, Parameter and state.

    Attributes:
        group: settings.
        rate: learning rate, a scalar array.
        shared: what `Optimizer.prepare` returned.
    """

    group: dict[str, Any]
    rate: jax.Array
    shared: Any


class ParameterGroup(dict[str, Any]):
    """Settings of one group, by name; ``params`` holds its Parameters and ``lr``, a Parameter, its learning rate.

    Assigning a number to ``lr`` sets that Parameter; compiled steps go on with it. Assigning another setting makes them
    compile again.
    """

    def __init__(self, settings: dict[str, Any], optimizer: Optimizer, index: int) -> None:
        settings = {**settings, "lr": _rate(type(optimizer).__name__, settings["lr"], index)}
        super().__init__(settings)
        self._optimizer = optimizer

    def __setitem__(self, key: str, value: Any) -> None:
        name = type(self._optimizer).__name__
        # Schedules keep the first rate of a group there.
        if key not in self and key != INITIAL_RATE and self._optimizer.is_strict:
            raise SporaxKeyError(f"For '{name}', the settings of a group are {list(self)}, but got '{key}'.")
        if key == "params":
            raise SporaxKeyError(f"For '{name}', the Parameters of a group stay; use add_param_group to add others.")
        if key == "lr":
            # The Parameter stays, so compiled steps go on with the new value.
            self["lr"].set_data(_checked_rate(name, value))
            return
        # Checked together: some settings limit one another.
        self._optimizer.check_settings({**self, key: value})
        super().__setitem__(key, value)
        self._optimizer.note_settings()


class Optimizer(StepOptimizer):
    """Base of the optimizers of `mint.optim` and `experimental.optim`.

    A subclass states its state (`slots`) and how one Parameter moves (`step`), or has a `construct` of its own.

    Args:
        params: Parameters, or groups: dicts with ``params`` and settings of their own.
        defaults: every setting and its value where a group has none of its own: ``lr``, the learning rate, a number or a scalar
            Tensor; ``weight_decay``, an L2 penalty; ``maximize``: go up instead of down; …

    Raises:
        SporaxTypeError, SporaxValueError, SporaxKeyError: bad settings or Parameters; the message names them.
    """

    slots: tuple[str, ...] = ()

    is_strict = False
    """Whether groups have no settings but those of `defaults`; else others are kept for whoever asks for them."""

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        # Not nn.Optimizer's: settings live in `param_groups` alone.
        Cell.__init__(self, auto_prefix=False)
        self.loss_scale = 1.0
        self.defaults = defaults
        self.param_groups: list[ParameterGroup] = []
        self.group_start_id = [0]
        self._slots: dict[str, ParameterTuple] = {}
        self._notes: defaultdict[Any, dict[str, Any]] = defaultdict(dict)
        groups = _groups(type(self).__name__, params)
        for group in groups if isinstance(groups[0], dict) else [{"params": groups}]:
            self._append(group)
        self._register()

    def __repr__(self) -> str:
        """The settings of all groups, line by line as MindSpore prints them."""
        groups = [
            f"Parameter Group {index}\n"
            + "".join(
                f"    {key}: {group[key].value() if key == 'lr' else group[key]}\n"
                for key in sorted(group)
                if key != "params"
            )
            for index, group in enumerate(self.param_groups)
        ]
        return f"{type(self).__name__} (\n" + "\n".join(groups) + ")"

    @property
    def state(self) -> defaultdict[Any, dict[str, Any]]:
        """Notes of the program's own by Parameter, empty at first as in MindSpore; arrays such as `exp_avg` are attributes."""
        return self._notes

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Optimize more Parameters, with settings of their own; their state starts at zero.

        Args:
            param_group: ``params``, and settings that differ from the optimizer's.

        Raises:
            SporaxTypeError, SporaxValueError, SporaxKeyError: as at construction.
        """
        self._append(param_group)
        self._register()
        frames.touch()

    # Groups may be added later, so each is checked against those before.
    def _append(self, group: Any) -> None:
        name = type(self).__name__
        if not isinstance(group, dict) or "params" not in group:
            raise SporaxTypeError(f"For '{name}', a parameter group must be a dict with 'params', but got {group!r}.")
        unknown = [key for key in group if key not in self.defaults and key not in ("params", INITIAL_RATE)]
        if unknown and self.is_strict:
            raise SporaxKeyError(f"For '{name}', a group may have {('params', *self.defaults)}, but got {unknown}.")
        members = [group["params"]] if isinstance(group["params"], Parameter) else list(group["params"])
        registered = {id(parameter) for owner in self.param_groups for parameter in owner["params"]}
        for member in members:
            if not isinstance(member, Parameter):
                raise SporaxTypeError(f"For '{name}', a group must hold Parameters, but got {type(member).__name__}.")
            if id(member) in registered:
                raise SporaxValueError(
                    f"For '{name}', every parameter must be given once, but '{member.name}' is there twice."
                )
            registered.add(id(member))
        settings = {"weight_decay": 0.0, **self.defaults, **group, "params": members}
        self.check_settings(settings)
        self.param_groups.append(ParameterGroup(settings, self, len(self.param_groups)))
        self.group_start_id.append(self.group_start_id[-1] + len(members))

    def _register(self) -> None:
        """Make the Parameters and their state known to the Cell; state that is there already stays."""
        self.parameters = ParameterTuple(p for group in self.param_groups for p in group["params"])
        self.params = self.parameters
        self.lrs = [group["lr"] for group in self.param_groups]
        for slot in self._all_slots():
            # Groups are only added, so positions stay.
            old = tuple(self._slots.get(slot, ()))
            new = (self.new_slot(slot, parameter) for parameter in self.parameters[len(old) :])
            self._slots[slot] = ParameterTuple((*old, *new))
            setattr(self, slot, self._slots[slot])
        self.note_settings()

    def _all_slots(self) -> tuple[str, ...]:
        """Names of all state arrays that any group needs."""
        return tuple(dict.fromkeys(slot for group in self.param_groups for slot in self.slots_of(group)))

    def new_slot(self, slot: str, parameter: Parameter) -> Parameter:
        """The state `slot` of a Parameter before the first step: zeros."""
        return filled_like(parameter, f"{slot}.{parameter.name}", 0.0)

    def slots_of(self, group: dict[str, Any]) -> tuple[str, ...]:
        """Names of the state arrays that `step` takes for the Parameters of a group."""
        return self.slots

    def check_settings(self, settings: dict[str, Any]) -> None:
        """Raise unless the settings of a group are allowed; ``lr`` and ``weight_decay`` are looked at here."""
        name = type(self).__name__
        _checked_rate(name, settings["lr"])
        not_negative(name, "weight_decay", settings["weight_decay"])
        flag(name, "maximize", settings.get("maximize", False))

    def note_settings(self) -> None:
        """Tell compiled steps what they take as fixed: every setting but the rates."""
        for slot in self._all_slots():
            # A setting that was changed, such as `amsgrad`, needs more state.
            if slot not in self._slots:
                self._register()
                return
        fixed = [
            f"{key}={value!r}"
            for group in self.param_groups
            for key, value in group.items()
            if key not in ("params", "lr", INITIAL_RATE)
        ]
        # A plain attribute, which compiled steps take as fixed.
        self.fixed_settings = (*fixed, str(self.group_start_id))

    def construct(self, gradients: Any) -> bool:
        grads = self._checked(gradients)
        shared = self.prepare()
        for group, first in zip(self.param_groups, self.group_start_id, strict=False):
            at = GroupStep(group, group["lr"].array, shared)
            for index, parameter in enumerate(group["params"], first):
                holders = (parameter, *(self._slots[slot][index] for slot in self.slots_of(group)))
                values = [holder.array for holder in holders]
                gradient = grads[index].astype(values[0].dtype)
                # Going up is going down along the negated gradient.
                gradient = -gradient if group.get("maximize") else gradient
                if group["weight_decay"] and not self.decoupled_decay:
                    gradient = gradient + group["weight_decay"] * values[0]
                moved = self.step(at, gradient, *values)
                for holder, old, new in zip(holders, values, moved, strict=True):
                    # A float32 rate must not widen a float16 Parameter.
                    frames.write(holder, new.astype(old.dtype))
        return True

    def step(self, at: GroupStep, gradient: Array, parameter: Array, *slots: Array) -> tuple[Array, ...]:
        """New values of one Parameter and its state.

        Args:
            at: settings, learning rate and the like.
            gradient, parameter, slots: arrays of one shape; the gradient points upwards already when maximizing, and includes
                weight decay unless `decoupled_decay`.
        """
        raise NotImplementedError

    @property
    def learning_rate(self) -> Parameter:
        """The learning rate of the first group."""
        return self.param_groups[0]["lr"]

    def get_lr(self) -> Any:
        """The learning rate; a tuple with one per Parameter when there are several groups."""
        rates = tuple(wrap(holder.array) for holder in self._rate_holders())
        return rates if len(self.param_groups) > 1 else rates[0]

    def _rate_holders(self) -> list[Any]:
        return [group["lr"] for group in self.param_groups for _ in group["params"]]

    def get_weight_decay(self) -> tuple[float, ...]:
        """Weight decay of each Parameter."""
        return tuple(float(group["weight_decay"]) for group in self.param_groups for _ in group["params"])


def filled_like(parameter: Parameter, name: str, value: float) -> Parameter:
    """State of one Parameter, with one number everywhere; that of a lazy one is lazy, too."""
    if not parameter.has_init:
        return Parameter(wrap(jnp.full_like(parameter.array, value)), name=name)
    with no_init_parameters():
        return Parameter(initializer(value, parameter.shape, parameter.dtype), name=name)


def _groups(name: str, params: Any) -> list[Any]:
    # Sets have no order, by which gradients come.
    if params is None or isinstance(params, set | Cell) or not isinstance(params, Iterable):
        kind = SporaxValueError if params is None else SporaxTypeError
        raise kind(
            f"For '{name}', 'params' must be an ordered iterable of Parameters or dicts, but got {type(params).__name__}."
        )
    groups = list(params)
    if not groups:
        raise SporaxValueError(f"For '{name}', 'params' must not be empty.")
    return groups


def _rate(name: str, value: Any, index: int) -> Parameter:
    return Parameter(_checked_rate(name, value), name=f"learning_rate_group_{index}", requires_grad=False)


def _checked_rate(name: str, value: Any) -> Tensor:
    if isinstance(value, Tensor):
        SporaxValueError.raise_if(value.ndim, name, "lr", "be a number or a scalar Tensor", f"shape {value.shape}")
        return value.astype(dtypes.float32)
    not_negative(name, "lr", value)
    return Tensor(float(value), dtypes.float32)


def not_negative(name: str, what: str, value: Any) -> None:
    """Raise unless `value` is a number >= 0."""
    check_type(name, what, value, "a number", int | float, takes_bool=False)
    SporaxValueError.raise_if(not 0 <= value < math.inf, name, what, "be >= 0 and finite", value)


def check_betas(name: str, betas: Any, kinds: Any = float) -> None:
    """Raise unless `betas` are two numbers of these types in [0, 1)."""
    if not isinstance(betas, tuple | list) or any(not isinstance(beta, kinds) for beta in betas):
        raise SporaxTypeError(f"For '{name}', 'betas' must be two floats, but got {betas!r}.")
    if len(betas) != 2 or not all(0.0 <= beta < 1.0 for beta in betas):
        raise SporaxValueError(f"For '{name}', 'betas' must be two floats in [0, 1), but got {betas}.")


def flag(name: str, what: str, value: Any) -> None:
    """Raise unless `value` is a bool."""
    check_type(name, what, value, "a bool", bool)


class SGD(Optimizer):
    """Gradient descent with optional momentum.

    With gradient g (plus ``weight_decay * p``): v is g in the first step, then momentum · v + (1 - dampening) · g;
    p = p - lr · v, or with `nesterov` p = p - lr · (g + momentum · v).

    Args:
        params, lr, weight_decay, maximize: see `Optimizer`.
        momentum: share of the velocity that stays.
        dampening: share of the gradient that is held back.
        nesterov: look ahead along the velocity; needs momentum and no dampening.
    """

    slots: tuple[str, ...] = ("momentum_buf",)
    is_strict = True

    def __init__(
        self, params: Any, lr: Any, momentum: float = 0, dampening: float = 0, weight_decay: float = 0,
        nesterov: bool = False, *, maximize: bool = False,
    ) -> None:  # fmt: skip
        settings = {"momentum": momentum, "weight_decay": weight_decay, "dampening": dampening, "nesterov": nesterov}
        super().__init__(params, {"lr": lr, **settings, "maximize": maximize})
        self.start_counting()

    def start_counting(self) -> None:
        """Make the counter of steps."""
        self.step_t = Parameter(Tensor(0, dtypes.int32), name="step_t", requires_grad=False)

    def check_settings(self, settings: dict[str, Any]) -> None:
        super().check_settings(settings)
        for what in ("momentum", "dampening"):
            not_negative("SGD", what, settings[what])
        flag("SGD", "nesterov", settings["nesterov"])
        if settings["nesterov"] and (settings["momentum"] <= 0 or settings["dampening"] != 0):
            raise SporaxValueError(
                "For 'SGD', 'nesterov' needs 'momentum' > 0 and 'dampening' 0, "
                f"but got {settings['momentum']} and {settings['dampening']}."
            )

    def prepare(self) -> Any:
        """Count the step; gives 1 for the first, and less for others."""
        done = self.step_t.array
        frames.write(self.step_t, done + 1)
        return 1 - done

    def step(self, at: GroupStep, gradient: Array, parameter: Array, *slots: Array) -> tuple[Array, ...]:
        (velocity,) = slots
        # Without momentum there is no velocity to keep.
        if not at.group["momentum"]:
            return update_rules.plain_sgd(gradient, parameter, rate=at.rate), velocity
        rule = {name: at.group[name] for name in ("momentum", "dampening", "nesterov")}
        return update_rules.sgd(jnp, gradient, parameter, velocity, at.shared, rate=at.rate, **rule)[:2]


class Adam(Optimizer):
    """Adam (Kingma & Ba 2014), with weight decay as a part of the gradient.

    m = β1 · m + (1 - β1) · g;  v = β2 · v + (1 - β2) · g²;
    p = p - lr / (1 - β1ᵗ) · m / (√v / √(1 - β2ᵗ) + eps).

    Args:
        params, lr, weight_decay, maximize: see `Optimizer`.
        betas: decay rates of the moments, in [0, 1).
        eps: added to the denominator.
        amsgrad: use the largest v so far (Reddi et al. 2018).
    """

    slots: tuple[str, ...] = ("exp_avg", "exp_avg_sq")
    is_strict = True
    beta_types: ClassVar[Any] = float
    first_count = 0.0
    """What `state_step` starts from; checkpoints hold it."""

    def __init__(
        self, params: Any, lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0.0, amsgrad: bool = False, *, maximize: bool = False,
    ) -> None:  # fmt: skip
        settings = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**settings, "amsgrad": amsgrad, "maximize": maximize})
        self.state_step = Parameter(self.counter(), name="state_step", requires_grad=False)

    def counter(self) -> Tensor:
        """The counter of steps before the first one."""
        return Tensor([self.first_count], dtypes.float32)

    def check_settings(self, settings: dict[str, Any]) -> None:
        super().check_settings(settings)
        name, betas = type(self).__name__, settings["betas"]
        not_negative(name, "eps", settings["eps"])
        flag(name, "amsgrad", settings["amsgrad"])
        check_betas(name, betas, self.beta_types)

    def slots_of(self, group: dict[str, Any]) -> tuple[str, ...]:
        """Two moments, and with `amsgrad` the largest second one."""
        return (*self.slots, "max_exp_avg_sq") if group["amsgrad"] else self.slots

    def prepare(self) -> jax.Array:
        """Count the step; gives its number, 1 for the first."""
        count = self.state_step.array + 1
        frames.write(self.state_step, count)
        # The counter starts at `first_count`, the step number at 1.
        return count.reshape(()).astype(jnp.float32) - self.first_count

    def step(self, at: GroupStep, gradient: Array, parameter: Array, *slots: Array) -> tuple[Array, ...]:
        first, second, *largest = slots
        decay, (beta1, beta2) = at.group["weight_decay"], at.group["betas"]
        # Decoupled: not part of the moments.
        if decay and self.decoupled_decay:
            parameter = parameter - at.rate * decay * parameter
        first = beta1 * first + (1 - beta1) * gradient
        second = beta2 * second + (1 - beta2) * jnp.square(gradient)
        if at.group["amsgrad"]:
            largest = [jnp.maximum(largest[0], second)]
        spread = jnp.sqrt(largest[0] if at.group["amsgrad"] else second)
        # The correction is of the second moment, so its root divides the root.
        denominator = self.denominator(spread, jnp.sqrt(bias_correction(beta2, at.shared)), at.group["eps"])
        return parameter - at.rate / bias_correction(beta1, at.shared) * first / denominator, first, second, *largest

    def denominator(self, spread: jax.Array, correction: jax.Array, eps: float) -> jax.Array:
        """What the step is divided by, of √v and its bias correction."""
        return spread / correction + eps


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019): p loses ``lr * weight_decay * p`` before its step.

    Args: as `Adam`.
    """

    decoupled_decay = True
    first_count = -1.0

    @taking(Adam.__init__, weight_decay=1e-2)
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)


class FusedAdamW(AdamW):
    """Same as `AdamW`: every optimizer is one compiled program here, so there is nothing more to fuse."""


def bias_correction(beta: float, count: jax.Array) -> jax.Array:
    """``1 - beta ** count`` in float32, without the digits that subtraction from 1 loses."""
    # expm1 keeps the digits that 1 - beta ** count would lose.
    return -jnp.expm1(count * math.log(beta)) if beta else jnp.ones_like(count)
