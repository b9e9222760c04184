"""What all optimizers share: groups of Parameters, learning rates, weight decay, gradient scaling, state.

An optimizer class states its state (`slots`) and how one Parameter moves (`move`), in plain array arithmetic. Calling it
with gradients is always one compiled program, also in PYNATIVE_MODE, and part of the step's program inside one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax.common import dtype as dtypes
from sporax.common.parameter import Parameter, ParameterTuple
from sporax.common.tensor import Tensor, wrap
from sporax.ir.errors import SporaxKeyError, SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.nn.cell import Cell
from sporax.nn.learning_rate_schedule import LearningRateSchedule
from sporax.runtime import state

GROUP_KEYS = ("params", "lr", "weight_decay", "grad_centralization", "order_params")


@dataclass(frozen=True, slots=True)
class Setting:
    """How one Parameter is treated.

    Attributes:
        rate: which learning rate of `Optimizer.rates` it uses.
        decay: weight decay, 0 for none: a number or a schedule.
        centralize: subtract the mean of the gradient over all dimensions but the first.
    """

    rate: int
    decay: Any
    centralize: bool


class Optimizer(Cell):
    """Base of all optimizers.

    Args:
        learning_rate: number, list or 1-D Tensor with one rate per step, or a LearningRateSchedule.
        parameters: Parameters, or dicts with ``params`` and settings of that group, and at most one ``order_params``.
        weight_decay: number or schedule; Parameters named like ``gamma`` or ``beta`` are not decayed unless grouped.
        loss_scale: gradients are divided by it.

    Raises:
        SporaxTypeError, SporaxValueError, SporaxKeyError, SporaxRuntimeError: bad settings; the message names them.
    """

    slots: tuple[str, ...] = ()
    """Names of the state arrays of one Parameter; state Parameters are called ``slot.parameter``."""

    def __init__(self, learning_rate: Any, parameters: Any, weight_decay: Any = 0.0, loss_scale: float = 1.0) -> None:
        super().__init__(auto_prefix=False)
        name = type(self).__name__
        self.loss_scale = _positive(name, "loss_scale", loss_scale)
        decay = _decay(name, weight_decay)
        groups = _groups(name, parameters)
        self.rates: list[Any] = []
        settings: dict[int, Setting] = {}
        self.global_step = Parameter(Tensor([0], dtypes.int32), name="global_step")
        grouped = isinstance(groups[0], dict)
        main_rate = self._add_rate("learning_rate", learning_rate)
        ordered: list[Parameter] = []
        for index, group in enumerate(groups if grouped else [{"params": groups}]):
            rate = main_rate
            if "lr" in group:
                rate = self._add_rate(f"learning_rate_group_{index}", group["lr"])
            for parameter in group["params"]:
                if id(parameter) in settings:
                    raise SporaxRuntimeError(f"For '{name}', parameter '{parameter.name}' is in more than one group.")
                own = _decay(name, group["weight_decay"]) if "weight_decay" in group else decay
                if not grouped and ("beta" in parameter.name or "gamma" in parameter.name):
                    own = 0.0
                settings[id(parameter)] = Setting(rate, own, bool(group.get("grad_centralization", False)))
                ordered.append(parameter)
        self.parameters = ParameterTuple(_reordered(name, groups, ordered) if grouped else ordered)
        self.settings = tuple(settings[id(parameter)] for parameter in self.parameters)
        self.params = self.parameters
        self.is_group = grouped
        self._slots: dict[str, ParameterTuple] = {}

    def _add_rate(self, name: str, value: Any) -> int:
        """Keep a learning rate, as a Parameter that users may set unless it is a schedule; gives its position."""
        if isinstance(value, LearningRateSchedule):
            self.rates.append(value)
            setattr(self, name, value)
        else:
            array = _rate_array(type(self).__name__, value)
            parameter = Parameter(Tensor(array, dtypes.float32), name=name)
            self.rates.append(parameter)
            setattr(self, name, parameter)
        return len(self.rates) - 1

    def add_slot(self, slot: str, value: str | float = "zeros") -> None:
        """Make one state array per Parameter, filled with a number, named ``slot.parameter``."""
        fill = 0.0 if value == "zeros" else float(value)

        def make(parameter: Parameter) -> Parameter:
            zeros = wrap(jnp.full(parameter.shape, fill, parameter.dtype.np_dtype))
            return Parameter(zeros, name=f"{slot}.{parameter.name}")

        self._slots[slot] = ParameterTuple(make(parameter) for parameter in self.parameters)
        setattr(self, slot.replace(".", "_"), self._slots[slot])

    # ---------------------------------------------------------------------------------------------------- one step

    def __call__(self, gradients: Any) -> Any:
        """Update all Parameters.

        Args:
            gradients: tuple of Tensors, one per Parameter in the order of `parameters`.

        Raises:
            SporaxRuntimeError: another number of gradients.
            SporaxValueError: a gradient has another shape than its Parameter.
        """
        if state.current_frame() is None:
            return self.program(gradients)
        return self._run(gradients)

    def construct(self, gradients: Sequence[Tensor]) -> tuple[bool, ...]:
        """See `__call__`."""
        grads = self._checked(gradients)
        step = self.global_step.array[0]
        rates = [_rate_at(rate, step) for rate in self.rates]
        shared = self.prepare()
        for index, (parameter, setting) in enumerate(zip(self.parameters, self.settings, strict=True)):
            values = [parameter.array, *(self._slots[slot][index].array for slot in self.slots)]
            gradient = self._prepared(grads[index], values[0], setting)
            decay = _decay_at(setting.decay, step)
            moved = self.move(gradient, *values, rate=rates[setting.rate], decay=decay, shared=shared)
            for holder, old, new in zip(
                (parameter, *(self._slots[slot][index] for slot in self.slots)), values, moved, strict=True
            ):
                state.write(holder, new.astype(old.dtype))
        state.write(self.global_step, self.global_step.array + 1)
        return (True,) * len(self.parameters)

    def prepare(self) -> Any:
        """What all Parameters of a step share, e.g. powers of decay rates; updates it."""
        return None

    def move(self, gradient: Any, parameter: Any, *slots: Any, rate: Any, decay: Any, shared: Any) -> tuple[Any, ...]:
        """New values of one Parameter and its state.

        Args:
            gradient, parameter, slots: arrays of one shape.
            rate: learning rate, scalar array.
            decay: weight decay, scalar array or number.
            shared: what `prepare` returned.
        """
        raise NotImplementedError

    def _prepared(self, gradient: jax.Array, value: jax.Array, setting: Setting) -> jax.Array:
        gradient = gradient.astype(value.dtype)
        if self.loss_scale != 1.0:
            gradient = gradient * jnp.asarray(1.0 / self.loss_scale, gradient.dtype)
        if setting.centralize and gradient.ndim > 1:
            gradient = gradient - jnp.mean(gradient, tuple(range(1, gradient.ndim)), keepdims=True)
        return gradient

    def _checked(self, gradients: Any) -> list[jax.Array]:
        name = type(self).__name__
        if not isinstance(gradients, tuple | list):
            gradients = (gradients,)
        if len(gradients) != len(self.parameters):
            raise SporaxRuntimeError(
                f"For '{name}', there must be one gradient per parameter ({len(self.parameters)}), but got {len(gradients)}."
            )
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            if not isinstance(gradient, Tensor):
                raise SporaxTypeError(
                    f"For '{name}', the gradient of '{parameter.name}' must be a Tensor, but got {type(gradient).__name__}."
                )
            if gradient.shape != parameter.shape:
                raise SporaxValueError(
                    f"For '{name}', the gradient of '{parameter.name}' has shape {gradient.shape}, "
                    f"but the parameter has shape {parameter.shape}."
                )
        return [gradient.array for gradient in gradients]

    # ---------------------------------------------------------------------------------------------------- questions

    def get_lr(self) -> Any:
        """The learning rate of the present step; a tuple with one per Parameter when groups differ."""
        step = self.global_step.array[0]
        rates = tuple(wrap(_rate_at(self.rates[setting.rate], step)) for setting in self.settings)
        return rates if len(self.rates) > 1 else rates[0]

    def get_lr_parameter(self, param: Any) -> Any:
        """The holder of the learning rate of a Parameter (or of each of several).

        Raises:
            SporaxTypeError: not a Parameter of this optimizer.
        """
        if isinstance(param, tuple | list):
            return [self.get_lr_parameter(each) for each in param]
        for parameter, setting in zip(self.parameters, self.settings, strict=True):
            if parameter is param:
                return self.rates[setting.rate]
        raise SporaxTypeError(f"For '{type(self).__name__}', {param!r} is not one of its parameters.")

    def get_weight_decay(self) -> Any:
        """Weight decay of each Parameter at the present step."""
        step = self.global_step.array[0]
        return tuple(_decay_at(setting.decay, step) for setting in self.settings)


# ------------------------------------------------------------------------------------------------------------ settings


def _groups(name: str, parameters: Any) -> list[Any]:
    if parameters is None or isinstance(parameters, Cell) or not isinstance(parameters, Iterable):
        kind = SporaxValueError if parameters is None else SporaxTypeError
        raise kind(
            f"For '{name}', 'params' must be an iterable of Parameters or dicts, but got {type(parameters).__name__}."
        )
    groups = list(parameters)
    if not groups:
        raise SporaxValueError(f"For '{name}', 'params' must not be empty.")
    for entry in groups:
        if isinstance(entry, dict) != isinstance(groups[0], dict) or not isinstance(entry, dict | Parameter):
            raise SporaxTypeError(
                f"For '{name}', 'params' must hold either Parameters or dicts, but got {type(entry).__name__} among them."
            )
    return (
        [_checked_group(name, group) for group in groups if _is_parameter_group(name, group)]
        if isinstance(groups[0], dict)
        else groups
    )


def _is_parameter_group(name: str, group: dict[str, Any]) -> bool:
    unknown = [key for key in group if key not in GROUP_KEYS]
    if unknown:
        raise SporaxKeyError(f"For '{name}', the keys of a parameter group must be in {GROUP_KEYS}, but got {unknown}.")
    if "order_params" in group:
        if len(group) > 1:
            raise SporaxValueError(
                f"For '{name}', the group with 'order_params' must have no other key, got {list(group)}."
            )
        return True
    if "params" not in group:
        raise SporaxKeyError(f"For '{name}', a parameter group needs the key 'params', but got {list(group)}.")
    return True


def _checked_group(name: str, group: dict[str, Any]) -> dict[str, Any]:
    if "order_params" in group:
        return {"params": [], "order_params": list(group["order_params"])}
    members = list(group["params"])
    if not members:
        raise SporaxValueError(f"For '{name}', a parameter group must not be empty.")
    for member in members:
        if not isinstance(member, Parameter):
            raise SporaxTypeError(f"For '{name}', a group must hold Parameters, but got {type(member).__name__}.")
    return {**group, "params": members}


def _reordered(name: str, groups: list[dict[str, Any]], ordered: list[Parameter]) -> list[Parameter]:
    wanted = next((group["order_params"] for group in groups if "order_params" in group), None)
    if wanted is None:
        return ordered
    if {id(parameter) for parameter in wanted} != {id(parameter) for parameter in ordered}:
        raise SporaxValueError(f"For '{name}', 'order_params' must hold exactly the parameters of the groups.")
    return list(wanted)


def _positive(name: str, what: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SporaxTypeError(f"For '{name}', '{what}' must be a number, but got {type(value).__name__}.")
    if value <= 0:
        raise SporaxValueError(f"For '{name}', '{what}' must be positive, but got {value}.")
    return float(value)


def _decay(name: str, value: Any) -> Any:
    if isinstance(value, Cell):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SporaxTypeError(
            f"For '{name}', 'weight_decay' must be a number or a Cell, but got {type(value).__name__}."
        )
    if value < 0:
        raise SporaxValueError(f"For '{name}', 'weight_decay' must be >= 0, but got {value}.")
    return float(value)


def _rate_array(name: str, value: Any) -> np.ndarray[Any, Any]:
    if isinstance(value, Tensor):
        value = value.asnumpy()
    if isinstance(value, str):
        raise SporaxValueError(f"For '{name}', the 'learning rate' must be float and must >= 0, but got '{value}'.")
    if not isinstance(value, int | float | np.ndarray | list | tuple | Iterable):
        raise SporaxTypeError(
            f"For '{name}', the 'learning_rate' must be a number, list, 1-D Tensor or schedule, but got {type(value).__name__}."
        )
    array = np.asarray(value if isinstance(value, int | float | np.ndarray) else list(value), np.float32)
    if array.ndim > 1:
        raise SporaxValueError(
            f"For '{name}', the 'learning_rate' must have at most 1 dimension, but got {array.ndim}."
        )
    if array.size == 0 or float(array.min()) < 0:
        raise SporaxValueError(
            f"For '{name}', the 'learning rate' must be float and must >= 0, but got '{value}' "
            f"with type '{type(value).__name__}'."
        )
    return array


def _rate_at(rate: Any, step: jax.Array) -> jax.Array:
    """The learning rate at a step (0 for the first)."""
    if isinstance(rate, LearningRateSchedule):
        result: jax.Array = rate(wrap(step)).array
        return result
    values: jax.Array = rate.array
    return values if values.ndim == 0 else values[jnp.clip(step, 0, values.shape[0] - 1)]


def _decay_at(decay: Any, step: jax.Array) -> Any:
    return decay(wrap(step)).array if isinstance(decay, Cell) else decay
