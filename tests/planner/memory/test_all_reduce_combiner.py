"""Which reductions become one all-reduce."""

from sporax.planner.memory import backend
from sporax.planner.memory.backend import combined_all_reduces
from sporax.planner.memory.xla_cpu.instructions import Instruction, Kind


def reduction(reads, writes, key=("axis 0", "sum")):
    return Instruction(Kind.KERNEL, (reads,), (writes,), 0, sends=True, combines=key)


def loop(reads, writes):
    return Instruction(Kind.LOOP, (reads,), (writes,), 0)


def test_independent_reductions_over_the_same_devices_become_one():
    assert combined_all_reduces([reduction(0, 10), loop(1, 2), reduction(2, 11), reduction(3, 12)]) == [[0, 2, 3]]


def test_reductions_over_other_devices_or_of_other_kinds_stay_apart():
    pieces = [reduction(0, 10), reduction(1, 11, ("axis 1", "sum")), reduction(2, 12, ("axis 0", "max"))]
    assert combined_all_reduces(pieces) == [[0], [1], [2]]


def test_a_reduction_that_waits_for_another_is_not_combined_with_it():
    assert combined_all_reduces([reduction(0, 1), loop(1, 2), reduction(2, 3)]) == [[0], [2]]


def test_a_reduction_behind_a_barrier_is_not_combined_with_one_before_it():
    """It reads nothing that the first one wrote, but what it reads passed a barrier with that."""
    behind = Instruction(Kind.KERNEL, (2,), (3,), 0, sends=True, combines=("axis 0", "sum"), after=frozenset([1]))
    assert combined_all_reduces([reduction(0, 1), behind]) == [[0], [1]]


def test_what_waits_for_one_of_a_group_waits_for_all_of_it():
    """The last one waits for the third, which is combined with the second, which waits for the first: no circle."""
    other = ("axis 1", "sum")
    pieces = [reduction(0, 10), reduction(10, 11, other), reduction(1, 12, other), reduction(12, 13)]
    assert combined_all_reduces(pieces) == [[0], [1, 2], [3]]


def test_a_group_has_a_greatest_size(monkeypatch):
    monkeypatch.setattr(backend, "_MOST_COMBINED", 2)
    assert combined_all_reduces([reduction(n, 10 + n) for n in range(5)]) == [[0, 1], [2, 3], [4]]
