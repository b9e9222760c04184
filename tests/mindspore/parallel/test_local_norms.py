"""`dump_local_norm`: every rank's part of a gradient, before the parts are combined."""

import jax
import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, context, nn, ops
from sporax.mindspore.parallel.auto_parallel import AutoParallel

RNG = np.random.default_rng(5)
X, W = RNG.normal(size=(16, 8)).astype(np.float32), RNG.normal(size=(8, 8)).astype(np.float32)
SHARDED = {"enable_parallel_optimizer": True, "parallel_optimizer_config": {"parallel_optimizer_threshold": 0}}


class Net(nn.Cell):
    """The squares of a product, added up; the bias is read in every device."""

    def __init__(self):
        super().__init__()
        self.weight = ms.Parameter(Tensor(W), name="weight")
        self.bias = ms.Parameter(Tensor(np.zeros(8, np.float32)), name="bias")

    def construct(self, x):
        return ops.square(ops.matmul(x, self.weight) + self.bias).sum()


@pytest.fixture(scope="module")
def expected():
    """By rank the norms of weight, bias and both, from the rows that the rank has."""
    actual = []
    for rows in X.reshape(8, 2, 8):
        slope = 2 * rows @ W
        parts = [np.linalg.norm(rows.T @ slope), np.linalg.norm(slope.sum(0))]
        actual.append([*parts, np.hypot(*parts)])
    return np.array(actual)


def make_step():
    net = Net()
    return nn.TrainOneStepCell(net, nn.SGD(net.trainable_params(), 0.0))


def saved(folder, rank, name, step):
    return float(np.load(folder / f"rank_{rank}" / f"{name}_float32_{step}.npy"))


@pytest.mark.parametrize("settings", [{"dataset_strategy": "data_parallel"}, {"gradients_mean": True, **SHARDED}])
def test_norms_are_saved_for_every_rank_parameter_and_step(expected, settings, tmp_path):
    context.set_context(mode=context.GRAPH_MODE)
    requested = {"dump_local_norm": True, "dump_device_local_norm": True, "dump_local_norm_path": str(tmp_path)}
    context.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8, **requested, **settings)
    step = make_step()
    for _ in range(2):
        step(Tensor(X))
    jax.effects_barrier()
    names = ("local_norm__weight", "local_norm__bias", "device_local_norm")
    for number in range(2):
        actual = [[saved(tmp_path, rank, name, number) for name in names] for rank in range(8)]
        np.testing.assert_allclose(actual, expected, rtol=1e-5)


def test_norms_are_printed_where_nothing_is_said_of_files(expected, capfd, monkeypatch):
    monkeypatch.setattr(context, "num_devices", lambda: 8)
    step = AutoParallel(make_step())
    step.print_local_norm()
    step(Tensor(X))
    jax.effects_barrier()
    lines = dict(line.rsplit(": ", 1) for line in capfd.readouterr().out.splitlines())
    assert len(lines) == 16
    for rank, (weight, bias, _) in enumerate(expected):
        np.testing.assert_allclose(float(lines[f"local norm of weight on rank {rank}"]), weight, rtol=1e-5)
        np.testing.assert_allclose(float(lines[f"local norm of bias on rank {rank}"]), bias, rtol=1e-5)
