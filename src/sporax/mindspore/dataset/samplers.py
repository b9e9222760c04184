"""Samplers: which rows of a random-access source a pass reads, and in which order.

A sampler maps (number of rows, pass) to an array of row numbers. Nothing else is state, so every rank, worker and
restored iterator works out the same order. Samplers may be stacked: a child's rows are what its parent samples from.
"""

from __future__ import annotations

import copy
import enum
import numbers
import random
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from sporax.base.errors import For, SporaxNotImplementedError, SporaxRuntimeError, SporaxTypeError
from sporax.mindspore.dataset import _checks as check, _checks as checks
from sporax.mindspore.dataset._random import Pass
from sporax.mindspore.dataset._shuffles import drawn, picked, shuffled, shuffled_by_file, uniform
from sporax.runtime.session import SESSION

Order = NDArray[np.int64]


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


#: Both save memory in MindSpore; here they mean GLOBAL.
_GLOBAL = (Shuffle.GLOBAL, Shuffle.ADAPTIVE, Shuffle.PARTIAL)


def _check(where: str, name: str, value: Any, *types: type, called: str) -> Any:
    """An argument of a sampler, about which MindSpore has words of its own."""
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise checks.in_words(SporaxTypeError, where, f"{name} must be {called} but was: {value}.")
    return value


class BuiltinSampler:
    """Base of all samplers.

    Args:
        num_samples: at most this many rows per pass; None or 0 for all.
    """

    _draws = False
    """Whether it draws its order at random."""

    def __init__(self, num_samples: int | None = None) -> None:
        where = type(self).__name__
        if num_samples is not None:
            _check(where, "num_samples", num_samples, numbers.Integral, called="integer")
        self.num_samples = check.num_samples(where, num_samples)
        self.child_sampler: BuiltinSampler | None = None

    def add_child(self, sampler: BuiltinSampler) -> None:
        """Sample from what `sampler` samples.

        Raises:
            SporaxRuntimeError: this sampler already has a child.
        """
        if not isinstance(sampler, BuiltinSampler):
            raise checks.type_error("add_child", "sampler", "a sampler", sampler)
        if self.child_sampler is not None:
            words = "Cannot add child sampler, this sampler already has a child."
            raise checks.in_words(SporaxRuntimeError, "add_child", words)
        self.child_sampler = sampler

    def get_child(self) -> BuiltinSampler | None:
        """The sampler below this one, or None."""
        return self.child_sampler

    def parse(self) -> Self:
        """The sampler itself, of which all is checked that needs no rows; MindSpore's gives what its runtime works with."""
        return self

    shards: tuple[int, int] | None = None
    """(num_shards, shard_id), of samplers that divide by them."""

    @property
    def num_shares(self) -> int:
        """How many ranks' shares this process reads by it, where it acts for all ranks; 0 for its own."""
        return self.shards.own if isinstance(self.shards, checks.SharesOfAll) else 0

    def get_num_samples(self) -> int | None:
        # The least cap counts, wherever it is in the chain.
        """The cap on the number of rows that this sampler and its children impose, or None."""
        below = self.child_sampler.get_num_samples() if self.child_sampler is not None else None
        return min((n for n in (self.num_samples, below) if n is not None), default=None)

    def stated(self) -> int | None:
        """How many rows a sampler of the user's says that it yields; None where it says nothing."""
        return None

    def all_shares(self) -> int:
        """How many ranks' shares this process reads by it or by its children; 0 for its own."""
        return self.num_shares or (self.child_sampler.all_shares() if self.child_sampler is not None else 0)

    def is_shuffled(self) -> bool:
        """Whether the order is random."""
        return self._draws or (self.child_sampler is not None and self.child_sampler.is_shuffled())

    def is_sharded(self) -> bool:
        """Whether only one rank's share is read."""
        return isinstance(self.shards, tuple) or (self.child_sampler is not None and self.child_sampler.is_sharded())

    def is_pure(self) -> bool:
        """Whether the order follows from the pass alone, so that several processes can work it out by themselves."""
        return self.child_sampler is None or self.child_sampler.is_pure()

    def order(self, num_rows: int, run: Pass, labels: NDArray[Any] | None = None) -> Order:
        """The row numbers of one pass over `num_rows` rows (`labels` serve PKSampler)."""
        if self.child_sampler is None:
            # An own order is truncated to `num_samples` last, so that the limit counts the rows of the result.
            return self._order(num_rows, run, labels)[: self.num_samples]
        below = self.child_sampler.order(num_rows, run, labels)
        # The child's order is indexed: parents work on places, not on row numbers of the source.
        return below[self._order(len(below), run, None if labels is None else labels[below])[: self.num_samples]]

    def _order(self, num_rows: int, run: Pass, labels: NDArray[Any] | None) -> Order:
        raise NotImplementedError


