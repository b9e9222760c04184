"""Time, reduced to the moments that matter.

The memory limit holds at every time, but most times say nothing: the live set at a time just before something else
starts is part of a later live set. Only *maximal* live sets are kept, as numbered rows; a node's live interval becomes
a range of rows, empty when every set it belongs to is contained in another one that it also belongs to.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sporax.planner.solver.graph import CostGraph, Ints


@dataclass(frozen=True, slots=True)
class Timeline:
    """The rows of a graph's memory constraint.

    Attributes:
        times: [R] the time that each row stands for, ascending.
        spans: [N, 2] each node's half-open range of rows.
    """

    times: Ints
    spans: Ints

    @classmethod
    def of(cls, intervals: Ints) -> Timeline:
        """Finds the maximal live sets of half-open `intervals` [N, 2]."""
        live = intervals[intervals[:, 1] > intervals[:, 0]]
        begins, ends = np.unique(live[:, 0]), np.unique(live[:, 1])
        # A live set is maximal where something begins and the next event is an end.
        following = np.searchsorted(ends, begins, side="right")
        next_begin = np.append(begins[1:], np.iinfo(np.int64).max)
        times = begins[ends[following] <= next_begin] if len(begins) else begins
        spans = np.stack([np.searchsorted(times, intervals[:, 0]), np.searchsorted(times, intervals[:, 1])], axis=1)
        spans[:, 1] = np.maximum(spans[:, 0], spans[:, 1])
        return cls(times, spans.astype(np.int64))

    @property
    def num_rows(self) -> int:
        """Number of rows, R."""
        return len(self.times)

    def loads(self, node_usages: Ints) -> Ints:
        """Total usage per row [R], given each node's usage [N]."""
        change = np.zeros(self.num_rows + 1, dtype=np.int64)
        np.add.at(change, self.spans[:, 0], node_usages)
        np.subtract.at(change, self.spans[:, 1], node_usages)
        return np.cumsum(change)[:-1]


def peak_of(graph: CostGraph, node_usages: Ints) -> tuple[int, int]:
    """Greatest total usage over all times and a time at which it occurs (0, 0 when nothing is ever live)."""
    timeline = Timeline.of(graph.intervals)
    if not timeline.num_rows:
        return 0, 0
    loads = timeline.loads(node_usages)
    row = int(loads.argmax())
    return int(loads[row]), int(timeline.times[row])
