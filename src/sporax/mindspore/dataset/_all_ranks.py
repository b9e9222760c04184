"""A pipeline read for all ranks, where one process acts for them: their shares of the rows, and their patches of images.

Shares. Scripts give each rank a share: ``num_shards=get_group_size(), shard_id=get_rank()``. A process that acts for several
ranks reads the first one's. So its pipeline is read once for each rank, and a batch holds the batches of all ranks, one
after another: when a step divides it between the ranks, each has the rows that a process of its own would have read.

Patches. Scripts that divide images give each rank its own patch: `map` with `SlicePatches`, then `project` to the patch that
the rank's number picks. A process that drives all devices is rank 0 and picks the first; but it feeds inputs whole. So what
follows `project` runs once for each patch, and the results are put together as the step's `dataset_strategy` will divide them:
every device gets what a rank of its own would have read. What comes before `project` (reading files, decoding, dividing) runs
once for all patches (`Readings`).
"""

from __future__ import annotations

import copy
import functools
import itertools
import math
import threading
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from sporax.base.errors import SporaxRuntimeError
from sporax.mindspore.dataset._described import Described
from sporax.mindspore.dataset._random import Pass
from sporax.mindspore.dataset._rows import Array, Block, Row, block_of
from sporax.mindspore.dataset._streams import ENDLESS, Flow, Indices, Stream, Table, all_tables, row_at, rows_of
from sporax.runtime.session import SESSION

Build = Callable[[Pass], Stream]
"""Makes the stream of a pass; worker processes receive it."""

Combine = Callable[[Sequence[Row]], Row]
"""One row of the rows of several streams."""


def for_all_ranks(dataset: Described) -> Build:
    """The pipeline as this process reads it, which may have to read for all ranks. The present settings count."""
    build: Build = dataset._stream
    columns, count = dataset._column_names, dataset._num_shares() if SESSION.by_rank() else 0
    if count:
        batched = any(step._makes_batches for step in dataset._walk())
        combine = functools.partial(_concatenated, columns) if batched else None
        build = functools.partial(_of_ranks, build, count, combine)
    picked = next((step._picked_patches for step in dataset._walk() if step._picked_patches), ())
    if not picked:
        return build
    from sporax.mindspore.parallel import auto_parallel  # here: it loads networks, which pipelines do not need

    # Read when reading starts, since the context may be set after the pipeline is described.
    of_inputs = [auto_parallel.slices_of_global_input(number) for number in range(len(columns))]
    # A column is put together only where the step's sharding has as many slices as there are patches.
    num_slices = {
        name: counts if counts and math.prod(counts) == len(picked) else None
        for name, counts in zip(columns, of_inputs, strict=True)
    }
    if not any(num_slices.values()):
        return build
    return functools.partial(_of_patches, build, len(picked), functools.partial(_joined, num_slices))


def _of_ranks(build: Build, num_ranks: int, combine: Combine | None, run: Pass) -> Stream:
    """A pipeline read once for each rank."""
    return combined([build(run.with_rank(rank)) for rank in range(num_ranks)], combine)


def _of_patches(build: Build, num_patches: int, combine: Combine, run: Pass) -> Stream:
    """A pipeline for each patch, their columns put together where a step shards them into as many slices."""
    readings = Readings(num_patches)
    return combined([build(run.with_patch(number, readings)) for number in range(num_patches)], combine)


def combined(streams: Sequence[Stream], combine: Combine | None) -> Stream:
    """Several streams as one: a row of each put together, or in turn where nothing combines them."""
    if tables := all_tables(streams):
        return _Combined(tables, combine)

    def rows() -> Iterator[Row]:
        for group in itertools.zip_longest(*map(rows_of, streams)):
            present = [row for row in group if row is not None]
            if len(present) < len(group):
                raise SporaxRuntimeError(
                    f"For 'num_shards', the shares of the {len(group)} ranks that this process acts for must have equally many "
                    "rows or batches, but some have ended before others."
                )
            yield from present if combine is None else [combine(present)]

    return Flow(rows)


