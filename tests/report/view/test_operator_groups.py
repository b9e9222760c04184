"""Which operators of a step belong together."""

from dataclasses import replace

from planner_graphs import GraphBuilder, layers, mesh_of, placement, product, scan, training_step

from sporax.ir.graph import MARK
from sporax.ir.marks import GradientMark, OperatorMark, Side
from sporax.planner.search.space.plan_assembly import replicated_plan
from sporax.report.view.operator_groups import StepPhase, operator_groups

MESH = mesh_of(2)


def groups_of(graph):
    return operator_groups(graph, replicated_plan(graph, MESH))


def marked(builder, tensors, name, number, side, path, strategy=None):
    """Tensors behind a mark of one of the facade's operators."""
    shapes = [builder.tensors[tensor].shape for tensor in tensors]
    mark = OperatorMark(name, number, side, strategy)
    behind = builder.add(MARK, tensors, *shapes, params={"mark": mark}, path=path)
    return behind if isinstance(behind, list) else [behind]


def test_without_marks_every_heavy_operator_has_the_light_ones_behind_it():
    groups = groups_of(layers(2))
    assert [(group.name, group.operators) for group in groups] == [("dot_general", [0, 1]), ("dot_general", [2, 3])]
    assert [group.path for group in groups] == ["w1", "w2"]  # the variable that each of them reads
    assert all(group.phase is StepPhase.FORWARD for group in groups)


def test_phases_of_a_training_step_are_apart():
    groups = groups_of(training_step())
    phases = {group.phase: group.operators for group in groups if group.name == "dot_general"}
    assert phases[StepPhase.FORWARD] == [0, 1, 2]
    assert 6 in phases[StepPhase.BACKWARD]
    assert {number for group in groups if group.phase is StepPhase.UPDATE for number in group.operators} == {7, 8}


def test_arithmetic_of_a_group_is_that_of_its_operators_on_one_device():
    (group,) = groups_of(product(8, 16, 32))
    assert group.flops == 2 * 8 * 16 * 32


def test_a_loops_arithmetic_counts_per_round_and_its_operators_are_not_listed():
    few, many = (sum(group.flops for group in groups_of(scan(rounds))) for rounds in (2, 6))
    assert many == 3 * few > 0
    assert all(group.operators in ([0], []) for group in groups_of(scan(2)))


def test_operators_between_the_marks_of_one_call_are_one_group():
    builder = GraphBuilder()
    x, w = builder.argument(8, 16), builder.weight(16, 32)
    x, w = marked(builder, [x, w], "MatMul", 1, Side.IN, "net.fc", ((2, 1), (1, 1)))
    y = builder.matmul(x, w, path="net.fc")
    (y,) = marked(builder, [y], "MatMul", 1, Side.OUT, "net.fc", ((2, 1), (1, 1)))
    z = builder.unary("tanh", y, path="net.act")
    groups = groups_of(builder.graph(z))
    assert [(group.path, group.name, group.operators) for group in groups] == [
        ("net.fc", "MatMul", [0, 1, 2]),
        ("net.act", "", [3]),
    ]
    assert [group.requested for group in groups] == [True, False]
    assert groups[0].inputs == groups[0].results * 2 == (placement("- -"),) * 2


def test_finished_gradients_and_what_combines_them_are_a_group():
    builder = GraphBuilder()
    x, w = builder.argument(8, 16), builder.weight(8, 32)
    (x,) = marked(builder, [x], "ReLU", 1, Side.IN, "net.act")
    gradient = builder.matmul(builder.transpose(x, 1, 0), w, backward=True)
    done = builder.add(MARK, [gradient], (16, 32), params={"mark": GradientMark(("w",), (1,))})
    graph = builder.graph(builder.binary("mul", done, 0.1))
    gradients = next(group for group in groups_of(graph) if group.name == "gradients")
    assert gradients.phase is StepPhase.UPDATE
    assert gradients.operators == [3]


def test_transfers_belong_to_the_operator_that_needs_them():
    graph = product()
    plan = replace(replicated_plan(graph, MESH), inputs=(placement("0 -"), placement("- -")))
    (group,) = operator_groups(graph, plan)
    ((transfers, times),) = group.transfers
    assert ([transfer.tensor for transfer in transfers], times) == ([0], 1)
