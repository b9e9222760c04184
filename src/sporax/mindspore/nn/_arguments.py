"""Checks of what layers and optimizers are built from, and their weights.

Words that layers take as settings, as types: a checker sees a wrong one before the layer refuses it.
"""

from __future__ import annotations

import math
from typing import Any, Literal

from sporax.base.errors import For, SporaxTypeError, SporaxValueError
from sporax.mindspore.common import DType, Parameter, Tensor, dtypes
from sporax.mindspore.common.initializer import HeUniform, Uniform, initializer
from sporax.mindspore.ops._core.primitive import Primitive
from sporax.mindspore.ops.nn.distance_loss import Reduction as Reduction


def positive_int(layer: str, name: str, value: Any) -> int:
    """`value`, an int above 0.

    Raises:
        SporaxTypeError: not an int.
        SporaxValueError: below 1.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise For(layer).type_error(f"the '{name}' must be int", f"'{value}' with type '{type(value).__name__}'")
    For(layer).refuse(value < 1, f"the '{name}' must be int and must > 0. Got '{value}' with type 'int'")
    return value


def boolean(layer: str, name: str, value: Any) -> bool:
    """`value`, a bool, else SporaxTypeError."""
    For(layer).refuse_type(
        not isinstance(value, bool), f"the '{name}' must be bool", f"'{value}' with type '{type(value).__name__}'"
    )
    return value


def number(layer: str, name: str, value: Any) -> float:
    """`value` as a float.

    Raises:
        SporaxTypeError: no number.
        SporaxValueError: infinite, or not a number.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise For(layer).type_error(f"the '{name}' must be float", f"'{value}' with type '{type(value).__name__}'")
    For(layer).refuse(not math.isfinite(value), f"the '{name}' must be finite", value)
    return float(value)


def initial_shape(layer: str, name: str, value: Any, shape: tuple[int, ...]) -> None:
    """Raise SporaxValueError when `value` is a Tensor of another shape."""
    if isinstance(value, Tensor) and value.shape != shape:
        raise SporaxValueError(f"For '{layer}', the shape of '{name}' must be {shape}, but got {value.shape}.")


def weight_and_bias(
    layer: str,
    shape: tuple[int, ...],
    num_outputs: int,
    dtype: DType,
    has_bias: bool,
    weight_init: Any = None,
    bias_init: Any = None,
) -> tuple[Parameter, Parameter | None]:
    """Parameters of layers that multiply by a weight and add a bias: Dense and convolutions, those of `mint.nn` included.

    Args:
        layer: its name, for messages.
        shape: of the weight.
        num_outputs: length of the bias.
        dtype: of both.
        has_bias: whether there is one.
        weight_init: initializer; None: uniform on ±1/√(inputs that one output depends on), as in PyTorch.
        bias_init: initializer; None: the same.

    Raises:
        SporaxValueError: initial values of another shape.
    """
    initial_shape(layer, "weight_init", weight_init, shape)
    initial_shape(layer, "bias_init", bias_init, (num_outputs,))
    # The slope √5 makes it that range.
    weight_init = HeUniform(math.sqrt(5)) if weight_init is None else weight_init
    weight = Parameter(initializer(weight_init, shape, dtype), name="weight")
    if not has_bias:
        return weight, None
    bias_init = Uniform(1 / math.sqrt(math.prod(shape[1:]))) if bias_init is None else bias_init
    return weight, Parameter(initializer(bias_init, (num_outputs,), dtype), name="bias")


def cast_like(layer: Any, x: Tensor, *parameters: Any) -> list[Any]:
    """Parameters in the dtype of `x` when the layer runs in another precision (`Cell.to_float`), else as they are."""
    # Only in another precision: a cast of each weight would cost in every step.
    if layer._cast_to is None or x.dtype not in dtypes.float_type:
        return list(parameters)
    return [None if parameter is None else parameter.astype(x.dtype) for parameter in parameters]


def configured(*primitives: Primitive) -> bool:
    """Whether the user said something of a layer's primitives: a strategy, or any other mark.

    Layers run composed operators as long as nothing was said of their parts.
    """
    # A strategy belongs to one primitive, so a layer with one runs its primitives one by one.
    return any(primitive.attrs for primitive in primitives)


def within(layer: str, name: str, value: Any, low: float, high: float, ends: str = "[]") -> float:
    """`value` as a float between `low` and `high`; `ends` says which of both belong to the range, as in ``"(]"``.

    Raises:
        SporaxTypeError: not a number.
        SporaxValueError: outside the range.
    """
    checked = number(layer, name, value)
    above = checked > low if ends[0] == "(" else checked >= low
    below = checked < high if ends[1] == ")" else checked <= high
    For(layer).refuse(not (above and below), f"'{name}' must be in {ends[0]}{low}, {high}{ends[1]}", value)
    return checked


def exactly_float(layer: str, name: str, value: Any, low: float, high: float, ends: str = "[]") -> float:
    """Like `within`, but an int is a SporaxTypeError, as it is for MindSpore's optimizers."""
    For(layer).typed(name, value, "float", float)
    return within(layer, name, value, low, high, ends)


def one_of(layer: str, name: str, value: Any, allowed: Any) -> Any:
    """`value`, one of `allowed`, else SporaxValueError."""
    For(layer).one_of(name, value, allowed)
    return value


def word(layer: str, name: str, value: Any, allowed: tuple[str, ...]) -> Any:
    """`value`, one of `allowed`; SporaxTypeError for no string, SporaxValueError for another."""
    return one_of(layer, name, For(layer).typed(name, value, "a string", str), allowed)


def ints(layer: str, name: str, value: Any, count: int, least: int = 1) -> tuple[int, ...]:
    """`count` ints >= `least`, given as one int for all, a sequence of one, or a sequence of `count`.

    Raises:
        SporaxTypeError: not ints.
        SporaxValueError: another number of them, or one that is too small.
    """
    values = (value,) * count if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(values, tuple | list) or any(isinstance(v, bool) or not isinstance(v, int) for v in values):
        raise SporaxTypeError(f"For '{layer}', '{name}' must be an int or a tuple of ints, but got {value!r}.")
    values = tuple(values) * count if len(values) == 1 else tuple(values)
    if len(values) != count or min(values) < least:
        raise SporaxValueError(f"For '{layer}', '{name}' must be one or {count} ints >= {least}, but got {value}.")
    return values


PadMode = Literal["same", "valid", "pad"]
ImageFormat = Literal["NCHW", "NHWC"]
