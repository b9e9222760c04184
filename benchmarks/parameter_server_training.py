"""How long does a training step of wide & deep take on parameter servers, next to Ray's parameter-server pattern and to
all-reduce? How much of the exchange with the servers is hidden behind the device's step?

Side by side in one run, by turns, two workers each, the same batches, SGD:

* ours, synchronous and with staleness 1: `sporax run --server_num 2 --worker_num 2`, tables cached on the workers;
* Ray: two actors hold the weights as numpy arrays (dense weights in one, the rows of the tables in both by id), two actors
  compute gradients with JAX; weights and gradients travel by `ray.get`. Only the rows of the batch travel, which is kinder
  than the pattern of Ray's documentation, where all weights do;
* all-reduce: the same net in data parallelism, where the whole tables are replicated and their gradients reduced.

    python benchmarks/parameter_server_training.py [--rounds 3] [--steps 60] [--ray-python PATH]

Ray runs in the interpreter of a virtual environment with `pip install ray` and this package; without one it is left out.
Ratios are what counts: medians of the same run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

FIELDS, VOCABULARY, WIDTH, BATCH, RATE = 8, 50_000, 16, 256, 0.05
WARMUP = 10


def clicks(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Ids (BATCH, FIELDS), few of them frequent, and clicks (BATCH, 1)."""
    ids = np.minimum(rng.zipf(1.3, (BATCH, FIELDS)), VOCABULARY - 1).astype(np.int32)
    return ids, (rng.random((BATCH, 1)) < 0.3).astype(np.float32)


def timed(
    step: Callable[[np.ndarray, np.ndarray], object],
    rank: int,
    steps: int,
    announce: Callable[[np.ndarray], object] = lambda ids: None,
) -> float:
    """Median seconds of a step after the warm-up; `announce` gets the ids of the batch after the present one."""
    rng, times = np.random.default_rng(rank), []
    following = clicks(rng)
    for _ in range(WARMUP + steps):
        (ids, label), following = following, clicks(rng)
        begin = time.perf_counter()
        announce(following[0])
        step(ids, label)
        times.append(time.perf_counter() - begin)
    return statistics.median(times[WARMUP:])


def report(folder: str, rank: int, seconds: float) -> None:
    """Leave this worker's median where the driver looks."""
    (Path(folder) / f"{rank}.json").write_text(json.dumps(seconds), encoding="utf-8")


# --------------------------------------------------------------------------------------------------------------- ours


def sporax_worker(way: str, steps: int, folder: str) -> None:
    """One process of our jobs; `way` is ``served``, ``all-reduce``, or ``dense-served`` and ``dense-alone`` for the overlap."""
    import mindspore as ms
    from mindspore import nn
    from mindspore.communication import get_rank, init

    ms.set_context(mode=ms.GRAPH_MODE)
    if way == "all-reduce":
        ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
    if "served" in way:
        ms.set_ps_context(enable_ps=True)
    if way != "dense-alone":
        init()
    ms.set_seed(1)
    rank = 0 if way == "dense-alone" else get_rank()
    if way.startswith("dense"):
        _dense(ms, nn, way == "dense-served", rank, steps, folder)
        return
    cache = {"target": "DEVICE", "vocab_cache_size": 8192} if way == "served" else {"target": "DEVICE"}

    class WideDeep(nn.Cell):
        """A linear model of ids next to a small network on their embeddings."""

        def __init__(self) -> None:
            super().__init__()
            self.wide = nn.EmbeddingLookup(VOCABULARY, 1, "zeros", **cache)
            self.deep = nn.EmbeddingLookup(VOCABULARY, WIDTH, "normal", **cache)
            self.layers = nn.SequentialCell(nn.Dense(FIELDS * WIDTH, 64), nn.ReLU(), nn.Dense(64, 1))

        def construct(self, ids: Any) -> Any:
            deep = self.layers(self.deep(ids).reshape((-1, FIELDS * WIDTH)))
            return self.wide(ids).sum(1) + deep

    net = WideDeep()
    if way == "served":
        net.set_param_ps()
    network = nn.WithLossCell(net, nn.BCEWithLogitsLoss())
    step = nn.TrainOneStepCell(network, nn.SGD(net.trainable_params(), RATE))

    def announce(ids: np.ndarray) -> None:
        for lookup in (net.wide, net.deep) if way == "served" else ():
            lookup.prefetch(ids)

    def train(ids: np.ndarray, label: np.ndarray) -> None:
        step(ms.Tensor(ids), ms.Tensor(label)).asnumpy()

    report(folder, rank, timed(train, rank, steps, announce))


