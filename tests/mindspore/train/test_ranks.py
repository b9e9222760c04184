"""What the ranks of a job agree on, with two real processes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from compiler_flags import COMPILER

SCRIPT = """
    import os, signal, sys
    import numpy as np
    from sporax.mindspore.communication import get_rank, init
    init()
    rank, directory = get_rank(), sys.argv[1]

    from sporax.mindspore import nn
    from sporax.mindspore.dataset import NumpySlicesDataset
    from sporax.mindspore.train import Callback, LambdaCallback, Model, OnRequestExit, _ranks

    assert _ranks.rank() == rank
    assert _ranks.mean_over_ranks(float(rank)) == 0.5
    assert _ranks.any_rank(rank == 1) and not _ranks.any_rank(False)

    class SendSignal(Callback):
        def on_train_step_end(self, run_context):
            if rank == 1 and run_context.original_args().cur_step_num == 3:
                os.kill(os.getpid(), signal.SIGTERM)

    data = NumpySlicesDataset((np.ones((8, 2), np.float32), np.zeros((8, 3), np.float32)), ["x", "y"]).batch(2)
    net = nn.Dense(2, 3)
    steps = []
    look = LambdaCallback(on_train_step_end=lambda run: steps.append(run.original_args().cur_step_num))
    leave = OnRequestExit(save_mindir=False, directory=directory)
    Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.1)).train(2, data, callbacks=[SendSignal(), leave, look])
    assert steps == [1, 2, 3], steps
"""


@pytest.mark.full
def test_one_rank_is_requested_to_leave_and_both_do_after_the_same_step(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {**os.environ, "XLA_FLAGS": COMPILER, "JAX_PLATFORMS": "cpu", "MS_ENABLE_GRACEFUL_EXIT": "1"}
    environment |= {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "MS_SCHED_PORT": str(port)}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(SCRIPT), str(tmp_path)],
            env={**environment, "OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for rank in ranks:
        _, errors = rank.communicate(timeout=120)
        assert rank.returncode == 0, errors
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*")) == [
        "rank_0/Net_train.ckpt",
        "rank_1/Net_train.ckpt",
    ]
