"""Which operators decide for themselves and which follow."""

import jax
import jax.numpy as jnp
import networks
import pytest

from sporax.ir.graph import LITERAL, MARK, Input, Operator, OperatorGraph
from sporax.ir.operation import Operation, TensorSpec
from sporax.lowering.ingest.ingest import ingest
from sporax.planner.search.space.decisions import find_decisions

GRAPH = networks.mlp(2, 32, 64).graph


def operators(graph, name):
    return [number for number, item in enumerate(graph.operators) if item.name == name]


def test_products_decide_for_themselves():
    decisions = find_decisions(GRAPH)

    unread = {number for number, item in enumerate(GRAPH.operators) if item.results[0] not in decisions.readers}
    assert set(decisions.heavy) - unread == set(operators(GRAPH, "dot_general"))


def test_activations_follow_their_product():
    decisions = find_decisions(GRAPH)
    product = GRAPH.operators[operators(GRAPH, "dot_general")[0]].results[0]

    assert decisions.bundle_of[operators(GRAPH, "max")[0]] == decisions.node_of[product]


def test_updates_follow_their_variable():
    decisions = find_decisions(GRAPH)
    for output, argument in GRAPH.aliases:
        assert decisions.node_of[GRAPH.outputs[output]] == decisions.node_of[GRAPH.inputs[argument].tensor]


def test_broadcasts_follow_their_reader():
    decisions = find_decisions(GRAPH)
    read = [n for n in operators(GRAPH, "broadcast_in_dim") if GRAPH.operators[n].results[0] in decisions.readers]
    assert read
    for number in read:
        (reader, *_) = decisions.readers[GRAPH.operators[number].results[0]]
        assert decisions.bundle_of[number] == decisions.bundle_of[reader]
        assert number in decisions.nodes[decisions.bundle_of[number]].pulled


def test_results_of_reductions_are_decided_on():
    decisions = find_decisions(GRAPH)
    (number,) = operators(GRAPH, "reduce_sum")
    result = GRAPH.operators[number].results[0]

    assert decisions.nodes[decisions.node_of[result]].root == result
    assert decisions.node_of[result] != decisions.bundle_of[number]


def test_a_given_tensor_is_decided_on():
    activation = GRAPH.operators[operators(GRAPH, "max")[0]].results[0]

    assert (
        find_decisions(GRAPH, [activation]).nodes[find_decisions(GRAPH, [activation]).node_of[activation]].root
        == activation
    )


def test_tensors_pass_marks_one_by_one():
    spec = TensorSpec((4, 4))
    mark = Operator(Operation(MARK, (spec, spec), (spec, spec), {"mark": None}), (0, 1), (2, 3))
    add = Operator(Operation("add", (spec, spec), (spec,)), (2, 3), (4,))
    graph = OperatorGraph((spec,) * 5, (mark, add), (Input(0), Input(1)), (4, LITERAL))
    decisions = find_decisions(graph)

    assert decisions.origin[2:4] == (0, 1)
    assert decisions.readers == {0: [1], 1: [1]}


def graph_of(function, *shapes):
    return ingest(jax.make_jaxpr(function)(*(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes))).graph


def test_what_joins_tensors_follows_them():
    graph = graph_of(lambda x, y, z, w: z * jnp.concatenate([x @ w, y @ w], 1), (8, 4), (8, 4), (8, 4), (4, 2))
    decisions = find_decisions(graph)
    (joined,) = operators(graph, "concatenate")

    assert decisions.bundle_of[joined] == decisions.node_of[decisions.operands(joined)[1]]
    assert not any(joined in node.pulled for node in decisions.nodes)


def test_a_reduction_of_what_is_made_does_not_wait_for_its_reader():
    """A mask is made where something of its size reads it, and not where the reader of its sum is."""

    def function(x, w, scale):
        mask = jnp.broadcast_to(scale, (8, 16)) * jnp.ones((8, 1))
        return (x @ w + mask) / (1 + (-mask).sum(1))[:, None]

    graph = graph_of(function, (8, 4), (4, 16), ())
    decisions = find_decisions(graph)
    (total,) = operators(graph, "reduce_sum")

    mask = graph.operators[operators(graph, "mul")[0]].results[0]

    assert decisions.node_of[mask] == decisions.decision_of(operators(graph, "add")[0])
    assert decisions.decision_of(total) != decisions.decision_of(operators(graph, "div")[0])


@pytest.mark.parametrize("terms", [2, 3])
def test_sums_of_products_are_decided_on_once(terms):
    def function(x, *weights):
        total = sum((x @ item for item in weights[1:]), x @ weights[0])
        return jnp.exp(total) * total

    graph = graph_of(function, (8, 4), *[(4, 16)] * terms)
    decisions = find_decisions(graph)
    sums = operators(graph, "add")
    roots = {node.root for node in decisions.nodes}

    assert [graph.operators[item].results[0] in roots for item in sums] == [False] * (terms - 2) + [True]


def test_a_product_added_to_something_else_is_no_sum_of_products():
    graph = graph_of(lambda x, y, w: jnp.exp(jnp.tanh(y) + x @ w), (8, 4), (8, 16), (4, 16))
    (added,) = operators(graph, "add")

    assert graph.operators[added].results[0] not in {node.root for node in find_decisions(graph).nodes}


def test_what_several_products_and_others_read_is_relayed():
    graph = graph_of(lambda x, v, w: (jnp.tanh(x) @ v, jnp.tanh(x) @ w), (8, 4), (4, 4), (4, 4))
    decisions = find_decisions(graph)
    assert not decisions.relays  # two tensors, for all that is known

    def function(x, v, w):
        x = jnp.tanh(x)
        return x @ v, x @ w

    graph = graph_of(function, (8, 4), (4, 4), (4, 4))
    decisions = find_decisions(graph)
    ((tensor, relay),) = decisions.relays.items()
    assert tensor == graph.operators[operators(graph, "tanh")[0]].results[0]
    assert decisions.nodes[relay].is_relay
    assert decisions.node_of[tensor] != relay


def test_depth_adds_no_kinds_of_operators():
    """So that what an operator can choose, and what is known of it by itself, is computed once."""
    few, many = (find_decisions(networks.mlp(layers, 32, 64).graph).kinds for layers in (4, 12))

    assert len(few.examples) == len(many.examples)
    assert len(few.of) < len(many.of)
    assert many.per_operator(lambda operator: operator.name) == [
        operator.name for operator in networks.mlp(12, 32, 64).graph.operators
    ]
