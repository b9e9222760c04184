"""Making, turning, repeating, padding and rearranging tensors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax.common import dtype as dtypes
from sporax.common.dtype import DType
from sporax.common.tensor import Tensor, wrap
from sporax.ir.errors import SporaxTypeError, SporaxValueError
from sporax.ops._core import check
from sporax.ops._core.operator import Array, Operand, operator
from sporax.ops.array.sorting import known

# ------------------------------------------------------------------------------------------------------------- making


@operator("LinSpace()", function="")
def _lin_space(start: Array, stop: Array, num: int) -> Array:
    """`num` numbers at equal distances from `start` to `stop`, both included; both of one dtype."""
    check.floating("LinSpace", start=start, stop=stop)
    check.same_dtype("LinSpace", start=start, stop=stop)
    if num < 1:
        raise SporaxValueError(f"For 'LinSpace', 'num' must be >= 1, but got {num}.")
    return jnp.linspace(start, stop, num, dtype=start.dtype)


@operator(function="logspace")
def logspace(start: Operand, end: Operand, steps: int, base: int = 10, *, dtype: DType = dtypes.float32) -> Array:
    """`steps` numbers from base^start to base^end, whose logarithms are at equal distances."""
    exponents = jnp.linspace(jnp.asarray(start, jnp.float64), jnp.asarray(end, jnp.float64), steps)
    return jnp.power(float(base), exponents).astype(dtype.np_dtype)


@operator("Fill()", function="", composed=True)
def _fill_primitive(dtype: DType, dims: Any, x: Any) -> Tensor:
    """A tensor of the shape `dims` and dtype `dtype` that holds one value `x`."""
    return fill(dtype, dims, x)


@operator(function="fill", composed=True)
def fill(type: DType, shape: Any, value: Any) -> Tensor:
    """A tensor of `shape` and dtype `type` that holds one value."""
    sizes = check.shape("Fill", tuple(shape) if isinstance(shape, list) else shape)
    return wrap(jnp.full(sizes, Tensor(value).array, type.np_dtype))


@operator("FillV2()", function="", composed=True)
def _fill_v2(shape: Any, value: Any) -> Tensor:
    """A tensor of `shape` that holds one value, in the dtype of that value."""
    sizes = tuple(shape.tolist()) if isinstance(shape, Tensor) else shape
    return wrap(jnp.full(check.shape("FillV2", sizes), Tensor(value).array))


@operator("Fills()", function="fills", method="fills")
def fills(x: Array, value: Operand) -> Array:
    """A tensor in the shape and dtype of `x` that holds one value."""
    return jnp.full(x.shape, value, x.dtype)


@operator("Eye()", function="", composed=True)
def _eye(n: int, m: int, dtype: DType) -> Tensor:
    """Ones on the diagonal of an n × m matrix."""
    return wrap(jnp.eye(n, m, dtype=dtype.np_dtype))


@operator("Zeros()", function="", composed=True)
def _zeros(size: Any, dtype: DType | None = None) -> Tensor:
    """Zeros; float32 by default."""
    return wrap(jnp.zeros(check.shape("Zeros", size), (dtype or dtypes.float32).np_dtype))


@operator("Ones()", function="", composed=True)
def _ones(shape: Any, dtype: DType | None = None) -> Tensor:
    """Ones; float32 by default."""
    return wrap(jnp.ones(check.shape("Ones", shape), (dtype or dtypes.float32).np_dtype))


@operator("Range(maxlen)", function="range", composed=True)
def range_(start: Any, end: Any, step: Any, maxlen: int = 1000000) -> Tensor:
    """Numbers from `start` up to `end` (without it) at distance `step`; at most `maxlen` of them."""
    first, last, stride = (each.item() if isinstance(each, Tensor) else each for each in (start, end, step))
    if not stride:
        raise SporaxValueError("For 'Range', 'step' must not be 0.")
    length = max(math.ceil((last - first) / stride), 0)
    if length > maxlen:
        raise SporaxValueError(f"For 'Range', there must be at most 'maxlen' {maxlen} numbers, but got {length}.")
    whole = all(isinstance(each, int) for each in (first, last, stride))
    return wrap(jnp.arange(first, last, stride).astype(jnp.int64 if whole else jnp.float32))


def _triangle(name: str, own: str, indices: Callable[..., Any]) -> None:
    def kernel(row: int, col: int, offset: int = 0, *, dtype: DType = dtypes.int64) -> Tensor:
        return wrap(jnp.asarray(np.stack(indices(row, offset, col)), dtype.np_dtype))

    def primitive(row: int, col: int, offset: int = 0, dtype: DType = dtypes.int32) -> Tensor:
        return kernel(row, col, offset, dtype=dtype)

    for each in (kernel, primitive):
        each.__name__ = own
        each.__doc__ = "Rows and columns of the triangle of a `row` × `col` matrix, as a (2, n) tensor."
    operator(function=own, composed=True)(kernel)
    operator(f"{name}(row, col, offset, dtype)", function="", composed=True)(primitive)


_triangle("TrilIndices", "tril_indices", np.tril_indices)
_triangle("TriuIndices", "triu_indices", np.triu_indices)


@operator(function="meshgrid", mint="")
def meshgrid(*inputs: Array, indexing: str = "xy") -> tuple[Array, ...]:
    """The grids whose coordinates are the given vectors; ``"xy"`` exchanges the first two dims, ``"ij"`` does not."""
    check.one_of("Meshgrid", indexing, ("xy", "ij"), "indexing")
    return tuple(jnp.meshgrid(*inputs, indexing=indexing))


@operator("Meshgrid(indexing)", function="")
def _meshgrid_primitive(inputs: Array, indexing: str = "xy") -> tuple[Array, ...]:
    """The grids whose coordinates are the vectors in a tuple."""
    return meshgrid.kernel(*inputs, indexing=indexing)


@operator(function="", mint="meshgrid")
def _mint_meshgrid(*tensors: Array, indexing: str | None = None) -> tuple[Array, ...]:
    """As `ops.meshgrid`, with ``"ij"`` as default."""
    grids = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], tuple) else tensors
    return meshgrid.kernel(*grids, indexing=indexing or "ij")


# ------------------------------------------------------------------------------------------------- turning, repeating


@operator(function="flip", method="flip", mint="flip")
def flip(input: Array, dims: int | tuple[int, ...]) -> Array:
    """The order of the elements along `dims` reversed."""
    return jnp.flip(input, check.axes("flip", dims, input.ndim, "dims") or ())


@operator("ReverseV2(axis)", function="", method="")
def _reverse_v2(input: Array, axis: int | tuple[int, ...]) -> Array:
    """The order of the elements along `axis` reversed."""
    return jnp.flip(input, check.axes("ReverseV2", axis, input.ndim) or ())


@operator(function="reverse", method="reverse")
def reverse(x: Array, axis: int | tuple[int, ...]) -> Array:
    """The order of the elements along `axis` reversed."""
    return jnp.flip(x, check.axes("reverse", axis, x.ndim) or ())


def _flip_at(name: str, dim: int) -> None:
    def kernel(input: Array) -> Array:
        if input.ndim <= dim:
            raise SporaxValueError(f"For '{name}', 'input' must have more than {dim} dims, but got {input.shape}.")
        return jnp.flip(input, dim)

    kernel.__name__, kernel.__doc__ = name, f"The order of the elements along dim {dim} reversed."
    operator(function=name, method=name)(kernel)


_flip_at("flipud", 0)
_flip_at("fliplr", 1)


@operator("Roll(shifts, dims)", function="roll", method="roll", mint="roll")
def roll(input: Array, shifts: int | tuple[int, ...], dims: int | tuple[int, ...] | None = None) -> Array:
    """The elements moved by `shifts` along `dims`, what leaves at the end coming back at the start.

    Without `dims` the tensor is rolled as if it were flat.
    """
    check.tensor("Roll", input=input)
    return jnp.roll(input, shifts, check.axes("Roll", dims, input.ndim, "dims"))


@operator(function="rot90", method="rot90")
def rot90(input: Array, k: int, dims: tuple[int, ...]) -> Array:
    """A turn by `k` times 90 degrees in the plane of two dims, from the first towards the second."""
    planes = check.axes("rot90", dims, input.ndim, "dims")
    if planes is None or len(planes) != 2:
        raise SporaxValueError(f"For 'rot90', 'dims' must name two dims, but got {dims}.")
    return jnp.rot90(input, k, planes)


@operator(function="", method="reverse_sequence")
def _reverse_sequence_method(x: Array, seq_lengths: Array, seq_dim: int = 0, batch_dim: int = 0) -> Array:
    """As `ops.reverse_sequence`."""
    return reverse_sequence.kernel(x, seq_lengths, seq_dim, batch_dim)


@operator("ReverseSequence", function="reverse_sequence")
def reverse_sequence(x: Array, seq_lengths: Array, seq_dim: int, batch_dim: int = 0) -> Array:
    """The first `seq_lengths` elements along `seq_dim` of each sample (along `batch_dim`) reversed."""
    check.integral("ReverseSequence", seq_lengths=seq_lengths)
    along, batch = check.axis("ReverseSequence", seq_dim, x.ndim), check.axis("ReverseSequence", batch_dim, x.ndim)
    if along == batch or seq_lengths.shape != (x.shape[batch],):
        raise SporaxValueError(
            f"For 'ReverseSequence', 'seq_lengths' must have one element per sample and the two dims must differ, "
            f"but got shapes {x.shape}, {seq_lengths.shape}, 'seq_dim' {seq_dim} and 'batch_dim' {batch_dim}."
        )
    position = jax.lax.broadcasted_iota(jnp.int64, x.shape, along)
    spread = [-1 if dim == batch else 1 for dim in range(x.ndim)]
    lengths = seq_lengths.astype(jnp.int64).reshape(spread)
    return jnp.take_along_axis(x, jnp.where(position < lengths, lengths - 1 - position, position), along)


@operator(function="repeat_elements")
def repeat_elements(x: Array, rep: int, axis: int = 0) -> Array:
    """Every slice along `axis` `rep` times in a row."""
    return jnp.repeat(x, rep, check.axis("repeat_elements", axis, x.ndim))


@operator(
    function="repeat_interleave",
    method="repeat_interleave(dim=axis)",
    mint="repeat_interleave(dim=axis)",
    composed=True,
)
def repeat_interleave(input: Any, repeats: Any, axis: int | None = None) -> Any:
    """Every slice along `axis` (every element of the flattened tensor by default) several times in a row.

    Args:
        input: tensor.
        repeats: how often: an int, or one number for each slice (whose values must be known: not in compiled steps).
        axis: the dimension.
    """
    if isinstance(repeats, Tensor):
        repeats = tuple(known("repeat_interleave", "repeats", repeats).reshape(-1).tolist())
    counts = repeats if isinstance(repeats, int) else tuple(repeats)
    return _repeated(input, counts, axis)


@operator(function="")
def _repeated(input: Array, repeats: int | tuple[int, ...], axis: int | None) -> Array:
    """Every slice along `axis` several times in a row."""
    values = input.reshape(-1) if axis is None else input
    where = 0 if axis is None else check.axis("repeat_interleave", axis, input.ndim)
    counts = (repeats,) if isinstance(repeats, int) else repeats
    if len(counts) not in (1, values.shape[where]) or min(counts, default=0) < 0:
        raise SporaxValueError(
            f"For 'repeat_interleave', 'repeats' must be one number or {values.shape[where]}, none negative, but got {repeats}."
        )
    order = np.repeat(np.arange(values.shape[where]), counts[0] if len(counts) == 1 else counts)
    return jnp.take(values, order, where)


@operator(function="", method="repeat", composed=True)
def _repeat(input: Any, *repeats: Any) -> Any:
    """The tensor repeated so many times along each dimension (new ones in front); see `ops.tile`."""
    counts = repeats[0] if len(repeats) == 1 and isinstance(repeats[0], tuple | list) else repeats
    return input.tile(tuple(counts))


# ------------------------------------------------------------------------------------------------------------ joining


def _joined(name: str, function: Callable[..., Array], first: str, doc: str, mint: str) -> None:
    def of_tensors(tensors: Array) -> Array:
        return function(tensors)

    def of_inputs(inputs: Array) -> Array:
        return function(inputs)

    kernel = of_inputs if first == "inputs" else of_tensors
    kernel.__name__, kernel.__doc__ = name, doc
    operator(function=name, mint=mint)(kernel)


_joined("hstack", jnp.hstack, "tensors", "Tensors joined along dim 1 (vectors along dim 0).", "hstack")
_joined("vstack", jnp.vstack, "inputs", "Tensors joined along dim 0, vectors as rows.", "")
_joined("row_stack", jnp.vstack, "tensors", "Tensors joined along dim 0, vectors as rows.", "")
_joined("dstack", jnp.dstack, "tensors", "Tensors joined along dim 2, vectors as columns.", "dstack")
_joined("column_stack", jnp.column_stack, "tensors", "Tensors joined along dim 1, vectors as columns.", "")


def _at_least(name: str, function: Callable[..., Array], dims: int) -> None:
    def kernel(inputs: Array) -> Any:
        return tuple(map(function, inputs)) if isinstance(inputs, tuple) else function(inputs)

    kernel.__name__ = name
    kernel.__doc__ = f"A tensor, or each of several, with dimensions of size 1 added until there are {dims}."
    operator(function=name)(kernel)


_at_least("atleast_1d", jnp.atleast_1d, 1)
_at_least("atleast_2d", jnp.atleast_2d, 2)
_at_least("atleast_3d", jnp.atleast_3d, 3)


@operator(function="block_diag")
def block_diag(*inputs: Array) -> Array:
    """A matrix with the given matrices (vectors as rows) as blocks on its diagonal, zeros elsewhere."""
    check.rank("block_diag", (0, 1, 2), **{f"inputs[{index}]": each for index, each in enumerate(inputs)})
    return jax.scipy.linalg.block_diag(*inputs)


@operator(function="cartesian_prod")
def cartesian_prod(*inputs: Array) -> Array:
    """All combinations of one element of each vector, one a row."""
    grids = jnp.meshgrid(*inputs, indexing="ij")
    return jnp.stack([grid.reshape(-1) for grid in grids], -1) if len(inputs) > 1 else inputs[0]


@operator(function="combinations")
def combinations(input: Array, r: int = 2, with_replacement: bool = False) -> Array:
    """All choices of `r` elements of a vector, one a row; with `with_replacement` an element may occur more than once."""
    check.rank("combinations", 1, input=input)
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = np.array(list(choose(range(input.size), r)), np.int64).reshape(-1, r)
    return input[rows]


# ----------------------------------------------------------------------------------------------------- order of dims


def _moved(name: str) -> Any:
    def kernel(x: Array, source: int | tuple[int, ...], destination: int | tuple[int, ...]) -> Array:
        start = check.axes(name, source, x.ndim, "source")
        goal = check.axes(name, destination, x.ndim, "destination")
        if len(start or ()) != len(goal or ()):
            raise SporaxValueError(
                f"For '{name}', 'source' and 'destination' must name as many dims as each other, but got {source}, {destination}."
            )
        return jnp.moveaxis(x, start or (), goal or ())

    kernel.__name__, kernel.__doc__ = (
        name,
        "Dims `source` moved to the places `destination`; the others keep their order.",
    )
    return operator(function=name, method=name)(kernel)


_moved("movedim")
_moved("moveaxis")


@operator(function="swapdims", method="swapdims")
def swapdims(input: Array, dim0: int, dim1: int) -> Array:
    """Two dimensions exchanged."""
    return jnp.swapaxes(
        input, check.axis("swapdims", dim0, input.ndim, "dim0"), check.axis("swapdims", dim1, input.ndim, "dim1")
    )


@operator(function="t", method="t", mint="t")
def t(input: Array) -> Array:
    """A matrix transposed; vectors and scalars stay as they are."""
    check.rank("t", (0, 1, 2), input=input)
    return input.T


@operator(function="ravel", method="ravel", mint="ravel")
def ravel(input: Array) -> Array:
    """All elements as a vector."""
    return jnp.reshape(input, (-1,))


@operator(function="view_as", method="view_as, reshape_as")
def view_as(input: Array, other: Array) -> Array:
    """The elements in the shape of `other`."""
    return jnp.reshape(input, other.shape)


@operator(function="type_as", method="type_as")
def type_as(input: Array, other: Array) -> Array:
    """The elements in the dtype of `other`."""
    return input.astype(other.dtype)


@operator(function="expand", composed=True)
def expand(input_x: Any, size: Any) -> Any:
    """The tensor repeated to the shape `size`; -1 keeps the size of a dimension."""
    return input_x.broadcast_to(tuple(size.tolist()) if isinstance(size, Tensor) else tuple(size))


@operator(function="", method="expand", composed=True)
def _expand_method(input: Any, *size: Any) -> Any:
    """The tensor repeated to a shape; -1 keeps the size of a dimension."""
    return expand(input, size[0] if len(size) == 1 and isinstance(size[0], tuple | list | Tensor) else size)


# ---------------------------------------------------------------------------------------------------------- diagonals


@operator("Diag", function="diag")
def diag(input: Array) -> Array:
    """A tensor of twice as many dims with `input` on its diagonal, zeros elsewhere."""
    check.tensor("Diag", input=input)
    return jnp.diag(input.reshape(-1)).reshape(input.shape * 2)


@operator("DiagPart", function="")
def _diag_part(input_x: Array) -> Array:
    """The diagonal of a tensor whose shape is one shape twice; undoes `diag`."""
    half = input_x.ndim // 2
    if input_x.ndim % 2 or input_x.shape[:half] != input_x.shape[half:]:
        raise SporaxValueError(
            f"For 'DiagPart', the shape of 'input_x' must be one shape twice, but got {input_x.shape}."
        )
    size = math.prod(input_x.shape[:half])
    return jnp.diagonal(input_x.reshape(size, size)).reshape(input_x.shape[:half])


@operator(function="", method="diag", mint="diag")
def _mint_diag(input: Array, diagonal: int = 0) -> Array:
    """A matrix with a vector as diagonal, or the diagonal of a matrix."""
    check.rank("diag", (1, 2), input=input)
    return jnp.diag(input, diagonal)


@operator(function="diagflat", method="diagflat")
def diagflat(input: Array, offset: int = 0) -> Array:
    """A matrix with the flattened input as diagonal."""
    return jnp.diagflat(input, offset)


@operator(function="diagonal", method="diagonal(axis1=dim1, axis2=dim2)")
def diagonal(input: Array, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Array:
    """The diagonals in the plane of two dims, along a last dimension of their own."""
    return jnp.diagonal(
        input,
        offset,
        check.axis("diagonal", dim1, input.ndim, "dim1"),
        check.axis("diagonal", dim2, input.ndim, "dim2"),
    )


@operator(function="diag_embed")
def diag_embed(input: Array, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Array:
    """Matrices with the vectors of the last dim as diagonals, in the plane of the new dims `dim1` and `dim2`."""
    size = input.shape[-1] + abs(offset)
    steps = np.arange(input.shape[-1])
    matrices = jnp.zeros((*input.shape[:-1], size, size), input.dtype)
    matrices = matrices.at[..., steps + max(-offset, 0), steps + max(offset, 0)].set(input)
    first = check.axis("diag_embed", dim1, input.ndim + 1, "dim1")
    second = check.axis("diag_embed", dim2, input.ndim + 1, "dim2")
    if first == second:
        raise SporaxValueError(f"For 'diag_embed', 'dim1' and 'dim2' must differ, but got {dim1} and {dim2}.")
    return jnp.moveaxis(matrices, (-2, -1), (first, second))


# ----------------------------------------------------------------------------------------------------- facts as values


def _fact(name: str, compute: Callable[[Any], Any], doc: str) -> None:
    def kernel(x: Any) -> Any:
        if not isinstance(x, Tensor):
            raise SporaxTypeError(f"For '{name}', the input must be a Tensor, but got {type(x).__name__}.")
        return compute(x)

    kernel.__name__, kernel.__doc__ = f"_{name.lower()}", doc
    operator(f"{name}()", function="", composed=True)(kernel)


_fact("Shape", lambda x: x.shape, "Sizes of the dimensions.")
_fact("Rank", lambda x: x.ndim, "Number of dimensions.")
_fact("Size", lambda x: x.size, "Number of elements.")
_fact("DType", lambda x: x.dtype, "Element type.")


@operator(function="dtype", composed=True)
def dtype(x: Any) -> DType:
    """Element type."""
    return x.dtype


@operator(function="numel", composed=True)
def numel(input: Any) -> int:
    """Number of elements."""
    return input.size


@operator(function="is_tensor", composed=True)
def is_tensor(obj: Any) -> bool:
    """Whether `obj` is a Tensor."""
    return isinstance(obj, Tensor)


@operator(function="sequence_mask", composed=True)
def sequence_mask(lengths: Any, maxlen: int | None = None) -> Any:
    """For each length a row of `maxlen` bools, the first `length` of which are true; the longest length by default."""
    size = int(known("sequence_mask", "lengths", lengths).max()) if maxlen is None else int(maxlen)
    return _mask_rows(lengths, size)


@operator(function="")
def _mask_rows(lengths: Array, size: int) -> Array:
    """Rows of bools, the first ones of which are true."""
    return jnp.arange(size) < lengths[..., None]
