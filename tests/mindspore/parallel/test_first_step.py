"""What the first step of a planned network costs: traces, compiled programs and searches, counted."""

from collections import deque

import numpy as np
import pytest

import sporax.mindspore as ms
from compiled_programs import compilations
from sporax.cluster.environment import NO_CACHE
from sporax.mindspore import context, nn
from sporax.runtime.devices import agreed_plan
from sporax.runtime.process import compilation_cache
from sporax.runtime.ranks import joint_arrays

X = np.random.RandomState(0).randn(16, 8).astype(np.float32)
Y = np.random.RandomState(1).randn(16, 8).astype(np.float32)


class Net(nn.Cell):
    """Two products, and how often Python runs them."""

    def __init__(self):
        super().__init__()
        self.up, self.down, self.act = nn.Dense(8, 32), nn.Dense(32, 8), nn.GELU()
        self.up.weight.set_data(ms.Tensor(np.linspace(-0.1, 0.1, 256, dtype=np.float32).reshape(32, 8)))
        self.calls = deque()

    def construct(self, x):
        self.calls.append(x.shape)
        return self.down(self.act(self.up(x)))


@pytest.fixture(params=["semi_auto_parallel", "auto_parallel"])
def parallel(request):
    context.set_context(mode=context.GRAPH_MODE)
    context.set_auto_parallel_context(parallel_mode=request.param, device_num=8)
    yield request.param
    context.reset_auto_parallel_context()


def trained(steps=3):
    """A network after some steps, and its losses."""
    ms.set_seed(7)
    net = Net()
    loss = nn.WithLossCell(net, nn.MSELoss())
    step = nn.TrainOneStepCell(loss, nn.Momentum(net.trainable_params(), 0.1, 0.9)).set_train()
    return net, [step(ms.Tensor(X), ms.Tensor(Y)).asnumpy() for _ in range(steps)]


def test_a_planned_step_is_traced_once_and_one_program_is_compiled(parallel):
    with compilations() as compiled:
        net, losses = trained()
    assert len(net.calls) == 1
    assert [name for name in compiled.names if "TrainOneStep" not in name] == []
    assert len(compiled.names) == 1
    assert losses[0] > losses[-1]


def test_what_is_sharded_on_the_host_is_what_programs_of_jax_shard(parallel, monkeypatch):
    losses = trained()[1]
    monkeypatch.setattr(joint_arrays, "_is_readable", lambda array: False)
    np.testing.assert_array_equal(losses, trained()[1])


def test_a_second_run_of_a_network_does_not_search_again(monkeypatch, tmp_path, without_cache_of_jax):
    context.set_context(mode=context.GRAPH_MODE)
    context.set_auto_parallel_context(parallel_mode="auto_parallel", device_num=8)
    monkeypatch.delenv(NO_CACHE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(compilation_cache, "turn_on", lambda: None)
    searched, search = [], agreed_plan.make_plan
    monkeypatch.setattr(agreed_plan, "make_plan", lambda *request: searched.append(request) or search(*request))
    try:
        losses = [trained(steps=1)[1] for _ in range(2)]
    finally:
        context.reset_auto_parallel_context()
    assert len(searched) == 1
    assert losses[0] == losses[1]
