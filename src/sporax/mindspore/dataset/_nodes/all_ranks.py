"""A pipeline read for all ranks, where one process acts for them: their shares of the rows, and their patches of images.

Shares. Scripts give each rank a share: ``num_shards=get_group_size(), shard_id=get_rank()``. A process that acts for several
ranks asks for the first one's. So its pipeline is read once for each rank, and a batch holds the batches of all ranks, one
after another: when a step divides it between the ranks, each has the rows that a process of its own would have read.

Patches. Scripts that divide images give each rank its own patch: `map` with `SlicePatches`, then `project` to the patch that
the rank's number picks. A process that drives all devices is rank 0 and picks the first; but it feeds inputs whole. So what
follows `project` runs once for each patch, and the results are put together as the step's `dataset_strategy` will divide them:
every device gets what a rank of its own would have read. What comes before `project` (reading files, decoding, dividing) runs
once for all patches (`Readings`).
"""

from __future__ import annotations

import copy
import itertools
import math
import threading
from collections.abc import Iterator, Sequence

import numpy as np

from sporax.base.errors import SporaxRuntimeError
from sporax.mindspore.dataset._nodes.node import Node, RowByRow, Select
from sporax.mindspore.dataset._random import Pass
from sporax.mindspore.dataset._rows import Array, Block, Row, row_of
from sporax.mindspore.dataset._streams import Flow, Indices, Stream, Table, rows_of
from sporax.mindspore.dataset.samplers import BuiltinSampler
from sporax.runtime.session import SESSION


class AllShares(Node):
    """A pipeline read once for each rank.

    Args:
        parent: the pipeline.
        num_ranks: how many ranks there are.
        batched: its rows are batches, which are put together; else the ranks' rows come in turn.
    """

    def __init__(self, parent: Node, num_ranks: int, batched: bool) -> None:
        super().__init__(parent.columns, [parent])
        self._num_ranks = num_ranks
        self._batched = batched

    def build(self, run: Pass) -> Stream:
        streams = [self.parent.build(run.with_rank(rank)) for rank in range(self._num_ranks)]
        tables = [stream for stream in streams if isinstance(stream, Table)]
        if len(tables) == len(streams):
            return _Shares(tables, self.columns, self._batched)
        return Flow(lambda: self._rows([rows_of(stream) for stream in streams]))

    def _rows(self, shares: Sequence[Iterator[Row]]) -> Iterator[Row]:
        for rows in itertools.zip_longest(*shares):
            present = [row for row in rows if row is not None]
            if len(present) < len(rows):
                raise SporaxRuntimeError(
                    f"For 'num_shards', the shares of the {len(rows)} ranks that this process acts for must have equally many "
                    "rows or batches, but some have ended before others."
                )
            if self._batched:
                yield _together(present, self.columns)
            else:
                yield from present

    def _count(self) -> int:
        return self.parent.num_rows() * (1 if self._batched else self._num_ranks)


class _Shares(Table):
    """The tables of all ranks as one."""

    def __init__(self, shares: Sequence[Table], columns: Sequence[str], batched: bool) -> None:
        self._shares = shares
        self._columns = columns
        self._batched = batched
        self.size = shares[0].size * (1 if batched else len(shares))

    def gather(self, indices: Indices) -> Block:
        rows = [self._row(int(index)) for index in indices]
        return {name: [row[name] for row in rows] for name in self._columns}

    def _row(self, index: int) -> Row:
        if self._batched:
            at = np.array([index])
            return _together([row_of(share.gather(at)) for share in self._shares], self._columns)
        place, rank = divmod(index, len(self._shares))
        return row_of(self._shares[rank].gather(np.array([place])))


def _together(batches: Sequence[Row], columns: Sequence[str]) -> Row:
    return {name: np.concatenate([batch[name] for batch in batches]) for name in columns}


def with_all_shares(node: Node) -> Node:
    """The pipeline as this process reads it, which may have to read the shares of all ranks."""
    count = num_shares(node) if SESSION.by_rank() else 0
    return node if not count else AllShares(node, count, any(below.makes_batches for below in node.walk()))


def num_shares(node: Node) -> int:
    """How many ranks' shares a pipeline reads for this process; 0 where it reads its own."""
    counts = {count for below in node.walk() if (count := _num_shares(getattr(below, "sampler", None)))}
    if len(counts) > 1:
        raise SporaxRuntimeError.must("num_shards", "all sources", "have equally many shares", sorted(counts))
    return counts.pop() if counts else 0


def _num_shares(sampler: BuiltinSampler | None) -> int:
    """How many ranks' shares a sampler reads, itself or by its child; 0 where it reads its own."""
    while sampler is not None:
        if sampler.num_shares:
            return sampler.num_shares
        sampler = sampler.child_sampler
    return 0


SliceCounts = tuple[int, ...] | None


