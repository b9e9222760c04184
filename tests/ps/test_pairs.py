"""Pairs of features of which one is parameter servers: each pair trains to the numbers of one process or is refused, and none waits
for ever. (Pairs of features on eight devices without servers are elsewhere.)"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from compiler_flags import COMPILER
from forked_commands import run_forked

SECONDS = 100
SCRIPT = """
import sys
import numpy as np
import mindspore as ms
from mindspore import nn
from mindspore.communication import init, get_rank, get_group_size
feature = sys.argv[1]
ms.set_context(mode=ms.GRAPH_MODE)
modes = {"data_parallel": "data_parallel", "semi_auto": "semi_auto_parallel", "auto": "auto_parallel"}
if feature in modes:
    ms.set_auto_parallel_context(parallel_mode=modes[feature], gradients_mean=feature == "data_parallel")
if feature == "pipeline":
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", pipeline_stages=2)
ms.set_ps_context(enable_ps=True)
init()
ms.set_seed(3)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Dense(8, 8), nn.Dense(8, 8)
        if feature == "pipeline":
            self.a.pipeline_stage, self.b.pipeline_stage = 0, 1

    def construct(self, x, y):
        return ((self.b(ms.ops.tanh(self.a(x))) - y) ** 2).mean()


net = Net()
net.a.weight.set_param_ps()
if feature == "recompute":
    net.a.recompute()
kwargs = {"loss_scale": 4.0} if feature == "loss_scale" else {}
optimizer = nn.Momentum(net.trainable_params(), 0.05, 0.9, **kwargs)
cell = nn.PipelineCell(net, 4) if feature == "pipeline" else net
x = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)
if feature == "loss_scale":
    step = nn.TrainOneStepCell(cell, optimizer, sens=4.0)
elif feature == "dynamic_loss_scale":
    step = nn.TrainOneStepWithLossScaleCell(cell, optimizer, nn.DynamicLossScaleUpdateCell(4.0, 2, 1000))
elif feature == "accumulation":
    step = nn.TrainOneStepCell(nn.GradAccumulationCell(cell, 2), optimizer)
elif feature == "amp":
    step = nn.TrainOneStepCell(ms.amp.auto_mixed_precision(cell, "O0"), optimizer)
else:
    step = nn.TrainOneStepCell(cell, optimizer)
for number in range(4):
    step(ms.Tensor(x), ms.Tensor(x))
print("weights", f"{float(np.abs(net.a.weight.asnumpy()).sum()):.4f}")
"""
FEATURES = (
    "none",
    "data_parallel",
    "semi_auto",
    "auto",
    "pipeline",
    "recompute",
    "loss_scale",
    "dynamic_loss_scale",
    "accumulation",
)


def train(folder: Path, feature: str, workers: int, devices: int, staleness: int = 0) -> tuple[int, str]:
    """Exit code and output of a job with a feature; it fails where the job is not over in time."""
    script = folder / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    command = [sys.executable, "-m", "sporax", "run", "--log_dir", str(folder / "logs"), "--server_num", "1"]
    command += ["--worker_num", str(workers), "--staleness", str(staleness), str(script), feature]
    flags = f"{COMPILER} --xla_force_host_platform_device_count={devices}"
    done = run_forked(command, timeout=SECONDS, cwd=folder, env={**os.environ, "XLA_FLAGS": flags})
    return done.returncode, done.stdout + done.stderr


def check(folder: Path, feature: str, workers: int, devices: int, staleness: int = 0) -> None:
    code, output = train(folder, feature, workers, devices, staleness)
    weights = re.findall(r"weights (\S+)", output)
    if code:
        assert "For 'set_param_ps'" in output or "SporaxRuntimeError: For '" in output, output[-3000:]
        assert not weights
    elif staleness == 0:
        assert weights == [EXPECTED.get(feature, EXPECTED["none"])] * workers, output[-3000:]


EXPECTED = {"none": "12.3503", "accumulation": "12.2805"}
"""The sum of the weights' sizes after four steps of one process without servers; workers with the same batch end with the same."""


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("feature", "workers", "devices"), [("pipeline", 2, 1), ("semi_auto", 1, 8)])
def test_servers_and_another_feature_do_not_wait_for_ever(
    tmp_path: Path, feature: str, workers: int, devices: int
) -> None:
    check(tmp_path, feature, workers, devices)


@pytest.mark.soak
@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize(("workers", "devices", "staleness"), [(1, 1, 0), (2, 1, 0), (1, 8, 0), (2, 1, -1)])
def test_no_pair_with_servers_waits_for_ever(
    tmp_path: Path, feature: str, workers: int, devices: int, staleness: int
) -> None:
    check(tmp_path, feature, workers, devices, staleness)
