"""Random numbers of the pipeline, all counted rather than drawn from one running stream; orders of rows are in `_shuffles`.

A number depends only on (seed, pass over the data, operation, row), never on who asks first. So threads, worker
processes and an iterator restored in mid-epoch all see the same data, and shards that share a seed share a permutation.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

# First word of every key: permutations and row draws never share a stream.
_SHUFFLE, _ROWS = 0, 1
# 2**64 divided by the golden ratio: multiples of it differ in many bits.
_GOLDEN = 0x9E3779B97F4A7C15


@dataclasses.dataclass(frozen=True, slots=True)
class Pass:
    """One pass over the data of a pipeline.

    Attributes:
        seed: of the iterator this pass belongs to.
        shared_seed: the same on all ranks; sharded sources shuffle with it.
        index: how many passes came before (epochs times repeats).
        epoch: number of the iterator's epoch, which repeats within it do not change.
        patch: which part of images split into patches it reads.
        rank: whose share it reads, where this process reads the shares of all ranks.
        step: what a pass adds to the seed where MindSpore asks for it again: 0 where the user has set it.
        records: it reads MindRecord files, which MindSpore shuffles in a way of their own.
        asks: it only asks for a size or a shape; no program reads its rows.
        readings: what the passes for all patches read together; None where there is one.
    """

    seed: int
    shared_seed: int
    index: int = 0
    epoch: int = 0
    patch: int = 0
    rank: int = 0
    step: int = 1
    records: bool = False
    asks: bool = False
    readings: Any = dataclasses.field(default=None, compare=False, repr=False)

    def at(self, index: int) -> Pass:
        """The pass number `index` within the same epoch."""
        return dataclasses.replace(self, index=index)

    def at_epoch(self, epoch: int) -> Pass:
        """The first pass of epoch number `epoch` of the same iterator."""
        return dataclasses.replace(self, index=epoch, epoch=epoch)

    def with_patch(self, patch: int, readings: Any = None) -> Pass:
        """The same pass for another patch; what it has in common with the others is read by `readings`."""
        return dataclasses.replace(self, patch=patch, readings=readings)

    def with_rank(self, rank: int) -> Pass:
        """The same pass over the share of another rank."""
        return dataclasses.replace(self, rank=rank)

    def shuffler(self, salt: int = 0, *, shared: bool = False) -> np.random.Generator:
        """Generator of this pass's permutations; with `shared`, the same one on all ranks."""
        return _generator(_SHUFFLE, self.shared_seed if shared else self.seed, self.index, salt)

    def row_key(self, *salt: int) -> RowKey:
        """Where the random transforms of one operation take their numbers from."""
        # Hashed by SeedSequence, since nearby keys of Philox would otherwise differ in one bit only.
        words = np.random.SeedSequence((_ROWS, self.seed, self.index, *salt)).generate_state(2, np.uint64)
        return RowKey((int(words[0]), int(words[1])))


@dataclasses.dataclass(frozen=True, slots=True)
class RowKey:
    """A key from which every row gets its own generator."""

    words: tuple[int, int]

    def sub(self, part: int) -> RowKey:
        """The key of a part of the operation."""
        # Derived by addition: parts need distinct keys, and hashing costs more than many a transform.
        return RowKey((self.words[0], (self.words[1] + _GOLDEN * (part + 1)) % 2**64))

    def generator(self, row: int) -> np.random.Generator:
        """The generator of row number `row`."""
        # The row is the third counter word: draws of one row count the first two words up and never reach the next
        # row's.
        return np.random.Generator(np.random.Philox(key=self.words, counter=(0, 0, row, 0)))

    def generators(self, rows: Iterable[int]) -> Iterator[np.random.Generator]:
        """The generators of several rows, in turn: one object, set again, because making one costs more than its use.

        Each is good until the next one is requested.
        """
        bits = np.random.Philox(key=self.words)
        counter = np.zeros(4, np.uint64)
        # Copied once; setting `bits.state` with it is the fastest reset that numpy offers.
        state: Any = {**bits.state, "state": {**bits.state["state"], "counter": counter}}
        generator = np.random.Generator(bits)
        for row in rows:
            counter[2] = row
            bits.state = state
            yield generator


def _generator(*key: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(key)))


class CallStream:
    """Generators for transforms that are called directly, outside a pipeline: one after the other from the seed."""

    def __init__(self) -> None:
        self._calls = 0
        self._seed: int | None = None

    def next(self, seed: int) -> np.random.Generator:
        """The generator of the next call; starts again when the seed was changed."""
        # `set_seed` starts all streams again, as in MindSpore.
        if seed != self._seed:
            self._seed, self._calls = seed, 0
        self._calls += 1
        return _generator(_ROWS, seed, self._calls)
