"""Sparse tensors: `RowTensor`, some rows of a larger tensor.

Derivatives in Sporax are dense, those of lookups too, so nothing here makes a RowTensor by itself. Programs that build
gradients of that form by hand can combine them over ranks with `nn.DistributedGradReducer`.
"""

from __future__ import annotations

import jax

from sporax.common.tensor import Tensor
from sporax.ir.errors import SporaxTypeError, SporaxValueError


class RowTensor:
    """Rows `values` at places `indices` of a tensor of shape `shape`; rows that are named twice count together.

    Args:
        indices: (rows,) integers.
        values: (rows, …).
        shape: (l, …), of the whole tensor.
        row_tensor: take everything from another one instead.

    Raises:
        SporaxTypeError: indices or values are not Tensors, the indices not integers, `shape` not a tuple.
        SporaxValueError: the shapes do not fit together.

    Example:
        >>> RowTensor(Tensor([0]), Tensor([[1.0, 2.0]]), (3, 2)).dense_shape
        (3, 2)
    """

    __slots__ = ("dense_shape", "indices", "values")
    indices: Tensor
    values: Tensor
    dense_shape: tuple[int, ...]

    def __init__(
        self,
        indices: Tensor | None = None,
        values: Tensor | None = None,
        shape: tuple[int, ...] | None = None,
        row_tensor: RowTensor | None = None,
    ) -> None:
        if row_tensor is not None:
            if not isinstance(row_tensor, RowTensor) or (indices, values, shape) != (None, None, None):
                raise SporaxTypeError(
                    "For 'RowTensor', there must be a RowTensor alone or indices, values and shape, but got "
                    f"{type(row_tensor).__name__} and others."
                )
            indices, values, shape = row_tensor.indices, row_tensor.values, row_tensor.dense_shape
        if not isinstance(indices, Tensor) or not isinstance(values, Tensor) or not isinstance(shape, tuple):
            raise SporaxTypeError(
                "For 'RowTensor', 'indices' and 'values' must be Tensors and 'shape' a tuple, but got "
                f"{type(indices).__name__}, {type(values).__name__} and {type(shape).__name__}."
            )
        self.indices, self.values, self.dense_shape = indices, values, shape
        self._check()

    def _check(self) -> None:
        if not jax.numpy.issubdtype(self.indices.array.dtype, jax.numpy.integer):
            raise SporaxTypeError(f"For 'RowTensor', 'indices' must be integers, but got {self.indices.dtype}.")
        rows, *rest = self.values.shape or (None,)
        if self.indices.shape != (rows,) or tuple(rest) != self.dense_shape[1:]:
            raise SporaxValueError(
                f"For 'RowTensor', shapes must be (rows,), (rows, …) and (l, …), but got {self.indices.shape}, "
                f"{self.values.shape} and {self.dense_shape}."
            )

    def __repr__(self) -> str:
        return f"RowTensor(indices={self.indices!r}, values={self.values!r}, shape={self.dense_shape})"


def _unflatten(shape: tuple[int, ...], children: tuple[Tensor, Tensor]) -> RowTensor:
    """Without checks: JAX puts other things than Tensors there for a while."""
    tensor = object.__new__(RowTensor)
    tensor.indices, tensor.values = children
    tensor.dense_shape = shape
    return tensor


jax.tree_util.register_pytree_node(RowTensor, lambda rows: ((rows.indices, rows.values), rows.dense_shape), _unflatten)
