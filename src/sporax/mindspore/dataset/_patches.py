"""Images cut in patches, one for each rank, where one process is all ranks.

Scripts that cut images give each rank its own patch: `map` with `SlicePatches`, then `project` to the patch that the rank's
number picks. A process that drives all devices is rank 0 and picks the first; but it feeds inputs whole. So what follows
`project` runs once for each patch, and the results are put together as the step's `dataset_strategy` will cut them: every
device gets what a rank of its own would have read. What comes before `project` (reading files, decoding, cutting) runs once
for all patches (`Readings`).
"""

from __future__ import annotations

import copy
import itertools
import math
import threading
from collections.abc import Iterator, Sequence

import numpy as np

from sporax.mindspore.dataset._flows import Flow, Stream, rows_of
from sporax.mindspore.dataset._nodes import Map, Node, Select
from sporax.mindspore.dataset._random import Pass
from sporax.mindspore.dataset._rows import Array, Block, Row, row_of
from sporax.mindspore.dataset._shares import with_all_shares
from sporax.mindspore.dataset._tables import Indices, Table
from sporax.mindspore.dataset.vision import SlicePatches

Cuts = tuple[int, ...] | None


class OnePatch(Select):
    """Columns chosen, among them one of the patches of an image; which one is said by the pass.

    Args:
        parent: the step before.
        columns: names of the columns that stay, the first patch among them.
        patches: names of all patches, in order.
    """

    def __init__(self, parent: Node, columns: Sequence[str], patches: Sequence[str]) -> None:
        super().__init__(parent, {name: name for name in columns})
        self.patches = tuple(patches)

    def build(self, run: Pass) -> Stream:
        """See Node."""
        # Under the name of the first patch, so that all passes have the same columns.
        taken = {self.patches[run.patch] if name == self.patches[0] else name: name for name in self.columns}
        return Select(_Together(self.parent), taken).build(run)


class _Together(Node):
    """A step of which the passes for all patches share one reading."""

    def __init__(self, parent: Node) -> None:
        super().__init__(parent.columns, [parent])

    def build(self, run: Pass) -> Stream:
        """See Node."""
        return self.parent.build(run) if run.readings is None else run.readings.stream(self.parent, run)

    def _count(self) -> int:
        return self.parent.num_rows()


