"""Random numbers of the pipeline, all counted rather than drawn from one running stream; orders of rows are in `_shuffles`.

A number depends only on (seed, pass over the data, operation, row), never on who reads first. So threads, worker
processes and an iterator restored in mid-epoch all see the same data, and shards that share a seed share a permutation.

MindSpore's transforms draw from an engine of each worker, one row after the other, by the distributions of libstdc++
(bits/random.tcc, bits/uniform_int_dist.h, bits/stl_algo.h); each operation has such an engine, and all begin with the user's
seed. Nearly all operations take equally many numbers for each row. So a row's place in the engine's numbers is counted, too, and
the rows are MindSpore's. Where an operation takes more (a crop that does not fit is drawn again), the row goes on with numbers
of its own, since those that follow belong to the next row.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from sporax.mindspore.dataset._shuffles import below, canonical, mersenne_twister, shuffle_in_place

# 2**64 divided by the golden ratio: multiples of it differ in many bits.
_GOLDEN = 0x9E3779B97F4A7C15
# The largest number of MindSpore's engine.
_LARGEST = 2**32 - 1
# Numbers of an engine that are worked out at a time, and how many times those are held for workers that are behind.
_BLOCK, _HELD = 512, 32


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
        step: what a pass adds to the seed where MindSpore draws it again: 0 where the user has set it.
        records: it reads MindRecord files, which MindSpore shuffles in a way of their own.
        is_query: it only reads a size or a shape; no program reads its rows.
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
    is_query: bool = False
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

    def row_key(self, *salt: int, workers: int = 1, rows: int = 0) -> RowKey:
        """Where the random transforms of one operation take their numbers from.

        Args:
            salt: numbers of the operation.
            workers: how many apply it.
            rows: of a pass; 0 where that is not known.
        """
        words = _hashed(self.seed, self.index, *salt)
        # Without a seed of the user, operations draw independently of each other.
        fixed = self.step == 0 and (rows > 0 or self.index == 0)
        return RowKey(words, Engines(self.seed if fixed else words[0], workers, self.index, rows))


@dataclasses.dataclass(frozen=True, slots=True)
class Engines:
    """The engines of workers that take rows in turn: that of worker w is seeded with `seed` plus w.

    Attributes:
        seed: of the first worker.
        workers: how many.
        index: number of the pass.
        rows: of each pass.
    """

    seed: int
    workers: int = 1
    index: int = 0
    rows: int = 0

    def place(self, row: int) -> tuple[int, int]:
        """(seed of the worker that takes a row, number of rows that it took before)."""
        turn = self.index * (self.rows + 1) + row
        worker = turn % self.workers
        # The end of a pass takes a turn, but no numbers.
        return self.seed + worker, turn // self.workers - _ends(self.rows + 1, self.index, self.workers)[worker]


@functools.lru_cache(maxsize=64)
def _ends(turns: int, passes: int, workers: int) -> list[int]:
    """For each worker, how many ends of passes it took."""
    counts: list[int] = np.bincount((np.arange(1, passes + 1) * turns - 1) % workers, minlength=workers).tolist()
    return counts


@dataclasses.dataclass(frozen=True, slots=True)
class RowKey:
    """Keys from which every row gets its numbers.

    Attributes:
        words: of the row's own generator.
        engines: MindSpore's.
    """

    words: tuple[int, int]
    engines: Engines

    def sub(self, part: int) -> RowKey:
        """The key of a part of the operation."""
        # Derived by addition: parts need distinct keys, and hashing costs more than many a transform.
        return RowKey((self.words[0], (self.words[1] + _GOLDEN * (part + 1)) % 2**64), self.engines)

    def draws(self, rows: Iterable[int], count: int) -> Iterator[Draws]:
        """The numbers of rows, each of which takes `count` of MindSpore's engine."""
        return (Draws(self, int(row), count) for row in rows)


