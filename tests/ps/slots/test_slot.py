"""Which values of a slot stay readable."""

from __future__ import annotations

import numpy as np
import pytest

from sporax.ps.protocol.messages import OptimizerSpec, Record, Source, VariableSpec, VariableValues
from sporax.ps.protocol.wire import chunks
from sporax.ps.slots.slot import Segment, SlotState

SIZE = 6
SPEC = VariableSpec(0, "w", SIZE, 0, OptimizerSpec("sgd"))


def ones(rate: float) -> tuple[list[VariableValues], list[bytes | memoryview]]:
    """An entry of ones for the variable."""
    return [VariableValues(0, rate, -1, SIZE)], chunks(np.ones(SIZE, np.float32))


@pytest.mark.parametrize(("staleness", "before"), [(0, [1.0] * SIZE), (2, None), (-1, None)])
def test_only_synchronous_slots_store_the_value_of_one_clock_ago(staleness: int, before: list[float] | None) -> None:
    state = SlotState(0, staleness)
    state.apply(Record(0, 1, 1, [SPEC], [], ones(0.0)[0]), ones(0.0)[1])
    state.apply(Record(0, 2, 1, [], [Source(0, 1, 1, 0)], ones(0.5)[0]), ones(0.5)[1])
    for copy in (state, SlotState.from_image(*state.image(), staleness)):
        segment = copy.variables[0]
        assert isinstance(segment, Segment)
        assert segment.value.tolist() == [0.5] * SIZE
        assert (None if segment.before is None else segment.before.tolist()) == before
