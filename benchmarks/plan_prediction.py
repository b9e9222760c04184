"""Do plans keep what they predict? Step time, bytes of collectives and memory of ten plans, predicted and measured.

The training step of a network is planned ten times with different cuts of its parameters. Every plan is compiled for the
devices at hand and run as training does: parameters are given away, and the next step starts from the new ones. Plans take
turns, in another order every round, and every step is compared with the mean of its round: the plans of one round meet the same
machine, whatever else it does. The table gives predictions beside best times, and below it stand Spearman's correlation of
predicted times with the medians of these comparisons (with best times and with medians as well), and the largest relative
differences of bytes and memory.

    sporax calibrate --devices 8 --out profile.json
    python benchmarks/plan_prediction.py --devices 8 --hardware profile.json [--rounds N] [--json FILE]

Goals: correlation >= 0.8, bytes within 1 %, memory within 10 %. With the default batch of 32 the slowest plan takes 2.5 times as
long as the fastest. Where plans take alike, as with a batch of 1024 and a width of 240, nothing ranks them. And where the width
is a power of two, as 512, products that read their first operand transposed take twice as long on CPUs as with 500: lines of
cache get in each other's way, which no profile knows.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
import time
from collections.abc import Callable
from math import prod
from typing import Any

SIZES = {"f32": 4, "s32": 4, "bf16": 2, "f16": 2, "pred": 1, "u32": 4, "f64": 8, "s64": 8}
COLLECTIVE = re.compile(r"= (.+?) (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(?:-start)?\(")
SHAPE = re.compile(r"(\w+)\[([\d,]*)\]")


def bytes_of_collectives(text: str) -> int:
    """Bytes of the results of all collectives in a compiled program."""
    total = 0
    for line in re.sub(r"/\*.*?\*/", "", text).splitlines():
        found = COLLECTIVE.search(line)
        for dtype, dims in SHAPE.findall(found.group(1)) if found else ():
            total += SIZES[dtype] * prod(int(dim) for dim in dims.split(",") if dim)
    return total


def network(width: int, batch: int) -> tuple[Callable[..., Any], Any, Any]:
    """A training step of four layers, its parameters and a batch."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    rng = np.random.default_rng(0)

    def floats(*shape: int) -> Any:
        return jnp.asarray(rng.normal(size=shape) * 0.02, jnp.float32)

    names = ("w0", "w1", "w2", "w3")
    params = {name: floats(width, width) for name in names}
    data = {"x": floats(batch, width), "y": floats(batch, width)}

    def step(params: Any, data: Any) -> Any:
        def loss(params: Any) -> Any:
            x = data["x"]
            for name in names:
                x = jax.nn.gelu(x @ params[name])
            return ((x - data["y"]) ** 2).mean()

        value, gradients = jax.value_and_grad(loss)(params)
        return jax.tree.map(lambda p, g: p - 0.01 * g, params, gradients), value

    return step, params, data


WHOLE, COLUMNS, ROWS = (1, 1), (1, 8), (8, 1)
BATCH = (8, 1)
CUTS = {
    "whole": ((WHOLE,) * 4, WHOLE),
    "data parallel": ((WHOLE,) * 4, BATCH),
    "columns": ((COLUMNS,) * 4, WHOLE),
    "rows, batch": ((ROWS,) * 4, BATCH),
    "columns, rows": ((COLUMNS, ROWS) * 2, WHOLE),
    "rows, columns, batch": ((ROWS, COLUMNS) * 2, BATCH),
    "2 x 4": (((2, 4),) * 4, WHOLE),
    "4 x 2, batch": (((4, 2),) * 4, BATCH),
    "half columns, rows": (((1, 4), (4, 1)) * 2, WHOLE),
    "one by columns": ((COLUMNS, WHOLE, WHOLE, WHOLE), BATCH),
}
"""Slices of the four parameters, and of the data."""


def result_bytes(transfers: Any) -> int:
    """Bytes of the results of all collectives that a schedule has."""
    total = 0
    for together in transfers:
        for transfer in together:
            for move in transfer.redistribution.moves:
                members = prod(MESH[axis] for axis in move.axes)
                scale = {"all_gather": members, "reduce_scatter": 1 / members}.get(move.collective, 1)
                total += int(move.local_bytes * scale) if move.collective else 0
    return total


MESH = (2, 2, 2)


def stepping(step: Callable[..., Any], params: Any, data: Any) -> Callable[[], Any]:
    """A function that takes one step after another."""

    def run() -> Any:
        nonlocal params
        params, loss = step(params, data)
        return params, loss

    return run


