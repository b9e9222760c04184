"""A process that ends while steps still run: XLA's threads must not go on after JAX's backend is gone."""

import subprocess
import sys

import pytest

from compiler_flags import COMPILER

PROGRAM = """
import atexit, sys
import jax, numpy as np
left = []
def look():  # after the handler of Sporax, before that of JAX
    left.extend(array for array in jax.live_arrays() if not array.is_ready())
    print("pending", len(left), flush=True)
atexit.register(look)
import sporax.mindspore as ms
from sporax.mindspore import nn, ops
ms.set_context(mode=ms.GRAPH_MODE)
ms.communication.init()
ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", full_batch=True)
net = nn.Dense(8, 8)
step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params()))
slow = jax.jit(lambda x: jax.lax.fori_loop(0, 300, lambda _, y: y @ x, x))
x = ms.Tensor(np.ones((8, 8), np.float32))
step(x, x)
large = ms.Tensor(np.eye(700, dtype=np.float32))
late = ms.Tensor(slow(large.array))
print("begins pending", not late.array.is_ready(), flush=True)
END
"""
ENDS = {"end": ("", 0), "exit": ("sys.exit(3)", 3), "error": ("raise ValueError('mine')", 1)}


@pytest.mark.parametrize("end", ENDS)
def test_pending_work_is_awaited_before_the_process_ends(end, monkeypatch):
    last, code = ENDS[end]
    monkeypatch.setenv("XLA_FLAGS", f"{COMPILER} --xla_force_host_platform_device_count=8")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("END", last)], capture_output=True, text=True, timeout=200
    )
    assert "begins pending True" in done.stdout, done.stderr
    assert "pending 0" in done.stdout.splitlines()
    assert done.returncode == code
