"""What the generators of documentation share: writing a page, or checking that it is in step with the code."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests" / "mindspore" / "golden"
sys.path[:0] = [str(GOLDEN)]

import absent_names  # noqa: E402, F401  (found through the line above, as the next; for the generators)
import api_facts  # noqa: E402, F401
import deviations  # noqa: E402, F401


def table(header: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A Markdown table."""
    titles = list(header)
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def run(description: str, path: Path, make: Callable[[], str]) -> int:
    """Write the page, or with ``--check`` say whether it is what would be written. Returns the exit status."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when the page is out of date")
    text = make()
    if not parser.parse_args().check:
        path.write_text(text)
        print(f"wrote {path.relative_to(ROOT)}")
        return 0
    if path.exists() and path.read_text() == text:
        return 0
    print(f"{path.relative_to(ROOT)} is out of date: run python tools/{Path(sys.argv[0]).name}", file=sys.stderr)
    return 1
