"""Steps with several parents: pipelines side by side, and one after another."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from sporax.base.errors import SporaxRuntimeError
from sporax.mindspore.dataset._flows import Flow, Stream, rows_of, zipped
from sporax.mindspore.dataset._nodes import Node
from sporax.mindspore.dataset._random import Pass
from sporax.mindspore.dataset._tables import ENDLESS, Concatenated, Reordered, Table, Zipped
from sporax.mindspore.dataset.samplers import BuiltinSampler


class Zip(Node):
    """Pipelines side by side, as long as the shortest."""

    def __init__(self, parents: Sequence[Node]) -> None:
        columns = [name for parent in parents for name in parent.columns]
        double = next((name for i, name in enumerate(columns) if name in columns[:i]), None)
        if double is not None:
            raise SporaxRuntimeError(
                f"For 'zip', the datasets must have different columns, but {double!r} occurs twice; rename one."
            )
        super().__init__(columns, parents)

    def build(self, run: Pass) -> Stream:
        """See Node."""
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
                    "For 'concat', the datasets must have the same columns in the same order, but got "
                    f"{list(parents[0].columns)} and {list(parent.columns)}."
                )
        super().__init__(parents[0].columns, parents)
        self.sampler = sampler

    def build(self, run: Pass) -> Stream:
        """See Node."""
        streams = [parent.build(run) for parent in self.parents]
        tables = [stream for stream in streams if isinstance(stream, Table) and stream.size < ENDLESS]
        if len(tables) == len(streams):
            whole = Concatenated(tables)
            return whole if self.sampler is None else Reordered(whole, self.sampler.order(whole.size, run))
        if self.sampler is not None:
            raise SporaxRuntimeError("For 'use_sampler', all datasets must have random access, but one is sequential.")
        return Flow(lambda: itertools.chain.from_iterable(rows_of(stream) for stream in streams))

    def _count(self) -> int:
        whole = sum(parent.num_rows() for parent in self.parents)
        return whole if self.sampler is None else len(self.sampler.order(whole, Pass(0, 0)))
