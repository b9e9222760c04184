"""A `map` whose results a `DatasetCache` keeps."""

from __future__ import annotations

import copy
from collections.abc import Hashable
from typing import Any, TypeVar

from sporax.base.errors import SporaxRuntimeError
from sporax.mindspore.dataset import config
from sporax.mindspore.dataset._cache import CachedTable, DatasetCache, Same, fingerprint
from sporax.mindspore.dataset._flows import Stream
from sporax.mindspore.dataset._nodes import Map, Node, Select, Source
from sporax.mindspore.dataset._operations import Operation, PythonFunction
from sporax.mindspore.dataset._random import Pass
from sporax.mindspore.dataset._tables import Reordered, Table
from sporax.mindspore.dataset.samplers import SequentialSampler

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
        """See Node."""
        if config.get_debug_mode():
            return super().build(run)
        whole: Node = self._source.with_sampler(SequentialSampler())
        for step in reversed(self._steps):
            whole = _over(step, whole)
        table = _over(self, whole).build_uncached(run)
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
