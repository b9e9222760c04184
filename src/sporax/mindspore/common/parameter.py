"""`Parameter`: a Tensor with a name that training changes in place.

A Parameter is a *variable* (`sporax.runtime.state.frames`): inside a compiled step or a gradient its value is looked up in the
running frame, outside it is the array it holds. It also carries the marks that distributed training reads.
"""

from __future__ import annotations

import itertools
import math
import os
import warnings
from collections.abc import Hashable, Iterable, Mapping
from contextlib import suppress
from typing import Any

import jax
import jax.numpy as jnp

from sporax.base.errors import For, SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.base.lazy_members import dataclass
from sporax.mindspore import context
from sporax.mindspore.common import dtype as dtypes
from sporax.mindspore.common._host_arrays import copied
from sporax.mindspore.common.dtype import DType
from sporax.mindspore.common.initializer import initializer
from sporax.mindspore.common.tensor import Tensor, to_array, wrap
from sporax.ps.worker import row_cache
from sporax.runtime.ranks import joint_arrays, server_exchange
from sporax.runtime.state import frames
from sporax.runtime.storage import Place

_unnamed = itertools.count(1)


@dataclass(slots=True)
class _Laziness:
    """How many `no_init_parameters` contexts this process is in."""

    depth: int = 0


_lazy = _Laziness()
_MARKS = ("_requires_grad", "_layerwise_parallel", "_parallel_optimizer", "_comm_fusion")
"""What a Parameter says of itself to optimizers and plans."""


@jax.custom_jvp
def _instead(new: jax.Array, old: jax.Array) -> jax.Array:
    """`new`, with the derivative of `old`."""
    return new


_instead.defjvp(lambda primals, tangents: (primals[0], tangents[1]))


