"""Argument checks shared by operators.

They run inside an operator's kernel, that is once per combination of shapes, dtypes and attributes.
Settings of spatial operators are one number for all dims, or one for each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.errors import For, SporaxNotImplementedError, SporaxTypeError, SporaxValueError, named
from sporax.mindspore.common.dtype import from_numpy
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.ops._core.parameters import known_ints, refusal
from sporax.runtime.state import frames, trace_constants


def describe(array: Any) -> str:
    """Dtype and shape in MindSpore's notation."""
    return f"{from_numpy(array.dtype)}{list(array.shape)}"


def tensor(operator: str, **values: Any) -> None:
    """Raise SporaxTypeError unless every value is a tensor."""
    for name, value in values.items():
        # numpy arrays pass: they are constants of the kernel, and JAX takes them as arrays.
        if not isinstance(value, jax.Array | np.ndarray):
            raise For(operator).type_error(f"{named(name)} must be a Tensor", f"{type(value).__name__}: {value!r}")


def floating(operator: str, **arrays: jax.Array) -> None:
    """Raise SporaxTypeError unless every array is of a floating (or complex) dtype."""
    tensor(operator, **arrays)
    for name, array in arrays.items():
        # `inexact` includes complex; MindSpore's floating operators take complex tensors as well.
        if not jnp.issubdtype(array.dtype, jnp.inexact):
            raise For(operator).type_error(f"the dtype of '{name}' must be floating point", from_numpy(array.dtype))


def numeric(operator: str, **arrays: jax.Array) -> None:
    """Raise SporaxTypeError where an array holds bools."""
    tensor(operator, **arrays)
    for name, array in arrays.items():
        if array.dtype == np.bool_:
            raise For(operator).type_error(f"the dtype of '{name}' must be a number type", from_numpy(array.dtype))


def integral(operator: str, **arrays: jax.Array) -> None:
    """Raise SporaxTypeError unless every array is of an integer dtype."""
    tensor(operator, **arrays)
    for name, array in arrays.items():
        if not jnp.issubdtype(array.dtype, jnp.integer):
            raise For(operator).type_error(f"the dtype of '{name}' must be an integer type", from_numpy(array.dtype))


def same_dtype(operator: str, **arrays: jax.Array) -> None:
    """Raise SporaxTypeError unless all arrays have one dtype."""
    if len({array.dtype for array in arrays.values()}) > 1:
        described = ", ".join(f"'{name}': {from_numpy(array.dtype)}" for name, array in arrays.items())
        raise SporaxTypeError(f"For '{operator}', the dtypes must be the same, but got {described}.")


def rank(operator: str, allowed: int | Sequence[int], **arrays: jax.Array) -> None:
    """Raise SporaxValueError unless every array has an allowed number of dimensions (SporaxTypeError for what is none)."""
    numbers = (allowed,) if isinstance(allowed, int) else tuple(allowed)
    for name, array in arrays.items():
        if not hasattr(array, "ndim"):
            tensor(operator, **{name: array})
        if array.ndim not in numbers:
            ranks = " or ".join(map(str, numbers))
            raise SporaxValueError(
                f"For '{operator}', '{name}' must have {ranks} dimensions, but got {array.ndim}: shape {array.shape}."
            )


def _of_rank(number: int, kind: Callable[..., None] = tensor) -> Callable[..., None]:
    """The check of a number of dimensions, after that of a kind of arrays."""

    def check(operator: str, **arrays: jax.Array) -> None:
        kind(operator, **arrays)
        rank(operator, number, **arrays)

    return check


# What kernels say of their tensors by annotations. It is checked in front of the kernel, not where another kernel calls that one.
One = Annotated[jax.Array, tensor]  # an `Array` may be a tuple of tensors
Float = Annotated[jax.Array, floating]
Float1 = Annotated[jax.Array, _of_rank(1, floating)]
Float2 = Annotated[jax.Array, _of_rank(2, floating)]
Float3 = Annotated[jax.Array, _of_rank(3, floating)]
Number = Annotated[jax.Array, numeric]
Int = Annotated[jax.Array, integral]
Int1 = Annotated[jax.Array, _of_rank(1, integral)]
Rank1 = Annotated[jax.Array, _of_rank(1)]
Rank2 = Annotated[jax.Array, _of_rank(2)]
Rank3 = Annotated[jax.Array, _of_rank(3)]
Rank4 = Annotated[jax.Array, _of_rank(4)]
Rank5 = Annotated[jax.Array, _of_rank(5)]


