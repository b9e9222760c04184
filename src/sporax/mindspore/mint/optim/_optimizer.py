"""SGD, Adam and AdamW as PyTorch and `mindspore.mint.optim` define them, and what they share with those of `experimental.optim`.

That is groups of Parameters with own settings, and state. To whoever runs a step they are like any optimizer of
`sporax.mindspore.nn`. Unlike those, they keep every setting in `param_groups`, where it may be looked up and changed at any time.
"""

from __future__ import annotations

import inspect
import math
from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from types import ModuleType
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base import update_rules
from sporax.base.errors import For, SporaxKeyError, SporaxTypeError, SporaxValueError, check_type, named
from sporax.base.lazy_members import dataclass
from sporax.mindspore._declared import fields_of, setting
from sporax.mindspore.common import Parameter, ParameterTuple, Tensor, dtypes, wrap
from sporax.mindspore.nn.cell import Cell
from sporax.mindspore.nn.optim._optimizer import Array as Array, DeclaredOptimizer, Step, check_members, listed
from sporax.runtime.state import frames

INITIAL_RATE = "initial_lr"
"""Where the schedules of `experimental.optim.lr_scheduler` keep the rate that a group started with."""


@dataclass(frozen=True, slots=True)
class GroupStep(Step):
    """What `Optimizer.move` may use besides gradient, Parameter and state.

    Attributes:
        group: settings of the Parameter's group.
        shared: number of the step, see `Optimizer.prepare`.
    """

    group: Mapping[str, Any]

    @property
    def step(self) -> jax.Array:
        """Number of the step, 1 for the first, in float32."""
        return self.shared


# Fields that many optimizers have.
LR_DOC = "learning rate, a number or a scalar Tensor."
DECAY = setting(None, "L2 penalty, added to the gradient.", default=0.0)
MAXIMIZE = setting(None, "go up instead of down.", default=False, kind=inspect.Parameter.KEYWORD_ONLY)


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


class Optimizer(DeclaredOptimizer):
    """Base of the optimizers of `mint.optim` and `experimental.optim`.

    A subclass states its arguments, its state (`slots`) and how one Parameter moves (`rule`), or has a `construct` of its own.

    Args:
        params: Parameters, or groups: dicts with ``params`` and settings of their own.
        defaults: every setting and its value where a group has none of its own: ``lr``, the learning rate, a number or a scalar
            Tensor; ``weight_decay``, an L2 penalty; ``maximize``: go up instead of down; …

    Raises:
        SporaxTypeError, SporaxValueError, SporaxKeyError: bad settings or Parameters; the message names them.
    """

    counts_in: ClassVar[str] = ""
    """Name of the Parameter that counts steps, if there is one."""

    first_count: ClassVar[np.ndarray] = np.zeros((), np.int32)
    """What it starts from; checkpoints hold it."""

    is_strict = False
    """Whether groups have no settings but those of `defaults`; else others are kept for whoever reads them."""

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        # Not nn.Optimizer's: settings live in `param_groups` alone.
        Cell.__init__(self, auto_prefix=False)
        self.loss_scale = 1.0
        self.defaults = defaults
        self.param_groups: list[ParameterGroup] = []
        self.group_start_id = [0]
        self._slots: dict[str, ParameterTuple] = {}
        self._notes: defaultdict[Any, dict[str, Any]] = defaultdict(dict)
        name = type(self).__name__
        # Sets have no order, by which gradients come.
        groups = listed(name, params, "an ordered iterable", set | Cell)
        For(name).refuse(not groups, "'params' must not be empty")
        for group in groups if isinstance(groups[0], dict) else [{"params": groups}]:
            self._append(group)
        self._register()

    def _begin(self, values: dict[str, Any]) -> None:
        params, defaults = values.pop("params"), dict(values)
        values.clear()
        Optimizer.__init__(self, params, defaults)

    def _prepare(self) -> None:
        if self.counts_in:
            counter = Parameter(Tensor(self.first_count), name=self.counts_in, requires_grad=False)
            setattr(self, self.counts_in, counter)

    def _constant(self, name: str) -> Any:
        return self.defaults[name]

    def _setting(self, name: str, at: Any) -> Any:
        return at.group[name] if name in at.group else getattr(self, name)

    def prepare(self) -> Any:
        """Count the step; gives its number, 1 for the first, in float32."""
        if not self.counts_in:
            return None
        counter = getattr(self, self.counts_in)
        count = counter.array + 1
        frames.write(counter, count)
        return (count - self.first_count).reshape(()).astype(jnp.float32)

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
        check_members(name, members)
        for member in members:
            if id(member) in registered:
                raise For(name).error(f"every parameter must be given once, but '{member.name}' is there twice")
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

    def slots_of(self, group: dict[str, Any]) -> tuple[str, ...]:
        """Names of the state arrays that `move` takes for the Parameters of a group."""
        return self.slots

    def check_settings(self, settings: dict[str, Any]) -> None:
        """Raise unless the settings of a group are allowed."""
        name = type(self).__name__
        _checked_rate(name, settings["lr"])
        not_negative(name, "weight_decay", settings["weight_decay"])
        flag(name, "maximize", settings.get("maximize", False))
        for field in fields_of(type(self)):
            if field.name not in ("params", "lr"):
                field.checked(name, settings[field.name])

    def note_settings(self) -> None:
        """Set for compiled steps what they take as fixed: every setting but the rates."""
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
            decay = group["weight_decay"]
            at = GroupStep(group["lr"].array, decay if self.decoupled_decay else 0.0, None, shared, group)
            for index, parameter in enumerate(group["params"], first):
                holders = (parameter, *(self._slots[slot][index] for slot in self.slots_of(group)))
                values = [holder.array for holder in holders]
                gradient = grads[index].astype(values[0].dtype)
                # Going up is going down along the negated gradient.
                gradient = -gradient if group.get("maximize") else gradient
                if decay and not self.decoupled_decay:
                    gradient = gradient + decay * values[0]
                moved = self.move(gradient, *values, at=at)
                for holder, old, new in zip(holders, values, moved, strict=True):
                    # A float32 rate must not widen a float16 Parameter.
                    frames.write(holder, new.astype(old.dtype))
        return True

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


