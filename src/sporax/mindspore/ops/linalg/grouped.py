"""Products of groups of rows with a matrix per group, as experts of a mixture need them: `GroupedMatmul`.

`jax.lax.ragged_dot` computes them; it has derivatives. Quantized matrices are refused.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.errors import For, SporaxNotImplementedError, SporaxValueError, named
from sporax.ir.operator_dims import Call, Dims, Names, Shapes
from sporax.mindspore.common import DType, Tensor
from sporax.mindspore.common.tensor import is_tensor
from sporax.mindspore.ops._core import FUNCTIONS, Array, Primitive, check, operator, refusing
from sporax.mindspore.ops._core.marking import next_operator

_APART, _BY_ROWS = -1, 0
_ONE_RESULT = (2, 3)
"""MindSpore's numbers of `split_item` for a single Tensor as result."""


def _group_dims(call: Call, shapes: Shapes) -> Dims:
    """Rows in groups, a matrix per group, numbers of rows, a bias per group or none: elements and columns are sharded."""
    inputs: tuple[Names, ...] = (("m!", "k"), ("g!", "k", "n"), ("g!",), ("g!", "n"))
    return Dims(inputs[: len(shapes)], leader=0)


@operator(function="", dims=_group_dims)
def _grouped_rows(x: Array, weight: Array, counts: Array, bias: Array | None, name: str) -> Array:
    """``x`` (rows, k) times ``weight`` (groups, k, n): the first ``counts[0]`` rows times the first matrix, and so on."""
    check.rank(name, 2, x=x)
    check.rank(name, 3, weight=weight)
    check.same_dtype(name, x=x, weight=weight)
    check.integral(name, group_list=counts)
    groups, inner, _ = weight.shape
    if inner != x.shape[1] or counts.shape != (groups,):
        raise SporaxValueError(
            f"For '{name}', 'weight' must be (groups, {x.shape[1]}, columns) and 'group_list' have one number per group, "
            f"but got shapes {weight.shape} and {counts.shape}."
        )
    result = jax.lax.ragged_dot(x, weight, counts.astype(jnp.int32))
    if bias is None:
        return result
    if bias.shape != (groups, weight.shape[2]):
        raise For(name).error(f"'bias' must be {(groups, weight.shape[2])}, but its shape is {bias.shape}")
    ends = jnp.cumsum(counts)
    group = jnp.searchsorted(ends, jnp.arange(x.shape[0]), side="right")
    # Rows behind the last group have no bias, as they have no matrix.
    return result + jnp.where((group < groups)[:, None], bias[jnp.minimum(group, groups - 1)], 0).astype(result.dtype)


@operator(function="")
def _counts_of(ends: Array) -> Array:
    """Numbers of rows of groups that end at `ends`."""
    return jnp.diff(ends, prepend=jnp.zeros(1, ends.dtype))