class Parameter(Tensor):
    """A named tensor that belongs to a Cell and that an optimizer updates.

    Args:
        default_input: Tensor, numpy array, number, list, or a lazy Tensor from `initializer`.
        name: name inside its Cell; the Cell gives the attribute's name when this is None.
        requires_grad: whether `Cell.trainable_params` lists it.
        layerwise_parallel: each rank owns a part of its own: neither broadcast nor reduced in data or hybrid parallel.
        parallel_optimizer: whether optimizer parallelism may shard it.
        storage_format, device: accepted for compatibility; layouts are XLA's business.

    Raises:
        SporaxTypeError: a flag is not a bool, or no Tensor can be made of `default_input`.
        SporaxValueError: the name is not a string, or too long.

    Example:
        >>> Parameter(Tensor([1.0, 2.0]), name="w")
        Parameter (name=w, shape=(2,), dtype=Float32, requires_grad=True)
    """

    __slots__ = tuple(
        """
        _comm_fusion _layerwise_parallel _name _named _parallel_optimizer _requires_grad by_initializer cache_enable
        cache_shape filed gradient_sum init_in_server is_init is_param_ps joint moved_here on_host parts
        requires_aggr row server_rows sliced stored unique
        """.split()
    )

    def __init__(
        self,
        default_input: Any,
        name: str | None = None,
        requires_grad: bool = True,
        layerwise_parallel: bool = False,
        parallel_optimizer: bool = True,
        storage_format: str = "",
        device: str | None = None,
    ) -> None:
        For("Parameter").refuse(isinstance(default_input, bool), "'default_input' must not be a bool", default_input)
        self._take_values(default_input)
        self._named = bool(name)
        self._name = _checked_name(name)
        self._requires_grad = _flag("requires_grad", requires_grad)
        self._layerwise_parallel = _flag("layerwise_parallel", layerwise_parallel)
        self._parallel_optimizer = _flag("parallel_optimizer", parallel_optimizer)
        # MindSpore's default: all gradients in one group.
        self._comm_fusion = 1
        self.on_host = False
        self.filed: Place | None = None
        self.stored: Any = default_input._initializer if self.has_init else None
        """Where a lazy Parameter had its values from; see `train._stored.deferred`."""
        self.is_param_ps = self.init_in_server = self.cache_enable = False
        self.requires_aggr, self.cache_shape = True, ()
        """MindSpore's marks for federated learning and caches of rows: nothing reads them, optimizers hand them on."""
        self.gradient_sum: Parameter | None = None
        self.moved_here = False
        """Whether an optimizer of this process moves it, by a step that is compiled or by what servers apply."""
        self.server_rows: row_cache.RowCache | None = None

    def _take_values(self, source: Any) -> None:
        self._initializer = None
        self.by_initializer = isinstance(source, Tensor) and source.has_init
        if isinstance(source, Tensor) and source.has_init:
            self._initializer = source._initializer
            if not _stays_lazy(source._initializer):
                self.init_data()
            return
        # MindSpore makes a 32-bit Parameter of a bare int, though a 64-bit Tensor.
        dtype = dtypes.int32 if type(source) is int else None
        # A copy: the buffer of a Parameter is given away at every compiled step.
        self.raw = copied(to_array(source, dtype))

    def __getattr__(self, name: str) -> Any:
        # Reached only where the requested form is not there: it is converted from the one that is.
        if name == "joint" or (name == "raw" and self._initializer is None and frames.slot(self, "raw") is None):
            return joint_arrays.change_form(self, name)
        return super().__getattr__(name)  # type: ignore[misc]  # defined for attribute access at run time

    @property
    def array(self) -> jax.Array:
        """The values as seen from here: inside a compiled step, a tracer."""
        return frames.read(self)

    def _replace(self, array: jax.Array) -> None:
        # A lazy Parameter that is assigned to needs no initializer any more.
        if frames.current_frame() is None and self._initializer is not None:
            self.forget_initializer()
        frames.write(self, array)

    def _assign(self, array: jax.Array) -> None:
        """Write a new value. As in MindSpore, who reads the Parameter later differentiates by it, not by what was written."""
        fits = (
            array.shape == self.shape and array.dtype == self.array.dtype and jnp.issubdtype(array.dtype, jnp.inexact)
        )
        self._replace(_instead(array, self.array) if fits and frames.current_frame() is not None else array)

    @property
    def name(self) -> str:
        """Name of the Parameter, with the names of the Cells it belongs to in front."""
        return self._name

    @name.setter
    def name(self, value: str | None) -> None:
        self._name = _checked_name(value)
        self._named = bool(value)

    @property
    def param_info(self) -> Parameter:
        """MindSpore keeps name and marks in a separate object; here they are the Parameter's own."""
        return self

    @param_info.setter
    def param_info(self, value: Parameter) -> None:
        For("Parameter").typed("param_info", value, "the 'param_info' of a Parameter", Parameter)
        for mark in ("_name", "_named", *_MARKS):
            setattr(self, mark, getattr(value, mark))
        frames.touch()

    @property
    def requires_grad(self) -> bool:
        """Whether `trainable_params` lists it."""
        return self._requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self._requires_grad = _flag("requires_grad", value)
        # Compiled steps depend on it.
        frames.touch()

    @property
    def layerwise_parallel(self) -> bool:
        """Whether each rank owns a part of its own."""
        return self._layerwise_parallel

    @layerwise_parallel.setter
    def layerwise_parallel(self, value: bool) -> None:
        self._layerwise_parallel = _flag("layerwise_parallel", value)
        frames.touch()

    @property
    def parallel_optimizer(self) -> bool:
        """Whether optimizer parallelism may shard it."""
        return self._parallel_optimizer

    @parallel_optimizer.setter
    def parallel_optimizer(self, value: bool) -> None:
        self._parallel_optimizer = _flag("parallel_optimizer", value)
        frames.touch()

    def add_pipeline_stage(self, stage: int) -> None:
        """Say that a pipeline stage uses this Parameter.

        Differs from MindSpore: there is nothing to say. A Parameter is in the first stage that uses it, and every step
        brings it to the others. So a call warns, as MindSpore's does.

        Raises:
            SporaxTypeError: `stage` is not an int that is at least 0.
        """
        if isinstance(stage, bool) or not isinstance(stage, int) or stage < 0:
            raise SporaxTypeError(f"For 'add_pipeline_stage', 'stage' must be an int of at least 0, but got {stage!r}.")
        warnings.warn(
            f"For 'add_pipeline_stage', stage {stage} of '{self.name}' has no effect: a Parameter is brought to every stage that "
            "uses it.",
            stacklevel=2,
        )

    @property
    def comm_fusion(self) -> int:
        """Gradients with equal positive numbers are sent in one collective; 0 is sent alone."""
        return self._comm_fusion

    @comm_fusion.setter
    def comm_fusion(self, value: int) -> None:
        For("Parameter").typed("comm_fusion", value, "an int", int, takes_bool=False)
        For("Parameter").refuse(value < 0, "'comm_fusion' must be >= 0", value)
        self._comm_fusion = value
        frames.touch()

    def set_param_ps(self, init_in_server: bool = False) -> None:
        """Let parameter servers keep and update it. Call it before the first training step.

        Args:
            init_in_server: the servers make the first values; for embedding tables only.

        Raises:
            SporaxRuntimeError: parameter servers are not switched on, MS_ROLE is no role, PYNATIVE_MODE, values that are
                no embedding table, or more than 2 GiB of them; or a step that trains it was compiled before.
            SporaxTypeError: `init_in_server` is not a bool.
        """
        _flag("init_in_server", init_in_server)
        _check_may_be_served(self, init_in_server)
        self.is_param_ps, self.init_in_server = True, init_in_server
        frames.touch()

    @property
    def data(self) -> Parameter:
        """The Parameter itself, as in MindSpore."""
        return self

    @property
    def inited_param(self) -> Parameter:
        """The Parameter itself once it has values."""
        return self

    def fingerprint(self) -> Mapping[str, Hashable]:
        """What a compiled step takes as fixed."""
        hooks = self.static_part
        # The keys of hooks are never used twice, so they distinguish one set of hooks from another.
        return {
            "requires_grad": self._requires_grad,
            "hooks": tuple(hooks.entries) if hooks else (),
            "comm_fusion": self._comm_fusion,
            "layerwise_parallel": self._layerwise_parallel,
            "parallel_optimizer": self._parallel_optimizer,
            "on a server": self.is_param_ps,
        }

    def describe(self) -> str:
        """What it is called in messages about compilation."""
        return f"Parameter '{self._name}'"

    def value(self) -> Tensor:
        """A Tensor with the present values, which later steps do not change."""
        return _detached(self)

    def copy(self) -> Tensor:
        """Same as `value`."""
        return _detached(self)

    def clone(self, init: Any = "same") -> Parameter:
        """A new Parameter with the same marks; values are copied, or made by `init`.

        Args:
            init: ``"same"``, or whatever `sporax.mindspore.common.initializer.initializer` takes.
        """
        if isinstance(init, str) and init == "same":
            copied = Parameter(self, self.name)
        else:
            copied = Parameter(initializer(init, self.shape, self.dtype), self.name)
        # Marks, not forms of storage: the clone is a Parameter of its own.
        for mark in (*_MARKS, "by_initializer"):
            setattr(copied, mark, getattr(self, mark))
        return copied

    def set_data(self, data: Any, slice_shape: bool = False) -> Parameter:
        """Take over new values (a copy).

        Args:
            data: Tensor, Parameter or number; converted to the Parameter's dtype when that loses nothing.
            slice_shape: allow another shape than the present one.

        Raises:
            SporaxTypeError: `data` has a dtype that does not fit into the Parameter's.
            SporaxValueError: `data` has another shape.
        """
        if isinstance(data, Tensor) and data.has_init:
            data = data.init_data()
        For("Parameter.set_data").typed("data", data, "a Tensor or a number", Tensor | int | float)
        # A number takes the Parameter's dtype.
        array = to_array(data, None if isinstance(data, Tensor) else self.dtype)
        self._check_dtype(jnp.dtype("float64") if isinstance(data, float) else array.dtype)
        if not slice_shape and tuple(array.shape) != self.shape:
            raise For("Parameter.set_data").error(
                f"the shape of parameter '{self.name}' is {self.shape}, but the shape of 'data' is {tuple(array.shape)}"
            )
        # Copied: the buffer of `data` belongs to another Tensor, and this one is given away.
        same = array.dtype == self.dtype.np_dtype
        self._assign(copied(array) if same else jnp.array(array, dtype=self.dtype.np_dtype, copy=True))
        return self

    def _check_dtype(self, value: Any) -> None:
        mine = self.dtype.np_dtype
        # A float into an integer would lose its fraction; the other way is allowed.
        if jnp.issubdtype(value, jnp.floating) and not jnp.issubdtype(mine, jnp.floating):
            raise SporaxTypeError(
                f"For 'Parameter.set_data', parameter '{self.name}' has dtype {self.dtype}, "
                f"and 'data' of dtype {dtypes.from_numpy(value)} does not fit into it."
            )

    def take_later(self, values: Any) -> None:
        """Let go of the values, and make new ones when a step, or a reader, needs them.

        Args:
            values: gives them, as the initializer of a lazy Tensor does; of this Parameter's shape and dtype.

        Raises:
            SporaxRuntimeError: inside a compiled step or a gradient.
        """
        if frames.current_frame() is not None:
            raise SporaxRuntimeError(
                f"For 'Parameter.take_later', parameter '{self.name}' must not be in use by a step that is being traced."
            )
        # Of the forms only one exists.
        for form in ("raw", "joint", "parts", "row"):
            with suppress(AttributeError):  # it is in one of them
                object.__delattr__(self, form)
        self._initializer = values
        # Steps that hold the old array are stale.
        frames.touch()

    def assign_value(self, value: Any) -> Parameter:
        """Same as `set_data`."""
        return self.set_data(value)

    def set_dtype(self, dtype: DType) -> DType:
        """Convert the values in place; returns the new dtype."""
        return super().set_dtype(dtype)

    def init_data(self, layout: Any = None, set_sliced: bool = False) -> Parameter:  # type: ignore[override]  # a Parameter takes more than a Tensor
        """Make the values of a lazily initialised Parameter now; one that has values stays as it is.

        Raises:
            SporaxRuntimeError: a layout was given; sharded creation belongs to plans.
        """
        if layout is not None or set_sliced:
            raise SporaxRuntimeError(
                f"For 'Parameter.init_data', parameter '{self.name}' cannot be created from a hand-written layout; "
                "plans create Parameters in sharded form by themselves."
            )
        self._make_values()
        return self

    def __repr__(self) -> str:
        return (
            f"Parameter (name={self.name}, shape={self.shape}, dtype={self.dtype}, requires_grad={self.requires_grad})"
        )

    __str__ = __repr__

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        return self.clone()

    def __reduce__(self) -> tuple[Any, ...]:
        settings = self.requires_grad, self.layerwise_parallel, self.parallel_optimizer
        return Parameter, (self.asnumpy(), self.name, *settings)


