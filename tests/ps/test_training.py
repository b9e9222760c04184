"""Networks train on parameter servers: the same script in every role, mixed mode, tables, errors."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import sporax.mindspore as ms
from compiler_flags import COMPILER
from sporax.base.errors import SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.mindspore import nn

DENSE = """
import sys
import numpy as np
import mindspore as ms
from mindspore import nn
from mindspore.communication import init, get_rank
ms.set_context(mode=ms.GRAPH_MODE)
if sys.argv[1] == "mixed":
    ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
if sys.argv[1] != "alone":
    ms.set_ps_context(enable_ps=True)
    init()
ms.set_seed(3)
net = nn.SequentialCell(nn.Dense(6, 8), nn.ReLU(), nn.Dense(8, 1))
if sys.argv[1] == "mixed":
    net[0].set_param_ps()
elif sys.argv[1] not in ("alone", "late"):
    net.set_param_ps()
optimizer = nn.Momentum(net.trainable_params(), 0.05, 0.9, weight_decay=0.01)
network = nn.WithLossCell(net, nn.MSELoss())
rng = np.random.default_rng(0)
if sys.argv[1] == "functional":
    grad = ms.value_and_grad(network, None, net.trainable_params())
    @ms.jit
    def step(x, y):
        loss, grads = grad(x, y)
        optimizer(grads)
        return loss
else:
    step = nn.TrainOneStepCell(network, optimizer)
if sys.argv[1] == "late":
    net.set_param_ps()
for number in range(6):
    x = rng.standard_normal((8, 6)).astype(np.float32)
    if sys.argv[1] != "alone":
        x = x[4 * get_rank() : 4 * get_rank() + 4]
    step(ms.Tensor(x), ms.Tensor(x.sum(1, keepdims=True)))
print("weights", " ".join(f"{v:.9g}" for p in net.trainable_params() for v in p.asnumpy().reshape(-1)))
if sys.argv[1] == "late":
    other = nn.Dense(6, 1)
    nn.TrainOneStepCell(other, nn.SGD(other.trainable_params(), 0.1))(ms.Tensor(x.sum(0)))
    for change in (
        other.set_param_ps,
        lambda: ms.set_ps_context(staleness=3),
        lambda: ms.set_auto_parallel_context(parallel_mode="data_parallel"),
    ):
        try:
            change()
        except RuntimeError as error:
            print("refused:", error)
"""


def weights(output: str) -> list[np.ndarray]:
    """Final weights that each worker has printed."""
    return [np.array(line.split(), np.float32) for line in re.findall(r"weights (.*)", output)]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, run_job: Callable[..., str]) -> np.ndarray:
    """The weights with which one process without servers ends."""
    (result,) = weights(run_job(DENSE, tmp_path_factory.mktemp("alone"), "alone", servers=0, workers=1))
    return result


@pytest.mark.sampled(1)
@pytest.mark.parametrize("mode", ["cell", "functional", "mixed"])
def test_two_workers_end_with_the_weights_of_one_process(
    tmp_path: Path, run_job: Callable[..., str], alone: np.ndarray, mode: str
) -> None:
    first, second = weights(run_job(DENSE, tmp_path, mode))
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(first, alone, rtol=2e-5, atol=1e-6)


def test_what_is_set_too_late_takes_effect_or_is_refused(
    tmp_path: Path, run_job: Callable[..., str], alone: np.ndarray
) -> None:
    output = run_job(DENSE, tmp_path, "late", servers=1)
    first, second = weights(output)
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(first, alone, rtol=2e-5, atol=1e-6)
    refused = sorted(re.findall(r"refused: For '(\w+)', (.*) comes too late", output))
    assert refused == sorted(
        2
        * [
            ("set_auto_parallel_context", "'parallel_mode'"),
            ("set_param_ps", "the call"),
            ("set_ps_context", "'staleness'"),
        ]
    )


MODEL = """
import os, signal, sys
import numpy as np
import mindspore as ms
from mindspore import nn, dataset as ds
from mindspore.train import Callback, Model
from mindspore.communication import init, get_group_size, get_rank
from sporax.runtime.session import SESSION
ms.set_context(mode=ms.GRAPH_MODE)
ms.set_ps_context(enable_ps=True)
init()
ms.set_seed(3)
ds.config.set_seed(5)
net = nn.SequentialCell(nn.Dense(6, 8), nn.ReLU(), nn.Dense(8, 1))
net.set_param_ps()
optimizer = nn.Adam(net.trainable_params(), 0.05)
rng = np.random.default_rng(get_rank())
x = rng.standard_normal((48, 6)).astype(np.float32)
data = ds.NumpySlicesDataset((x, x.sum(1, keepdims=True)), ["x", "y"], shuffle=True).batch(8)