class SequentialSampler(BuiltinSampler):
    """Rows in their stored order.

    Args:
        start_index: first row.
        num_samples: at most this many rows.

    Raises:
        SporaxRuntimeError: (when iterated) `start_index` is outside the source.
    """

    def __init__(self, start_index: int | None = None, num_samples: int | None = None) -> None:
        super().__init__(num_samples)
        start = 0 if start_index is None else start_index
        self.start_index: int = _check("SequentialSampler", "start_index", start, numbers.Integral, called="integer")

    def _order(self, num_rows: int, run: Pass, labels: NDArray[Any] | None) -> Order:
        # `max`: an empty source has no valid start, but is no error of the sampler.
        if not 0 <= self.start_index < max(num_rows, 1):
            words = (
                f"start_index must be less than num_rows, but got start_index: {self.start_index}, num_rows: {num_rows}"
            )
            if self.start_index < 0:
                words = f"start_index_ must be greater than or equal to 0, but got: {self.start_index}"
            raise SporaxRuntimeError(f"For 'SequentialSampler', {words}.")
        return np.arange(self.start_index, num_rows)


class RandomSampler(BuiltinSampler):
    """Rows in random order, drawn again for each pass.

    Args:
        replacement: draw each row independently, so that rows may come twice.
        num_samples: at most this many rows.
        shuffle: a Shuffle; FILES and INFILE for `MindDataset`.

    Raises:
        SporaxRuntimeError: (when iterated) the source has no files to shuffle.
    """

    _draws = True

    def __init__(
        self, replacement: bool = False, num_samples: int | None = None, shuffle: Shuffle = Shuffle.GLOBAL
    ) -> None:
        where = "RandomSampler"
        self.replacement: bool = _check(where, "replacement", replacement, bool, called="a boolean value")
        super().__init__(num_samples)
        self.shuffle = _check(where, "shuffle", shuffle, Shuffle, called="valid shuffle mode")
        self.afresh = False
        """Whether a pass does not go on from the order of the one before: below a DistributedSampler."""

    def _order(self, num_rows: int, run: Pass, labels: NDArray[Any] | None) -> Order:
        if self.shuffle not in _GLOBAL:
            assert labels is not None  # numbers of files, see `select_sampler`
            # Shared: files are permuted before they are split into shards, and then from their own order in each pass.
            seed, index = (run.shared_seed + run.index, 0) if self.afresh else (run.shared_seed, run.index)
            within = self.shuffle is Shuffle.INFILE
            return shuffled_by_file(np.bincount(labels).tolist(), seed + 1, index, within=within)
        # As many draws as rows; `num_samples` truncates them later.
        if self.replacement:
            return drawn(num_rows, num_rows, run.seed + run.index)
        return shuffled(num_rows, run.seed + run.records, run.index, records=run.records)


