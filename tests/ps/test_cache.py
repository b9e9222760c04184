"""A cache of rows on the worker changes no bit of a synchronous run, and the next batch's rows are requested during the step."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import nn
from sporax.runtime.session import SESSION

SCRIPT = """
import json, sys
import numpy as np
import mindspore as ms
from mindspore import nn, dataset as ds
from mindspore.train import Model
from mindspore.communication import init, get_rank
from sporax.runtime.session import SESSION

VOCABULARY, STEPS = 200, 12
cache, how, folder = int(sys.argv[1]), sys.argv[2], sys.argv[3]
ms.set_context(mode=ms.GRAPH_MODE)
ms.set_ps_context(enable_ps=True)
init()
ms.set_seed(3)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.rows = nn.EmbeddingLookup(VOCABULARY, 4, "normal", target="DEVICE", vocab_cache_size=cache)
        self.top = nn.Dense(12, 1)

    def construct(self, ids):
        return self.top(self.rows(ids).reshape((-1, 12)))


draw = np.random.default_rng(get_rank())
ids = np.minimum(draw.zipf(1.2, (STEPS * 8, 3)), VOCABULARY - 1).astype(np.int32)
labels = draw.standard_normal((STEPS * 8, 1)).astype(np.float32)
data = ds.NumpySlicesDataset((ids, labels), ["ids", "labels"], shuffle=False).batch(8)
net = Net()
net.set_param_ps()
optimizer = nn.LazyAdam(net.trainable_params(), 0.01)
network = nn.WithLossCell(net, nn.MSELoss())
if how == "model":
    Model(network, optimizer=optimizer).train(1, data, dataset_sink_mode=False)
else:
    grad = ms.value_and_grad(network, None, net.trainable_params())
    @ms.jit
    def step(ids, labels):
        loss, grads = grad(ids, labels)
        optimizer(grads)
        return loss
    for batch in data.create_tuple_iterator():
        step(*batch)
servers, table = SESSION.servers, net.rows.embedding_table.server_rows
clock = lambda: servers.store.clock
import time
while clock() < STEPS:
    time.sleep(0.01)
rows = servers.fetch({table.key: np.arange(VOCABULARY)})[1][table.key]
dense = [parameter.asnumpy().tobytes().hex() for parameter in net.top.trainable_params()]
result = {"rows": rows.tobytes().hex(), "dense": dense, "hits": table.hits, "misses": table.misses}
open(f"{folder}/{get_rank()}.json", "w").write(json.dumps(result))
"""


def train(run_job: Callable[..., str], folder: Path, cache: int, how: str, servers: int = 2) -> list[dict[str, Any]]:
    """What both workers hold at the end."""
    run_job(SCRIPT, folder, cache, how, folder, servers=servers)
    return [json.loads((folder / f"{rank}.json").read_text("utf-8")) for rank in (0, 1)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, run_job: Callable[..., str]) -> dict[str, Any]:
    """What a worker holds that has the whole table; neither the form of its loop nor the number of servers changes a bit."""
    return train(run_job, tmp_path_factory.mktemp("whole"), 200, "functional", servers=1)[0]


@pytest.mark.full
@pytest.mark.parametrize("how", ["model", "functional"])
def test_a_synchronous_run_with_a_small_cache_has_the_bits_of_one_that_holds_the_table(
    tmp_path: Path, run_job: Callable[..., str], whole: dict[str, Any], how: str
) -> None:
    small = train(run_job, tmp_path, 24, how)  # a batch has up to 24 different ids: rows are evicted at every step
    for name in ("rows", "dense"):
        assert small[0][name] == small[1][name] == whole[name]
    # All but the first step's rows are there before the lookup, requested while the step before was running.
    assert 0 < small[0]["misses"] <= 24 < small[0]["hits"]


def test_a_checkpoint_holds_the_whole_table_and_not_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_ps_context(enable_ps=True)
    monkeypatch.setenv("MS_ROLE", "MS_WORKER")
    try:
        layer = nn.EmbeddingLookup(10, 2, "zeros", target="DEVICE", vocab_cache_size=4)
        whole = np.arange(20, dtype=np.float32).reshape(10, 2)
        monkeypatch.setattr(SESSION, "servers", SimpleNamespace(full_table=lambda cache: whole[: cache.num_rows]))
        layer.embedding_table.server_rows.key = 32
        ms.save_checkpoint(layer, str(tmp_path / "net.ckpt"))
    finally:
        ms.reset_ps_context()
    loaded = ms.load_checkpoint(str(tmp_path / "net.ckpt"))
    np.testing.assert_array_equal(loaded[layer.embedding_table.name].asnumpy(), whole)