def _stays_lazy(values: Any) -> bool:
    """Whether a Parameter waits with its values until they are needed."""
    if _lazy.depth:
        return True
    # Recipes of users may draw from a stream of their own, so they are called in the order of creation.
    if not getattr(values, "may_wait", False):
        return False
    # The plan of a step says which slice a device makes; a mode may be set after the network is made.
    return context.parallel_mode() in _PLANNED or math.prod(values.shape) >= _WAITS


_PLANNED = (context.ParallelMode.SEMI_AUTO_PARALLEL, context.ParallelMode.AUTO_PARALLEL)
_WAITS = 1 << 16
"""Elements from which on a Parameter stays lazy in every mode; smaller ones are made at once, since it costs nothing."""


class ParameterTuple(tuple[Parameter, ...]):
    """An immutable sequence of Parameters with distinct names.

    Raises:
        SporaxTypeError: an element is not a Parameter.
        SporaxValueError: two different Parameters share a name.
    """

    __slots__ = ()

    def __new__(cls, iterable: Iterable[Parameter]) -> ParameterTuple:
        """Check and collect the Parameters."""
        parameters = tuple(iterable)
        named: dict[str, Parameter] = {}
        for parameter in parameters:
            For("ParameterTuple").typed("every element", parameter, "a Parameter", Parameter)
            # The same Parameter may occur twice.
            if named.setdefault(parameter.name, parameter) is not parameter:
                raise SporaxValueError(
                    f"For 'ParameterTuple', two different parameters are called '{parameter.name}'; give one another name."
                )
        return super().__new__(cls, parameters)

    def clone(self, prefix: str, init: Any = "same") -> ParameterTuple:
        """Clones of all Parameters, named ``prefix.name``. As in MindSpore, pipelines add gradients to ``accu_grads``."""
        clones = ParameterTuple(_renamed(parameter.clone(init), f"{prefix}.{parameter.name}") for parameter in self)
        if prefix == "accu_grads":
            for parameter, clone in zip(self, clones, strict=True):
                parameter.gradient_sum = clone
        return clones


