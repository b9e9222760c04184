"""Types and facts of tensors: casts, numbers made tensors, shapes and sizes as values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.errors import For
from sporax.mindspore.common import dtype as dtypes
from sporax.mindspore.common.dtype import DType, to_dtype
from sporax.mindspore.common.tensor import Tensor, wrap_numpy
from sporax.mindspore.ops._core import FUNCTIONS, Array, Operand, check, export, known, operator, other_form
from sporax.mindspore.ops._core.dims import FOLLOWS, position_by_position

_NUMBERS = (bool, int, float)


@operator(function="scalar_to_tensor", composed=True)
def scalar_to_tensor(input_x: Any, dtype: DType = dtypes.float32) -> Any:
    """A number as a tensor without dimensions."""
    if not isinstance(input_x, _NUMBERS):
        raise For("ScalarToTensor").type_error("'input_x' must be a number", f"{type(input_x).__name__}: {input_x!r}")
    return Tensor(input_x, dtype)


other_form(scalar_to_tensor, "ScalarToTensor()", "x=input_x dtype")


@operator("ScalarToArray()", function="scalar_to_array", composed=True)
def scalar_to_array(input_x: Any) -> Any:
    """A number as a tensor without dimensions: float32 for a float, else int32.

    Raises:
        SporaxTypeError: neither an int nor a float.
    """
    if isinstance(input_x, bool) or not isinstance(input_x, int | float):
        got = f"{type(input_x).__name__}: {input_x!r}"
        raise For("ScalarToArray").type_error("'input_x' must be an int or a float", got)
    return Tensor(input_x, dtypes.float32 if isinstance(input_x, float) else dtypes.int32)


@operator("ScalarCast()", function="scalar_cast", composed=True)
def scalar_cast(input_x: Any, input_y: DType) -> Any:
    """A number as a number of the kind that `input_y` (int64, float64 or bool) names."""
    if not isinstance(input_x, _NUMBERS):
        raise For("ScalarCast").type_error("'input_x' must be a number", f"{type(input_x).__name__}: {input_x!r}")
    check.one_of("ScalarCast", input_y, (dtypes.int64, dtypes.float64, dtypes.bool_), "input_y")
    # `item` gives Python's kind of number.
    return input_y.np_dtype.type(input_x).item()


@operator("TupleToArray()", function="tuple_to_array", composed=True)
def tuple_to_array(input_x: Any) -> Any:
    """A tuple of numbers of one kind as a vector: int32, float32 for floats."""
    input_x = tuple(input_x) if isinstance(input_x, range) else input_x
    # By type and not by value: (1, 1.0) mixes kinds.
    if not isinstance(input_x, tuple) or not input_x or len({type(element) for element in input_x}) > 1:
        raise For("TupleToArray").type_error("'input_x' must be a tuple of numbers of one type", repr(input_x))
    return Tensor(input_x, dtypes.float32 if isinstance(input_x[0], float) else dtypes.int32)


@operator("TensorShape()", function="dyn_shape", composed=True)
def dyn_shape(input_x: Any) -> Any:
    # A value and not a tracer: shapes are known while compiling.
    """The shape as a vector (int64)."""
    check.tensor("TensorShape", input_x=input_x.array)
    return wrap_numpy(np.asarray(input_x.shape, np.int64))


def typeof(value: Any) -> str:
    """What kind of value it is, as text: ``Tensor[Float32]``."""
    return f"Tensor[{value.dtype}]" if isinstance(value, Tensor) else type(value).__name__


def is_nonzero(input: Tensor) -> bool:
    """Whether the only element is not zero.

    Raises:
        SporaxTypeError: not a Tensor.
        SporaxValueError: it has another number of elements.
    """
    value = known("is_nonzero", "input", input)
    For("is_nonzero").refuse(value.size != 1, f"'input' must have one element, but its shape is {input.shape}")
    return bool(value.item())


def expand_as(input: Tensor, other: Tensor) -> Tensor:
    """`input` broadcast to the shape of `other`."""
    return input.broadcast_to(other.shape)


def subtract(input: Any, other: Any, *, alpha: float = 1) -> Any:
    """``input - alpha · other``."""
    # Without the factor there is one operator less in the plan.
    return FUNCTIONS["sub"](input, other if alpha == 1 else other * alpha)


export(typeof, is_nonzero, expand_as, subtract)


@operator(function="view_as_real")
def view_as_real(input: check.One) -> Array:
    """Complex numbers as pairs of real ones, in a new last dim."""
    # `iscomplexobj` also knows tracers.
    For("view_as_real").refuse_type(not jnp.iscomplexobj(input), "'input' must be complex", check.describe(input))
    return jnp.stack([input.real, input.imag], -1)


@operator("Cast()", function="", dims=FOLLOWS)
def _cast(input_x: Operand, dtype: DType) -> Array:
    """The elements in another dtype."""
    return _converted(input_x, dtype)


@operator(function="cast", dims=FOLLOWS)
def cast(input: Operand, dtype: DType) -> Array:
    """The elements in another dtype."""
    return _converted(input, dtype)


def _converted(value: Any, dtype: DType) -> Array:
    return jnp.asarray(value).astype(dtype.np_dtype)


def _astype(self: Tensor, dtype: Any, copy: bool = True) -> Tensor:
    """The elements in another dtype, given as a dtype, a numpy dtype or a name.

    Args:
        dtype: the dtype.
        copy: False: a Tensor that has this dtype already comes back itself.
    """
    target = to_dtype(dtype)
    # MindSpore returns the Tensor itself; nothing can write to it but methods in place.
    return self if not copy and self.dtype == target else cast(self, target)


def _conversion(name: str, dtype: DType) -> None:
    def method(self: Tensor) -> Tensor:
        return cast(self, dtype)

    method.__name__, method.__doc__ = name, f"The elements as {dtype}."
    setattr(Tensor, name, method)


for _name, _dtype in (
    ("float", dtypes.float32),
    ("half", dtypes.float16),
    ("bfloat16", dtypes.bfloat16),
    ("double", dtypes.float64),
    ("int", dtypes.int32),
    ("long", dtypes.int64),
    ("bool", dtypes.bool_),
    ("byte", dtypes.uint8),
):
    _conversion(_name, _dtype)


def _like(name: str, value: int) -> None:
    # The class form has no `dtype`, so it is an operator of its own.
    def primitive(x: Array) -> Array:
        return jnp.full_like(x, value)

    def function(input: Array, *, dtype: DType | None = None) -> Array:
        return jnp.full_like(input, value, dtype=input.dtype if dtype is None else dtype.np_dtype)

    primitive.__name__, function.__name__ = f"_{name}_like", f"{name}_like"
    primitive.__doc__ = function.__doc__ = f"{name.capitalize()} in the shape and dtype of the input, or in `dtype`."
    operator(f"{name.capitalize()}Like", function="")(primitive)
    operator(mint=f"{name}_like")(function)


_like("zeros", 0)
_like("ones", 1)


@operator("Identity", function="deepcopy", method="copy, clone", dims=FOLLOWS)
def deepcopy(input_x: Array) -> Array:
    """A copy."""
    # `copy=True`: JAX may otherwise give the same buffer, which a step could donate.
    return jnp.array(input_x, copy=True)


@operator("_VirtualDataset", function="", dims=position_by_position)
def _virtual_dataset(*args: Array) -> tuple[Array, ...]:
    """The inputs of a network as they are: a strategy shards them like data."""
    return args


@operator("StopGradient()", function="stop_gradient", composed=True)
def stop_gradient(value: Any) -> Any:
    """The values of Tensors, also of those in tuples and lists, as constants for differentiation; the rest as it is."""
    if isinstance(value, tuple | list):
        return type(value)(map(stop_gradient, value))
    return _constant(value) if isinstance(value, Tensor) else value


@operator(function="", dims=FOLLOWS)
def _constant(value: Array) -> Array:
    """The values, as a constant for differentiation."""
    if jnp.issubdtype(value.dtype, jnp.inexact):
        return jax.lax.stop_gradient(value)
    # Integers have gradients as well (`sporax.mindspore.common._integer_gradients`), which end at an operation on bits.
    return jax.lax.bitwise_or(value, jnp.zeros_like(value))


@operator("MixedPrecisionCast()", function="mixed_precision_cast", composed=True)
def mixed_precision_cast(dst_dtype: DType, x: Any) -> Any:
    """Floating-point tensors in another dtype, also those in tuples and lists, which become tuples; the rest as it is."""
    if isinstance(x, (tuple, list)):
        return tuple(mixed_precision_cast(dst_dtype, entry) for entry in x)
    if isinstance(x, Tensor) and jnp.issubdtype(x.array.dtype, jnp.floating):
        return FUNCTIONS["cast"](x, dst_dtype)
    return x


for _method in ("astype", "to"):
    setattr(Tensor, _method, _astype)


def _fact(name: str, compute: Callable[[Any], Any], doc: str) -> None:
    # Composed: the result is a Python value that no compiled program can give.
    def kernel(x: Any) -> Any:
        For(name).typed("the input", x, "a Tensor", Tensor)
        return compute(x)

    kernel.__name__, kernel.__doc__ = f"_{name.lower()}", doc
    operator(f"{name}()", function="", composed=True)(kernel)


_fact("Shape", lambda x: x.shape, "Sizes of the dimensions.")
_fact("Rank", lambda x: x.ndim, "Number of dimensions.")
_fact("Size", lambda x: x.size, "Number of elements.")
_fact("DType", lambda x: x.dtype, "Element type.")


# A function and not the property, since MindSpore has `ops.dtype`.
@operator(function="dtype", composed=True)
def dtype(x: Any) -> DType:
    """Element type."""
    return x.dtype


@operator(function="numel", composed=True)
def numel(input: Any) -> int:
    """Number of elements."""
    return input.size


@operator(function="is_tensor", composed=True)
def is_tensor(obj: object) -> bool:
    """Whether `obj` is a Tensor."""
    return isinstance(obj, Tensor)


def shape(input_x: Any) -> tuple[int, ...]:
    # MindSpore refuses anything but Tensors here, numpy arrays included.
    """Sizes of the dimensions."""
    For("shape").typed("input_x", input_x, "a Tensor", Tensor)
    return input_x.shape


def rank(input_x: Any) -> int:
    """Number of dimensions."""
    return len(shape(input_x))


def size(input_x: Any) -> int:
    """Number of elements."""
    return math.prod(shape(input_x))
