"""The mould every operator is cast in.

An operator is one plain function on `jax.Array`s, decorated with `operator`:

    @operator("Softmax", method="softmax", mint="nn.functional.softmax(dim=axis)")
    def softmax(input: Array, axis: int = -1) -> Array:
        \"\"\"Exponentials along `axis`, divided by their sum.\"\"\"
        check.floating("Softmax", input=input)
        return jax.nn.softmax(input, axis)

From this one definition come four forms:

* ``ops.softmax(x, axis=1)``: the function, an `Operator`;
* ``ops.Softmax(axis=1)(x)``: a `Primitive` class, whose constructor takes the attributes and whose call takes the rest;
* ``x.softmax(axis=1)``: a Tensor method;
* ``mint.nn.functional.softmax(x, dim=1)``: with the parameter names of that namespace.

The annotation of a parameter says what it is. `Array` and `Operand` (a tensor or a number) are values; a tuple of tensors
counts as one value; everything else is an attribute: a constant of the program. Each combination of attributes becomes one
inner `jax.jit` named after the operator. Eagerly that is the fast path of JAX's own functions; inside a step it marks the
operator's boundary in the jaxpr, where plans look for it. It also means that the body, checks included, runs once per
combination of shapes, dtypes and attributes, so checks cost nothing after the first call.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import jax
import numpy as np

from sporax.common.tensor import Tensor, wrap
from sporax.ir.errors import (
    SporaxError,
    SporaxRuntimeError,
    SporaxTypeError,
    SporaxValueError,
)
from sporax.runtime import state

Array = jax.Array
Operand = jax.Array | float | int | bool | complex

OPERATORS: dict[str, Operator] = {}
"""All operators by the name of their primitive form (or of their function, where there is no primitive)."""

FUNCTIONS: dict[str, Callable[..., Any]] = {}
"""`sporax.ops` functions by name."""

PRIMITIVES: dict[str, type[Any]] = {}
"""`sporax.ops` classes by name."""

MINT: dict[str, Callable[..., Any]] = {}
"""`sporax.mint` functions by dotted name."""


class _Hole:
    """Stands for an array in the key of a specialisation."""

    def __repr__(self) -> str:
        return "·"


_ONE = _Hole()
_MANY = _Hole()
_NUMBER_TYPES = (float, int, bool, complex)


class Operator:
    """Functional form of an operator. Called with Tensors, numbers and attributes; returns Tensors.

    Attributes:
        name: name of the primitive form; opens error messages and names the operator in compiled programs.
        kernel: the function on arrays.
    """

    def __init__(self, name: str, kernel: Callable[..., Any]) -> None:
        self.name = name
        self.kernel = kernel
        self.__name__ = kernel.__name__
        self.__doc__ = kernel.__doc__
        self.__module__ = kernel.__module__
        self.__signature__ = inspect.signature(kernel)
        self.parameters = tuple(self.__signature__.parameters)
        # Positions and names at which a bare number is a value of the program, not an attribute.
        self.operands = frozenset(
            key
            for position, parameter in enumerate(self.__signature__.parameters.values())
            if "Operand" in str(parameter.annotation)
            for key in (position, parameter.name)
        )
        self._compiled: dict[Any, Callable[..., Any]] = {}

    def __repr__(self) -> str:
        return f"<operator {self.name}{self.__signature__}>"

    @property
    def usage(self) -> str:
        """How it is called, without annotations."""
        bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in self.__signature__.parameters.values()]
        return f"{self.__name__}{self.__signature__.replace(parameters=bare, return_annotation=inspect.Signature.empty)}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the operator.

        Raises:
            SporaxTypeError, SporaxValueError: the arguments do not fit; the message says which and why.
        """
        return self.run(args, kwargs)

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any], constants: tuple[Any, ...] = ()) -> Any:
        """Run the operator on positional and named arguments, and on constants given as parts of the key."""
        arrays: list[Any] = []
        key: list[Any] = []
        for position, arg in enumerate(args):
            kind = type(arg)
            if kind is Tensor:
                arrays.append(arg.raw)
                key.append(_ONE)
            elif kind in _STATIC_TYPES and not (kind in _NUMBER_TYPES and position in self.operands):
                key.append((kind, arg))
            else:
                key.append(self._sort(position, arg, arrays))
        if kwargs:
            for name, arg in kwargs.items():
                key.append((name, self._sort(name, arg, arrays)))
        try:
            whole = (*key, *constants)
            compiled = self._compiled.get(whole) or self._specialise(len(args), whole)
            result = compiled(*arrays)
        except SporaxError as error:
            raise error.with_traceback(None) from None
        except (TypeError, ValueError, IndexError, NotImplementedError) as error:
            raise self._explain(error, args, {**kwargs, **{name: value for name, (_, value) in constants}}) from None
        if isinstance(result, tuple | list):
            return tuple(map(wrap, result))
        return wrap(result)

    def _sort(self, where: int | str, arg: Any, arrays: list[Any]) -> Any:
        """Put `arg` among the arrays, or return it as part of the key."""
        if isinstance(arg, Tensor):
            arrays.append(arg.array)
            return _ONE
        if isinstance(arg, np.ndarray | jax.Array) or (isinstance(arg, _NUMBER_TYPES) and where in self.operands):
            arrays.append(arg)
            return _ONE
        if isinstance(arg, tuple | list):
            if any(isinstance(item, Tensor) for item in arg):
                arrays.append(tuple(item.array if isinstance(item, Tensor) else item for item in arg))
                return _MANY
            if where in self.operands and arg:
                arrays.append(Tensor(arg).raw)
                return _ONE
            arg = _frozen(arg)
        return type(arg), arg

    def _specialise(self, num_args: int, key: tuple[Any, ...]) -> Callable[..., Any]:
        """Compile the kernel for one pattern of values and attributes."""
        kernel = self.kernel

        def call(*arrays: Any) -> Any:
            remaining = iter(arrays)

            def fill(part: Any) -> Any:
                return next(remaining) if part is _ONE or part is _MANY else part[1]

            args = [fill(part) for part in key[:num_args]]
            return kernel(*args, **{name: fill(part) for name, part in key[num_args:]})

        call.__name__ = call.__qualname__ = self.name
        compiled = self._compiled[key] = jax.jit(call)
        return compiled

    def _explain(self, error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any]) -> SporaxError:
        """What JAX, numpy or Python refused, in the words of the operator's caller."""
        try:
            self.__signature__.bind(*args, **kwargs)
        except TypeError as mismatch:
            return SporaxTypeError(
                f"For '{self.name}', {mismatch}; the signature is {self.usage}."
            )
        given = [_describe(arg) for arg in args] + [f"{name}={_describe(arg)}" for name, arg in kwargs.items()]
        kind = SporaxValueError if isinstance(error, ValueError | IndexError) else SporaxTypeError
        reason = str(error).split("\n")[0].rstrip(".")
        return kind(f"For '{self.name}', the arguments ({', '.join(given)}) do not fit: {reason}.")


