"""The description of a pipeline: immutable nodes, from sources to the operation applied last.

A node knows its columns and how to build one pass of its part of the pipeline: a `Table` where rows can be requested in
any order, a `Flow` where not. Nothing is read before an iterator builds the first pass.
"""

from __future__ import annotations

import abc
import copy
import itertools
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import numpy as np

from sporax.base.errors import SporaxRuntimeError
from sporax.mindspore.dataset import config
from sporax.mindspore.dataset._cache import CachedTable, DatasetCache, fingerprint
from sporax.mindspore.dataset._callbacks import Events, Gate
from sporax.mindspore.dataset._random import Pass
from sporax.mindspore.dataset._rows import Row, row_of
from sporax.mindspore.dataset._streams import (
    ENDLESS,
    Concatenated,
    Flow,
    Indices,
    Mapped,
    Reordered,
    Repeated,
    Stream,
    Table,
    Window,
    Zipped,
    buffer_order,
    chained,
    rows_of,
    shuffled,
    zipped,
)
from sporax.mindspore.dataset._workers import FlowWorkers, TableWorkers
from sporax.mindspore.dataset.samplers import BuiltinSampler
from sporax.runtime.session import SESSION


class Node(abc.ABC):
    """One step of a pipeline.

    Attributes:
        columns: names of its columns, in order.
        parents: the steps before it.
        depth: number of steps below; tells random operations of one pipeline apart.
    """

    makes_batches = False
    """Whether a row that this step gives is a batch."""

    collates = False
    """Whether it makes each row of a run of rows."""

    fixed_size: int | None = None
    """Rows of each run, where they are equally many."""

    num_processes = 1
    """Processes that were requested for its work; 1 for none."""

    events: Events | None = None
    """What counts its rows for callbacks."""

    made_patches: tuple[str, ...] = ()
    """Columns with the patches of an image that it divides."""

    def __init__(self, columns: Sequence[str], parents: Sequence[Node] = ()) -> None:
        self.columns = tuple(columns)
        self.parents = tuple(parents)
        # From the source up, so that steps added later do not change random numbers of those before.
        self.depth: int = 1 + max((parent.depth for parent in parents), default=-1)
        self._num_rows: dict[int, int] = {}

    @property
    def parent(self) -> Node:
        """The only step before this one."""
        return self.parents[0]

    @abc.abstractmethod
    def build(self, run: Pass) -> Stream:
        """One pass of the pipeline up to here."""

    def num_rows(self) -> int:
        """Rows of one pass; a flow is read once to count them. An endless repeat counts once, as in MindSpore."""
        for_ranks = SESSION.acts_for()  # whose shares are read
        if for_ranks not in self._num_rows:
            self._num_rows[for_ranks] = self._count()
        return self._num_rows[for_ranks]

    def _count(self) -> int:
        stream = self.build(Pass(0, 0))
        return stream.size if isinstance(stream, Table) else sum(1 for _ in stream.rows())

    def walk(self) -> Iterator[Node]:
        """This node and all below it."""
        yield self
        for parent in self.parents:
            yield from parent.walk()

    def runs_python(self) -> bool:
        """Whether this step calls user code."""
        return False


class RowByRow(Node):
    """A step that gives a row for each row of the step before."""

    def _count(self) -> int:
        return self.parent.num_rows()


