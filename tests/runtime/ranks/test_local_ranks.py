"""Data parallelism in one process with eight devices: the numbers of eight ranks, or a clear error."""

import json
import os
import subprocess
import sys

import local_rank_recipes as recipes
import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, communication, dataset, nn, ops
from sporax.mindspore.context import _supported
from sporax.mindspore.nn.optim import _helpers


@pytest.fixture
def ranks(monkeypatch):
    """This process as the only one of a job, in data parallelism over its eight devices."""
    for name in ("MS_ROLE", "RANK_TABLE_FILE", "RANK_SIZE", "RANK_ID", "OMPI_COMM_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    before = ms.get_context("mode")
    communication.init()
    ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
    yield
    ms.reset_auto_parallel_context()
    communication.release()
    ms.set_context(mode=before)


def assert_as_eight_ranks(case, actual):
    expected = json.loads(recipes.RECORD.read_text())[case]
    assert set(actual) == set(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(actual[name], values, rtol=2e-5, atol=2e-6, err_msg=f"{case}: {name}")


@pytest.mark.parametrize(
    ("mode", "way", "case"),
    [
        (ms.GRAPH_MODE, recipes.cell, "mean"),
        (ms.GRAPH_MODE, recipes.function, "sum"),
        (ms.GRAPH_MODE, recipes.model, "sum"),
        (ms.GRAPH_MODE, recipes.scaled, "loss scale"),
        (ms.GRAPH_MODE, recipes.OwnStep, "mean"),
        (ms.PYNATIVE_MODE, recipes.jitted, "mean"),
        (ms.PYNATIVE_MODE, recipes.cell, "sum"),
        (ms.PYNATIVE_MODE, recipes.function, "mean"),
        (ms.PYNATIVE_MODE, recipes.model, "mean"),
        (ms.PYNATIVE_MODE, recipes.scaled, "loss scale"),
    ],
)
@pytest.mark.sampled(5)
def test_numbers_are_those_of_eight_ranks(ranks, mode, way, case):
    ms.set_context(mode=mode)
    ms.set_auto_parallel_context(**recipes.CASES[case])
    assert_as_eight_ranks(case, recipes.train(way))


@pytest.mark.soak
def test_eight_ranks_give_what_was_recorded(tmp_path):
    before = recipes.RECORD.read_text()
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("MS_", "RANK_", "XLA_FLAGS"))}
    command = [sys.executable, "-m", "sporax", "run", "--worker_num", "8", "--log_dir", str(tmp_path)]
    try:
        subprocess.run([*command, recipes.__file__], env=environ, check=True, timeout=300)
        now = json.loads(recipes.RECORD.read_text())
    finally:
        recipes.RECORD.write_text(before)
    for case, results in now.items():
        assert_as_eight_ranks(case, results)


@pytest.mark.parametrize("numbers", [7, 8])
def test_compiled_exchanges_without_weights_are_as_those_outside(ranks, numbers):
    @ms.jit
    def exchanged(x):
        return ops.Broadcast(root_rank=0)((x,))[0], ops.AllReduce()(x)

    first, everyone = exchanged(Tensor(np.arange(numbers)))
    assert first.asnumpy().tolist() == list(range(numbers))
    assert everyone.asnumpy().tolist() == [8 * number for number in range(numbers)]

    weight = ms.Parameter(Tensor([2.0]), name="weight")
    # What is read behind the exchange counts as well: this is a step, whose rows are divided.
    with_weight = ms.jit(lambda x: ops.AllReduce()(x.sum()) * weight)
    assert with_weight(Tensor(np.arange(8, dtype=np.float32))).asnumpy().tolist() == [56]


def test_a_network_may_hold_the_size_of_one_ranks_batch(ranks):
    ms.set_context(mode=ms.GRAPH_MODE)

    def losses(net):
        network = nn.WithLossCell(net, nn.CrossEntropyLoss())
        weights = ms.ParameterTuple(net.trainable_params())
        gradient = ops.GradOperation(get_by_list=True)

        class Step(nn.Cell):  # as public programs write it: first the loss, then the gradients
            def construct(self, x, y):
                loss = network(x, y)
                return loss, nn.DistributedGradReducer(weights)(gradient(network, weights)(x, y))

        loss, gradients = Step()(X, Y)
        return [loss.asnumpy(), *(value.asnumpy() for value in gradients)]

    ms.set_seed(2)
    fixed = losses(Fixed())
    ms.set_seed(2)
    for mine, expected in zip(fixed, losses(Small()), strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-6)
    with pytest.raises(ValueError, match="does not fit into 'shape'"):
        losses(type("Odd", (Fixed,), {"construct": lambda self, x: Small.construct(self, x.reshape(3, 4))})())


