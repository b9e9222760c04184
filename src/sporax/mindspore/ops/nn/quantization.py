"""Inner operators on int8: `Quant`, `QuantV2`, `Dequant`, `AntiQuant`, `DynamicQuantExt` and the products of quantized matrices.

Numbers are rounded to the next whole one, ties to the even one, and what int8 cannot hold becomes its last number. Scales are
numbers, or 64-bit integers that hold a float32 (`experts.unpacked_scale`). They stretch to the tensor that they scale.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp

from sporax.base.errors import For, named
from sporax.ir.operator_dims import Call, Dims, Shapes
from sporax.mindspore.common.dtype import DType, float16, int8
from sporax.mindspore.ops._core import Array, Product, check, operator
from sporax.mindspore.ops._generated import GENERATED
from sporax.mindspore.ops.nn.experts import OptionalInputs, to_int8, unpacked_scale

_ROUNDED: dict[str, Callable[[Array], Array]] = {
    "round": jnp.round,
    "floor": jnp.floor,
    "ceil": jnp.ceil,
    "trunc": jnp.trunc,
}


def _quantized(x: Array, scale: Array | float, offset: Array | float, sqrt_mode: bool, how: str) -> Array:
    factor = scale * scale if sqrt_mode else scale
    return to_int8(_ROUNDED[how.lower()](x.astype(jnp.float32) * factor + offset))


@operator("Quant", function="", classes=GENERATED)
def _quant(
    input_x: check.Float,
    scale: float,
    offset: float,
    sqrt_mode: bool = False,
    round_mode: Literal["Round", "Floor", "Ceil", "Trunc"] = "Round",
) -> Array:
    """``round(scale * x + offset)`` as int8; with `sqrt_mode` times the scale twice."""
    return _quantized(input_x, scale, offset, sqrt_mode, round_mode)


@operator("QuantV2()", function="", classes=GENERATED)
def _quant_v2(
    x: check.One,
    scale: check.One,
    offset: check.One,
    sqrt_mode: bool = False,
    rounding_mode: Literal["ROUND", "FLOOR", "CEIL", "TRUNC", "Round", "Floor", "Ceil", "Trunc"] = "ROUND",
    dst_type: DType = int8,
) -> Array:
    """``round(scale * x + offset)`` as int8, with a scale and an offset for each element of the last dimension.

    Raises:
        SporaxNotImplementedError: another `dst_type`.
        SporaxValueError: scales that do not fit the last dimension.
    """
    check.only("QuantV2", dst_type=(dst_type, int8))
    for what, array in (("scale", scale), ("offset", offset)):
        if array.shape[-1:] not in (x.shape[-1:], (1,)) or array.size != array.shape[-1]:
            raise For("QuantV2").error(
                f"{named(what)} must have {x.shape[-1]} elements in the last dimension", array.shape
            )
    return _quantized(x, scale.astype(jnp.float32), offset.astype(jnp.float32), sqrt_mode, rounding_mode)


@operator("Dequant", function="", classes=GENERATED)
def _dequant(
    input_x: check.Int, deq_scale: check.One, sqrt_mode: bool = False, relu_flag: bool = False, dtype: DType = float16
) -> Array:
    """``x * deq_scale``; with `sqrt_mode` times the scale twice, with `relu_flag` zero where that is negative."""
    scale = unpacked_scale(deq_scale)
    result = input_x.astype(jnp.float32) * (scale * scale if sqrt_mode else scale)
    return (jax.nn.relu(result) if relu_flag else result).astype(dtype.np_dtype)


@operator("AntiQuant", function="", classes=GENERATED)
def _anti_quant(
    input_x: check.Int, scale: check.Float, offset: check.Float, sqrt_mode: bool = False, dtype: DType = float16
) -> Array:
    """``scale * (x + offset)``; with `sqrt_mode` times the scale twice."""
    factor = scale * scale if sqrt_mode else scale
    return (factor * (input_x.astype(factor.dtype) + offset)).astype(dtype.np_dtype)


@operator("DynamicQuantExt()", function="", classes=GENERATED)
def _dynamic_quant_ext(x: check.Float, smooth_scales: Array | None = None) -> tuple[Array, Array]:
    """`x` times `smooth_scales` as int8, and the scale (float32) of each row, which makes its largest element 127."""
    values = x.astype(jnp.float32) if smooth_scales is None else (x * smooth_scales).astype(jnp.float32)
    scale = jnp.abs(values).max(-1) / 127
    # Rows of zeros have no scale.
    return to_int8(jnp.round(values / jnp.where(scale == 0, 1, scale)[..., None])), scale


def _product_dims(*attributes: str) -> Callable[[Call, Shapes], Dims | None]:
    """Those of a product; vectors behind the matrices belong to columns, scales of tokens to rows."""
    product = Product(attributes=(attributes[0], attributes[1]))

    def dims(call: Call, shapes: Shapes) -> Dims | None:
        named = product(call, shapes[:2])
        if named is None:
            return None
        present = call.get("present", ())
        optional = present if isinstance(present, tuple) else ()
        always = len(shapes) - 2 - len(optional)
        vectors = []
        for name, shape in zip((*[""] * always, *optional), shapes[2:], strict=True):
            last = "i" if name == "pertokenScaleOptional" else "j"
            columns = 0 if call.get(attributes[1], False) else len(shape) - 1
            # Scales of groups of rows have two dimensions; groups are whole.
            grouped = min(shape[-2:]) > 1 and len(shape) > 1
            sharded = [size > 1 and (not grouped or dim == columns) for dim, size in enumerate(shape)]
            vectors.append(tuple(last if own else f"{name}{dim}!" for dim, own in enumerate(sharded)))
        return Dims((*named.inputs, *vectors), order=named.order, batch=named.batch)

    return dims


def _transposed(matrix: Array, transpose: bool) -> Array:
    return matrix.swapaxes(-1, -2) if transpose else matrix


def _check_vectors(name: str, columns: int, **vectors: Array | None) -> None:
    for what, vector in vectors.items():
        if vector is not None and vector.size not in (1, columns):
            raise For(name).error(f"{named(what)} must have a number for each of the {columns} columns", vector.shape)


@operator("QuantBatchMatmul", function="", classes=GENERATED, dims=_product_dims("transpose_x1", "transpose_x2"))
def _quant_batch_matmul(
    x1: Array,
    x2: Array,
    scale: Array,
    others: tuple[Array, ...],
    present: tuple[str, ...],
    name: str,
    transpose_x1: bool,
    transpose_x2: bool,
    dtype: DType,
) -> Array:
    """``(x1 · x2 + bias) * scale + offset``, each row times its scale of a token."""
    inputs = dict(zip(present, others, strict=True))
    check.integral(name, x1=x1, x2=x2)
    first, second = _transposed(x1, transpose_x1), _transposed(x2, transpose_x2)
    bias, offset = inputs.get("bias"), inputs.get("offset")
    _check_vectors(name, second.shape[-1], scale=scale, bias=bias, offset=offset)
    result = jnp.matmul(first, second, preferred_element_type=jnp.int32)
    exact = bias is None or jnp.issubdtype(bias.dtype, jnp.integer)
    if bias is not None and exact:
        result = result + bias.reshape(-1).astype(jnp.int32)
    scaled = result.astype(jnp.float32) * unpacked_scale(scale).reshape(-1)
    if (token_scale := inputs.get("pertokenScaleOptional")) is not None:
        scaled = scaled * token_scale.reshape(-1, 1)
    if bias is not None and not exact:
        scaled = scaled + bias.reshape(-1)
    return (scaled if offset is None else scaled + offset.reshape(-1)).astype(dtype.np_dtype)


class QuantBatchMatmul(OptionalInputs):
    """Product of int8 matrices, dequantized: ``(x1 · x2 + bias) * scale + offset``.

    Args:
        transpose_x1, transpose_x2: whether a matrix is given transposed.
        dtype: of the result.

    Inputs: x1 (…, rows, k) and x2 (…, k, columns), int8; scale (columns,) or (1,); offset; bias: int32, or of floats, which are
    added behind the scale; pertokenScaleOptional (rows,).
    """

    operator = _quant_batch_matmul
    attribute_names = ("name", "transpose_x1", "transpose_x2", "dtype")
    required = 3
    inputs = ("x1", "x2", "scale", "offset", "bias", "pertokenScaleOptional")

    def __init__(self, transpose_x1: bool = False, transpose_x2: bool = False, dtype: DType = float16) -> None:
        super().__init__(type(self).__name__, transpose_x1, transpose_x2, dtype)


@operator(
    "WeightQuantBatchMatmul", function="", classes=GENERATED, dims=_product_dims("transpose_x", "transpose_weight")
)
def _weight_quant_batch_matmul(
    x: Array,
    weight: Array,
    antiquant_scale: Array,
    others: tuple[Array, ...],
    present: tuple[str, ...],
    name: str,
    transpose_x: bool,
    transpose_weight: bool,
) -> Array:
    """``x · ((weight + antiquant_offset) * antiquant_scale) + bias``, quantized again where there is a `quant_scale`."""
    inputs = dict(zip(present, others, strict=True))
    check.floating(name, x=x)
    check.integral(name, weight=weight)
    first, second = _transposed(x, transpose_x), _transposed(weight, transpose_weight)
    rows, columns = second.shape[-2:]

    def of_matrix(values: Array) -> Array:
        """One number for each column, or for each column of a group of rows, as rows of the matrix."""
        if values.size in (1, columns):
            return values.reshape(1, -1).astype(x.dtype)
        groups = _transposed(values, transpose_weight)
        if groups.ndim != 2 or groups.shape[1] != columns or rows % groups.shape[0]:
            raise For(name).error(
                f"scales and offsets of the matrix must be for {columns} columns, or groups of {rows} rows",
                values.shape,
            )
        return jnp.repeat(groups, rows // groups.shape[0], axis=0).astype(x.dtype)

    _check_vectors(name, columns, **{what: value for what, value in inputs.items() if what != "antiquant_offset"})
    second = second.astype(x.dtype)
    if (offset := inputs.get("antiquant_offset")) is not None:
        second = second + of_matrix(offset)
    result = jnp.matmul(first, second * of_matrix(antiquant_scale))
    if (bias := inputs.get("bias")) is not None:
        result = result + bias.reshape(-1).astype(x.dtype)
    if (scale := inputs.get("quant_scale")) is None:
        return result
    quant_offset = inputs.get("quant_offset")
    shift = 0.0 if quant_offset is None else quant_offset.reshape(-1).astype(jnp.float32)
    return _quantized(result, unpacked_scale(scale).reshape(-1), shift, False, "round")


class WeightQuantBatchMatmul(OptionalInputs):
    """Product with a quantized matrix: ``x · ((weight + antiquant_offset) * antiquant_scale) + bias``.

    Args:
        transpose_x, transpose_weight: whether a matrix is given transposed.
        antiquant_group_size: must be 0: how many rows of the matrix have one scale follows from the shape of the scales.

    Inputs: x (…, rows, k) of floats; weight (…, k, columns), int8; antiquant_scale, antiquant_offset (columns,), one number, or
    (groups, columns), transposed as `weight` is: of groups of consecutive rows of the matrix; bias; quant_scale and
    quant_offset, with which the result is ``round(result * quant_scale + quant_offset)`` as int8.
    """

    operator = _weight_quant_batch_matmul
    attribute_names = ("name", "transpose_x", "transpose_weight")
    required = 3
    inputs = ("x", "weight", "antiquant_scale", "antiquant_offset", "quant_scale", "quant_offset", "bias")

    def __init__(
        self, transpose_x: bool = False, transpose_weight: bool = False, antiquant_group_size: int = 0
    ) -> None:
        check.only(type(self).__name__, antiquant_group_size=(antiquant_group_size, 0))
        super().__init__(type(self).__name__, transpose_x, transpose_weight)


GENERATED.update(QuantBatchMatmul=QuantBatchMatmul, WeightQuantBatchMatmul=WeightQuantBatchMatmul)
