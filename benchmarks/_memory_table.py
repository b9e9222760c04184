"""What `plan_memory.py` and `facade_memory.py` have in common: their arguments, and how they show what came of it."""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterable, Mapping


def arguments(description: str | None, networks: Iterable[str]) -> argparse.Namespace:
    """`only`: which networks; `json`: a file for the figures, or None."""
    names = [*networks]
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=names, choices=names, help="networks")
    parser.add_argument("--json", help="also write the figures to this file")
    return parser.parse_args()


def show(figures: Mapping[str, Mapping[str, float]], path: str | None) -> None:
    """Print predicted / compiled, a row per network, with how many are good; and write them to a file, if there is one."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Predicted / compiled memory of a device")
    for column in ("network", *next(iter(figures.values()))):
        table.add_column(column, justify="left" if column == "network" else "right")
    for name, row in figures.items():
        table.add_row(name, *(f"{each:.2f}" for each in row.values()))
    console = Console(width=140)
    console.print(table)
    errors = [abs(each - 1) for row in figures.values() for each in row.values()]
    within = sum(error <= 0.1 for error in errors)
    console.print(f"{within} of {len(errors)} within 10 %, half of them within {statistics.median(errors):.2%}")
    if path:
        with open(path, "w") as file:
            json.dump(figures, file, indent=2)
