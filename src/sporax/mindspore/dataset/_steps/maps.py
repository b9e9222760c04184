"""Operations on columns: `map`, with hooks around its operations, past rows that fail, or with a `DatasetCache`.

Debug mode: everything happens in the user's thread, row by row when a row is requested, so that a hook can stop there and
its output is in order. Error samples: a row for which an operation fails is left out, or another one takes its place. As in
MindSpore, 16 good rows stand by in turn; what fails before there are as many is replaced at the end of the epoch.
"""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

from sporax.base.errors import For, SporaxError, SporaxRuntimeError
from sporax.mindspore.dataset import _checks as check, _operations, config
from sporax.mindspore.dataset._cache import CachedTable, DatasetCache, Same, check_cache, fingerprint
from sporax.mindspore.dataset._callbacks import DSCallback, Events, check_callbacks
from sporax.mindspore.dataset._dataset import Dataset, StepDataset
from sporax.mindspore.dataset._described import Described
from sporax.mindspore.dataset._random import Draws, Pass, RowKey
from sporax.mindspore.dataset._rows import Block, Row, opened
from sporax.mindspore.dataset._steps.ends import SourceDataset
from sporax.mindspore.dataset._steps.rows import ProjectDataset, RenameDataset, replaced_columns
from sporax.mindspore.dataset._streams import (
    ENDLESS,
    Flow,
    Indices,
    InOrder,
    Mapped,
    Reordered,
    Stream,
    Table,
    mapped,
    on_row,
    rows_of,
)
from sporax.mindspore.dataset.debug import DebugHook, PrintMetaDataHook
from sporax.mindspore.dataset.samplers import SequentialSampler

_STAND_INS = 16
"""How many good rows are kept to take the places of others: MindSpore's number."""


class _Hooked(_operations.Operation):
    """A hook as an operation that changes nothing."""

    only_looks = True

    def __init__(self, hook: DebugHook) -> None:
        self._hook = hook

    def on_row(self, values: _operations.Values, rng: Draws) -> _operations.Values:
        self._hook(*map(opened, values))
        return values


def with_hooks(
    operations: Sequence[_operations.Operation], keys: Sequence[RowKey]
) -> tuple[list[_operations.Operation], list[RowKey]]:
    """Operations and where their random numbers come from, with the hooks of debug mode before the first and after each."""
    first = _name(operations[0])
    with_keys = [(hook, keys[0]) for hook in _hooks_of(first, is_first=True)]
    for operation, key in zip(operations, keys, strict=True):
        with_keys += [(operation, key), *((hook, key) for hook in _hooks_of(_name(operation), is_first=False))]
    return [operation for operation, _ in with_keys], [key for _, key in with_keys]


def _hooks_of(name: str, is_first: bool) -> list[_operations.Operation]:
    hooks: list[_operations.Operation] = []
    for candidate in config.debug_hooks() or [PrintMetaDataHook()]:
        hook = copy.deepcopy(candidate)  # each may keep what it saw
        hook.set_previous_op_name(name)
        hook.set_is_first(is_first)
        hooks.append(_Hooked(hook))
    return hooks


def _name(operation: _operations.Operation) -> str:
    if isinstance(operation, _operations.PythonFunction):
        return str(getattr(operation.function, "__name__", type(operation.function).__name__))
    return type(operation).__name__


def _tried(function: Callable[[Block, Indices], Block], item: tuple[int, Row]) -> Row | str:
    """A block function of a numbered row; what went wrong instead of raising it."""
    try:
        return on_row(function, item)
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

    for result in in_order(enumerate(rows), functools.partial(_tried, function)):
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


