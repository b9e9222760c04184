"""Measuring two ways of doing the same thing, side by side."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import jax


def blocks(
    ways: dict[str, Callable[[], Any]],
    rounds: int,
    size: int = 10,
    warmup: int = 3,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds of one call of each way, once per round: the median of `size` calls in a row.

    A loop calls one thing over and over, with its code and data in the processor's caches; blocks measure that, and
    still take turns often enough for noise of the machine to hit all ways alike.
    """

    def seconds(run: Callable[[], Any]) -> float:
        start = clock()
        jax.block_until_ready(run())
        return clock() - start

    order = list(ways.items())
    for _ in range(warmup):
        for _, run in order:
            jax.block_until_ready(run())
    times: dict[str, list[float]] = {name: [] for name in ways}
    for index in range(rounds):
        turn = index % len(order)
        for name, run in order[turn:] + order[:turn]:
            times[name].append(statistics.median(seconds(run) for _ in range(size)))
    return times