class no_init_parameters:  # noqa: N801 - MindSpore's name
    """Context in which Parameters made from an `initializer` stay lazy: no memory until `init_data` or first use.

    Large ones, and all in semi-automatic and automatic parallelism, do so without it.
    """

    def __enter__(self) -> None:
        _lazy.depth += 1

    def __exit__(self, *_: object) -> None:
        _lazy.depth -= 1


def _check_may_be_served(parameter: Parameter, init_in_server: bool) -> None:
    """Raise unless servers can keep this Parameter under the present settings."""
    config = context.ps_snapshot()
    # The environment wins over the context.
    role = os.environ.get("MS_ROLE") or config.ms_role
    problem = ""
    if not config.enable_ps:
        problem = "'enable_ps' must be True: call set_ps_context(enable_ps=True) before init()"
    elif role not in server_exchange.ROLES:
        problem = f"'MS_ROLE' must be one of {list(server_exchange.ROLES)}, but got '{role}'"
    elif not context.graph_mode():
        problem = "the mode must be GRAPH_MODE, but it is PYNATIVE_MODE"
    elif parameter.moved_here and not parameter.is_param_ps:
        # Its state is here, and the workers' values differ by now.
        problem = (
            f"the call comes too late: '{parameter.name}' belongs to an optimizer that has begun to update it in this process; "
            "call it before the first training step"
        )
    elif init_in_server and not parameter.name.endswith("embedding_table"):
        problem = (
            f"'init_in_server' is for embedding tables, whose names end with 'embedding_table', not '{parameter.name}'"
        )
    elif not jnp.issubdtype(parameter.dtype.np_dtype, jnp.floating):
        problem = f"parameter '{parameter.name}' must be of floats, but is {parameter.dtype}"
    elif parameter.size * parameter.itemsize > _MOST_SERVED_BYTES:
        problem = f"parameter '{parameter.name}' must have at most {_MOST_SERVED_BYTES} bytes, but has more"
    For("set_param_ps").refuse_state(problem, f"{problem}")


# MindSpore's limit for one weight, 2 GiB.
_MOST_SERVED_BYTES = 2**31 - 1


def _renamed(parameter: Parameter, name: str) -> Parameter:
    parameter.name = name
    return parameter


def _detached(parameter: Parameter) -> Tensor:
    return wrap(copied(parameter.array))


def _flag(what: str, value: bool) -> bool:
    return For("Parameter").typed(what, value, "a bool", bool)


def _checked_name(name: object) -> str:
    """`name`, or a numbered one for None and the empty string."""
    if name is not None and not isinstance(name, str):
        raise SporaxValueError(f"For 'Parameter', 'name' must be a string or None, but got {type(name).__name__}.")
    # MindSpore's limit.
    if name and len(name) > 1024:
        raise For("Parameter").error("'name' must have at most 1024 characters", len(name))
    return name or f"Parameter#{next(_unnamed)}"
