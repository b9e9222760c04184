import itertools

import pytest
from hypothesis import given, strategies as st

from sporax.base.errors import SporaxRuntimeError
from sporax.planner.pipeline.partition import Block, partition

SIZES = st.integers(1, 9)


@given(st.lists(st.tuples(SIZES, SIZES, SIZES), min_size=3, max_size=7), st.integers(1, 3), st.integers(10, 80))
def test_it_is_the_best_of_all_partitions(sizes, num_stages, memory):
    blocks = [Block(str(i), t, s, m, m) for i, (t, s, m) in enumerate(sizes)]
    best = None
    for cuts in itertools.combinations(range(1, len(blocks)), num_stages - 1):
        starts = (0, *cuts)
        parts = [blocks[a:b] for a, b in zip(starts, (*cuts, len(blocks)), strict=True)]
        peaks = [
            sum(b.state_bytes + min(4, num_stages - stage) * b.saved_bytes for b in part)
            for stage, part in enumerate(parts)
        ]
        if max(peaks) <= memory:
            value = (max(sum(b.seconds for b in part) for part in parts), sum(blocks[c - 1].sent_bytes for c in cuts))
            best = min(best or value, value)
    if best is None:
        with pytest.raises(SporaxRuntimeError, match="but none does"):
            partition(blocks, num_stages, 4, memory)
        return
    actual = partition(blocks, num_stages, 4, memory)
    assert max(actual.seconds) == best[0]
    assert max(actual.peak_bytes) <= memory


def test_equal_blocks_are_dealt_evenly():
    actual = partition([Block(str(number), 1.0) for number in range(8)], 4, 8)
    assert actual.starts == (0, 2, 4, 6)
    assert [actual.stage_of(number) for number in range(8)] == [0, 0, 1, 1, 2, 2, 3, 3]


def test_there_must_be_enough_blocks():
    with pytest.raises(SporaxRuntimeError, match="each of the 4 stages, but there are 1"):
        partition([Block("a", 1.0)], 4, 8)
