"""Strategy files: a plan is saved, and another program with the same operators is cut as it says."""

import json

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.base.errors import SporaxKeyError, SporaxTypeError, SporaxValueError
from sporax.mindspore import Tensor, context, nn, ops
from sporax.mindspore.common.initializer import initializer
from sporax.mindspore.context._strategy_files.layouts import parameter_layouts
from sporax.mindspore.parallel import Layout, set_op_strategy_config
from sporax.mindspore.parallel.auto_parallel import AutoParallel

RNG = np.random.default_rng(4)
X, Y = RNG.normal(size=(16, 16)).astype(np.float32), RNG.integers(0, 8, 16).astype(np.int32)
LAYOUT = Layout((2, 4), ("dp", "mp"))


class Net(nn.Cell):
    """Two products, each cut by hand or left alone; beside them what follows, and two calls of one operator."""

    def __init__(self, *strategies):
        super().__init__()
        self.first, self.second = ops.MatMul(), ops.MatMul()
        for product, strategy in zip((self.first, self.second), strategies, strict=False):
            product.shard(strategy)
        self.up = ms.Parameter(initializer("normal", [16, 32], ms.float32), name="up")
        self.down = ms.Parameter(initializer("normal", [32, 8], ms.float32), name="down")
        self.relu = nn.ReLU()

    def construct(self, x):
        x = self.relu(ops.reshape(self.first(x, self.up), (-1, 32)))
        return self.second(self.relu(x), self.down)


BY_HAND = (((2, 1), (1, 4)), (LAYOUT("dp", "mp"), LAYOUT("mp", "None")))


def make_step(*strategies, **settings):
    context.set_context(mode=context.GRAPH_MODE)
    context.reset_auto_parallel_context()
    context.set_auto_parallel_context(**{"parallel_mode": "semi_auto_parallel", "device_num": 8, **settings})
    ms.set_seed(2)
    net = Net(*strategies)
    return nn.TrainOneStepCell(
        nn.WithLossCell(net, nn.CrossEntropyLoss()), nn.Momentum(net.trainable_params(), 0.1, 0.9)
    )


def planned(step):
    return step.program.plan(Tensor(X), Tensor(Y))


def items(path, kind="parallel_strategy_item"):
    return json.loads(path.read_text())[kind]


@pytest.mark.parametrize("key", ["op_strategy", "strategy_ckpt"])
def test_a_saved_plan_comes_back_in_a_program_without_strategies(tmp_path, key):
    path = str(tmp_path / "new" / "plan.json")
    saved = planned(make_step(*BY_HAND, **{f"{key}_save_file": path}))
    assert saved.diff(planned(make_step()).plan)
    again = planned(make_step(**{f"{key}_load_file": path}))
    assert saved.diff(again.plan) == ""
    assert parameter_layouts(again) == parameter_layouts(saved)


def test_the_file_wins_over_the_program_and_losses_stay(tmp_path):
    path = tmp_path / "plan.json"
    alone = make_step(*BY_HAND, op_strategy_save_file=str(path))
    losses = [float(alone(Tensor(X), Tensor(Y))) for _ in range(3)]
    step = make_step(((8, 1), (1, 1)), ((1, 8), (8, 1)), op_strategy_load_file=str(path))
    np.testing.assert_allclose([float(step(Tensor(X), Tensor(Y))) for _ in range(3)], losses, rtol=1e-5)
    assert step.parameter_layout_dict["up"].slice_shape == [16, 8]


def test_what_the_files_say(tmp_path):
    places, weights = tmp_path / "places.json", tmp_path / "weights.json"
    sharded = {"enable_parallel_optimizer": True, "parallel_optimizer_config": {"parallel_optimizer_threshold": 0}}
    planned(make_step(*BY_HAND, op_strategy_save_file=str(places), strategy_ckpt_save_file=str(weights), **sharded))
    network = "TrainOneStepCell.network._backbone"
    by_place = items(places)
    assert by_place[f"{network}.first/MatMul-op0"] == {"parallel_strategy": [[2, 1], [1, 4]], "stage": 0}
    assert by_place[f"{network}.second/MatMul-op0"] == {
        "parallel_strategy": [[2, 4], [4, 1]],
        "parallel_layouts": [
            {"device_matrix": [2, 4], "tensor_map": [1, 0], "rank_list": list(range(8))},
            {"device_matrix": [2, 4], "tensor_map": [0, -1], "rank_list": list(range(8))},
        ],
        "stage": 0,
    }
    assert {f"{network}.relu/relu-op{number}" for number in (0, 1)} <= set(by_place)
    assert set(items(weights)) == {"MatMul_up", "MatMul_down"}
    layouts = items(weights, "parallel_layout_item")
    assert layouts["up"] == {
        "dev_matrix": [2, 4],
        "tensor_map": [-1, 0],
        "tensor_shape": [16, 32],
        "field": 0,
        "opt_weight_shard_size": 2,
        "opt_weight_shard_step": 4,
    }
    assert layouts["moments.up"] == layouts["up"]


