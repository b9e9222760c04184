"""The same function with other parameters: as a method, with other names, with those of one primitive.

Each form tells `inspect` and `help` what it really takes.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Mapping
from typing import Any

from sporax.base.lazy_members import add_later
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.ops._core.parameters import with_signature


def add_method(kind: type[Any], name: str, function: Callable[..., Any], names: Mapping[str, str]) -> None:
    """Give a class the method that `as_method` makes, when it is first used."""
    add_later(kind, name, lambda: {name: as_method(function, name, names)})


_SELF = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)


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

    method.__name__, method.__doc__ = name, function.__doc__
    # The first parameter becomes `self`.
    signature = inspect.signature(target)
    _, *others = signature.parameters.values()
    return with_signature(method, signature.replace(parameters=[_SELF, *others]))


def renamed(function: Callable[..., Any], names: Mapping[str, str]) -> Callable[..., Any]:
    """`function` with parameters that are called differently; `names` maps the new name to the old one."""
    if not names:
        return function

    def call(*args: Any, **kwargs: Any) -> Any:
        # Only named arguments are renamed; positions are the same.
        return function(*args, **{names.get(name, name): value for name, value in kwargs.items()})

    call.__name__ = getattr(function, "__name__", "call")
    call.__doc__ = function.__doc__
    signature = inspect.signature(function)
    new = {old: name for name, old in names.items()}
    parameters = [
        parameter.replace(name=new.get(parameter.name, parameter.name)) for parameter in signature.parameters.values()
    ]
    return with_signature(call, signature.replace(parameters=parameters))
