"""Solve a cost graph from a file of the IOPDDL contest; one JSON object out.

Run: python benchmarks/iopddl/solve_contest.py GRAPH.json.gz --time 240 --threads 2 --json --solution choices.json

Exit status: 0 a solution that fits was found; 1 none was found (``infeasible`` says whether that is ``proven`` or
``unknown``); 2 the arguments or the file are wrong. With ``--check FILE`` nothing is searched: choices from a file are measured,
and the status is 0 where they fit and 1 where they do not.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from pathlib import Path
from typing import Any

from contest_graphs import MAX_BYTES, read_choices, read_graph
from team import solve

from sporax.base.errors import SporaxError, SporaxValueError
from sporax.base.units import parse_bytes
from sporax.planner.solver.graph.cost_graph import CostGraph
from sporax.planner.solver.portfolio.solution import Solution, evaluate

FOUND, NOT_FOUND, WRONG_INPUT = 0, 1, 2
_SECONDS = 60.0
_MOST_THREADS = 256
"""Processes: each one holds the whole graph, so more than this would exhaust the memory of any machine."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments on `parser`."""
    parser.description = "Solve a cost graph (IOPDDL format): choose one strategy per node, least cost, within memory."
    parser.add_argument("graph", metavar="GRAPH", help="JSON file, gzipped or not")
    parser.add_argument("--time", type=_positive, metavar="SECONDS", help="wall-clock budget (60)")
    parser.add_argument("--threads", type=_count, metavar="N", help="worker processes (1)")
    parser.add_argument("--seed", type=int, help="seed of the search (0)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    parser.add_argument("--solution", metavar="FILE", help="write the choices, a JSON list with one number per node")
    parser.add_argument("--check", metavar="FILE", help="search nothing: measure the choices in this file")
    parser.add_argument(
        "--max-size",
        type=_bytes,
        default=MAX_BYTES,
        metavar="SIZE",
        help="largest file, decompressed, as in 4GB (2 GiB)",
    )
    parser.add_argument("--verbose", action="store_true", help="report improvements on standard error")
    parser.epilog = "Exit status: 0 solution found (or checked: it fits); 1 none; 2 wrong arguments or file."


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns its exit status."""
    try:
        _check_used(args)
        _check_writable(args.solution)
        graph = read_graph(args.graph, args.max_size)
        if args.check is not None:
            record = _checked(graph, args.check, args.max_size)
            code = FOUND if record["fits"] else NOT_FOUND
        else:
            solution = solve(
                graph,
                seconds=_SECONDS if args.time is None else args.time,
                threads=args.threads or 1,
                seed=args.seed or 0,
                progress=_report if args.verbose else None,
            )
            if args.solution and solution.choices is not None:
                _write_choices(args.solution, solution.choices.tolist())
            record, code = as_record(solution), NOT_FOUND if solution.choices is None else FOUND
    except SporaxError as error:
        print(f"solve_contest: {error}", file=sys.stderr)
        return WRONG_INPUT
    if args.json:
        print(json.dumps(record))
    else:
        for name, value in record.items():
            print(f"{name:12} {'-' if value is None else value}")
    return code


def _check_used(args: argparse.Namespace) -> None:
    """Flags of the search have no effect where choices are only measured."""
    if args.check is None:
        return
    for name in ("time", "threads", "seed", "solution", "verbose"):
        value = getattr(args, name)
        if value is not None and value is not False:
            raise SporaxValueError(f"For 'solve_contest', --{name} has no effect with --check, which searches nothing.")


def _checked(graph: CostGraph, path: str, max_bytes: int) -> dict[str, Any]:
    """What choices from a file cost, and whether they are allowed and fit; the cost of what is not allowed is null."""
    evaluation = evaluate(graph, read_choices(path, max_bytes))
    cost = _number(evaluation.cost) if math.isfinite(evaluation.cost) else None
    return {"cost": cost, "peak": evaluation.peak, "limit": graph.limit, "fits": evaluation.feasible}


def as_record(solution: Solution) -> dict[str, Any]:
    """The JSON object for a solution. Whole costs are integers; what is not known is null."""
    record: dict[str, Any] = {
        "cost": _number(solution.cost),
        "bound": _number(solution.bound),
        "optimal": solution.optimal,
        "peak": solution.peak,
        "limit": solution.limit,
        "seconds": round(solution.seconds, 3),
    }
    if solution.choices is None:
        record["infeasible"] = "proven" if solution.infeasible else "unknown"
    return record


def _number(value: float | None) -> int | float | None:
    return int(value) if value is not None and value == int(value) else value


def _check_writable(path: str | None) -> None:
    """Before hours of search, not after them."""
    if path is not None and (Path(path).is_dir() or not os.access(Path(path).absolute().parent, os.W_OK)):
        raise SporaxValueError(
            f"For '--solution', the file must be in a directory that can be written, but got '{path}'."
        )


def _write_choices(path: str, choices: list[int]) -> None:
    try:
        Path(path).write_text(json.dumps(choices) + "\n", encoding="utf-8")
    except OSError as error:
        raise SporaxError(f"For '--solution', the file must be writable, but got: {error}.") from error


def _report(seconds: float, cost: float, bound: float) -> None:
    print(f"{seconds:8.1f} s  cost {cost:.10g}  bound {bound:.10g}", file=sys.stderr, flush=True)


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a positive number of seconds, but got '{text}'")
    return value


def _bytes(text: str) -> int:
    try:
        return int(parse_bytes(text, "For 'solve_contest', --max-size"))
    except SporaxError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= _MOST_THREADS:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 to {_MOST_THREADS}, but got '{text}'")
    return int(text)


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line `arguments` (default: this process's); returns its exit status."""
    parser = argparse.ArgumentParser(prog="solve_contest")
    add_arguments(parser)
    return run(parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