class Readings:
    """Streams that several passes over one pipeline have in common, each read once.

    Args:
        count: how many passes there are; all of them read every stream.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._streams: dict[tuple[int, int, int], Stream] = {}

    def stream(self, node: Node, run: Pass) -> Stream:
        """What `node` gives in this pass, for one of the passes."""
        key = (id(node), run.index, run.epoch)
        if key not in self._streams:
            stream = node.build(run)
            self._streams[key] = (
                _Remembered(stream) if isinstance(stream, Table) else _Divided(stream, self._count).flow()
            )
        return self._streams[key]


class _Remembered(Table):
    """A table that knows what each thread has requested last: the next pass will request the same."""

    def __init__(self, parent: Table) -> None:
        self._parent = parent
        self._last: dict[int, tuple[bytes, Block]] = {}
        self.size = parent.size

    def gather(self, indices: Indices) -> Block:
        """See Table."""
        key, thread = indices.tobytes(), threading.get_ident()
        known = self._last.get(thread)
        if known is None or known[0] != key:
            known = self._last[thread] = (key, self._parent.gather(indices))
        # A copy: what follows may change its rows in place.
        return copy.deepcopy(known[1])

    def origin(self, index: int) -> str:
        """See Table."""
        return self._parent.origin(index)


class _Divided:
    """A flow whose rows go to several readers, which are never far from each other."""

    def __init__(self, flow: Flow, count: int) -> None:
        self._flow = flow
        self._count = count
        self._left: list[Iterator[Row]] = []

    def flow(self) -> Flow:
        """The rows for the next reader, each time that it is started."""
        return Flow(self._next)

    def _next(self) -> Iterator[Row]:
        # Readers start in turn, so the first of them after all have started begins another reading.
        if not self._left:
            self._left = list(itertools.tee(self._flow.rows(), self._count))
        return map(copy.deepcopy, self._left.pop(0))


class AllPatches(Node):
    """A pipeline for each patch, their columns put together where a step cuts them into as many slices.

    Args:
        parent: the pipeline.
        cuts: for each column how the step cuts it; None for columns that are the same for all patches.
        num_patches: how many there are.
    """

    def __init__(self, parent: Node, cuts: Sequence[Cuts], num_patches: int) -> None:
        super().__init__(parent.columns, [parent])
        self._cuts = tuple(cuts)
        self._num_patches = num_patches

    def build(self, run: Pass) -> Stream:
        """See Node."""
        readings = Readings(self._num_patches)
        streams = [self.parent.build(run.with_patch(number, readings)) for number in range(self._num_patches)]
        tables = [stream for stream in streams if isinstance(stream, Table)]
        if len(tables) == len(streams):
            return _Joined(tables, self.columns, self._cuts)
        return Flow(
            lambda: (_row_of_all(rows, self.columns, self._cuts) for rows in zip(*map(rows_of, streams), strict=True))
        )

    def _count(self) -> int:
        return self.parent.num_rows()


class _Joined(Table):
    """The tables of all patches as one."""

    def __init__(self, parts: Sequence[Table], columns: Sequence[str], cuts: Sequence[Cuts]) -> None:
        self._parts = parts
        self._columns = columns
        self._cuts = cuts
        self.size = parts[0].size

    def gather(self, indices: Indices) -> Block:
        """See Table."""
        rows = [
            _row_of_all([row_of(part.gather(indices[at : at + 1])) for part in self._parts], self._columns, self._cuts)
            for at in range(len(indices))
        ]
        return {name: [row[name] for row in rows] for name in self._columns}


def _row_of_all(rows: Sequence[Row], columns: Sequence[str], cuts: Sequence[Cuts]) -> Row:
    """One row of the rows of all patches."""
    return {
        # Columns that are not cut are equal in all passes.
        name: rows[0][name] if cut is None else together([row[name] for row in rows], cut)
        for name, cut in zip(columns, cuts, strict=True)
    }


def selected(parent: Node, columns: Sequence[str]) -> Select:
    """The step that keeps `columns`."""
    # Through the whole chain: `batch` or `map` may come between the cutting and `project`.
    for node in parent.walk():
        if isinstance(node, Map) and isinstance(node.operations[-1], SlicePatches) and len(node.outputs) > 1:
            kept = [name for name in columns if name in node.outputs]
            # Only a choice of the first patch alone stands for the rank's choice; another choice is meant as it is.
            if kept == [node.outputs[0]] and set(node.outputs) <= set(parent.columns):
                return OnePatch(parent, columns, node.outputs)
    return Select(parent, {name: name for name in columns})


def for_all_ranks(node: Node) -> Node:
    """The pipeline as this process reads it, which may have to read for all ranks. The present settings count."""
    node = with_all_shares(node)
    picked = next((below for below in node.walk() if isinstance(below, OnePatch)), None)
    if picked is None:
        return node
    from sporax.mindspore.parallel import (
        _inputs as inputs,  # here: it brings networks along, which pipelines do not need
    )

    # Asked when reading starts, since the context may be set after the pipeline is described.
    input_cuts = [inputs.cuts_of_whole_input(number) for number in range(len(node.columns))]
    # A column is put together only where the step's cut has as many parts as there are patches.
    cuts = [cut if cut and math.prod(cut) == len(picked.patches) else None for cut in input_cuts]
    return AllPatches(node, cuts, len(picked.patches)) if any(cuts) else node


def together(patches: Sequence[Array], cuts: Sequence[int]) -> Array:
    """One array of patches in row-major order.

    Args:
        patches: as many as the product of `cuts`, all of one shape.
        cuts: number of patches along each dimension.

    Example:
        >>> together([np.zeros((2, 1)), np.ones((2, 1))], (1, 2)).tolist()
        [[0.0, 1.0], [0.0, 1.0]]
    """
    parts = list(patches)
    # From the last dimension to the first, since patches come in row-major order.
    for dim in reversed(range(len(cuts))):
        if cuts[dim] > 1:
            parts = [np.concatenate(parts[at : at + cuts[dim]], axis=dim) for at in range(0, len(parts), cuts[dim])]
    return parts[0]
