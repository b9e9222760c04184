"""Functions of sparse matrices: `csr_*`, `coo_*`, `dense_to_sparse_*` and the constructors of graph mode.

Then the methods and Python operators of `COOTensor` and `CSRTensor`, and what Tensors do with them on their right side.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from sporax.base.errors import For, SporaxTypeError, SporaxValueError
from sporax.mindspore.common.dtype import DType
from sporax.mindspore.common.sparse_tensor import COOTensor, CSRTensor, RowTensor, with_values
from sporax.mindspore.common.tensor import Tensor, wrap, wrap_numpy
from sporax.mindspore.ops._core import FUNCTIONS, known
from sporax.mindspore.ops.sparse import functions, kernels

_Numpy = np.ndarray[Any, Any]


def _sparse(kind: type, name: str, **tensors: Any) -> None:
    for what, value in tensors.items():
        For(name).refuse_type(not isinstance(value, kind), f"'{what}' must be a {kind.__name__}", type(value).__name__)


def _flat(name: str, x: CSRTensor) -> None:
    For(name).refuse(x.ndim != 2, "the CSRTensor must have 2 dimensions", f"shape {x.shape}")


def csr_to_coo(tensor: CSRTensor) -> COOTensor:
    """The same matrix with coordinates."""
    _sparse(CSRTensor, "csr_to_coo", tensor=tensor)
    _flat("csr_to_coo", tensor)
    rows = kernels.csr2coo(tensor.indptr, tensor.size).astype(tensor.indices.dtype)
    return COOTensor(FUNCTIONS["stack"]((rows, tensor.indices), 1), tensor.values, tensor.shape)


def csr_to_dense(csr_tensor: CSRTensor) -> Tensor:
    """The same matrix as a dense Tensor."""
    _sparse(CSRTensor, "csr_to_dense", csr_tensor=csr_tensor)
    return coo_to_dense(csr_to_coo(csr_tensor))


def coo_to_dense(x: COOTensor) -> Tensor:
    """The same matrix as a dense Tensor; entries at one place are added."""
    return kernels.sparse_to_dense(x.indices.reshape(-1, 2), x.values, x.shape)


def coo_to_csr(x: COOTensor) -> CSRTensor:
    # MindSpore keeps the order of entries within a row, so the sort is stable.
    """The same matrix row after row; entries of one row keep their order."""
    rows = x.indices.reshape(-1, 2).array[:, 0]
    order = jnp.argsort(rows, stable=True)
    indptr = kernels.coo2csr(wrap(rows[order]), x.shape[0])
    columns, values = (FUNCTIONS["gather"](entries, wrap(order), 0) for entries in (x.indices[:, 1], x.values))
    return CSRTensor(indptr, columns, values, x.shape)


def dense_to_sparse_coo(tensor: Tensor) -> COOTensor:
    # How many there are depends on the values.
    """The elements of a dense matrix that are not 0, with int32 coordinates; the values must be known."""
    For("dense_to_sparse_coo").typed("tensor", tensor, "a Tensor", Tensor)
    For("dense_to_sparse_coo").refuse(tensor.ndim != 2, "'tensor' must have 2 dimensions", f"shape {tensor.shape}")
    positions = np.argwhere(known("dense_to_sparse_coo", "tensor", tensor)).astype(np.int32)
    indices = wrap_numpy(positions)
    return COOTensor(indices, FUNCTIONS["gather_nd"](tensor, indices), tensor.shape)


def dense_to_sparse_csr(tensor: Tensor) -> CSRTensor:
    """The elements of a dense matrix that are not 0, row after row; the values must be known."""
    return coo_to_csr(dense_to_sparse_coo(tensor))


def csr_mv(csr_tensor: CSRTensor, dense: Tensor) -> Tensor:
    """A CSR matrix (m, n) times a vector in the form (n, 1); (m, 1)."""
    _sparse(CSRTensor, "csr_mv", csr_tensor=csr_tensor)
    return _times_dense(csr_tensor, dense)


def _times_dense(a: CSRTensor, dense: Tensor) -> Tensor:
    return kernels.csr_product(a.indptr, a.indices, a.values, dense, a.shape)


def csr_mm(
    a: CSRTensor,
    b: CSRTensor,
    trans_a: bool = False,
    trans_b: bool = False,
    adjoint_a: bool = False,
    adjoint_b: bool = False,
) -> CSRTensor:
    """The product of two CSR matrices, with an entry wherever two entries meet. Their coordinates must be known.

    Args:
        a: (m, k).
        b: (k, n).
        trans_a: `a` is transposed before.
        trans_b: `b` is transposed before.
        adjoint_a: `a` is transposed and conjugated before.
        adjoint_b: `b` is transposed and conjugated before.
    """
    _sparse(CSRTensor, "csr_mm", a=a, b=b)
    # As coordinates: products are found by comparing columns with rows.
    left, right = coordinates("csr_mm", csr_to_coo(a)), coordinates("csr_mm", csr_to_coo(b))
    (m, k), (other_k, n) = a.shape, b.shape
    if trans_a or adjoint_a:
        left, m, k = left[:, ::-1], k, m
    if trans_b or adjoint_b:
        right, other_k, n = right[:, ::-1], n, other_k
    For("csr_mm").refuse(k != other_k, "shapes must be (m, k) and (k, n)", (m, k), (other_k, n))
    # Which pairs of entries meet; their number is known, their values need not be.
    first, second = np.nonzero(left[:, 1, None] == right[None, :, 0])
    positions = np.stack((left[first, 0], right[second, 1]), 1)
    conj = FUNCTIONS["conj"]
    a_values = conj(a.values) if adjoint_a else a.values
    b_values = conj(b.values) if adjoint_b else b.values
    take = FUNCTIONS["gather"]
    # Values by gathers, so that products have derivatives.
    terms = take(a_values, wrap_numpy(first), 0) * take(b_values, wrap_numpy(second), 0)
    return coo_to_csr(_merged(positions.astype(left.dtype), terms, (m, n)))


def csr_mul(x: CSRTensor, y: Any) -> Any:
    """The values of `x` times the elements of `y` at their places.

    Args:
        x: CSR matrix.
        y: number, or Tensor that broadcasts to the shape of `x`.

    Returns:
        A CSRTensor; for a `y` of one element the values alone, as in MindSpore.
    """
    return _by_elements("csr_mul", x, y, FUNCTIONS["mul"], kernels.csr_times)


def csr_div(x: CSRTensor, y: Any) -> Any:
    """The values of `x` divided by the elements of `y` at their places; arguments and result as `csr_mul`."""
    return _by_elements("csr_div", x, y, FUNCTIONS["div"], kernels.csr_over)


def _by_elements(name: str, x: CSRTensor, y: Any, plain: Callable[..., Any], kernel: Callable[..., Any]) -> Any:
    _sparse(CSRTensor, name, x=x)
    if isinstance(y, bool | int | float):
        y = Tensor(y)
    For(name).typed("y", y, "a Tensor or a number", Tensor)
    # One element is a factor of all values, and MindSpore gives those alone.
    if y.size == 1 and y.ndim <= 2:
        For(name).refuse(y.ndim > x.ndim, "'y' must broadcast to 'x'", f"{y.shape} and {x.shape}")
        return plain(x.values, y).reshape(x.values.shape)
    return CSRTensor(x.indptr, x.indices, kernel(x.indptr, x.indices, x.values, y, x.shape), x.shape)


def csr_reduce_sum(csr_tensor: CSRTensor, axis: int) -> Tensor:
    """The sum of each row, (rows, 1). MindSpore knows this `axis` only: 1, or 1 - ndim.

    Raises:
        SporaxValueError: another axis.
    """
    _sparse(CSRTensor, "csr_reduce_sum", csr_tensor=csr_tensor)
    if axis not in (1, 1 - csr_tensor.ndim):
        raise SporaxValueError(f"For 'csr_reduce_sum', 'axis' must be 1 or {1 - csr_tensor.ndim}, but got {axis}.")
    return kernels.csr_row_sums(csr_tensor.indptr, csr_tensor.values, csr_tensor.shape)


def csr_softmax(logits: CSRTensor, dtype: DType) -> CSRTensor:
    """Softmax over the entries of each row, computed in `dtype`; places without entries count as -inf."""
    _sparse(CSRTensor, "csr_softmax", logits=logits)
    values = kernels.csr_row_softmax(logits.indptr, logits.values.astype(dtype))
    return CSRTensor(logits.indptr, logits.indices, values, logits.shape)


def csr_add(a: CSRTensor, b: CSRTensor, alpha: Tensor, beta: Tensor) -> CSRTensor:
    """``alpha * a + beta * b``, with an entry wherever one of both has one. Their coordinates must be known.

    Args:
        a: CSR matrix.
        b: CSR matrix of the same shape.
        alpha: factor of `a`.
        beta: factor of `b`.
    """
    _sparse(CSRTensor, "csr_add", a=a, b=b)
    _sparse(Tensor, "csr_add", alpha=alpha, beta=beta)
    _same_shape("csr_add", a, b)
    left, right = csr_to_coo(a), csr_to_coo(b)
    positions = np.concatenate((coordinates("csr_add", left), coordinates("csr_add", right)))
    values = FUNCTIONS["concat"]((a.values * alpha.astype(a.dtype), b.values * beta.astype(b.dtype)))
    return coo_to_csr(_merged(positions, values, a.shape))


def coo_add(x1: COOTensor, x2: COOTensor, thresh: Tensor) -> COOTensor:
    """The sum of two matrices. Their coordinates must be known.

    Args:
        x1: COO matrix.
        x2: COO matrix of the same shape.
        thresh: 0-D; where both have an entry and the sum is below it in magnitude, the result has none. When it is above
            0, the values must be known too.
    """
    _sparse(COOTensor, "coo_add", x1=x1, x2=x2)
    _sparse(Tensor, "coo_add", thresh=thresh)
    _same_shape("coo_add", x1, x2)
    left, right = coordinates("coo_add", x1), coordinates("coo_add", x2)
    positions = np.concatenate((left, right))
    total = _merged(positions, FUNCTIONS["concat"]((x1.values, x2.values)), x1.shape)
    # A known limit says how many entries stay.
    limit = known("coo_add", "thresh", thresh.astype(total.dtype)).item()
    if limit <= 0:
        return total
    is_large = np.abs(known("coo_add", "x1 and x2", total.values)) >= limit
    in_both = _occurs_in(coordinates("coo_add", total), left) & _occurs_in(coordinates("coo_add", total), right)
    remaining = wrap_numpy(np.flatnonzero(is_large | ~in_both))
    take = FUNCTIONS["gather"]
    return COOTensor(take(total.indices, remaining, 0), take(total.values, remaining, 0), x1.shape)


def coo_concat(sp_input: Any, concat_dim: int = 0) -> COOTensor:
    """Matrices side by side, with the entries in the order of their coordinates.

    Args:
        sp_input: list or tuple of at least two COOTensors.
        concat_dim: dimension along which they are put together.
    """
    if not isinstance(sp_input, list | tuple) or len(sp_input) < 2:
        raise SporaxValueError("For 'coo_concat', 'sp_input' must be a list or tuple of at least 2 COOTensors.")
    for part in sp_input:
        _sparse(COOTensor, "coo_concat", sp_input=part)
    For("coo_concat").refuse(concat_dim not in (-2, -1, 0, 1), "'concat_dim' must be in [-2, 2)", concat_dim)
    along = concat_dim % 2
    if len({part.shape[1 - along] for part in sp_input}) > 1:
        raise SporaxValueError(
            f"For 'coo_concat', the other dim must be equal, but got shapes {[part.shape for part in sp_input]}."
        )
    start, positions = 0, []
    for part in sp_input:
        positions.append(part.indices.array.at[:, along].add(start))
        start += part.shape[along]
    shape = (start, sp_input[0].shape[1]) if along == 0 else (sp_input[0].shape[0], start)
    joined = jnp.concatenate(positions)
    # By row, then by column: `lexsort` sorts by its last key first.
    order = jnp.lexsort((joined[:, 1], joined[:, 0]))
    values = FUNCTIONS["concat"](tuple(part.values for part in sp_input))
    return COOTensor(wrap(joined[order]), FUNCTIONS["gather"](values, wrap(order), 0), shape)


def coo_coalesced(x: COOTensor) -> COOTensor:
    """Entries in the order of their coordinates, those at one place added. The coordinates must be known."""
    return _merged(coordinates("coalesce", x), x.values, x.shape)


def coordinates(name: str, x: COOTensor) -> _Numpy:
    """The coordinates of the entries, when they are known."""
    return known(name, "indices", x.indices).reshape(-1, 2)


def _merged(positions: _Numpy, values: Tensor, shape: tuple[int, ...]) -> COOTensor:
    """Entries with different coordinates, in their order."""
    # numpy merges the coordinates; the sums of the values are part of the step.
    distinct, target = np.unique(positions, axis=0, return_inverse=True)
    sums = kernels.sums_of_entries(values, wrap_numpy(target.reshape(-1)), len(distinct))
    return COOTensor(wrap_numpy(distinct), sums, shape)


def _occurs_in(positions: _Numpy, others: _Numpy) -> _Numpy:
    """For each of `positions`, whether it is among `others`."""
    return np.asarray((positions[:, None] == others[None]).all(-1).any(-1))


def _same_shape(name: str, a: Any, b: Any) -> None:
    For(name).refuse(a.shape != b.shape, "both must have the same shape", a.shape, b.shape)


def make_coo_tensor(indices: Tensor, values: Tensor, dense_shape: tuple[int, ...]) -> COOTensor:
    """Same as `COOTensor`."""
    return COOTensor(indices, values, dense_shape)


def make_csr_tensor(indptr: Tensor, indices: Tensor, values: Tensor, dense_shape: tuple[int, ...]) -> CSRTensor:
    """Same as `CSRTensor`."""
    return CSRTensor(indptr, indices, values, dense_shape)


def make_row_tensor(indices: Tensor, values: Tensor, dense_shape: tuple[int, ...]) -> RowTensor:
    """Same as `RowTensor`."""
    return RowTensor(indices, values, dense_shape)


def _getter(kind: type, prefix: str, part: str, attribute: str) -> Callable[[Any], Any]:
    name = f"{prefix}_tensor_get_{part}"

    def get(x: Any) -> Any:
        _sparse(kind, name, x=x)
        return getattr(x, attribute)

    get.__name__ = get.__qualname__ = name
    get.__doc__ = f"`{attribute}` of a {kind.__name__}."
    return get


_ELEMENTWISE = """
    cos tan exp inv relu expm1 isfinite asin sqrt log isnan acos floor atan square relu6 sinh ceil cosh softsign log1p round
    tanh asinh neg acosh isinf atanh sigmoid abs sin
