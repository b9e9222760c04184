"""How a `map` runs other than usual: with hooks around its operations, or past rows that fail.

Debug mode: everything happens in the user's thread, row by row when a row is requested, so that a hook can stop there and
its output is in order. Error samples: a row for which an operation fails is left out, or another one takes its place. As in
MindSpore 2.10 (recorded with it), the others of an epoch come at its end: the first 16 good rows, in turn.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from sporax.base.errors import SporaxError, SporaxRuntimeError
from sporax.mindspore.dataset import config
from sporax.mindspore.dataset._flows import InOrder, OnRow
from sporax.mindspore.dataset._operations import Operation, PythonFunction, Values
from sporax.mindspore.dataset._random import RowKey
from sporax.mindspore.dataset._rows import Block, Row, opened
from sporax.mindspore.dataset._tables import Indices
from sporax.mindspore.dataset.debug import DebugHook

_STAND_INS = 16
"""How many good rows are kept to take the places of others: MindSpore's number."""


class _Hooked(Operation):
    """A hook as an operation that changes nothing."""

    only_looks = True

    def __init__(self, hook: DebugHook) -> None:
        self._hook = hook

    def on_row(self, values: Values, rng: np.random.Generator) -> Values:
        """See Operation."""
        self._hook(*map(opened, values))
        return values


def with_hooks(operations: Sequence[Operation], keys: Sequence[RowKey]) -> tuple[list[Operation], list[RowKey]]:
    """Operations and where their random numbers come from, with the hooks of debug mode before the first and after each."""
    first = _name(operations[0])
    shown = [(hook, keys[0]) for hook in _hooks_of(first, is_first=True)]
    for operation, key in zip(operations, keys, strict=True):
        shown += [(operation, key), *((hook, key) for hook in _hooks_of(_name(operation), is_first=False))]
    return [operation for operation, _ in shown], [key for _, key in shown]


def _hooks_of(name: str, is_first: bool) -> list[Operation]:
    hooks: list[Operation] = []
    for given in config.debug_hooks():
        hook = copy.deepcopy(given)  # each may keep what it saw
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
    rows: Iterator[Row],
    function: Callable[[Block, Indices], Block],
    in_order: InOrder,
    mode: config.ErrorSamplesMode,
) -> Iterator[Row]:
    """Every row through a block function; what fails is left out or replaced.

    Raises:
        SporaxRuntimeError: rows are to be replaced, and none is good.
    """
    good: list[Row] = []
    failed = 0
    for result in in_order(enumerate(rows), _Tried(OnRow(function))):
        if isinstance(result, str):
            failed += 1
            warnings.warn(f"For 'map', a row was {'left out' if mode is mode.SKIP else 'replaced'}: {result}")
            continue
        if mode is mode.REPLACE and len(good) < _STAND_INS:
            good.append({name: value.copy() for name, value in result.items()})
        yield result
    if mode is mode.SKIP or not failed:
        return
    if not good:
        raise SporaxRuntimeError("For 'map', rows that fail are to be replaced, but there is no good one: all failed.")
    for row in itertools.islice(itertools.cycle(good), failed):
        yield {name: value.copy() for name, value in row.items()}
