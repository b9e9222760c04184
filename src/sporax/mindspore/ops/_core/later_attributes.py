"""Attributes of a primitive that are set after its construction, ``product.transpose_b = True``.

Problem: an operator reads its arguments once, when the primitive is made; an attribute that was set later was a note of
Python's that nothing read. Method: one that is an argument of the constructor makes the primitive again, with all of the
constructor's checks, since MindSpore takes the new value; one that nothing reads is told.
"""

from __future__ import annotations

import inspect
import warnings
from typing import Any

from sporax.mindspore.ops._core.marks import MARKS


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


def tell_unread(primitive: Any, name: str) -> None:
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
