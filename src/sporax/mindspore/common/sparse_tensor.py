"""Sparse tensors: `COOTensor` and `CSRTensor` (matrices with few entries) and `RowTensor` (some rows of a larger tensor).

Each is a bundle of dense Tensors and a shape, and a pytree node, so functions that are compiled, differentiated or vectorized
take and return them. The Tensors may be traced; the number of entries is part of the shapes and so fixed. What computes is in
`sporax.mindspore.ops.sparse`, which also gives these classes their methods. Formats: Saad, "Iterative Methods for Sparse Linear
Systems", section 3.4.

Derivatives in Sporax are dense, those of lookups too, so nothing here makes a RowTensor by itself. Programs that build
gradients of that form by hand can combine them over ranks with `nn.DistributedGradReducer`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Self

import jax
import numpy as np

from sporax.base.errors import For, SporaxTypeError, SporaxValueError
from sporax.mindspore.common import dtype as dtypes
from sporax.mindspore.common.dtype import DType
from sporax.mindspore.common.tensor import Tensor

_INDEX_TYPES = (np.int16, np.int32, np.int64)


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
        # Values without dimensions fit no rows.
        rows, *rest = self.values.shape or (None,)
        if self.indices.shape != (rows,) or tuple(rest) != self.dense_shape[1:]:
            raise SporaxValueError(
                f"For 'RowTensor', shapes must be (rows,), (rows, …) and (l, …), but got {self.indices.shape}, "
                f"{self.values.shape} and {self.dense_shape}."
            )

    def __repr__(self) -> str:
        return f"RowTensor(indices={self.indices!r}, values={self.values!r}, shape={self.dense_shape})"


class _Matrix:
    """What COO and CSR have in common."""

    # No dict: pytree nodes are made very often.

    __slots__ = ("shape", "values")
    shape: tuple[int, ...]
    values: Tensor

    @property
    def dtype(self) -> DType:
        """Element type of the values."""
        return self.values.dtype

    @property
    def size(self) -> int:
        """Number of values that are held."""
        return self.values.size

    @property
    def itemsize(self) -> int:
        """Bytes of one value."""
        return self.values.itemsize

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    if TYPE_CHECKING:  # methods that `sporax.mindspore.ops.sparse` attaches

        def astype(self, dtype: Any) -> Self: ...
        def abs(self) -> Self: ...
        def to_dense(self) -> Tensor: ...
        def __neg__(self) -> Self: ...
        def __add__(self, other: Any) -> Any: ...
        def __sub__(self, other: Any) -> Any: ...
        def __mul__(self, other: Any) -> Any: ...
        def __truediv__(self, other: Any) -> Any: ...


class COOTensor(_Matrix):
    """A matrix that holds its entries with their coordinates: ``dense[indices[i]] = values[i]``.

    Same as MindSpore: coordinates may occur more than once, and then count together where entries are added.

    Args:
        indices: (entries, 2), int16, int32 or int64.
        values: (entries,).
        shape: (rows, columns).
        coo_tensor: take everything from another one instead.

    Raises:
        SporaxTypeError: an argument has another type.
        SporaxValueError: the shapes do not fit together.

    Example:
        >>> x = COOTensor(Tensor([[0, 1], [1, 2]]), Tensor([1.0, 2.0]), (3, 4))
        >>> x.to_dense().shape
        (3, 4)
    """

    __slots__ = ("indices",)
    indices: Tensor

    def __init__(
        self,
        indices: Tensor | None = None,
        values: Tensor | None = None,
        shape: tuple[int, ...] | None = None,
        coo_tensor: COOTensor | None = None,
    ) -> None:
        if coo_tensor is not None:
            _check_alone("COOTensor", coo_tensor, COOTensor, (indices, values, shape))
            self.indices, self.values, self.shape = coo_tensor.to_tuple()
            return
        _check_types("COOTensor", shape, indices=indices, values=values)
        assert indices is not None
        assert values is not None
        assert shape is not None
        For("COOTensor").refuse(len(shape) != 2, "the length of 'shape' must be 2", shape)
        _check_index_type("COOTensor", indices=indices)
        # An empty matrix says nothing about its entries.
        if not (indices.shape == (0,) and values.shape == (0,)):
            _check_room("COOTensor", shape, values)
            if values.ndim != 1 or indices.shape != (*values.shape, 2):
                raise For("COOTensor").error(
                    f"'values' must be (entries,) and 'indices' (entries, 2), but got {values.shape} and {indices.shape}"
                )
        self.indices, self.values, self.shape = indices, values, shape

    def to_tuple(self) -> tuple[Tensor, Tensor, tuple[int, ...]]:
        """Indices, values and shape."""
        return self.indices, self.values, self.shape

    def __repr__(self) -> str:
        return (
            f"COOTensor(shape={list(self.shape)}, dtype={self.dtype}, indices={self.indices!r}, values={self.values!r})"
        )

    if TYPE_CHECKING:

        def to_csr(self) -> CSRTensor: ...  # noqa: D102
        def coalesce(self) -> COOTensor: ...  # noqa: D102
        def add(self, other: COOTensor, thresh: Tensor) -> COOTensor: ...  # noqa: D102


class SparseTensor(COOTensor):
    """The old name of `COOTensor`.

    Args:
        indices: as in `COOTensor`.
        values: as in `COOTensor`.
        shape: as in `COOTensor`.
    """

    __slots__ = ()

    def __init__(self, indices: Tensor, values: Tensor, shape: tuple[int, ...]) -> None:
        super().__init__(indices, values, shape)


class CSRTensor(_Matrix):
    """A matrix that holds its entries row after row: those of row `i` are ``values[indptr[i]:indptr[i + 1]]``.

    Args:
        indptr: (rows + 1,), int16, int32 or int64: where each row begins.
        indices: (entries,), likewise: the columns.
        values: (entries, …); further dimensions are those of the entries.
        shape: (rows, columns, …).
        csr_tensor: take everything from another one instead.

    Raises:
        SporaxTypeError: an argument has another type.
        SporaxValueError: the shapes do not fit together.

    Example:
        >>> x = CSRTensor(Tensor([0, 1, 2]), Tensor([0, 1]), Tensor([1.0, 2.0]), (2, 4))
        >>> x.to_dense().shape
        (2, 4)
    """

    __slots__ = ("indices", "indptr")
    indptr: Tensor
    indices: Tensor

    def __init__(
        self,
        indptr: Tensor | None = None,
        indices: Tensor | None = None,
        values: Tensor | None = None,
        shape: tuple[int, ...] | None = None,
        csr_tensor: CSRTensor | None = None,
    ) -> None:
        if csr_tensor is not None:
            _check_alone("CSRTensor", csr_tensor, CSRTensor, (indptr, indices, values, shape))
            self.indptr, self.indices, self.values, self.shape = csr_tensor.to_tuple()
            return
        _check_types("CSRTensor", shape, indptr=indptr, indices=indices, values=values)
        assert indptr is not None
        assert indices is not None
        assert values is not None
        assert shape is not None
        if not indptr.shape == indices.shape == values.shape == (0,):
            _check_room("CSRTensor", shape, values)
            if len(shape) < 2 or indptr.shape != (shape[0] + 1,):
                raise SporaxValueError(
                    "For 'CSRTensor', 'shape' must have at least 2 dims and 'indptr' length (1 + shape[0]), but got "
                    f"{shape} and shape {indptr.shape}."
                )
            # Entries may be blocks, which then follow the first two dimensions.
            if indices.shape != values.shape[:1] or values.shape[1:] != shape[2:]:
                raise SporaxValueError(
                    "For 'CSRTensor', 'indices' must be (entries,) and 'values' (entries, *shape[2:]), but got "
                    f"{indices.shape} and {values.shape}, with shape {shape}."
                )
        _check_index_type("CSRTensor", indptr=indptr, indices=indices)
        self.indptr, self.indices, self.values, self.shape = indptr, indices, values, shape

    def to_tuple(self) -> tuple[Tensor, Tensor, Tensor, tuple[int, ...]]:
        """Indptr, indices, values and shape."""
        return self.indptr, self.indices, self.values, self.shape

    def __repr__(self) -> str:
        return (
            f"CSRTensor(shape={list(self.shape)}, dtype={self.dtype}, indptr={self.indptr!r}, "
            f"indices={self.indices!r}, values={self.values!r})"
        )

    if TYPE_CHECKING:

        def to_coo(self) -> COOTensor: ...  # noqa: D102
        def mv(self, dense_vector: Tensor) -> Tensor: ...  # noqa: D102
        def mm(self, matrix: Tensor | CSRTensor) -> Any: ...  # noqa: D102
        def sum(self, axis: int) -> Tensor: ...  # noqa: D102
        def add(self, b: CSRTensor, alpha: Tensor, beta: Tensor) -> CSRTensor: ...  # noqa: D102


def with_values(x: Any, values: Tensor) -> Any:
    """The sparse matrix `x` with other values."""
    return (
        # All parts but values and shape stay.
        CSRTensor(*x.to_tuple()[:-2], values, x.shape)
        if isinstance(x, CSRTensor)
        else COOTensor(x.indices, values, x.shape)
    )


def _check_alone(name: str, other: Any, kind: type, others: tuple[Any, ...]) -> None:
    if not isinstance(other, kind) or any(value is not None for value in others):
        raise SporaxTypeError(
            f"For '{name}', there must be a {name} alone or its parts, but got {type(other).__name__} and "
            f"{sum(value is not None for value in others)} parts."
        )


def _check_types(name: str, shape: Any, **tensors: Any) -> None:
    for what, value in tensors.items():
        For(name).typed(what, value, "Tensor", Tensor)
    For(name).typed("shape", shape, "tuple", tuple)
    for size in shape:
        if isinstance(size, bool) or not isinstance(size, int):
            raise SporaxTypeError(f"For '{name}', the elements of 'shape' must be int, but got {size!r}.")


def _check_index_type(name: str, **tensors: Tensor) -> None:
    for what, value in tensors.items():
        if value.dtype.np_dtype not in _INDEX_TYPES:
            allowed = ", ".join(str(dtypes.from_numpy(np.dtype(kind))) for kind in _INDEX_TYPES)
            raise SporaxTypeError(f"For '{name}', '{what}' must be one of [{allowed}], but got {value.dtype}.")


def _check_room(name: str, shape: tuple[int, ...], values: Tensor) -> None:
    For(name).refuse(min(shape, default=1) <= 0, "the elements of 'shape' must be positive", shape)
    For(name).refuse(math.prod(shape) < values.size, f"'shape' {shape} is too small to hold {values.size} values")


def _unflatten_rows(shape: tuple[int, ...], children: tuple[Tensor, Tensor]) -> RowTensor:
    """Without checks, as the next two: JAX puts other things than Tensors there for a while."""
    rows = object.__new__(RowTensor)
    rows.indices, rows.values = children
    rows.dense_shape = shape
    return rows


def _unflatten_coo(fixed: tuple[type[COOTensor], tuple[int, ...]], children: tuple[Tensor, Tensor]) -> COOTensor:
    matrix = object.__new__(fixed[0])
    matrix.indices, matrix.values = children
    matrix.shape = fixed[1]
    return matrix


def _unflatten_csr(shape: tuple[int, ...], children: tuple[Tensor, Tensor, Tensor]) -> CSRTensor:
    matrix = object.__new__(CSRTensor)
    matrix.indptr, matrix.indices, matrix.values = children
    matrix.shape = shape
    return matrix


jax.tree_util.register_pytree_node(
    RowTensor, lambda rows: ((rows.indices, rows.values), rows.dense_shape), _unflatten_rows
)
for _kind in (COOTensor, SparseTensor):
    # The old name must come back as itself.
    jax.tree_util.register_pytree_node(_kind, lambda x: ((x.indices, x.values), (type(x), x.shape)), _unflatten_coo)
jax.tree_util.register_pytree_node(CSRTensor, lambda x: ((x.indptr, x.indices, x.values), x.shape), _unflatten_csr)
