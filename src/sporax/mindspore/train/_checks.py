"""Checks of arguments that the training tools share."""

from __future__ import annotations

from typing import Any

from sporax.base.errors import SporaxTypeError, SporaxValueError, check_type


def check_bool(where: str, what: str, value: Any) -> bool:
    """`value`, if it is a bool.

    Raises:
        SporaxTypeError: it is not.
    """
    check_type(where, what, value, "a bool", bool)
    return value


def check_integer(where: str, what: str, value: Any) -> int:
    """`value`, if it is a whole number (and not a bool).

    Raises:
        SporaxTypeError: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise SporaxTypeError(f"For '{where}', '{what}' must be a whole number, but got {type(value).__name__}.")
    return value


def check_count(where: str, what: str, value: Any, *, minimum: int) -> int:
    """`value`, if it is a whole number of at least `minimum`.

    Raises:
        SporaxTypeError: not a whole number.
        SporaxValueError: too small.
    """
    count = check_integer(where, what, value)
    if count < minimum:
        raise SporaxValueError(f"For '{where}', '{what}' must be >= {minimum}, but got {value}.")
    return count


def check_number(where: str, what: str, value: Any) -> float:
    """`value`, if it is a real number (and not a bool).

    Raises:
        SporaxTypeError: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SporaxTypeError(f"For '{where}', '{what}' must be a number, but got {type(value).__name__}.")
    return value


def check_text(where: str, what: str, value: Any, choices: tuple[str, ...] = ()) -> str:
    """`value`, if it is a string, and one of `choices` where there are any.

    Raises:
        SporaxTypeError: not a string.
        SporaxValueError: not one of the choices.
    """
    check_type(where, what, value, "a string", str)
    if choices and value not in choices:
        raise SporaxValueError(f"For '{where}', '{what}' must be one of {list(choices)}, but got '{value}'.")
    return value