class Kill(Callback):
    def on_train_step_end(self, run):
        first = SESSION.servers.store.link.incarnation == 1
        last = get_rank() == get_group_size() - 1
        if "kill" in sys.argv and last and first and run.original_args().cur_step_num >= 8:
            os.kill(os.getpid(), signal.SIGKILL)

sink = "sink" in sys.argv
Model(net, nn.MSELoss(), optimizer).train(3, data, callbacks=[Kill()], dataset_sink_mode=sink, sink_size=4 if sink else -1)
print("weights", " ".join(f"{v:.9g}" for p in net.trainable_params() for v in p.asnumpy().reshape(-1)))
"""


@pytest.mark.full
@pytest.mark.parametrize(("sink", "workers"), [("", 1), ("sink", 2)])
def test_a_killed_worker_goes_on_with_the_batches_it_has_not_trained_on(
    tmp_path: Path, run_job: Callable[..., str], sink: str, workers: int
) -> None:
    # The number of servers changes no bit, and one is started sooner than two.
    calm = weights(run_job(MODEL, tmp_path, "calm", sink, servers=1, workers=workers))
    killed = weights(run_job(MODEL, tmp_path, "kill", sink, workers=workers, MS_PS_WORKER_LEASE="60"))
    assert len(calm) == len(killed) == workers
    assert len({value.tobytes() for value in [*calm, *killed]}) == 1


@pytest.fixture
def _clean(monkeypatch: pytest.MonkeyPatch):
    ms.set_context(mode=ms.GRAPH_MODE)
    yield
    ms.reset_ps_context()


@pytest.mark.usefixtures("_clean")
def test_marking_needs_parameter_servers_and_a_role(monkeypatch: pytest.MonkeyPatch) -> None:
    net = nn.Dense(2, 2)
    with pytest.raises(SporaxRuntimeError, match="'enable_ps' must be True"):
        net.set_param_ps()
    ms.set_ps_context(enable_ps=True)
    with pytest.raises(SporaxRuntimeError, match="'MS_ROLE' must be one of"):
        net.set_param_ps()
    monkeypatch.setenv("MS_ROLE", "MS_WORKER")
    with pytest.raises(SporaxRuntimeError, match="'init_in_server' is for embedding tables"):
        net.set_param_ps(init_in_server=True)
    with pytest.raises(SporaxTypeError, match="'init_in_server' must be a bool"):
        net.weight.set_param_ps(1)
    ms.set_context(mode=ms.PYNATIVE_MODE)
    with pytest.raises(SporaxRuntimeError, match="must be GRAPH_MODE"):
        net.weight.set_param_ps()


@pytest.mark.usefixtures("_clean")
def test_an_optimizer_refuses_marked_parameters_outside_of_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MS_ROLE", "MS_WORKER")
    ms.set_ps_context(enable_ps=True)
    net = nn.Dense(2, 2)
    net.set_param_ps()
    with pytest.raises(SporaxRuntimeError, match="not a worker of a job with parameter servers"):
        nn.Momentum(net.trainable_params(), 0.1, 0.9)


REFUSED = """
import sys
import numpy as np
import mindspore as ms
from mindspore import nn
from mindspore.communication import init
from sporax.base.errors import SporaxRuntimeError
ms.set_context(mode=ms.GRAPH_MODE)
ms.set_ps_context(enable_ps=True)
init()
for stages in (1, 2):
    for when in ("before", "after"):
        ms.reset_auto_parallel_context()
        settings = dict(parallel_mode="semi_auto_parallel", device_num=8, pipeline_stages=stages)
        net = nn.Dense(8, 8)
        net.pipeline_stage = 0
        net.weight.set_param_ps()
        try:
            if when == "before":
                ms.set_auto_parallel_context(**settings)
            optimizer = nn.Momentum(net.trainable_params(), 0.05, 0.9)
            ms.set_auto_parallel_context(**settings)
            step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), optimizer)
            step(ms.Tensor(np.ones((8, 8), np.float32)), ms.Tensor(np.ones((8, 8), np.float32)))
            print("trained", stages, when)
        except SporaxRuntimeError as error:
            print(stages, when, str(error).splitlines()[0])
