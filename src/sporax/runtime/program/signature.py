"""What a program was traced for: the structure of its arguments, shapes and dtypes of arrays, values of everything else."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from sporax.base.errors import SporaxTypeError


class Signature(NamedTuple):
    """What a variant was traced for."""

    tree: Any
    leaves: tuple[tuple[Any, Any], ...]  # (shape, dtype) of an array, (type, value) of anything else


class _FixedArray:
    """A numpy array as a static value: two are equal when shape, dtype and elements are.

    Attributes:
        values: a copy that cannot be written to, since a program keeps what it was traced with.
    """

    __slots__ = ("_key", "values")

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.values = array.copy()
        self.values.setflags(write=False)
        self._key = (array.shape, array.dtype.str, self.values.tobytes())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _FixedArray) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return f"numpy array {self.values.dtype}{list(self.values.shape)}"


def is_array(leaf: object) -> bool:
    """Whether a leaf is an array."""
    return _is_array_type(type(leaf))


def _is_kind_of_array(kind: type) -> bool:
    return issubclass(kind, (jax.Array, jax.core.Tracer))


_is_array_type: Callable[[type], bool] = functools.cache(_is_kind_of_array)
"""`isinstance` with `jax.Array` is slow, so each type is looked at once."""


def sign(leaves: list[Any], tree: Any, name: str) -> Signature:
    """The signature of a call of the program with this name.

    Raises:
        SporaxTypeError: an argument is neither an array nor hashable.
    """
    described = [(leaf.shape, leaf.dtype) if is_array(leaf) else _static(leaf) for leaf in leaves]
    signature = Signature(tree, tuple(described))
    # A list as a static argument is refused here, with the program's name, and not in a dictionary later.
    try:
        hash(signature)
    except TypeError:
        culprit = next(leaf for leaf in leaves if not is_array(leaf) and not _hashable(leaf))
        raise SporaxTypeError(
            f"For '{name}', an argument must be a Tensor, a number, a string or a container of these, "
            f"but got {type(culprit).__name__}."
        ) from None
    return signature


def _static(leaf: Any) -> tuple[type, Any]:
    # The elements of an array of objects are no values that could be compared.
    if isinstance(leaf, np.ndarray) and not leaf.dtype.hasobject:
        return np.ndarray, _FixedArray(leaf)
    return type(leaf), leaf


def _hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def inputs_of(signature: Signature, arrays: list[Any]) -> tuple[Any, Any]:
    """Arguments with such a signature and these arrays, by position and by name."""
    remaining = iter(arrays)
    # A type marks a static value, a shape (a tuple) marks an array.
    leaves = [_input_of(value) if isinstance(kind, type) else next(remaining) for kind, value in signature.leaves]
    args, kwargs = jax.tree.unflatten(signature.tree, leaves)
    return args, kwargs


def _input_of(value: Any) -> Any:
    return value.values if isinstance(value, _FixedArray) else value


def difference(before: Signature, after: Signature) -> str:
    """What differs between two signatures, in words."""
    # A changed structure is named first, since leaves cannot be compared then.
    if before.tree != after.tree:
        return f"structure of the arguments changed from {before.tree} to {after.tree}"
    for index, (old, new) in enumerate(zip(before.leaves, after.leaves, strict=True)):
        if old != new:
            return f"argument {index} changed from {_text(old)} to {_text(new)}"
    return "inputs changed"


def _text(leaf: tuple[Any, Any]) -> str:
    kind, value = leaf
    return repr(value) if isinstance(kind, type) else f"{value}{list(kind)}"