class Source(Node):
    """Rows of a random-access store, chosen by a sampler.

    Args:
        columns: names of the columns.
        load: opens the store; called once, at the first use.
        sampler: chooses rows and their order.
        labels: class label per row of the store, for PKSampler.
        python: whether reading a row calls user code.
        workers: threads or processes requested, or None.
        processes: whether the workers are to be processes.
        cache: keeps rows of the store.
    """

    def __init__(
        self, columns: Sequence[str], load: Callable[[], Table], sampler: BuiltinSampler,
        labels: Callable[[Table], Any] | None = None, python: bool = False, workers: int | None = None,
        processes: bool = False, cache: DatasetCache | None = None,
    ) -> None:  # fmt: skip
        super().__init__(columns)
        self.load = load
        self._origin = load
        self.cache = cache
        self.sampler = sampler
        self._labels = labels
        self._python = python
        self.workers = workers
        self.processes = processes
        self.num_processes = (workers or 1) if processes else 1
        self._store: Table | None = None

    def store(self) -> Table:
        """The opened store."""
        # Opened once for all passes and iterators: it may read a whole file.
        if self._store is None:
            self._store = self.load()
        return self._store

    def with_sampler(self, sampler: BuiltinSampler) -> Source:
        """The same store under another sampler."""
        changed = copy.copy(self)
        changed.load, changed.sampler, changed._num_rows = self.store, sampler, {}
        return changed

    def build(self, run: Pass) -> Stream:
        table = self.store()
        if self.cache is not None and not config.get_debug_mode():
            self.cache.claim(self.identity())
            table = CachedTable(table, self.cache)
        return Reordered(table, self.order(run))

    def identity(self) -> Hashable:
        """Equal for sources that read the same."""
        return self.columns, fingerprint(self._origin)

    def order(self, run: Pass) -> Indices:
        """The rows of the store that a pass reads."""
        store = self.store()
        labels = None if self._labels is None else self._labels(store)
        return self.sampler.order(store.size, run, labels)

    def _count(self) -> int:
        # What a sampler says itself saves building the order, which a user's sampler may draw at random.
        stated = self.sampler.stated()
        return super()._count() if stated is None else stated

    def runs_python(self) -> bool:
        return self._python