class _Grouped(Primitive):
    """What both operators share. A strategy shards the rows' elements and the columns of the matrices; groups stay whole."""

    operator = _grouped_rows
    attribute_names = ("name",)

    def __init__(self) -> None:
        super().__init__(name=type(self).__name__)

    def shard(self, in_strategy: Any = None, out_strategy: Any = None) -> Self:
        """As of every operator; entries of lists of Tensors may be nested, ``(((1, 2),), ((1, 2, 4),))``.

        Behind `x` and `weight` come those of `bias` (nested) and `group_list`, and empty ones of what is None.

        Raises:
            SporaxTypeError, SporaxValueError: as `Primitive.shard`; entries of one list differ, or there are too many.
        """
        strategy = _of_lists(self.name, in_strategy, getattr(self, "transpose_b", False))
        return super().shard(strategy, out_strategy)

    def _product(
        self, x: Any, weight: Any, bias: Any, group_list: Any, split_item: int, group_type: int, are_counts: bool
    ) -> tuple[Tensor, ...]:
        x, weight = _listed(self.name, "x", x), _listed(self.name, "weight", weight)
        biases = None if bias is None else _listed(self.name, "bias", bias)
        check.one_of(self.name, split_item, (0, 1, *_ONE_RESULT), "split_item")
        if group_type == _APART:
            return _apart(self.name, x, weight, biases, split_item, self.attrs.get("in_strategy"))
        check.only(self.name, group_type=(group_type, _BY_ROWS))
        if len(x) != 1 or split_item not in _ONE_RESULT or group_list is None:
            raise SporaxValueError(
                f"For '{self.name}', 'group_type' 0 needs one Tensor in 'x', a 'group_list' and 'split_item' 2 or 3, but got "
                f"{len(x)} Tensors, {'no' if group_list is None else 'a'} 'group_list' and {split_item}."
            )
        matrices = weight[0] if len(weight) == 1 and weight[0].ndim == 3 else _stacked(weight)
        rows = None if biases is None else biases[0] if len(biases) == 1 and biases[0].ndim == 2 else _stacked(biases)
        numbers = group_list if isinstance(group_list, Tensor) else Tensor(np.asarray(group_list, np.int64))
        counts = numbers if are_counts else _counts_of(numbers)
        return (Primitive.__call__(self, x[0], matrices, counts, rows),)


def _of_lists(name: str, strategy: Any, transposed: bool) -> Any:
    """A strategy of lists of Tensors as one of the product: rows, matrices, numbers of rows, bias.

    What is no tuple is for the general check to refuse.
    """
    if not isinstance(strategy, tuple) or len(strategy) < 2:
        return strategy
    nested = list(map(_is_nested, strategy))
    if not any(nested):
        rows, matrices, *rest = strategy
        return (rows, _turned(name, matrices, transposed), *rest)
    rows, matrices = (_one_of_list(name, entry) for entry in strategy[:2])
    matrices = _of_stack(matrices, 2)
    further = list(zip(strategy[2:], nested[2:], strict=True))
    # Empty entries stand for inputs that are None.
    counts = [entry for entry, is_list in further if not is_list and entry != ()]
    nested_entries = [_one_of_list(name, entry) for entry, is_list in further if is_list]
    biases = [entry for entry in nested_entries if entry != ()]
    if len(biases) > 1:
        raise SporaxValueError(
            f"For '{name}', 'in_strategy' must have one nested entry behind 'x' and 'weight', that of 'bias', but got "
            f"{strategy}: quantized matrices are not offered."
        )
    product = (rows, _turned(name, matrices, transposed), counts[-1] if counts else (1,))
    return (*product, *(_of_stack(entry, 1) for entry in biases))


def _of_stack(entry: Any, dims: int) -> Any:
    """The entry of Tensors of so many dimensions for their stack, whose first dimension is not sharded."""
    return (1, *entry) if isinstance(entry, tuple) and len(entry) == dims else entry


def _is_entry(value: object) -> bool:
    """Whether something is the entry of one Tensor: a tuple or a Layout, and no number of slices."""
    return isinstance(value, tuple) or hasattr(value, "tensor_map") or hasattr(value, "to_dict")


def _is_nested(entry: object) -> bool:
    return isinstance(entry, tuple) and any(map(_is_entry, entry))


def _one_of_list(name: str, entry: Any) -> Any:
    """The entry of a list of Tensors, which are sharded equally."""
    if not _is_nested(entry):
        return entry
    if any(other != entry[0] for other in entry):
        raise SporaxValueError(f"For '{name}', 'in_strategy' must be equal for all Tensors of a list, but got {entry}.")
    return entry[0]


def _turned(name: str, entry: Any, transposed: bool) -> Any:
    """The entry of matrices that are given transposed, for matrices that are not."""
    if not transposed:
        return entry
    if not isinstance(entry, tuple):
        raise For(name).fault(
            SporaxNotImplementedError, "'in_strategy' must be a tuple of ints with 'transpose_b'", entry
        )
    return (*entry[:-2], entry[-1], entry[-2])