def test_a_message_is_mindspores_byte_for_byte(tmp_path):
    """Of x (16, 32) cut (2, 1) and w (32, 64) cut (1, 4) on 8 devices; MindSpore wrote these items, but for the whole shape."""
    path = tmp_path / "plan.ckpt"
    planned(make_step(((2, 1), (1, 4)), ((2, 4), (4, 1)), strategy_ckpt_save_file=str(path)))
    content = path.read_bytes()
    minus_one = b"\x08" + b"\xff" * 9 + b"\x01"
    tail = b"\x1a\x00\x22\x00\x28\x00\x30\x00\x38\x00"  # nothing of parts, offsets, fields, optimizer shards
    whole = b"\x7a\x04\x08\x10\x08\x20"  # field 15, which MindSpore's reader leaves out: 16, 32
    assert b"\x12\x1b\x0a\x09MatMul_up\x12\x0e\x08\x00\x12\x04\x08\x02\x08\x01\x12\x04\x08\x01\x08\x04" in content
    layout = b"\x0a\x04\x08\x02\x08\x04\x12\x0d" + minus_one + b"\x08\x00" + tail + whole
    assert b"\x1a\x2b\x0a\x02up\x12\x25" + layout in content
    again = planned(make_step(strategy_ckpt_load_file=str(path)))
    assert parameter_layouts(again)["down"].slice_shape == [8, 8]


def test_a_message_loses_layouts_and_says_so(tmp_path):
    with pytest.warns(UserWarning, match="without the Layouts of MatMul_down"):
        planned(make_step(*BY_HAND, strategy_ckpt_save_file=str(tmp_path / "plan.ckpt")))


def test_searches_keep_to_a_file(tmp_path):
    path = str(tmp_path / "plan.json")
    planned(make_step(*BY_HAND, op_strategy_save_file=path))
    settings = {"parallel_mode": "auto_parallel", "search_mode": "recursive_programming"}
    actual = parameter_layouts(planned(make_step(**settings, op_strategy_load_file=path)))
    assert (actual["up"].slice_shape, actual["down"].slice_shape) == ([16, 8], [8, 8])


def test_gradients_and_optimizer_of_their_own_share_a_file(tmp_path):
    path = tmp_path / "weights.json"
    step = make_step(*BY_HAND, strategy_ckpt_save_file=str(path))
    net, optimizer = step.network, step.optimizer
    _, gradients = ms.value_and_grad(net, None, optimizer.parameters)(Tensor(X), Tensor(Y))
    assert "moments.up" not in items(path, "parallel_layout_item")
    optimizer(gradients)
    assert set(items(path, "parallel_layout_item")) >= {"up", "down", "moments.up", "moments.down"}
    assert set(items(path)) == {"MatMul_up", "MatMul_down"}


def test_auto_parallel_saves_and_loads(tmp_path, monkeypatch):
    monkeypatch.setattr(context, "num_devices", lambda: 8)
    path = str(tmp_path / "plan.json")
    ms.set_seed(2)
    net, other = AutoParallel(Net(*BY_HAND)), AutoParallel(Net())
    net.save_operator_strategy_file(path)
    other.load_operator_strategy_file(path)
    np.testing.assert_allclose(net(Tensor(X)).shape, other(Tensor(X)).shape)
    layouts = [parameter_layouts(item.program.planned) for item in (net, other)]
    assert layouts[0] == layouts[1]
    assert layouts[0]["up"].slice_shape == [16, 8]


def test_which_ranks_hold_the_same_weights(tmp_path):
    path = tmp_path / "groups"
    planned(make_step(((2, 1), (1, 4)), ((2, 4), (4, 1)), group_ckpt_save_file=str(path)))
    twins = b"\x12\x04\x08\x00\x08\x04"  # rank 0 and rank 4, as MindSpore writes it
    assert path.read_bytes() == twins
    sharded = {"enable_parallel_optimizer": True, "parallel_optimizer_config": {"parallel_optimizer_threshold": 0}}
    planned(make_step(((2, 1), (1, 4)), ((2, 4), (4, 1)), group_ckpt_save_file=str(path), **sharded))
    assert path.read_bytes() == b"\x0a\x0d\x0a\x052-0-4\x12\x04\x08\x00\x08\x04" + b"\x12\x02\x08\x00"