class Draws(Iterator[int]):
    """The random numbers of a row: `count` of MindSpore's engine, then those of a generator of its own.

    As an iterator it gives integers in [0, 2**32).
    """

    __slots__ = ("_engine", "_generator", "_key", "_own", "_row")

    def __init__(self, key: RowKey, row: int, count: int) -> None:
        self._key, self._row = key, row
        self._generator: np.random.Generator | None = None
        self._engine: Iterator[int] = iter(())
        self._own = key.words, row
        if count:
            seed, before = key.engines.place(row)
            self._engine = iter(_numbers(seed, count).at(before * count))
            # As the engine's: equal operations of one seed draw equal numbers.
            self._own = (seed, _GOLDEN), before

    @property
    def generator(self) -> np.random.Generator:
        """The row's own."""
        if self._generator is None:
            words, row = self._own
            # The row is the third counter word: draws of one row count the first two words up and never reach the next row's.
            self._generator = np.random.Generator(np.random.Philox(key=words, counter=(0, 0, row, 0)))
        return self._generator

    def inner(self, part: int, count: int) -> Draws:
        """The numbers of a part of the operation, which has engines itself."""
        return Draws(self._key.sub(part), self._row, count)

    def __next__(self) -> int:
        for number in self._engine:
            return number
        return int(self.generator.integers(2**32))

    def integer(self, low: int, high: int) -> int:
        """One in [low, high] (`std::uniform_int_distribution`)."""
        return low + below(high - low + 1, self, _LARGEST)

    def single(self, low: float = 0, high: float = 1) -> float:
        """One in [low, high) of single precision (`std::uniform_real_distribution<float>`)."""
        share = min(np.float32(next(self)) / np.float32(2**32), np.nextafter(np.float32(1), np.float32(0)))
        return float(share * (np.float32(high) - np.float32(low)) + np.float32(low))

    def turned(self, low: float, high: float) -> float:
        """As `single`, calculated from the middle, as MindSpore's angles and sharpness are."""
        half = np.float32(2)
        middle, reach = (np.float32(high) + np.float32(low)) / half, (np.float32(high) - np.float32(low)) / half
        return float(middle + np.float32(self.single(-1, 1)) * reach)

    def double(self) -> float:
        """One in [0, 1) of double precision, of two of the engine."""
        return canonical(next(self), next(self))

    def coin(self, prob: float) -> bool:
        """True with a probability, of two of the engine (`std::bernoulli_distribution`)."""
        return self.double() < float(np.float32(prob))

    def order(self, count: int) -> list[int]:
        """The numbers 0 ... count-1 in random order (`std::shuffle`)."""
        shuffle_in_place(order := list(range(count)), self, _LARGEST)
        return order

    def sample(self, count: int, chosen: int) -> list[int]:
        """Some of the numbers 0 ... count-1 in their order (`std::sample`)."""
        found: list[int] = []
        number = 0
        while len(found) < chosen:
            rest = count - number
            if rest > 1:  # one number of the engine decides about two
                first, second = divmod(below(rest * (rest - 1), self, _LARGEST), rest - 1)
                decided = [first, second]
            else:
                decided = [below(rest, self, _LARGEST)]
            for place in decided:
                if place < chosen - len(found):
                    found.append(number)
                number += 1
        return found


class _Numbers:
    """The numbers of an engine, by place: requests go forward, though not strictly, since workers read ahead.

    Args:
        seed: of the engine.
        count: how many a request takes.
    """

    def __init__(self, seed: int, count: int) -> None:
        self._seed = seed
        self._count = count
        self._lock = threading.Lock()
        self._blocks: dict[int, list[int]] = {}
        self._begin()

    def _begin(self) -> None:
        self._engine, self._next = mersenne_twister(self._seed), 0

    def at(self, start: int) -> list[int]:
        """`count` numbers from a place on."""
        number, skip = divmod(start, _BLOCK)
        with self._lock:
            found = self._block(number)[skip : skip + self._count]
            while len(found) < self._count:
                number += 1
                found = found + self._block(number)[: self._count - len(found)]
        return found

    def _block(self, number: int) -> list[int]:
        if number not in self._blocks:
            if number < self._next:
                self._begin()
            self._engine.random_raw((number - self._next) * _BLOCK, output=False)
            self._blocks[number], self._next = self._engine.random_raw(_BLOCK).tolist(), number + 1
            if len(self._blocks) > _HELD:
                del self._blocks[next(iter(self._blocks))]
        return self._blocks[number]


@functools.lru_cache(maxsize=64)
def _numbers(seed: int, count: int) -> _Numbers:
    # By the count, too: transforms that take other numbers of a row are at other places.
    return _Numbers(seed, count)


def _hashed(*key: int) -> tuple[int, int]:
    # By SeedSequence, since nearby keys of Philox would otherwise differ in one bit only.
    words = np.random.SeedSequence(key).generate_state(2, np.uint64)
    return int(words[0]), int(words[1])


class CallStream:
    """Random numbers of a transform that is called directly, outside a pipeline."""

    def __init__(self) -> None:
        self._calls = 0
        self._seed: int | None = None

    def next(self, seed: int, is_set: bool, count: int) -> Draws:
        """The numbers of the next call; see `Draws`.

        Args:
            seed: of the pipeline.
            is_set: by the user: then the engine begins with each call again, as MindSpore's does.
            count: numbers of the engine that a call takes.
        """
        # `set_seed` starts all streams again, as in MindSpore.
        if seed != self._seed:
            self._seed, self._calls = seed, 0
        self._calls += 1
        words = _hashed(seed, self._calls)
        return Draws(RowKey(words, Engines(seed if is_set else words[0])), 0, count)
