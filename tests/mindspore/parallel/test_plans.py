"""Looking at plans from a script."""

import io

import numpy as np
import pytest
from rich.console import Console

import sporax.mindspore as ms
from sporax.base.errors import SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.mindspore import Parameter, Tensor, context, ops
from sporax.mindspore.communication import init, release
from sporax.mindspore.parallel import Layout, plan_of, show_layout, show_plan
from sporax.mindspore.parallel.auto_parallel import AutoParallel


class Net(ms.nn.Cell):
    def __init__(self):
        super().__init__()
        self.w = Parameter(Tensor(np.ones((16, 8), np.float32)), name="w")
        self.matmul = ops.MatMul().shard(((2, 1), (1, 4)))

    def construct(self, x):
        return self.matmul(x, self.w)


@pytest.fixture
def semi_auto():
    context.set_context(mode=ms.GRAPH_MODE)
    init()
    context.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8)
    yield
    release()


X = Tensor(np.ones((8, 16), np.float32))


@pytest.mark.usefixtures("semi_auto")
def test_a_cell_and_a_compiled_function_have_plans():
    net = Net()
    planned = plan_of(net, X)
    assert "matmul MatMul" in str(planned.summary())
    assert planned.plan.to_json().startswith("{")
    function = ms.jit(lambda x: ops.relu(x))
    assert plan_of(function, X).plan.mesh.num_devices == 8


@pytest.mark.usefixtures("semi_auto")
def test_an_operator_is_explained_by_its_path():
    planned = plan_of(Net(), X)
    (report,) = planned.explain("Net.matmul")
    assert report.chosen.assignment == planned.plan.operators[report.operator].assignment
    assert "compared with the chosen one" in str(planned.explain("matmul"))
    assert planned.diff(planned) == ""


@pytest.mark.usefixtures("semi_auto")
@pytest.mark.parametrize("name", ["MatMul", "matmul MatMul", "Net.matmul dot_general"])
def test_an_operator_is_explained_by_the_name_that_summaries_give_it(name):
    planned = plan_of(Net(), X)
    (answers,) = planned.explain(name)
    assert planned.graph.operators[answers.operator].name == "dot_general"
    assert "dot_general (MatMul) at Net.matmul" in answers.title
    with pytest.raises(SporaxValueError, match="'MatMul'"):
        planned.explain("MatMull")


def test_auto_parallel_has_a_plan():
    context.set_context(mode=ms.GRAPH_MODE)
    init()
    try:
        assert "matmul MatMul" in str(plan_of(AutoParallel(Net(), "semi_auto"), X).summary())
    finally:
        release()


def test_what_is_not_sharded_has_none():
    context.set_context(mode=ms.GRAPH_MODE)
    with pytest.raises(SporaxRuntimeError, match="'parallel_mode' must be 'semi_auto_parallel' or"):
        plan_of(Net(), X)
    with pytest.raises(SporaxTypeError, match="must be a Cell or a function compiled by jit, but got int"):
        plan_of(3, X)


@pytest.mark.usefixtures("semi_auto")
@pytest.mark.parametrize("terminal", [True, False])
def test_plans_are_printed_in_colours_on_terminals_only(terminal):
    file = io.StringIO()
    show_plan(plan_of(Net(), X), Console(file=file, force_terminal=terminal, width=100))
    text = file.getvalue()
    assert ("\x1b[" in text) == terminal
    assert "[a, -]" in text
    assert "(2,1) (1,4) *" in text


@pytest.mark.usefixtures("semi_auto")
def test_a_parameter_is_drawn_where_it_lies():
    net = Net()
    assert show_layout(net.w).splitlines()[0] == "w (16×8): 1×1 slices, each on 1 rank"
    ms.nn.TrainOneStepCell(net, ms.nn.SGD(net.trainable_params(), 0.1))(X)
    assert show_layout(net.w).splitlines() == [
        "w (16×8): 1×4 slices, each on 2 ranks",
        "┌─────┬─────┬─────┬─────┐",
        "│ 0,4 │ 1,5 │ 2,6 │ 3,7 │",
        "└─────┴─────┴─────┴─────┘",
    ]


def test_a_layout_is_drawn():
    layout = Layout((2, 2), ("dp", "mp"))
    assert show_layout(layout("mp", "dp")).splitlines()[2:5:2] == ["│ 0 │ 2 │", "│ 1 │ 3 │"]
    with pytest.raises(SporaxValueError, match="must be set before"):
        show_layout(Layout((2, 2), ("dp", "mp")))
    with pytest.raises(SporaxTypeError, match="but got str"):
        show_layout("w")


@pytest.mark.usefixtures("semi_auto")
def test_parameters_that_a_step_only_reads_stay_where_it_needs_them():
    """Otherwise they would travel to all devices at every call."""
    net = Net()
    expected = np.asarray(net(X).asnumpy())
    assert net.w.array.addressable_shards[0].data.shape == (16, 2)
    np.testing.assert_allclose(net(X).asnumpy(), expected)
