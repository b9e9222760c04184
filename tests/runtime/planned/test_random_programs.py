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
    problem = random_programs.failure(LITERAL, runs=True)
    assert problem.startswith("numbers: For 'verify'")
    small = random_programs.smallest(replace(LITERAL, outputs=(3,)), problem, runs=True)
    assert small.outputs == (1,)
    assert "v2" not in str(small)


STACKED = random_programs.Program(
    ((4, 2, 2),), ("jnp.stack([v0, v0], -1)", "v1.sum(0)", "v2.max(-1)"), (3,), True, (1,), "recursive", "tpu-v5p"
)
"""Axes of two devices each shard all dimensions, which runs of several axes cannot."""

LOOPED = random_programs.Program(
    ((8,), (16, 8)),
    (
        "jax.vmap(lambda r: v1.sum(0) * r.mean())(v1)",
        "v2.prod(0)",
        "v2.reshape(-1)",
        "lax.scan(lambda c, x: (c + x.sum(), c * 0.5 + x), 1.0, v2)[1]",
        "lax.cond(v4.sum() > 1, lambda x: x * 2, lambda x: x + 1, v5)",
        "lax.while_loop(lambda c: jnp.abs(c).max() > 0.5, lambda c: c * 0.6, v2)",
        "lax.top_k(v4, 2)[0]",
        "jax.checkpoint(lambda x: jnp.sin(x) * x.sum())(v7)",
    ),
    (4, 6, 9), False, (8, 8), "ilp", "h100",
)  # fmt: skip
ROWS = random_programs.Program(
    ((4, 8, 16),), ("jnp.zeros((8, 4)).at[:, 0].set(v0.sum())", "v1.at[1].multiply(v1.sum())"), (1, 2), False, (1,),
    "repeated_blocks", "ascend910", 2,
)  # fmt: skip


@pytest.mark.parametrize("program", [STACKED, LOOPED, ROWS])
def test_no_search_is_below_what_another_one_has_proven(program):
    assert not random_programs.failure(program, runs=False, all_modes=True), str(program)