"""


def test_what_does_not_go_with_servers_is_refused_at_once(tmp_path: Path, run_job: Callable[..., str]) -> None:
    """A pipeline waited for ever, and each device of a process pushed the gradient of the whole step."""
    flags = "--xla_force_host_platform_device_count=8"
    lines = run_job(REFUSED, tmp_path, servers=1, workers=1, XLA_FLAGS=f"{COMPILER} {flags}").splitlines()
    several = "For 'set_param_ps', a worker must have one device in the parallel mode 'semi_auto_parallel'"
    stages = "For 'set_param_ps', 'pipeline_stages' must be 1, but got 2"
    assert [line[: len("1 before ") + 40] for line in lines if line[:1] in "12t"] == [
        f"{number} {when} {text}"[: len("1 before ") + 40]
        for number, text in ((1, several), (2, stages))
        for when in ("before", "after")
    ]


@pytest.mark.usefixtures("_clean")
def test_init_needs_a_role(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MS_ROLE", raising=False)
    ms.set_ps_context(enable_ps=True)
    with pytest.raises(SporaxRuntimeError, match="'MS_ROLE' must be one of"):
        ms.communication.init()


@pytest.mark.usefixtures("_clean")
def test_a_cache_of_rows_needs_servers_and_the_device() -> None:
    with pytest.warns(UserWarning, match="it is ignored"):
        layer = nn.EmbeddingLookup(10, 2, vocab_cache_size=4)
    assert layer.embedding_table.shape == (10, 2)
    with pytest.raises(SporaxValueError, match="'vocab_cache_size' must be >= 0"):
        nn.EmbeddingLookup(10, 2, vocab_cache_size=-1)
    ms.set_ps_context(enable_ps=True)
    served = nn.EmbeddingLookup(10, 2, target="DEVICE", vocab_cache_size=4)
    assert served.embedding_table.shape == (4, 2)
    assert served.embedding_table.is_param_ps
    with pytest.raises(SporaxValueError, match="must be normal"):
        nn.EmbeddingLookup(10, 2, ms.common.initializer.TruncatedNormal(), target="DEVICE", vocab_cache_size=4)


@pytest.mark.usefixtures("_clean")
def test_staleness_and_durability_are_checked() -> None:
    ms.set_ps_context(staleness=-1, durability="disk")
    assert (ms.get_ps_context("staleness"), ms.get_ps_context("durability")) == (-1, "disk")
    with pytest.raises(SporaxValueError, match="'staleness' must be -1"):
        ms.set_ps_context(staleness=-2)
    with pytest.raises(SporaxRuntimeError, match="'durability' must be one of"):
        ms.set_ps_context(durability="paper")


def test_other_optimizers_are_refused() -> None:
    optimizer = nn.Lamb([ms.Parameter(ms.Tensor([1.0]), name="w")], 0.1)
    with pytest.raises(SporaxRuntimeError, match="which offer SGD, Momentum"):
        optimizer.server_rule()
