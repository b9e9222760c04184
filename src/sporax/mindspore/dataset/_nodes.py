"""The description of a pipeline: immutable nodes, from sources to the operation applied last.

A node knows its columns and how to build one pass of its part of the pipeline: a `Table` where rows can be requested in
any order, a `Flow` where not. Nothing is read before an iterator builds the first pass.
"""

from __future__ import annotations

import abc
import copy
import dataclasses
import itertools
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import numpy as np

from sporax.base.errors import SporaxRuntimeError
from sporax.mindspore.dataset import config
from sporax.mindspore.dataset._cache import CachedTable, DatasetCache, fingerprint
from sporax.mindspore.dataset._callbacks import DSCallback, Events
from sporax.mindspore.dataset._flows import Flow, Stream, batched, buffer_order, mapped, rows_of, shuffled
from sporax.mindspore.dataset._gates import Gate
from sporax.mindspore.dataset._map_modes import healthy, with_hooks
from sporax.mindspore.dataset._operations import Operation, as_pixels, handed_on, is_python, on_columns
from sporax.mindspore.dataset._pools import FlowWorkers, TableWorkers
from sporax.mindspore.dataset._random import Pass, RowKey
from sporax.mindspore.dataset._rows import Block, Row, row_of
from sporax.mindspore.dataset._tables import ENDLESS, Batched, Indices, Mapped, Reordered, Repeated, Table, Window
from sporax.mindspore.dataset.samplers import BuiltinSampler


class Node(abc.ABC):
    """One step of a pipeline.

    Attributes:
        columns: names of its columns, in order.
        parents: the steps before it.
        depth: number of steps below; tells random operations of one pipeline apart.
    """

    makes_batches = False
    """Whether a row that this step gives is a batch."""

    def __init__(self, columns: Sequence[str], parents: Sequence[Node] = ()) -> None:
        self.columns = tuple(columns)
        self.parents = tuple(parents)
        # From the source up, so that steps added later do not change random numbers of those before.
        self.depth: int = 1 + max((parent.depth for parent in parents), default=-1)
        self._num_rows: int | None = None

    @property
    def parent(self) -> Node:
        """The only step before this one."""
        return self.parents[0]

    @abc.abstractmethod
    def build(self, run: Pass) -> Stream:
        """One pass of the pipeline up to here."""

    def num_rows(self) -> int:
        """Rows of one pass; a flow is read once to count them. An endless repeat counts once, as in MindSpore."""
        if self._num_rows is None:
            self._num_rows = self._count()
        return self._num_rows

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
        self,
        columns: Sequence[str],
        load: Callable[[], Table],
        sampler: BuiltinSampler,
        labels: Callable[[Table], Any] | None = None,
        python: bool = False,
        workers: int | None = None,
        processes: bool = False,
        cache: DatasetCache | None = None,
    ) -> None:
        super().__init__(columns)
        self.load = load
        self._origin = load
        self.cache = cache
        self.sampler = sampler
        self._labels = labels
        self._python = python
        self.workers = workers
        self.processes = processes
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
        changed.load, changed.sampler, changed._num_rows = self.store, sampler, None
        return changed

    def build(self, run: Pass) -> Stream:
        """See Node."""
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
        # A sampler's own length saves building the order, which a user's sampler may draw at random.
        length = getattr(self.sampler, "__len__", None)
        return super()._count() if length is None else int(length())

    def runs_python(self) -> bool:
        """See Node."""
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
        self,
        columns: Sequence[str],
        start: Callable[[Pass], Iterator[Row]],
        size: Callable[[], int] | None = None,
        shuffled: bool = False,
        sharded: bool = False,
    ) -> None:
        super().__init__(columns)
        self._start = start
        self._size = size
        self.shuffled = shuffled
        self.sharded = sharded

    def build(self, run: Pass) -> Stream:
        """See Node."""
        return Flow(lambda: self._start(run))

    def _count(self) -> int:
        return super()._count() if self._size is None else self._size()


