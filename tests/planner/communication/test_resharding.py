"""Planned redistributions: known sequences, costs, limits. `tests/lowering/execute/test_redistribute.py` executes them."""

import random

import pytest
from hypothesis import given, settings, strategies as st

from sporax.base.errors import SporaxValueError
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.layout import Layout
from sporax.ir.placement import Placement, prime_mesh
from sporax.planner.communication.resharding import redistribute

MESH = prime_mesh(DeviceMatrix((16,)))
SHAPE = (64, 32)


def by_split(rows, columns):
    return Placement.from_layout(Layout.from_split((rows, columns), 16), MESH)


def seen_by_rank_0(plan):
    """Per move its kind and, for collectives, the group of rank 0."""
    return [
        (move.kind.value, MESH.groups(move.axes)[0]) if move.collective else (move.kind.value,) for move in plan.moves
    ]


GOLDEN_OFF = {
    ((4, 4), (8, 2)): [("all_gather", (0, 1)), ("all_gather", (0, 2)), ("slice",), ("slice",)],
    ((8, 2), (4, 4)): [("all_gather", (0, 1)), ("all_gather", (0, 2)), ("slice",), ("slice",)],
    ((2, 8), (4, 4)): [("all_gather", (0, k)) for k in (1, 2, 4)] + [("slice",)] * 3,
    ((4, 4), (2, 8)): [("all_gather", (0, k)) for k in (1, 2, 4)] + [("slice",)] * 3,
    ((1, 16), (16, 1)): [("all_gather", tuple(range(16))), ("slice",)],
}
GOLDEN_ON = {
    ((4, 4), (8, 2)): [("all_to_all", (0, 1)), ("all_to_all", (0, 2))],
    ((1, 16), (16, 1)): [("all_to_all", tuple(range(16)))],
}


@pytest.mark.parametrize("pair", GOLDEN_OFF)
def test_mindspore_sequences_without_alltoall(pair):
    """The same collectives over the same groups, and as many slices, as MindSpore's for the same layouts.

    MindSpore gathers every axis that moves before it slices; here a slice comes as soon as its axis is free, so that the
    next gather moves half as much. Only the order differs.
    """
    plan = redistribute(SHAPE, 4, by_split(*pair[0]), by_split(*pair[1]), MESH, alltoall=False)
    assert sorted(seen_by_rank_0(plan)) == sorted(GOLDEN_OFF[pair])


@pytest.mark.parametrize("pair", GOLDEN_ON)
def test_mindspore_sequences_with_alltoall(pair):
    plan = redistribute(SHAPE, 4, by_split(*pair[0]), by_split(*pair[1]), MESH)
    assert sorted(seen_by_rank_0(plan)) == sorted(GOLDEN_ON[pair])


@pytest.mark.parametrize(
    ("source", "target", "moves"),
    [
        ("0 -", "- -", "all_gather"),
        ("- 0", "0 -", "all_to_all"),
        ("- -", "01 2", "slice slice"),
        ("0 -", "1 -", "permute"),
        ("01 -", "10 -", "permute"),
        ("- - +0", "0 -", "reduce_scatter"),
        ("- - +0", "- -", "all_reduce"),
        ("- - +01", "- -", "all_reduce"),
        ("- - +01", "0 -", "reduce_scatter all_reduce"),
        ("- -", "- - +0", "mask"),
        ("- -", "- - +012", "mask"),
        ("0 - +1", "- 0 +1", "all_to_all"),
        ("0 1", "0 1", ""),
    ],
)
def test_known_sequences(source, target, moves):
    plan = redistribute((64, 64), 4, read(source), read(target), MESH)
    assert [move.kind.value for move in plan.moves] == moves.split()
    assert str(plan)


def read(text):
    rows, columns, *partial = text.split()
    dims = tuple(() if dim == "-" else tuple(map(int, dim)) for dim in (rows, columns))
    return Placement(dims, tuple(map(int, partial[0][1:])) if partial else ())


def test_column_to_row_without_alltoall():
    plan = redistribute((64, 64), 4, read("- 0"), read("0 -"), MESH, alltoall=False)
    assert [move.kind.value for move in plan.moves] == ["all_gather", "slice"]


def test_the_same_redistribution_is_planned_once():
    first = redistribute((64, 64), 4, read("0 -"), read("- 0"), MESH)
    assert redistribute((64, 64), 4, read("0 -"), read("- 0"), MESH) is first


def test_uneven_sharding():
    with pytest.raises(SporaxValueError, match=r"\(6, 8\) must be divisible .* \[axis 0·axis 1, -\].*\(4, 1\)"):
        redistribute((6, 8), 4, read("01 -"), read("- -"), MESH)


@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_many_axes_still_find_a_way(seed):
    """Ten axes thrown about: beyond what the search looks through, yet a way is found, and says that it may not be best."""
    choose = random.Random(seed)
    mesh = DeviceMatrix((2,) * 10)
    source, target = (thrown(choose) for _ in range(2))
    plan = redistribute((2**10,) * 3, 4, source, target, mesh)
    assert plan.source == source
    assert plan.target == target
    assert plan.moves or source == target


def thrown(choose):
    axes = choose.sample(range(10), 10)
    owners = [choose.randrange(4) for _ in axes]
    return Placement(
        tuple(tuple(axis for axis, owner in zip(axes, owners, strict=True) if owner == dim) for dim in range(3))
    )
