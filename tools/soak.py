"""Long trials with a seed: kills, changed files, lost networks, repeated runs; every scenario of `tools/soaks` by one runner.

Each case is drawn from the scenario, the seed and its own number alone, so one that fails can be run again:
``soak.py files --first 17 --cases 1``. Several scenarios have a process each.

Run: python tools/soak.py [SCENARIO ...] [--seed 0] [--first 0] [--cases N] [--size N] [--only TEXT] [--load N] [--json FILE]
     [--list]

Exit codes: 0; 1 where more cases failed than the scenario tolerates; 2 where a scenario cannot be run on this computer (machines
of a network need Linux and root).
"""

from __future__ import annotations

import argparse
import importlib
import json
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from soaks.scenario import Faults, NotCountedError, Row, Scenario, UnavailableError, busy_cores

SCENARIOS = {
    "kills": "checkpoints", "files": "checkpoints", "fuzz": "fuzz", "jobs": "jobs", "servers": "servers", "points": "servers",
    "removals": "removals", "network": "network", "steps": "steps", "collectives": "collectives", "control": "collectives",
    "memory": "memory",
}  # fmt: skip
"""Modules of scenarios; each sets the environment that its programs need before JAX is imported."""
_SHOWN_SECONDS = 1.0
"""Cases that take longer have a line each."""


def load(name: str) -> Scenario:
    """The scenario of this name."""
    return getattr(importlib.import_module(f"soaks.{SCENARIOS[name]}"), f"{name.upper()}_SCENARIO")


def run(scenario: Scenario, options: argparse.Namespace) -> dict[str, Any]:
    """Run cases; figures, which are also written after each case. What fails is reported at once."""
    rows: dict[str, Row] = {}
    faults, memory = Faults(Counter()), {}
    began, unavailable = time.monotonic(), ""
    cases = scenario.cases if options.cases is None else options.cases
    busy = busy_cores(scenario.load if options.load is None else options.load)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder, warnings.catch_warnings(), busy:
        warnings.simplefilter("ignore")
        for number in range(options.first, options.first + cases):
            case = scenario.case(options.seed, number)
            if options.only not in str(case):
                continue
            row = rows.setdefault(scenario.kind(case) or scenario.name, Row())
            trial = scenario.trial(options.seed, number, Path(folder), options.size, faults=faults, memory=memory)
            start = time.monotonic()
            try:
                outcome = scenario.body(trial, case)
            except UnavailableError as error:
                unavailable = str(error)
                break
            except NotCountedError as error:
                outcome = f"not counted: {error}"
            except Exception as error:  # a case that fails in any way is a finding
                outcome = f"FAILED: {type(error).__name__}: {str(error)[:6000]}"
                row.failed.append(number)
            seconds = time.monotonic() - start
            row.tried += 1
            row.outcomes[outcome.partition(":")[0]] += 1
            if seconds > _SHOWN_SECONDS or number in row.failed:
                text = f" ({case})" if str(case) else ""
                print(f"{scenario.name} {number}{text}: {outcome}, {seconds:.0f} s", file=sys.stderr, flush=True)
            figures = {
                "unavailable": unavailable,
                "failed": sum(len(row.failed) for row in rows.values()),
                "counted": sum(row.tried - row.outcomes["not counted"] for row in rows.values()),
                "kinds": {kind: rows[kind].figures() for kind in scenario.kinds or rows if kind in rows},
                "faults": dict(sorted(faults.counts.items())),
                "seconds": round(time.monotonic() - began),
            }
            write(options, {scenario.name: figures})
    return figures if rows and not unavailable else {"unavailable": unavailable, "failed": 0, "counted": 0, "kinds": {}}


