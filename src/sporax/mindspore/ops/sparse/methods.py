"""Methods and Python operators of `COOTensor` and `CSRTensor`, and what Tensors do with them on their right side."""

from __future__ import annotations

from typing import Any

from sporax.base.errors import SporaxTypeError, SporaxValueError, check_type
from sporax.mindspore.common.sparse_tensor import COOTensor, CSRTensor, with_values
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.ops._core.operator import FUNCTIONS
from sporax.mindspore.ops.sparse import functions


def _check_shape(what: str, x: Any, other: Any) -> None:
    if not hasattr(other, "shape"):
        raise SporaxTypeError(
            f"For '{type(x).__name__}', it cannot {what} {type(other).__name__}; it must be a Tensor or of its own kind."
        )
    if x.shape != other.shape:
        raise SporaxValueError(
            f"For '{type(x).__name__}', both tensors must have the same shape, but got {x.shape} and {other.shape}."
        )


def _refuse(what: str, x: Any, other: Any) -> SporaxTypeError:
    return SporaxTypeError(
        f"For '{type(x).__name__}', {what} with {type(other).__name__} is not supported: see the operators of "
        "docs/operators.md, or use to_dense()."
    )


def _zero(x: Any) -> Tensor:
    return Tensor(0, x.dtype)


def _coo_add(self: COOTensor, other: Any) -> Any:
    _check_shape("add", self, other)
    if isinstance(other, Tensor):
        return FUNCTIONS["tensor_scatter_add"](other, self.indices, self.values)
    if isinstance(other, COOTensor):
        return functions.coo_add(self, other, _zero(self))
    raise _refuse("addition", self, other)


def _coo_sub(self: COOTensor, other: Any) -> Any:
    _check_shape("subtract", self, other)
    if isinstance(other, Tensor):
        # The dense operand is negated: x - y with x sparse.
        return FUNCTIONS["tensor_scatter_add"](-other, self.indices, self.values)
    if isinstance(other, COOTensor):
        return functions.coo_add(self, -other, _zero(self))
    raise _refuse("subtraction", self, other)


def _coo_taken_from(self: COOTensor, other: Any) -> Any:
    _check_shape("be subtracted from", self, other)
    if isinstance(other, Tensor):
        return FUNCTIONS["tensor_scatter_add"](other, self.indices, -self.values)
    raise _refuse("subtraction", self, other)


def _coo_mul(self: COOTensor, other: Any) -> COOTensor:
    _check_shape("multiply", self, other)
    if not isinstance(other, Tensor):
        raise _refuse("multiplication", self, other)
    return COOTensor(self.indices, self.values * FUNCTIONS["gather_nd"](other, self.indices), self.shape)


def _coo_div(self: COOTensor, other: Any) -> COOTensor:
    _check_shape("divide", self, other)
    if not isinstance(other, Tensor):
        raise _refuse("division", self, other)
    return COOTensor(self.indices, self.values / FUNCTIONS["gather_nd"](other, self.indices), self.shape)


def _csr_add(self: CSRTensor, other: Any) -> CSRTensor:
    _check_shape("add", self, other)
    if not isinstance(other, CSRTensor):
        raise _refuse("addition", self, other)
    return functions.csr_add(self, other, Tensor(1, self.dtype), Tensor(1, self.dtype))


def _csr_sub(self: CSRTensor, other: Any) -> CSRTensor:
    _check_shape("subtract", self, other)
    if not isinstance(other, CSRTensor):
        raise _refuse("subtraction", self, other)
    return functions.csr_add(self, other, Tensor(1, self.dtype), Tensor(-1, self.dtype))


def _csr_mm(self: CSRTensor, matrix: Any) -> Any:
    """The product with a dense matrix (a Tensor) or a CSRTensor (a CSRTensor, whose coordinates must be known)."""
    if isinstance(matrix, CSRTensor):
        return functions.csr_mm(self, matrix)
    check_type("CSRTensor.mm", "matrix", matrix, "a Tensor or CSRTensor", Tensor)
    return functions._times_dense(self, matrix)


def _csr_mv(self: CSRTensor, dense_vector: Any) -> Tensor:
    """The product with a vector in the form (n, 1)."""
    check_type("CSRTensor.mv", "dense_vector", dense_vector, "a Tensor", Tensor)
    return functions.csr_mv(self, dense_vector)


def _attach(kind: type, **methods: Any) -> None:
    # MindSpore defines these methods on the classes, which are of a layer below.
    for name, method in methods.items():
        setattr(kind, name, method)


for _kind in (COOTensor, CSRTensor):
    _attach(
        _kind,
        __neg__=lambda self: with_values(self, -self.values),
        abs=lambda self: with_values(self, self.values.abs()),
        astype=lambda self, dtype: with_values(self, self.values.astype(dtype)),
    )
_attach(
    COOTensor,
    __add__=_coo_add, __radd__=_coo_add, __sub__=_coo_sub, __rsub__=_coo_taken_from, __mul__=_coo_mul, __rmul__=_coo_mul,
    __truediv__=_coo_div,
    to_csr=functions.coo_to_csr, to_dense=functions.coo_to_dense, coalesce=functions.coo_coalesced,
    add=lambda self, other, thresh: functions.coo_add(self, other, thresh),
)  # fmt: skip
_attach(
    CSRTensor,
    __add__=_csr_add, __sub__=_csr_sub, __mul__=functions.csr_mul, __rmul__=functions.csr_mul, __truediv__=functions.csr_div,
    to_coo=functions.csr_to_coo, to_dense=functions.csr_to_dense, mm=_csr_mm, mv=_csr_mv,
    sum=lambda self, axis: functions.csr_reduce_sum(self, axis),
    add=lambda self, b, alpha, beta: functions.csr_add(self, b, alpha, beta),
)  # fmt: skip
