"""How far are the quick searches from the best plan?

Networks of five kinds on one- and two-dimensional meshes, with as much memory as they like and with less, are planned by every
search. Each plan's predicted time is compared with the optimum that the integer program proves.

    python benchmarks/plan_quality.py --suite transformer --hardware h200
    python benchmarks/plan_quality.py --only-limits --mesh 8 --mesh 2x4 --table

The networks are those of the tests (`tests/planner/search/networks.py`).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import OperatorGraph
from sporax.ir.hardware import load_profile
from sporax.planner.budget import Budget
from sporax.planner.cost import Roofline, link_costs
from sporax.planner.memory.peak import memory_of
from sporax.planner.memory.xla_cpu.kernel_fusion import XLA_CPU
from sporax.planner.search import SearchOptions, SearchResult, ilp, search
from sporax.planner.search.limit.limit import smallest
from sporax.planner.search.space.problem import ProblemBuilder

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "planner" / "search"))
import networks

SUITES: dict[str, dict[str, Callable[[], OperatorGraph]]] = {
    "mlp": {
        "narrow": lambda: networks.mlp(12, 32, 1024).graph,
        "tall": lambda: networks.mlp(12, 1024, 128).graph,
        "large": lambda: networks.mlp(6, 4096, 4096).graph,
    },
    "transformer": {
        "small": lambda: networks.transformer(2, 8, 16, 64, 8).graph,
        "wide": lambda: networks.transformer(2, 8, 128, 1024, 16, 8192).graph,
    },
    "moe": {
        "small": lambda: networks.mixture(16, 64, 64, 8, 128).graph,
        "wide": lambda: networks.mixture(16, 256, 512, 8, 2048, 2).graph,
    },
    "resnet": {"small": lambda: networks.residual(64, 32).graph, "wide": lambda: networks.residual(64, 256, 32).graph},
    "recommendation": {
        "small": lambda: networks.recommendation(256, 4096).graph,
        "large": lambda: networks.recommendation(16384, 1 << 20, 8, 64, 1024).graph,
    },
}
MESHES = {"8": (8,), "2x4": (2, 4), "4x8": (4, 8)}
SHARES = (0.7, 0.3)
"""Limits of memory: so much of what lies between the least that does and what the fastest plan needs."""
MODES = ("dynamic_programming", "recursive_programming", "sharding_propagation")


def tasks(suites: list[str], meshes: list[str]) -> Iterator[tuple[str, str, OperatorGraph]]:
    """All networks on all meshes."""
    for suite in suites:
        for name, make in SUITES[suite].items():
            for mesh in meshes:
                yield f"{suite} {name}", mesh, make()


def limits(
    graph: OperatorGraph, mesh: DeviceMatrix, model: Roofline, options: SearchOptions, free: int
) -> Iterator[int | None]:
    """No limit, and those of `SHARES` between the least memory that does and what the fastest plan needs."""
    yield None
    least = smallest(ProblemBuilder(graph, mesh, model, options).build()).peak_bytes
    if least < 0.98 * free:
        yield from (int(least + share * (free - least)) for share in SHARES)


def row(found: SearchResult, best: SearchResult, limit: int | None, graph: OperatorGraph) -> str:
    """Gap and time of one search."""
    gap = 100 * (found.cost_seconds / best.cost_seconds - 1)
    over = " too large" if limit is not None and memory_of(graph, found.plan, XLA_CPU).peak_bytes > limit else ""
    exact = " exact" if found.optimal else f" ({found.method})" if found.method == "ilp" else ""
    return f"{gap:8.2f} %{exact}{over} {found.seconds:6.2f} s"


def main() -> None:
    """Print one line per network, mesh and memory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", choices=SUITES, action="append", help="only these networks")
    parser.add_argument("--mesh", choices=MESHES, action="append", help="only these meshes")
    parser.add_argument("--hardware", default="h200", help="profile that prices the plans")
    parser.add_argument("--no-limits", action="store_true", help="only with as much memory as plans like")
    parser.add_argument("--only-limits", action="store_true", help="only with less memory")
    parser.add_argument("--table", action="store_true", help="rows of a table in Markdown")
    parser.add_argument("--seconds", type=float, default=20.0, help="time for the integer program")
    parser.add_argument("--free", action="store_true", help="also plans that leave devices idle")
    arguments = parser.parse_args()
    profile, busy = load_profile(arguments.hardware), not arguments.free
    if arguments.table:
        print(
            "| network | mesh | memory of a device | best found | left open by its bound "
            "| `dynamic` | `recursive` | `propagation` |"
        )
        print("|---|---|---|---|---|---|---|---|")
    for name, mesh_name, graph in tasks(arguments.suite or [*SUITES], arguments.mesh or [*MESHES]):
        mesh = DeviceMatrix(MESHES[mesh_name])
        model = Roofline(profile, link_costs(profile, mesh))
        options = SearchOptions(fully_use_devices=busy)
        free = memory_of(graph, search(graph, mesh, model, "ilp", options).plan, XLA_CPU).peak_bytes
        for limit in [None] if arguments.no_limits else limits(graph, mesh, model, options, free):
            if limit is not None or not arguments.only_limits:
                within = replace(options, memory_bytes=limit)
                show = tabulate if arguments.table else compare
                show(f"{name:22} {mesh_name:4}", graph, mesh, model, within, arguments.seconds)


def tabulate(
    name: str, graph: OperatorGraph, mesh: DeviceMatrix, model: Roofline, options: SearchOptions, seconds: float
) -> None:
    """Print one row of a table: the best plan that anybody found, what its bound leaves open, and how far others are from it."""
    proof = ilp(graph, mesh, model, options, Budget.of(seconds))
    costs = [search(graph, mesh, model, mode, options).cost_seconds for mode in MODES]
    best = min(proof.cost_seconds, *costs)
    bound = "unproven" if proof.bound_seconds is None else f"{100 * (best / proof.bound_seconds - 1):.1f} %"
    memory = "free" if options.memory_bytes is None else f"{options.memory_bytes / 1e6:.2f} MB"
    cells = [" | ".join(name.rsplit(maxsplit=1)), memory, f"{best * 1e6:,.1f} µs", bound]
    print("|", " | ".join([*cells, *(f"{100 * (cost / best - 1):.2f}" for cost in costs)]), "|", flush=True)


def compare(
    name: str, graph: OperatorGraph, mesh: DeviceMatrix, model: Roofline, options: SearchOptions, seconds: float
) -> None:
    """Print one line: the optimum, and beside it every search."""
    best = ilp(graph, mesh, model, options, Budget.of(seconds))
    bound = (
        "unproven" if best.bound_seconds is None else f"{100 * (best.cost_seconds / best.bound_seconds - 1):.2f} % open"
    )
    limit = options.memory_bytes
    memory = "free" if limit is None else f"{limit / 1e6:.1f} MB"
    sure = "optimal" if best.optimal else bound
    print(f"{name} {memory:>10} {best.cost_seconds:.3e} s {sure:11} {best.seconds:6.1f} s", end="", flush=True)
    for mode in MODES:
        print("  |", row(search(graph, mesh, model, mode, options), best, limit, graph), end="", flush=True)
    print(flush=True)


if __name__ == "__main__":
    main()
