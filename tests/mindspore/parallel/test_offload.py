"""Offload in steps that a plan shards: what is on the hosts, what travels, and that no value changes."""

import re
import warnings

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, context, nn
from sporax.mindspore.context import reset_offload_context
from sporax.mindspore.parallel.nn import PipelineCell
from sporax.runtime.planned import step as host_variables

WIDTH, LAYERS, BATCH = 8, 3, 8


class Deep(nn.Cell):
    def __init__(self):
        super().__init__()
        self.blocks = nn.CellList(
            [nn.SequentialCell(nn.Dense(WIDTH, WIDTH), nn.Tanh(), nn.Dense(WIDTH, WIDTH)) for _ in range(LAYERS)]
        )

    def construct(self, x):
        for block in self.blocks:
            x = block(x)
        return (x * x).mean()


@pytest.fixture(autouse=True)
def _untouched():
    ms.set_context(mode=ms.GRAPH_MODE)
    yield
    context.reset_auto_parallel_context()
    reset_offload_context()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ms.set_context(memory_offload="OFF", max_device_memory="1024GB")


def built(prepare=lambda net: None, offload=None, mode="semi_auto_parallel", **parallel):
    """A step in semi-automatic parallelism, and its batch."""
    context.set_auto_parallel_context(parallel_mode=mode, device_num=8, **parallel)
    ms.set_context(memory_offload="OFF" if offload is None else "ON")
    ms.set_offload_context(offload or {})
    ms.set_seed(2)
    net = Deep()
    prepare(net)
    step = nn.TrainOneStepCell(net, nn.Adam(net.trainable_params(), 0.1)).set_train()
    return step, Tensor(np.random.default_rng(0).normal(size=(BATCH, WIDTH)).astype(np.float32))


def trained(*args, **settings):
    step, x = built(*args, **settings)
    losses = [step(x).asnumpy().item() for _ in range(3)]
    assert len(step.program.compilations) == 1
    return losses, step


def sent(step, x):
    """Bytes of the transfers of each device."""
    return step.program.memory(x).transfers


def on_hosts(step):
    return [
        parameter.name for parameter in step.get_parameters() if parameter.raw.sharding.memory_kind == "pinned_host"
    ]


def every_block(method):
    def prepare(net):
        for block in net.blocks:
            getattr(block, method)()

    return prepare


def one_operator(net):
    net.blocks[1][1].tanh._offload()


def notes(step, x):
    return " ".join(step.program.plan(x).plan.notes)


@pytest.mark.parametrize("mode", ["semi_auto_parallel", "auto_parallel"])
@pytest.mark.sampled(1)
def test_parameters_and_state_are_on_the_hosts(mode):
    losses, _ = trained(mode=mode)
    host_losses, step = trained(offload={"offload_param": "cpu", "auto_offload": False}, mode=mode)
    np.testing.assert_allclose(host_losses, losses, rtol=1e-6)
    assert len(on_hosts(step)) == 3 * 4 * LAYERS + 1  # and the number of steps


def test_a_prediction_reads_what_was_sent_away():
    step, x = built(offload={"offload_param": "cpu", "auto_offload": False})
    step(x)
    network = step.network.set_train(False)
    loss, weight = network(x).asnumpy().item(), network.blocks[0][0].weight
    np.testing.assert_array_equal((weight * 2).asnumpy(), 2 * weight.asnumpy())
    assert weight.name in on_hosts(step)
    np.testing.assert_allclose(step(x).asnumpy().item(), loss, rtol=1e-5)


def test_parts_of_parameters_are_on_the_hosts():
    """With optimizer parallelism every host keeps its device's part."""
    step, x = built(offload={"offload_param": "cpu", "auto_offload": False}, enable_parallel_optimizer=True)
    host_losses = [step(x).asnumpy().item() for _ in range(3)]
    ms.set_context(memory_offload="OFF")
    reset_offload_context()
    losses, _ = trained(enable_parallel_optimizer=True)
    np.testing.assert_allclose(host_losses, losses, rtol=1e-6)


