"""What tensors take while their bundles hold them."""

import numpy as np
from planner_graphs import layers, mesh_of, problem_of, product

from sporax.planner.memory.peak import live_ranges
from sporax.planner.memory.xla_cpu.kernel_fusion import XLA_CPU
from sporax.planner.search.space.measured_plan import resident_usage, weighted_bytes

TWO = mesh_of(2)


def test_a_product_holds_its_operands_and_its_result_per_candidate():
    problem = problem_of(product(8, 16, 32), TWO)
    usage = resident_usage(problem)
    x, w, result = (problem.decisions.node_of[tensor] for tensor in range(3))
    for node, whole in ((x, 8 * 16 * 4), (w, 16 * 32 * 4), (result, 8 * 32 * 4)):
        (sizes,) = usage[node].values()
        shards = [1 if not where.used - {*where.partial} else 2 for where in problem.choices[node].placements]
        assert sizes == [whole // count for count in shards]
    assert usage[problem.decisions.heavy[0]] == {}  # operators hold nothing, their results' bundles do


def test_tensors_are_there_as_long_as_they_are_live():
    problem = problem_of(layers(2), TWO)
    usage = resident_usage(problem)
    spans = {(life.begin + 1, life.end + 2) for life in live_ranges(problem.graph, XLA_CPU)}
    assert {span for pieces in usage for span in pieces} == spans


def test_the_answer_is_kept_with_the_problem():
    problem = problem_of(product(), TWO)
    assert resident_usage(problem) is resident_usage(problem)
    assert resident_usage(problem.with_costs(problem.costs)) is resident_usage(problem)


def test_weighted_bytes_are_sums_over_operators():
    problem = problem_of(layers(2), TWO)
    usage, weights = resident_usage(problem), {-1: 0.25, 0: 1.0, 3: 0.5, len(problem.graph.operators): 2.0}
    for sizes, spans in zip(weighted_bytes(problem, weights), usage, strict=True):
        expected = np.zeros(len(sizes))
        for operator, weight in weights.items():
            tick = max(2 * operator + 1, 0)
            expected += weight * sum(np.array(size) for (begin, end), size in spans.items() if begin <= tick < end)
        np.testing.assert_allclose(sizes, expected)
