"""Members of classes that are made when they are first used, and dataclasses that write their methods then.

Problem: writing the methods of a dataclass, or the signatures of an operator, is most of the work of its definition. `import`
defines 65 dataclasses, each of which takes a millisecond, and a thousand operators, and a program uses few. Method: a descriptor
stands in the place of the member, makes it at the first use, and gives it its place. `dataclasses.dataclass` finds fields
and makes slots; the methods that it would write come from a second, equal dataclass, when one of them is first needed. All
of `dataclasses` works on the result, but for one thing: dataclasses that inherit from a frozen one of these must be made here
as well. Type checkers see `dataclasses.dataclass` itself.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

T = TypeVar("T")


class LazyMembers:
    """A member of a class that is made when it is first used, and then stands in its place.

    Args:
        made: gives the member, and others of the class that are made together with it, by name.
    """

    def __init__(self, made: Callable[[], Mapping[str, Any]]) -> None:
        self._made = made

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner, self._name = owner, name

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        members = self._made()
        for name, member in members.items():
            # What somebody has put there since stays.
            if isinstance(vars(self._owner).get(name), LazyMembers):
                setattr(self._owner, name, member)
        member = members[self._name]
        # As Python finds members: functions become methods.
        return member.__get__(instance, owner) if hasattr(member, "__get__") else member


def add_later(kind: type, name: str, made: Callable[[], Mapping[str, Any]]) -> None:
    """Give a class that is there already a member which `made` gives when it is first used."""
    member = LazyMembers(made)
    setattr(kind, name, member)
    # Python names members of a class's body alone.
    member.__set_name__(kind, name)


def _methods(kind: Any, names: list[str], frozen: bool) -> dict[str, Any]:
    """The methods `names` that Python writes for a dataclass with the fields of `kind`."""
    # A dataclass without a docstring writes its signature there, which takes longer than all the rest.
    namespace = {"__doc__": kind.__doc__}
    if hasattr(kind, "__post_init__"):
        # Only whether it is there matters: what is written calls that of the instance.
        namespace["__post_init__"] = None
    # Copies, as a dataclass notes its own names in the fields that it is given.
    fields = [(field.name, field.type, copy.copy(field)) for field in dataclasses.fields(kind)]
    equal = dataclasses.make_dataclass(
        kind.__name__,
        fields,
        namespace=namespace,
        init="__init__" in names,
        repr="__repr__" in names,
        eq="__eq__" in names or "__hash__" in names,
        frozen=frozen,
    )
    methods = {name: vars(equal)[name] for name in names}
    for name, method in methods.items():
        method.__qualname__, method.__module__ = f"{kind.__qualname__}.{name}", kind.__module__
    return methods


def _freeze(kind: Any, slots: bool) -> None:
    """Let instances refuse new values, and be copied and pickled all the same."""
    fields = frozenset(field.name for field in dataclasses.fields(kind))

    def set_attribute(self: object, name: str, value: object) -> None:
        if type(self) is kind or name in fields:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(kind, self).__setattr__(name, value)

    def delete_attribute(self: object, name: str) -> None:
        if type(self) is kind or name in fields:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(kind, self).__delattr__(name)

    members: dict[str, object] = {"__setattr__": set_attribute, "__delattr__": delete_attribute}
    if slots and "__getstate__" not in vars(kind):
        members.update(__getstate__=_state, __setstate__=_set_state)
    for name, member in members.items():
        setattr(kind, name, member)


def _state(self: Any) -> list[object]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[object]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


def _to_write(kind: type, frozen: bool, eq: bool, repr: bool) -> Iterator[str]:
    """The methods that Python would write."""
    own = vars(kind)
    requested = {"__init__": True, "__repr__": repr, "__eq__": eq}
    yield from (name for name, is_requested in requested.items() if is_requested and name not in own)
    # A class that compares itself has None there, by Python.
    if eq and frozen and own.get("__hash__") is None:
        yield "__hash__"


def _later(kind: type[T], frozen: bool, slots: bool, eq: bool, repr: bool) -> type[T]:
    hashed = vars(kind).get("__hash__") is not None
    names = list(_to_write(kind, frozen, eq, repr))
    made = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots)(kind)
    if eq and not frozen and not hashed:
        # As values that change have it in Python.
        type.__setattr__(made, "__hash__", None)
    for name in names:
        # Instances are made more often than they are compared.
        together = [name] if name == "__init__" else [other for other in names if other != "__init__"]
        add_later(made, name, functools.partial(_methods, made, together, frozen))
    if frozen:
        _freeze(made, slots)
    return made


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(kind=None, /, *, frozen=False, slots=False, eq=True, repr=True):
        """As `dataclasses.dataclass`, for modules that every program imports."""
        if kind is not None:
            return _later(kind, frozen, slots, eq, repr)
        return lambda kind: _later(kind, frozen, slots, eq, repr)
