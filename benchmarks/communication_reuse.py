"""What communication subgraph reuse (`MS_COMM_COMPILER_OPT`) does to compile time and steps, side by side in one process.

Three ways to train layers of two products, a bias and a norm on simulated devices: weights and state in slices that are gathered
for use (optimizer parallelism), products with strategies (operator parallelism), and the batch in slices with an all-reduce
for each gradient. Each step is traced for its devices, lowered and compiled in turns, with and without reuse; then steps are
timed in turns. Planning is the same and not counted. Compilation is shown in CPU seconds, which other work disturbs least.

    python benchmarks/communication_reuse.py --layers 6 24
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import time
from typing import Any

WAYS = ("optimizer parallelism", "operator parallelism", "data parallelism")
SLICED, SPLIT = (((8, 1), (1, 1)),) * 2, (((2, 1), (1, 4)), ((2, 4), (4, 1)))
_OPERATORS = r"(?:all.reduce|all.gather|reduce.scatter|all.to.all|collective.permute)"


def setup(way: str, layers: int, width: int) -> tuple[Any, Any]:
    """A training step and its data."""
    import numpy as np

    import sporax.mindspore as ms
    from sporax.mindspore import Tensor, nn, ops

    class Block(nn.Cell):
        def __init__(self, number: int) -> None:
            super().__init__()
            draw = np.random.default_rng(number)
            self.rise, self.fall = (
                ms.Parameter(Tensor(draw.normal(size=(width, width)).astype(np.float32) / width), name=name)
                for name in ("rise", "fall")
            )
            self.bias = ms.Parameter(Tensor(np.zeros(width, np.float32)), name="bias")
            self.norm = nn.LayerNorm((width,))
            self.first, self.second, self.tanh, self.add = ops.MatMul(), ops.MatMul(), ops.Tanh(), ops.Add()
            for product, strategy in zip(
                (self.first, self.second), SPLIT if "operator" in way else SLICED, strict=True
            ):
                product.shard(strategy)

        def construct(self, x: Any) -> Any:
            return self.add(self.second(self.tanh(self.first(self.norm(x), self.rise)), self.fall), self.bias)

    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.CellList([Block(number) for number in range(layers)])

        def construct(self, x: Any) -> Any:
            for block in self.blocks:
                x = block(x)
            return (x * x).mean()

    ms.set_context(mode=ms.GRAPH_MODE)
    ms.reset_auto_parallel_context()
    ms.set_auto_parallel_context(
        parallel_mode="semi_auto_parallel",
        device_num=8,
        full_batch=True,
        enable_parallel_optimizer=way == WAYS[0],
        parallel_optimizer_config={"parallel_optimizer_threshold": 0},
        # Gradients one by one, as a setting of fusion leaves them: otherwise XLA merges all-reduces by itself.
        comm_fusion={"allreduce": {"mode": "index", "config": [1]}} if way == WAYS[2] else {},
    )
    ms.set_seed(0)
    net = Net()
    step = nn.TrainOneStepCell(net, nn.Momentum(net.trainable_params(), 0.01, 0.9)).set_train()
    return step, Tensor(np.random.default_rng(0).normal(size=(16, width)).astype(np.float32))


def compare(way: str, layers: int, options: argparse.Namespace) -> None:
    """Compile and run one kind of step with and without reuse, in turns."""
    import jax

    steps, counts, bits = {}, {}, {}
    seconds: dict[str, list[tuple[float, float]]] = {"": [], "-1": []}
    for limit in seconds:
        os.environ["MS_COMM_COMPILER_OPT"] = limit
        step, x = setup(way, layers, options.width)
        bits[limit] = [step(x).asnumpy().tobytes() for _ in range(3)]
        bits[limit] += [parameter.asnumpy().tobytes() for parameter in step.network.get_parameters()]
        lowered = step.program.lower(x)
        counts[limit] = (
            len(re.findall(rf"\bstablehlo\.{_OPERATORS}", lowered.as_text())),
            len(re.findall(rf" {_OPERATORS}(?:-start)?\(", lowered.compile().as_text())),
        )
        steps[limit] = step, x
    for _ in range(options.compilations):
        for limit, (step, x) in steps.items():
            os.environ["MS_COMM_COMPILER_OPT"] = limit
            jax.clear_caches()
            start = time.process_time()
            lowered = step.program.lower(x)
            middle = time.process_time()
            lowered.compile()
            seconds[limit].append((middle - start, time.process_time() - middle))
    walls: dict[str, list[float]] = {"": [], "-1": []}
    used: dict[str, list[float]] = {"": [], "-1": []}
    for number in range(options.rounds):
        for limit in ("", "-1") if number % 2 else ("-1", ""):
            step, x = steps[limit]
            os.environ["MS_COMM_COMPILER_OPT"] = limit
            step(x).asnumpy()
            wall, cpu = time.perf_counter(), time.process_time()
            for _ in range(options.size):
                step(x).asnumpy()
            walls[limit].append((time.perf_counter() - wall) / options.size)
            used[limit].append((time.process_time() - cpu) / options.size)
    report(f"{way}, {layers} layers", counts, seconds, walls, used, bits[""] == bits["-1"])


def report(name: str, counts: Any, seconds: Any, walls: Any, used: Any, equal: bool) -> None:
    """Print counts and ratios."""
    (lowered, compiled), (lowered_then, compiled_then) = counts[""], counts["-1"]
    print(f"{name}: bits {'equal' if equal else 'DIFFERENT'}")
    print(f"  operators, lowered {lowered} → {lowered_then}, compiled {compiled} → {compiled_then}")
    phases = [[min(run[phase] for run in seconds[limit]) for limit in ("", "-1")] for phase in (0, 1)]
    phases.append([sum(part) for part in zip(*phases, strict=True)])
    for title, (without, reused) in zip(("trace and lower", "XLA", "all"), phases, strict=True):
        print(f"  {title:16} {without:6.2f} → {reused:6.2f} CPU s   {reused / without:.2f}x")
    for title, times in (("step, wall time", walls), ("step, CPU time", used)):
        middle = statistics.median(a / b for a, b in zip(times["-1"], times[""], strict=True))
        print(
            f"  {title:16} {min(times['-1']) / min(times['']):.3f}x (least), {middle:.3f}x (median of pairs)",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, nargs="*", default=[6, 24])
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--compilations", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--size", type=int, default=5, help="steps in a row")
    parser.add_argument("--ways", nargs="*", default=WAYS)
    options = parser.parse_args()
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
    os.environ["SPORAX_NO_CACHE"] = "1"
    for way in options.ways:
        for layers in options.layers:
            compare(way, layers, options)


if __name__ == "__main__":
    main()
