"""Which tensors are redistributed, when and how."""

from dataclasses import replace

from planner_graphs import GraphBuilder, mesh_of, placement

from sporax.ir.plan import Resharding
from sporax.planner.communication.moves import MoveKind
from sporax.planner.communication.transfers import collective_bytes, schedule
from sporax.planner.search.space.plan_assembly import replicated_plan

MESH = mesh_of(2)
WHOLE, ROWS = placement("- -"), placement("0 -")


def graph(readers=1):
    """An argument and some operators that read it."""
    builder = GraphBuilder()
    x = builder.argument(8, 8)
    return builder.graph(*(builder.unary("tanh", x) for _ in range(readers)))


def planned(step, places, **options):
    """The plan in which the argument is sharded by rows and the operators read it at the given placements."""
    plan = replicated_plan(step, MESH)
    operators = [
        replace(operator, operands=(where,), results=(where,))
        for operator, where in zip(plan.operators, places, strict=True)
    ]
    return replace(plan, inputs=(ROWS,), operators=tuple(operators), outputs=tuple(places), **options)


def kinds(groups):
    return [[transfer.redistribution.moves[0].kind for transfer in group] for group in groups]


def test_a_reader_that_needs_another_placement_gets_it_just_before_it_runs():
    step = graph()
    moved = schedule(step, planned(step, [WHOLE]))
    assert kinds(moved.before[0]) == [[MoveKind.ALL_GATHER]]
    assert moved.at_start == moved.at_end == moved.after[0] == ()
    (group,) = moved
    assert group[0].operator == 0


def test_a_second_reader_finds_the_tensor_where_it_was_brought():
    step = graph(3)
    moved = schedule(step, planned(step, [WHOLE, WHOLE, ROWS]))
    assert [kinds(before) for before in moved.before] == [[[MoveKind.ALL_GATHER]], [], []]


def test_a_planned_resharding_happens_as_soon_as_the_tensor_is_there():
    step = graph(2)
    moved = schedule(step, planned(step, [WHOLE, WHOLE], reshardings={0: Resharding(WHOLE, "given")}))
    assert kinds(moved.at_start) == [[MoveKind.ALL_GATHER]]
    assert moved.before == ((), ())


def test_results_are_brought_to_their_placement_at_the_end():
    step = graph()
    plan = replace(planned(step, [ROWS]), outputs=(WHOLE,))
    moved = schedule(step, plan)
    assert kinds(moved.at_end) == [[MoveKind.ALL_GATHER]]
    assert moved.at_end[0][0].operator == -1


def partial_sums(fusion):
    """Two partial tensors that are reduced with these fusion numbers, and a reader of each."""
    builder = GraphBuilder()
    first, second = (builder.argument(8, 8) for _ in range(2))
    step = builder.graph(builder.unary("tanh", first), builder.unary("tanh", second))
    plan = replicated_plan(step, MESH)
    reshardings = {tensor: Resharding(WHOLE, fusion=number) for tensor, number in enumerate(fusion)}
    return schedule(step, replace(plan, inputs=(placement("- - +0"),) * 2, reshardings=reshardings))


def test_tensors_with_one_number_wait_for_each_other_and_travel_together():
    moved = partial_sums((1, 1))
    assert moved.at_start == ()
    assert kinds(moved.before[0]) == [[MoveKind.ALL_REDUCE, MoveKind.ALL_REDUCE]]
    assert moved.before[1] == ()


def test_tensors_with_different_numbers_or_none_travel_alone():
    assert [len(group) for group in partial_sums((1, 2))] == [1, 1]
    assert [len(group) for group in partial_sums((0, 0)).at_start] == [1, 1]


def test_bytes_of_collectives_are_counted_by_kind():
    assert collective_bytes([*partial_sums((1, 1))]) == {"all_reduce": 2 * 8 * 8 * 4}
    step = graph()
    assert collective_bytes([*schedule(step, planned(step, [WHOLE]))]) == {"all_gather": 4 * 8 * 4}
