"""Lookup of rows in tables that may be sharded over devices or kept on the host."""

from __future__ import annotations

import warnings
from typing import Any

import jax.numpy as jnp
import numpy as np

from sporax.base.errors import For, SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.mindspore import context, ops
from sporax.mindspore._declared import setting
from sporax.mindspore.common import DType, Parameter, Tensor, dtypes, wrap
from sporax.mindspore.common.initializer import Initializer, by_name, initializer
from sporax.mindspore.common.seed import get_seed
from sporax.mindspore.nn import _arguments as argument
from sporax.mindspore.nn.cell import Layer
from sporax.ps.worker import row_cache
from sporax.runtime.ranks import server_exchange

_SLICE_MODES = ("field_slice", "table_row_slice", "table_column_slice", "batch_slice")
_RANK_OF_IDS = 2
"""Dimensions of ids (batch, fields), until a call says otherwise."""


class EmbeddingLookup(Layer):
    """Rows of a table, picked by integer ids; an id outside the table gives zeros.

    Args:
        target: ``"CPU"``: the table and its lookup belong on the host; ``"DEVICE"``: on the accelerator. Kept as a mark.
        slice_mode: how semi-automatic and automatic parallelism shard table and ids: ``"batch_slice"`` (ids by batch),
            ``"table_row_slice"``, ``"table_column_slice"``, or ``"field_slice"`` (rows by `manual_shapes`, ids by field).
        sparse: optimizers that know lazy rows (`LazyAdam`, `FTRL`, …) leave rows alone that were not looked up. True where
            `target` is ``"CPU"``.
        vocab_cache_size: with parameter servers and `target` ``"DEVICE"``: servers keep the table, the worker this many
            rows of it; at least the different ids of a step. 0: the table is a Parameter like others. MindSpore allows
            several workers in (semi-)automatic parallelism only, here every mode may have them.

    Raises:
        SporaxTypeError, SporaxValueError: settings that do not fit together.
    """

    vocab_size: int = setting(argument.positive_int, "rows of the table.")
    embedding_size: int = setting(argument.positive_int, "length of a row.")
    param_init: Any = setting(None, "initializer of the table.", default="normal", attribute=False)
    target: str = setting(argument.one_of, default="CPU", allowed=("CPU", "DEVICE"))
    slice_mode: str = setting(argument.one_of, default="batch_slice", allowed=_SLICE_MODES)
    manual_shapes: Any = setting(
        None, 'rows of each part of the table; only with ``"field_slice"``.', default=None, attribute=False
    )
    max_norm: float | None = setting(None, "rows with a larger Euclidean norm are shortened to it.", default=None)
    sparse: bool = setting(argument.boolean, default=True)
    vocab_cache_size: int = setting(default=0)
    dtype: DType = setting(None, "element type of the table.", default=dtypes.float32, attribute=False)

    _in_repr = "vocab_size embedding_size target"
    BATCH_SLICE = "batch_slice"
    FIELD_SLICE = "field_slice"
    TABLE_ROW_SLICE = "table_row_slice"
    TABLE_COLUMN_SLICE = "table_column_slice"

    def _prepare(self, param_init: object, manual_shapes: Any, dtype: DType) -> None:
        name = type(self).__name__
        # A lookup on the host is always sparse in MindSpore.
        if self.target == "CPU" and not self.sparse:
            raise For(name).error(f"'sparse' must be True when 'target' is 'CPU', but got {self.sparse}")
        if self.max_norm is not None and argument.number(name, "max_norm", self.max_norm) <= 0:
            raise SporaxValueError(f"For '{name}', 'max_norm' must be positive, but got {self.max_norm}.")
        self.vocab_cache_size = _checked_cache(name, self.vocab_cache_size, self.target)
        # With a cache the Parameter holds only the rows of the cache.
        rows, size = self.vocab_cache_size or self.vocab_size, self.embedding_size
        self.embedding_table = Parameter(initializer(param_init, (rows, size), dtype), name="embedding_table")
        # By this mark optimizers know that rows without a gradient may stay as they are.
        setattr(self.embedding_table, "unique", self.sparse)  # noqa: B010  # shadows the method of Tensors, as in MindSpore
        if context.ps_snapshot().enable_ps:
            first_rows = _first_rows(name, param_init) if self.vocab_cache_size or param_init == "normal" else {}
            self.embedding_table.server_rows = row_cache.RowCache(
                "embedding_table", size, rows, num_rows=self.vocab_size, seed=get_seed() or 0, **first_rows
            )
            self.embedding_table.is_param_ps = self.embedding_table.cache_enable = self.vocab_cache_size > 0
        self.embeddinglookup = ops.EmbeddingLookup()
        if self.target == "CPU":
            self.embeddinglookup.set_device("CPU")
            self.embedding_table.on_host = True
        self._manual_shapes = manual_shapes
        self._own_strategy: Any = None
        # Said here where the settings are known already; else when a step is compiled.
        self._mark_slices(_RANK_OF_IDS)

    def _mark_slices(self, rank: int) -> None:
        """Set for plans how the lookup of ids of so many dimensions is sharded, by the parallel settings as they are now."""
        # Only a plan shards lookups.
        config = context.snapshot()
        if not config.in_global_view:
            return
        manual_shapes = _checked_shapes(type(self).__name__, self.slice_mode, self._manual_shapes)
        present = self.embeddinglookup.attrs.get("in_strategy")
        # What the user has said of the operator itself stays.
        if present is not None and present != self._own_strategy:
            return
        # Inside a pipeline a lookup runs on the devices of its stage.
        strategy = _strategy(self.slice_mode, config.num_stage_devices, rank)
        if present != strategy:
            object.__setattr__(self, "_own_strategy", strategy)
            self.embeddinglookup.shard(strategy)
        if manual_shapes is not None and self.embeddinglookup.attrs.get("manual_split") != manual_shapes:
            self.embeddinglookup.add_prim_attr("manual_split", manual_shapes)

    def construct(self, indices: Tensor) -> Tensor:
        """`indices`: integers of any shape; gives that shape with embedding_size added."""
        self._mark_slices(indices.ndim)
        # An id outside of the table gives zeros, as MindSpore's operator does.
        rows = self._served(indices) if self._is_served else self.embeddinglookup(self.embedding_table, indices, 0)
        return rows if self.max_norm is None else _limited(rows, self.max_norm)

    @property
    def _is_served(self) -> bool:
        """Whether rows are looked up on parameter servers."""
        table = self.embedding_table
        return table.cache_enable or (table.is_param_ps and table.init_in_server)

    def _served(self, indices: Tensor) -> Tensor:
        """Rows of a table that servers keep; an id outside the table gives zeros."""
        servers = server_exchange.connection()
        if servers is None or self.embedding_table.server_rows is None or self.embedding_table.server_rows.key < 0:
            raise SporaxRuntimeError(
                "For 'EmbeddingLookup', a table on parameter servers must belong to an optimizer before it is looked up: "
                "call init(), then make the optimizer with its parameter."
            )
        context.check_with_servers()
        ids = indices.array
        # Ids outside are looked up as 0, and their rows dropped.
        inside = (ids >= 0) & (ids < self.vocab_size)
        rows = server_exchange.lookup_in_program(
            servers, self.embedding_table.server_rows, self.embedding_table.array, jnp.where(inside, ids, 0)
        )
        return wrap(jnp.where(inside[..., None], rows, 0))

    def set_row_policy(
        self, *, admit_count: int = 0, admit_probability: float = 1.0, max_rows: int = 0, ttl: int = 0
    ) -> None:
        """Let servers keep the rows of some ids only; an addition of Sporax. Call it before the table's optimizer is made.

        An id without a row reads as the first value of its row, and its gradients are dropped.

        Args:
            admit_count: steps that look up an id before it gets a row; 0 or 1 for the first.
            admit_probability: share of ids that may get a row, in (0, 1].
            max_rows: about so many rows at most; those go whose update is longest ago. 0 for no limit.
            ttl: updates of a slot, one a step, after which a row without an update goes; 0 for never.

        Raises:
            SporaxRuntimeError: the table is not on parameter servers, or belongs to an optimizer.
            SporaxTypeError, SporaxValueError: a setting is no int >= 0, or the share outside of its range.
        """
        name = "EmbeddingLookup.set_row_policy"
        rows = self.embedding_table.server_rows if self._is_served else None
        if rows is None or rows.key >= 0:
            raise For(name).state_error("the table must be on parameter servers, and have no optimizer yet")
        counts = {"admit_count": admit_count, "max_rows": max_rows, "ttl": ttl}
        for setting_name, count in counts.items():
            For(name).typed(setting_name, count, "an int", int, takes_bool=False)
            For(name).refuse(count < 0, f"'{setting_name}' must be >= 0", count)
        share = argument.within(name, "admit_probability", admit_probability, 0, 1, "(]")
        rows.settings.update(counts, admit_probability=share)

    def prefetch(self, indices: Any) -> None:
        """Request from the servers the rows that the next step will look up, while the device still works on this one.

        Args:
            indices: ids of the next batch, a Tensor or numpy array.

        Raises:
            SporaxRuntimeError: the table is not on parameter servers.
        """
        servers = server_exchange.connection()
        if servers is None or not self._is_served or self.embedding_table.server_rows is None:
            raise For("EmbeddingLookup.prefetch").state_error("the table must be on parameter servers, but is not")
        ids = np.asarray(indices.asnumpy() if isinstance(indices, Tensor) else indices, np.int64)
        # Clipped: rows outside are never used.
        self.embedding_table.server_rows.prefetch(servers, np.clip(ids, 0, self.vocab_size - 1))


