"""Time, reduced to the moments that matter.

The memory limit holds at every time, but most times say nothing: the live set at a time just before something else
starts is part of a later live set. Only *maximal* live sets are kept, as numbered rows; a node's live interval becomes
a range of rows, empty when every set it belongs to is contained in another one that it also belongs to.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sporax.planner.solver.graph.cost_graph import Ints


@dataclass(frozen=True, slots=True)
class Moments:
    """The rows of a graph's memory constraint.

    Attributes:
        times: [R] the time that each row stands for, ascending.
        spans: [N, 2] each node's half-open range of rows.
    """

    times: Ints
    spans: Ints

    @classmethod
    def of(cls, intervals: Ints) -> Moments:
        """Finds the maximal live sets of half-open `intervals` [N, 2]."""
        live = intervals[intervals[:, 1] > intervals[:, 0]]
        begins, ends = np.unique(live[:, 0]), np.unique(live[:, 1])
        # A live set is maximal where something begins and the next event is an end.
        # At one time, ends come before begins: intervals are half open, hence `side="right"`.
        following = np.searchsorted(ends, begins, side="right")
        next_begin = np.append(begins[1:], np.iinfo(np.int64).max)
        times = begins[ends[following] <= next_begin] if len(begins) else begins
        # Rows inside [begin, end): those between the two insertion points.
        spans = np.stack([np.searchsorted(times, intervals[:, 0]), np.searchsorted(times, intervals[:, 1])], axis=1)
        # A node may have an empty interval: begin past its end would be a span of negative length.
        spans[:, 1] = np.maximum(spans[:, 0], spans[:, 1])
        return cls(times, spans.astype(np.int64))

    @property
    def num_rows(self) -> int:
        """Number of rows, R."""
        return len(self.times)
