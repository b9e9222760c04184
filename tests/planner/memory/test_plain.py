"""The model of compilers of which no details are known: what it writes, in which order, and when it is taken."""

import pytest
from planner_graphs import GraphBuilder, layers, mesh_of, placement, product, scan, training_step

from sporax.ir.config.parallel_config import ParallelConfig, ParallelMode
from sporax.ir.hardware import load_profile
from sporax.ir.placement import Placement
from sporax.planner.loops.inline import inline_loops
from sporax.planner.memory.peak import MemoryProfile, backend_of, memory_of
from sporax.planner.memory.plain import PLAIN
from sporax.planner.memory.step_events import Timeline
from sporax.planner.memory.xla_cpu.kernel_fusion import XLA_CPU
from sporax.planner.propagation.propagate import plan_by_propagation
from sporax.planner.propagation.semi_auto import SemiAuto
from sporax.planner.search.space.plan_assembly import replicated_plan

MESH = mesh_of(2)
ROW = 8 * 16 * 4


def kernels(graph):
    """Of every kernel: the names of the operators whose results it writes."""
    timeline = Timeline(graph)
    step = PLAIN.compiled(timeline)
    return [[timeline.events[root.event].operator.name for root in kernel.roots] for kernel in step.kernels]


def peak(graph):
    return memory_of(graph, replicated_plan(graph, MESH), backend=PLAIN).peak_bytes


@pytest.mark.parametrize(
    ("name", "backend"), [("cpu", XLA_CPU), ("h100", PLAIN), ("tpu-v5e", PLAIN), ("ascend910", PLAIN)]
)
def test_the_hardware_decides(name, backend):
    assert backend_of(load_profile(name).platform) == backend


def test_a_product_needs_its_operands_and_its_result():
    assert peak(product(8, 16, 32)) == (8 * 16 + 16 * 32 + 8 * 32) * 4


def test_shards_need_their_share():
    graph = product(8, 16, 32)
    plan = replicated_plan(graph, MESH)
    half = memory_of(graph, _by_rows(graph), backend=PLAIN).peak_bytes
    assert memory_of(graph, plan, backend=PLAIN).peak_bytes - half == (4 * 16 + 4 * 32) * 4


def _by_rows(graph):
    config = ParallelConfig(device_num=2, parallel_mode=ParallelMode.SEMI_AUTO_PARALLEL)
    rows, whole = placement("0 -"), Placement(((), ()))
    inputs = {graph.inputs[0].tensor: rows, graph.inputs[1].tensor: whole}
    return plan_by_propagation(graph, MESH, inputs, SemiAuto(MESH, config, frozenset()))


def test_barriers_order_kernels():
    """What passes a barrier with the last tensor of a chain is read behind the chain."""
    builder = GraphBuilder()
    x, w = builder.argument(8, 16), builder.argument(16, 16)
    last = builder.matmul(builder.unary("tanh", builder.matmul(x, w)), w)
    again, last = builder.add("optimization_barrier", [x, last], (8, 16), (8, 16))
    graph = builder.graph(builder.unary("exp", builder.matmul(again, w)), builder.unary("log", last))
    timeline = Timeline(graph)
    order = [timeline.events[kernel.roots[0].event].position for kernel in PLAIN.compiled(timeline).kernels]
    products = [number for number, operator in enumerate(graph.operators) if operator.name == "dot_general"]
    assert order.index(products[2]) > order.index(products[1])


def test_what_frees_nothing_runs_just_before_its_first_reader():
    """A weight that is turned, and read again later, waits for the product that reads it."""
    builder = GraphBuilder()
    x, first, second = builder.argument(8, 16), builder.argument(16, 16), builder.argument(16, 16)
    turned = builder.transpose(second, 1, 0)
    out = builder.matmul(builder.matmul(builder.matmul(x, first), first), turned)
    products = [["dot_general"]] * 2
    assert kernels(builder.graph(out, builder.matmul(out, second))) == [*products, ["transpose"], *products]


