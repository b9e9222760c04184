"""How long do the searches take?

Twelve transformer layers on 8 devices, forward and as a whole step: the network that MindSpore's searches were timed on, 193
operators there. And a step of GPT with 76 billion parameters (60 layers, Adam) on 1,024 devices, with fewer layers before it,
for time against depth. Everything that searches remember beyond one call is forgotten before each.

    python benchmarks/plan_time.py [--repeats N] [--mode MODE ...] [--layers N ...]

Seconds are of the processor, the least and the median of the repeats: other programs on the machine should not count.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import OperatorGraph
from sporax.ir.hardware import load_profile
from sporax.ir.placement import placed, prime_mesh
from sporax.planner.communication.resharding import redistribute
from sporax.planner.cost import Roofline, link_costs
from sporax.planner.rules import unregister
from sporax.planner.search import MODES, SearchOptions, search

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "planner" / "search"))
import networks

QUICK = ("recursive_programming", "sharding_propagation", "repeated_blocks")


def forget() -> None:
    """Drop what is remembered between searches."""
    redistribute.cache_clear()
    placed.cache_clear()
    unregister("nothing")  # and with it every rule that was worked out


def row(name: str, graph: OperatorGraph, devices: int, mode: str, repeats: int) -> None:
    """Print one line: time, and what the plan costs."""
    mesh = prime_mesh(DeviceMatrix((devices,)))
    profile = load_profile("h200")
    model, seconds = Roofline(profile, link_costs(profile, mesh)), []
    for _ in range(repeats):
        forget()
        start = time.process_time()
        found = search(graph, mesh, model, mode, SearchOptions(fully_use_devices=True))
        seconds.append(time.process_time() - start)
    least, median = min(seconds), statistics.median(seconds)
    bound = found.bound_seconds or 0.0
    proven = f", at most {100 * (found.cost_seconds / bound - 1):.2f} % above the best" if bound else ""
    size = f"{len(graph.operators):6,} operators"
    cost = f"plan {found.cost_seconds:.4e} s{proven}"
    print(f"{name:20} {size} {mode:22} {least:7.3f} s {median:7.3f} s   {cost}", flush=True)


def main() -> None:
    """Print one line per network and search."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5, help="searches of each network; of GPT three at most")
    parser.add_argument("--mode", choices=MODES, action="append", help="only these searches")
    parser.add_argument("--layers", type=int, action="append", help="layers of GPT; 4, 12 and 60 by default")
    arguments = parser.parse_args()
    modes = arguments.mode or QUICK
    for forward in (True, False):
        graph = networks.bare_transformer(12, 64, 512, 512, forward=forward).graph
        for mode in modes:
            row("12 layers, forward" if forward else "12 layers, step", graph, 8, mode, arguments.repeats)
    for layers in arguments.layers or (4, 12, 60):
        graph = networks.transformer(layers, 1024, 2048, 10240, 80, 51200).graph
        for mode in modes:
            if mode != "sharding_propagation" or layers <= 12:  # seeds are many, and each spreads over the whole graph
                row(f"GPT, {layers} layers", graph, 1024, mode, min(arguments.repeats, 3))


if __name__ == "__main__":
    main()
