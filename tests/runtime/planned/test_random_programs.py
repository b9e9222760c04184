"""Random programs of plain JAX, planned in every way, next to one device (`tools/random_programs.py`)."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))

import random_programs

LITERAL = random_programs.Program(
    ((8, 4),), ("v0.sum() + 1.5", "v0 * 2", "v1 + v2"), (1, 3), False, (8,), "dynamic", "h100"
)


@pytest.mark.parametrize("number", [0, 6])
def test_programs_are_those_of_one_device(number):
    program = random_programs.drawn(5, number, 6)
    assert program == random_programs.drawn(5, number, 6)
    assert not random_programs.failure(program, runs=True), str(program)


def test_what_differs_is_found_and_made_smaller(monkeypatch):
    from sporax.lowering.execute import redistribute
    from sporax.planner.communication.moves import MoveKind

    assert not random_programs.failure(LITERAL, runs=True)
    right = redistribute._MOVES[MoveKind.ALL_REDUCE]
    monkeypatch.setitem(redistribute._MOVES, MoveKind.ALL_REDUCE, lambda x, *other: right(x, *other) * 1.5)
    told = random_programs.failure(LITERAL, runs=True)
    assert told.startswith("numbers: For 'verify'")
    small = random_programs.smallest(replace(LITERAL, outputs=(3,)), told, runs=True)
    assert small.outputs == (1,)
    assert "v2" not in str(small)


STACKED = random_programs.Program(
    ((4, 2, 2),), ("jnp.stack([v0, v0], -1)", "v1.sum(0)", "v2.max(-1)"), (3,), True, (1,), "recursive", "tpu-v5p"
)
"""Axes of two devices each shard all dimensions, which runs of several axes cannot."""


@pytest.mark.parametrize("program", [STACKED, random_programs.drawn(0, 508, 9), random_programs.drawn(5, 3, 6)])
def test_no_search_is_below_what_another_one_has_proven(program):
    assert not random_programs.failure(program, runs=False, all_modes=True), str(program)
