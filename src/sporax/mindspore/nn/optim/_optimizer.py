"""What all optimizers share: groups of Parameters, learning rates, weight decay, gradient scaling, state.

An optimizer class is a declaration: its arguments (fields, see `_declared`), its state (`slots`) and the formula by which one
Parameter moves (`rule`), a pure function of arrays. Calling it with gradients is always one compiled program, also in
PYNATIVE_MODE, and part of the step's program inside one.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base import update_rules
from sporax.base.errors import For, SporaxKeyError, SporaxRuntimeError, SporaxTypeError, SporaxValueError, named
from sporax.base.lazy_members import dataclass
from sporax.lowering import marks as trace_marks, passes
from sporax.mindspore import _declared as declared, context
from sporax.mindspore.common import (
    Parameter,
    ParameterTuple,
    Tensor,
    _deferred_gradients as deferred_gradients,
    dtypes,
    no_init_parameters,
    wrap,
)
from sporax.mindspore.common.initializer import initializer
from sporax.mindspore.nn import _arguments as argument
from sporax.mindspore.nn.cell import Cell, Layer
from sporax.mindspore.nn.learning_rate_schedule import LearningRateSchedule
from sporax.mindspore.nn.optim import _helpers
from sporax.mindspore.nn.optim._helpers import OptimizerHelpers, keep_arguments, read_once
from sporax.runtime.ranks import initial_broadcast
from sporax.runtime.state import frames

Array = jax.Array
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


@dataclass(frozen=True, slots=True)
class Step:
    """What `Optimizer.move` may use besides gradient, Parameter and state.

    Attributes:
        rate: learning rate, a scalar array.
        decay: weight decay, scalar array or number; 0.0 where it is part of the gradient already.
        number: how many steps were done before, an int32 scalar.
        shared: what `Optimizer.prepare` returned.
    """

    rate: Any
    decay: Any
    number: Any
    shared: Any

    @property
    def step(self) -> jax.Array:
        """Number of the step, 1 for the first, in float32."""
        return (self.number + 1).astype(jnp.float32)


@dataclass(frozen=True, slots=True)
class Start:
    """State of each Parameter before the first step.

    Attributes:
        value: what it is filled with: a number, or the name of the setting that says it.
        prefix: what the names of the state begin with, in place of ``slot.``, or ``slot_`` of numbers.
        scalar: whether it is one number for each Parameter, in float32, as in MindSpore's checkpoints.
    """

    value: float | str = 0.0
    prefix: str = ""
    scalar: bool = False


# Fields that many optimizers have.
DECAY = declared.setting(None, "L2 penalty, added to the gradient.", default=0.0)
LOCKING = declared.setting(argument.boolean, "accepted for compatibility; steps never overlap.", default=False)
SCALE = declared.setting(None, "gradients are divided by it.", default=1.0)


RATE_DOC = "number, list or 1-D Tensor with one rate per step, or schedule."
rates = functools.partial(declared.setting, None, RATE_DOC)
number = functools.partial(declared.setting, argument.exactly_float, low=-math.inf, high=math.inf)


class _RateList(LearningRateSchedule):
    """One learning rate per step; the last one stays."""

    def __init__(self, values: np.ndarray[Any, Any], name: str) -> None:
        super().__init__()
        self.learning_rate = Parameter(Tensor(values, dtypes.float32), name=name)

    def construct(self, global_step: Tensor) -> Tensor:
        """The rate."""
        values = self.learning_rate.array
        return wrap(values[jnp.clip(global_step.array, 0, values.shape[0] - 1)])


class Optimizer(OptimizerHelpers, Layer):
    """Base of all optimizers.

    Before `move` sees it, a gradient has L2 weight decay added (unless `decoupled_decay`), its mean subtracted where the
    group requests it, and has been divided by the loss scale: MindSpore's order.

    Args:
        learning_rate: number, list or 1-D Tensor with one rate per step, or a LearningRateSchedule.
        parameters: (`params` of derived classes) Parameters, or groups: dicts with ``params`` and settings of their own, and at
            most one with ``order_params``.
        weight_decay: L2 penalty, a number or schedule; without groups, Parameters named like ``gamma`` or ``beta`` have none.
        loss_scale: gradients are divided by it.

    Raises:
        SporaxTypeError, SporaxValueError, SporaxKeyError, SporaxRuntimeError: bad settings; the message names them.
    """

    slots = tuple[str, ...]()
    """Attributes that hold the state, a Parameter for each one that is trained; derived classes may assign others to them."""

    _is_optimizer = True

    decoupled_decay = False
    """Whether `move` applies weight decay itself, instead of finding it in the gradient."""

    spares_norms = True
    """Whether Parameters named like those of norms have no weight decay when there are no groups."""

    lazy_rows = False
    """Whether rows without gradient stay as they are in Parameters marked ``unique`` (tables of sparse lookups)."""

    may_be_dealt = False
    """Whether ``enable_parallel_optimizer`` works with it in data-parallel mode."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Let servers take over their Parameters as soon as an optimizer of this class is complete."""
        super().__init_subclass__(**options)
        # A class without `__init__` uses that of its base, which is wrapped already, unless that is no optimizer.
        if "__init__" in vars(cls) or not hasattr(cls.__init__, _COMPLETES):
            cls.__init__ = _then_serve(cls.__init__)  # type: ignore[method-assign]  # wraps what a derived class wrote

    def __init__(self, learning_rate: Any, parameters: Any, weight_decay: Any = 0.0, loss_scale: float = 1.0) -> None:
        super().__init__(auto_prefix=False)
        self._served: _helpers.ServedParameters | None = None
        name = type(self).__name__
        self.loss_scale = _positive(name, "loss_scale", loss_scale)
        decay = _decay(name, weight_decay)
        groups = _groups(name, parameters)
        self.is_group = isinstance(groups[0], dict)
        self.rates: list[Any] = []
        self.global_step = Parameter(Tensor([0], dtypes.int32), name="global_step")
        rates = self._keep_rates(groups, learning_rate)
        settings: dict[int, Setting] = {}
        for group, rate in zip(groups if self.is_group else [{"params": groups}], rates, strict=False):
            self._add_settings(settings, group, rate, decay)
        ordered = [p for group in groups for p in group["params"]] if self.is_group else groups
        self.parameters = ParameterTuple(_reordered(name, groups, ordered) if self.is_group else ordered)
        self.settings = tuple(settings[id(parameter)] for parameter in self.parameters)
        self.params = self.parameters
        # Read here, too, so that settings that do not fit are refused at this line.
        _ = self._owners
        self._describe_settings(weight_decay, self.is_group and any("order_params" in entry for entry in groups))
        # None: the kind of device that is there.
        self._target: str | None = None
        self._updates_on_host = False

    def _begin(self, values: dict[str, Any]) -> None:
        own = {name: values.pop(name) for name in ("learning_rate", "weight_decay", "loss_scale") if name in values}
        Optimizer.__init__(self, parameters=values.pop("params"), **own)

    def _add_settings(self, settings: dict[int, Setting], group: dict[str, Any], rate: int, decay: Any) -> None:
        """Add the settings of a group's Parameters; `decay` is that of groups without one of their own."""
        name = type(self).__name__
        own = _decay(name, group["weight_decay"]) if "weight_decay" in group else decay
        centralize = bool(group.get("grad_centralization", False))
        for parameter in group["params"]:
            if id(parameter) in settings:
                # MindSpore raises different errors for the two cases.
                raise (SporaxRuntimeError if self.is_group else SporaxValueError)(
                    f"For '{name}', every parameter must be given once, but '{parameter.name}' is there twice."
                )
            # Norms and their shifts are not decayed.
            exempt = not self.is_group and self._exempt_from_decay(parameter)
            settings[id(parameter)] = Setting(rate, 0.0 if exempt else own, centralize)

    @property
    def _owners(self) -> _helpers.Owners | None:
        """Who updates which Parameter, by the parallel settings as they are when a step is compiled."""
        return _helpers.owners(type(self).__name__, self.may_be_dealt, self.parameters)

    @property
    def target(self) -> str:
        """Where the update runs: ``"CPU"`` is the host, ``"Ascend"`` and ``"GPU"`` the accelerator.

        Set to ``"CPU"``, Parameters and state live in host memory between steps, and compiled steps update them on
        the host; in a step that a plan shards, every device's host holds and updates its part, of its pipeline stage.

        Raises:
            SporaxTypeError: when set: not a string.
            SporaxValueError: when set: another name, or an accelerator that is not the one of this process.
        """
        return str(self._target or context.get_context("device_target"))

    @target.setter
    def target(self, value: str) -> None:
        name = type(self).__name__
        For(name).typed("target", value, "a string", str)
        For(name).one_of("target", value, ("CPU", "Ascend", "GPU"))
        if value != "CPU" and value != self.target:
            raise SporaxValueError(f"For '{name}', 'target' must be 'CPU' or '{self.target}', but got '{value}'.")
        self._target = value
        self._updates_on_host = value == "CPU"
        # The state must be where the update runs.
        for holder in (*self.parameters, *(holder for slot in self.slots for holder in getattr(self, slot, ()))):
            holder.on_host = self._updates_on_host
        # Compiled steps were made for the other place.
        frames.touch()

    def _moved(self, gradient: Any, values: Sequence[Any], at: Step, centralize: bool) -> Sequence[Any]:
        """What `move` gives, computed where `target` says; the gradient is prepared where it is."""
        gradient = self._prepared(gradient, values[0], at.decay, centralize)
        # It is part of the gradient by now.
        if not self.decoupled_decay:
            at = replace(at, decay=0.0)
        # Eagerly there is no place to choose.
        if not self._updates_on_host or not frames.compiling():
            return self.move(gradient, *values, at=at)
        frames.note_tag("host")
        return trace_marks.run_on_host(lambda *arrays: self.move(*arrays, at=at), gradient, *values)

    def _rows_moved(self, gradient: Any, values: Sequence[Any], at: Step, centralize: bool) -> Sequence[Any]:
        """What `move` gives in rows that have a gradient; the others stay."""
        # Scalars are traced arguments of the rule, which may run elsewhere.
        numbers, tree = jax.tree.flatten((at.rate, at.decay, at.number, at.shared))
        positions = [place for place, number in enumerate(numbers) if isinstance(number, jax.Array)]

        def rule(gradient: Any, values: Sequence[Any], scalars: Sequence[Any]) -> Sequence[Any]:
            for place, scalar in zip(positions, scalars, strict=True):
                numbers[place] = scalar
            moved = self._moved(gradient, values, Step(*jax.tree.unflatten(tree, numbers)), centralize)
            return _only_touched_rows(gradient, values, moved)

        scalars = [numbers[place] for place in positions]
        # Eagerly, and in plans, all rows are computed, and untouched ones keep their old values.
        if not frames.compiling() or (frames.planning() and not self._updates_on_host):
            return rule(gradient, values, scalars)
        with trace_marks.place_of_work(self._updates_on_host):
            return passes.row_update(rule, gradient, values, scalars)

    def _exempt_from_decay(self, parameter: Parameter) -> bool:
        """Whether the optimizer's weight decay passes over this Parameter when there are no groups."""
        return self.spares_norms and ("beta" in parameter.name or "gamma" in parameter.name)

    def _keep_rates(self, groups: Sequence[Any], learning_rate: object) -> list[int]:
        """Keep learning rates, as Parameters that users may set unless they vary; gives the position of each group's."""
        own = {index: group["lr"] for index, group in enumerate(groups) if self.is_group and "lr" in group}
        names = [*(f"learning_rate_group_{index}" for index in own), "learning_rate"]
        rates = _rate_arrays(type(self).__name__, [*own.values(), learning_rate])
        for name, rate in zip(names, rates, strict=True):
            if isinstance(rate, np.ndarray):
                # A single rate is a Parameter, so that users can change it between steps.
                rate = _RateList(rate, name) if rate.ndim else Parameter(Tensor(rate, dtypes.float32), name=name)
            self.rates.append(rate)
            setattr(self, name, rate)
        # The main one, which groups without their own have, is the last.
        return [list(own).index(index) if index in own else len(own) for index in range(len(groups))]

    def __call__(self, gradients: Any, *others: Any) -> Any:
        """Update all Parameters. An optimizer with a `construct` of its own may take more, and runs as other Cells do.

        Args:
            gradients: tuple of Tensors, one per Parameter in the order of `parameters`.

        Raises:
            SporaxRuntimeError: another number of gradients.
            SporaxValueError: a gradient has another shape than its Parameter.
        """
        if context.plans_only() and frames.current_frame() is None:
            # One step with what has computed the gradients, which is not planned yet.
            results = deferred_gradients.with_update(self._run, (gradients, *others), context.plan_settings)
            if results is not None:
                return results[0]
        if type(self).construct is not Optimizer.construct and not type(self).__module__.startswith("sporax."):
            return super().__call__(gradients, *others)
        # Eagerly too the update is one compiled program.
        if frames.current_frame() is None:
            return self.program(gradients)
        return self._run(gradients)

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        if frames.compiling():
            context.warn_unused(self.parameters)
        # Parameters may have been marked for servers after this optimizer was made.
        # Optimizers of other packages that derive from this class make their state themselves.
        if _helpers.is_outdated(getattr(self, "_served", None), self.parameters):
            object.__setattr__(self, "_served", _helpers.served(self))
            # Their values are others now, so a trace that has read them begins again.
            if frames.compiling():
                raise frames.Retrace
        return super()._run(*args, **kwargs)

    def construct(self, gradients: Sequence[Tensor]) -> tuple[bool, ...]:
        grads = self._checked(gradients)
        if context.starts_from_first_rank():
            initial_broadcast.request(self.get_parameters())
        number = self.global_step.array[0]
        rates = [_rate_at(rate, number) for rate in self.rates]
        shared, owners = self.prepare(), self._owners
        # Servers move their Parameters; the others are moved here.
        if self._served is not None:
            self._served.step(grads, rates)
        for index, (parameter, setting) in enumerate(zip(self.parameters, self.settings, strict=True)):
            if self._served is not None and index in self._served.indices:
                continue
            if not _helpers.is_mine(owners, index):
                continue
            parameter.moved_here = True
            holders = (parameter, *(getattr(self, slot)[index] for slot in self.slots))
            values = [holder.array for holder in holders]
            decay = _decay_at(setting.decay, number)
            at = Step(rates[setting.rate], decay, number, shared)
            if self.lazy_rows and getattr(parameter, "unique", False):
                moved = self._rows_moved(grads[index], values, at, setting.centralize)
            else:
                moved = self._moved(grads[index], values, at, setting.centralize)
            for holder, old, new in zip(holders, values, moved, strict=True):
                # A rate in float32 must not widen a float16 Parameter.
                frames.write(holder, new.astype(old.dtype))
        if owners is not None:
            _helpers.take_over(owners, self.parameters)
        frames.write(self.global_step, self.global_step.array + 1)
        return (True,) * len(self.parameters)

    def prepare(self) -> Any:
        """What all Parameters of a step share, e.g. powers of decay rates; updates it."""
        return None

    def move(self, gradient: Array, parameter: Array, *slots: Array, at: Step) -> tuple[Array, ...]:
        """New values of one Parameter and its state.

        Args:
            gradient, parameter, slots: arrays; gradient and Parameter have one shape.
            at: learning rate and the like.
        """
        raise NotImplementedError

    def server_rule(self) -> tuple[str, dict[str, float]]:
        """The rule by which parameter servers move Parameters in its place, with its constants; see `sporax.ps.slots.update`.

        Raises:
            SporaxRuntimeError: servers do not know this optimizer.
        """
        raise For(type(self).__name__).state_error(
            "parameters must not be on parameter servers, which offer SGD, Momentum, Adagrad, Adam, LazyAdam and FTRL"
        )

    def _prepared(self, gradient: jax.Array, value: jax.Array, decay: Any, centralize: bool) -> jax.Array:
        # Gradients come in the precision of the loss.
        gradient = gradient.astype(value.dtype)
        # The same as MindSpore's order, which adds the decay times the loss scale, and divides last.
        if self.loss_scale != 1.0:
            gradient = gradient * jnp.asarray(1.0 / self.loss_scale, gradient.dtype)
        if not self.decoupled_decay and not is_zero(decay):
            gradient = (gradient + decay * value).astype(value.dtype)
        # MindSpore centralizes only where the second dimension is a multiple of 16; so do we, for equal numbers.
        if centralize and gradient.ndim > 1 and gradient.shape[1] % 16 == 0:
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

    def get_lr(self) -> Any:
        """The learning rate of the present step; a tuple with one per Parameter when groups differ."""
        step = self.global_step.array[0]
        rates = tuple(wrap(_rate_at(self.rates[setting.rate], step)) for setting in self.settings)
        return rates if len(self.rates) > 1 else rates[0]

    def _rate_holders(self) -> list[Any]:
        """The holder of the learning rate of each Parameter."""
        rates = [self.rates[setting.rate] for setting in self.settings]
        return [rate.learning_rate if isinstance(rate, _RateList) else rate for rate in rates]

    def get_lr_parameter(self, param: Any) -> Any:
        """The holder of the learning rate of a Parameter (or of each of several).

        Raises:
            SporaxTypeError: not a Parameter of this optimizer.
        """
        if isinstance(param, tuple | list):
            return [self.get_lr_parameter(weight) for weight in param]
        for parameter, holder in zip(self.parameters, self._rate_holders(), strict=True):
            if parameter is param:
                return holder
        raise SporaxTypeError(f"For '{type(self).__name__}', {param!r} is not one of its parameters.")