class Composition(Operator):
    """An operator whose kernel is a Python function of Tensors, made of other operators.

    For what is not one compiled program: results whose shape depends on values, random draws, writes to Parameters.
    """

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any], constants: tuple[Any, ...] = ()) -> Any:
        """Call the kernel."""
        settings = {**kwargs, **{name: value for name, (_, value) in constants}}
        try:
            self.__signature__.bind(*args, **settings)
        except TypeError as mismatch:
            raise self._explain(mismatch, args, settings) from None
        return self.kernel(*args, **settings)


_STATIC_TYPES = frozenset((int, float, bool, complex, str, type(None)))


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, list | tuple) else value


def _describe(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, tuple | list) and any(isinstance(item, Tensor) for item in value):
        return f"({', '.join(map(_describe, value))})"
    return repr(value)


class Primitive:
    """Class form of an operator: attributes at construction, values at the call.

    As an attribute of a Cell it has a place in the program, ``net.dense1.matmul``, by which plans look up its marks.
    """

    operator: Operator
    attribute_names: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = {}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.name = type(self).__name__
        self.instance_name = ""
        self.attrs: dict[str, Any] = {}
        self._attributes = self._bind(args, kwargs)
        self._constants = tuple((key, (type(value), _frozen(value))) for key, value in self._attributes.items())

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        names = self.attribute_names
        if len(args) > len(names):
            raise SporaxTypeError(
                f"For '{self.name}', the constructor takes {len(names)} arguments {names}, but got {len(args)}."
            )
        given = dict(zip(names, args, strict=False))
        for name, value in kwargs.items():
            if name not in names or name in given:
                problem = "is given twice" if name in given else f"is not one of {names}"
                raise SporaxTypeError(f"For '{self.name}', the argument '{name}' {problem}.")
            given[name] = value
        attributes = {**self.defaults, **given}
        missing = [name for name in names if name not in attributes]
        if missing:
            raise SporaxTypeError(f"For '{self.name}', the constructor lacks the arguments {missing}.")
        return attributes

    def __getattr__(self, name: str) -> Any:
        attributes = self.__dict__.get("_attributes", {})
        if name in attributes:
            return attributes[name]
        attrs = self.__dict__.get("attrs", {})
        if name in attrs:
            return attrs[name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __call__(self, *args: Any) -> Any:
        """Run the operator on these values."""
        if state.current_frame() is None:
            return self.operator.run(args, {}, self._constants)
        try:
            with jax.named_scope(self.instance_name or self.name):
                return self.operator.run(args, {}, self._constants)
        except SporaxError as error:
            error.within(self.instance_name)
            raise

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value!r}" for name, value in self._attributes.items())
        return f"Prim[{self.name}]<{settings}>" if settings else f"Prim[{self.name}]"

    # ------------------------------------------------------------------------------------------- marks, read by plans

    def shard(self, in_strategy: Any = None, out_strategy: Any = None) -> Any:
        """Say how inputs (and output) are cut; read by semi-automatic and automatic parallelism, ignored elsewhere.

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
            raise SporaxValueError(f"For '{self.name}', 'out_strategy' needs an 'in_strategy', but that is None.")
        form = _strategy_form(self.name, "in_strategy", in_strategy)
        if out_strategy is not None and _strategy_form(self.name, "out_strategy", out_strategy) != form:
            raise SporaxValueError(
                f"For '{self.name}', 'in_strategy' and 'out_strategy' must both be tuples or both Layouts."
            )
        self.attrs["in_strategy"] = in_strategy
        self.attrs["out_strategy"] = out_strategy
        state.touch()
        return self

    def recompute(self, mode: bool = True) -> Primitive:
        """Mark the outputs to be computed again in the backward pass.

        Raises:
            SporaxTypeError: `mode` is not a bool.
        """
        if not isinstance(mode, bool):
            raise SporaxTypeError(f"For '{self.name}', 'mode' must be a bool, but got {type(mode).__name__}.")
        return self.add_prim_attr("recompute", mode)

    def add_prim_attr(self, name: str, value: Any) -> Primitive:
        """Attach a named mark."""
        self.attrs[name] = value
        state.touch()
        return self

    def del_prim_attr(self, name: str) -> Primitive:
        """Take a named mark away."""
        self.attrs.pop(name, None)
        state.touch()
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

        Raises:
            SporaxRuntimeError: another name.
        """
        if device_target not in ("CPU", "GPU", "Ascend"):
            raise SporaxRuntimeError(
                f"For '{self.name}', 'device_target' must be 'CPU', 'GPU' or 'Ascend', but got {device_target!r}."
            )
        return self.add_prim_attr("primitive_target", device_target)

    def place(self, role: str, rank_id: int) -> None:
        """Mark the process this operator runs on.

        Raises:
            SporaxTypeError: `rank_id` is not an int.
            SporaxValueError: `role` is not ``"MS_WORKER"`` or `rank_id` is negative.
        """
        if role != "MS_WORKER":
            raise SporaxValueError(f"For '{self.name}', 'role' must be 'MS_WORKER', but got {role!r}.")
        if not isinstance(rank_id, int) or isinstance(rank_id, bool):
            raise SporaxTypeError(f"For '{self.name}', 'rank_id' must be an int, but got {type(rank_id).__name__}.")
        if rank_id < 0:
            raise SporaxValueError(f"For '{self.name}', 'rank_id' must be >= 0, but got {rank_id}.")
        self.add_prim_attr("place", (role, rank_id))