class Small(nn.Cell):
    def __init__(self):
        super().__init__()
        self.layer = nn.Dense(4, 2)

    def construct(self, x):
        return self.layer(x)


class Fixed(Small):
    """A network that holds the size of one rank's batch."""

    def construct(self, x):
        return super().construct(x.reshape(2, 4))


X, Y = Tensor(np.arange(64, dtype=np.float32).reshape(16, 4) / 64), Tensor(np.ones((16, 2), np.float32))


def step_of(net):
    return nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params(), 0.1))


def test_a_compiled_step_divides_its_batch_and_sums_gradients_once(ranks):
    ms.set_context(mode=ms.GRAPH_MODE)
    step = step_of(Small())
    step(X, Y)
    text = step.program.executable.as_text()
    assert "num_partitions=8" in text
    # Two of the sixteen rows on each device.
    assert "f32[2,4]" in text
    assert "f32[16,4]" not in text
    # The gradients in one buffer, and the mean of the losses.
    assert text.count(" all-reduce(") + text.count(" all-reduce-start(") == 2


def test_several_losses_in_a_vector_leave_a_step_as_their_means(ranks):
    net = Small()
    optimizer = nn.SGD(net.trainable_params(), 0.1)

    def forward(x, y):
        error = net(x) - y
        losses = ops.stack((ops.abs(error).mean(), (error * error).mean()))  # two, as each rank has two rows
        return losses.sum(), ops.stop_gradient(losses), ops.amax(error, 1)

    gradient = ms.value_and_grad(forward, None, optimizer.parameters, has_aux=True)
    reducer = nn.DistributedGradReducer(optimizer.parameters)

    @ms.jit
    def step(x, y):
        (loss, losses, largest), gradients = gradient(x, y)
        return ops.depend(loss, optimizer(reducer(gradients))), losses, largest

    expected = forward(X, Y)
    for result, value in zip(step(X, Y), expected, strict=True):
        np.testing.assert_allclose(result.asnumpy(), value.asnumpy(), rtol=1e-5)


def test_one_device_with_the_whole_batch_gives_the_same(ranks):
    ms.set_context(mode=ms.GRAPH_MODE)

    def losses():
        ms.set_seed(5)
        step = step_of(Small())
        return [float(step(X, Y).asnumpy()) for _ in range(3)]

    divided = losses()
    ms.set_auto_parallel_context(parallel_mode="stand_alone", gradients_mean=False)
    np.testing.assert_allclose(losses(), divided, rtol=1e-5)


def test_ranks_are_counted_alike_in_all_parallel_modes(ranks):
    for mode in ("data_parallel", "semi_auto_parallel", "auto_parallel", "hybrid_parallel"):
        ms.set_auto_parallel_context(parallel_mode=mode)
        assert communication.get_group_size() == communication.get_local_rank_size() == 8
        assert communication.get_process_group_ranks() == list(range(8))
        assert communication.get_rank() == 0
        rows = dataset.NumpySlicesDataset(
            list(range(16)), shuffle=False, num_shards=communication.get_group_size(), shard_id=communication.get_rank()
        )
        assert sorted(int(row[0].asnumpy()) for row in rows.create_tuple_iterator()) == list(range(16))


def test_ranks_that_were_counted_before_a_mode_was_set_are_those_of_the_mode(ranks, capsys):
    ms.reset_auto_parallel_context()
    ms.set_context(mode=ms.GRAPH_MODE)
    _supported._say_once.cache_clear()
    size = communication.get_group_size()
    assert size == communication.get_local_rank_size() == 8
    rows = dataset.NumpySlicesDataset(
        list(range(16)), shuffle=False, num_shards=size, shard_id=communication.get_rank()
    )
    # One device reads all rows, as does a step that is sharded; of eight ranks each has two rows.
    ms.set_seed(5)
    net = Small()
    expected = float(step_of(net)(X, Y).asnumpy())
    assert "there are 8 ranks, but one of the 8 devices of this process does all the work" in capsys.readouterr().err
    assert rows.get_dataset_size() == 16
    ms.set_auto_parallel_context(parallel_mode="data_parallel", device_num=size, gradients_mean=True)
    assert rows.get_dataset_size() == 2
    ms.set_seed(5)
    net = Small()
    np.testing.assert_allclose(float(step_of(net)(X, Y).asnumpy()), expected, rtol=1e-5)
    assert len(net.trainable_params()[0].array.sharding.device_set) == 8


