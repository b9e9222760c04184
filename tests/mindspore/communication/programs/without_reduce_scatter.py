"""Jobs of every kind that scatters sums, on CPUs with `jax.distributed`: no compiled program has a reduce-scatter, plans say so.

XLA writes every program that it compiles into the folder in the first argument, in each process a folder of its own.
"""

import os
import re
import sys
from collections import Counter
from pathlib import Path

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

FOLDER = Path(sys.argv[1]) / str(os.getpid())
os.environ["XLA_FLAGS"] += f" --xla_dump_to={FOLDER} --xla_dump_hlo_as_text"

import sporax  # noqa: E402 -- XLA reads its flags once
import sporax.mindspore as ms  # noqa: E402
from sporax.mindspore import Tensor, nn, ops  # noqa: E402
from sporax.mindspore.communication import init  # noqa: E402
from sporax.mindspore.parallel.nn import PipelineCell  # noqa: E402
from sporax.planner.communication.transfers import collective_bytes, schedule  # noqa: E402
from sporax.planner.cost.evaluate import cost_of  # noqa: E402

init()
RANK, SIZE = jax.process_index(), jax.process_count()  # exchanges outside of plans are between processes
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(16, 16)).astype(np.float32), RNG.normal(size=(16, 16)).astype(np.float32)
KINDS = re.compile(r" (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(?:-start)?\(")
seen = set()


def compiled():
    """Collectives of all programs that were compiled since the last call."""
    new = set(FOLDER.glob("*after_optimizations.txt")) - seen
    seen.update(new)
    return Counter(kind for path in new for kind in KINDS.findall(path.read_text()))


def check(name):
    counts = compiled()
    assert not counts["reduce-scatter"], (name, counts)
    assert counts["all-to-all"], (name, counts)


def training(name, accumulated=0, strategy=None, stages=1, level=None, **settings):
    """One step in the global view; its plan and what was compiled speak of an all-to-all."""
    ms.reset_auto_parallel_context()
    if level:
        config = {"parallel_optimizer_threshold": 0, "optimizer_level": level}
        settings |= {"enable_parallel_optimizer": True, "parallel_optimizer_config": config}
    ms.set_auto_parallel_context(
        **{"parallel_mode": "semi_auto_parallel", "dataset_strategy": "full_batch", "pipeline_stages": stages}
        | settings
    )
    ms.set_seed(1)
    net = nn.SequentialCell([nn.Dense(16, 16, has_bias=False) for _ in range(2)])
    for layer in net:
        layer.matmul.shard(*(strategy or (((2, 1), (1, 1)),)))
    if stages > 1:
        for stage, layer in enumerate(net):
            layer.pipeline_stage = stage
    cell = nn.WithLossCell(net, nn.MSELoss())
    cell = PipelineCell(cell, 2) if stages > 1 else nn.GradAccumulationCell(cell, 2) if accumulated else cell
    step = nn.TrainOneStepCell(cell, nn.Momentum(net.trainable_params(), 0.1, 0.9))
    assert np.isfinite(float(step(Tensor(X), Tensor(Y))))
    check(name)
    if stages == 1:
        planned = step.program.plan(Tensor(X), Tensor(Y))
        assert not planned.plan.has_reduce_scatter
        kinds = collective_bytes(list(schedule(planned.graph, planned.plan)))
        assert "all_to_all" in kinds, (name, kinds)
        assert "reduce_scatter" not in {*kinds, *cost_of(planned.graph, planned.plan, planned.model).collectives}, (
            name,
            kinds,
        )
        assert "reduce-scatter" not in str(planned.summary()), name
    else:
        # Every stage reduces among its own devices, and its programs move what the plan of the stage says.
        assert "reduce_scatter" not in str(step.program.plan(Tensor(X), Tensor(Y)).summary()), name


SCATTER, GATHER = ops.ReduceScatter(), ops.AllGather()
ROWS = slice(RANK * 2, RANK * 2 + 2)


def slope(x):
    """The derivative of ReduceScatter gathers, and the derivative of that scatters again."""
    return (ms.grad(lambda y: (SCATTER(y) ** 3).sum())(x) * Tensor(X[: SIZE * 2])).sum()


def curvature(ones):
    """The derivative of `slope`: that of gather(3 scatter(y)^2), which every rank sums with weights X."""
    return SIZE * 6 * (SIZE * ones) * X[: SIZE * 2]


def by_rank(mode):
    ms.reset_auto_parallel_context()
    ms.set_context(mode=mode)
    for dtype in (np.float32, np.float16, ml_dtypes.bfloat16, np.int32, np.uint8, np.float64):
        mine = [np.full((SIZE * 2, 3), 100 * rank + 1).astype(dtype) for rank in range(SIZE)]
        wide = np.float32 if np.dtype(dtype).itemsize < 4 and np.dtype(dtype).kind in "fV" else dtype
        total = sum(part.astype(wide) for part in mine).astype(dtype)
        run = ms.jit(SCATTER) if mode == ms.GRAPH_MODE else SCATTER
        result = run(Tensor(mine[RANK])).asnumpy()
        np.testing.assert_array_equal(result.astype(np.float64), total[ROWS].astype(np.float64), str(dtype))
    check(f"ReduceScatter in mode {mode}")

    grad = ms.grad(lambda x: (GATHER(x) * Tensor(X[: SIZE * 2])).sum())
    np.testing.assert_array_equal(grad(Tensor(X[ROWS])).asnumpy(), SIZE * X[ROWS])
    check(f"AllGather's derivative in mode {mode}")

    ones = np.ones((SIZE * 2, 16), np.float32)
    np.testing.assert_allclose(ms.grad(slope)(Tensor(ones)).asnumpy(), curvature(ones), rtol=1e-5)
    check(f"ReduceScatter's second derivative in mode {mode}")


def plain():
    weights = jnp.asarray(X)

    def loss(x, w):
        return jnp.sum(jnp.tanh(x @ w) @ w, axis=1)

    planned = sporax.plan(loss, jnp.asarray(X), weights, devices=4)
    assert not planned.plan.has_reduce_scatter
    again = sporax.plan(loss, jnp.asarray(X), weights, saved=planned.plan.on_devices(True).to_json())
    assert not again.plan.has_reduce_scatter


ms.set_context(mode=ms.GRAPH_MODE)
SCATTERED = (((1, 4), (1, 4)), ((4, 1),))
training("out_strategy", strategy=SCATTERED)
for level in ("level1", "level2", "level3"):
    training(level, level=level)
AUTO = {"mode": "auto", "config": None}
training("fused", level="level1", comm_fusion={"reducescatter": AUTO, "allgather": AUTO})
training("accumulated", level="level2", accumulated=2)
SEARCHED = {"parallel_mode": "auto_parallel", "search_mode": "sharding_propagation"}
training("searched", strategy=SCATTERED, **SEARCHED)
training("pipeline", level="level1", stages=2)
by_rank(ms.PYNATIVE_MODE)
by_rank(ms.GRAPH_MODE)
plain()
print("all is well")