class Map(Node):
    """Operations on some columns.

    Args:
        parent: the step before.
        operations: applied one after the other, each to the results of the one before.
        inputs: columns the first operation takes.
        outputs: names of the columns the last operation returns.
        workers: threads or processes requested, or None.
        processes: whether the workers are to be processes.
        callbacks: called as rows are worked on.
    """

    def __init__(
        self,
        parent: Node,
        operations: Sequence[Operation],
        inputs: Sequence[str],
        outputs: Sequence[str],
        workers: int | None = None,
        processes: bool = False,
        callbacks: Sequence[DSCallback] = (),
    ) -> None:
        super().__init__(replaced_columns("map", parent.columns, inputs, outputs), [parent])
        self.operations = tuple(operations)
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.workers = workers
        self.processes = processes
        self.callbacks = tuple(callbacks)
        self.events = Events(callbacks) if callbacks else None
        # Made with the node and not per pass, so that processes live as long as the pipeline.
        self._workers = _flow_workers(self)

    def build(self, run: Pass) -> Stream:
        """See Node."""
        keys = tuple(run.row_key(self.depth, i) for i in range(len(self.operations)))
        operations: Sequence[Operation] = self.operations
        debugged, mode = config.get_debug_mode(), config.get_error_samples_mode()
        if debugged:
            operations, shown_keys = with_hooks(operations, keys)
            keys, mode = tuple(shown_keys), mode.RETURN
        function = _Applied(tuple(operations), keys, self.inputs, self.outputs, self.columns)
        stream = self.parent.build(run)
        if isinstance(stream, Table) and self.events is None and not debugged and mode is mode.RETURN:
            return Mapped(stream, function)

        def apply(rows: Iterator[Row]) -> Iterator[Row]:
            if mode is mode.RETURN:
                return mapped(rows, function, self._workers.in_order)
            return healthy(rows, function, self._workers.in_order, mode)

        if self.events is None:
            return Flow(lambda: apply(rows_of(stream)))
        events = self.events
        return Flow(lambda: events.around(rows_of(stream), apply))

    def _count(self) -> int:
        return self.parent.num_rows()

    def runs_python(self) -> bool:
        """See Node."""
        return any(map(is_python, self.operations))


@dataclasses.dataclass(frozen=True)
class _Applied:
    """What a `Map` does to a block; without the steps before it, which worker processes need not receive."""

    operations: tuple[Operation, ...]
    keys: tuple[RowKey, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    columns: tuple[str, ...]

    def __call__(self, block: Block, rows: Indices) -> Block:
        columns = [block[name] for name in self.inputs]
        before = None
        for operation, key in zip(self.operations, self.keys, strict=True):
            columns = on_columns(operation, handed_on(before, operation, columns), rows, key)
            before = before if operation.only_looks else operation
        if len(columns) != len(self.outputs):
            raise SporaxRuntimeError(
                f"For 'map', the operations returned {len(columns)} columns, but 'output_columns' names "
                f"{len(self.outputs)}: {list(self.outputs)}."
            )
        results = dict(zip(self.outputs, map(as_pixels, columns), strict=True))
        return {name: results[name] if name in results else block[name] for name in self.columns}


class Batch(Node):
    """Runs of rows collated into one.

    Args:
        parent: the step before.
        size_of: (batch number, epoch) -> rows of that batch.
        fixed_size: the size where it is the same for all batches, else None.
        drop_remainder: leave out a last, shorter batch.
        collate: (block, batch number, epoch) -> one row.
        columns: columns of that row.
        python: whether `collate` calls user code.
        workers: threads or processes requested, or None.
        processes: whether the workers are to be processes.
    """

    makes_batches = True

    def __init__(
        self,
        parent: Node,
        size_of: Callable[[int, int], int],
        fixed_size: int | None,
        drop_remainder: bool,
        collate: Callable[[Block, int, int], Block],
        columns: Sequence[str],
        python: bool = False,
        workers: int | None = None,
        processes: bool = False,
    ) -> None:
        super().__init__(columns, [parent])
        self._size_of = size_of
        self.fixed_size = fixed_size
        self.drop_remainder = drop_remainder
        self.collate = collate
        self._python = python
        self.workers = workers
        self.processes = processes
        self._workers = _flow_workers(self)

    def build(self, run: Pass) -> Stream:
        """See Node."""
        stream = self.parent.build(run)
        collate = _Collated(self.collate, run.epoch)
        if isinstance(stream, Table) and self.fixed_size is not None:
            return Batched(stream, self.fixed_size, self.drop_remainder, collate)
        drop = self.drop_remainder
        in_order = self._workers.in_order
        return Flow(
            lambda: batched(rows_of(stream), lambda number: self._size_of(number, run.epoch), drop, collate, in_order)
        )

    def _count(self) -> int:
        if self.fixed_size is None:
            return super()._count()
        whole, rest = divmod(self.parent.num_rows(), self.fixed_size)
        return whole + (rest > 0 and not self.drop_remainder)

    def runs_python(self) -> bool:
        """See Node."""
        return self._python


@dataclasses.dataclass(frozen=True)
class _Collated:
    """What a `Batch` does to a block; see `_Applied`."""

    collate: Callable[[Block, int, int], Block]
    epoch: int

    def __call__(self, block: Block, number: int) -> Block:
        return self.collate(block, number, self.epoch)


class Shuffle(Node):
    """Rows through a shuffle buffer; with `fixed`, the same way each pass and on all ranks."""

    def __init__(self, parent: Node, buffer_size: int, fixed: bool = False) -> None:
        super().__init__(parent.columns, [parent])
        self.buffer_size = buffer_size
        self._fixed = fixed

    def build(self, run: Pass) -> Stream:
        """See Node."""
        stream = self.parent.build(run)
        # Parts of a split must agree on all ranks and in all epochs.
        drawn = Pass(run.shared_seed, run.shared_seed) if self._fixed else run
        if isinstance(stream, Table) and stream.size < ENDLESS:
            return Reordered(stream, buffer_order(stream.size, self.buffer_size, drawn.shuffler(self.depth)))
        return Flow(lambda: shuffled(rows_of(stream), self.buffer_size, drawn.shuffler(self.depth)))

    def _count(self) -> int:
        return self.parent.num_rows()


class Repeat(Node):
    """The pipeline below, `count` times (ENDLESS for ever); each time with new shuffles."""

    def __init__(self, parent: Node, count: int) -> None:
        super().__init__(parent.columns, [parent])
        self.count = count

    def build(self, run: Pass) -> Stream:
        """See Node."""
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
        """See Node."""
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


class Select(Node):
    """Columns chosen, put in order and renamed; `names` maps the old name to the new one."""

    def __init__(self, parent: Node, names: dict[str, str]) -> None:
        super().__init__(tuple(names.values()), [parent])
        self.names = names

    def build(self, run: Pass) -> Stream:
        """See Node."""
        stream = self.parent.build(run)
        if isinstance(stream, Table):
            return Mapped(stream, lambda block, rows: {new: block[old] for old, new in self.names.items()})
        return Flow(lambda: ({new: row[old] for old, new in self.names.items()} for row in stream.rows()))

    def _count(self) -> int:
        return self.parent.num_rows()


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
        self,
        parent: Node,
        rewrite: Callable[[Iterator[Row], Pass], Iterator[Row]],
        columns: Sequence[str],
        inputs: Sequence[str] = (),
        workers: int | None = None,
    ) -> None:
        super().__init__(columns, [parent])
        self.rewrite = rewrite
        self.inputs = tuple(inputs)
        self.workers = workers
        self._workers = _table_workers(self)

    def build(self, run: Pass) -> Stream:
        """See Node."""
        stream = self.parent.build(run)
        return Flow(lambda: self.rewrite(self._workers.rows_of(stream), run))

    def runs_python(self) -> bool:
        """See Node: such a step calls a user's function."""
        return True


