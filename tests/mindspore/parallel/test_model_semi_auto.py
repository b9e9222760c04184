"""`Model` on eight devices in one process: it trains, evaluates and predicts as on one."""

from functools import cache

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.base.errors import SporaxRuntimeError, SporaxValueError
from sporax.mindspore import Tensor, context, dataset, nn, ops
from sporax.mindspore.amp import DynamicLossScaleManager, FixedLossScaleManager
from sporax.mindspore.parallel.auto_parallel import AutoParallel
from sporax.mindspore.train import Model
from sporax.mindspore.train.callback import Callback

RNG = np.random.default_rng(5)
X, Y = RNG.normal(size=(32, 16)).astype(np.float32), RNG.integers(0, 8, 32).astype(np.int32)


@pytest.fixture(autouse=True)
def graph_mode():
    context.set_context(mode=context.GRAPH_MODE)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.up, self.norm, self.down = nn.Dense(16, 32), nn.BatchNorm1d(32), nn.Dense(32, 8)
        self.up.matmul.shard(((2, 1), (4, 1)))
        self.down.matmul.shard(((2, 4), (1, 4)))

    def construct(self, x):
        return self.down(ops.relu(self.norm(self.up(x))))


class Losses(Callback):
    """Remembers the loss of every step, and whether it overflowed."""

    def __init__(self):
        self.losses, self.overflows = [], []

    def on_train_step_end(self, run_context):
        outputs = run_context.original_args().net_outputs
        loss, *rest = outputs if isinstance(outputs, tuple) else (outputs,)
        self.losses.append(float(loss))
        self.overflows += [bool(item.asnumpy().all()) for item in rest[:1]]


def data(x=X):
    return dataset.NumpySlicesDataset({"x": x, "y": Y}, shuffle=False).batch(16)


def make(wrap=lambda net: net, semi_auto=True, level="O0", manager=None, optimizer=nn.Momentum, **settings):
    context.reset_auto_parallel_context()
    if semi_auto:
        context.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8, **settings)
    ms.set_seed(3)
    net = Net()
    options = {} if manager is None else {"loss_scale_manager": manager()}
    return Model(
        wrap(net),
        nn.CrossEntropyLoss(),
        optimizer(net.trainable_params(), 0.05, 0.9),
        {"accuracy", "loss"},
        amp_level=level,
        **options,
    )


def run(model, sink=False, x=X):
    """What a run reports: losses, overflows, metrics, predictions."""
    seen = Losses()
    model.fit(2, data(x), data(), callbacks=[seen], dataset_sink_mode=sink)
    metrics = model.eval(data())
    if context.snapshot().in_global_view:
        context.set_auto_parallel_context(dataset_strategy="full_batch")  # of one input, not of two
    return seen.losses, seen.overflows, metrics, model.predict(Tensor(X[:16])).asnumpy()


@cache
def alone(sink=False):
    """What a run on one device reports."""
    return run(make(semi_auto=False), sink)


def assert_alike(actual, expected, rtol):
    np.testing.assert_allclose(actual[0], expected[0], rtol=rtol)
    assert actual[1] == expected[1]
    assert actual[2]["accuracy"] == pytest.approx(expected[2]["accuracy"], abs=0.04 if rtol > 1e-3 else 0)
    assert actual[2]["loss"] == pytest.approx(expected[2]["loss"], rel=rtol)
    np.testing.assert_allclose(actual[3], expected[3], rtol=rtol, atol=100 * rtol * 1e-2)


@pytest.mark.parametrize("sink", [False, True])
@pytest.mark.parametrize(
    "settings",
    [
        {"dataset_strategy": ((8, 1), (8,))},
        {"enable_parallel_optimizer": True, "parallel_optimizer_config": {"parallel_optimizer_threshold": 0}},
    ],
)
@pytest.mark.sampled(2)
def test_training_evaluation_and_prediction_are_those_of_one_device(sink, settings):
    expected = alone(sink)
    model = make(**settings)
    assert_alike(run(model, sink), expected, 5e-5)
    weight = model.predict_network.up.weight.array
    assert weight.addressable_shards[0].data.shape == ((8, 16) if "dataset_strategy" in settings else (4, 16))


def test_groups_of_steps_are_sharded_like_single_steps():
    rules = {kind: {"mode": "auto", "config": None} for kind in ("allgather", "reducescatter", "allreduce")}
    threshold = {"parallel_optimizer_threshold": 0}
    expected, actual = alone(True)[0], {}
    for level in ("level1", "level3"):
        config = {**threshold, "optimizer_level": level}
        model = make(enable_parallel_optimizer=True, parallel_optimizer_config=config, comm_fusion=rules)
        seen = Losses()
        model.train(2, data(), callbacks=[seen], dataset_sink_mode=True)
        np.testing.assert_allclose(seen.losses, expected, rtol=5e-5)
        batches = tuple(Tensor(np.stack([array[:16], array[16:]])) for array in (X, Y))
        planned = model._steps.program.plan(batches)
        summary = planned.summary()
        actual[level] = {item.kind: item.count for item in summary.totals.traffic}
        assert {row.name: row.slice_shape for row in summary.tensors}["input 0"] == (2, 2, 16)
    assert actual["level3"]["all_gather"] > actual["level1"]["all_gather"]


