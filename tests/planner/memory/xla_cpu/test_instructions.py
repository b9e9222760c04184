"""What operators and transfers become before fusion."""

from dataclasses import replace

import pytest
from planner_graphs import GraphBuilder, mesh_of, placement

from sporax.planner.memory.step_events import Timeline
from sporax.planner.memory.xla_cpu.instructions import Instructions, Kind, order_of
from sporax.planner.search.space.plan_assembly import replicated_plan

MESH = mesh_of(2)


def instructions_of(builder, *outputs, plan=None):
    graph = builder.graph(*outputs)
    return Instructions(Timeline(graph, plan and plan(graph)))


def kinds(compiled):
    return [instruction.kind for instruction in compiled.instructions]


def test_views_are_their_operand_under_another_number():
    builder = GraphBuilder()
    x = builder.argument(4, 8)
    view = builder.reshape(x, 32)
    compiled = instructions_of(builder, view)
    assert compiled.instructions == []
    assert compiled.number[view, None] == compiled.number[x, None]


def test_elementwise_operators_are_loops_and_sums_are_reductions():
    builder = GraphBuilder()
    x = builder.argument(4, 8)
    total = builder.reduce_sum(builder.unary("tanh", builder.binary("mul", x, x)), 0)
    compiled = instructions_of(builder, total)
    assert kinds(compiled) == [Kind.LOOP, Kind.LOOP, Kind.REDUCTION]
    product, tanh, _ = compiled.instructions
    assert (product.simple, product.costly, tanh.simple, tanh.costly) == (True, False, False, True)


def test_transposed_matrices_are_read_as_they_are():
    builder = GraphBuilder()
    x, w = builder.argument(4, 8), builder.argument(16, 8)
    y = builder.matmul(x, builder.transpose(w, 1, 0))
    compiled = instructions_of(builder, y)
    assert compiled.instructions[-1].reads == (compiled.number[x, None], compiled.number[w, None])


def test_products_of_several_dimensions_read_operands_in_one_order():
    builder = GraphBuilder()
    x, w = builder.argument(4, 2), builder.argument(8, 3, 2)
    product = builder.add("dot_general", [x, w], (4, 8, 3), params={"dimension_numbers": (((1,), (2,)), ((), ()))})
    compiled = instructions_of(builder, product)
    assert kinds(compiled) == [Kind.LOOP, Kind.KERNEL]  # the second operand is transposed first
    assert compiled.instructions[0].reads == (compiled.number[w, None],)


@pytest.mark.parametrize(("contracted", "batch", "place", "rearranged"), [
    (((1,), (0,)), ((), ()), 0, False),
    (((0,), (1,)), ((), ()), 0, False),  # a plain matrix may be transposed
    (((2,), (1,)), ((0,), (0,)), 0, False),
    (((1,), (1,)), ((0,), (0,)), 0, False),  # and those of a batch
    (((1,), (1,)), ((2,), (0,)), 0, True),  # but not the batch
    (((0, 1), (0, 1)), ((), ()), 0, True),
])  # fmt: skip
def test_an_operand_in_another_order_is_rearranged_unless_it_is_a_matrix(contracted, batch, place, rearranged):
    builder = GraphBuilder()
    rank = 3 if batch[0] or len(contracted[0]) > 1 else 2
    x, w = builder.argument(*(4,) * rank), builder.argument(*(4,) * rank)
    builder.add("dot_general", [x, w], (4,) * rank, params={"dimension_numbers": (contracted, batch)})
    assert bool(order_of(builder.operators[0], place, (4,) * rank)) == rearranged


def test_random_bits_are_made_of_four_words_per_element():
    builder = GraphBuilder()
    bits = builder.add("random_bits", [builder.argument(2, dtype="uint32")], (8, 16), dtype="uint32")
    compiled = instructions_of(builder, bits)
    assert kinds(compiled) == [Kind.KERNEL, Kind.LOOP]
    assert [compiled.arrays[array].num_bytes for array in compiled.instructions[0].writes] == [8 * 16 * 4] * 4


def moved(source, target, axis_reads="- -"):
    """The instructions that bring an argument of 8 x 8 from one placement to another."""
    builder = GraphBuilder()
    x = builder.argument(8, 8)

    def plan(graph):
        return replace(replicated_plan(graph, MESH), inputs=(placement(source),), outputs=(placement(target),))

    return instructions_of(builder, x, plan=plan)


def test_a_gather_of_rows_writes_the_whole_and_one_of_columns_rearranges_it():
    assert [(entry.kind, entry.sends) for entry in moved("0 -", "- -").instructions] == [(Kind.KERNEL, True)]
    columns = moved("- 0", "- -")
    assert [(entry.kind, entry.sends) for entry in columns.instructions] == [(Kind.KERNEL, True), (Kind.LOOP, False)]
    assert [array.num_bytes for array in columns.arrays] == [128, 256, 256]


def test_a_slice_is_a_loop_without_communication():
    (step,) = moved("- -", "0 -").instructions
    assert (step.kind, step.sends) == (Kind.LOOP, False)


def test_all_reduces_over_one_axis_may_be_combined():
    (step,) = moved("- - +0", "- -").instructions
    assert step.combines == (0, "sum", "float32")
    assert moved("- - +0", "0 -").instructions[-1].combines == ()


def test_an_all_to_all_trades_a_rearranged_copy_and_joins_the_pieces():
    compiled = moved("0 -", "- 0")
    assert [(entry.kind, entry.sends, entry.joins) for entry in compiled.instructions][-2:] == [
        (Kind.KERNEL, True, False),
        (Kind.LOOP, False, True),
    ]
    # Two devices: one slice for each.
    assert [array.num_bytes for array in compiled.arrays].count(64) == 4


@pytest.mark.parametrize("name", ["mark", "optimization_barrier"])
def test_scalars_of_the_program_that_pass_an_identity_are_written(name):
    """The other operands keep their results."""
    builder = GraphBuilder()
    x, y = builder.argument(4, 8), builder.argument(8)
    first, scalar, last = builder.add(name, [x, 2.0, y], (4, 8), (), (8,), params={"mark": None})
    compiled = instructions_of(builder, first, scalar, last)
    assert compiled.number[first, None] == compiled.number[x, None]
    assert compiled.number[last, None] == compiled.number[y, None]
    (written,) = compiled.instructions
    assert written.writes == (compiled.number[scalar, None],)
    assert written.reads == ()