class _Combined(Table):
    """Several tables as one; see `combined`."""

    def __init__(self, parts: Sequence[Table], combine: Combine | None) -> None:
        self._parts = parts
        self._combine = combine
        self.size = min(parts[0].size * (len(parts) if combine is None else 1), ENDLESS)

    def gather(self, indices: Indices) -> Block:
        return block_of([self._row(int(index)) for index in indices])

    def _row(self, index: int) -> Row:
        if self._combine is not None:
            return self._combine([row_at(part, index) for part in self._parts])
        place, part = divmod(index, len(self._parts))
        return row_at(self._parts[part], place)


def _concatenated(columns: Sequence[str], batches: Sequence[Row]) -> Row:
    return {name: np.concatenate([batch[name] for batch in batches]) for name in columns}


def _joined(num_slices: dict[str, tuple[int, ...] | None], rows: Sequence[Row]) -> Row:
    # Columns that are not sharded are equal in all passes.
    return {
        name: rows[0][name] if counts is None else together([row[name] for row in rows], counts)
        for name, counts in num_slices.items()
    }


class Readings:
    """Streams that several passes over one pipeline have in common, each read once.

    Args:
        count: how many passes there are; all of them read every stream.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._streams: dict[tuple[int, int, int], Stream] = {}

    def stream(self, dataset: Described, run: Pass) -> Stream:
        """What `dataset` gives in this pass, for one of the passes."""
        key = (id(dataset), run.index, run.epoch)
        if key not in self._streams:
            stream = dataset._stream(run)
            self._streams[key] = (
                _Remembered(stream) if isinstance(stream, Table) else _Divided(stream, self._count).flow()
            )
        return self._streams[key]


class _Remembered(Table):
    """A table that knows what each thread has requested last: the next pass will request the same."""

    def __init__(self, parent: Table) -> None:
        self._parent = parent
        self._last: dict[int, tuple[bytes, Block]] = {}
        self.size = parent.size

    def gather(self, indices: Indices) -> Block:
        key, thread = indices.tobytes(), threading.get_ident()
        known = self._last.get(thread)
        if known is None or known[0] != key:
            known = self._last[thread] = (key, self._parent.gather(indices))
        # A copy: what follows may change its rows in place.
        return copy.deepcopy(known[1])

    def origin(self, index: int) -> str:
        return self._parent.origin(index)


class _Divided:
    """A flow whose rows go to several readers, which are never far from each other."""

    def __init__(self, flow: Flow, count: int) -> None:
        self._flow = flow
        self._count = count
        self._left: list[Iterator[Row]] = []

    def flow(self) -> Flow:
        """The rows for the next reader, each time that it is started."""
        return Flow(self._next)

    def _next(self) -> Iterator[Row]:
        # Readers start in turn, so the first of them after all have started begins another reading.
        if not self._left:
            self._left = list(itertools.tee(self._flow.rows(), self._count))
        return map(copy.deepcopy, self._left.pop(0))


def together(patches: Sequence[Array], num_slices: Sequence[int]) -> Array:
    """One array of patches in row-major order.

    Args:
        patches: as many as the product of `num_slices`, all of one shape.
        num_slices: number of patches along each dimension.

    Example:
        >>> together([np.zeros((2, 1)), np.ones((2, 1))], (1, 2)).tolist()
        [[0.0, 1.0], [0.0, 1.0]]
    """
    parts = list(patches)
    # From the last dimension to the first, since patches come in row-major order.
    for dim in reversed(range(len(num_slices))):
        if num_slices[dim] > 1:
            parts = [
                np.concatenate(parts[at : at + num_slices[dim]], axis=dim)
                for at in range(0, len(parts), num_slices[dim])
            ]
    return parts[0]
