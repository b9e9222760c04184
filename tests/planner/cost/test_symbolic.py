"""MindSpore's published cost model, formula by formula."""

import pytest
from planner_graphs import mesh_of, operation, product, roofline

from sporax.ir.config.search_config import CostModelConfig
from sporax.planner.cost.symbolic import Symbolic, SymbolicLinks, unit_of
from sporax.planner.rules import rule_for, unsharded

MESH = mesh_of(2)
PLAIN = CostModelConfig(
    costmodel_alpha=1.0,
    costmodel_beta=1.0,
    costmodel_gamma=0.5,
    costmodel_communi_threshold=0.0,
    costmodel_communi_const=0.0,
    costmodel_communi_bias=0.0,
)


def links(**changes):
    values = {
        name: getattr(PLAIN, name) for name in CostModelConfig.__dataclass_fields__ if name.startswith("costmodel_")
    }
    return SymbolicLinks(config=CostModelConfig(**{**values, **changes}))


@pytest.mark.parametrize(("kind", "expected"), [
    ("gather", 0.5 * 4 * 100 + 0.5 * (0.5 * 100) + 4 * 100),
    ("all_reduce", 100),
    ("reduce_scatter", 100 + 100),
    ("all_to_all", 200 + 0.5 * 200 + 100),
    ("permute", 200 + 0.5 * 200 + 100),
])  # fmt: skip
def test_collectives_are_weighted_bytes_forward_and_backward(kind, expected):
    assert getattr(links(), kind)((0,), (4,), 100) == pytest.approx(expected)


def test_slicing_and_copying_count_as_computing():
    assert links(costmodel_alpha=3.0).slice((4,), 100) == links(costmodel_alpha=3.0).copy(100) == 300


def test_small_messages_cost_a_constant_and_large_ones_a_bias_more():
    costs = links(costmodel_communi_threshold=150.0, costmodel_communi_const=7.0, costmodel_communi_bias=1000.0)
    assert costs.all_reduce((0,), (4,), 100) == 7.0
    assert costs.all_reduce((0,), (4,), 200) == 1200.0
    assert costs.all_reduce((0,), (4,), 0) == 0.0


def seconds(model, op, *assignment):
    rule = rule_for(op)
    return model.seconds(op, rule, (*assignment, *unsharded(rule)[len(assignment) :]), MESH)


def test_an_operator_costs_the_bytes_of_its_operands_and_a_reduction_those_of_its_result():
    op = product(8, 16, 32).operators[0].operation
    model = Symbolic(PLAIN)
    assert seconds(model, op) == (8 * 16 + 16 * 32) * 4
    assert seconds(model, op, (), (0,)) == (8 * 8 + 8 * 32) * 4 + 8 * 32 * 4
    assert seconds(Symbolic(PLAIN, weight_memory=2.0), op) == (8 * 16 + 3 * 16 * 32) * 4


def test_a_tie_goes_to_data_parallel():
    op = product(8, 16, 32).operators[0].operation
    assert seconds(Symbolic(PLAIN), op, (0,)) == (4 * 16 + 16 * 32) * 4 - 1


def test_reshaping_is_free_and_the_backward_pass_is_not_priced():
    op = operation("transpose", [(4, 6)], [(6, 4)], permutation=(1, 0))
    model = Symbolic(PLAIN)
    assert seconds(model, op) == 0.0
    assert (model.late_computing, model.late_communication) == (0.0, 0.5)


def test_costs_have_the_unit_of_their_model():
    assert unit_of(Symbolic()) == "weighted bytes"
    assert unit_of(roofline(MESH)) == "s"
