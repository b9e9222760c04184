"""How rows of text files are shuffled and shared among ranks.

MindSpore gives rows out through a shuffle buffer; here `shuffle=True` is a full permutation. Without it the order is MindSpore's:
its workers get the files in turn, and rows are taken from the workers in turn.
"""

from __future__ import annotations

import enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sporax.mindspore.dataset import config
from sporax.mindspore.dataset._checks import SharesOfAll
from sporax.mindspore.dataset._random import Pass
from sporax.mindspore.dataset.samplers import BuiltinSampler, Order


class Shuffle(enum.StrEnum):
    """How a source of several files shuffles: not at all, all rows, the order of the files, or the rows of each file.

    ADAPTIVE and PARTIAL, which MindSpore has to save memory with very many rows, mean GLOBAL here.
    """

    FALSE = "false"
    GLOBAL = "global"
    FILES = "files"
    INFILE = "infile"
    ADAPTIVE = "adaptive"
    PARTIAL = "partial"


class FileSampler(BuiltinSampler):
    """Order and shards of rows that come from files.

    A shard is a run of neighbouring rows: rank r of S reads ceil(n / S) rows from row r * ceil(n / S) on, wrapping to
    the beginning. Shuffling rearranges the rows of a rank; FILES rearranges the files before they are split into shards.

    Args:
        shuffle: a Shuffle.
        shards: (number of ranks, this rank), or None.
        num_samples: at most this many rows.
        own_files: the files are one rank's share already.
        workers: among how many the files are dealt out; `config.get_num_parallel_workers()` if None.
    """

    def __init__(
        self,
        shuffle: Shuffle,
        shards: tuple[int, int] | None,
        num_samples: int | None,
        own_files: bool = False,
        workers: int | None = None,
    ) -> None:
        super().__init__(num_samples)
        self._workers = config.get_num_parallel_workers() if workers is None else workers
        self.shuffle = shuffle
        self.shards = shards
        self.num_shares = shards[0] if isinstance(shards, SharesOfAll) else 0
        self.own_files = own_files

    def is_shuffled(self) -> bool:
        """Whether the order is random."""
        return self.shuffle is not Shuffle.FALSE

    def is_sharded(self) -> bool:
        """Whether only one rank's share is read."""
        return self.own_files or self.shards is not None

    def _order(self, num_rows: int, run: Pass, labels: NDArray[Any] | None) -> Order:
        """`labels` are the numbers of the files the rows come from."""
        order = np.arange(num_rows)
        limited = self.shuffle is Shuffle.GLOBAL and self.num_samples is not None
        if (self.shuffle is Shuffle.FILES or limited) and labels is not None and num_rows:
            # `shared`: all ranks must agree on the order before it is split into shards.
            files = run.shuffler(shared=True).permutation(int(labels[-1]) + 1)
            order = np.concatenate([np.flatnonzero(labels == file) for file in files])
        if self.shards is not None and num_rows:
            count, rank = self.shards.of_rank(run.rank) if isinstance(self.shards, SharesOfAll) else self.shards
            # Rounded up: the last shards wrap, so that all ranks take equally many steps.
            share = -(-num_rows // count)
            order = order[(rank * share + np.arange(share)) % num_rows]
        if limited:
            # MindSpore shuffles the rows that it has read, which are the first ones.
            order = (order if labels is None else _taken_in_turn(order, labels[order], self._workers))[
                : self.num_samples
            ]
        if self.shuffle is Shuffle.GLOBAL:
            # Ranks with shards shuffle by the shared seed: their shares must come from one permutation.
            return run.shuffler(shared=self.shards is not None).permutation(order)
        return order if labels is None else _taken_in_turn(order, labels[order], self._workers)


def _taken_in_turn(order: Order, files: NDArray[Any], workers: int) -> Order:
    """The rows as `workers` give them in turn, each with every `workers`-th run of rows of one file.

    Args:
        order: row numbers, file after file.
        files: the file of each.
        workers: how many take part.
    """
    # A run is a stretch of rows of one file; each goes to the next worker.
    run = np.concatenate([[0], np.cumsum(np.diff(files) != 0)])
    worker = run % workers
    turn = np.empty(len(order), np.int64)
    for number in range(min(workers, int(run[-1]) + 1 if len(order) else 0)):
        own = worker == number
        turn[own] = np.arange(np.count_nonzero(own))
    # First all first rows in order of workers, then the second ones, and so on.
    return order[np.lexsort((worker, turn))]