class OnePatch(Select):
    """Columns chosen, among them one of the patches of an image; which one is said by the pass.

    Args:
        parent: the step before.
        columns: names of the columns that stay, the first patch among them.
        patches: names of all patches, in order.
    """

    def __init__(self, parent: Node, columns: Sequence[str], patches: Sequence[str]) -> None:
        super().__init__(parent, {name: name for name in columns})
        self.patches = tuple(patches)

    def build(self, run: Pass) -> Stream:
        # Under the name of the first patch, so that all passes have the same columns.
        taken = {self.patches[run.patch] if name == self.patches[0] else name: name for name in self.columns}
        return Select(_Together(self.parent), taken).build(run)


class _Together(RowByRow):
    """A step of which the passes for all patches share one reading."""

    def __init__(self, parent: Node) -> None:
        super().__init__(parent.columns, [parent])

    def build(self, run: Pass) -> Stream:
        return self.parent.build(run) if run.readings is None else run.readings.stream(self.parent, run)


class Readings:
    """Streams that several passes over one pipeline have in common, each read once.

    Args:
        count: how many passes there are; all of them read every stream.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._streams: dict[tuple[int, int, int], Stream] = {}

    def stream(self, node: Node, run: Pass) -> Stream:
        """What `node` gives in this pass, for one of the passes."""
        key = (id(node), run.index, run.epoch)
        if key not in self._streams:
            stream = node.build(run)
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


class AllPatches(RowByRow):
    """A pipeline for each patch, their columns put together where a step shards them into as many slices.

    Args:
        parent: the pipeline.
        num_slices: for each column the number of slices along each dimension; None for columns that are the same for all patches.
        num_patches: how many there are.
    """

    def __init__(self, parent: Node, num_slices: Sequence[SliceCounts], num_patches: int) -> None:
        super().__init__(parent.columns, [parent])
        self._num_slices = tuple(num_slices)
        self._num_patches = num_patches

    def build(self, run: Pass) -> Stream:
        readings = Readings(self._num_patches)
        streams = [self.parent.build(run.with_patch(number, readings)) for number in range(self._num_patches)]
        tables = [stream for stream in streams if isinstance(stream, Table)]
        if len(tables) == len(streams):
            return _Joined(tables, self.columns, self._num_slices)
        return Flow(
            lambda: (
                _row_of_all(rows, self.columns, self._num_slices) for rows in zip(*map(rows_of, streams), strict=True)
            )
        )


class _Joined(Table):
    """The tables of all patches as one."""

    def __init__(self, parts: Sequence[Table], columns: Sequence[str], num_slices: Sequence[SliceCounts]) -> None:
        self._parts = parts
        self._columns = columns
        self._num_slices = num_slices
        self.size = parts[0].size

    def gather(self, indices: Indices) -> Block:
        rows = [
            _row_of_all(
                [row_of(part.gather(indices[at : at + 1])) for part in self._parts], self._columns, self._num_slices
            )
            for at in range(len(indices))
        ]
        return {name: [row[name] for row in rows] for name in self._columns}


def _row_of_all(rows: Sequence[Row], columns: Sequence[str], num_slices: Sequence[SliceCounts]) -> Row:
    """One row of the rows of all patches."""
    return {
        # Columns that are not sharded are equal in all passes.
        name: rows[0][name] if counts is None else together([row[name] for row in rows], counts)
        for name, counts in zip(columns, num_slices, strict=True)
    }


def selected(parent: Node, columns: Sequence[str]) -> Select:
    """The step that keeps `columns`."""
    # Through the whole chain: `batch` or `map` may come between the split into patches and `project`.
    for node in parent.walk():
        if node.made_patches:
            chosen = [name for name in columns if name in node.made_patches]
            # Only a choice of the first patch alone stands for the rank's choice; another choice is meant as it is.
            if chosen == [node.made_patches[0]] and set(node.made_patches) <= set(parent.columns):
                return OnePatch(parent, columns, node.made_patches)
    return Select(parent, {name: name for name in columns})


def for_all_ranks(node: Node) -> Node:
    """The pipeline as this process reads it, which may have to read for all ranks. The present settings count."""
    node = with_all_shares(node)
    picked = next((below for below in node.walk() if isinstance(below, OnePatch)), None)
    if picked is None:
        return node
    from sporax.mindspore.parallel import auto_parallel  # here: it loads networks, which pipelines do not need

    # Asked when reading starts, since the context may be set after the pipeline is described.
    of_inputs = [auto_parallel.slices_of_global_input(number) for number in range(len(node.columns))]
    # A column is put together only where the step's sharding has as many slices as there are patches.
    num_slices = [counts if counts and math.prod(counts) == len(picked.patches) else None for counts in of_inputs]
    return AllPatches(node, num_slices, len(picked.patches)) if any(num_slices) else node


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
