"""What the parameters of an operator may be, read off the annotations of its kernel.

`Array` and `Operand` parameters are values: tensors, and for `Operand` numbers as well. Everything else is an attribute.
The annotation is the check, so a kernel need not repeat it: ``axis: int`` refuses ``1.0`` and ``True`` when a primitive
is constructed or, in the functional form, when the kernel is about to run for the first time with these arguments.

The same function with other parameters, as a method, with other names or with those of one primitive: each form shows `inspect`
and `help` what it really takes. `Restated` is a kernel with its parameters in another order, or with other defaults.
"""

from __future__ import annotations

import functools
import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import jax
import numpy as np

from sporax.base.errors import For, SporaxError, SporaxTypeError, named
from sporax.base.lazy_members import add_later
from sporax.mindspore.common import DType, Tensor
from sporax.runtime.state import frames, known

if TYPE_CHECKING:
    from sporax.mindspore.ops._core.operator import Operator

Array = jax.Array
Operand = jax.Array | float | int | bool | complex

# As MindSpore: ``axis=True`` is a mistake.
# What stands for a Python type besides itself. A bool is no number here, though Python's int says so.
_ACCEPTED: dict[Any, tuple[type, ...]] = {
    bool: (bool, np.bool_),
    int: (int, np.integer),
    float: (float, int, np.floating, np.integer),
    complex: (complex, float, int, np.number),
}
_NAMES = {Array: "Tensor", type(None): "None", DType: "dtype"}
_LIMITED = re.compile(r"check\.[A-Z]\w*")
_SELF = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
_Function = TypeVar("_Function", bound=Callable[..., Any])
_Decorator = Callable[[Callable[..., object]], Any]


def with_signature(function: _Function, signature: inspect.Signature) -> _Function:
    """`function`, for which `inspect` and `help` show this signature."""
    vars(function)["__signature__"] = signature
    return function


def taking(model: Callable[..., object], without: str = "", before: str = "", **defaults: object) -> _Decorator:
    """Decorator for a function that takes the parameters of `model`, and gets all of them by name.

    Args:
        model: whose signature it is.
        without: names of those that it does not take, separated by spaces.
        before: in front of which the function's own ones come, those that are given by name alone; at the end by default.
        defaults: of its own, where they differ.
    """
    signature = inspect.signature(model)

    def decorate(function: Callable[..., object]) -> Callable[..., object]:
        added = [part for part in inspect.signature(function).parameters.values() if part.kind is part.KEYWORD_ONLY]
        # A method of what is no method has `self` in front.
        is_method = next(iter(inspect.signature(function).parameters), "") == "self" not in signature.parameters
        parameters: list[inspect.Parameter] = [_SELF] if is_method else []
        for part in signature.parameters.values():
            parameters += [own.replace(kind=part.kind) for own in added if part.name == before]
            if part.name not in without.split():
                parameters.append(part.replace(default=defaults.get(part.name, part.default)))
        if not before:
            parameters += [own.replace(kind=own.POSITIONAL_OR_KEYWORD) for own in added]
        taken = inspect.signature(function).replace(parameters=parameters)
        return _called_by_name(function, taken, lambda arguments: function(**arguments))

    return decorate


def refusing(others: str, refuse: Callable[..., None], before: str = "") -> _Decorator:
    """Decorator for the call of a primitive that does not use some of MindSpore's inputs: they stay in its signature.

    Args:
        others: names of these, each None by default, separated by spaces.
        refuse: gets the primitive's name, then all of them by name, as pairs with None, the one value that is offered.
        before: in front of which input they come; at the end by default.
    """
    names = others.split()

    def decorate(function: Callable[..., object]) -> Callable[..., object]:
        signature = inspect.signature(function)
        own = list(signature.parameters.values())
        place = [*signature.parameters, ""].index(before)
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        refused = [inspect.Parameter(name, kind, default=None, annotation="None") for name in names]

        def call(arguments: dict[str, Any]) -> object:
            refuse(arguments["self"].name, **{name: (arguments.pop(name), None) for name in names})
            return function(**arguments)

        return _called_by_name(function, signature.replace(parameters=[*own[:place], *refused, *own[place:]]), call)

    return decorate


def _called_by_name(
    function: Callable[..., object], signature: inspect.Signature, run: Callable[[dict[str, Any]], object]
) -> Callable[..., object]:
    """`function` with another signature: `run` gets all arguments by name."""

    @functools.wraps(function)
    def call(*args: object, **kwargs: object) -> object:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as mismatch:
            # Python's words for it begin with the name.
            raise TypeError(f"{function.__qualname__}() {mismatch}") from None
        bound.apply_defaults()
        return run(bound.arguments)

    # `inspect` would follow it to the signature of `function`.
    del vars(call)["__wrapped__"]
    return with_signature(call, signature)