def _checked_cache(name: str, vocab_cache_size: Any, target: str) -> int:
    """`vocab_cache_size`, or 0 with a warning where it has no effect."""
    For(name).typed("vocab_cache_size", vocab_cache_size, "an int", int, takes_bool=False)
    For(name).refuse(vocab_cache_size < 0, "'vocab_cache_size' must be >= 0", vocab_cache_size)
    if vocab_cache_size and not (context.ps_snapshot().enable_ps and target == "DEVICE"):
        warnings.warn(
            f"For '{name}', 'vocab_cache_size' needs set_ps_context(enable_ps=True) and target 'DEVICE'; it is ignored.",
            stacklevel=4,
        )
        return 0
    return vocab_cache_size


def _first_rows(name: str, param_init: Any) -> dict[str, Any]:
    """How servers make first rows: the same distribution, from (seed, table, id)."""
    if isinstance(param_init, int | float):
        return {"distribution": "constant", "sigma": float(param_init)}
    recipe = by_name(param_init) if isinstance(param_init, str) else param_init
    settings = vars(recipe) if isinstance(recipe, Initializer) else {}
    kind = type(recipe).__name__
    # Servers draw rows when they are first requested, so they must know the distribution.
    if kind == "Normal" and settings["mean"] == 0:
        return {"distribution": "normal", "sigma": float(settings["sigma"])}
    if kind == "Uniform":
        return {"distribution": "uniform", "sigma": float(settings["scale"])}
    if kind in ("Zero", "One", "Constant"):
        return {"distribution": "constant", "sigma": float({"Zero": 0, "One": 1}.get(kind, settings.get("value", 0)))}
    raise For(name).error(
        f"'param_init' of a table on parameter servers must be normal (mean 0), uniform or constant, but got {param_init!r}"
    )