def run_each(names: Sequence[str], words: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Run scenarios in processes of their own; figures by scenario."""
    figures = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            file = Path(folder, f"{name}.json")
            command = [sys.executable, __file__, name, *words, "--json", str(file)]
            subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
            lost = {"unavailable": "", "failed": 1, "counted": 1, "kinds": {"it did not begin": Row().figures()}}
            figures |= json.loads(file.read_text("utf-8"))["scenarios"] if file.exists() else {name: lost}
    return figures


def write(options: argparse.Namespace, figures: dict[str, dict[str, Any]]) -> None:
    """Write figures to the file of ``--json``."""
    if options.json is not None:
        text = json.dumps({"seed": options.seed, "scenarios": figures}, indent=1)
        options.json.write_text(text + "\n", encoding="utf-8")


def table(figures: dict[str, dict[str, Any]]) -> str:
    """The figures as a table, and what was done to processes."""
    lines = ["| scenario | what is tried | tried | how it went | failed |", "|---|---|---|---|---|"]
    for name, entry in figures.items():
        if entry["unavailable"]:
            lines.append(f"| {name} | cannot be run here: {entry['unavailable']} | 0 | - | - |")
        for kind, row in entry["kinds"].items():
            went = ", ".join(f"{count} {outcome}" for outcome, count in row["outcomes"].items() if outcome != "FAILED")
            failed = ", ".join(map(str, row["failed"])) or "-"
            lines.append(f"| {name} | {kind if kind != name else ''} | {row['tried']} | {went or '-'} | {failed} |")
    for name, entry in figures.items():
        if faults := entry.get("faults"):
            lines.append(f"{name}: {', '.join(f'{count} {fault}' for fault, count in faults.items())}")
    return "\n".join(lines)


def verdict(figures: dict[str, dict[str, Any]]) -> int:
    """The exit code."""
    if any(
        entry["failed"] > load(name).tolerated * entry["counted"] for name, entry in figures.items() if entry["failed"]
    ):
        return 1
    return 2 if any(entry["unavailable"] for entry in figures.values()) else 0


def listing(names: Sequence[str]) -> str:
    """What each scenario tries, and what of it can be chosen."""
    lines = []
    for name in names:
        scenario = load(name)
        size = f", of {scenario.size} {scenario.unit} each" if scenario.size else ""
        what = (scenario.body.__doc__ or "").strip().splitlines()[0]
        lines += [f"{name} ({scenario.cases} cases{size}): {what}", *(f"    {kind}" for kind in scenario.kinds)]
    return "\n".join(lines)


def main(words: list[str] | None = None) -> int:
    """Run scenarios and print their figures; gives the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="SCENARIO", help=f"of {', '.join(SCENARIOS)} (all)")
    parser.add_argument("--seed", type=int, default=0, help="another seed draws other cases (0)")
    parser.add_argument("--first", type=int, default=0, help="number of the first case of each scenario (0)")
    parser.add_argument("--cases", type=int, help="how many of each are drawn (the scenario's)")
    parser.add_argument("--size", type=int, help="runs, trainings or faults of a case (the scenario's)")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases with this text in their line")
    parser.add_argument(
        "--load", type=int, help="processes that keep cores busy meanwhile; -1: one on each (the scenario's)"
    )
    parser.add_argument("--json", type=Path, help="also write the figures to this file, after each case")
    parser.add_argument("--list", action="store_true", help="only say what there is")
    options = parser.parse_args(words)
    names = options.names or list(SCENARIOS)
    if unknown := sorted(set(names) - set(SCENARIOS)):
        parser.error(f"there is no scenario {', '.join(unknown)}, but {', '.join(SCENARIOS)}")
    if options.list:
        print(listing(names))
        return 0
    # A tool that is stopped removes what it has made, too.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    if len(names) == 1:
        figures = {names[0]: run(load(names[0]), options)}
    else:
        flags = vars(options) | {"names": None, "json": None, "list": None}
        figures = run_each(
            names, [word for flag, value in flags.items() if value is not None for word in (f"--{flag}", str(value))]
        )
    write(options, figures)
    print(table(figures))
    return verdict(figures)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--process"]:  # a process of a case: its scenario's module, and words for it
        sys.exit(importlib.import_module(f"soaks.{sys.argv[2]}").process(sys.argv[3:]))
    sys.exit(main())