@pytest.mark.parametrize("mode", ["stand_alone", "semi_auto_parallel"])
def test_exchanges_between_less_ranks_than_were_counted_are_an_error(ranks, mode):
    assert communication.get_group_size() == 8
    assert float(ops.AllReduce()(Tensor(1.0)).asnumpy()) == 8
    ms.set_auto_parallel_context(parallel_mode=mode)
    with pytest.raises(RuntimeError, match=r"For 'AllReduce', .* 1 process.* said 8, .* `sporax run --worker_num 8`"):
        ops.AllReduce()(Tensor(1.0))
    ops.Barrier()()


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE])
def test_what_ranks_could_not_do_as_one_program_is_an_error(ranks, mode):
    ms.set_context(mode=mode)
    net = Small()
    optimizer = nn.SGD(net.trainable_params(), 0.1)
    grad_fn = ms.value_and_grad(lambda x, y: nn.MSELoss()(net(x), y), None, optimizer.parameters)

    class Reads(Small):
        def construct(self, x):
            return super().construct(x) * (1 + communication.get_rank())

    class Collects(Small):
        def construct(self, x):
            return ops.Reduce(0)(super().construct(x))

    communication.create_group("pair", [0, 1])

    class InGroup(Small):
        def construct(self, x):
            return ops.AllReduce(group="pair")(super().construct(x))

    class Apart(nn.Cell):  # whole batches fail first
        def __init__(self):
            super().__init__()
            self.loss = nn.WithLossCell(Fixed(), nn.CrossEntropyLoss())
            self.gradient = ops.GradOperation(get_by_list=True)
            self.weights = ms.ParameterTuple(self.loss.trainable_params())
            self.optimizer = nn.SGD(self.weights, 0.1)

        def construct(self, x, y):
            loss = self.loss(x, y)
            return ops.depend(loss, self.optimizer(self.gradient(self.loss, self.weights)(x, y)))

    def apart():
        optimizer(grad_fn(X, Y)[1])

    for call, message in (
        (lambda: step_of(net)(X[:15], Y[:15]), "divisible by the 8 ranks"),
        (lambda: step_of(net)(X, Y[:8]), "a row for each of the 16 samples"),
        (lambda: step_of(Reads())(X, Y), "For 'get_rank', each rank must be a process"),
        (lambda: step_of(Collects())(X, Y), "For 'Reduce', each rank must be a process"),
        (lambda: step_of(InGroup())(X, Y), "For 'AllReduce', each rank must be a process"),
        (lambda: ms.jit(lambda x, y: optimizer(grad_fn(x, y)[1]))(X, Y), "must be combined over the 8 ranks"),
        (apart, "must be combined over the 8 ranks"),
        (lambda: ms.jit(Apart().construct)(X, Y), "must be combined over the 8 ranks"),
        (lambda: ms.jit(lambda x, y: (grad_fn(x, y)[0], (x > 0.5).sum()))(X, Y), "result 1 has shape"),
    ):
        with pytest.raises(RuntimeError, match=message):
            call()


class Layers(nn.SequentialCell):
    """As many Parameters as ranks."""

    def __init__(self):
        super().__init__([nn.Dense(4 if not layer else 3, 3, weight_init="ones") for layer in range(4)])


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE])
def test_optimizer_parallelism_updates_all_parameters_on_each_rank(ranks, mode, recwarn):
    ms.set_context(mode=mode)
    _helpers._warn_of_all_updates.cache_clear()
    x, y = Tensor(np.linspace(-1, 1, 64, dtype=np.float32).reshape(16, 4)), Tensor(np.ones((16, 3), np.float32))
    weights = []
    for shares in (False, True):
        ms.set_seed(3)
        net = nn.WithLossCell(Layers(), nn.MSELoss())
        ms.set_auto_parallel_context(enable_parallel_optimizer=shares)
        step = nn.TrainOneStepCell(net, nn.AdamWeightDecay(net.trainable_params(), 0.1))
        for _ in range(3):
            step(x, y)
        weights.append([parameter.asnumpy() for parameter in step.get_parameters()])
    for alone, shared in zip(*weights, strict=True):
        np.testing.assert_array_equal(alone, shared)
    (warning,) = recwarn
    assert "'enable_parallel_optimizer' changes nothing: this process acts for 8 ranks" in str(warning.message)


