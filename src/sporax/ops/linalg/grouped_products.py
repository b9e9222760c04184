"""Products of groups of rows with a matrix each, as layers with experts need them: `GroupedMatmul`, `GroupedMatmulV4`.

Either tensors come in pairs, or one matrix of rows is cut into groups, each of which meets the matrix of its own in a stack; the
latter is `jax.lax.ragged_dot`. Quantized and fused forms are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from sporax.common.dtype import DType
from sporax.common.tensor import Tensor
from sporax.ir.errors import SporaxNotImplementedError, SporaxTypeError, SporaxValueError
from sporax.ops._core import check
from sporax.ops._core.operator import Array, operator

_PAIRS, _ROWS = -1, 0
"""Values of ``group_type``: tensors in pairs, and rows of one matrix."""
_ENDS, _SIZES = 0, 1
"""Values of ``group_list_type``: where groups end, and how large they are."""


@operator(function="")
def _ragged(x: Array, weight: Array, bias: tuple[Array, ...], group_list: Array, name: str, list_type: int) -> Array:
    """Rows (n, k) in groups times the matrices (groups, k, m); rows behind the last group give zeros."""
    check.rank(name, 2, x=x)
    check.rank(name, 3, weight=weight)
    check.integral(name, group_list=group_list)
    if group_list.shape != weight.shape[:1] or x.shape[1] != weight.shape[1]:
        raise SporaxValueError(
            f"For '{name}', rows of size {x.shape[1]} and 'group_list' of shape {group_list.shape} must fit the weight, but got "
            f"shape {weight.shape}."
        )
    sizes = jnp.diff(group_list, prepend=0) if list_type == _ENDS else group_list
    result = jax.lax.ragged_dot(x, weight.astype(x.dtype), sizes.astype(jnp.int32))
    if not bias:
        return result
    group = jnp.searchsorted(jnp.cumsum(sizes), jnp.arange(x.shape[0]), side="right")
    rows = jnp.take(bias[0], group, axis=0, mode="fill", fill_value=0)
    return result + rows.astype(result.dtype)


@operator(function="")
def _paired(x: Array, weight: Array, bias: tuple[Array, ...], name: str) -> Array:
    check.rank(name, 2, weight=weight)
    if x.shape[-1] != weight.shape[0]:
        raise SporaxValueError(
            f"For '{name}', the last dim of 'x' must be the first of its weight, but got {x.shape} and {weight.shape}."
        )
    result = jnp.matmul(x, weight)
    return result + bias[0] if bias else result


def _listed(name: str, label: str, value: Any) -> list[Tensor]:
    if not isinstance(value, Sequence) or any(not isinstance(item, Tensor) for item in value) or not value:
        raise SporaxTypeError(f"For '{name}', '{label}' must be a list of Tensors, but got {type(value).__name__}.")
    return list(value)


def _products(
    name: str, x: Any, weight: Any, bias: Any, group_list: Any, split_item: int, group_type: int, list_type: int
) -> tuple[Tensor, ...]:
    rows, matrices = _listed(name, "x", x), _listed(name, "weight", weight)
    biases = [] if bias is None else _listed(name, "bias", bias)
    if len(biases) not in (0, len(matrices)):
        raise SporaxValueError(
            f"For '{name}', 'bias' must have as many Tensors as 'weight', {len(matrices)}, but got {len(biases)}."
        )
    if group_type == _PAIRS:
        if len(rows) != len(matrices) or split_item not in (0, 1):
            raise SporaxValueError(
                f"For '{name}' with 'group_type' -1, 'split_item' must be 0 or 1 and 'x' as long as 'weight', but got "
                f"{split_item}, {len(rows)} and {len(matrices)}."
            )
        parts: list[tuple[Tensor, ...]] = [(bias,) for bias in biases] or [()] * len(rows)
        return tuple(
            _paired(*pair, part, name) for pair, part in zip(zip(rows, matrices, strict=True), parts, strict=True)
        )
    if group_type != _ROWS or len(rows) != 1 or len(matrices) != 1 or split_item not in (2, 3):
        raise SporaxNotImplementedError(
            f"For '{name}', rows in groups must be one Tensor, with one weight, 'group_type' 0 and 'split_item' 2 or 3, but got "
            f"{len(rows)}, {len(matrices)}, {group_type} and {split_item}: other forms are not offered."
        )
    if not isinstance(group_list, Tensor):
        raise SporaxTypeError(f"For '{name}', 'group_list' must be a Tensor, but got {type(group_list).__name__}.")
    return (_ragged(rows[0], matrices[0], tuple(biases), group_list, name, list_type),)


def _refuse(name: str, **given: Any) -> None:
    for label, value in given.items():
        if value is not None:
            raise SporaxNotImplementedError(f"For '{name}', '{label}' is not offered: it must be None.")


@operator("GroupedMatmul(split_item, group_type, transpose_a, transpose_b)", function="", composed=True)
def _grouped_matmul(
    x: Any,
    weight: Any,
    bias: Any = None,
    scale: Any = None,
    offset: Any = None,
    antiquant_scale: Any = None,
    antiquant_offset: Any = None,
    group_list: Any = None,
    split_item: int = 0,
    group_type: int = -1,
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> Any:
    """Products of Tensors in lists, one by one, or of groups of rows.

    With `group_type` -1 the i-th result is ``x[i] @ weight[i]``. With 0, `x` holds one (rows, k) and `weight` one (groups, k, m);
    `group_list` says where each group of rows ends, and the only result is (rows, m). `transpose_b` swaps the last two
    dimensions of the weights.

    Raises:
        SporaxNotImplementedError: a quantized form, `transpose_a`, or lists in other forms.
        SporaxTypeError, SporaxValueError: what does not fit together.
    """
    name = "GroupedMatmul"
    _refuse(name, scale=scale, offset=offset, antiquant_scale=antiquant_scale, antiquant_offset=antiquant_offset)
    check.only(name, transpose_a=(transpose_a, False))
    turned = [matrix.swapaxes(-1, -2) for matrix in _listed(name, "weight", weight)] if transpose_b else weight
    return _products(name, x, turned, bias, group_list, split_item, group_type, _ENDS)


@operator("GroupedMatmulV4()", function="", composed=True)
def _grouped_matmul_v4(
    x: Any,
    weight: Any,
    bias: Any = None,
    scale: Any = None,
    offset: Any = None,
    antiquant_scale: Any = None,
    antiquant_offset: Any = None,
    pre_token_scale: Any = None,
    group_list: Any = None,
    activation_input: Any = None,
    activation_quant_scale: Any = None,
    activation_quant_offset: Any = None,
    split_item: int = 0,
    group_type: int = -1,
    group_list_type: int = 0,
    act_type: int = 0,
    output_dtype: DType | None = None,
) -> Any:
    """As `GroupedMatmul`; `group_list` has the sizes of groups where `group_list_type` is 1; results in `output_dtype`.

    Raises:
        SporaxNotImplementedError: a quantized form, an activation, or lists in other forms.
        SporaxTypeError, SporaxValueError: what does not fit together.
    """
    name = "GroupedMatmulV4"
    _refuse(name, scale=scale, offset=offset, antiquant_scale=antiquant_scale, antiquant_offset=antiquant_offset)
    _refuse(name, pre_token_scale=pre_token_scale, activation_input=activation_input)
    _refuse(name, activation_quant_scale=activation_quant_scale, activation_quant_offset=activation_quant_offset)
    check.only(name, act_type=(act_type, 0))
    if group_list_type not in (_ENDS, _SIZES):
        raise SporaxValueError(f"For '{name}', 'group_list_type' must be 0 or 1, but got {group_list_type}.")
    results = _products(name, x, weight, bias, group_list, split_item, group_type, group_list_type)
    return results if output_dtype is None else tuple(result.astype(output_dtype) for result in results)