_COMPLETES = "_completes_an_optimizer"


def _then_serve(make: Any) -> Any:
    """``make``, an ``__init__``, followed by the hand-over of Parameters to servers when the whole object is made."""

    signature = inspect.signature(make)

    @functools.wraps(make)
    def init(self: Optimizer, *args: Any, **options: Any) -> None:
        # A derived class calls this too, and the object is complete only in the last one.
        if type(self).__init__ is not init:
            make(self, *args, **options)
            return
        try:
            arguments = read_once(signature.bind(self, *args, **options))
        except TypeError:
            make(self, *args, **options)  # which says what is wrong
            raise
        make(*arguments.args, **arguments.kwargs)
        if "init_args" not in self.__dict__:
            keep_arguments(self, arguments)
        self._served = _helpers.served(self)

    setattr(init, _COMPLETES, True)
    return init


class DeclaredOptimizer(Optimizer, fields_only=True):
    """Base of optimizers that are declarations: fields for their arguments, their state, and a formula."""

    params: Any = declared.setting(None, "Parameters, or groups: dicts with ``params`` and settings of their own.")

    starts: ClassVar[Mapping[str, Start]] = {}
    """First values of slots that do not begin as zeros, or have names of another form."""

    rule: ClassVar[Callable[..., tuple[Any, ...]]]
    """The formula: (array namespace, gradient, Parameter, its state, settings by name) -> new Parameter and state."""

    renamed: ClassVar[Mapping[str, str]] = {}
    """Names of settings where `rule` calls them differently: its name, ours."""

    served_as = ""
    """Name of the same rule on parameter servers (`sporax.ps.slots.update`), if they have it."""

    def _prepare(self, **numbers: Any) -> None:
        """Make the state; fields that are no attributes are numbers that checkpoints hold."""
        for name, value in numbers.items():
            self.add_number(name, value)
        for slot in self.slots:
            self.add_slot(slot)

    def add_slot(self, slot: str, make: Callable[[Parameter], Tensor] | None = None) -> None:
        """Make the state `slot` of all Parameters; `make` gives the first values where they have another shape or dtype."""
        setattr(self, slot, ParameterTuple(self.new_slot(slot, parameter, make) for parameter in self.parameters))

    def new_slot(self, slot: str, parameter: Parameter, make: Callable[[Parameter], Tensor] | None = None) -> Parameter:
        """The state `slot` of a Parameter before the first step; that of a lazy one is lazy, too."""
        start = self.starts.get(slot, Start())
        value = self._constant(start.value) if isinstance(start.value, str) else start.value
        name = f"{start.prefix or slot + ('_' if start.scalar else '.')}{parameter.name}"
        if start.scalar:
            return Parameter(Tensor(value, dtypes.float32), name)
        made = make(parameter) if make is not None else initializer(value, parameter.shape, parameter.dtype)
        with no_init_parameters() if parameter.has_init else nullcontext():
            return Parameter(made, name)

    def add_number(self, name: str, value: float, shape: tuple[int, ...] = ()) -> None:
        """Make a float32 Parameter of this optimizer's own, a number that checkpoints hold in this shape."""
        setattr(self, name, Parameter(Tensor(np.full(shape, value, np.float32)), name=name))

    def move(self, gradient: Array, parameter: Array, *slots: Array, at: Step) -> tuple[Array, ...]:
        """See `Optimizer`: by `rule`."""
        rule = type(self).rule
        settings = {
            name: getattr(at, name) if name in _OF_STEPS else self._setting(name, at)
            for name in update_rules.settings_of(rule)
        }
        return rule(jnp, gradient, parameter, *slots, **settings)

    def _setting(self, name: str, at: Step) -> Any:
        """A setting of `rule`."""
        value = self._constant(name)
        return value.array if isinstance(value, Parameter) else value

    def _constant(self, name: str) -> Any:
        """A setting that `rule` or `starts` names."""
        return getattr(self, self.renamed.get(name, name))

    def server_rule(self) -> tuple[str, dict[str, float]]:
        """See `Optimizer`."""
        if not self.served_as:
            return super().server_rule()
        firsts = [start.value for start in self.starts.values() if isinstance(start.value, str)]
        names = [*firsts, *(name for name in update_rules.settings_of(type(self).rule) if name not in _OF_STEPS)]
        constants = {name: self._constant(name) for name in names}
        return self.served_as, {
            name: float(value.asnumpy() if isinstance(value, Parameter) else value) for name, value in constants.items()
        }


