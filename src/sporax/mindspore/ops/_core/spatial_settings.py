"""Settings of spatial operators: one number for all dims, or one for each."""

from __future__ import annotations

from typing import Any, Literal

from sporax.base.errors import SporaxTypeError, SporaxValueError

Pair = tuple[int, int]


ImageFormat = Literal["NCHW", "NHWC"]


def pair(operator_name: str, value: Any, name: str, least: int = 1) -> Pair:
    """A setting for height and width: one int for both, two ints, or four as in ``(1, 1, h, w)``.

    Raises:
        SporaxTypeError: not ints.
        SporaxValueError: another number of them, or one below `least`.
    """
    values = (value,) * 2 if isinstance(value, int) else value
    if (
        # Before the length: a bool is an int, and True would become (True, True).
        isinstance(value, bool)
        or not isinstance(values, tuple)
        or any(not isinstance(number, int) for number in values)
    ):
        raise SporaxTypeError(f"For '{operator_name}', '{name}' must be an int or a tuple of ints, but got {value!r}.")
    # MindSpore's long form has the dims of sample and channel in front.
    if len(values) == 4:
        values = values[2:]
    if len(values) != 2 or min(values) < least:
        raise SporaxValueError(f"For '{operator_name}', '{name}' must be one or two ints >= {least}, but got {value}.")
    return values[0], values[1]


def per_dim(name: str, what: str, value: Any, dims: int, least: int = 1) -> tuple[int, ...]:
    """A setting for each spatial dim: one int for all, or one for each (or with two more for sample and channel).

    Raises:
        SporaxTypeError: not ints.
        SporaxValueError: another number of them, or one below `least`.
    """
    values = (value,) * dims if isinstance(value, int) else value
    if (
        isinstance(value, bool)
        or not isinstance(values, tuple)
        or any(not isinstance(number, int) for number in values)
    ):
        raise SporaxTypeError(f"For '{name}', '{what}' must be an int or a tuple of ints, but got {value!r}.")
    # One number in a tuple stands for all dims too.
    values = values[2:] if len(values) == dims + 2 else values * dims if len(values) == 1 else values
    if len(values) != dims or min(values) < least:
        raise SporaxValueError(f"For '{name}', '{what}' must be one or {dims} ints >= {least}, but got {value}.")
    return values
