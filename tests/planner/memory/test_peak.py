"""Peak memory of small plans, counted by hand."""

from dataclasses import replace

import pytest
from planner_graphs import GraphBuilder, layers, mesh_of, placement, product, scan, training_step, with_role

from sporax.ir.graph import Role
from sporax.planner.cost.model import local_bytes
from sporax.planner.memory.peak import MemoryProfile, Use, live_ranges, memory_of
from sporax.planner.memory.plain import PLAIN
from sporax.planner.memory.xla_cpu.kernel_fusion import XLA_CPU
from sporax.planner.search.space.plan_assembly import replicated_plan

MESH = mesh_of(2)


def whole(graph):
    return memory_of(graph, replicated_plan(graph, MESH), XLA_CPU)


def test_a_product_needs_its_operands_and_its_result():
    used = whole(product(8, 16, 32))
    assert used.by_use[Use.DATA] == 8 * 16 * 4
    assert used.by_use[Use.PARAMETERS] == 16 * 32 * 4
    assert used.held_bytes == (8 * 16 + 16 * 32) * 4
    assert used.peak_bytes == (8 * 16 + 16 * 32 + 8 * 32) * 4 == sum(used.by_use.values())


def test_shards_need_their_share():
    graph = product(8, 16, 32)
    rows = placement("0 -")
    plan = replicated_plan(graph, MESH)
    operator = replace(
        plan.operators[0], assignment=((0,), (), (), (), ()), operands=(rows, placement("- -")), results=(rows,)
    )
    plan = replace(plan, inputs=(rows, placement("- -")), outputs=(rows,), operators=(operator,))
    assert memory_of(graph, plan, XLA_CPU).peak_bytes == (4 * 16 + 16 * 32 + 4 * 32) * 4


def test_a_loop_writes_over_the_product_it_reads():
    """One layer: the product is written into the result's place, and tanh over it."""
    assert whole(layers(1, 16, 16)).peak_bytes == 3 * 16 * 16 * 4


def test_only_two_activations_of_a_forward_chain_are_live_at_a_time():
    """Each layer needs its weight, which stays, and what it reads and writes."""
    few, many = whole(layers(4, 16, 16)), whole(layers(9, 16, 16))
    assert many.peak_bytes - few.peak_bytes == 5 * 16 * 16 * 4
    assert few.by_use[Use.TRANSIENTS] == many.by_use[Use.TRANSIENTS]


def test_what_the_backward_pass_reads_is_an_activation():
    graph = training_step(16, 16, 32)
    used = whole(graph)
    assert used.by_use[Use.ACTIVATIONS] == 16 * 32 * 4
    ranges = {life.number: life.use for life in live_ranges(graph, XLA_CPU)}
    assert ranges[3] is Use.ACTIVATIONS  # tanh's result, which its derivative reads
    assert ranges[8] is Use.TRANSIENTS  # the gradient


def test_an_updated_weight_takes_the_place_of_the_old_one():
    graph = training_step(16, 16, 32)

    def left(step):
        """Transients when all operators have run."""
        return MemoryProfile(step, replicated_plan(step, MESH), XLA_CPU).history[-1][1][Use.TRANSIENTS]

    assert left(graph) == 4  # the loss alone
    assert left(replace(graph, aliases=())) == 4 + 16 * 32 * 4  # and the new weight next to the old one


@pytest.mark.parametrize(("role", "use"), [(Role.STATE, Use.STATE), (Role.CONSTANT, Use.DATA)])
def test_arguments_count_for_what_they_are(role, use):
    graph = with_role(product(8, 16, 32), 1, role)
    assert whole(graph).by_use[use] >= 16 * 32 * 4
    assert whole(graph).by_use[Use.PARAMETERS] == 0


def test_what_a_loop_stacks_is_live_as_long_as_it_runs():
    used = whole(scan(rounds=3, width=8))
    row = 8 * 8 * 4
    assert used.held_bytes == row + 3 * row  # the carried matrix and the stacked weights
    assert used.peak_bytes >= used.held_bytes + 3 * row


def test_what_a_loop_stacks_is_there_while_its_rounds_run():
    """The stack is no result of the step: it shares the heap with the wide array of a round, and dies after its sum."""
    rounds, width, wide = 5, 8, 128
    inside = GraphBuilder()
    carried, up, down = (
        inside.argument(*shape, role=Role.CONSTANT) for shape in ((width, width), (width, wide), (wide, width))
    )
    body = inside.graph(row := inside.matmul(inside.matmul(carried, up), down), row)
    builder = GraphBuilder()
    arguments = [
        builder.argument(width, width),
        builder.weight(rounds, width, wide),
        builder.weight(rounds, wide, width),
    ]
    _, stacked = builder.add(
        "scan",
        arguments,
        (width, width),
        (rounds, width, width),
        params={"num_consts": 0, "num_carry": 1, "length": rounds},
        bodies=(body,),
    )
    used = whole(builder.graph(builder.reduce_sum(stacked, 0)))
    widest = 3 * width * wide  # the slices of both weights, and the first product
    assert used.by_use[Use.TRANSIENTS] == (widest + rounds * width * width + width * width) * 4


def test_operators_that_nothing_needs_take_no_memory():
    builder = GraphBuilder()
    x = builder.argument(8, 8)
    builder.matmul(x, x)
    graph = builder.graph(builder.unary("tanh", x))
    assert {life.number for life in live_ranges(graph, XLA_CPU)} == {x, 2}


def test_the_text_names_the_peak_and_its_uses():
    text = str(whole(product(8, 16, 32)))
    assert text.startswith("3.58 kB at operator ")
    assert "parameters 2.05 kB" in text


@pytest.mark.parametrize("backend", [XLA_CPU, PLAIN], ids=["cpu", "plain"])
def test_a_plan_is_looked_at_once_for_its_peak_and_for_its_memory_over_time(backend):
    graph = training_step()
    plan = replicated_plan(graph, mesh_of(2))
    profile = MemoryProfile(graph, plan, backend)
    assert profile.memory == memory_of(graph, plan, backend)
    assert max(sum(uses.values()) for _, uses in profile.history) == profile.memory.peak_bytes
    assert [count for count, _ in profile.history] == sorted(count for count, _ in profile.history)


@pytest.mark.parametrize("backend", [XLA_CPU, PLAIN], ids=["cpu", "plain"])
def test_what_is_there_at_the_peak_is_named_with_its_bytes(backend):
    """Values of equal bytes differ by their placement; copies in another order have the name of what they are copies of."""
    graph, mesh = layers(3), mesh_of(2, 2)
    profile = MemoryProfile(graph, replicated_plan(graph, mesh), backend)
    at_peak = profile.at_peak
    assert sum(num_bytes for _, num_bytes in at_peak) == pytest.approx(profile.memory.peak_bytes, rel=0.02)
    for (tensor, where), num_bytes in at_peak:
        assert num_bytes == local_bytes(graph.tensors[tensor], where, mesh)
    arguments = {argument.tensor for argument in graph.inputs}
    assert arguments <= {tensor for (tensor, _), _ in at_peak}


@pytest.mark.parametrize("backend", [XLA_CPU, PLAIN], ids=["cpu", "plain"])
def test_live_bytes_are_known_before_buffers_are_assigned(backend, monkeypatch):
    graph = training_step()
    plan = replicated_plan(graph, mesh_of(2))
    memory = MemoryProfile(graph, plan, backend).memory

    monkeypatch.setattr("sporax.planner.memory.peak.heap_offsets", None)  # no buffers are assigned
    live = MemoryProfile(graph, plan, backend).live_bytes
    assert memory.held_bytes < live <= memory.peak_bytes
