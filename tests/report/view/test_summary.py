"""Summaries of plans: their figures against the compiled program and the arrays, their text, their JSON."""

import json
import math
import re
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sporax
import sporax.mindspore as ms
from sporax.base.text_tables import size_text, time_text
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.placement import Placement
from sporax.ir.plan import Plan
from sporax.mindspore import Parameter, Tensor, context, nn, ops
from sporax.mindspore.common.initializer import Normal
from sporax.mindspore.communication import init, release
from sporax.planner.communication.transfers import collective_bytes, schedule
from sporax.planner.cost.combined_collectives import late_tensors
from sporax.report.render.text import plain_text
from sporax.report.view import operator_groups as groups_module
from sporax.report.view.axis_names import joined_axes
from sporax.report.view.plan_view import Headline
from sporax.report.view.tables import headline_section

KINDS = {"all-reduce": "all_reduce", "all-gather": "all_gather", "reduce-scatter": "reduce_scatter"}
COLLECTIVE = re.compile(r" = (.*?) (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(?:-start)?\(")


class Net(nn.Cell):
    """A dense layer that says nothing of cuts, then a matrix cut by rows."""

    def __init__(self):
        super().__init__()
        self.fc1 = nn.Dense(16, 32)
        self.relu = ops.ReLU()
        self.matmul = ops.MatMul().shard(((2, 4), (4, 1)))
        self.w = Parameter(Tensor(shape=(32, 8), dtype=ms.float32, init=Normal(0.1)), name="w")

    def construct(self, x):
        return self.matmul(self.relu(self.fc1(x)), self.w)


@pytest.fixture
def semi_auto():
    """Semi-automatic parallelism on eight devices, with further settings."""
    mode = context.get_context("mode")
    context.set_context(mode=ms.GRAPH_MODE)
    init()

    def switch_on(**settings):
        context.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8, **settings)

    yield switch_on
    release()
    context.set_context(mode=mode)
    context.reset_auto_parallel_context()


def planned_step():
    net = Net()
    step = nn.TrainOneStepCell(
        nn.WithLossCell(net, nn.CrossEntropyLoss()), nn.Momentum(net.trainable_params(), 0.1, 0.9)
    )
    x, y = Tensor(np.ones((8, 16), np.float32)), Tensor(np.zeros(8, np.int32))
    return net, step, (x, y), step.program.plan(x, y).summary()


def compiled_collectives(text):
    """Result bytes of the collectives in a compiled program, by kind."""
    actual = {}
    for line in COLLECTIVE.finditer(re.sub(r"/\*.*?\*/", "", text)):
        shapes = re.findall(r"\w32\[([\d,]*)\]", line.group(1))
        size = sum(4 * math.prod(int(n) for n in shape.split(",") if n) for shape in shapes)
        kind = KINDS[line.group(2)]
        actual[kind] = actual.get(kind, 0) + size
    return actual


def planned_collectives(summary):
    """The same from a summary, which counts what a rank brings along."""
    actual = {}
    for collective in (collective for row in summary.operators for collective in row.collectives):
        result = {
            "all_gather": collective.num_bytes * collective.ranks,
            "reduce_scatter": collective.num_bytes // collective.ranks,
        }
        actual[collective.kind] = actual.get(collective.kind, 0) + collective.count * result.get(
            collective.kind, collective.num_bytes
        )
    return actual


OPTIMIZER_PARALLEL = {
    "enable_parallel_optimizer": True,
    "parallel_optimizer_config": {"parallel_optimizer_threshold": 0},
}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"dataset_strategy": "full_batch"},
        OPTIMIZER_PARALLEL,
        {"comm_fusion": {"allreduce": {"mode": "auto", "config": None}}},
    ],
    ids=["data", "full_batch", "optimizer", "fusion"],
)
def test_its_collectives_are_those_of_the_compiled_program(semi_auto, settings):
    semi_auto(**settings)
    _, step, inputs, summary = planned_step()
    text = step.program.lower(*inputs).compile().as_text()
    assert planned_collectives(summary) == compiled_collectives(text)


