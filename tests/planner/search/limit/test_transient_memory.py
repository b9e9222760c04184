"""Plans under a memory limit that are found because tensors are known to be brought to their readers."""

import networks

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.hardware import load_profile
from sporax.planner.cost import Roofline, link_costs
from sporax.planner.search.limit.local_search import measured
from sporax.planner.search.limit.memory_limit import bound_below, fit, fit_quickly
from sporax.planner.search.limit.message_passing import choose, choose_within
from sporax.planner.search.limit.resident_memory import resident_usage
from sporax.planner.search.limit.transient_memory import transient_usage
from sporax.planner.search.space.problem import ProblemBuilder, SearchOptions

MESH = DeviceMatrix((8,))
MODEL = Roofline(load_profile("h200"), link_costs(load_profile("h200"), MESH))


def problem_of(graph):
    return ProblemBuilder(graph, MESH, MODEL, SearchOptions(fully_use_devices=True)).build()


def test_messages_that_know_where_tensors_are_brought_find_what_others_do_not():
    problem = problem_of(networks.recommendation(256, 4096).graph)
    limit = int(0.5 * measured(problem, choose(problem.cost_graph())).peak_bytes)

    assert fit(problem, limit, choose_within, usage=resident_usage(problem)) is None
    actual = fit_quickly(problem, limit)
    assert actual is not None
    assert actual.peak_bytes <= limit


def test_a_product_is_there_as_it_is_made_and_then_where_it_shall_lie():
    graph = networks.mlp_forward(2, 64, 256).graph
    problem = problem_of(graph)
    products = [number for number, item in enumerate(graph.operators) if item.name == "dot_general"]
    tensor = graph.operators[products[0]].results[0]
    maker, home = problem.decisions.heavy[products[0]], problem.decisions.node_of[tensor]
    ((begin, end),) = transient_usage(problem)[maker].keys() - {
        span for span in transient_usage(problem)[maker] if span[0] == 0
    }

    assert end == begin + 1
    whole = 64 * 256 * 4
    result = [where.partial for where in problem.choices[maker].tensor_placements[tensor]]
    sizes = transient_usage(problem)[maker][begin, end]
    assert {size for size, parts in zip(sizes, result, strict=True) if parts} == {whole}
    assert min(first for first, _ in transient_usage(problem)[home]) >= end


def test_a_bound_that_a_plan_refutes_is_none():
    assert bound_below(2.0, None) is None
    assert bound_below(2.0, 1e9) == 1.0
    assert bound_below(2.0, 2.1e9) is None
