"""Arrays in one piece of memory: nothing overlaps, gaps are used, and what is left over is as much as XLA needs."""

from hypothesis import given, strategies as st

from sporax.planner.memory.buffer_assignment import (
    Allocation,
    HeapBuffer,
    LiveArray,
    arrays_in_allocations,
    heap_offsets,
)


def most(buffers):
    """Bytes that are there at a time, at most."""
    spans = [(*item.spans[0], item.num_bytes) for item in buffers]
    times = range(1 + max(end for _, end, _ in spans))
    return max(sum(size for begin, end, size in spans if begin <= time <= end) for time in times)


def buffer(begin, end, num_bytes):
    return HeapBuffer(((begin, end),), num_bytes)


def test_arrays_that_follow_each_other_share_their_place():
    assert heap_offsets([]) == []
    assert heap_offsets([buffer(0, 1, 640), buffer(2, 3, 640), buffer(3, 4, 64)]) == [0, 0, 640]


def test_arrays_begin_at_multiples_of_the_alignment():
    assert heap_offsets([buffer(0, 2, 100), buffer(0, 2, 10), buffer(0, 1, 1)]) == [0, 128, 192]


def test_the_smallest_gap_that_fits_is_taken():
    """When the last one comes, 320 bytes are free above the first array, and 128 below the top."""
    spans = [(0, 9, 512), (0, 4, 320), (0, 9, 256), (0, 4, 128), (0, 9, 64), (5, 9, 60)]
    assert heap_offsets([buffer(*span) for span in spans]) == [0, 512, 832, 1088, 1216, 1088]


def test_what_does_not_fit_between_others_needs_more_than_there_is_at_a_time():
    buffers = [buffer(3, 6, 192), buffer(2, 3, 128), buffer(0, 2, 128), buffer(1, 1, 192)]
    assert most(buffers) == 320
    assert heap_offsets(buffers) == [0, 320, 192, 0]


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 8), st.integers(1, 1000)), min_size=1, max_size=25))
def test_nothing_lies_over_anything_else(spans):
    buffers = [buffer(begin, begin + length, size) for begin, length, size in spans]
    starts = heap_offsets(buffers)
    for one, (first, start) in enumerate(zip(buffers, starts, strict=True)):
        assert start % 64 == 0
        for other, begin in list(zip(buffers, starts, strict=True))[:one]:
            (((start_of, end_of),), ((begin_of, last_of),)) = first.spans, other.spans
            together = start_of <= last_of and begin_of <= end_of
            assert not together or start + first.num_bytes <= begin or begin + other.num_bytes <= start
    assert most(buffers) <= max(start + item.num_bytes for start, item in zip(starts, buffers, strict=True))


def test_arrays_that_are_written_over_each_other_come_and_go_one_by_one():
    """Of two of one size that is placed first during whose life more comes and goes: here the one beside the chain."""
    chain, single, later = HeapBuffer(((1, 2), (2, 3)), 16), buffer(6, 7, 16), buffer(8, 10, 16)
    assert heap_offsets([buffer(5, 9, 64), buffer(0, 5, 64), chain, single, later])[:2] == [64, 0]
    assert heap_offsets([buffer(5, 9, 64), buffer(0, 5, 64), single, later])[:2] == [0, 64]


def live_array(array, begin, end, num_bytes=64, over=()):
    return LiveArray(array, begin, end, num_bytes, over)


def test_places_that_stand_empty_take_in_what_fits_for_its_whole_life():
    place = Allocation(64, live_array(0, -1, 2), live_array(1, 8, 9))
    assert arrays_in_allocations([place], [live_array(2, 3, 7)]) == {2}
    assert (
        arrays_in_allocations([place], [live_array(2, 2, 7)])
        == arrays_in_allocations([place], [live_array(2, 3, 8)])
        == set()
    )
    assert arrays_in_allocations([place], [live_array(2, 3, 7, 65)]) == set()
    assert arrays_in_allocations(
        [Allocation(64, None, live_array(1, 8, 9)), Allocation(64, live_array(0, -1, 2), None)],
        [live_array(2, 0, 7), live_array(3, 3, 9)],
    ) == {2, 3}


def test_the_largest_move_in_first_and_into_the_smallest_place():
    place = Allocation(64, live_array(0, -1, 2), live_array(1, 8, 9))
    assert arrays_in_allocations(
        [place], [live_array(2, 3, 5, 16), live_array(3, 5, 6, 32), live_array(4, 6, 7, 16)]
    ) == {3}
    assert arrays_in_allocations([place], [live_array(2, 3, 5), live_array(3, 5, 7)]) == {2}
    large = Allocation(128, live_array(5, -1, 2), live_array(6, 8, 9))
    assert arrays_in_allocations([large, place], [live_array(2, 3, 7), live_array(3, 3, 7, 128)]) == {2, 3}


def test_what_is_written_over_its_operand_follows_it_at_once():
    place = Allocation(64, live_array(0, -1, 2), live_array(1, 8, 9, over=[3]))
    assert arrays_in_allocations([place], [live_array(2, 3, 5), live_array(3, 5, 8, over=[2])]) == {2, 3}
    assert arrays_in_allocations([place], [live_array(2, 3, 5), live_array(3, 5, 7)]) == {2}
