"""Which operators decide for themselves, which follow, and which are alike."""

import pytest
from planner_graphs import GraphBuilder, layers, scan

from sporax.ir.graph import MARK, Operator
from sporax.ir.operation import Operation, TensorSpec
from sporax.planner.rules import rule_for
from sporax.planner.search.space.operator_rules import (
    Kinds,
    is_identity,
    is_light,
    is_linear,
    is_reduction,
    rule_of,
    signature,
)

SPEC = TensorSpec((4, 8))


def operator(name, **params):
    return Operator(Operation(name, (SPEC,), (SPEC,), params), (0,), (1,))


@pytest.mark.parametrize(("name", "light", "reduction", "linear"), [
    ("tanh", True, False, False),
    ("neg", True, False, True),
    ("mul", True, False, True),
    ("reshape", True, False, True),
    ("reduce_sum", True, True, False),
    ("cumsum", False, True, False),
    ("sort", False, False, False),
    ("dot_general", False, False, False),
    ("sharding_constraint", True, False, False),
    ("loop_carry", True, True, True),
])  # fmt: skip
def test_operators_are_sorted_by_what_a_decision_would_gain(name, light, reduction, linear):
    assert is_reduction(operator(name)) == reduction
    assert is_linear(operator(name)) == linear
    assert is_light(operator(name)) == light


def test_control_flow_is_heavy_and_held_whole():
    (loop,) = scan().operators
    assert not is_light(loop)
    rule = rule_of(loop)
    assert rule.opaque == "'scan' is not sharded: bodies of control flow are run whole"
    assert rule.factors == ()


def test_marks_and_barriers_hand_every_tensor_on():
    mark = Operator(Operation(MARK, (SPEC, SPEC), (SPEC, SPEC), {"mark": object()}), (0, 1), (2, 3))
    assert is_identity(mark)
    rule = rule_of(mark)
    assert rule.operands == rule.results
    assert len(set(rule.operands)) == 2  # each with dimensions of its own
    assert not is_identity(operator("tanh"))


def test_layers_that_repeat_add_no_kinds():
    graph = layers(5)
    kinds = Kinds(graph, [False] * len(graph.operators))
    assert [example.name for example in kinds.examples] == ["dot_general", "tanh"]
    assert kinds.of == [0, 1] * 5
    queried = []
    answers = kinds.per_operator(lambda example: queried.append(example.name) or example.name)
    assert answers == ["dot_general", "tanh"] * 5
    assert queried == ["dot_general", "tanh"]


def test_shape_lateness_and_rounds_make_kinds():
    builder = GraphBuilder()
    x, y = builder.argument(4, 4), builder.argument(8, 4)
    for tensor, options in ((x, {}), (y, {}), (x, {"times": 3}), (x, {})):
        builder.unary("tanh", tensor, **options)
    kinds = Kinds(builder.graph(x), [False, False, False, True])
    assert kinds.of == [0, 1, 2, 3]
    assert kinds.late == [False, False, False, True]


def test_parameters_that_cannot_be_hashed_count_as_themselves():
    shared = []
    one, same, other = (Operation("call", (SPEC,), (SPEC,), {"table": table}) for table in (shared, shared, []))
    assert signature(one) == signature(same) != signature(other)
    assert rule_for(one).opaque