def _rate(name: str, value: Any, index: int) -> Parameter:
    return Parameter(_checked_rate(name, value), name=f"learning_rate_group_{index}", requires_grad=False)


def _checked_rate(name: str, value: Any) -> Tensor:
    if isinstance(value, Tensor):
        For(name).refuse(value.ndim, "'lr' must be a number or a scalar Tensor", f"shape {value.shape}")
        return value.astype(dtypes.float32)
    not_negative(name, "lr", value)
    return Tensor(float(value), dtypes.float32)


def not_negative(name: str, what: str, value: Any) -> None:
    """Raise unless `value` is a number >= 0."""
    For(name).typed(what, value, "a number", int | float, takes_bool=False)
    For(name).refuse(not 0 <= value < math.inf, f"{named(what)} must be >= 0 and finite", value)


def two_betas(name: str, what: str, value: Any, kinds: Any = float) -> None:
    """Raise unless `value` are two numbers of these types in [0, 1)."""
    if not isinstance(value, tuple | list) or any(not isinstance(beta, kinds) for beta in value):
        raise SporaxTypeError(f"For '{name}', '{what}' must be two floats, but got {value!r}.")
    if len(value) != 2 or not all(0.0 <= beta < 1.0 for beta in value):
        raise SporaxValueError(f"For '{name}', '{what}' must be two floats in [0, 1), but got {value}.")


def betas(check: Any) -> Any:
    """The field of both decay rates, with this check."""
    return setting(check, "decay rates of the moments, in [0, 1).", default=(0.9, 0.999))


flag = partial(check_type, expected="a bool", types=bool)


