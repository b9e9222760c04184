"""`Cell`: the unit networks are built of.

A Cell is a callable with Parameters and child Cells. This file holds what runs when it is called and what happens when an
attribute is set; walking and naming is in `_tree`, parallel marks in `_marks`, hooks in `_flags`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, Self, dataclass_transform

import jax

from sporax.base.errors import (
    For,
    SporaxAttributeError,
    SporaxError,
    SporaxKeyError,
    SporaxRuntimeError,
    SporaxTypeError,
)
from sporax.ir import SEGMENT, STAGE
from sporax.mindspore import context
from sporax.mindspore._declared import Declared, setting
from sporax.mindspore._names.missing import answer_missing_names, homes
from sporax.mindspore.common import DType, Parameter, ParameterTuple, Tensor, dtypes
from sporax.mindspore.common.jit import returning_values, run_program
from sporax.mindspore.common.one_forward import run_once
from sporax.mindspore.common.own_gradient import own_gradient
from sporax.mindspore.common.recompute import offloading, run_recomputed
from sporax.mindspore.common.sharded_part import is_inside_eager_code, run_part
from sporax.mindspore.common.symbol import check_described, with_sizes_that_fit
from sporax.mindspore.context._strategy_files.layouts import layouts_of_stage
from sporax.mindspore.nn import _deferred_settings
from sporax.mindspore.nn._flags import CellFlags, CellHooks, SteppedAttribute, holds_tensor, run_hooked
from sporax.mindspore.nn._marks import PlacementMarks
from sporax.mindspore.nn._state_dict import StateDict
from sporax.mindspore.ops import _core
from sporax.mindspore.ops._core.marking import fixed_strategies, staying_batch_parallel
from sporax.mindspore.ops._core.operator import Primitive
from sporax.mindspore.ops._core.precision import Precision, ruled_by
from sporax.mindspore.ops._core.sharded_call import parameters_by_plan, sharded_call
from sporax.runtime import program as programs, ranks as between_ranks
from sporax.runtime.state import frames, ordered_trees

_PLAIN = (bool, int, float, str, type(None), DType)


def _is_plain(value: object) -> bool:
    """Whether an attribute's value is one that a compiled program takes as fixed."""
    return isinstance(value, _PLAIN) or (isinstance(value, tuple) and all(isinstance(item, _PLAIN) for item in value))


# MindSpore has it here; it is built on this module.
answer_missing_names(__name__, homes("sporax.mindspore.nn.jax_cell", "GraphCell"))