class DistributedSampler(BuiltinSampler):
    """One rank's share: every `num_shards`-th row of the (shuffled) source.

    Of n rows, rank r reads (r + j * num_shards) mod n for j < ceil(n / num_shards): every rank reads equally many, the
    last ones wrapping to the beginning. With an `offset` o >= 0 there is no wrap: row i goes to rank
    (i + o) mod num_shards, so shares may differ by one. All ranks shuffle with one permutation, drawn again for each pass.

    Args:
        num_shards: number of ranks.
        shard_id: this rank, in [0, num_shards).
        shuffle: whether to shuffle before sharding.
        num_samples: at most this many rows (of this rank).
        offset: -1 for equal shares, or the rank that reads row 0.
    """

    def __init__(
        self, num_shards: int, shard_id: int, shuffle: bool | Shuffle = True, num_samples: int | None = None,
        offset: int = -1,
    ) -> None:  # fmt: skip
        where = "DistributedSampler"
        for name, value in (("num_shards", num_shards), ("shard_id", shard_id)):
            _check(where, name, value, numbers.Integral, called="integer")
        _check(where, "shuffle", shuffle, bool, Shuffle, called="a boolean value or valid shuffle mode")
        super().__init__(num_samples)
        self.offset: int = _check(where, "offset", offset, numbers.Integral, called="integer")
        shards = check.shards(where, num_shards, shard_id)
        assert shards is not None
        self.num_shards, self.shard_id = self.shards = shards
        self.shuffle = self._draws = shuffle is True or shuffle in _GLOBAL
        if shuffle in (Shuffle.FILES, Shuffle.INFILE):
            order = RandomSampler(shuffle=Shuffle(shuffle))
            order.afresh = True
            self.add_child(order)
        if self.offset > self.num_shards:
            words = f"DistributedSampler: offset must be no more than num_shards({self.num_shards}), but got {offset}"
            raise checks.in_words(SporaxRuntimeError, where, words)

    def _order(self, num_rows: int, run: Pass, labels: NDArray[Any] | None) -> Order:
        # Shared: all ranks must use one permutation to have different rows.
        seed, index = run.shared_seed + 1, run.index
        # Of MindRecord files each pass begins with their own order.
        seed, index = (seed + index, 0) if run.records else (seed, index)
        permutation = shuffled(num_rows, seed, index, records=run.records) if self.shuffle else np.arange(num_rows)
        own = self.num_shards, self.shard_id
        count, shard = self.shards.of_rank(run.rank) if isinstance(self.shards, checks.SharesOfAll) else own
        if self.offset >= 0:
            return permutation[(shard - self.offset) % count :: count]
        if not num_rows:
            return permutation
        # Rounded up; the last ranks wrap to the beginning, as MindSpore fills up.
        share = -(-num_rows // count)
        return permutation[(shard + np.arange(share) * count) % num_rows]


class SubsetSampler(BuiltinSampler):
    """The given rows in the given order.

    Args:
        indices: row numbers, or one row number.
        num_samples: at most this many of them.

    Raises:
        SporaxTypeError: an index is not an int.
        SporaxRuntimeError: (when iterated) an index is outside the source.
    """

    def __init__(self, indices: Iterable[int] | int, num_samples: int | None = None) -> None:
        super().__init__(num_samples)
        if isinstance(indices, str) or not isinstance(indices, (Iterable, numbers.Integral)):
            words = f"Unsupported sampler object of type ({type(indices)})"
            raise checks.in_words(SporaxTypeError, type(self).__name__, words)
        items = list(indices) if isinstance(indices, Iterable) else [indices]
        for i, index in enumerate(items):
            # Only types and limits; the number of rows is known when reading starts.
            if isinstance(index, bool) or not isinstance(index, numbers.Integral):
                words = f"Type of indices element must be int, but got list[{i}]: {index}, type: {type(index)}."
                raise checks.in_words(SporaxTypeError, type(self).__name__, f"SubsetSampler: {words}")
        self.indices: Order = np.array(items, np.int64)

    def get_num_samples(self) -> int | None:
        """The number of rows."""
        # Known without the source, so sizes need no reading.
        return min(len(self.indices), super().get_num_samples() or len(self.indices))

    def _order(self, num_rows: int, run: Pass, labels: NDArray[Any] | None) -> Order:
        bad = self.indices[(self.indices < 0) | (self.indices >= num_rows)]
        if len(bad):
            raise SporaxRuntimeError(
                f"For '{type(self).__name__}', Sample ID ({bad[0]}) is out of bound, expected range [0, {num_rows - 1}]."
            )
        return self.indices


class SubsetRandomSampler(SubsetSampler):
    """The given rows in random order, drawn again for each pass. Arguments and errors: see SubsetSampler."""

    _draws = True

    def _order(self, num_rows: int, run: Pass, labels: NDArray[Any] | None) -> Order:
        # Permuted after the check of the row numbers.
        rows = super()._order(num_rows, run, labels)
        return rows[shuffled(len(rows), run.seed, run.index, step=run.step)]


class WeightedRandomSampler(BuiltinSampler):
    """Row i drawn with a probability proportional to weights[i].

    Args:
        weights: one number >= 0 per row (fewer weights than rows: the rest is never drawn).
        num_samples: at most this many rows; by default as many as the source has.
        replacement: whether a row may be drawn twice. Without replacement, rows of weight 0 come last.

    Raises:
        SporaxTypeError: a weight is not a number.
        SporaxRuntimeError: (when iterated) no weight, a negative one, all zero, or more weights than rows.
    """

    _draws = True

    def __init__(self, weights: Sequence[float], num_samples: int | None = None, replacement: bool = True) -> None:
        super().__init__(num_samples)
        values = weights if isinstance(weights, list) else [weights]
        for i, weight in enumerate(values):
            if isinstance(weight, bool) or not isinstance(weight, numbers.Real):
                words = f"type of weights element must be number, but got w[{i}]: {weight}, type: {type(weight)}."
                raise checks.in_words(SporaxTypeError, "WeightedRandomSampler", words)
        # Divided by their sum when drawn: weights need not add up to 1.
        self.weights = np.array(values, np.float64)
        self.replacement = _check("WeightedRandomSampler", "replacement", replacement, bool, called="a boolean value")

    def parse(self) -> Self:
        """See BuiltinSampler."""
        self._check_weights(len(self.weights))
        return self

    def _check_weights(self, num_rows: int) -> None:
        words = ""
        if not len(self.weights):
            words = "weights vector must not be empty"
        elif (self.weights < 0).any():
            words = f"weights vector must not contain negative numbers, got: {self.weights.min()}"
        elif not self.weights.any():
            words = "elements of weights vector must not be all zero"
        elif len(self.weights) > num_rows:
            words = (
                "size of sample weights must be less than or equal to num of data, otherwise might cause generated id out of "
                f"bound or other errors, but got weight size: {len(self.weights)}, num of data: {num_rows}"
            )
        if words:
            name = "WeightedRandomSampler"
            raise checks.in_words(SporaxRuntimeError, name, f"{name}: {words}", self.weights.tolist()[:8])

    def _order(self, num_rows: int, run: Pass, labels: NDArray[Any] | None) -> Order:
        self._check_weights(num_rows)
        # With a seed of the user's every pass draws the same rows, as in MindSpore.
        seed = run.seed + run.step * run.index
        if self.replacement:
            # `std::discrete_distribution`: where a number falls among the sums of the weights.
            bounds = np.cumsum(self.weights / self.weights.sum())
            bounds[-1] = 1
            return np.searchsorted(bounds, uniform(num_rows, seed))
        # Exponential races: the order of arrival is a weighted draw without replacement; weight 0 arrives last.
        # Division by weight 0 gives infinity, which is meant.
        with np.errstate(divide="ignore"):
            arrival = -np.log(1 - uniform(len(self.weights), seed)) / self.weights
        return np.argsort(arrival, kind="stable")


class PKSampler(BuiltinSampler):
    """`num_val` rows of every class, class after class: each drawn by itself, so that all classes have as many (of
    MindRecord files different rows, at most those that are there).

    Args:
        num_val: rows per class.
        num_class: not offered (as in MindSpore), must be None.
        shuffle: whether the order of classes is random.
        class_column: name of the label column; `MindDataset` has any, other sources only `label`.
        num_samples: at most this many rows.

    Raises:
        SporaxRuntimeError: (when iterated) the source has no class labels, or `num_val` < 1.
    """

    def __init__(
        self, num_val: int, num_class: int | None = None, shuffle: bool = False, class_column: str = "label",
        num_samples: int | None = None,
    ) -> None:  # fmt: skip
        where = "PKSampler"
        self.num_val: int = _check(where, "num_val", num_val, numbers.Integral, called="integer")
        if num_class is not None:
            raise checks.in_words(SporaxNotImplementedError, where, "Not supported to specify num_class for PKSampler.")
        self.shuffle = self._draws = bool(_check(where, "shuffle", shuffle, bool, called="a boolean value"))
        self.class_column: str = _check(where, "class_column", class_column, str, called="a str value")
        super().__init__(num_samples)

    def _order(self, num_rows: int, run: Pass, labels: NDArray[Any] | None) -> Order:
        if labels is None or self.num_val < 1:
            raise SporaxRuntimeError(
                f"For 'PKSampler', the source must have one class label per row and 'num_val' must be >= 1, "
                f"but got {'no labels' if labels is None else self.num_val}."
            )
        # Classes in ascending order of labels, as MindSpore groups them.
        groups = [np.flatnonzero(labels == label) for label in np.unique(labels)]
        if not run.records:
            chosen = picked([len(group) for group in groups], self.num_val, run.seed, run.index, shuffle=self.shuffle)
            return np.array([groups[kind][place] for kind, place in chosen], np.int64)
        rng = np.random.default_rng((run.seed, run.index))
        if self.shuffle:
            # Both the order of classes and the choice within each class.
            groups = [rng.permutation(groups[i]) for i in rng.permutation(len(groups))]
        return np.concatenate([group[: self.num_val] for group in groups] or [np.zeros(0, np.int64)])


_RANKS = frozenset(("rank", "rank_id", "shard_id"))
_COUNTS = frozenset("num_replicas replicates group_size rank_size world_size num_shards device_num".split())
"""Attributes by which samplers of public programs read one rank's share, with and without underscores."""
_STATE = (list, np.ndarray, np.random.RandomState, np.random.Generator, random.Random)
"""What a sampler may change in place from pass to pass."""


class Sampler(BuiltinSampler):
    """Base for samplers of your own: override `__iter__` to yield row numbers; `dataset_size` is set by then.

    One with attributes for a rank and for the number of ranks reads one rank's share. Where a process acts for all ranks, copies
    of it with the other ranks read the other shares.

    Example:
        >>> class Reversed(Sampler):
        ...     def __iter__(self):
        ...         yield from range(self.dataset_size - 1, -1, -1)
    """

    _was_read = False  # whether a program has read a pass

    def __init__(self, num_samples: int | None = None) -> None:
        super().__init__(num_samples)
        # MindSpore sets this before `__iter__` is called.
        self.dataset_size = 0
        self._copies: list[Sampler] = []
        self._orders: tuple[Pass | None, list[Order]] = None, []

    def __iter__(self) -> Iterator[int]:
        raise NotImplementedError(f"{type(self).__name__} must define __iter__, which yields row numbers.")

    def is_pure(self) -> bool:
        """Whether the order follows from the pass alone: not known of your code."""
        return False

    def reset(self) -> None:
        """Called between two passes; override it if the sampler keeps state."""

    @property
    def num_shares(self) -> int:
        """See BuiltinSampler; the attributes of the user's object say it."""
        found = {name.strip("_"): value for name, value in getattr(self._object(), "__dict__", {}).items()}
        counts, ranks = ({found[name] for name in names & found.keys()} for names in (_COUNTS, _RANKS))
        own, size = self._ranks()
        return own if own > 1 and counts == {size} and len(ranks) == 1 and not next(iter(ranks)) % own else 0

    @staticmethod
    def _ranks() -> tuple[int, int]:
        """For how many ranks this process acts, and how many there are."""
        own: int = checks.parallel_context().ranks_of_process()
        return own, own * checks.parallel_context().world_size()

    def _object(self) -> object:
        """The user's object."""
        return self

    def _with(self, own: object) -> Sampler:
        """The sampler that reads by another object of the user's."""
        assert isinstance(own, Sampler)
        return own

    def _order(self, num_rows: int, run: Pass, labels: NDArray[Any] | None) -> Order:
        count = self.num_shares if SESSION.by_rank() else 0
        if not count:
            rows, (own, ranks) = self._order_of_rank(num_rows, run), self._ranks()
            if SESSION.by_rank() and own > 1 and len(rows) == -(-num_rows // ranks):
                warnings.warn(
                    f"For '{type(self._object()).__name__}', {len(rows)} of {num_rows} rows are read, as by one rank, but this "
                    f"process acts for {own} ranks: keep attributes 'rank' and 'num_replicas' that '__iter__' reads, or start "
                    f"`sporax run --worker_num {ranks}`.",
                    stacklevel=2,
                )
            return rows
        # All at once, and from one state of the random numbers: in a process of its own every rank has the same.
        if self._orders[0] != run.with_rank(0):
            self._copies = self._copies or [self, *map(self._copy, range(1, count))]
            states, orders = (np.random.get_state(), random.getstate()), []
            for sampler in self._copies:
                np.random.set_state(states[0])
                random.setstate(states[1])
                orders.append(sampler._order_of_rank(num_rows, run))
            self._orders = run.with_rank(0), orders
        return self._orders[1][run.rank]

    def _copy(self, rank: int) -> Sampler:
        """The sampler of another rank, with state of its own."""
        own = copy.copy(self._object())
        for name, value in vars(own).copy().items():
            if name.strip("_") in _RANKS:
                setattr(own, name, value + rank)
            elif isinstance(value, _STATE):
                setattr(own, name, copy.deepcopy(value))
        return self._with(own)

    def _order_of_rank(self, num_rows: int, run: Pass) -> Order:
        self.dataset_size = num_rows
        if not run.is_query:
            # In this order: `reset` may use the size.
            if self._was_read:
                self.reset()
            self._was_read = True
        stated = self.num_samples if self.stated() is None else self.stated()
        rows = _row_numbers(type(self).__name__, iter(self), num_rows, stated)
        if self.stated() not in (None, len(rows)):
            raise SporaxRuntimeError(
                f"For '{type(self).__name__}', The actual amount of data read from generator {len(rows)} is different from "
                f"generator.len {stated}; its '__len__' and 'num_samples' must be what '__iter__' yields."
            )
        return rows

    def stated(self) -> int | None:
        """How many rows it says that it yields."""
        # With a child, both say something.
        length = getattr(self, "__len__", None)
        if self.child_sampler is not None or length is None or self.num_samples is not None:
            return None if self.child_sampler is not None else self.num_samples
        return int(length())


class _Indexed:
    """The elements of an object that has `__getitem__` and `__len__` alone."""

    def __init__(self, rows: Any) -> None:
        self._rows = rows

    def __iter__(self) -> Iterator[int]:
        return (self._rows[number] for number in range(len(self._rows)))


class IterSampler(Sampler):
    """The row numbers an iterable yields, read again for each pass.

    Args:
        sampler: iterable of row numbers.
        num_samples: at most this many.
    """

    def __init__(self, sampler: Iterable[int], num_samples: int | None = None) -> None:
        if isinstance(sampler, str) or not isinstance(sampler, Iterable):
            raise checks.type_error("IterSampler", "sampler", "an iterable of int", sampler)
        super().__init__(num_samples)
        # A one-shot iterator is read once and remembered, so that later epochs see the same rows.
        self.sampler: Iterable[int] = list(sampler) if isinstance(sampler, Iterator) else sampler

    def is_pure(self) -> bool:
        """Whether the order follows from the pass alone."""
        return isinstance(self.sampler, (list, tuple, range))

    def stated(self) -> int | None:
        """How many rows the iterable says that it yields, at most `num_samples`."""
        length = getattr(self.sampler, "__len__", None)
        return None if length is None else min(int(length()), self.num_samples or checks.INT64_MAX)

    def __iter__(self) -> Iterator[int]:
        return iter(self.sampler)

    def _object(self) -> object:
        return self.sampler

    def _with(self, own: object) -> Sampler:
        assert isinstance(own, Iterable)
        return IterSampler(own, self.num_samples)


class FixedOrder(BuiltinSampler):
    """Another sampler's first pass, again and again: the order a dataset is split in.

    It follows the seed all ranks share, so the parts of a split fit together wherever they are read.
    """

    def __init__(self, sampler: BuiltinSampler, shuffle: bool) -> None:
        super().__init__()
        self.sampler = sampler
        self.shuffle = shuffle

    def is_pure(self) -> bool:
        """Whether the order follows from the pass alone."""
        return self.sampler.is_pure()

    def _order(self, num_rows: int, run: Pass, labels: NDArray[Any] | None) -> Order:
        # Not the present pass: a split must be the same in all epochs and on all ranks.
        first = Pass(run.shared_seed, run.shared_seed)
        order = self.sampler.order(num_rows, first, labels)
        return order[shuffled(len(order), first.shared_seed, 0)] if self.shuffle else order


def _row_numbers(where: str, items: Iterator[int], num_rows: int, limit: int | None) -> Order:
    rows: list[int] = []
    for item in items:
        # Before the item is used: an endless iterable is not read once more than needed.
        if limit is not None and len(rows) >= limit:
            break
        if not isinstance(item, numbers.Integral):
            raise For(where).type_error("a sampler must yield int", item, show=repr)
        if not 0 <= item < num_rows:
            raise For(where).state_error(f"Sample ID ({item}) is out of bound, expected range [0, {num_rows - 1}]")
        rows.append(int(item))
    return np.array(rows, np.int64)


def select_sampler(
    where: str, num_samples: object, sampler: object, shuffle: object, num_shards: object, shard_id: object, *,
    by_file: bool = False,
) -> BuiltinSampler:  # fmt: skip
    """The sampler a source's arguments request; `by_file` says whether its labels are numbers of files.

    As in MindSpore, `num_samples` with shuffling and without sharding draws rows with replacement.

    Raises:
        ConflictingArgumentsError: `sampler` together with any of the others.
    """
    shards = check.shards(where, num_shards, shard_id)
    count = check.num_samples(where, num_samples)
    # None stands for MindSpore's default, which is to shuffle.
    shuffled = True if shuffle is None else check.boolean(where, "shuffle", shuffle)
    if sampler is not None:
        if shards is not None or (
            # Row numbers may be combined with `num_samples`, sampler objects may not.
            isinstance(sampler, BuiltinSampler) and not (shuffle is None and num_samples is None)
        ):
            other = "sharding" if shards is not None else "shuffle" if shuffle is not None else "num_samples"
            words = f"sampler and {other} cannot be specified at the same time."
            if where in checks.IN_MEMORY:
                requested = (
                    f"num_samples: {num_samples}, num_shards: {num_shards}, shard_id: {shard_id}, shuffle: {shuffle}"
                )
                words = f"Conflicting arguments during sampler assignments. {requested}."
            raise checks.in_words(checks.ConflictingArgumentsError, where, words)
        return _checked_sampler(where, sampler, count, by_file)
    if shards is not None:
        return DistributedSampler(*shards, shuffle=shuffled, num_samples=count)
    if shuffled:
        # MindSpore's rule: a cap without sharding draws with replacement.
        return RandomSampler(replacement=count is not None, num_samples=count)
    return SequentialSampler(num_samples=count)


def _checked_sampler(where: str, sampler: object, num_samples: int | None, by_file: bool) -> BuiltinSampler:
    if isinstance(sampler, BuiltinSampler):
        link: BuiltinSampler | None = sampler
        while link is not None and not by_file:
            if isinstance(link, RandomSampler) and link.shuffle not in _GLOBAL:
                words = f"The shuffle mode: {link.shuffle!s} is not supported with current dataset."
                raise checks.in_words(SporaxRuntimeError, where, words)
            link = link.get_child()
        return sampler
    if isinstance(sampler, (list, tuple, np.ndarray)):
        return SubsetSampler(sampler, num_samples)
    if isinstance(sampler, Iterable) and not isinstance(sampler, str):
        return IterSampler(sampler, num_samples)
    if hasattr(sampler, "__getitem__") and hasattr(sampler, "__len__") and not isinstance(sampler, str):
        return IterSampler(_Indexed(sampler), num_samples)
    in_memory = where in checks.IN_MEMORY
    if isinstance(sampler, int) and not in_memory:
        return SubsetSampler([sampler], num_samples)
    words = f"Unsupported sampler object of type ({type(sampler)})"
    words = "sampler should be either iterable or from mindspore.dataset.samplers." if in_memory else words
    raise checks.in_words(SporaxTypeError, where, words, sampler)