""".split()
"""Functions of one tensor that are applied to the values; places without entries stay without."""


def _elementwise(kind: type, prefix: str, function: str) -> Callable[[Any], Any]:
    name = f"{prefix}_{function}"

    def apply(x: Any) -> Any:
        _sparse(kind, name, x=x)
        return with_values(x, FUNCTIONS[function](x.values))

    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = f"`{function}` of the values of a {kind.__name__}."
    return apply


_FUNCTIONS: tuple[Callable[..., Any], ...] = (
    csr_to_coo, csr_to_dense, dense_to_sparse_coo, dense_to_sparse_csr, csr_mv, csr_mm, csr_mul, csr_div, csr_reduce_sum,
    csr_softmax, csr_add, coo_add, coo_concat, make_coo_tensor, make_csr_tensor, make_row_tensor,
    *(_getter(COOTensor, "coo", part, part) for part in ("indices", "values")),
    _getter(COOTensor, "coo", "dense_shape", "shape"),
    *(_getter(CSRTensor, "csr", part, part) for part in ("indptr", "indices", "values")),
    _getter(CSRTensor, "csr", "dense_shape", "shape"),
    *(_getter(RowTensor, "row", part, part) for part in ("indices", "values", "dense_shape")),
    *(_elementwise(kind, prefix, name) for kind, prefix in ((CSRTensor, "csr"), (COOTensor, "coo")) for name in _ELEMENTWISE),
)  # fmt: skip
FUNCTIONS.update({function.__name__: function for function in _FUNCTIONS})
FUNCTIONS.update(make_sparse_tensor=make_coo_tensor, make_row_tensor_inner=make_row_tensor)


def _check_shape(what: str, x: Any, other: Any) -> None:
    For(type(x).__name__).refuse_type(
        not hasattr(other, "shape"), f"it cannot {what} {type(other).__name__}; it must be a Tensor or of its own kind"
    )
    For(type(x).__name__).refuse(
        x.shape != other.shape, "both tensors must have the same shape", f"{x.shape} and {other.shape}"
    )


def _refuse(what: str, x: Any, other: Any) -> SporaxTypeError:
    return SporaxTypeError(
        f"For '{type(x).__name__}', {what} with {type(other).__name__} is not supported: see the operators of "
        "docs/operators.md, or use to_dense()."
    )


def _arithmetic(
    verb: str,
    noun: str,
    with_tensor: Callable[[Any, Tensor], Any] | None = None,
    with_own: Callable[[Any, Any], Any] | None = None,
) -> Callable[[Any, Any], Any]:
    """An operator of Python, with a Tensor or another matrix of the kind; None: there is none."""

    def compute(self: Any, other: Any) -> Any:
        _check_shape(verb, self, other)
        for kind, function in ((Tensor, with_tensor), (type(self), with_own)):
            if function is not None and isinstance(other, kind):
                return function(self, other)
        raise _refuse(noun, self, other)

    return compute


def _added(dense: Tensor, x: COOTensor, values: Tensor) -> Tensor:
    """`dense` with the entries of `x` added, whose values are others."""
    return FUNCTIONS["tensor_scatter_add"](dense, x.indices, values)


def _coo_sum(x: COOTensor, other: COOTensor) -> COOTensor:
    return functions.coo_add(x, other, Tensor(0, x.dtype))


def _csr_sum(x: CSRTensor, other: CSRTensor, factor: int) -> CSRTensor:
    return functions.csr_add(x, other, Tensor(1, x.dtype), Tensor(factor, x.dtype))


def _picked(dense: Tensor, x: COOTensor) -> Tensor:
    return FUNCTIONS["gather_nd"](dense, x.indices)


_coo_add = _arithmetic("add", "addition", lambda x, dense: _added(dense, x, x.values), _coo_sum)
_coo_sub = _arithmetic(
    "subtract", "subtraction", lambda x, dense: _added(-dense, x, x.values), lambda x, other: _coo_sum(x, -other)
)
_coo_taken_from = _arithmetic("be subtracted from", "subtraction", lambda x, dense: _added(dense, x, -x.values))
_coo_mul = _arithmetic("multiply", "multiplication", lambda x, dense: with_values(x, x.values * _picked(dense, x)))
_coo_div = _arithmetic("divide", "division", lambda x, dense: with_values(x, x.values / _picked(dense, x)))
_csr_add = _arithmetic("add", "addition", with_own=lambda x, other: _csr_sum(x, other, 1))
_csr_sub = _arithmetic("subtract", "subtraction", with_own=lambda x, other: _csr_sum(x, other, -1))


def _csr_mm(self: CSRTensor, matrix: Any) -> Any:
    """The product with a dense matrix (a Tensor) or a CSRTensor (a CSRTensor, whose coordinates must be known)."""
    if isinstance(matrix, CSRTensor):
        return functions.csr_mm(self, matrix)
    For("CSRTensor.mm").typed("matrix", matrix, "a Tensor or CSRTensor", Tensor)
    return functions._times_dense(self, matrix)


def _csr_mv(self: CSRTensor, dense_vector: Any) -> Tensor:
    """The product with a vector in the form (n, 1)."""
    For("CSRTensor.mv").typed("dense_vector", dense_vector, "a Tensor", Tensor)
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
