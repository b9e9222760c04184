"""The shares of all ranks, where one process acts for all of them in data parallelism.

Scripts give each rank a share: ``num_shards=get_group_size(), shard_id=get_rank()``. A process that acts for several ranks asks
for the first one's. So its pipeline is read once for each rank, and a batch holds the batches of all ranks, one after
another: when a step divides it between the ranks, each has the rows that a process of its own would have read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

import numpy as np

from sporax.base.errors import SporaxRuntimeError
from sporax.mindspore.dataset._flows import Flow, Stream, rows_of
from sporax.mindspore.dataset._nodes import Node
from sporax.mindspore.dataset._random import Pass
from sporax.mindspore.dataset._rows import Block, Row, row_of
from sporax.mindspore.dataset._tables import Indices, Table
from sporax.mindspore.dataset.samplers import BuiltinSampler


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
        """See Node."""
        streams = [self.parent.build(run.with_rank(rank)) for rank in range(self._num_ranks)]
        tables = [stream for stream in streams if isinstance(stream, Table)]
        if len(tables) == len(streams):
            return _Shares(tables, self.columns, self._batched)
        return Flow(lambda: self._rows([rows_of(stream) for stream in streams]))

    def _rows(self, shares: Sequence[Iterator[Row]]) -> Iterator[Row]:
        for rows in zip_longest(*shares):
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
        """See Table."""
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
    counts = {count for below in node.walk() if (count := _num_shares(getattr(below, "sampler", None)))}
    if not counts:
        return node
    if len(counts) > 1:
        raise SporaxRuntimeError(
            f"For 'num_shards', all sources must have equally many shares, but got {sorted(counts)}."
        )
    return AllShares(node, counts.pop(), any(below.makes_batches for below in node.walk()))


def _num_shares(sampler: BuiltinSampler | None) -> int:
    """How many ranks' shares a sampler reads, itself or by its child; 0 where it reads its own."""
    while sampler is not None:
        if sampler.num_shares:
            return sampler.num_shares
        sampler = sampler.child_sampler
    return 0
