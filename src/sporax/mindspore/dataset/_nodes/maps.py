"""Operations on columns: `map`, with hooks around its operations, past rows that fail, or with a `DatasetCache`.

Debug mode: everything happens in the user's thread, row by row when a row is requested, so that a hook can stop there and
its output is in order. Error samples: a row for which an operation fails is left out, or another one takes its place. As in
MindSpore, 16 good rows stand by in turn; what fails before there are as many is replaced at the end of the epoch.
"""

from __future__ import annotations

import copy
import dataclasses
import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from sporax.base.errors import SporaxError, SporaxRuntimeError
from sporax.mindspore.dataset import config
from sporax.mindspore.dataset._cache import CachedTable, DatasetCache, Same, fingerprint
from sporax.mindspore.dataset._callbacks import DSCallback, Events
from sporax.mindspore.dataset._nodes.node import Node, RowByRow, Select, Source, flow_workers, replaced_columns
from sporax.mindspore.dataset._operations import (
    Operation,
    PythonFunction,
    Values,
    as_pixels,
    handed_on,
    is_python,
    on_columns,
)
from sporax.mindspore.dataset._random import Pass, RowKey
from sporax.mindspore.dataset._rows import Block, Row, opened
from sporax.mindspore.dataset._streams import (
    Flow,
    Indices,
    InOrder,
    Mapped,
    OnRow,
    Reordered,
    Stream,
    Table,
    mapped,
    rows_of,
)
from sporax.mindspore.dataset.debug import DebugHook, PrintMetaDataHook
from sporax.mindspore.dataset.samplers import SequentialSampler

_STAND_INS = 16
"""How many good rows are kept to take the places of others: MindSpore's number."""


class _Hooked(Operation):
    """A hook as an operation that changes nothing."""

    only_looks = True

    def __init__(self, hook: DebugHook) -> None:
        self._hook = hook

    def on_row(self, values: Values, rng: np.random.Generator) -> Values:
        self._hook(*map(opened, values))
        return values


def with_hooks(operations: Sequence[Operation], keys: Sequence[RowKey]) -> tuple[list[Operation], list[RowKey]]:
    """Operations and where their random numbers come from, with the hooks of debug mode before the first and after each."""
    first = _name(operations[0])
    with_keys = [(hook, keys[0]) for hook in _hooks_of(first, is_first=True)]
    for operation, key in zip(operations, keys, strict=True):
        with_keys += [(operation, key), *((hook, key) for hook in _hooks_of(_name(operation), is_first=False))]
    return [operation for operation, _ in with_keys], [key for _, key in with_keys]


def _hooks_of(name: str, is_first: bool) -> list[Operation]:
    hooks: list[Operation] = []
    for candidate in config.debug_hooks() or [PrintMetaDataHook()]:
        hook = copy.deepcopy(candidate)  # each may keep what it saw
        hook.set_previous_op_name(name)
        hook.set_is_first(is_first)
        hooks.append(_Hooked(hook))
    return hooks


def _name(operation: Operation) -> str:
    if isinstance(operation, PythonFunction):
        return str(getattr(operation.function, "__name__", type(operation.function).__name__))
    return type(operation).__name__


@dataclasses.dataclass(frozen=True)
class _Tried:
    """Applies a block function to a numbered row; gives what went wrong instead of raising it."""

    function: OnRow

    def __call__(self, item: tuple[int, Row]) -> Row | str:
        try:
            return self.function(item)
        except SporaxError as error:
            return str(error)


def healthy(
    rows: Iterator[Row], function: Callable[[Block, Indices], Block], in_order: InOrder, mode: config.ErrorSamplesMode
) -> Iterator[Row]:
    """Every row through a block function; what fails is left out or replaced.

    Raises:
        SporaxRuntimeError: rows are to be replaced, and none is good.
    """
    good: list[Row] = []
    waiting = used = renewed = 0

    def stand_ins(count: int) -> Iterator[Row]:
        nonlocal used
        if count and not good:
            words = "All data is garbage and cannot be replaced. There is no good row among those that fail."
            raise SporaxRuntimeError(f"For 'map', {words}")
        for _ in range(count):
            used += 1
            yield {name: value.copy() for name, value in good[(used - 1) % len(good)].items()}

    for result in in_order(enumerate(rows), _Tried(OnRow(function))):
        if isinstance(result, str):
            warnings.warn(f"For 'map', a row was {'left out' if mode is mode.SKIP else 'replaced'}: {result}")
            at_once = len(good) == _STAND_INS
            waiting += not at_once
            yield from stand_ins(at_once)
            continue
        if mode is mode.REPLACE:
            # A row that has stood in makes room for a newer one.
            if len(good) < _STAND_INS:
                good.append({name: value.copy() for name, value in result.items()})
            elif renewed < used:
                good[renewed % _STAND_INS] = {name: value.copy() for name, value in result.items()}
                renewed += 1
        yield result
    if mode is mode.REPLACE:
        yield from stand_ins(waiting)