class Cell(PlacementMarks["Cell"], CellHooks, CellFlags, StateDict):
    """Base class of all networks and layers. Subclasses define ``construct``.

    In GRAPH_MODE calling a Cell runs one compiled program; in PYNATIVE_MODE, or inside another compiled program,
    construct runs as ordinary Python.

    Args:
        auto_prefix: put the attribute's name in front of the names of a child's Parameters when one is assigned.
        flags: plain attributes to set.

    Example:
        >>> class Net(Cell):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.fc = Dense(3, 4)
        ...     def construct(self, x):
        ...         return ops.relu(self.fc(x))
    """

    compiled_once = False
    """Set by `lazy_inline`: repeated Cells of the step become one body in a loop."""

    _in_repr = ""
    """Attributes that `repr` shows, separated by spaces; ``label=name`` where they are called otherwise there."""

    def __new__(cls, /, *args: Any, **kwargs: Any) -> Self:
        """Keep what a layer of ours is made with: in MindSpore these are attributes."""
        cell = super().__new__(cls)
        if cls.__module__.startswith("sporax."):
            cell.__dict__[_deferred_settings.MADE_WITH] = _deferred_settings.arguments_of(args, kwargs)
        return cell

    def __init__(self, auto_prefix: bool = True, flags: dict[str, Any] | None = None) -> None:
        # Past `__setattr__`, which needs these attributes.
        put = object.__setattr__
        set_before = {name: value for name, value in self.__dict__.items() if _is_plain(value)}
        put(self, "_plain", set_before)
        put(self, "_cells", {})
        put(self, "_params", {})
        put(self, "_buffers", {})
        put(self, "_stepped", {})
        put(self, "_is_of_step", frames.compiling())  # made while a step is traced, it does not outlive the trace
        put(self, "_flags", {})
        put(self, "_param_prefix", "")
        put(self, "_auto_prefix", auto_prefix)
        put(self, "_marks", {})
        put(self, "_hooks", None)
        put(self, "_cast_to", None)
        put(self, "_cast_out", None)
        put(self, "_cell_name", "")
        put(self, "_program", None)
        self.training = False
        self.requires_grad = False
        for name, value in (flags or {}).items():
            setattr(self, name, value)

    def construct(self, *args: Any, **kwargs: Any) -> Any:
        """What the Cell computes; every subclass defines its own."""
        raise SporaxAttributeError(f"For '{type(self).__name__}', the method 'construct' is not defined.")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the Cell on these inputs; in a compiled step numpy arrays are constants, as numbers are.

        Raises:
            SporaxRuntimeError: in PYNATIVE_MODE, where the operators inside would have to be sharded.
        """
        # Inside another program the Cell becomes part of that one.
        if frames.current_frame() is None:
            # A Cell with a strategy is compiled in PYNATIVE_MODE, too: eager operators cannot be sharded.
            if "_dynamic_inputs" in self.__dict__ and context.graph_mode():
                self._check_inputs(args, kwargs)
            if context.graph_mode() or ("shard" in self._marks and context.shards_compiled_steps()):
                return run_program(self.program, args, kwargs)
            # A whole training step is planned as one, whatever the mode.
            if context.plans_only() and self._trains() and context.plan_settings_of_training() is not None:
                return run_program(self.program, args, kwargs)
            context.refuse_eager(type(self).__name__)
            if context.starts_from_first_rank():  # its first loss, too
                between_ranks.initial_broadcast.request(self.get_parameters())
            return self._run(*args, **kwargs)
        if "shard" in self._marks and is_inside_eager_code():
            return run_part(self.program, args, kwargs)
        return run_once(self, args, kwargs, self._run)

    _is_optimizer = False
    """Whether it is an optimizer."""

    def _trains(self) -> bool:
        """Whether it holds an optimizer."""
        return not self._is_optimizer and any(cell._is_optimizer for _, cell in self.cells_and_names())

    @property
    def program(self) -> programs.Program:
        """The compiled form of this Cell."""
        if self._program is None:
            object.__setattr__(
                self,
                "_program",
                programs.Program(returning_values(self._run), type(self).__name__, context.plan_settings),
            )
        return self._program

    @property
    def parameter_layout_dict(self) -> dict[str, Any]:
        """Where the Parameters are by name, once this Cell has been compiled and sharded by a plan; empty otherwise.

        Each is a tuple: device matrix, tensor map, shape of a slice, field size, whether slices are equal, group of
        optimizer parallelism, whole shape, shape that is kept, …
        """
        planned = self.program.planned
        return {} if planned is None else layouts_of_stage(planned)

    @property
    def parallel_parameter_name_list(self) -> list[str]:
        """Names of the Parameters in `parameter_layout_dict`."""
        return list(self.parameter_layout_dict)

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile for these inputs without running; ``program.lower(…).as_text()`` shows the program."""
        self.check_names()

        def compile_for(shapes: Mapping[int, Any]) -> None:
            values = [Tensor(shape=shapes[at], dtype=arg.dtype) if at in shapes else arg for at, arg in enumerate(args)]
            self.program.lower(*values, **kwargs).compile()

        with_sizes_that_fit(compile_for, args)

    def compile_and_run(self, *args: Any, **kwargs: Any) -> Any:
        """Run compiled, whatever the mode."""
        return self.program(*args, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        """What copying and pickling take along: everything but the compiled program, which belongs to this object."""
        # A copy is compiled for itself: its Parameters are others.
        return {**self.__dict__, "_program": None}

    def __setstate__(self, state_: dict[str, Any]) -> None:
        self.__dict__.update(state_)

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        frames.depend_on_cell(self)
        if self.compiled_once:
            frames.note_tag("blocks")
        try:
            # A `Precision` lets each operator decide, so inputs stay as they are.
            if self._cast_to is not None and not isinstance(self._cast_to, Precision):
                args, kwargs = _cast_floats((args, kwargs), self._cast_to)
            if "recompute" in self._marks and frames.current_frame() is not None:
                inside = functools.partial(run_hooked, self, self._construct_named)
                result = run_recomputed(lambda *a, **k: inside(a, k), args, kwargs, self._marks["recompute"])
            elif self._hooks:
                result = run_hooked(self, self._construct_named, args, kwargs)
            else:
                result = self._construct_named(*args, **kwargs)
            return result if self._cast_out is None else _cast_floats(result, self._cast_out)
        except SporaxError as error:
            # Each Cell on the way adds its name, so the message has the path.
            error.within(self._cell_name or type(self).__name__)
            raise
        except TypeError as error:
            # A call with wrong arguments is the most frequent TypeError, and gets a message of its own.
            mismatch = self._mismatch(args, kwargs)
            if mismatch is None:
                raise
            raise mismatch from error

    def _mismatch(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> SporaxTypeError | None:
        """What is wrong with the number or the names of the inputs, if anything is."""
        signature = inspect.signature(self.construct)
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            passed = ", ".join([f"{len(args)} by position", *(f"'{name}'" for name in kwargs)])
            bound = "self" in inspect.signature(type(self).construct).parameters
            inputs = signature if bound else "(), which lacks 'self'"
            mismatch = SporaxTypeError(
                f"For '{type(self).__name__}', the inputs must fit construct{inputs}, but got {passed}: {error}."
            )
            mismatch.within(self._cell_name or type(self).__name__)
            return mismatch
        return None

    def _construct_own(self, *args: Any, **kwargs: Any) -> Any:
        """Run `construct`; a class may say in ``bprop(*inputs, out, dout)`` how gradients pass."""
        if not hasattr(type(self), "bprop"):
            return self.construct(*args, **kwargs)
        inputs = inspect.signature(self.construct).bind(*args, **kwargs)
        inputs.apply_defaults()
        name, bprop = type(self).__name__, functools.partial(getattr(type(self), "bprop"), self)  # noqa: B009
        parameters = tuple(self.get_parameters())
        run = fixed_strategies()(self.construct)
        return own_gradient(name, run, bprop, inputs.args, parameters, SporaxRuntimeError, is_cell=True)

    def _construct_named(self, *args: Any, **kwargs: Any) -> Any:
        if "place" in self._marks:
            name = self._cell_name or type(self).__name__
            return _core.placed_calls.run_placed(name, self._marks["place"], self._construct_in_scope, args, kwargs)
        # Eagerly, name scopes would only cost.
        if frames.current_frame() is None and self._cast_to is None:
            return self._construct_own(*args, **kwargs)
        if "offload" in self._marks and frames.compiling():
            with offloading(self._marks["offload"]):
                return self._construct_in_scope(*args, **kwargs)
        return self._construct_in_scope(*args, **kwargs)

    def _construct_in_scope(self, *args: Any, **kwargs: Any) -> Any:
        scope = jax.named_scope(self._cell_name or type(self).__name__)
        # The name scope ends up in names of operators, by which profiles and plans show them.
        with scope, self._on_its_stage(), ruled_by(self._cast_to), self._weights_cast():
            if "shard" in self._marks:
                return self._sharded(args, kwargs)
            if "strategy_gen_mode" in self._marks:
                with staying_batch_parallel():
                    return self._construct_own(*args, **kwargs)
            return self._construct_own(*args, **kwargs)

    def _on_its_stage(self) -> AbstractContextManager[Any]:
        """Name scopes that say which pipeline stage and segment operators belong to, where this Cell says so."""
        marks = [(kind, self._marks.get(f"pipeline_{kind}")) for kind in (STAGE, SEGMENT)]
        scopes = [f"{kind}:{number}" for kind, number in marks if number is not None]
        return jax.named_scope("/".join(scopes)) if scopes else nullcontext()

    @contextmanager
    def _weights_cast(self) -> Iterator[None]:
        """Let `construct` find trainable Parameters in the dtype that inputs are cast to. Our own layers see to theirs."""
        dtype = self._cast_to
        if not isinstance(dtype, DType) or type(self).__module__.startswith("sporax."):
            yield
            return
        casts = {
            name: getattr(self, name)
            for name, parameter in self._params.items()
            if parameter is not None and parameter.requires_grad and parameter.dtype in dtypes.float_type
        }
        try:
            for name, value in casts.items():
                # Past `__setattr__`: these are no new Parameters.
                object.__setattr__(self, name, value.astype(dtype))
            yield
        finally:
            for name, value in casts.items():
                object.__setattr__(self, name, value)

    def _sharded(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run with inputs, outputs and Parameters sharded as `shard` says."""
        in_strategy, out_strategy, plan, _, _ = self._marks["shard"]
        name = self._cell_name or type(self).__name__
        parameters = parameters_by_plan(self, plan)
        return sharded_call(name, self._construct_own, args, kwargs, in_strategy, out_strategy, parameters)

    def fingerprint(self) -> Mapping[str, Hashable]:
        """What a compiled program takes as fixed: plain attributes, the dtype inputs are cast to, number of hooks."""
        hooks = {kind: tuple(hook) for kind, hook in (self._hooks or {}).items()}
        # Whether a Parameter requires a gradient changes the compiled step.
        flags = {f"{name}.requires_grad": p.requires_grad for name, p in self._params.items() if p is not None}
        marks = {f"mark {name}": str(value) for name, value in self._marks.items()}
        stepped = {name: attribute.fingerprint() for name, attribute in self._stepped.items()}
        casts = self._cast_to, self._cast_out
        return {**self._plain, **stepped, **flags, **marks, "hooks": str(hooks), "to_float": casts}

    def describe(self) -> str:
        """Class and name, for messages."""
        return f"{type(self).__name__} '{self._cell_name}'" if self._cell_name else type(self).__name__

    def __setattr__(self, name: str, value: Any) -> None:
        if "_cells" not in self.__dict__:
            if isinstance(value, Parameter | Cell):
                raise SporaxAttributeError(
                    f"For '{type(self).__name__}', call super().__init__() before assigning '{name}'."
                )
            object.__setattr__(self, name, value)
        elif name in self._buffers and (value is None or isinstance(value, Tensor)):
            self.set_buffer(name, value)
        elif isinstance(value, Parameter):
            self._set_parameter(name, value)
        elif isinstance(value, Cell):
            self._set_cell(name, value)
        elif isinstance(parameter := self._params.get(name), Parameter) and isinstance(value, Tensor | int | float):
            # A number or Tensor that is assigned to a Parameter becomes its value, as in MindSpore.
            parameter.set_data(value)
        elif name in self._stepped:
            self._stepped[name].set(value)
        elif isinstance(getattr(type(self), name, None), property):
            object.__setattr__(self, name, value)
        else:
            self._set_other(name, value)

    def _set_parameter(self, name: str, value: Parameter) -> None:
        if name in self._cells:
            raise SporaxKeyError(f"For '{type(self).__name__}', attribute '{name}' is a Cell, not a Parameter.")
        self._stepped.pop(name, None)
        self.__dict__.pop(name, None)
        self.insert_param_to_cell(name, value)

    def _set_cell(self, name: str, value: Cell) -> None:
        if name in self._params:
            raise SporaxKeyError(f"For '{type(self).__name__}', attribute '{name}' is a Parameter, not a Cell.")
        self._stepped.pop(name, None)
        if "shard" in value._marks and any(value is child and path != name for path, child in self._cells.items()):
            # What `self.block.shard(…)` returned: another name for a part that keeps its own.
            self._cells.pop(name, None)
            object.__setattr__(self, name, value)
            return
        # A name is fixed when a Cell becomes part of another.
        if self._auto_prefix:
            value.update_parameters_name(f"{self._prefix_for_names()}{name}.")
        value._take_name(name)
        # The name may have held a plain value before.
        self._plain.pop(name, None)
        self._cells[name] = value
        object.__setattr__(self, name, value)
        frames.touch()

    def _prefix_for_names(self) -> str:
        """What the names of Parameters of a new child start with. A Cell does not know the one it is part of."""
        return ""

    def _take_name(self, name: str) -> None:
        """Be called `name` in paths from now on."""
        object.__setattr__(self, "_cell_name", name)

    def _set_other(self, name: str, value: Any) -> None:
        registry = self._cells if name in self._cells else self._params if name in self._params else None
        if registry is not None:
            what = f"attribute '{name}' is a {'Cell' if registry is self._cells else 'Parameter'}"
            refusal = f"{what}; it can be replaced by another or by None"
            For(type(self).__name__).refuse_type(value is not None, refusal, type(value).__name__)
            registry[name] = None
            frames.touch()
        if frames.compiling() and not self._is_of_step:
            self._set_in_step(name, value)
        # Primitives are called after their attribute in strategy files.
        if isinstance(value, Primitive) and not value.instance_name:
            value.set_prim_instance_name(name)
        if isinstance(value, ParameterTuple):
            self._set_parameters(value)
        if _is_plain(value):
            # Compiled steps take plain attributes as fixed.
            if name not in self._plain or self._plain[name] != value:
                if name in self._plain:
                    frames.note_assignment(self, name)
                self._plain[name] = value
                frames.touch()
        else:
            self._plain.pop(name, None)
        object.__setattr__(self, name, value)

    def _set_in_step(self, name: str, value: object) -> None:
        """Have an attribute outlive the compiled steps that assign Tensors to it; in lists and dicts these end with the step.

        Raises:
            Retrace: from now on it is seen who reads the attribute.
            SporaxTypeError: the class has an attribute of this name, which would hide it.
        """
        if isinstance(value, list | dict) and name in self.__dict__ and jax.tree.leaves(value):
            frames.note_assignment(self, name)
        if not holds_tensor(value):
            return
        if hasattr(type(self), name):
            raise SporaxTypeError(
                f"For '{type(self).__name__}', attribute '{name}' of the class cannot take a Tensor inside a compiled step: its "
                "value exists only while the step runs. Assign it in __init__, too."
            )
        self._stepped[name] = SteppedAttribute(self.__dict__.pop(name, SteppedAttribute.UNSET))
        self._plain.pop(name, None)
        frames.touch()
        raise frames.Retrace

    def _set_parameters(self, parameters: ParameterTuple) -> None:
        """Take Parameters under their own names; unnamed ones are numbered within this Cell."""
        # Unnamed Parameters of a tuple are numbered, as in MindSpore.
        for parameter in parameters:
            if not parameter._named:
                taken = sum(name.startswith("Parameter$") for name in self._params)
                parameter.name = f"Parameter${taken + 1}"
            self._params[parameter.name] = parameter

    def __getattr__(self, name: str) -> Any:
        # Parameters of tuples and members of lists are attributes by their names, too.
        for registry in ("_params", "_cells"):
            if (found := self.__dict__.get(registry, {}).get(name)) is not None:
                return found
        stepped = self.__dict__.get("_stepped", {}).get(name)
        if stepped is not None and (value := stepped.get()) is not stepped.UNSET:
            return value
        if not name.startswith("_"):
            with suppress(LookupError):
                return _deferred_settings.find(self, name)
        hint = "" if "_cells" in self.__dict__ else " Its __init__() must call super().__init__() first."
        raise SporaxAttributeError(f"The '{type(self).__name__}' object has no attribute '{name}'.{hint}")

    def __delattr__(self, name: str) -> None:
        if name in self._stepped and hasattr(self, name):
            self._stepped[name].set(SteppedAttribute.UNSET)  # steps that assign it go on to do so
        else:
            object.__delattr__(self, name)
        for registry in (self._cells, self._params, self._plain):
            registry.pop(name, None)
        frames.touch()

    def set_train(self, mode: bool = True) -> Self:
        """Switch training behaviour (Dropout, BatchNorm) on or off, here and below."""
        for _, cell in self.cells_and_names():
            cell.training = bool(mode)
            object.__setattr__(cell, "phase", "train" if mode else "predict")
        return self

    def set_grad(self, requires_grad: bool = True) -> Self:
        """Say whether gradients will be taken. Gradients are requested explicitly here, so nothing depends on it."""
        self.requires_grad = requires_grad
        return self

    def to_float(self, dst_type: DType) -> Self:
        """Cast floating inputs, and trainable Parameters while `construct` reads them, to this dtype, here and below.

        Raises:
            SporaxValueError: not float16, float32 or bfloat16.
        """
        allowed = (dtypes.float16, dtypes.float32, dtypes.bfloat16)
        For("Cell.to_float").one_of("dst_type", dst_type, allowed)
        # Set on every Cell, since each casts its own inputs.
        for _, cell in self.cells_and_names():
            cell.set_precision(dst_type)
        return self

    def set_precision(self, inputs: DType | Precision | None, outputs: DType | None = None) -> None:
        """Dtypes that floating inputs and outputs of this Cell alone are cast to; None leaves them. See `sporax.mindspore.amp`.

        A `Precision` in place of the first leaves the inputs, and lets the operators inside choose.
        """
        object.__setattr__(self, "_cast_to", inputs)
        object.__setattr__(self, "_cast_out", outputs)
        frames.touch()

    def apply(self, fn: Callable[[Cell], Any]) -> Self:
        """Call `fn` on every Cell below and on this one, children first."""
        # Children first, as a parent may depend on what became of them.
        for cell in self.cells():
            cell.apply(fn)
        fn(self)
        return self

    def set_inputs(self, *inputs: Any, **kwargs: Any) -> None:
        """Name the inputs' dynamic shapes; others than Tensors are constants. Programs are compiled for each shape that fits.

        Raises:
            SporaxValueError: inputs both by position and by name.
        """
        if inputs and kwargs:
            raise For("Cell.set_inputs").error("'inputs' must be set by position or by name", (inputs, kwargs))
        self.__dict__.pop("_dynamic_inputs", None)
        if inputs or kwargs:
            object.__setattr__(self, "_dynamic_inputs", inputs or kwargs)

    def _check_inputs(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        described = self.get_inputs()
        if isinstance(described, dict):
            bound = inspect.signature(self.construct).bind(*args, **kwargs).arguments
            described, args, kwargs = (*described.values(),), tuple(map(bound.get, described)), {}
        check_described(type(self).__name__, "set_inputs", described, (*args, *kwargs.values()), SporaxTypeError)

    def get_inputs(self) -> Any:
        """What `set_inputs` was given: a tuple, or a dict for inputs by name; None before."""
        return getattr(self, "_dynamic_inputs", None)

    def set_broadcast_flag(self, mode: bool = True) -> Self:
        """Request the Parameters of rank 0 to be broadcast before the first step."""
        self._mark("broadcast", bool(mode))
        return self

    @property
    def cls_name(self) -> str:
        """Name of the class."""
        return type(self).__name__

    @property
    def param_prefix(self) -> str:
        """Path that unnamed Parameters get in front of their names."""
        return self._param_prefix

    def extend_repr(self) -> str:
        """Settings shown in `repr`: those that `_in_repr` names; layers may override it."""
        pairs = (part.partition("=") for part in self._in_repr.split())
        return ", ".join(f"{label}={getattr(self, name or label)}" for label, _, name in pairs)

    def __repr__(self) -> str:
        children = [f"({name}): {child!r}" for name, child in self._cells.items() if child is not None]
        head = f"{type(self).__name__}({self.extend_repr()}"
        if not children:
            return head + ")"
        body = "\n".join(children).replace("\n", "\n  ")
        return f"{head}\n  {body}\n)"


def _cast_floats(value: Any, dtype: DType) -> Any:
    """Floating tensors in `value` cast to `dtype`."""

    def cast(leaf: Any) -> Any:
        if isinstance(leaf, Tensor) and leaf.dtype in dtypes.float_type and leaf.dtype != dtype:
            return leaf.astype(dtype)
        return leaf

    return ordered_trees.mapped(cast, value, is_leaf=lambda leaf: isinstance(leaf, Tensor))


@dataclass_transform(eq_default=False, field_specifiers=(setting,))
class Layer(Declared, Cell):
    """Base of Cells whose arguments are fields of the class."""

    def _begin(self, values: dict[str, Any]) -> None:
        Cell.__init__(self)


class PlainLayer(Cell):
    """Base of layers that have no arguments."""

    def __init__(self) -> None:
        super().__init__()


def applied(function: Callable[..., object], inputs: str, doc: str, settings: str = "") -> Callable[..., Any]:
    """The `construct` of a layer that is one function: of its inputs, then of its settings, by position.

    Args:
        function: see above.
        inputs: names of the Tensors that it takes, separated by spaces.
        doc: what they are.
        settings: names of attributes of the layer, likewise.
    """
    names, attributes = ["self", *inputs.split()], settings.split()
    parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    signature = inspect.Signature(parameters[:1] + [part.replace(annotation="Tensor") for part in parameters[1:]])

    def construct(self: Cell, *args: object, **kwargs: object) -> object:
        if kwargs or len(args) != len(names) - 1:
            args = signature.bind(self, *args, **kwargs).args[1:]
        return function(*args, *(getattr(self, name) for name in attributes))

    construct.__doc__ = doc
    return _core.with_signature(construct, signature.replace(return_annotation="Tensor"))