class SyncWait(Node):
    """Rows that wait at a gate."""

    def __init__(self, parent: Node, gate: Gate) -> None:
        super().__init__(parent.columns, [parent])
        self.gate = gate

    def build(self, run: Pass) -> Stream:
        """See Node."""
        stream = self.parent.build(run)
        return Flow(lambda: self.gate.passing(rows_of(stream)))

    def _count(self) -> int:
        return self.parent.num_rows()


def _flow_workers(step: Map | Batch) -> FlowWorkers:
    """Workers of a step of a flow: one thread where rows wait, since others would ask for rows that are not released."""
    waits = any(gates_of(step)) or any(events_of(step))
    return FlowWorkers(1 if waits else step.workers or 1, step.processes)


def _table_workers(step: Node) -> TableWorkers:
    """Processes that a step of its own order (a filter, say) reads the table before it with, where that asks for some."""
    below = [node for node in step.parent.walk() if isinstance(node, (Map, Batch, Source)) and node.processes]
    return TableWorkers(max((node.workers or 1 for node in below), default=1))


def gates_of(node: Node) -> Iterator[tuple[Gate, int]]:
    """The gates of a pipeline, each with the number of its rows that make a row of the pipeline."""
    if isinstance(node, SyncWait):
        yield node.gate, 1
    size = (node.fixed_size or 1) if isinstance(node, Batch) else 1
    for parent in node.parents:
        yield from ((gate, rows * size) for gate, rows in gates_of(parent))


def events_of(node: Node) -> Iterator[Events]:
    """What counts the rows of the maps with callbacks."""
    return (step.events for step in node.walk() if isinstance(step, Map) and step.events is not None)


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

    Raises:
        SporaxRuntimeError: a new name is that of another column.
    """
    kept = [name for name in columns if name not in old]
    clash = next((name for name in new if name in kept), None)
    if clash is not None:
        raise SporaxRuntimeError(
            f"For '{where}', the new column {clash!r} exists already; the columns are {list(columns)}."
        )
    if len(old) != len(new):
        return (*new, *kept)
    renamed = dict(zip(old, new, strict=True))
    return tuple(renamed.get(name, name) for name in columns)


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