class SGD(Optimizer):
    """Gradient descent with optional momentum.

    With gradient g (plus ``weight_decay * p``): v is g in the first step, then momentum · v + (1 - dampening) · g;
    p = p - lr · v, or with `nesterov` p = p - lr · (g + momentum · v).
    """

    lr: Any = setting(None, LR_DOC)
    momentum: float = setting(not_negative, "share of the velocity that stays.", default=0)
    dampening: float = setting(not_negative, "share of the gradient that is held back.", default=0)
    weight_decay: float = setting(None, DECAY.doc, default=0)
    nesterov: bool = setting(flag, "look ahead along the velocity; needs momentum and no dampening.", default=False)
    maximize: bool = MAXIMIZE

    slots: tuple[str, ...] = ("momentum_buf",)
    rule = update_rules.sgd
    is_strict = True
    counts_in = "step_t"

    def check_settings(self, settings: dict[str, Any]) -> None:
        super().check_settings(settings)
        if settings["nesterov"] and (settings["momentum"] <= 0 or settings["dampening"] != 0):
            raise For("SGD").error(
                "'nesterov' needs 'momentum' > 0 and 'dampening' 0", settings["momentum"], settings["dampening"]
            )

    def move(self, gradient: Array, parameter: Array, *slots: Array, at: Any) -> tuple[Array, ...]:
        """As `rule`, or without momentum, which leaves the state as it is."""
        if not at.group["momentum"]:
            return update_rules.plain_sgd(gradient, parameter, rate=at.rate), *slots
        # 1 for the first step, and less for others, where no state says so.
        firsts = slots[1:] or (2 - at.step,)
        return super().move(gradient, parameter, slots[0], *firsts, at=at)[: len(slots) + 1]


def bias_correction(beta: float, step: jax.Array) -> jax.Array:
    """``1 - beta ** step`` in float32, without the digits that subtraction from 1 loses."""
    # expm1 keeps the digits that 1 - beta ** step would lose.
    return -jnp.expm1(step * math.log(beta)) if beta else jnp.ones_like(step)


def adam(
    xp: ModuleType, gradient: Array, parameter: Array, first: Array, second: Array, *largest: Array, rate: Array, step: Array,
    decay: float, betas: tuple[float, float], eps: float, amsgrad: bool, corrects_eps: bool,
) -> tuple[Array, ...]:  # fmt: skip
    """The rule of `Adam` and `AdamW`: new parameter and moments; `decay` is the decoupled one."""
    beta1, beta2 = betas
    # Decoupled: not part of the moments.
    if decay:
        parameter = parameter - rate * decay * parameter
    first, second = update_rules.moments(xp, gradient, first, second, beta1, beta2, 1 - beta1, 1 - beta2)
    if amsgrad:
        largest = (xp.maximum(largest[0], second),)
    spread = xp.sqrt(largest[0] if amsgrad else second)
    # The correction is of the second moment, so its root divides the root.
    correction = xp.sqrt(bias_correction(beta2, step))
    divisor = (spread + eps) / correction if corrects_eps else spread / correction + eps
    return parameter - rate / bias_correction(beta1, step) * first / divisor, first, second, *largest


class Adam(Optimizer):
    """Adam (Kingma & Ba 2014), with weight decay as a part of the gradient.

    m = β1 · m + (1 - β1) · g;  v = β2 · v + (1 - β2) · g²;
    p = p - lr / (1 - β1ᵗ) · m / (√v / √(1 - β2ᵗ) + eps).
    """

    lr: Any = setting(None, LR_DOC, default=1e-3)
    betas: tuple[float, float] = betas(two_betas)
    eps: float = setting(not_negative, "added to the denominator.", default=1e-8)
    weight_decay: float = DECAY
    amsgrad: bool = setting(flag, "use the largest v so far (Reddi et al. 2018).", default=False)
    maximize: bool = MAXIMIZE

    slots: tuple[str, ...] = ("exp_avg", "exp_avg_sq")
    rule = adam
    corrects_eps = False
    """Whether `eps` is added before bias correction."""
    is_strict = True
    counts_in = "state_step"
    first_count = np.zeros(1, np.float32)

    def slots_of(self, group: dict[str, Any]) -> tuple[str, ...]:
        """Two moments, and with `amsgrad` the largest second one."""
        return (*self.slots, "max_exp_avg_sq") if group["amsgrad"] else self.slots


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019): p loses ``lr * weight_decay * p`` before its step."""

    weight_decay: float = setting(None, "decoupled decay.", default=1e-2)

    decoupled_decay = True
    first_count = np.full(1, -1.0, np.float32)


class FusedAdamW(AdamW):
    """Same as `AdamW`: every optimizer is one compiled program here, so there is nothing more to fuse."""