class MapDataset(StepDataset):
    """What `map` makes.

    With a cache, rows are kept under their number in the source: the steps are built over all rows of the source, and its
    sampler picks from the results. So only steps that give one row for each are possible between both.
    """

    _one_for_one = True

    def __init__(
        self, input_dataset: Dataset, operations: Any, input_columns: str | list[str] | None = None,
        output_columns: str | list[str] | None = None, num_parallel_workers: int | None = None,
        python_multiprocessing: bool = False, cache: DatasetCache | None = None,
        callbacks: DSCallback | list[DSCallback] | None = None, **options: Any,
    ) -> None:  # fmt: skip
        check.options("map", options)
        columns = input_dataset._column_names
        self.operations = _operations.as_operations("map", operations)
        self.input_columns = inputs = input_dataset._chosen("map", input_columns, columns[:1])
        named = output_columns is not None
        self.output_columns = check.names("map", "output_columns", output_columns) if named else inputs
        self.num_parallel_workers = check.workers("map", num_parallel_workers)
        # Set here, since worker processes know no settings.
        self._takers = self.num_parallel_workers or config.get_num_parallel_workers()
        self.python_multiprocessing = check.boolean("map", "python_multiprocessing", python_multiprocessing)
        self.callbacks = check_callbacks("map", callbacks)
        self.cache = check_cache("map", cache)
        super().__init__(replaced_columns("map", columns, inputs, self.output_columns), [input_dataset])
        self._runs_python = any(map(_operations.is_python, self.operations))
        self._events = Events(self.callbacks) if self.callbacks else None
        if self.operations[-1].makes_patches and len(self.output_columns) > 1:
            self._made_patches = self.output_columns
        # Made with the step and not per pass, so that processes live as long as the pipeline.
        self._workers = self._flow_workers()
        if self.cache is not None:
            self._check_cached()

    def _stream(self, run: Pass) -> Stream:
        if self.cache is None or config.get_debug_mode():
            return self._mapped(self._child._stream(run), run)
        *steps, source = self._down()
        assert isinstance(source, SourceDataset)
        rebuilt: Described = source._changed(_sampler=SequentialSampler())
        for step in reversed(steps):
            rebuilt = step._changed(_children=(rebuilt,))
        table = self._mapped(rebuilt._stream(run), run)
        if not isinstance(table, Table):
            raise SporaxRuntimeError("For 'map', 'cache' needs rows that are not left out or replaced when they fail.")
        self.cache.claim((source._identity(), *map(_identity, (*steps, self))))
        return Reordered(CachedTable(table, self.cache), source._order(run))

    def _mapped(self, stream: Stream, run: Pass) -> Stream:
        """The rows of a stream through the operations."""
        operations: Sequence[_operations.Operation] = self.operations
        debugged, mode = config.get_debug_mode(), config.get_error_samples_mode()
        size = stream.size if isinstance(stream, Table) and stream.size < ENDLESS else 0
        workers = 1 if debugged else self._takers
        keys = tuple(run.row_key(self._depth, i, workers=workers, rows=size) for i in range(len(operations)))
        if debugged:
            operations, operation_keys = with_hooks(operations, keys)
            keys, mode = tuple(operation_keys), mode.RETURN
        names = (self.input_columns, self.output_columns, self._column_names)
        function = functools.partial(_applied, operations, keys, *names)
        if isinstance(stream, Table) and self._events is None and not debugged and mode is mode.RETURN:
            return Mapped(stream, function)

        def apply(rows: Iterator[Row]) -> Iterator[Row]:
            if mode is mode.RETURN:
                return mapped(rows, function, self._workers.in_order)
            return healthy(rows, function, self._workers.in_order, mode)

        if self._events is None:
            return Flow(lambda: apply(rows_of(stream)))
        events = self._events
        return Flow(lambda: events.around(rows_of(stream), apply))

    def _check_cached(self) -> None:
        """Refuse a cache where it would not give the rows that would be read without it.

        Raises:
            SporaxRuntimeError: an operation is random, or a step before it is none of `map`, `rename` and `project`, or the
                source is sequential or has a cache itself.
        """
        random = next((operation for operation in self.operations if operation.draws), None)
        if random is not None:
            raise SporaxRuntimeError(
                f"For 'map', 'cache' must not keep the results of random operations, but got {type(random).__name__}: every "
                "epoch would give those of the first."
            )
        For("map").refuse_state(self.callbacks, "'cache' must not be combined with 'callbacks', which count all rows")
        below = self._down()[-1]
        picks = isinstance(below, SourceDataset) and below._sampler is not None
        if not picks or below.cache is not None:
            found = "a source with a cache" if picks else f"a step of kind {type(below).__name__}"
            raise SporaxRuntimeError(
                f"For 'map', 'cache' needs a source with random access and without a cache, and only 'map', 'rename' and "
                f"'project' after it, but got {found}."
            )

    def _down(self) -> list[Described]:
        """The maps and choices of columns before this step, the last first, and what is below them."""
        steps: list[Described] = [self._child]
        while isinstance(steps[-1], _BY_ROW) and steps[-1].cache is None and not steps[-1]._picked_patches:
            steps.append(steps[-1]._child)
        return steps


_BY_ROW = (MapDataset, RenameDataset, ProjectDataset)


def _applied(
    operations: Sequence[_operations.Operation], keys: Sequence[RowKey], inputs: Sequence[str], outputs: Sequence[str],
    names: Sequence[str], block: Block, rows: Indices,
) -> Block:  # fmt: skip
    """What `map` does to a block; without the steps before it, which worker processes need not receive."""
    columns = [block[name] for name in inputs]
    before = None
    for operation, key in zip(operations, keys, strict=True):
        columns = _operations.on_columns(operation, _operations.handed_on(before, operation, columns), rows, key)
        before = before if operation.only_looks else operation
    if len(columns) != len(outputs):
        raise SporaxRuntimeError(
            "For 'map', Invalid columns, the number of columns returned in 'map' operations should match the number of "
            f"'output_columns', but got {len(columns)} and {len(outputs)}: {list(outputs)}."
        )
    results = dict(zip(outputs, map(_operations.as_pixels, columns), strict=True))
    return {name: results[name] if name in results else block[name] for name in names}


def _identity(step: Described) -> Hashable:
    if isinstance(step, MapDataset):
        marks = (
            Same(each.function) if isinstance(each, _operations.PythonFunction) else fingerprint(each)
            for each in step.operations
        )
        return step.input_columns, step.output_columns, tuple(marks)
    return step._column_names