# ---------------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (None, "the file must exist, but got"),
        ("{", "must be a strategy file, but got"),
        ("[]", r"it must be an object, but got \[\]"),
        ('{"w": 3}', "has neither 'parallel_layout_item' nor 'parallel_strategy_item'"),
        ('{"parallel_strategy_item": 3}', "'parallel_strategy_item' must be an object or null, but got 3"),
        ('{"parallel_strategy_item": {"MatMul_up": 3}}', "must have an entry like"),
        ('{"parallel_strategy_item": {"MatMul_up": {"parallel_strategy": [["a"]]}}}', "must have an entry like"),
    ],
)
def test_files_that_cannot_be_read(tmp_path, content, match):
    path = tmp_path / "plan.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SporaxValueError, match=match):
        planned(make_step(strategy_ckpt_load_file=str(path)))


@pytest.mark.parametrize("content", [b"\x12", b"\x12\x7fabc", b"\x12\x02\x0a\x00", b"\x0b", b"{}"])
def test_messages_that_cannot_be_read(tmp_path, content):
    path = tmp_path / "plan.ckpt"
    path.write_bytes(content)
    with pytest.raises(SporaxValueError, match="must be a strategy file, but got"):
        planned(make_step(strategy_ckpt_load_file=str(path)))


def test_a_strategy_that_does_not_fit_is_refused_at_its_operator(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text('{"parallel_strategy_item": {"MatMul_up": {"parallel_strategy": [[3, 1], [1, 1]], "stage": 0}}}')
    with pytest.raises(RuntimeError, match=r"first \(MatMul\).*power of 2 on 8 devices, but got 3"):
        planned(make_step(strategy_ckpt_load_file=str(path)))


def test_a_file_of_another_program_is_reported(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text('{"parallel_strategy_item": {"MatMul_other": {"parallel_strategy": [[8, 1], [1, 1]], "stage": 0}}}')
    with pytest.warns(UserWarning, match="no operator of this step has a strategy in"):
        planned(make_step(strategy_ckpt_load_file=str(path)))


def test_op_strategy_config_is_a_setting():
    set_op_strategy_config("SAVE", "/data/out.json")
    set_op_strategy_config("LOAD", "/data/in.json")
    config = context.snapshot()
    assert (config.op_strategy_save_file, config.op_strategy_load_file) == ("/data/out.json", "/data/in.json")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("foo", "/a.json"), SporaxKeyError),
        (("save", "/a.json"), SporaxKeyError),
        ((3, "/a.json"), SporaxKeyError),
        (("SAVE", "a.json"), SporaxKeyError),
        (("SAVE", "/a.txt"), SporaxKeyError),
        ((), SporaxKeyError),
        (("SAVE", 3), SporaxTypeError),
    ],
)
def test_settings_of_strategy_files_that_make_no_sense_are_refused(arguments, error):
    with pytest.raises(error, match="For 'set_op_strategy_config'"):
        set_op_strategy_config(*arguments)


def test_the_executor_has_strategies_by_names_of_operators():
    step = make_step(*BY_HAND)
    executor = ms.common.api._cell_graph_executor
    executor.compile(step, Tensor(X), Tensor(Y))
    found = executor._get_shard_strategy(step)
    assert found["Default/network._backbone.first/MatMul-op0"] == [[2, 1], [1, 4]]
    assert found["Default/network._backbone.second/MatMul-op1"] == [[2, 4], [4, 1]]
    assert executor._get_num_parallel_ops(step) == len(found) > 4
    context.reset_auto_parallel_context()
    assert executor._get_shard_strategy(nn.ReLU()) == {}


def test_a_virtual_data_set_shards_the_inputs_of_a_network():
    class Sums(nn.Cell):
        def __init__(self):
            super().__init__()
            self.data = ms.ops.operations.comm_ops._VirtualDataset().shard(((8, 1), (8, 1)))

        def construct(self, *inputs):
            return sum(value.sum() for value in self.data(*inputs))

    make_step()  # for its settings
    net, values = Sums(), (Tensor(X), Tensor(X[:8]))
    np.testing.assert_allclose(net(*values).asnumpy(), X.sum() + X[:8].sum(), rtol=1e-5)
    assert ms.common.api._cell_graph_executor._get_shard_strategy(net)["Default/data/_VirtualDataset-op0"] == [
        [8, 1],
        [8, 1],
    ]