def _apart(
    name: str, x: list[Tensor], weight: list[Tensor], bias: list[Tensor] | None, split_item: int, strategy: Any
) -> Any:
    """Each Tensor of `x` times its own matrix; `strategy` is that of a stack of the matrices."""
    if split_item in _ONE_RESULT or len(x) != len(weight) or (bias is not None and len(bias) != len(x)):
        raise SporaxValueError(
            f"For '{name}', 'group_type' -1 needs as many Tensors in 'weight' (and 'bias') as in 'x' and 'split_item' 0 or 1, "
            f"but got {len(x)}, {len(weight)} and {split_item}."
        )
    products = []
    for tensor, matrix in zip(x, weight, strict=True):
        entries = strategy and (strategy[0], strategy[1][1:] if isinstance(strategy[1], tuple) else strategy[1])
        with next_operator(entries, None) if entries else nullcontext():
            products.append(tensor.matmul(matrix))
    return tuple(products if bias is None else [one + other for one, other in zip(products, bias, strict=True)])


def _stacked(tensors: list[Tensor]) -> Tensor:
    return FUNCTIONS["stack"](tuple(tensors))


def _listed(name: str, what: str, tensors: Any) -> list[Tensor]:
    if not isinstance(tensors, tuple | list) or not tensors or not all(map(is_tensor, tensors)):
        raise For(name).type_error(f"{named(what)} must be a tuple or list of Tensors", type(tensors).__name__)
    return list(tensors)


class GroupedMatmul(_Grouped):
    """Products of several matrices in one call.

    Args:
        split_item: 0 or 1: one result per Tensor of `x`; 2 or 3: one result.
        group_type: -1: each Tensor of `x` has its own matrix; 0: the rows of the only one are in groups.
        transpose_a: must be False.
        transpose_b: whether matrices are given transposed.

    Inputs: x and weight, tuples or lists of Tensors; bias likewise, or None; group_list: where groups of rows end, ascending;
    the rest, for quantized matrices, must be None.

    Returns a tuple of Tensors. Rows behind the last group are zero.
    """

    def __init__(
        self, split_item: int = 0, group_type: int = -1, transpose_a: bool = False, transpose_b: bool = False
    ) -> None:
        check.only("GroupedMatmul", transpose_a=(transpose_a, False))
        super().__init__()
        self.split_item, self.group_type, self.transpose_b = split_item, group_type, transpose_b

    @refusing("scale offset antiquant_scale antiquant_offset", check.only, before="group_list")
    def __call__(self, x: Any, weight: Any, bias: Any = None, group_list: Any = None) -> tuple[Tensor, ...]:
        """The products."""
        matrices = _listed(self.name, "weight", weight)
        if self.transpose_b:
            matrices = [matrix.swapaxes(-1, -2) for matrix in matrices]
        return self._product(x, matrices, bias, group_list, self.split_item, self.group_type, are_counts=False)


class GroupedMatmulV4(_Grouped):
    """As `GroupedMatmul`, with all settings at the call; `group_list_type` 1: `group_list` has the sizes of the groups.

    Activations (`act_type`), their inputs and quantized matrices are refused.
    """

    @refusing("scale offset antiquant_scale antiquant_offset pre_token_scale", check.only, before="group_list")
    @refusing("activation_input activation_quant_scale activation_quant_offset", check.only, before="split_item")
    def __call__(
        self,
        x: Any,
        weight: Any,
        bias: Any = None,
        group_list: Any = None,
        split_item: int = 0,
        group_type: int = -1,
        group_list_type: int = 0,
        act_type: int = 0,
        output_dtype: DType | None = None,
    ) -> tuple[Tensor, ...]:
        """The products."""
        check.only(self.name, act_type=(act_type, 0))
        check.one_of(self.name, group_list_type, (0, 1), "group_list_type")
        are_counts = group_list_type == 1
        results = self._product(x, weight, bias, group_list, split_item, group_type, are_counts)
        return results if output_dtype is None else tuple(result.astype(output_dtype) for result in results)
