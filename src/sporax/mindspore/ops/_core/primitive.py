"""`Primitive`: the class form of an operator, and the marks that plans read from it.

Attributes of a primitive that are set after its construction, ``product.transpose_b = True``.

Problem: an operator reads its arguments once, when the primitive is made; an attribute that was set later was a note of
Python's that nothing read. Method: one that is an argument of the constructor makes the primitive again, with all of the
constructor's checks, since MindSpore takes the new value; one that nothing reads is reported.

Operators that the host runs inside a compiled step (`Primitive.set_device("CPU")`).

Arrays are in device memory, so the operator's inputs are moved to the host, it is computed there, and its results are
moved back; XLA does all three within the step.
"""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any, Self

import jax

from sporax.base.errors import For, SporaxError, SporaxTypeError, SporaxValueError
from sporax.lowering import marks as trace_marks
from sporax.lowering.marks import KEEP, new_tag
from sporax.mindspore import context
from sporax.mindspore.common.recompute import offloading
from sporax.mindspore.common.tensor import Tensor, wrap
from sporax.mindspore.ops import _core
from sporax.mindspore.ops._core.marking import (
    MARKS,
    check_mark,
    strategy_form as strategy_form,  # modules import it from here
)
from sporax.mindspore.ops._core.parameters import known_ints, static
from sporax.runtime.state import frames, ordered_trees

if TYPE_CHECKING:
    from sporax.mindspore.ops._core.operator import Operator