def _strategy_form(name: str, what: str, strategy: Any) -> str:
    if not isinstance(strategy, tuple):
        raise SporaxTypeError(f"For '{name}', '{what}' must be a tuple, but got {type(strategy).__name__}.")
    form = "tuple"
    for entry in strategy:
        if hasattr(entry, "tensor_map") or hasattr(entry, "to_dict"):
            form = "layout"
        elif not isinstance(entry, tuple):
            raise SporaxTypeError(
                f"For '{name}', the entries of '{what}' must be tuples or Layouts, but got {entry!r}."
            )
        elif any(not isinstance(cut, int | tuple) or isinstance(cut, bool) for cut in entry):
            raise SporaxTypeError(f"For '{name}', the cuts in '{what}' must be ints, but got {entry!r}.")
    return form


class _Registrar(Protocol):
    def __call__(self, kernel: Callable[..., Any]) -> Operator: ...


_FORM = re.compile(r"^(?P<name>[\w.]+)(?:\((?P<params>.*)\))?$")
_COMMA = re.compile(r",(?![^()]*\))")  # outside parentheses


def operator(
    primitive: str | None = None,
    *,
    function: str | None = None,
    method: str | None = None,
    mint: str | None = None,
    composed: bool = False,
) -> _Registrar:
    """Make an operator of a kernel and register its forms.

    Args:
        primitive: name of the class form, with the attributes its constructor takes in order: ``"MatMul(transpose_a,
            transpose_b)"``. Without parentheses all attributes belong to the constructor; ``"Name()"``: none does.
        function: name in `sporax.ops`; the kernel's by default, "" for none.
        method: names of Tensor methods, separated by commas; parameters that have another name there as for `mint`.
        mint: dotted names in `sporax.mint`, separated by semicolons, with parameters that have another name there:
            ``"nn.functional.softmax(dim=axis)"``.
        composed: the kernel works on Tensors and calls other operators; see `Composition`.
    """

    def register(kernel: Callable[..., Any]) -> Operator:
        class_name, constructor = _parse(primitive or "")
        result = (Composition if composed else Operator)(class_name or kernel.__name__, kernel)
        OPERATORS[result.name] = result
        name = kernel.__name__ if function is None else function
        if name:
            FUNCTIONS[name] = result
        if class_name:
            PRIMITIVES[class_name] = _class_form(class_name, constructor, result)
        for each in filter(None, _COMMA.split(method or "")):
            own, renames = _parse(each.strip())
            setattr(Tensor, own, as_method(renamed(result, _pairs(renames)), own))
        for each in filter(None, (mint or "").split(";")):
            dotted, renames = _parse(each.strip())
            MINT[dotted] = renamed(result, _pairs(renames))
        return result

    return register


