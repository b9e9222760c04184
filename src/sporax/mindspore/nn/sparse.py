"""Cells of sparse matrices: `SparseToDense` and `SparseTensorDenseMatmul`."""

from __future__ import annotations

from typing import Any

from sporax.base.errors import SporaxTypeError
from sporax.mindspore.common.sparse_tensor import COOTensor
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.nn.cell import Cell
from sporax.mindspore.ops._core.operator import PRIMITIVES

__path__: list[str] = []  # a package in MindSpore, see `sporax.mindspore._names.module_paths`


class SparseToDense(Cell):
    """The dense form of a COOTensor; same as `COOTensor.to_dense`."""

    def construct(self, sparse_tensor: COOTensor) -> Tensor:
        """Add up the entries."""
        if not isinstance(sparse_tensor, COOTensor):
            raise SporaxTypeError.must("SparseToDense", "the input", "be a COOTensor", type(sparse_tensor).__name__)
        return sparse_tensor.to_dense()


class SparseTensorDenseMatmul(Cell):
    """A matrix of entries times a dense matrix.

    Args:
        adjoint_st: the sparse matrix is transposed (and conjugated) before.
        adjoint_dt: the dense matrix is.
    """

    def __init__(self, adjoint_st: bool = False, adjoint_dt: bool = False) -> None:
        super().__init__()
        self.adj_st = adjoint_st
        self.adj_dt = adjoint_dt
        self.sparse_dense_matmul = PRIMITIVES["SparseTensorDenseMatmul"](adjoint_st, adjoint_dt)

    def construct(self, indices: Tensor, values: Tensor, sparse_shape: tuple[int, ...], dense: Tensor) -> Any:
        """The product of the (entries, 2) `indices`, (entries,) `values` and the dense matrix."""
        return self.sparse_dense_matmul(indices, values, sparse_shape, dense)
