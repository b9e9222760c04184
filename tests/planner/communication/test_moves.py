"""The moves of a redistribution and their cost."""

from dataclasses import replace

import pytest
from planner_graphs import placement

from sporax.ir.device_matrix import DeviceMatrix
from sporax.planner.communication.moves import DEFAULT_COSTS, LinkCosts, Move, MoveKind, Redistribution, default_costs
from sporax.planner.communication.resharding import redistribute

PLAIN = LinkCosts(alpha_seconds=1.0, beta_seconds_per_byte=0.5, launch_seconds=10.0, copy_seconds_per_byte=0.25)


@pytest.mark.parametrize(("move", "text"), [
    (Move(MoveKind.ALL_TO_ALL, (1, 2), 0, 1), "all_to_all(1·2, 0→1)"),
    (Move(MoveKind.ALL_GATHER, (0,), 1), "all_gather(0, dim 1)"),
    (Move(MoveKind.ALL_REDUCE, (0,), reduction="sum"), "all_reduce(0, sum)"),
    (Move(MoveKind.REDUCE_SCATTER, (0,), -1, 2, "max"), "reduce_scatter(0, dim 2, max)"),
])  # fmt: skip
def test_a_move_is_described_by_its_axes_and_dimensions(move, text):
    assert str(move) == text


@pytest.mark.parametrize(("kind", "reduction", "collective"), [
    (MoveKind.SLICE, "", ""),
    (MoveKind.MASK, "sum", ""),
    (MoveKind.ALL_REDUCE, "max", "all_reduce"),
    (MoveKind.ALL_REDUCE, "prod", "all_gather"),  # no collective multiplies: slices are gathered and combined
    (MoveKind.REDUCE_SCATTER, "sum", "reduce_scatter"),
    (MoveKind.REDUCE_SCATTER, "max", "all_to_all"),
    (MoveKind.PERMUTE, "", "permute"),
])  # fmt: skip
def test_reductions_that_collectives_do_not_know_use_others(kind, reduction, collective):
    assert Move(kind, (0,), reduction=reduction).collective == collective


@pytest.mark.parametrize(("kind", "reduction", "seconds"), [
    (MoveKind.ALL_GATHER, "", 10 + 3 * (1 + 0.5 * 8)),
    (MoveKind.REDUCE_SCATTER, "sum", 10 + 3 * (1 + 0.5 * 2)),
    (MoveKind.REDUCE_SCATTER, "max", 10 + 3 + 0.5 * 8 * 3 / 4),
    (MoveKind.ALL_REDUCE, "sum", 10 + 2 * 3 * (1 + 0.5 * 2)),
    (MoveKind.ALL_REDUCE, "prod", 10 + 3 * (1 + 0.5 * 8)),
    (MoveKind.ALL_TO_ALL, "", 10 + 3 + 0.5 * 8 * 3 / 4),
    (MoveKind.PERMUTE, "", 10 + 1 + 0.5 * 8),
    (MoveKind.SLICE, "", 1e-9 + 0.25 * 2),
    (MoveKind.MASK, "", 1e-9 + 0.25 * 8),
])  # fmt: skip
def test_eight_bytes_along_four_ranks_take_as_long_as_their_ring(kind, reduction, seconds):
    assert PLAIN.seconds(kind, reduction, (0,), (4,), 8) == pytest.approx(seconds)


def test_devices_without_a_reduce_scatter_trade_the_parts_of_sums():
    uneven = replace(PLAIN, axis_alpha=(1.0, 2.0), axis_beta=(0.5, 2.0), merged=(("reduce_scatter", 1e9),))
    for links, axes, sizes in (
        (PLAIN, (0,), (4,)),
        (PLAIN, (0, 1), (2, 4)),
        (uneven, (0, 1), (2, 4)),
        (uneven, (1,), (4,)),
    ):
        traded = replace(links, has_reduce_scatter=False).shared_by(10)
        assert traded.seconds(MoveKind.REDUCE_SCATTER, "sum", axes, sizes, 8) == pytest.approx(
            links.all_to_all(axes, sizes, 8)
        )
    assert default_costs(True) is DEFAULT_COSTS
    for has in (True, False):
        way = redistribute(
            (8, 8), 4, placement("- - +0"), placement("0 -"), DeviceMatrix((4,)), costs=default_costs(has)
        )
        (move,) = way.moves
        assert (move.kind, move.native, move.trades_parts) == (MoveKind.REDUCE_SCATTER, has, not has)
        assert move.collective == ("reduce_scatter" if has else "all_to_all")
        assert move.sent_bytes(4) == 8 * 8 * 4 * 3 // 4  # the same bytes
        assert str(move) == f"reduce_scatter(0, dim 0, sum{'' if has else ' by all_to_all'})"


def test_the_slowest_level_of_links_counts_for_all_members_behind_it():
    costs = LinkCosts(launch_seconds=0.0, axis_alpha=(0.0, 0.0), axis_beta=(100.0, 1.0))
    # Two members behind each slow link share it: three slices at half its time per byte.
    assert costs.gather((0, 1), (2, 2), 8) == costs.gather((1, 0), (2, 2), 8) == 100.0 / 2 * 8 * 3
    assert replace(costs, axis_beta=(1.5, 1.0)).gather((0, 1), (2, 2), 8) == 1.0 * 8 * 3
    # Half of what goes all to all leaves the node, through the card of each member.
    assert costs.all_to_all((0, 1), (2, 2), 8) == 100.0 * 8 / 2
    assert replace(costs, axis_beta=(1.0, 1.0), axis_rings=(2, 2)).gather((0, 1), (2, 2), 8) == 8 * 3 / 2


def test_merged_collectives_share_their_start_until_they_are_full():
    costs = LinkCosts(1.0, 0.0, launch_seconds=9.0, merged=(("all_reduce", 100.0),))
    alone, shared = costs.all_reduce((0,), (2,), 1.0), costs.shared_by(10).all_reduce((0,), (2,), 1.0)
    assert shared == pytest.approx(alone / 10)
    assert costs.shared_by(10).all_reduce((0,), (2,), 100.0) == pytest.approx(alone)
    assert costs.shared_by(10).gather((0,), (2,), 1.0) == costs.gather((0,), (2,), 1.0)
    assert PLAIN.shared_by(10) is PLAIN  # nothing is merged, so nothing is shared


def test_a_redistribution_lists_its_moves():
    moves = (Move(MoveKind.SLICE, (0,), -1, 0), Move(MoveKind.ALL_GATHER, (1,), 1, local_bytes=48))
    way = Redistribution(placement("- 1"), placement("0 -"), (4, 8), (8, 4), moves, 1.0)
    assert way.moves[1].sent_bytes(3) == 2 * 48
    assert [move.collective for move in way.moves] == ["", "all_gather"]
    assert str(way) == "[-, 1] → [0, -]: slice(0, dim 0); all_gather(1, dim 1)"
    nothing = Redistribution(placement("0 -"), placement("0 -"), (4, 8), (4, 8), (), 0.0)
    assert str(nothing).endswith("nothing to do")


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
