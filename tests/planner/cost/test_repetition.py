"""How often operators run, and whether they belong to or depend on the backward pass."""

from planner_graphs import GraphBuilder, training_step

from sporax.planner.cost.combined_collectives import late_operators, late_tensors, rounds


def test_what_depends_on_the_backward_pass_is_late_too():
    graph = training_step()
    late = late_operators(graph)
    names = [operator.name for operator, is_late in zip(graph.operators, late, strict=True) if not is_late]
    assert names == ["dot_general", "tanh", "reduce_sum"]
    assert late[-2:] == [True, True]  # the update, which no derivative is itself


def test_late_tensors_are_what_late_operators_make():
    graph = training_step()
    assert graph.outputs[0] in late_tensors(graph)
    assert graph.outputs[1] not in late_tensors(graph)
    assert not late_tensors(graph) & {argument.tensor for argument in graph.inputs}


def test_tensors_of_a_round_are_made_once_per_round():
    builder = GraphBuilder()
    x = builder.argument(4)
    y = builder.unary("tanh", x, times=5)
    z = builder.unary("exp", y)
    assert rounds(builder.graph(z)) == [1, 5, 1]