def _parse(form: str) -> tuple[str, tuple[str, ...] | None]:
    if not form:
        return "", None
    match = _FORM.match(form)
    assert match is not None, form
    params = match["params"]
    return match["name"], None if params is None else tuple(part.strip() for part in params.split(",") if part.strip())


def _pairs(renames: tuple[str, ...] | None) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in renames or ())  # type: ignore[misc]  # each is "new=old"


def _class_form(name: str, constructor: tuple[str, ...] | None, target: Operator) -> type[Primitive]:
    parameters = target.__signature__.parameters
    if constructor is None:
        constructor = tuple(
            parameter.name
            for parameter in parameters.values()
            if not re.search(r"Array|Operand", str(parameter.annotation))
        )
    defaults = {
        parameter: parameters[parameter].default
        for parameter in constructor
        if parameters[parameter].default is not inspect.Parameter.empty
    }
    body = {
        "operator": target,
        "attribute_names": constructor,
        "defaults": defaults,
        "__doc__": target.__doc__,
        "__module__": "sporax.ops",
    }
    return type(name, (Primitive,), body)


def as_method(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """`function` as a method whose first argument is the Tensor."""

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        return function(self, *args, **kwargs)

    method.__name__ = name
    method.__doc__ = function.__doc__
    return method


def renamed(function: Callable[..., Any], names: Mapping[str, str]) -> Callable[..., Any]:
    """`function` with keyword arguments that are called differently; `names` maps the new name to the old one."""
    if not names:
        return function

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **{names.get(name, name): value for name, value in kwargs.items()})

    call.__name__ = getattr(function, "__name__", "call")
    call.__doc__ = function.__doc__
    return call


def export(*functions: Callable[..., Any], mint: str = "", method: bool = False) -> None:
    """Register functions composed of operators under their own names in `sporax.ops` (and Tensor, and `sporax.mint`)."""
    for function in functions:
        name = function.__name__
        FUNCTIONS[name] = function
        if method:
            setattr(Tensor, name, as_method(function, name))
        if mint:
            MINT[mint if mint.split(".")[-1] == name else f"{mint}{name}"] = function
