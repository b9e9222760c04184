"""Measuring two ways of doing the same thing, side by side."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import jax


def interleaved(ways: dict[str, Callable[[], Any]], rounds: int, warmup: int = 3) -> dict[str, float]:
    """Median seconds of one call of each way; the ways take turns, so noise of the machine hits them alike."""
    for _ in range(warmup):
        for run in ways.values():
            jax.block_until_ready(run())
    times: dict[str, list[float]] = {name: [] for name in ways}
    order = list(ways.items())
    for index in range(rounds):
        for name, run in order if index % 2 else reversed(order):
            start = time.perf_counter()
            jax.block_until_ready(run())
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(each) for name, each in times.items()}