@pytest.mark.filterwarnings("ignore:With search_mode='recursive_programming'")  # which replaces strategies, and says so
@pytest.mark.parametrize("mode", ["recursive_programming", "dynamic_programming", "sharding_propagation"])
@pytest.mark.sampled(1)
def test_groups_of_steps_keep_shards_of_parameters_where_a_search_plans(mode):
    """The rounds of a group end with every Parameter where it is stored, which the searches do not decide."""
    sharded = {"enable_parallel_optimizer": True, "parallel_optimizer_config": {"parallel_optimizer_threshold": 0}}
    model = make(**sharded)
    context.set_auto_parallel_context(parallel_mode="auto_parallel", search_mode=mode)
    seen = Losses()
    model.train(2, data(), callbacks=[seen], dataset_sink_mode=True)
    np.testing.assert_allclose(seen.losses, alone(True)[0], rtol=5e-5)
    if mode != "recursive_programming":  # whose plan of this small group keeps them whole between its rounds' ends
        weight = model.train_network.network.backbone_network.up.weight.raw
        assert weight.addressable_shards[0].data.size < weight.size


@pytest.mark.parametrize("level", ["O2", "O3", "auto"])
@pytest.mark.sampled(1)
def test_mixed_precision(level):
    manager = None if level != "O3" else lambda: FixedLossScaleManager(128.0)
    expected = run(make(semi_auto=False, level=level, manager=manager))
    assert_alike(run(make(level=level, manager=manager)), expected, 5e-3)


@pytest.mark.parametrize("sink", [False, True])
@pytest.mark.sampled(1)
def test_overflow_of_one_device_is_known_to_all(sink):
    hot = X.copy()
    hot[3, 2] = np.inf  # in one device's slice of the first batch

    def manager():
        return DynamicLossScaleManager(2**10, 2, 3)

    expected = run(make(semi_auto=False, level="O0", manager=manager), sink, hot)
    model = make(level="O0", manager=manager, gradient_fp32_sync=True)
    actual = run(model, sink, hot)
    np.testing.assert_allclose(actual[0], expected[0], rtol=5e-5)
    assert actual[1] == expected[1]
    if not sink:
        assert True in actual[1]
        assert False in actual[1]
    np.testing.assert_allclose(actual[3], expected[3], rtol=1e-4, atol=1e-5)


def test_a_wrapped_network_brings_its_settings():
    expected = alone()

    def wrap(net):
        context.set_world(8, 0)
        wrapped = AutoParallel(net)
        wrapped.hsdp(threshold=0)
        wrapped.enable_fp32_communication()
        return wrapped

    model = make(wrap, semi_auto=False)
    assert_alike(run(model), expected, 5e-5)
    assert model.infer_train_layout(data())["up.weight"][7] == [4, 16]
    weight = model.predict_network.network.up.weight.array
    assert weight.addressable_shards[0].data.shape == (4, 16)


# ------------------------------------------------------------------------------------------------------------- layouts


def test_layouts_are_known_before_anything_runs():
    model = make(enable_parallel_optimizer=True, parallel_optimizer_config={"parallel_optimizer_threshold": 0})
    before = model.predict_network.up.weight.asnumpy()
    layouts = model.infer_train_layout(data())
    assert layouts["up.weight"][:8] == ([2, 4], [0, -1], [8, 16], 0, True, "2-0-4", [32, 16], [4, 16])
    assert layouts["down.weight"][:3] == ([2, 4], [-1, 0], [8, 8])
    assert "moments.up.weight" in layouts
    np.testing.assert_array_equal(model.predict_network.up.weight.asnumpy(), before)
    model.train(1, data(), dataset_sink_mode=False)
    assert model.train_network.parameter_layout_dict == layouts
    for parameter in model.train_network.trainable_params():
        assert parameter.array.addressable_shards[0].data.shape == tuple(layouts[parameter.name][7])


def test_layouts_for_prediction():
    model = make(dataset_strategy="full_batch")
    layouts = model.infer_predict_layout(Tensor(X))
    assert layouts["up.weight"][:3] == ([2, 4], [0, -1], [8, 16])
    assert set(layouts) == {item.name for item in model.predict_network.get_parameters()}
    assert model.predict(Tensor(X)).shape == (32, 8)


def test_layouts_on_one_device_are_none():
    context.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=1)
    net = Net()
    assert Model(net, nn.CrossEntropyLoss(), nn.SGD(net.trainable_params(), 0.1)).infer_train_layout(data()) == {}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [({"dataset_sink_mode": False}, "must be True"), ({"sink_size": 0}, "'sink_size' must be -1 or positive")],
)
def test_refused_questions_about_layouts(arguments, words):
    with pytest.raises(SporaxValueError, match=words):
        make().infer_train_layout(data(), **arguments)


def test_eager_training_is_refused():
    model = make()
    context.set_context(mode=context.PYNATIVE_MODE)
    with pytest.raises(SporaxRuntimeError, match="the mode must be GRAPH_MODE"):
        model.train(1, data(), dataset_sink_mode=False)
    with pytest.raises(SporaxRuntimeError, match="the mode must be GRAPH_MODE"):
        model.predict(Tensor(X))
