"""Reading JSON from outside, value by value: what is not as it must be is refused with where it stands.

A reader is a function from a decoded value to what it means. `field` and `each` go one step into the document and put that
step in front of what went wrong below, so a message names the whole way (``operators[3].results[0]``) and nothing is spent on
places while all is well.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from typing import Any, TypeVar, cast

T = TypeVar("T")

_KINDS = {
    dict: "an object",
    list: "a list",
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
}


class MalformedError(Exception):
    """A value that is not as it must be.

    Args:
        reason: what it must be, and what it is: ``"must be a list, but got 3"``.
        where: the way there, from the value that the reader was given.
    """

    def __init__(self, reason: str, where: str = "") -> None:
        super().__init__(reason, where)
        self.reason, self.where = reason, where

    def __str__(self) -> str:
        return f"'{self.where.lstrip('.')}' {self.reason}" if self.where else f"it {self.reason}"

    def below(self, step: str) -> MalformedError:
        """The same, seen from one step above."""
        return MalformedError(self.reason, f"{step}{self.where}")


def of_kind(value: Any, kind: type[T]) -> T:
    """The value, if it is of a kind of JSON; a whole number is a number as well."""
    if type(value) is kind or (kind is float and type(value) is int):
        return cast(T, value)
    raise MalformedError(f"must be {_KINDS[kind]}, but got {reprlib.repr(value)}")


def text(value: Any) -> str:
    """A text."""
    return of_kind(value, str)


def flag(value: Any) -> bool:
    """True or false."""
    return of_kind(value, bool)


def whole(value: Any) -> int:
    """A whole number."""
    return of_kind(value, int)


def number(value: Any) -> float:
    """A number."""
    return of_kind(value, float)


def field(value: Any, name: str, read: Callable[[Any], T]) -> T:
    """What stands under a name of an object."""
    of_kind(value, dict)
    if name not in value:
        raise MalformedError(f"must have '{name}', but has {reprlib.repr(sorted(value))}")
    try:
        return read(value[name])
    except MalformedError as problem:
        raise problem.below(f".{name}") from None


def list_of(value: Any, read: Callable[[Any], T]) -> tuple[T, ...]:
    """The entries of a list."""
    items: list[T] = []
    for entry in of_kind(value, list):
        try:
            items.append(read(entry))
        except MalformedError as problem:
            raise problem.below(f"[{len(items)}]") from None
    return tuple(items)


def numbers(value: Any) -> tuple[int, ...]:
    """A list of whole numbers."""
    if type(value) is list and all(type(entry) is int for entry in value):
        return tuple(value)
    return list_of(value, whole)