def test_its_bytes_are_those_that_a_device_holds(semi_auto):
    semi_auto(**OPTIMIZER_PARALLEL)
    net, step, inputs, summary = planned_step()
    step(*inputs)
    for parameter in net.trainable_params():
        (row,) = (row for row in summary.tensors if row.name == parameter.name)
        shard = parameter.array.addressable_shards[0].data
        assert (row.role, row.num_bytes, row.slice_shape) == ("parameter", shard.nbytes, shard.shape)
        assert row.kept_as != row.layout
    kept = sum(p.array.addressable_shards[0].data.nbytes for p in net.trainable_params())
    assert summary.totals.parameter_bytes == kept
    assert summary.totals.whole_parameter_bytes == sum(p.array.nbytes for p in net.trainable_params())


def test_rows_follow_the_operators_of_the_user(semi_auto):
    semi_auto()
    _, _, _, summary = planned_step()
    rows = {(row.phase, row.path.rpartition(".")[2], row.name): row for row in summary.operators}
    matmul = rows["forward", "matmul", "MatMul"]
    assert (matmul.strategy, matmul.given) == (((2, 4), (4, 1)), True)
    assert (matmul.inputs, matmul.results) == (("[a, b]", "[b, -]"), ("[a, -]",))
    assert {item.kind for item in matmul.collectives} == {"all_gather", "all_reduce"}
    dense = rows["forward", "fc1", "dense"]
    assert (dense.strategy, dense.given) == (((8, 1), (1, 1), (1,)), False)
    assert rows["backward", "matmul", "MatMul"].results == ("[a·b, -]", "[b, -] + sum over a")
    gradients = rows["update", "", "gradients"]
    assert sum(item.count for item in gradients.collectives) == 3
    assert sum(row.flops_share for row in summary.operators) == pytest.approx(1.0)
    assert summary.axes == (("a", 2), ("b", 4))


def test_a_loop_counts_as_often_as_it_runs(semi_auto):
    semi_auto(dataset_strategy="full_batch")
    matmul = ops.MatMul().shard(((1, 8), (8, 1)))

    @ms.jit
    def repeated(x, w):
        return ops.scan(lambda carry, _: (matmul(carry, w), None), x, None, length=5)[0]

    planned = repeated.program.plan(Tensor(np.ones((8, 16), np.float32)), Tensor(np.ones((16, 16), np.float32)))
    (traffic,) = (item for item in planned.summary().totals.traffic if item.kind == "all_reduce")
    assert (traffic.count, traffic.num_bytes) == (5, 5 * 8 * 16 * 4)


def test_the_text_fits_and_says_what_matters(semi_auto):
    semi_auto()
    _, _, _, summary = planned_step()
    text = str(summary)
    assert max(map(len, text.splitlines())) <= 120
    assert re.search(r"matmul MatMul +\(2,4\) \(4,1\) \* +\[a, b\] \[b, -\] → \[a, -\] ", text)
    assert re.search(r"w +float32 32×8 +8×8 +\[b, -\] +256 B", text)
    assert max(map(len, plain_text(summary, 80).splitlines())) <= 80


def test_json_holds_all_of_it(semi_auto):
    semi_auto()
    _, _, _, summary = planned_step()
    value = json.loads(summary.to_json())
    assert value["version"] == 1
    assert len(value["operators"]) == len(summary.operators)
    assert value["totals"]["peak_bytes"] == summary.totals.peak_bytes > summary.totals.parameter_bytes


def test_axes_that_go_together_are_one():
    mesh = DeviceMatrix((2, 2, 2, 3))

    def runs(*placements):
        return joined_axes(Plan(mesh, placements, (), ()))

    assert runs(Placement(((0, 1), (2, 3)))) == [(0, 1), (2, 3)]
    assert runs(Placement(((0, 1), (2, 3))), Placement(((0,), ()))) == [(0,), (1,), (2, 3)]
    assert runs(Placement(((1, 0), ()))) == [(0,), (1,), (2, 3)]
    assert runs(Placement(((),), partial=(0, 1, 2))) == [(0, 1, 2), (3,)]
    assert runs() == [(0, 1, 2, 3)]


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (999, "999 B"), (1024, "1.02 kB"), (25_000_000, "25 MB"), (7e13, "70 TB")]
)
def test_bytes_are_written_in_a_readable_unit(size, text):
    assert size_text(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 µs"),
        (9e-13, "0 µs"),
        (2.5e-7, "0.25 µs"),
        (1.234e-4, "123 µs"),
        (0.0456, "45.6 ms"),
        (3.0, "3 s"),
        (4321.0, "4321 s"),
    ],
)
def test_seconds_are_written_in_a_readable_unit(seconds, text):
    assert time_text(seconds) == text


