"""MindSpore's cost model: formulas, and the strategies that MindSpore 2.10's dynamic programming was recorded to find."""

import networks
import pytest

from sporax.ir.config.search_config import CostModelConfig
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.operation import Operation, TensorSpec
from sporax.ir.placement import Placement
from sporax.planner.cost import Symbolic
from sporax.planner.plan_check import check_plan
from sporax.planner.rules import rule_for
from sporax.planner.search import SearchOptions, dynamic, propagation, recursive

MESH = DeviceMatrix((2, 2, 2))
SINGLE = ((0,), (1,), (2,))


def products(graph):
    return [n for n, item in enumerate(graph.operators) if item.name == "dot_general" and not item.backward]


def strategies(graph, plan):
    return [tuple(where.parts(MESH) for where in plan.operators[n].operands) for n in products(graph)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("search", [dynamic, recursive, propagation])
@pytest.mark.parametrize(("sizes", "recorded"), [
    ((64, 128, 64, 64), [((1, 1), (1, 1)), ((1, 1), (1, 1))]),
    ((64, 64, 64, 4096), [((8, 1), (1, 1)), ((8, 1), (1, 1))]),
    ((1024, 4096, 1024, 16), [((1, 1), (1, 2)), ((1, 2), (2, 4))]),
])  # fmt: skip
def test_recorded_strategies_are_found(search, sizes, recorded):
    graph = networks.two_products(*sizes).graph
    actual = search(graph, MESH, Symbolic(), SearchOptions(units=SINGLE))

    check_plan(graph, actual.plan)
    assert strategies(graph, actual.plan) == recorded


@pytest.mark.parametrize("search", [dynamic, propagation])
def test_a_configured_operator_is_followed(search):
    """MatMul1 configured ((2, 1), (1, 4)) makes MatMul2 ((2, 4), (4, 1)), as recorded."""
    graph = networks.two_products(64, 128, 64, 64).graph
    names = {item.name: item.tensor for item in graph.inputs}
    first = graph.operators[products(graph)[0]]
    fixed = {
        names["data 0"]: Placement(((0,), ())),
        names["w0"]: Placement(((), (1, 2))),
        first.results[0]: Placement(((0,), (1, 2))),
    }
    plan = search(graph, MESH, Symbolic(), SearchOptions(units=SINGLE, fixed=fixed)).plan

    assert strategies(graph, plan) == [((2, 1), (1, 4)), ((2, 4), (4, 1))]


def test_large_costs_are_not_taken_for_forbidden_ones():
    """A graph of costs forbids what costs 10^17 and more; a gather here costs 10^9 weighted bytes."""
    graph = networks.two_products(64, 64, 64, 1 << 16).graph
    names = {item.name: item.tensor for item in graph.inputs}
    first = graph.operators[products(graph)[0]]
    fixed = {
        names["data 0"]: Placement(((0,), ())),
        names["w0"]: Placement(((), (1, 2))),
        first.results[0]: Placement(((0,), (1, 2))),
    }
    options = SearchOptions(units=SINGLE, fixed=fixed)
    exact, spread = dynamic(graph, MESH, Symbolic(), options), propagation(graph, MESH, Symbolic(), options)

    assert exact.optimal
    assert exact.cost_seconds <= spread.cost_seconds * (1 + 1e-9)


def test_symbolic_costs_count_slices_of_operands_and_results():
    """Slices of both operands, and of the result when the contracted dimension is cut; a tie goes to data parallel."""
    a, b, c = (TensorSpec(shape) for shape in ((32, 64), (64, 16), (32, 16)))
    operation = Operation("dot_general", (a, b), (c,), {"dimension_numbers": (((1,), (0,)), ((), ()))})
    rule, model = rule_for(operation), Symbolic()

    def touched(*cuts):
        return model.seconds(operation, rule, (*cuts, (), ()), MESH)

    assert touched((), (), ()) == (32 * 64 + 64 * 16) * 4
    assert touched((0, 1, 2), (), ()) == (32 * 64 / 8 + 64 * 16) * 4 - 1
    assert touched((), (0,), ()) == (32 * 64 / 2 + 64 * 16 / 2 + 32 * 16) * 4


def test_small_messages_count_as_a_constant_and_large_ones_get_a_bias():
    links = Symbolic(CostModelConfig(costmodel_beta=2.0)).links

    assert links.all_reduce((0,), [2], 100) == 2 * 3072
    assert links.all_reduce((0,), [2], 10_000) == 2 * (10_000 + 1024)
    assert links.gather((0,), [2], 10_000) == pytest.approx(2 * (11_024 + 0.001 * 6_024) + 20_000)
    assert links.copy(100) == 100


def test_inference_has_no_backward_communication():
    model = Symbolic(CostModelConfig(run_phase=1))

    assert model.late_communication == 0.0
    assert model.links.all_to_all((0,), [2], 10_000) == 400 * (20_000 + 1024) + 10_000
