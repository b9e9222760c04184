"""Small things `mindspore` offers at its top level."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from sporax.base.errors import SporaxNotImplementedError, SporaxTypeError, SporaxValueError, check_type
from sporax.mindspore.common.tensor import Tensor


def from_numpy(array: np.ndarray[Any, Any]) -> Tensor:
    """A Tensor with the values of a numpy array (a copy).

    Raises:
        SporaxTypeError: not a numpy array.
    """
    return Tensor.from_numpy(array)


def set_recursion_limit(recursion_limit: int = 1000) -> None:
    """Let functions call each other at least so deep while they are traced.

    The limit is Python's own, which is raised and never lowered: a lower one would stop Python's libraries too.

    Raises:
        SporaxTypeError: not an int.
        SporaxValueError: not positive.
    """
    if isinstance(recursion_limit, bool) or not isinstance(recursion_limit, int):
        raise SporaxTypeError(
            f"For 'set_recursion_limit', the input value must be int, but got '{type(recursion_limit).__name__}'."
        )
    if recursion_limit <= 0:
        raise SporaxValueError(
            f"For 'set_recursion_limit', the input value must be int and must > 0, but got '{recursion_limit}'."
        )
    sys.setrecursionlimit(max(recursion_limit, sys.getrecursionlimit()))


def is_tensor(obj: Any) -> bool:
    """Whether `obj` is a Tensor."""
    return isinstance(obj, Tensor)


def mutable(input_data: Any, dynamic_len: bool = False) -> Any:
    """Arguments of a compiled function that may change without a new compilation.

    Tensors may anyway, wherever they are; numbers are constants of a compiled step, so they become Tensors of no dimension.

    Args:
        input_data: a number, a Tensor, or tuples, lists and dicts of these.
        dynamic_len: the length of a tuple or list may change as well: not here, since shapes are fixed in a compiled step.

    Raises:
        SporaxTypeError: something else in it, or `dynamic_len` is not a bool.
        SporaxNotImplementedError: `dynamic_len` is True.
    """
    check_type("mutable", "dynamic_len", dynamic_len, "a bool", bool)
    if dynamic_len:
        raise SporaxNotImplementedError("For 'mutable', 'dynamic_len' must be False, but got True.")
    if isinstance(input_data, tuple | list):
        return type(input_data)(mutable(item) for item in input_data)
    if isinstance(input_data, dict):
        return {key: mutable(item) for key, item in input_data.items()}
    if isinstance(input_data, Tensor):
        return input_data
    if isinstance(input_data, bool | int | float):
        return Tensor(input_data)
    raise SporaxTypeError(
        "For 'mutable', 'input_data' must be a bool, int, float, Tensor, or tuples, lists and dicts of these, but got "
        f"{type(input_data).__name__}."
    )