class Parameters:
    """The parameters of one operator.

    Args:
        operator: its name, which opens the messages.
        kernel: the function whose signature says what they are.
    """

    def __init__(self, operator: str, kernel: Callable[..., Any]) -> None:
        self.operator = operator
        self._kernel = kernel
        self._globals = getattr(kernel, "__globals__", {})

    @cached_property
    def signature(self) -> inspect.Signature:
        """The kernel's, with annotations as text, in which arrays with limits are arrays."""
        signature = inspect.signature(self._kernel)
        # Most have none, and many are read at import.
        if not self.limits:
            return signature
        parts = signature.parameters.values()
        plain = [part.replace(annotation="Array") if part.name in self.limits else part for part in parts]
        return signature.replace(parameters=plain)

    @cached_property
    def limits(self) -> Mapping[str, Callable[..., None]]:
        """What checks arrays of the kernel besides their type, see `check.Float`."""
        hints = getattr(self._kernel, "__annotations__", {}).items()
        return {name: self._evaluated(hint).__metadata__[0] for name, hint in hints if _LIMITED.fullmatch(str(hint))}

    def check_limits(self, arguments: Mapping[str, Any]) -> None:
        """Raise SporaxTypeError or SporaxValueError unless the arrays are what the kernel takes."""
        for name, limit in self.limits.items():
            if name in arguments:
                limit(self.operator, **{name: arguments[name]})

    @cached_property
    def operands(self) -> frozenset[int | str]:
        """Positions and names at which a bare number is a value of the program, not an attribute."""
        # As text: kernels' annotations are not evaluated before the first check.
        return frozenset(
            key
            for position, parameter in enumerate(self.signature.parameters.values())
            # "Operand" may be one of several, as in ``Operand | None``.
            if "Operand" in str(parameter.annotation)
            for key in (position, parameter.name)
        )

    @cached_property
    def numbers(self) -> tuple[tuple[int, str], ...]:
        """Positions and names of the attributes that are ints, tuples of ints or bools, such as shapes, sizes and switches."""
        hints = self.hints.values()
        return tuple(
            (position, name)
            for position, (name, hint) in enumerate(zip(self.signature.parameters, hints, strict=True))
            if any(part in (int, bool, tuple[int, ...]) for part in _parts(hint)) and not _holds_array(hint)
        )

    @cached_property
    def hints(self) -> Mapping[str, Any]:
        """The annotations, evaluated."""
        return {name: self._evaluated(parameter.annotation) for name, parameter in self.signature.parameters.items()}

    def _evaluated(self, annotation: Any) -> Any:
        if annotation is inspect.Parameter.empty:
            return Any
        if not isinstance(annotation, str):
            return annotation
        # Annotations are text because of `from __future__ import annotations`; they are our own code.
        return eval(annotation, {"Array": Array, "Operand": Operand, "Any": Any, **self._globals})

    @property
    def attributes(self) -> tuple[str, ...]:
        """Names of the parameters that are constants of the program."""
        return tuple(name for name, hint in self.hints.items() if not _holds_array(hint))

    def check_call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Raise SporaxTypeError or SporaxValueError unless every argument is what its annotation says."""
        # `bind` without defaults: these need no check.
        arguments = self.signature.bind(*args, **kwargs).arguments
        for name, value in arguments.items():
            self.check(name, value)
        self.check_limits(arguments)

    def check(self, name: str, value: Any) -> None:
        """Raise SporaxTypeError unless `value` may be given for the parameter `name` (ValueError for a wrong choice)."""
        parameter, hint = self.signature.parameters[name], self.hints[name]
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) or fits(value, hint):
            return
        # A default may be of another type than the annotation, such as None for a tuple.
        if value is parameter.default:
            return
        choices = [
            choice for part in _parts(hint) if typing.get_origin(part) is Literal for choice in typing.get_args(part)
        ]
        # A wrong choice is a ValueError in MindSpore, a wrong type a TypeError.
        if choices and isinstance(value, str):
            raise For(self.operator).error(f"{named(name)} must be one of {tuple(choices)}", repr(value))
        kind = refusal(value) if name in dict(self.numbers).values() else SporaxTypeError
        raise kind(
            f"For '{self.operator}', the type of '{name}' must be {describe_hint(hint)}, but got {_describe_value(value)}."
        )


def fits(value: Any, hint: Any) -> bool:
    """Whether `value` is what `hint` says."""
    if hint is Any or hint is inspect.Parameter.empty:
        return True
    parts = _parts(hint)
    if len(parts) > 1:
        return any(fits(value, part) for part in parts)
    origin = typing.get_origin(hint)
    if origin is Literal:
        return value in typing.get_args(hint)
    # MindSpore takes lists for tuples.
    if origin in (tuple, list):
        return isinstance(value, tuple | list) and _elements_fit(value, typing.get_args(hint))
    if hint is Array:
        # A tuple of tensors is one value; a kernel that cannot take it refuses it itself.
        return _is_array(value) or (isinstance(value, tuple) and any(map(_is_array, value)))
    if hint is None:
        return value is None
    if hint is not bool and isinstance(value, bool | np.bool_):
        return False
    # A hint that is no plain class, such as a callable, is not checked here.
    return isinstance(value, _ACCEPTED.get(hint, hint)) if isinstance(hint, type) else True


def describe_hint(hint: Any) -> str:
    """An annotation in words: ``int or tuple of int``."""
    parts = _parts(hint)
    if len(parts) > 1:
        return " or ".join(dict.fromkeys(map(describe_hint, parts)))
    if typing.get_origin(hint) is Literal:
        return " or ".join(map(repr, typing.get_args(hint)))
    if typing.get_origin(hint) in (tuple, list):
        elements = dict.fromkeys(
            describe_hint(argument) for argument in typing.get_args(hint) if argument is not Ellipsis
        )
        return f"tuple of {' or '.join(elements)}"
    return str(_NAMES.get(hint) or getattr(hint, "__name__", hint))


def known_ints(value: Any) -> Any:
    """A Tensor of whole numbers, a range, or a tuple or list with such Tensors, as an int or a tuple of ints; else `value`.

    MindSpore takes shapes and sizes in this form; bools as `mutable` makes them. What a compiled step does not know stays.
    """
    if isinstance(value, range):  # in MindSpore's compiled code it is a tuple
        return tuple(value)
    if isinstance(value, Tensor):
        if value.ndim > 1 or not _may_set(value.array):
            return value
        numbers = known(value.array)
        if numbers is None:
            return value
        return numbers.item() if not numbers.ndim else tuple(numbers.tolist())
    if isinstance(value, tuple | list) and any(isinstance(part, Tensor) for part in value):
        return tuple(map(known_ints, value))
    return value


def refusal(value: Any) -> type[SporaxTypeError]:
    """The error for what is no int, tuple of ints or bool: it may be one that is not known while a step is being compiled."""
    arrays = filter(_is_array, jax.tree.leaves(value))
    return frames.value_unknown() if any(map(_may_set, arrays)) else SporaxTypeError


def _may_set(array: jax.Array) -> bool:
    """Whether its numbers may be settings."""
    return array.dtype == np.bool_ or np.issubdtype(array.dtype, np.integer)


def _parts(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def _holds_array(hint: Any) -> bool:
    return hint is Array or any(_holds_array(part) for part in typing.get_args(hint))


def _elements_fit(values: Any, elements: tuple[Any, ...]) -> bool:
    if len(elements) == 2 and elements[1] is Ellipsis:
        return all(fits(value, elements[0]) for value in values)
    return not elements or (len(values) == len(elements) and all(map(fits, values, elements)))


def _is_array(value: object) -> bool:
    return isinstance(value, jax.Array)


def _describe_value(value: Any) -> str:
    if isinstance(value, jax.Array | Tensor):
        return f"a Tensor of shape {tuple(value.shape)}"
    if isinstance(value, np.ndarray):
        return f"a numpy array of shape {value.shape}; wrap it in Tensor(...)"
    # MindSpore does not take numpy arrays either; the message says the way out.
    return f"{type(value).__name__}: {value!r}"


def static(value: Any) -> tuple[Any, ...]:
    """`value` as part of the key of a specialisation: its kind, itself, and for a sequence the kinds of its elements.

    Equal keys mean the same program, and 1, 1.0 and True are equal in Python.
    """
    if isinstance(value, tuple | list):
        frozen = _frozen(value)
        return tuple, frozen, _kinds(frozen)
    return type(value), value


def _frozen(value: Any) -> tuple[Any, ...]:
    # Lists cannot be hashed, and are the same to a kernel.
    return tuple(_frozen(item) if isinstance(item, tuple | list) else item for item in value)


def _kinds(value: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(_kinds(item) if isinstance(item, tuple) else type(item) for item in value)


def add_method(kind: type[Any], name: str, function: Callable[..., Any], names: Mapping[str, str]) -> None:
    """Give a class the method that `as_method` makes, when it is first used."""
    add_later(kind, name, lambda: {name: as_method(function, name, names)})


def with_parameters(method: Any, parameters: list[inspect.Parameter]) -> Any:
    """The same method once more, with these parameters."""
    # A new function object over the same code, since a signature belongs to the object.
    copied = types.FunctionType(
        method.__code__, method.__globals__, method.__name__, method.__defaults__, method.__closure__
    )
    functools.update_wrapper(copied, method, assigned=("__doc__", "__module__", "__qualname__"))
    # `inspect` would follow it to the first signature.
    del vars(copied)["__wrapped__"]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    named = [parameter.replace(kind=kind) for parameter in parameters]
    # Defaults may come before parameters without one here, which `Signature` would refuse.
    return with_signature(copied, inspect.Signature([_SELF, *named], __validate_parameters__=False))


def as_method(function: Callable[..., Any], name: str, names: Mapping[str, str] | None = None) -> Callable[..., Any]:
    """`function` as a method whose first argument is the Tensor; `names` as for `renamed`."""
    target = function
    if names:
        target = renamed(function, names)
        # Messages of renamed parameters name the method.
        target.__name__ = f"_{name}"

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        return target(self, *args, **kwargs)

    method.__name__, method.__doc__ = name, target.__doc__
    signature = inspect.signature(target)
    _, *others = signature.parameters.values()
    return with_signature(method, signature.replace(parameters=[_SELF, *others]))


def renamed(function: Callable[..., Any], names: Mapping[str, str]) -> Callable[..., Any]:
    """`function` with parameters that are called differently; `names` maps the new name to the old one."""
    if not names:
        return function

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **{names.get(name, name): value for name, value in kwargs.items()})

    call.__name__ = getattr(function, "__name__", "call")
    new = {old: name for name, old in names.items()}
    call.__doc__ = _with_names(function.__doc__, new)
    signature = inspect.signature(function)
    parameters = [
        parameter.replace(name=new.get(parameter.name, parameter.name)) for parameter in signature.parameters.values()
    ]
    return with_signature(call, signature.replace(parameters=parameters))


def _with_names(doc: str | None, new: Mapping[str, str]) -> str:
    """A docstring in which parameters have new names, by their old ones."""
    return re.sub(
        r"(?m)(`|^ +)(\w+)(`|: )", lambda found: f"{found[1]}{new.get(found[2], found[2])}{found[3]}", doc or ""
    )


class Restated:
    """The kernel of an operator with parameters in another order, with other names or other defaults.

    Args:
        target: the operator.
        name: of this form, for messages; those of names that begin with an underscore name the operator.
        parameters: names in their order, separated by spaces, ``new=old`` where they differ, behind ``*`` those that
            are given by name alone; "" for those of the operator.
        defaults: by new name, where they differ; and values of parameters of the operator that are left out.
    """

    def __init__(self, target: Operator[Any], name: str, parameters: str, defaults: Mapping[str, Any]) -> None:
        self.__wrapped__ = kernel = target.kernel
        self.__name__, self.__module__, self.__globals__ = name, kernel.__module__, kernel.__globals__
        self._target, self._parameters, self._defaults = target, parameters, defaults
        new = {old: new for new, _, old in (part.partition("=") for part in parameters.split()) if old}
        self.__doc__ = _with_names(kernel.__doc__, new)

    @cached_property
    def _old_names(self) -> dict[str, str]:
        names = self._parameters.split() or list(self._target.__signature__.parameters)
        return {new: old or new for new, _, old in (name.partition("=") for name in names if name != "*")}

    @cached_property
    def __signature__(self) -> inspect.Signature:
        signature = self._target.__signature__
        by_name = len(self._parameters.partition("*")[0].split())
        parameters = []
        for place, (new, name) in enumerate(self._old_names.items()):
            old = signature.parameters[name]
            kind = old.KEYWORD_ONLY if place >= by_name else old.POSITIONAL_OR_KEYWORD
            default = self._defaults.get(new, old.default)
            parameters.append(old.replace(name=new, default=default, kind=kind if self._parameters else old.kind))
        return signature.replace(parameters=parameters)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        bound = self.__signature__.bind(*args, **kwargs)
        arguments = {**self._defaults, **bound.arguments}
        named = {self._old_names.get(name, name): value for name, value in arguments.items()}
        try:
            self._target.parameters.check_limits(named)
            return self.__wrapped__(**named)
        except SporaxError as error:
            if not self.__name__.startswith("_"):
                error.rename(self._target.name, self.__name__)
            raise
