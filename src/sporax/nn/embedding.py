"""Lookup of rows in tables that may be cut over devices or kept on the host."""

from __future__ import annotations

from typing import Any

from sporax import context, ops
from sporax.common import dtype as dtypes
from sporax.common.dtype import DType
from sporax.common.initializer import initializer
from sporax.common.parameter import Parameter
from sporax.common.tensor import Tensor
from sporax.ir.errors import SporaxTypeError, SporaxValueError
from sporax.nn import _arguments as argument
from sporax.nn.cell import Cell

_SLICE_MODES = ("field_slice", "table_row_slice", "table_column_slice", "batch_slice")


class EmbeddingLookup(Cell):
    """Rows of a table, picked by integer ids; an id outside the table gives zeros.

    Args:
        vocab_size: rows of the table.
        embedding_size: length of a row.
        param_init: initializer of the table.
        target: ``"CPU"``: the table and its lookup belong on the host; ``"DEVICE"``: on the accelerator. Kept as a mark.
        slice_mode: how semi-automatic and automatic parallelism cut table and ids: ``"batch_slice"`` (ids by batch),
            ``"table_row_slice"``, ``"table_column_slice"``, or ``"field_slice"`` (rows by `manual_shapes`, ids by field).
        manual_shapes: rows of each part of the table; only with ``"field_slice"``.
        max_norm: rows with a larger Euclidean norm are shortened to it.
        sparse: optimizers that know lazy rows (`LazyAdam`, `FTRL`, …) leave rows alone that were not looked up. True where
            `target` is ``"CPU"``.
        dtype: element type of the table.

    Raises:
        SporaxTypeError, SporaxValueError: settings that do not fit together.
    """

    BATCH_SLICE = "batch_slice"
    FIELD_SLICE = "field_slice"
    TABLE_ROW_SLICE = "table_row_slice"
    TABLE_COLUMN_SLICE = "table_column_slice"

    def __init__(
        self,
        vocab_size: int,
        embedding_size: int,
        param_init: Any = "normal",
        target: str = "CPU",
        slice_mode: str = "batch_slice",
        manual_shapes: Any = None,
        max_norm: float | None = None,
        sparse: bool = True,
        dtype: DType = dtypes.float32,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        self.vocab_size = argument.positive_int(name, "vocab_size", vocab_size)
        self.embedding_size = argument.positive_int(name, "embedding_size", embedding_size)
        self.target = argument.one_of(name, "target", target, ("CPU", "DEVICE"))
        self.sparse = argument.boolean(name, "sparse", sparse)
        if target == "CPU" and not sparse:
            raise SporaxValueError(f"For '{name}', 'sparse' must be True when 'target' is 'CPU', but got {sparse}.")
        self.slice_mode = argument.one_of(name, "slice_mode", slice_mode, _SLICE_MODES)
        if max_norm is not None and argument.number(name, "max_norm", max_norm) <= 0:
            raise SporaxValueError(f"For '{name}', 'max_norm' must be positive, but got {max_norm}.")
        self.max_norm = max_norm
        table = initializer(param_init, (vocab_size, embedding_size), dtype)
        self.embedding_table = Parameter(table, name="embedding_table")
        self.embedding_table.unique = sparse
        self.embeddinglookup = ops.EmbeddingLookup()
        if target == "CPU":
            self.embeddinglookup.set_device("CPU")
        self._mark_slices(_checked_shapes(name, slice_mode, manual_shapes))

    def _mark_slices(self, manual_shapes: tuple[int, ...] | None) -> None:
        """Tell plans how the lookup is cut."""
        config = context.snapshot()
        if not config.in_global_view:
            return
        parts = config.device_num
        cuts = {
            "field_slice": ((parts, 1), (1, parts)),
            "table_row_slice": ((parts, 1), (1, 1)),
            "table_column_slice": ((1, parts), (1, 1)),
            "batch_slice": ((1, 1), (parts, 1)),
        }
        self.embeddinglookup.shard(cuts[self.slice_mode])
        if manual_shapes is not None:
            self.embeddinglookup.add_prim_attr("manual_split", manual_shapes)

    def construct(self, indices: Tensor) -> Tensor:
        """`indices`: integers of any shape; gives that shape with embedding_size added."""
        rows = self.embeddinglookup(self.embedding_table, indices, 0)
        return rows if self.max_norm is None else _limited(rows, self.max_norm)

    def extend_repr(self) -> str:
        """Sizes and place."""
        return f"vocab_size={self.vocab_size}, embedding_size={self.embedding_size}, target={self.target}"


def _checked_shapes(name: str, slice_mode: str, manual_shapes: Any) -> tuple[int, ...] | None:
    if slice_mode != "field_slice" or not context.snapshot().in_global_view:
        return None
    if not manual_shapes:
        raise SporaxValueError(
            f"For '{name}', the slice_mode 'field_slice' needs 'manual_shapes', but got {manual_shapes!r}."
        )
    if not isinstance(manual_shapes, tuple):
        raise SporaxTypeError(f"For '{name}', 'manual_shapes' must be a tuple, but got {type(manual_shapes).__name__}.")
    return tuple(argument.positive_int(name, "manual_shapes", rows) for rows in manual_shapes)


def _limited(rows: Tensor, max_norm: float) -> Tensor:
    """`rows` with norms of at most `max_norm`."""
    norms = ops.sqrt(ops.reduce_sum(ops.square(rows), -1).expand_dims(-1))
    return rows * (max_norm / ops.maximum(norms, max_norm))


class MultiFieldEmbeddingLookup(EmbeddingLookup):
    """Weighted rows of a table, merged field by field: (N, ids) to (N, field_size, embedding_size).

    Args:
        vocab_size, embedding_size: of the table.
        field_size: number of fields.
        param_init, target, slice_mode, max_norm, sparse, dtype: as in `EmbeddingLookup`; in semi-automatic and automatic
            parallelism `slice_mode` is not ``"field_slice"``.
        feature_num_list: rows of each part of the table, as `manual_shapes` there.
        operator: ``"SUM"``, ``"MEAN"`` (by the sum of absolute weights) or ``"MAX"`` (over ids with weights other than 0).
    """

    OPERATOR_SUM = "SUM"
    OPERATOR_MEAN = "MEAN"
    OPERATOR_MAX = "MAX"

    def __init__(
        self,
        vocab_size: int,
        embedding_size: int,
        field_size: int,
        param_init: Any = "normal",
        target: str = "CPU",
        slice_mode: str = "batch_slice",
        feature_num_list: Any = None,
        max_norm: float | None = None,
        sparse: bool = True,
        operator: str = "SUM",
        dtype: DType = dtypes.float32,
    ) -> None:
        super().__init__(
            vocab_size, embedding_size, param_init, target, slice_mode, feature_num_list, max_norm, sparse, dtype
        )
        name = type(self).__name__
        self.field_size = argument.positive_int(name, "field_size", field_size)
        self.operator = argument.one_of(name, "operator", operator, ("SUM", "MEAN", "MAX"))
        config = context.snapshot()
        if slice_mode == "field_slice" and config.in_global_view:
            raise SporaxValueError(f"For '{name}', 'slice_mode' must not be 'field_slice' in {config.parallel_mode}.")

    def construct(self, input_indices: Tensor, input_values: Tensor, field_ids: Tensor) -> Tensor:
        """`input_indices`, `input_values` (weights) and `field_ids`: (N, ids)."""
        shape = input_indices.shape
        if len(shape) != 2 or input_values.shape != shape or field_ids.shape != shape:
            raise SporaxValueError(
                "For 'MultiFieldEmbeddingLookup', the three inputs must have one shape (N, ids), "
                f"but got {shape}, {input_values.shape} and {field_ids.shape}."
            )
        rows = super().construct(input_indices)
        weights = input_values.expand_dims(-1).astype(rows.dtype)
        # (N, fields, ids, 1): which id belongs to which field.
        members = (field_ids.expand_dims(1) == ops.arange(self.field_size).reshape((1, -1, 1))).expand_dims(-1)
        weighted = (rows * weights).expand_dims(1)
        if self.operator == "MAX":
            counts = ops.logical_and(members, (weights != 0).expand_dims(1))
            lowest = ops.where(counts, weighted, ops.zeros_like(weighted) - 3.402823466e38)
            return ops.reduce_max(lowest, 2) * ops.reduce_any(counts, 2).astype(rows.dtype)
        total = ops.reduce_sum(ops.where(members, weighted, ops.zeros_like(weighted)), 2)
        if self.operator == "SUM":
            return total
        share = ops.reduce_sum(members.astype(rows.dtype) * ops.abs(weights).expand_dims(1), 2)
        return ops.where(share == 0, total * 0, total / ops.where(share == 0, share + 1, share))