def trained(loss):
    """A plan of a training step in plain JAX, its variables cut."""

    def step(params, x, y):
        value, gradients = jax.value_and_grad(loss)(params, x, y)
        return jax.tree.map(lambda w, g: w - 0.1 * g, params, gradients), value

    shapes = {"up": (1024, 4096), "down": (4096, 1024), "data": (32, 1024)}
    arrays = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in shapes.items()}
    data = arrays.pop("data")
    cuts = {0: {"up": (1, 8), "down": (8, 1)}}
    return sporax.plan(step, arrays, data, data, devices=8, hardware="h200", carry={0: 0}, fixed=cuts)


def test_products_of_plain_jax_are_known_by_their_scopes_and_variables():
    def loss(params, x, y):
        with jax.named_scope("encoder"):
            h = jnp.tanh(x @ params["up"])
        return jnp.mean((h @ params["down"] - y) ** 2)

    planned = trained(loss)
    summary = planned.summary()
    rows = {(row.path, row.phase): row for row in summary.operators if row.name == "dot_general"}
    up, down = rows["encoder.up", "forward"], rows["[0]['down']", "forward"]
    assert up.strategy[1] == (1, 8)
    assert (down.inputs, down.results) == (("[-, a]", "[a, -]"), ("[-, -] + sum over a",))
    assert re.search(r"encoder\.up dot_general .* → \[-, a\] ", str(summary))
    assert planned.explain("encoder.up dot_general")[0] == planned.explain("[0]['up']")[0]

    moved = {item.kind: item.num_bytes for item in summary.totals.traffic}
    assert moved == collective_bytes(list(schedule(planned.graph, planned.plan)))
    assert sum(row.flops_share for row in summary.operators) == pytest.approx(1.0)


def test_a_graph_is_looked_through_once(monkeypatch):
    """What is worked out of a whole graph is not worked out for each of its operators."""
    planned = trained(lambda params, x, y: jnp.mean((jnp.tanh(x @ params["up"]) @ params["down"] - y) ** 2))
    looked: list[int] = []

    def counted(graph):
        looked.append(id(graph))
        return late_tensors(graph)

    monkeypatch.setattr(groups_module, "late_tensors", counted)
    rows = planned.summary().operators
    assert len(planned.graph.operators) > len(rows) > 3
    assert len(looked) == 1


def test_layers_with_equal_shardings_are_one_row():
    def step(weights, x):
        for number, weight in enumerate(weights):
            with jax.named_scope(f"layers.{number}"):
                x = jnp.tanh(x @ weight)
        return x

    def lines(depth):
        weights = [jax.ShapeDtypeStruct((64, 64), jnp.float32)] * depth
        x = jax.ShapeDtypeStruct((32, 64), jnp.float32)
        planned = sporax.plan(
            step, weights, x, devices=8, hardware="h200", fixed={0: (1, 1), 1: (8, 1)}, mode="recursive"
        )
        return str(planned.summary()).splitlines()

    few, many = lines(4), lines(24)
    assert len(many) == len(few)
    assert any(re.match(r"layers.0-23 dot_general \(24 ×\)", line) for line in many)
    assert any("(2 ×) stands for two equal rows, with the numbers of one" in line for line in many)
    assert max(map(len, many)) <= 120


def test_a_head_says_what_a_step_takes_where_transfers_hide():
    head = Headline(seconds=2.0, samples=8, tokens=64, samples_per_second=4.0, tokens_per_second=32.0, hidden=0.4)
    assert ("throughput", "4 samples/s, 32 tokens/s") in headline_section(head).rows
    assert ("with transfers hidden", "1.6 s, 5 samples/s, 40 tokens/s") in headline_section(head).rows
    assert "with transfers hidden" not in dict(headline_section(replace(head, hidden=0.0)).rows)