def _strategy(slice_mode: str, parts: int, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """How table and ids are sharded over so many devices."""
    unsharded = (1,) * rank
    if slice_mode == "field_slice":
        # Fields are the second dimension; of ids without one the operator says that they do not fit.
        return (parts, 1), (1, parts, *unsharded[2:])
    if slice_mode == "batch_slice":
        return (1, 1), (parts, *unsharded[1:]) if rank else ()
    return ((parts, 1) if slice_mode == "table_row_slice" else (1, parts)), unsharded


def _checked_shapes(name: str, slice_mode: str, manual_shapes: Any) -> tuple[int, ...] | None:
    if slice_mode != "field_slice":
        return None
    For(name).refuse(not manual_shapes, "the slice_mode 'field_slice' needs 'manual_shapes'", manual_shapes, show=repr)
    For(name).typed("manual_shapes", manual_shapes, "a tuple", tuple)
    return tuple(argument.positive_int(name, "manual_shapes", rows) for rows in manual_shapes)


def _limited(rows: Tensor, max_norm: float) -> Tensor:
    """`rows` with norms of at most `max_norm`."""
    norms = ops.sqrt(ops.reduce_sum(ops.square(rows), -1).expand_dims(-1))
    # Shorter rows are divided by the limit, and keep their length.
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

    def _mark_slices(self, rank: int) -> None:
        config = context.snapshot()
        if self.slice_mode == "field_slice" and config.in_global_view:
            raise For(type(self).__name__).error(f"'slice_mode' must not be 'field_slice' in {config.parallel_mode}")
        super()._mark_slices(rank)

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
            vocab_size, embedding_size, param_init, target, slice_mode, feature_num_list, max_norm, sparse, dtype=dtype
        )
        name = type(self).__name__
        self.field_size = argument.positive_int(name, "field_size", field_size)
        self.operator = argument.one_of(name, "operator", operator, ("SUM", "MEAN", "MAX"))

    def construct(self, input_indices: Tensor, input_values: Tensor, field_ids: Tensor) -> Tensor:
        """`input_indices`, `input_values` (weights) and `field_ids`: (N, ids).

        Raises:
            SporaxValueError: other shapes.
            SporaxTypeError: indices other than int32 and int64, values other than float32, fields other than int32.
        """
        for name, value, allowed in (
            ("input_indices", input_indices, (dtypes.int32, dtypes.int64)),
            ("input_values", input_values, (dtypes.float32,)),
            ("field_ids", field_ids, (dtypes.int32,)),
        ):
            For("MultiFieldEmbeddingLookup").one_of(f"the dtype of {name}", value.dtype, allowed, kind=SporaxTypeError)
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
            # The least float32, so that ids of other fields never win.
            lowest = ops.where(counts, weighted, ops.zeros_like(weighted) - 3.402823466e38)
            return ops.reduce_max(lowest, 2) * ops.reduce_any(counts, 2).astype(rows.dtype)
        total = ops.reduce_sum(ops.where(members, weighted, ops.zeros_like(weighted)), 2)
        if self.operator == "SUM":
            return total
        share = ops.reduce_sum(members.astype(rows.dtype) * ops.abs(weights).expand_dims(1), 2)
        # A field without weights: 0 instead of a division by 0.
        return ops.where(share == 0, total * 0, total / ops.where(share == 0, share + 1, share))