def on_host(
    run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], constants: tuple[Any, ...] = ()
) -> Any:
    """``run(args, kwargs, constants)`` on the host; Tensors come from, and go back to, device memory."""
    # A step with work of the host is compiled in another way.
    frames.note_tag("host")
    leaves, tree = ordered_trees.flatten((args, kwargs), is_leaf=lambda leaf: isinstance(leaf, Tensor))
    positions = [place for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    # Written while `inside` is traced, as JAX returns flat results.
    shape: dict[str, Any] = {}

    def inside(*arrays: Any) -> list[Any]:
        # The leaves are replaced in place: numbers and attributes between them stay constants.
        for place, array in zip(positions, arrays, strict=True):
            leaves[place] = wrap(array)
        inner_args, inner_kwargs = jax.tree.unflatten(tree, leaves)
        results, shape["tree"] = ordered_trees.flatten(
            run(inner_args, inner_kwargs, constants), is_leaf=lambda leaf: isinstance(leaf, Tensor)
        )
        return [result.array for result in results]

    results = trace_marks.run_on_host(inside, *(leaves[place].array for place in positions))
    return jax.tree.unflatten(shape["tree"], list(map(wrap, results)))


def made_again(primitive: Any, made_with: tuple[tuple[Any, ...], dict[str, Any]], name: str, value: Any) -> Any:
    """Another primitive of the same class and arguments, but with this value of the argument `name`.

    Args:
        primitive: the one whose attribute is set.
        made_with: arguments of its constructor, by position and by name.
        name: argument that changes.
        value: of it.

    Raises:
        SporaxTypeError, SporaxValueError: a value that the constructor refuses.
    """
    args, kwargs = made_with
    cls = type(primitive)
    parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        names = cls.attribute_names
    else:
        names = tuple(parameter.name for parameter in parameters)
    return cls(**{**dict(zip(names, args, strict=False)), **kwargs, name: value})


def warn_unread(primitive: Any, name: str) -> None:
    """Warn of an attribute that is no argument of the constructor and no part of the primitive.

    Args:
        primitive: the one whose attribute is set.
        name: of the attribute.
    """
    if hasattr(type(primitive), name):
        how = "it is a method: call it"
    elif name in MARKS:
        how = f"it is a mark: write `add_prim_attr({name!r}, …)`"
    else:
        how = f"the operator reads {', '.join(primitive.attribute_names) or 'no attributes'}"
    warnings.warn(f"For '{primitive.name}', the attribute '{name}' has no effect: {how}.", stacklevel=3)


class Primitive:
    """Class form of an operator: attributes at construction, values at the call.

    As an attribute of a Cell it has a place in the program, ``net.dense1.matmul``, by which plans look up its marks.

    Raises:
        SporaxTypeError: too many or unknown attributes, or one of a wrong type.
        SporaxValueError: an attribute that is none of the choices.
    """

    operator: Operator[Any]
    attribute_names: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = {}
    lasting: tuple[str, ...] = ("attrs", "instance_name", "_stream", "_user_data", "_set_later")
    """What stays when an argument of the constructor is set later; random numbers go on where they were."""

    def __new__(cls, /, *args: Any, **kwargs: Any) -> Self:
        """Keep the arguments, since an attribute that is set later makes the primitive again."""
        primitive = super().__new__(cls)
        primitive.__dict__["_made_with"] = args, kwargs
        return primitive

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.name = type(self).__name__
        self.instance_name = ""
        self.attrs: dict[str, Any] = {}
        self._attributes = self._bind(args, kwargs)
        # The part of each call's key that never changes is prepared once.
        self._constants = tuple((name, static(value)) for name, value in self._attributes.items())

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        names = self.attribute_names
        if len(args) > len(names):
            raise For(self.name).type_error(f"the constructor takes {len(names)} arguments {names}", len(args))
        arguments = dict(zip(names, args, strict=False))
        for name, value in kwargs.items():
            if name not in names or name in arguments:
                problem = "is given twice" if name in arguments else f"is not one of {names}"
                raise SporaxTypeError(f"For '{self.name}', the argument '{name}' {problem}.")
            arguments[name] = value
        arguments = {name: known_ints(value) for name, value in arguments.items()}
        attributes = {**self.defaults, **arguments}
        missing = [name for name in names if name not in attributes]
        if missing:
            raise For(self.name).type_error(f"the constructor lacks the arguments {missing}")
        for name, value in arguments.items():
            # Only what was given: defaults need no check.
            self._check(name, value)
        return attributes

    def _check(self, name: str, value: Any) -> None:
        try:
            self.operator.parameters.check(name, value)
        except SporaxError as error:
            error.rename(self.operator.name, self.name)
            raise

    def __getattr__(self, name: str) -> Any:
        # `__dict__`, since `copy` and pickling read attributes before there are any.
        attributes = self.__dict__.get("_attributes", {})
        if name in attributes:
            return attributes[name]
        attrs = self.__dict__.get("attrs", {})
        if name in attrs:
            return attrs[name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __setattr__(self, name: str, value: Any) -> None:
        # While the constructor runs, and for what the primitive itself holds, as everywhere.
        if "_constants" not in self.__dict__ or name in self.__dict__ or name.startswith("_"):
            super().__setattr__(name, value)
        elif name in self._attributes:
            made = made_again(self, self._made_with, name, value)
            self.__dict__.update({key: held for key, held in made.__dict__.items() if key not in self.lasting})
            self.__dict__.setdefault("_set_later", {})[name] = repr(value)
            frames.touch()
        else:
            setter = sys._getframe(1).f_globals.get("__name__", "")
            ours = [module.partition(".")[0] == "sporax" for module in (type(self).__module__, setter)]
            # What classes of ours set, they read; a class of the user's may read what it likes.
            if ours == [True, False] and not isinstance(getattr(type(self), name, None), property):
                warn_unread(self, name)
            super().__setattr__(name, value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the operator on these values."""
        try:
            # Eager calls without marks go straight to the operator.
            if frames.current_frame() is None and "place" not in self.attrs:
                return self.operator.run(args, kwargs, self._constants)
            frames.depend_on(self)
            # Only in a compiled step is there a backward pass to keep something for.
            if "offload" in self.attrs and frames.compiling():
                with offloading(self.attrs["offload"]):
                    return self._run_named(args, kwargs)
            if "recompute" in self.attrs and frames.compiling():
                frames.note_tag("recompute")
                # Names of scopes survive differentiation, so the planner finds the tag in both passes.
                with jax.named_scope((new_tag() if self.attrs["recompute"] else KEEP).scope):
                    return self._run_named(args, kwargs)
            return self._run_named(args, kwargs)
        except SporaxError as error:
            # The message ends with the path of Cells; calls that succeed pay nothing. Several classes may share a kernel.
            error.rename(self.operator.name, self.name)
            error.within(self.instance_name)
            raise

    def _run_named(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with jax.named_scope(self.instance_name or self.name):
            by_host = self.attrs.get("primitive_target") == "CPU"
            if frames.planning():
                # The planner counts the time of the host for this operator.
                with trace_marks.place_of_work(by_host):
                    return self.operator.run(args, kwargs, self._constants, self)
            # Eagerly the arrays are where they are; a move to the host and back would gain nothing.
            if by_host and frames.compiling():
                return on_host(self.operator.run, args, kwargs, self._constants)
            if "place" in self.attrs:
                return self._run_placed(args, kwargs)
            return self.operator.run(args, kwargs, self._constants)

    def _run_placed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            return self.operator.run(args, kwargs, self._constants)

        return _core.placed_calls.run_placed(self.name, self.attrs["place"], call, args, kwargs)

    def fingerprint(self) -> Mapping[str, Hashable]:
        """What a compiled step takes as fixed: the marks, and attributes that were set after construction."""
        # As text: Layouts and lists cannot be hashed.
        marks = {f"mark {name}": repr(value) for name, value in self.attrs.items()}
        later: dict[str, str] = self.__dict__.get("_set_later", {})
        return {**marks, **{f"attribute {name}": value for name, value in later.items()}}

    def describe(self) -> str:
        """What it is called in messages about compilation."""
        return f"the operator '{self.instance_name or self.name}'"

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value!r}" for name, value in self._attributes.items())
        return f"Prim[{self.name}]<{settings}>" if settings else f"Prim[{self.name}]"

    def shard(self, in_strategy: Any = None, out_strategy: Any = None) -> Self:
        """Say how inputs (and output) are sharded; read by semi-automatic and automatic parallelism, ignored elsewhere.

        Args:
            in_strategy: one tuple of ints per input (number of slices of each dim), or one Layout per input.
            out_strategy: likewise for the outputs.

        Raises:
            SporaxTypeError: not a tuple, or its elements are neither tuples of ints nor Layouts.
            SporaxValueError: `out_strategy` alone, or a mixture of both forms.
        """
        if in_strategy is None and out_strategy is None:
            return self
        if in_strategy is None:
            # As in MindSpore, whose planner derives outputs from inputs but not the reverse.
            raise SporaxValueError(f"For '{self.name}', 'out_strategy' needs an 'in_strategy', but that is None.")
        form = strategy_form(self.name, "in_strategy", in_strategy)
        if out_strategy is not None and strategy_form(self.name, "out_strategy", out_strategy) != form:
            raise For(self.name).error("'in_strategy' and 'out_strategy' must both be tuples or both Layouts")
        self.attrs["in_strategy"] = in_strategy
        self.attrs["out_strategy"] = out_strategy
        frames.touch()
        return self

    def recompute(self, mode: bool = True) -> Self:
        """Mark the outputs to be computed again in the backward pass.

        Raises:
            SporaxTypeError: `mode` is not a bool.
        """
        For(self.name).typed("mode", mode, "a bool", bool)
        return self.add_prim_attr("recompute", mode)

    def _offload(self, backward_prefetch: str | int = "Auto") -> Self:
        """Keep what this operator leaves for the backward pass in host memory until it is read; see `Cell.offload`.

        Raises:
            SporaxTypeError: neither ``"Auto"`` nor an int >= 0.
        """
        # One operator ahead is what MindSpore's "Auto" means here.
        ahead = 1 if backward_prefetch == "Auto" else backward_prefetch
        if isinstance(ahead, bool) or not isinstance(ahead, int) or ahead < 0:
            raise SporaxTypeError(
                f"For '{self.name}', 'backward_prefetch' must be 'Auto' or an int >= 0, but got {backward_prefetch!r}."
            )
        return self.add_prim_attr("offload", ahead)

    def add_prim_attr(self, name: str, value: Any) -> Self:
        """Attach a named mark. One that nothing reads is kept with a warning.

        Raises:
            SporaxTypeError, SporaxRuntimeError: a value that the mark must not have.
            SporaxValueError: the name is an argument of the constructor, and the value another one.
        """
        if name in self._attributes and self._attributes[name] is not value and self._attributes[name] != value:
            # The operator was made with the other value; plans and programs would disagree about it.
            raise SporaxValueError(
                f"For '{self.name}', '{name}' is an argument of the constructor, which got {self._attributes[name]!r}; a mark "
                f"cannot change it, but got {value!r}."
            )
        if name not in self._attributes:
            check_mark(self.name, name, value)
        self.attrs[name] = value
        frames.touch()
        return self

    def add_attr(self, name: str, value: Any) -> None:
        """As `add_prim_attr`, and gives nothing back."""
        self.add_prim_attr(name, value)

    def del_attr(self, name: str) -> None:
        """As `del_prim_attr`, and gives nothing back."""
        self.del_prim_attr(name)

    def get_attr_dict(self) -> dict[str, Any]:
        """The marks that were attached, by name; a copy."""
        return dict(self.attrs)

    def init_prim_io_names(self, inputs: list[str], outputs: list[str]) -> None:
        """Keep names of inputs and outputs, as the marks ``input_names`` and ``output_names``.

        Raises:
            SporaxTypeError: not lists or tuples of strings.
        """
        for label, names in (("input_names", inputs), ("output_names", outputs)):
            if not isinstance(names, list | tuple) or any(not isinstance(name, str) for name in names):
                raise SporaxTypeError(f"For '{self.name}', '{label}' must be a list of strings, but got {names!r}.")
            self.add_prim_attr(label, names)

    def set_user_data(self, key: str, value: Any) -> None:
        """Keep something of the user's with this primitive; programs do not depend on it."""
        self.__dict__.setdefault("_user_data", {})[key] = value

    def get_user_data(self, key: str) -> Any:
        """What `set_user_data` has kept under a key; None where there is nothing."""
        return self.__dict__.get("_user_data", {}).get(key)

    def del_prim_attr(self, name: str) -> Primitive:
        """Take a named mark away."""
        self.attrs.pop(name, None)
        frames.touch()
        return self

    def set_prim_instance_name(self, instance_name: str) -> Primitive:
        """Name this instance; a Cell does it with the attribute's name."""
        self.instance_name = instance_name
        return self

    def set_stage(self, stage: int) -> Primitive:
        """Mark the pipeline stage."""
        return self.add_prim_attr("stage", stage)

    def set_device(self, device_target: str) -> Primitive:
        """Mark the kind of device this operator runs on: CPU (the host), GPU or Ascend (the accelerator).

        In compiled steps an operator of the host runs there, forward and backward; in a step that a plan shards, every device's
        host computes that device's part, also in a pipeline stage.

        Raises:
            SporaxRuntimeError: another name.
        """
        return self.add_prim_attr("primitive_target", device_target)

    def place(self, role: str, rank_id: int) -> None:
        """Let one worker of the job compute this operator and its derivative; the others receive the results.

        For compiled steps in the parallel mode ``"stand_alone"``. All workers compute what is not placed, from the data and
        first Parameters of worker 0.

        Args:
            role: ``"MS_WORKER"``.
            rank_id: of the worker.

        Raises:
            SporaxTypeError: `rank_id` is not an int.
            SporaxValueError: `role` is not ``"MS_WORKER"`` or `rank_id` is negative.
            SporaxRuntimeError: another parallel mode is set; later, the job has no such worker, or the mode is PYNATIVE_MODE.
        """
        _core.placed_calls.check_place(self.name, role, rank_id, context.snapshot().parallel_mode)
        self.add_prim_attr("place", rank_id)
