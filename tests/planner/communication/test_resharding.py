"""Planned redistributions: known sequences, costs, limits. `tests/lowering/test_redistribute.py` executes them."""

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.errors import SporaxValueError
from sporax.ir.layout import Layout
from sporax.ir.placement import Placement, every_placement, prime_mesh
from sporax.planner.communication import shortest_path
from sporax.planner.communication.resharding import DEFAULT_COSTS, LinkCosts, redistribute
from sporax.planner.communication.shortest_path import find_moves

MESH = prime_mesh(DeviceMatrix((16,)))
SHAPE = (64, 32)


def by_split(rows, columns):
    return Placement.from_layout(Layout.from_split((rows, columns), 16), MESH)


def seen_by_rank_0(plan):
    """Per move its kind and, for collectives, the group of rank 0."""
    return [
        (move.kind.value, MESH.group_of(0, move.axes)) if move.collective else (move.kind.value,) for move in plan.moves
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


def test_costs_are_those_of_the_alpha_beta_model():
    costs = LinkCosts(1e-6, 1e-9, launch_seconds=0.0)
    alpha, beta = 1e-6, 1e-9
    num_bytes, n = 4096, 4
    assert costs.gather((0, 1), (2, 2), num_bytes / n) == pytest.approx(2 * alpha + beta * num_bytes * (n - 1) / n)
    assert costs.gather((0,), (4,), num_bytes / n) == pytest.approx((n - 1) * alpha + beta * num_bytes * (n - 1) / n)
    assert costs.reduce_scatter((0,), (4,), num_bytes) == costs.gather((0,), (4,), num_bytes / n)
    assert costs.all_reduce((0,), (4,), num_bytes) == pytest.approx(2 * costs.gather((0,), (4,), num_bytes / n))
    share = num_bytes / n
    assert costs.all_to_all((0,), (4,), share) == pytest.approx((n - 1) * alpha + beta * share * (n - 1) / n)
    assert costs.permute((0,), (4,), share) == pytest.approx(alpha + beta * share)
    assert costs.slice((4, 2), num_bytes) == costs.copy(num_bytes / 8)


def test_slow_axes_are_avoided():
    """Gathering over a fast and a slow axis: the order of the axes decides how much the slow one carries."""
    slow_first = LinkCosts(axis_alpha=(1e-6,) * 4, axis_beta=(1e-9, 1e-11, 1e-11, 1e-11))
    assert slow_first.gather((1, 0), (2, 2), 1e6) < slow_first.gather((0, 1), (2, 2), 1e6)


def test_remembered():
    first = redistribute((64, 64), 4, read("0 -"), read("- 0"), MESH)
    assert redistribute((64, 64), 4, read("0 -"), read("- 0"), MESH) is first


def test_uneven_cut():
    with pytest.raises(SporaxValueError, match=r"\(6, 8\) must be divisible .* \[axis 0·axis 1, -\].*\(4, 1\)"):
        redistribute((6, 8), 4, read("01 -"), read("- -"), MESH)


def test_nearly_nothing_is_lost_by_looking_only_where_axes_are_wanted():
    """Against a search through all places, on a sample of the pairs of a three-axis mesh, for a small and a large tensor."""
    mesh = DeviceMatrix((2, 2, 2))
    placements = list(every_placement(2, 3))
    choose = random.Random(1)
    pairs = [(choose.choice(placements), choose.choice(placements)) for _ in range(60)]
    worse = []
    for shape, (source, target) in itertools.product([(64, 64), (2048, 4096)], pairs):
        ours = redistribute(shape, 4, source, target, mesh).seconds
        best = find_moves(shape, 4, source, target, mesh, True, DEFAULT_COSTS, everywhere=True).seconds
        assert best <= ours * 1.0001 <= best * 1.2, f"{source} to {target}"
        worse.append(ours > best * 1.0001)
    assert sum(worse) <= 0.1 * len(worse)


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


PARTS = [Placement(((), (1,)), (0, 2)), Placement(((), (1,)), (0,), "max"), Placement(((), ()), (0, 1, 2))]


@pytest.mark.parametrize("max_states", [500, 1, 0])
@pytest.mark.parametrize("alltoall", [True, False])
def test_there_is_always_a_way(monkeypatch, max_states, alltoall):
    """Between all placements, parts included, whether the search may look far or not."""
    monkeypatch.setattr(shortest_path, "MAX_STATES", max_states)
    mesh = DeviceMatrix((2, 2, 2))
    placements = [*list(every_placement(2, 3))[::3], *PARTS]
    for source, target in itertools.product(placements, placements):
        plan = find_moves((8, 16), 4, source, target, mesh, alltoall, DEFAULT_COSTS)
        assert bool(plan.moves) == (source != target)
        assert alltoall or not {"all_to_all", "permute"} & {move.kind.value for move in plan.moves}
