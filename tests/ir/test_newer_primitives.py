"""Primitives that only some versions of JAX have behave as older ones, in every table by name."""

from sporax.ir.operation import LIKE, with_newer
from sporax.planner.memory.backend import COSTLY
from sporax.planner.memory.xla_cpu.instructions import SIMPLE
from sporax.planner.rules import TABLE


def test_newer_names_come_with_the_older_ones_that_they_behave_as():
    assert with_newer(["square", "add"]) == {"square", "add", "one_minus_square"}
    assert with_newer([]) == frozenset()


def test_they_have_the_entries_of_the_older_ones():
    assert all(TABLE[newer] is TABLE[older] for newer, older in LIKE.items())
    assert not set(LIKE) & set(LIKE.values())


def test_costs_follow_and_what_is_several_instructions_is_not_simple():
    assert "log2" in COSTLY
    assert "square" in SIMPLE
    assert "one_minus_square" not in SIMPLE