class FlowSource(Node):
    """Rows of a sequential source.

    Args:
        columns: names of the columns.
        start: begins one reading, given the pass (for sources that shuffle).
        size: number of rows where it is known beforehand.
        shuffled: whether the source draws its order at random.
        sharded: whether it reads one rank's share.
    """

    def __init__(
        self, columns: Sequence[str], start: Callable[[Pass], Iterator[Row]], size: Callable[[], int] | None = None,
        shuffled: bool = False, sharded: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(columns)
        self._start = start
        self._size = size
        self.shuffled = shuffled
        self.sharded = sharded

    def build(self, run: Pass) -> Stream:
        return Flow(lambda: self._start(run))

    def _count(self) -> int:
        return super()._count() if self._size is None else self._size()


class Shuffle(RowByRow):
    """Rows through a shuffle buffer; with `fixed`, the same way each pass and on all ranks."""

    def __init__(self, parent: Node, buffer_size: int, fixed: bool = False) -> None:
        super().__init__(parent.columns, [parent])
        self.buffer_size = buffer_size
        self._fixed = fixed

    def build(self, run: Pass) -> Stream:
        stream = self.parent.build(run)
        # Parts of a split must agree on all ranks and in all epochs.
        drawn = Pass(run.shared_seed, run.shared_seed) if self._fixed else run
        if isinstance(stream, Table) and stream.size < ENDLESS:
            return Reordered(stream, buffer_order(stream.size, self.buffer_size, drawn.shuffler(self.depth)))
        return Flow(lambda: shuffled(rows_of(stream), self.buffer_size, drawn.shuffler(self.depth)))


class Repeat(Node):
    """The pipeline below, `count` times (ENDLESS for ever); each time with new shuffles."""

    def __init__(self, parent: Node, count: int) -> None:
        super().__init__(parent.columns, [parent])
        self.count = count

    def build(self, run: Pass) -> Stream:
        # Repeats count as passes, so each has another order; an endless one counts from 0.
        first = 0 if self.count == ENDLESS else run.index * self.count

        def build(number: int) -> Stream:
            return self.parent.build(run.at(first + number))

        return repeated(build, self.count)

    def _count(self) -> int:
        return self.parent.num_rows() * (1 if self.count == ENDLESS else self.count)


class Limit(Node):
    """At most `take` rows after leaving out `skip`."""

    def __init__(self, parent: Node, skip: int, take: int) -> None:
        super().__init__(parent.columns, [parent])
        self.skip = skip
        self.take = take

    def build(self, run: Pass) -> Stream:
        stream = self.parent.build(run)
        if isinstance(stream, Table):
            left = stream.size if stream.size == ENDLESS else max(stream.size - self.skip, 0)
            return Window(stream, self.skip, min(left, self.take))
        stop = None if self.take == ENDLESS else self.skip + self.take
        return Flow(lambda: itertools.islice(stream.rows(), self.skip, stop))

    def _count(self) -> int:
        # An endless repeat counts its rows once, which `take` must not use as a limit.
        if any(isinstance(node, Repeat) and node.count == ENDLESS for node in self.walk()):
            return super()._count()
        return min(max(self.parent.num_rows() - self.skip, 0), self.take)


class Select(RowByRow):
    """Columns chosen, put in order and renamed; `names` maps the old name to the new one."""

    def __init__(self, parent: Node, names: dict[str, str]) -> None:
        super().__init__(tuple(names.values()), [parent])
        self.names = names

    def build(self, run: Pass) -> Stream:
        stream = self.parent.build(run)
        if isinstance(stream, Table):
            return Mapped(stream, lambda block, rows: {new: block[old] for old, new in self.names.items()})
        return Flow(lambda: ({new: row[old] for old, new in self.names.items()} for row in stream.rows()))


class Rewritten(Node):
    """A step that reads all rows in order and gives other rows: filter, flat_map, bucketing.

    Args:
        parent: the step before.
        rewrite: (rows, pass) -> rows.
        columns: columns of the rows given.
        inputs: columns that decide.
        workers: threads requested, or None.
    """

    def __init__(
        self, parent: Node, rewrite: Callable[[Iterator[Row], Pass], Iterator[Row]], columns: Sequence[str],
        inputs: Sequence[str] = (), workers: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(columns, [parent])
        self.rewrite = rewrite
        self.inputs = tuple(inputs)
        self.workers = workers
        # Processes for the table before it, where a step below asks for some.
        self._workers = TableWorkers(max(node.num_processes for node in parent.walk()))

    def build(self, run: Pass) -> Stream:
        stream = self.parent.build(run)
        return Flow(lambda: self.rewrite(self._workers.rows_of(stream), run))

    def runs_python(self) -> bool:
        """See Node: such a step calls a user's function."""
        return True


class SyncWait(RowByRow):
    """Rows that wait at a gate."""

    def __init__(self, parent: Node, gate: Gate) -> None:
        super().__init__(parent.columns, [parent])
        self.gate = gate

    def build(self, run: Pass) -> Stream:
        stream = self.parent.build(run)
        return Flow(lambda: self.gate.passing(rows_of(stream)))


def flow_workers(step: Node, workers: int | None, processes: bool) -> FlowWorkers:
    """Workers of a step of a flow: one thread where rows wait, since others would ask for rows that are not released."""
    waits = any(gates_of(step)) or any(events_of(step))
    return FlowWorkers(1 if waits else workers or 1, processes)


def gates_of(node: Node) -> Iterator[tuple[Gate, int]]:
    """The gates of a pipeline, each with the number of its rows that make a row of the pipeline."""
    if isinstance(node, SyncWait):
        yield node.gate, 1
    for parent in node.parents:
        yield from ((gate, rows * (node.fixed_size or 1)) for gate, rows in gates_of(parent))


def events_of(node: Node) -> Iterator[Events]:
    """What counts the rows of the maps with callbacks."""
    return (step.events for step in node.walk() if step.events is not None)


def repeated(build: Callable[[int], Stream], count: int) -> Stream:
    """`count` passes one after the other, `build` making pass number k; empty passes end an endless repeat."""
    first = build(0)
    if isinstance(first, Table) and first.size < ENDLESS:
        # Tables know where pass k begins, so positions stay countable over all repeats.
        return Repeated(build, first.size, count)  # type: ignore[arg-type]  # the size is known where it is repeated

    def start() -> Iterator[Row]:
        for number in itertools.islice(itertools.count(), None if count == ENDLESS else count):
            empty = True
            for row in rows_of(build(number)):
                empty = False
                yield row
            # Without this an endless repeat of nothing would never return.
            if empty:
                return

    return Flow(start)


def replaced_columns(where: str, columns: Sequence[str], old: Sequence[str], new: Sequence[str]) -> tuple[str, ...]:
    """Column names after `old` became `new`: in place when they are as many, else the new ones first.

    As in MindSpore, a result of `map` takes the place of another column of its name, where it replaces one column.

    Raises:
        SporaxRuntimeError: a new name is that of another column.
    """
    remaining = [name for name in columns if name not in old]
    clash = next((name for name in new if name in remaining), None)
    if clash is not None and (where != "map" or len(old) != len(new)):
        raise SporaxRuntimeError(
            f"For '{where}', the new column {clash!r} exists already; the columns are {list(columns)}."
        )
    if len(old) != len(new):
        return (*new, *remaining)
    renamed = dict(zip(old, new, strict=True))
    return tuple(renamed.get(name, name) for name in columns if name in old or name not in new)


def first_row(node: Node) -> Row:
    """The first row of the first pass.

    Raises:
        SporaxRuntimeError: there are no rows.
    """
    stream = node.build(Pass(0, 0))
    if isinstance(stream, Table):
        if stream.size:
            return row_of(stream.gather(np.array([0])))
    else:
        for row in stream.rows():
            return row
    raise SporaxRuntimeError("For 'output_shapes', the pipeline has no rows, so their shapes are not known.")


class Zip(Node):
    """Pipelines side by side, as long as the shortest."""

    def __init__(self, parents: Sequence[Node]) -> None:
        columns = [name for parent in parents for name in parent.columns]
        double = next((name for i, name in enumerate(columns) if name in columns[:i]), None)
        if double is not None:
            raise SporaxRuntimeError(
                f"For 'zip', Invalid data, duplicate column {double} already exists when zipping datasets. Rename one."
            )
        super().__init__(columns, parents)

    def build(self, run: Pass) -> Stream:
        streams = [parent.build(run) for parent in self.parents]
        tables = [stream for stream in streams if isinstance(stream, Table)]
        if len(tables) == len(streams):
            return Zipped(tables)
        return Flow(lambda: zipped([rows_of(stream) for stream in streams]))

    def _count(self) -> int:
        return min(parent.num_rows() for parent in self.parents)


class Concat(Node):
    """One pipeline after another; with a sampler, the rows of all that it picks (they must have random access then)."""

    def __init__(self, parents: Sequence[Node], sampler: BuiltinSampler | None = None) -> None:
        for parent in parents[1:]:
            if parent.columns != parents[0].columns:
                raise SporaxRuntimeError(
                    "For 'concat', Invalid columns, 'column name' or 'column order' of concat datasets should be the same. They "
                    f"are {list(parents[0].columns)} and {list(parent.columns)}."
                )
        super().__init__(parents[0].columns, parents)
        self.sampler = sampler

    def build(self, run: Pass) -> Stream:
        streams = [parent.build(run) for parent in self.parents]
        tables = [stream for stream in streams if isinstance(stream, Table) and stream.size < ENDLESS]
        if len(tables) == len(streams):
            joined = Concatenated(tables)
            return joined if self.sampler is None else Reordered(joined, self.sampler.order(joined.size, run))
        if self.sampler is not None:
            raise SporaxRuntimeError("For 'use_sampler', all datasets must have random access, but one is sequential.")
        return Flow(lambda: chained([rows_of(stream) for stream in streams]))

    def _count(self) -> int:
        total = sum(parent.num_rows() for parent in self.parents)
        return total if self.sampler is None else len(self.sampler.order(total, Pass(0, 0)))


def first_pass(iterators_before: int) -> Pass:
    """The first pass of a new iterator.

    With a seed set, every iterator of a dataset gives the same rows (as in MindSpore). Without one, MindSpore draws a
    new seed from the operating system for each iterator; here it follows from the number of iterators already made from
    the dataset, so that loops reshuffle and runs still repeat. Shards always share one seed.
    """
    shared = config.get_seed()
    if config.is_seed_set() or not iterators_before:
        return Pass(shared, shared)
    fresh = np.random.SeedSequence((shared, iterators_before)).generate_state(1, np.uint32)[0]
    return Pass(int(fresh), shared)
