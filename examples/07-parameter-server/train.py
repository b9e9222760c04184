"""Wide & deep (Cheng et al. 2016) on made-up clicks: tables and weights live on parameter servers.

    sporax run --server_num 2 --worker_num 2 examples/07-parameter-server/train.py [--steps 120] [--kill 60] [--out losses]

Every process runs this file; scheduler and servers stay inside `init()`. `compare.py` runs it twice, once with a server
killed in the middle, and draws both loss curves: in synchronous mode they are the same to the last bit.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np

import mindspore as ms
from mindspore import nn
from mindspore.communication import get_group_size, get_rank, init

FIELDS, VOCABULARY, WIDTH = 8, 5000, 16


class WideDeep(nn.Cell):
    """A linear model of ids beside a small network on their embeddings; gives logits (N, 1)."""

    def __init__(self):
        super().__init__()
        cache = {"target": "DEVICE", "vocab_cache_size": 1024}
        self.wide = nn.EmbeddingLookup(VOCABULARY, 1, "zeros", **cache)
        self.deep = nn.EmbeddingLookup(VOCABULARY, WIDTH, "normal", **cache)
        self.layers = nn.SequentialCell(nn.Dense(FIELDS * WIDTH, 32), nn.ReLU(), nn.Dense(32, 1))

    def construct(self, ids):
        deep = self.layers(self.deep(ids).reshape((-1, FIELDS * WIDTH)))
        return self.wide(ids).sum(1) + deep


def clicks(rng, count):
    """Ids (N, FIELDS), few of them frequent, and clicks (N, 1) that a hidden weight of each id makes likely."""
    ids = np.minimum(rng.zipf(1.3, (count, FIELDS)), VOCABULARY - 1).astype(np.int32)
    weights = np.random.default_rng(7).standard_normal(VOCABULARY)
    chance = 1 / (1 + np.exp(-weights[ids].sum(1, keepdims=True)))
    return ids, (rng.random((count, 1)) < chance).astype(np.float32)


def kill_server(index):
    """End a server without warning."""
    command = [
        sys.executable,
        "-m",
        "sporax",
        "ps",
        "status",
        "--json",
    ]  # the job's address and keys are in the environment
    status = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    os.kill(int(status["servers"][index]["pid"]), signal.SIGKILL)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--kill", type=int, default=-1, help="step at which a server is killed")
    parser.add_argument("--out", default="", help="file for the losses of rank 0")
    arguments = parser.parse_args()
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_ps_context(enable_ps=True)
    init()
    ms.set_seed(1)
    net = WideDeep()
    net.set_param_ps()
    network = nn.WithLossCell(net, nn.BCEWithLogitsLoss())
    step = nn.TrainOneStepCell(network, nn.LazyAdam(net.trainable_params(), 0.01))
    rng, losses = np.random.default_rng(get_rank()), []
    for number in range(arguments.steps):
        if number == arguments.kill and get_rank() == 0:
            kill_server(0)
            print(f"step {number}: killed server 0", flush=True)
        ids, label = clicks(rng, 256)
        losses.append(float(step(ms.Tensor(ids), ms.Tensor(label)).asnumpy()))
    if get_rank() == 0:
        print(f"{get_group_size()} workers: loss {np.mean(losses[:10]):.3f} -> {np.mean(losses[-10:]):.3f}", flush=True)
        if arguments.out:
            Path(arguments.out).write_text(json.dumps(losses), encoding="utf-8")


if __name__ == "__main__":
    main()