def test_what_would_keep_its_operands_longer_does_not_wait():
    """The product of an activation that the end reads comes before the layers in between, or the activation would be there, too."""
    builder = GraphBuilder()
    x, wide, narrow, w, ones = (builder.argument(*sizes) for sizes in ((8, 16), (16, 64), (64, 16), (16, 16), (16, 8)))
    activation = builder.matmul(x, wide)
    gradient, out = builder.matmul(ones, activation), builder.matmul(activation, narrow)
    graph = builder.graph(builder.matmul(builder.matmul(builder.matmul(out, w), w), gradient))
    timeline = Timeline(graph)
    order = [timeline.events[kernel.roots[0].event].position for kernel in PLAIN.compiled(timeline).kernels]
    assert order == [0, 1, 2, 3, 4, 5]


def test_what_passes_a_barrier_is_written_once():
    """A sum that a recomputed part starts from is kept, not the terms of all sums before it."""
    builder = GraphBuilder()
    x, w = builder.argument(8, 16), builder.argument(16, 16)
    total = builder.binary("add", builder.binary("add", x, builder.matmul(x, w)), builder.matmul(x, w))
    passed, _ = builder.add("optimization_barrier", [total, x], (8, 16), (8, 16))
    found = kernels(builder.graph(builder.matmul(passed, w)))
    assert found == [["dot_general"], ["dot_general"], ["add"], ["dot_general"]]


def test_loops_are_computed_in_their_readers_and_written_for_others():
    builder = GraphBuilder()
    x, w = builder.argument(8, 16), builder.argument(16, 16)
    inner = builder.unary("neg", builder.unary("abs", x))
    graph = builder.graph(builder.unary("neg", builder.matmul(inner, w)))
    assert kernels(graph) == [["neg"], ["dot_general"], ["neg"]]


def test_costly_loops_are_written_for_several_readers_and_others_are_computed_again():
    def shared(name):
        builder = GraphBuilder()
        x = builder.argument(8, 16)
        both = builder.unary(name, x)
        return builder.graph(builder.unary("neg", both), builder.unary("abs", both))

    assert kernels(shared("tanh")) == [["tanh"], ["neg"], ["abs"]]
    assert kernels(shared("sign")) == [["neg"], ["abs"]]


def test_what_no_result_needs_is_left_out():
    builder = GraphBuilder()
    x = builder.argument(8, 8)
    builder.matmul(x, x)
    assert kernels(builder.graph(builder.unary("tanh", x))) == [["tanh"]]


def test_an_elementwise_kernel_writes_over_what_it_reads_last():
    # The product is written into the result's place, and tanh over it.
    assert peak(layers(1, 16, 16)) == 3 * 16 * 16 * 4


def test_views_take_no_memory():
    builder = GraphBuilder()
    x, w = builder.argument(8, 16), builder.argument(16, 16)
    flat = builder.reshape(builder.matmul(x, w), 128)
    assert kernels(builder.graph(flat)) == [["dot_general"]]


def test_all_moments_are_reported_and_the_peak_is_one_of_them():
    for graph in (training_step(16, 16, 32), layers(4)):
        plan = replicated_plan(graph, MESH)
        report = MemoryProfile(graph, plan, PLAIN).history
        assert report[0][0] == -1
        assert max(sum(uses.values()) for _, uses in report) == memory_of(graph, plan, backend=PLAIN).peak_bytes


def test_loops_of_the_program_are_borders_of_fusion():
    graph = inline_loops(scan(rounds=3, width=8)).graph
    names = [name for kernel in kernels(graph) for name in kernel]
    assert {"loop_slice", "loop_stack"} <= {*names}


def test_what_a_loop_stacks_is_there_while_it_runs():
    used = memory_of(graph := scan(rounds=3, width=8), replicated_plan(graph, MESH), backend=PLAIN)
    assert used.peak_bytes >= used.held_bytes + 3 * 8 * 8 * 4