@pytest.mark.parametrize(
    ("prepare", "offload", "count"),
    [
        (every_block("offload"), None, 4 * LAYERS - 1),
        (one_operator, None, 2),
        (every_block("recompute"), {"offload_checkpoint": "cpu"}, LAYERS - 1),
    ],
    ids=["Cell.offload", "Primitive._offload", "offload_checkpoint"],
)
@pytest.mark.sampled(1)
def test_activations_go_to_the_hosts_and_come_back(prepare, offload, count):
    """Each device sends its part of each value once, and the plan says how much that is."""
    losses, _ = trained()
    step, x = built(prepare, offload)
    np.testing.assert_allclose([step(x).asnumpy().item() for _ in range(3)], losses, rtol=1e-6)
    sizes = {
        direction: [size for way, size in sent(step, x) if way == direction] for direction in ("to host", "to device")
    }
    assert sorted(sizes["to host"]) == sorted(sizes["to device"]) and len(sizes["to host"]) <= count
    assert set(sizes["to host"]) == {WIDTH * BATCH * 4 // 8}
    pattern = r"every device sends (\d+) B to its host in (\d+) transfers a step, and fetches (\d+) B in (\d+)"
    said = re.search(pattern, notes(step, x))
    expected = sum(sizes["to host"]), len(sizes["to host"])
    assert tuple(map(int, said.groups())) == (*expected, *expected)


@pytest.mark.parametrize("mode", ["stand_alone", "semi_auto_parallel"])
def test_activations_of_every_micro_batch_go_to_the_hosts(mode):
    """The loop of a PipelineCell in one stage is written out, so what a Cell leaves is sent once for each micro batch."""
    context.set_auto_parallel_context(parallel_mode=mode, **({"device_num": 8} if mode != "stand_alone" else {}))
    ms.set_context(memory_offload="ON")
    net = nn.SequentialCell(nn.Dense(8, 8), nn.Tanh())
    net.offload()
    x, labels = (Tensor(np.ones((32, 8), np.float32)) for _ in range(2))
    counts = []
    for cell in (nn.WithLossCell(net, nn.MSELoss()), PipelineCell(nn.WithLossCell(net, nn.MSELoss()), 4)):
        step = nn.TrainOneStepCell(cell, nn.SGD(net.trainable_params(), 0.1))
        counts.append(len(step.program.memory(x, labels).transfers))
    assert 0 < counts[0] < counts[1]


def test_automatic_offload_takes_what_does_not_fit(monkeypatch):
    """The largest parts go first, until what is predicted fits; results are equal."""
    peaks = []
    original = host_variables.memory_of

    def memory_of(graph, plan, **options):
        peaks.append(original(graph, plan, **options))
        return peaks[-1]

    monkeypatch.setattr(host_variables, "memory_of", memory_of)
    losses, _ = trained(offload={"auto_offload": True})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ms.set_context(max_device_memory=f"{(peaks[0].peak_bytes - 300) / 2**30:.12f}GB")
    host_losses, step = trained(offload={"auto_offload": True})
    assert len(on_hosts(step)) == 2  # weights of 256 bytes each
    np.testing.assert_allclose(host_losses, losses, rtol=1e-6)


def test_too_little_room_on_the_hosts_is_an_error():
    step, x = built(offload={"offload_param": "cpu", "auto_offload": False, "offload_cpu_size": "0.000001GB"})
    with pytest.raises(RuntimeError, match="'offload_cpu_size' times 'cpu_ratio' is 1073 bytes, but"):
        step(x)


@pytest.mark.parametrize("setting", ["offload_param", "offload_checkpoint"])
def test_files_are_refused(tmp_path, setting):
    step, x = built(offload={setting: "disk", "auto_offload": False, "offload_path": str(tmp_path)})
    with pytest.raises(
        NotImplementedError, match="For 'set_offload_context', 'disk' is offered in steps of one device"
    ):
        step(x)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("mode", ["semi_auto_parallel", "auto_parallel"])
def test_what_is_on_the_hosts_is_read_by_other_programs(mode):
    """An evaluation, another step, a step in two calls and single operators fetch what a step has left on the hosts."""

    def used(offload):
        step, x = built(offload=offload, mode=mode)
        net, optimizer = step.network, step.optimizer
        values = [step(x)]
        values.append(net(x))
        values.append(nn.TrainOneStepCell(net, optimizer)(x))
        loss, grads = ms.value_and_grad(net, None, optimizer.parameters)(x)
        optimizer(grads)
        values += [loss, net(x), ms.ops.matmul(x, net.blocks[0][0].weight).sum()]
        return [value.asnumpy().item() for value in values], step

    here, _ = used(None)
    away, step = used({"offload_param": "cpu", "auto_offload": False})
    assert "blocks.0.0.weight" in on_hosts(step)
    np.testing.assert_allclose(away, here, rtol=1e-5)