_OF_STEPS = ("rate", "step", "decay", "shared")
"""Settings of rules that a `Step` has; the others are the optimizer's."""


def listed(name: str, params: Any, what: str, refused: Any) -> list[Any]:
    """Parameters or groups that a user gave; `what` says what they must be, `refused` which iterables are none."""
    if params is None or isinstance(params, refused) or not isinstance(params, Iterable):
        # None and a wrong type raise different errors in MindSpore.
        kind = SporaxValueError if params is None else SporaxTypeError
        raise kind(f"For '{name}', 'params' must be {what} of Parameters or dicts, but got {type(params).__name__}.")
    return list(params)


def _groups(name: str, parameters: Any) -> list[Any]:
    groups = listed(name, parameters, "an iterable", Cell)
    For("Optimizer").refuse(not groups, f"the argument parameters must not be empty, but 'params' of '{name}' is")
    for entry in groups:
        if isinstance(entry, dict) != isinstance(groups[0], dict) or not isinstance(entry, dict | Parameter):
            raise SporaxTypeError(
                f"For '{name}', 'params' must hold either Parameters or dicts, but got {type(entry).__name__} among them."
            )
    return [_checked_group(name, group) for group in groups] if isinstance(groups[0], dict) else groups


def _checked_group(name: str, group: dict[str, Any]) -> dict[str, Any]:
    unknown = [key for key in group if key not in GROUP_KEYS]
    For(name).refuse(unknown, f"the keys of a parameter group must be in {GROUP_KEYS}", unknown, kind=SporaxKeyError)
    if "order_params" in group:
        if len(group) > 1:
            raise For(name).error(f"the group with 'order_params' must have no other key, got {list(group)}")
        return {"params": [], "order_params": list(group["order_params"])}
    if "params" not in group:
        raise SporaxKeyError(f"For '{name}', a parameter group needs the key 'params', but got {list(group)}.")
    members = list(group["params"])
    For(name).refuse(not members, "a parameter group must not be empty")
    check_members(name, members)
    return {**group, "params": members}