def axis(operator: str, value: Any, ndim: int, name: str = "axis") -> int:
    """The axis counted from the front.

    Raises:
        SporaxTypeError: `value` is not an int.
        SporaxValueError: it is outside [-ndim, ndim).
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise SporaxTypeError(f"For '{operator}', '{name}' must be an int, but got {type(value).__name__}: {value!r}.")
    # MindSpore treats a scalar like a tensor of one dimension here.
    limit = max(ndim, 1)
    For(operator).refuse(not -limit <= value < limit, f"'{name}' must be in range [{-limit}, {limit})", value)
    return int(value) % limit


def axes(operator: str, value: Any, ndim: int, name: str = "axis") -> tuple[int, ...] | None:
    """Axes counted from the front; None stands for all of them.

    Raises:
        SporaxTypeError, SporaxValueError: as `axis`; also when an axis is named twice.
    """
    # The empty tuple stands for all dims, as in MindSpore's reductions.
    if value is None or value == ():
        return None
    values = (value,) if isinstance(value, int | np.integer) else value
    if not isinstance(values, tuple):
        raise SporaxTypeError(f"For '{operator}', '{name}' must be an int or a tuple of ints, but got {value!r}.")
    result = tuple(axis(operator, number, ndim, name) for number in values)
    if len(set(result)) < len(result):
        raise SporaxValueError(f"For '{operator}', '{name}' names a dimension twice: {value} with {ndim} dimensions.")
    return result


def filled(operator: str, array: jax.Array, where: int | None) -> None:
    """Raise SporaxValueError when there is nothing to choose from along dim `where` (or, for None, at all)."""
    if (array.size if where is None or not array.ndim else array.shape[where]) == 0:
        raise SporaxValueError(f"For '{operator}', the reduced dims must not be empty, but the shape is {array.shape}.")


def broadcast(operator: str, *values: Any) -> tuple[int, ...]:
    """The shape all `values` broadcast to.

    Raises:
        SporaxValueError: they do not.
    """
    shapes = [np.shape(value) for value in values]
    try:
        return np.broadcast_shapes(*shapes)
    # `from None`: numpy's message repeats the shapes without their names.
    except ValueError:
        described = ", ".join(f"{name}.shape: {shape}" for name, shape in zip("xyzuvw", shapes, strict=False))
        raise SporaxValueError(f"For '{operator}', the shapes need to broadcast, but got {described}.") from None


def shape(operator: str, value: Any, name: str = "shape") -> tuple[int, ...]:
    """A shape given as an int or a tuple (or list) of ints, or as a Tensor whose values are known.

    Raises:
        SporaxTypeError: it is something else.
    """
    # MindSpore takes lists for shapes as well, but JAX only tuples.
    value = known_ints(tuple(value) if isinstance(value, list) else value)
    values = (value,) if isinstance(value, int | np.integer) else value
    if not isinstance(values, tuple) or any(
        isinstance(size, bool) or not isinstance(size, int | np.integer) for size in values
    ):
        raise refusal(value)(f"For '{operator}', '{name}' must be a tuple of ints, but got {value!r}.")
    return tuple(int(size) for size in values)


def one_of(operator: str, value: Any, allowed: Sequence[Any], name: str) -> None:
    """Raise SporaxValueError unless `value` is one of `allowed`."""
    For(operator).one_of(name, value, allowed)


def only(operator: str, **settings: tuple[Any, Any]) -> None:
    """Raise SporaxNotImplementedError unless each setting has the one value that is offered: ``name=(value, offered)``."""
    for name, (value, offered) in settings.items():
        # Identity first: comparing a tensor with the offered value would give a tensor. Types count, since 1 == True.
        if value is not offered and (
            isinstance(value, jax.Array) or type(value) is not type(offered) or value != offered
        ):
            described = value if isinstance(value, int | float | str) else type(value).__name__
            raise SporaxNotImplementedError(
                f"For '{operator}', '{name}' must be {offered}, but got {described}: other values are not offered."
            )


def known(name: str, what: str, tensor: Any) -> np.ndarray:
    """The values of a tensor on which the shape of a result depends.

    Raises:
        SporaxTypeError: not a tensor, or its values are not known because a step is being compiled.
    """
    For(name).typed(what, tensor, "a Tensor", Tensor)
    # Also inside of a step, where a value was noted as constant.
    values = trace_constants.known(tensor.array)
    if values is None:
        raise frames.value_unknown()(
            f"For '{name}', the shape of the result depends on the values of '{what}', which are not known while a "
            "step is being compiled. Call it outside of the compiled function, or use masks (ops.where) instead."
        )
    return values


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
    if isinstance(value, bool) or not isinstance(values, tuple) or not all(isinstance(size, int) for size in values):
        raise SporaxTypeError(f"For '{name}', '{what}' must be an int or a tuple of ints, but got {value!r}.")
    values = values[2:] if len(values) == dims + 2 else values * dims if len(values) == 1 else values
    if len(values) != dims or min(values) < least:
        raise SporaxValueError(f"For '{name}', '{what}' must be one or {dims} ints >= {least}, but got {value}.")
    return values