def test_settings_that_would_leave_devices_idle(ranks):
    ms.set_context(mode=ms.GRAPH_MODE)
    for settings in ({}, {"device_num": 8}):
        ms.set_auto_parallel_context(parallel_mode="hybrid_parallel", **settings)
        net = Small()
        step = step_of(net)
        step(X, Y)
        assert "num_partitions=8" in step.program.executable.as_text()
        # Layers that are sharded by the number of a rank are not those of one process.
        net.layer.weight.layerwise_parallel = True
        with pytest.raises(
            RuntimeError, match="with layerwise_parallel', each rank must be a process.*--worker_num 8`"
        ):
            step_of(net)(X, Y)
    ms.set_auto_parallel_context(parallel_mode="data_parallel", device_num=1)
    with pytest.warns(UserWarning, match="one of the 8 devices"):
        step_of(Small())(X, Y)
    ms.set_auto_parallel_context(device_num=4)
    step = step_of(Small())
    step(X, Y)
    assert communication.get_group_size() == 4
    assert "num_partitions=4" in step.program.executable.as_text()
    ms.set_auto_parallel_context(device_num=16)
    with pytest.raises(RuntimeError, match="'device_num' is 16"):
        step_of(Small())(X, Y)


def test_without_init_one_device_works_and_says_so(capsys):
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_auto_parallel_context(parallel_mode="data_parallel")
    _supported._say_once.cache_clear()
    try:
        step_of(Small())(X, Y)
        assert (
            "one of the 8 devices of this process does all the work. Call communication.init()"
            in capsys.readouterr().err
        )
    finally:
        ms.reset_auto_parallel_context()


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE])
def test_outputs_and_gradients_of_inputs_have_the_rows_of_the_batch(ranks, mode):
    ms.set_context(mode=mode)
    ms.set_seed(5)  # with weights that nearly cancel, the order of a sum counts
    net = Small()
    grad_fn = ms.value_and_grad(lambda x: (net(x).sum(), net(x)), 0, net.trainable_params(), has_aux=True)
    (total, outputs), (by_input, by_weight) = grad_fn(X)
    np.testing.assert_allclose(outputs.asnumpy(), net(X).asnumpy(), rtol=1e-5)
    np.testing.assert_allclose(total.asnumpy(), net(X).asnumpy().sum() / 8, rtol=1e-5)
    np.testing.assert_allclose(by_input.asnumpy(), np.tile(net.layer.weight.asnumpy().sum(0), (16, 1)), rtol=1e-5)
    # Not combined: those of the first rank, and of each rank in a collective.
    np.testing.assert_allclose(by_weight[0].asnumpy(), np.tile(X.asnumpy()[:2].sum(0), (2, 1)), rtol=1e-5)
    everyone = ops.AllReduce()(by_weight[0])
    np.testing.assert_allclose(everyone.asnumpy(), np.tile(X.asnumpy().sum(0), (2, 1)), rtol=1e-5)


def test_statistics_of_other_ranks_survive_reading_and_evaluation(ranks):
    ms.set_context(mode=ms.GRAPH_MODE)
    net = nn.SequentialCell(nn.BatchNorm1d(4), nn.Dense(4, 2))
    step = step_of(net)
    for _ in range(2):
        step.set_train()
        step(X, Y)
        net.set_train(False)
        net(X[:5])
        net[0].moving_mean.asnumpy()
    means = ops.AllGather()(net[0].moving_mean.value().reshape((1, 4))).asnumpy()
    first = X.asnumpy().reshape(8, 2, 4).mean(1)
    np.testing.assert_allclose(means, first * (1 - 0.9**2), rtol=1e-4)