def relative(times: list[list[float]]) -> list[float]:
    """For every plan the median over the rounds of its time beside the mean of all plans in the same round.

    Plans of one round run within moments of each other, so what the machine does besides counts for all of them alike.
    """
    means = [statistics.fmean(each) for each in zip(*times, strict=True)]
    return [statistics.median(time / mean for time, mean in zip(each, means, strict=True)) for each in times]


def spearman(a: list[float], b: list[float]) -> float:
    """Spearman's rank correlation."""
    from scipy.stats import spearmanr

    return float(spearmanr(a, b).statistic)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, default=8, help="simulated devices; 0 for the real ones")
    parser.add_argument("--hardware", default="cpu", help="profile of the devices")
    parser.add_argument("--rounds", type=int, default=40, help="steps timed per plan")
    parser.add_argument("--width", type=int, default=480)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    if options.devices:
        flag = f"--xla_force_host_platform_device_count={options.devices}"
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flag}"
    import jax
    import jax.numpy as jnp
    from rich.console import Console
    from rich.table import Table

    import sporax
    from sporax.planner.communication.transfers import schedule
    from sporax.planner.memory.peak import backend_of, memory_of

    step, params, data = network(options.width, options.batch)
    rows: list[dict[str, Any]] = []
    runs: list[Callable[[], Any]] = []
    for name, (cuts, batch) in CUTS.items():
        planned = sporax.plan(
            step,
            params,
            data,
            hardware=options.hardware,
            fixed={0: dict(zip(params, cuts, strict=True)), 1: batch},
            carry={0: 0},
        )
        function = planned.function(donate=(0,))
        arguments = jax.device_put((jax.tree.map(jnp.copy, params), data), planned.in_shardings)
        compiled = function.lower(*arguments).compile()
        memory = compiled.memory_analysis()
        measured = memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes
        measured -= memory.alias_size_in_bytes
        runs.append(stepping(compiled, *arguments))
        runs[-1]()
        rows.append(
            {
                "plan": name,
                "predicted_seconds": planned.predicted_seconds,
                "searched_seconds": planned.search.cost_seconds,
                "predicted_bytes": result_bytes(schedule(planned.step.graph, planned.plan)),
                "compiled_bytes": bytes_of_collectives(compiled.as_text()),
                "predicted_memory": memory_of(
                    planned.step.graph, planned.plan, backend_of(planned.model.platform)
                ).peak_bytes,
                "compiled_memory": measured,
            }
        )
        print(f"planned and compiled: {name}", file=sys.stderr)
    times: list[list[float]] = [[] for _ in rows]
    for turn in range(options.rounds):
        for place in range(len(rows)):
            number = (turn + place) % len(rows)
            start = time.perf_counter()
            jax.block_until_ready(runs[number]())
            times[number].append(time.perf_counter() - start)
    shares = relative(times)
    for row, each, share in zip(rows, times, shares, strict=True):
        row["seconds"] = min(each)
        row["median_seconds"] = statistics.median(each)
        row["relative"] = share
    table = Table(title=f"Ten plans of one step on {jax.device_count()} devices ({jax.default_backend()})")
    for column in (
        "plan",
        "predicted, ms",
        "measured, ms",
        "collectives, MB",
        "compiled, MB",
        "memory, MB",
        "compiled, MB",
    ):
        table.add_column(column, justify="left" if column == "plan" else "right")
    for row in rows:
        table.add_row(
            row["plan"],
            f"{row['predicted_seconds'] * 1e3:.3f}",
            f"{row['seconds'] * 1e3:.3f}",
            f"{row['predicted_bytes'] / 1e6:.3f}",
            f"{row['compiled_bytes'] / 1e6:.3f}",
            f"{row['predicted_memory'] / 1e6:.2f}",
            f"{row['compiled_memory'] / 1e6:.2f}",
        )
    console = Console(width=140)
    console.print(table)
    predicted = [row["predicted_seconds"] for row in rows]
    figures = {"spearman": spearman(predicted, shares), "plans": rows, "times": times}
    by_best, by_medians = (spearman(predicted, [row[key] for row in rows]) for key in ("seconds", "median_seconds"))
    searched = spearman([row["searched_seconds"] for row in rows], shares)
    console.print(
        f"Spearman's correlation of predicted and measured step times: {figures['spearman']:.2f} ({by_best:.2f} by best times, "
        f"{by_medians:.2f} by medians; {searched:.2f} of what the searches priced)"
    )
    for what in ("bytes", "memory"):
        worst = max(abs(row[f"predicted_{what}"] / row[f"compiled_{what}"] - 1) for row in rows)
        console.print(f"Largest difference of {what}: {worst:.2%}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(figures, file, indent=2)


if __name__ == "__main__":
    main()
