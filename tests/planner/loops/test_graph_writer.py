"""How the bodies of loops and branches are written into the graph around them."""

from planner_graphs import GraphBuilder

from sporax.ir.graph import Role
from sporax.planner.loops.graph_writer import UNKNOWN_ROUNDS
from sporax.planner.loops.inline import inline_loops
from sporax.planner.rules.loop_rules import SUMMED


def body(build, *shapes, constants=0):
    """A graph whose first inputs are constants that the body brought along."""
    inside = GraphBuilder()
    tensors = [
        inside.argument(*shape, role=Role.CONSTANT, name=f"c{n}" if n < constants else "")
        for n, shape in enumerate(shapes)
    ]
    return inside.graph(*build(inside, *tensors))


def names(graph):
    return [operator.name for operator in graph.operators]


def loop_of(inside, operands, results, **params):
    builder = GraphBuilder()
    arguments = [builder.argument(*shape) for shape in operands]
    result = builder.add("scan", arguments, *results, params=params, bodies=(inside,))
    return inline_loops(builder.graph(*(result if isinstance(result, list) else [result]))).graph


def test_a_value_that_rounds_add_to_is_marked_as_a_sum():
    def adds(inside, total, x):
        return [inside.binary("add_any", total, x)]

    def multiplies(inside, total, x):
        return [inside.binary("mul", total, x)]

    for build, summed in ((adds, True), (multiplies, False)):
        inside = body(build, (4,), (4,))
        graph = loop_of(inside, [(4,), (3, 4)], [(4,)], num_consts=0, num_carry=1, length=3)
        (entrance,) = [operator for operator in graph.operators if operator.name == "loop_enter"]
        assert (SUMMED in entrance.operation.params) == summed


def test_constants_of_a_body_become_arguments_of_the_step():
    def build(inside, own, carried):
        return [inside.binary("add", carried, own)]

    inside = body(build, (4,), (4,), constants=1)
    graph = loop_of(inside, [(4,)], [(4,)], num_consts=0, num_carry=1, length=3)
    assert [(entry.role, entry.name) for entry in graph.inputs][1:] == [(Role.CONSTANT, "c0")]
    assert names(graph).count("loop_enter") == 2


def test_a_loop_of_unknown_length_counts_some_rounds_and_its_condition_too():
    test = body(lambda inside, x: [inside.add("gt", [x, 0.0], (), dtype="bool")], ())
    step = body(lambda inside, x: [inside.binary("sub", x, 1.0)], ())
    builder = GraphBuilder()
    result = builder.add(
        "while", [builder.argument()], (), params={"cond_nconsts": 0, "body_nconsts": 0}, bodies=(test, step)
    )
    graph = inline_loops(builder.graph(result)).graph
    times = {operator.name: operator.times for operator in graph.operators}
    assert times["gt"] == times["sub"] == UNKNOWN_ROUNDS
    assert times["loop_carry"] == 1


def test_all_branches_are_there_and_join_behind_the_number_of_the_branch():
    first, second = (body(lambda inside, x, name=name: [inside.unary(name, x)], (4,)) for name in ("tanh", "exp"))
    builder = GraphBuilder()
    index, x = builder.argument(dtype="int32"), builder.argument(4)
    result = builder.add("cond", [index, x], (4,), bodies=(first, second))
    graph = inline_loops(builder.graph(result)).graph
    assert names(graph) == ["loop_enter", "loop_argument", "tanh", "loop_argument", "exp", "branch_join"]
    join = graph.operators[-1]
    assert join.operands[0] == index
    assert join.operands[1:] == (graph.operators[2].results[0], graph.operators[4].results[0])


def test_loops_in_loops_run_as_often_as_both_say():
    inner = body(lambda inside, x: [inside.unary("tanh", x)], (4,))

    def outer(inside, x):
        params = {"num_consts": 0, "num_carry": 1, "length": 3}
        return [inside.add("scan", [x], (4,), params=params, bodies=(inner,))]

    graph = loop_of(body(outer, (4,)), [(4,)], [(4,)], num_consts=0, num_carry=1, length=5)
    assert {operator.name: operator.times for operator in graph.operators}["tanh"] == 15