def _dense(ms: Any, nn: Any, is_served: bool, rank: int, steps: int, folder: str) -> None:
    """A net whose step and whose exchange take about as long as each other."""
    net = nn.SequentialCell(*(layer for _ in range(3) for layer in (nn.Dense(768, 768), nn.ReLU())))
    if is_served:
        net.set_param_ps()
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params(), RATE))
    x = ms.Tensor(np.random.default_rng(rank).standard_normal((512, 768)).astype(np.float32))
    report(folder, rank, timed(lambda *_: step(x, x).asnumpy(), rank, steps))


# ---------------------------------------------------------------------------------------------------------------- ray


def ray_driver(steps: int, folder: str) -> None:
    """The parameter-server pattern of Ray's documentation, with rows by id."""
    import ray

    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="error")

    @ray.remote(num_cpus=0)
    class Holder:
        """Dense weights, or the rows whose id has one remainder, as numpy arrays."""

        def __init__(self, dense: list[np.ndarray], rows: int) -> None:
            self.dense = dense
            rng = np.random.default_rng(0)
            self.deep = rng.standard_normal((rows, WIDTH)).astype(np.float32) * np.float32(0.01)
            self.wide = np.zeros((rows, 1), np.float32)

        def weights(self) -> list[np.ndarray]:
            return self.dense

        def apply(self, *gradients: list[np.ndarray]) -> list[np.ndarray]:
            for position, value in enumerate(self.dense):
                mean = sum(gradient[position] for gradient in gradients) / np.float32(len(gradients))
                self.dense[position] = value - np.float32(RATE) * mean
            return self.dense

        def rows(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return self.wide[ids], self.deep[ids]

        def apply_rows(self, *updates: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
            rate = np.float32(RATE / len(updates))
            for ids, wide, deep in updates:
                np.subtract.at(self.wide, ids, rate * wide)
                np.subtract.at(self.deep, ids, rate * deep)

    @ray.remote(num_cpus=1)
    class Worker:
        """Computes gradients of its batches."""

        def __init__(self, rank: int) -> None:
            import jax
            import jax.numpy as jnp

            def loss(dense: Any, wide: Any, deep: Any, label: Any) -> Any:
                first, first_bias, last, last_bias = dense
                hidden = jax.nn.relu(deep.reshape(-1, FIELDS * WIDTH) @ first + first_bias)
                logits = wide.sum(1) + hidden @ last + last_bias
                return jnp.mean(jnp.maximum(logits, 0) - logits * label + jnp.log1p(jnp.exp(-jnp.abs(logits))))

            self.gradient = jax.jit(jax.value_and_grad(loss, (0, 1, 2)))
            self.rng = np.random.default_rng(rank)

        def step(self, dense: list[np.ndarray], *holders: Any) -> tuple[Any, ...]:
            ids, label = clicks(self.rng)
            flat, inverse = np.unique(ids.reshape(-1), return_inverse=True)
            parts = [flat[flat % 2 == part] // 2 for part in (0, 1)]
            got = ray.get([holder.rows.remote(part) for holder, part in zip(holders, parts, strict=True)])
            wide, deep = np.empty((len(flat), 1), np.float32), np.empty((len(flat), WIDTH), np.float32)
            for part, (of_wide, of_deep) in enumerate(got):
                wide[flat % 2 == part], deep[flat % 2 == part] = of_wide, of_deep
            at = inverse.reshape(-1)
            _, (dense_gradient, of_wide, of_deep) = self.gradient(
                dense, wide[at].reshape(BATCH, FIELDS, 1), deep[at].reshape(BATCH, FIELDS, WIDTH), label
            )
            sums = np.zeros_like(wide), np.zeros_like(deep)
            np.add.at(sums[0], at, np.asarray(of_wide).reshape(-1, 1))
            np.add.at(sums[1], at, np.asarray(of_deep).reshape(-1, WIDTH))
            updates = [(parts[part], sums[0][flat % 2 == part], sums[1][flat % 2 == part]) for part in (0, 1)]
            return ([np.asarray(value) for value in dense_gradient], *updates)

    rng = np.random.default_rng(1)
    shapes = [(FIELDS * WIDTH, 64), (64,), (64, 1), (1,)]
    first = [rng.standard_normal(shape).astype(np.float32) * np.float32(0.05) for shape in shapes]
    holders = [Holder.remote(first, VOCABULARY // 2), Holder.remote([], VOCABULARY // 2)]
    workers = [Worker.remote(rank) for rank in (0, 1)]
    times = []
    dense = holders[0].weights.remote()
    for _ in range(WARMUP + steps):
        begin = time.perf_counter()
        outputs = [worker.step.options(num_returns=3).remote(dense, *holders) for worker in workers]
        dense = holders[0].apply.remote(*(output[0] for output in outputs))
        done = [
            holder.apply_rows.remote(*(output[1 + part] for output in outputs)) for part, holder in enumerate(holders)
        ]
        ray.get([dense, *done])
        times.append(time.perf_counter() - begin)
    report(folder, 0, statistics.median(times[WARMUP:]))
    ray.shutdown()


# ------------------------------------------------------------------------------------------------------------- driver


def measure(way: str, steps: int, python: str) -> float:
    """Median seconds of a step of one job, the slower worker's."""
    launcher = [sys.executable, "-m", "sporax", "run"]
    flags = {
        "served": ["--server_num", "2", "--worker_num", "2", "--staleness", "0"],
        "served-1": ["--server_num", "2", "--worker_num", "2", "--staleness", "1"],
        "all-reduce": ["--worker_num", "2", "--local_worker_num", "2", "--join", "True"],
        "dense-served": ["--server_num", "1", "--worker_num", "1", "--staleness", "0"],
        "dense-served-1": ["--server_num", "1", "--worker_num", "1", "--staleness", "1"],
        "dense-alone": ["--worker_num", "1", "--local_worker_num", "1", "--join", "True"],
    }
    variables = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    variables |= {"MS_PS_DURABILITY": "memory", "MS_PS_SLOTS": "2"}  # Ray keeps nothing either, and has two holders
    with tempfile.TemporaryDirectory() as folder:
        words = [__file__, "--way", way.removesuffix("-1"), "--folder", folder, "--steps", str(steps)]
        command = [python, *words] if way == "ray" else [*launcher, *flags[way], "--log_dir", folder, *words]
        done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=900, cwd=folder)
        if done.returncode:
            raise SystemExit(f"{way} ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
        return max(json.loads(path.read_text("utf-8")) for path in Path(folder).glob("?.json"))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="how often each way is run, by turns")
    parser.add_argument("--steps", type=int, default=60, help="steps that count in each run")
    parser.add_argument("--ray-python", default="", help="interpreter with Ray and this package")
    parser.add_argument("--way", default="", help=argparse.SUPPRESS)
    parser.add_argument("--folder", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.way == "ray":
        ray_driver(arguments.steps, arguments.folder)
        return
    if arguments.way:
        sporax_worker(arguments.way, arguments.steps, arguments.folder)
        return
    ways = ["served", "served-1", "all-reduce", "dense-alone", "dense-served", "dense-served-1"]
    ways[2:2] = ["ray"] if arguments.ray_python else []
    times: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(arguments.rounds):
        for way in ways:
            times[way].append(measure(way, arguments.steps, arguments.ray_python))
            print(f"{way:<15} {times[way][-1] * 1e3:8.2f} ms", file=sys.stderr, flush=True)
    middle = {way: statistics.median(values) for way, values in times.items()}
    print(
        f"wide & deep, {VOCABULARY} ids of {WIDTH}, 2 workers, batches of {BATCH}: ms per step, ratio to ours synchronous"
    )
    for way in ways[:-3]:
        print(f"  {way:<15} {middle[way] * 1e3:8.2f} ms   {middle[way] / middle['served']:5.2f} x")
    alone, waits, hides = (middle[way] for way in ways[-3:])
    print(
        f"dense net: step alone {alone * 1e3:.2f} ms, on a server synchronous {waits * 1e3:.2f} ms, "
        f"staleness 1 {hides * 1e3:.2f} ms"
    )
    print(f"  of the exchange, {(waits - hides) / (waits - alone):.0%} is hidden behind the next step")


if __name__ == "__main__":
    main()