def check_members(name: str, members: Iterable[object]) -> None:
    """Raise SporaxTypeError unless all members of a group are Parameters."""
    for member in members:
        For(name).refuse_type(not isinstance(member, Parameter), "a group must hold Parameters", type(member).__name__)


def _reordered(name: str, groups: list[dict[str, Any]], ordered: list[Parameter]) -> list[Parameter]:
    order = next((group["order_params"] for group in groups if "order_params" in group), None)
    if order is None:
        return ordered
    # A Parameter that is missing there would never be updated.
    if {id(parameter) for parameter in order} != {id(parameter) for parameter in ordered}:
        raise SporaxValueError(f"For '{name}', 'order_params' must hold exactly the parameters of the groups.")
    return list(order)


def _positive(name: str, what: str, value: Any) -> float:
    For(name).typed(what, value, "a number", int | float, takes_bool=False)
    For(name).refuse(not 0 < value < math.inf, f"{named(what)} must be positive and finite", value)
    return float(value)


def _decay(name: str, value: Any) -> Any:
    if isinstance(value, Cell):
        return value
    For(name).typed("weight_decay", value, "a number or a Cell", int | float, takes_bool=False)
    For(name).refuse(not 0 <= value < math.inf, "'weight_decay' must be >= 0 and finite", value)
    return float(value)


