"""Each sample counts exactly once in what a network learns, though workers are killed in the middle of their steps."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.base.errors import SporaxRuntimeError

SCRIPT = """
import json, os, signal, sys, threading
import numpy as np
import mindspore as ms
from mindspore import nn, ops
from mindspore.communication import init, get_rank
import sporax
from sporax.runtime.session import SESSION

TOTAL, SIZE = 96, 4
kills, folder = sys.argv[1] == "kill", sys.argv[2]
ms.set_context(mode=ms.GRAPH_MODE)
ms.set_ps_context(enable_ps=True)
init()
ms.set_seed(3)


class Count(nn.Cell):
    # With SGD at rate 1 every weight and every row counts how often its sample was used.
    def __init__(self):
        super().__init__()
        self.weight = ms.Parameter(ms.Tensor(np.zeros(TOTAL, np.float32)), name="weight")
        self.rows = nn.EmbeddingLookup(TOTAL, 2, "zeros", target="DEVICE", vocab_cache_size=8)

    def construct(self, ids):
        return -(self.weight[ids].sum() + self.rows(ids).sum())


net = Count()
net.set_param_ps()
optimizer = nn.SGD(net.trainable_params(), 1.0)
grad = ms.value_and_grad(net, None, net.trainable_params())

@ms.jit
def step(ids):
    loss, grads = grad(ids)
    optimizer(grads)
    return loss

servers, table = SESSION.servers, net.rows.embedding_table.server_rows
first_start = servers.store.link.incarnation == 1
submit, pushed = servers.store._submit_push, [0]

def counting(slot, *arguments):
    pushed[0] += 1
    if kills and first_start and get_rank() == 1 and pushed[0] == 16 * 3 + 9:
        os.kill(os.getpid(), signal.SIGKILL)  # half of the slots have this push
    return submit(slot, *arguments)

servers.store._submit_push = counting
for samples in sporax.mindspore.sample_ranges(TOTAL, SIZE):
    step(ms.Tensor(np.array(samples, np.int32)))
if get_rank() == 0:
    (dense,), rows = servers.store.pull({table.key: np.arange(TOTAL)}, newest=True)
    open(folder + "/end.json", "w").write(json.dumps([dense.tolist(), rows[table.key].tolist()]))
"""


@pytest.mark.sampled(1)
@pytest.mark.parametrize("staleness", [0, pytest.param(1, marks=pytest.mark.soak), -1])
def test_every_sample_counts_once_though_a_worker_is_killed_in_its_step(
    tmp_path: Path, run_job: Callable[..., str], staleness: int
) -> None:
    run_job(SCRIPT, tmp_path, "kill", tmp_path, staleness=staleness, MS_PS_WORKER_LEASE="60")
    dense, rows = (np.array(part) for part in json.loads((tmp_path / "end.json").read_text("utf-8")))
    # The mean of two workers' equal shares, as synchronous updates are made, counts a sample as a half.
    np.testing.assert_array_equal(dense, 0.5 if staleness == 0 else 1.0)
    np.testing.assert_array_equal(rows, 0.5 if staleness == 0 else 1.0)


def test_ranges_need_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sporax.runtime.session.SESSION.servers", None)
    with pytest.raises(SporaxRuntimeError, match="must be a worker of a job with parameter servers"):
        ms.sample_ranges(8, 2)
