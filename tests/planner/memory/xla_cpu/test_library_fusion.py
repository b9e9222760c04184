"""Constants of full size that several kernels of XLA's library for CPUs read."""

import pytest
from planner_graphs import GraphBuilder

from sporax.planner.communication.step_events import Timeline
from sporax.planner.memory.backend import Kind
from sporax.planner.memory.xla_cpu.instructions import Instructions
from sporax.planner.memory.xla_cpu.library_fusion import write_shared_constants

WIDTH = 64  # a square of it has 4096 elements, the fewest that the library takes
SQUARE_BYTES = 4 * WIDTH * WIDTH


def shared_constants(builder, *outputs):
    """Of every constant that is written: its bytes, and the operators that read it."""
    timeline = Timeline(builder.graph(*outputs))
    instructions = Instructions(timeline)
    count = len(instructions.instructions)
    write_shared_constants(instructions, [instructions.number[value] for value in timeline.outputs])
    added = instructions.instructions[: len(instructions.instructions) - count]
    assert {instruction.kind for instruction in added} <= {Kind.KERNEL}
    return [
        (
            instructions.arrays[written].num_bytes,
            [
                timeline.events[entry.event].operator.name
                for entry in instructions.instructions
                if written in entry.reads
            ],
        )
        for instruction in added
        for written in instruction.writes
    ]


def after_products(*operations, width=WIDTH):
    """Products that do not read each other, each with an operation with a constant behind it."""
    builder = GraphBuilder()
    x = builder.argument(width, width)
    return shared_constants(
        builder,
        *(
            builder.binary(name, builder.matmul(x, builder.weight(width, width)), constant)
            for name, constant in operations
        ),
    )


def test_a_constant_that_two_kernels_read_is_written_once_at_full_size():
    assert after_products(("add", 0.5), ("sub", 0.5), ("max", 0.5)) == [(SQUARE_BYTES, ["add", "sub", "max"])]


@pytest.mark.parametrize(
    "operations",
    [
        [("add", 0.5), ("add", 0.25)],  # no two are equal
        [("add", 0.0), ("add", 0.0)],  # removed with their operation
        [("min", float("inf")), ("min", float("inf"))],
        [("add", 0.5)],
        [("mul", 0.5), ("mul", 0.5)],  # factors that no one reads move into smaller tensors
    ],
)
def test_constants_of_one_kernel_and_those_that_are_removed_are_not_written(operations):
    assert after_products(*operations) == []


def test_a_division_by_a_constant_is_a_product_with_its_reciprocal():
    builder = GraphBuilder()
    x = builder.argument(WIDTH, WIDTH)
    results = [
        builder.unary("tanh", builder.binary(name, builder.matmul(x, builder.weight(WIDTH, WIDTH)), constant))
        for name, constant in (("div", 4.0), ("mul", 0.25))
    ]
    assert shared_constants(builder, *results) == [(SQUARE_BYTES, ["div", "mul"])]


def test_small_operations_stay_outside_of_kernels():
    both = [("add", 0.5), ("add", 0.5)]
    assert after_products(*both, width=WIDTH - 1) == []
    assert after_products(*both, width=WIDTH) != []


def test_a_constant_is_written_for_the_only_kernel_if_something_outside_reads_it_too():
    """What is outside computes the constant itself, so it does not read the array."""
    builder = GraphBuilder()
    x = builder.argument(WIDTH, WIDTH)
    inside = builder.binary("sub", builder.matmul(x, builder.weight(WIDTH, WIDTH)), 0.5)
    outside = builder.binary("add", x, 0.5)
    assert shared_constants(builder, inside, outside) == [(SQUARE_BYTES, ["sub"])]
    assert shared_constants(builder, outside) == []


@pytest.mark.parametrize(("dims", "count"), [((1, 1), 1), ((0, 1), 0)])
def test_equal_spread_tensors_share_an_array_and_unequal_ones_do_not(dims, count):
    builder = GraphBuilder()
    x, bias = builder.argument(WIDTH, WIDTH), builder.weight(WIDTH)
    results = [
        builder.binary(
            "add",
            builder.matmul(x, builder.weight(WIDTH, WIDTH)),
            builder.broadcast(bias, WIDTH, WIDTH, dims=(dim,)),
        )
        for dim in dims
    ]
    assert shared_constants(builder, *results) == [(SQUARE_BYTES, ["add", "add"])] * count


def test_a_spread_value_that_is_only_handed_out_is_no_shared_constant():
    builder = GraphBuilder()
    x = builder.argument(width := WIDTH, width)
    product = builder.matmul(x, builder.weight(width, width))
    handed_out = builder.broadcast(builder.argument(width), width, width, dims=(1,))
    assert shared_constants(builder, product, handed_out) == []