def _rate_arrays(name: str, values: Sequence[object]) -> list[object]:
    """Learning rates as arrays; where one has a value for each step, all have as many. Schedules stay.

    Raises:
        SporaxValueError: two have different numbers of values.
    """
    rates = [value if isinstance(value, LearningRateSchedule) else _rate_array(name, value) for value in values]
    lengths = sorted({rate.size for rate in rates if isinstance(rate, np.ndarray) and rate.ndim})
    For(name).refuse(len(lengths) > 1, "learning rates of groups must have the same size", lengths)
    return [
        np.full(lengths[0], rate) if lengths and isinstance(rate, np.ndarray) and not rate.ndim else rate
        for rate in rates
    ]


def _rate_array(name: str, value: Any) -> np.ndarray[Any, Any]:
    if isinstance(value, Tensor):
        value = value.asnumpy()
    elif isinstance(value, np.ndarray) and not value.ndim:
        raise SporaxTypeError(f"For '{name}', the 'learning_rate' must be a number, and no array of no dimension.")
    if isinstance(value, str):
        raise SporaxValueError(f"For '{name}', the 'learning rate' must be float and must >= 0, but got '{value}'.")
    if not isinstance(value, int | float | np.ndarray | list | tuple | Iterable):
        raise SporaxTypeError(
            f"For '{name}', the 'learning_rate' must be a number, list, 1-D Tensor or schedule, but got {type(value).__name__}."
        )
    array = np.asarray(value if isinstance(value, int | float | np.ndarray) else list(value), np.float32)
    For(name).refuse(array.ndim > 1, "the 'learning_rate' must have at most 1 dimension", array.ndim)
    if array.size == 0 or float(array.min()) < 0:
        raise For(name).error(
            "the 'learning rate' must be float and must >= 0", f"'{value}' with type '{type(value).__name__}'"
        )
    For(name).refuse(not np.isfinite(array).all(), "the 'learning rate' must be finite", f"'{value}'")
    return array


def _rate_at(rate: Any, step: jax.Array) -> jax.Array:
    """The learning rate at a step (0 for the first)."""
    return (rate(wrap(step)) if isinstance(rate, LearningRateSchedule) else rate).array


def _decay_at(decay: Any, step: jax.Array) -> Any:
    return decay(wrap(step)).array if isinstance(decay, Cell) else decay


def is_zero(decay: object) -> bool:
    """Whether weight decay is off for good, so that its arithmetic can be left out."""
    return isinstance(decay, float) and decay == 0.0


def _only_touched_rows(
    gradient: jax.Array, old: Sequence[jax.Array], new: Sequence[jax.Array]
) -> tuple[jax.Array, ...]:
    """`new` in the rows that have a gradient, `old` in the others."""
    # A row without any gradient was not looked up.
    touched = jnp.any(gradient != 0, tuple(range(1, gradient.ndim)), keepdims=True)
    return tuple(jnp.where(touched, after, before) for before, after in zip(old, new, strict=True))