class Map(RowByRow):
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
        self, parent: Node, operations: Sequence[Operation], inputs: Sequence[str], outputs: Sequence[str],
        workers: int | None = None, processes: bool = False, callbacks: Sequence[DSCallback] = (),
    ) -> None:  # fmt: skip
        super().__init__(replaced_columns("map", parent.columns, inputs, outputs), [parent])
        self.operations = tuple(operations)
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.workers = workers
        self.processes = processes
        self.callbacks = tuple(callbacks)
        self.events = Events(callbacks) if callbacks else None
        if self.operations[-1].makes_patches and len(self.outputs) > 1:
            self.made_patches = self.outputs
        # Made with the node and not per pass, so that processes live as long as the pipeline.
        self.num_processes = (workers or 1) if processes else 1
        self._workers = flow_workers(self, workers, processes)

    def build(self, run: Pass) -> Stream:
        keys = tuple(run.row_key(self.depth, i) for i in range(len(self.operations)))
        operations: Sequence[Operation] = self.operations
        debugged, mode = config.get_debug_mode(), config.get_error_samples_mode()
        if debugged:
            operations, operation_keys = with_hooks(operations, keys)
            keys, mode = tuple(operation_keys), mode.RETURN
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

    def runs_python(self) -> bool:
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
                "For 'map', Invalid columns, the number of columns returned in 'map' operations should match the number of "
                f"'output_columns', but got {len(columns)} and {len(self.outputs)}: {list(self.outputs)}."
            )
        results = dict(zip(self.outputs, map(as_pixels, columns), strict=True))
        return {name: results[name] if name in results else block[name] for name in self.columns}


N = TypeVar("N", bound=Node)


class CachedMap(Map):
    """Operations on some columns, each row of the source once.

    Rows are kept under their number in the source: the steps are built over the whole source, and its sampler picks from the
    results. So only steps that give one row for each are possible between both.

    Args:
        arguments: those of `Map`.
        options: those of `Map`.
        cache: keeps the results.

    Raises:
        SporaxRuntimeError: an operation is random, or a step before it is none of `map`, `rename` and `project`, or the
            source is sequential or has a cache itself.
    """

    def __init__(self, *arguments: Any, cache: DatasetCache, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.cache = cache
        random = next((operation for operation in self.operations if operation.draws), None)
        if random is not None:
            raise SporaxRuntimeError(
                f"For 'map', 'cache' must not keep the results of random operations, but got {type(random).__name__}: every "
                "epoch would give those of the first."
            )
        if self.callbacks:
            raise SporaxRuntimeError("For 'map', 'cache' must not be combined with 'callbacks', which count all rows.")
        *self._steps, below = self._down()
        if not isinstance(below, Source) or below.cache is not None:
            found = "a source with a cache" if isinstance(below, Source) else f"a step of kind {type(below).__name__}"
            raise SporaxRuntimeError(
                f"For 'map', 'cache' needs a source with random access and without a cache, and only 'map', 'rename' and "
                f"'project' after it, but got {found}."
            )
        self._source = below

    def build(self, run: Pass) -> Stream:
        if config.get_debug_mode():
            return super().build(run)
        rebuilt: Node = self._source.with_sampler(SequentialSampler())
        for step in reversed(self._steps):
            rebuilt = _over(step, rebuilt)
        table = _over(self, rebuilt).build_uncached(run)
        if not isinstance(table, Table):
            raise SporaxRuntimeError("For 'map', 'cache' needs rows that are not left out or replaced when they fail.")
        self.cache.claim((self._source.identity(), *map(_identity, (*self._steps, self))))
        return Reordered(CachedTable(table, self.cache), self._source.order(run))

    def build_uncached(self, run: Pass) -> Stream:
        """One pass without the cache."""
        return super().build(run)

    def _down(self) -> list[Node]:
        """The maps and selections before this step, the last first, and what is below them."""
        nodes: list[Node] = [self.parent]
        while type(nodes[-1]) in (Map, Select):
            nodes.append(nodes[-1].parent)
        return nodes


def _over(step: N, parent: Node) -> N:
    """The step after another one."""
    moved = copy.copy(step)
    moved.parents = (parent,)
    return moved


def _identity(step: Node) -> Hashable:
    if isinstance(step, Map):
        return step.inputs, step.outputs, tuple(map(_of_operation, step.operations))
    return step.columns


def _of_operation(operation: Operation) -> Hashable:
    return Same(operation.function) if isinstance(operation, PythonFunction) else fingerprint(operation)
