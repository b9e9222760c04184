"""Print the folders of tests whose packages, or packages on floors below them, changed since the last release or merge base.

The floors are those of the first contract of `pyproject.toml`. What belongs to no package (tests of pages or several machines)
stands above all of them. A file of tests concerns itself alone, other files beside tests the folder that they are in. Where
nothing can be compared (no tag, no other branch, no history), all folders are printed.

Run: python tools/changed_tests.py [--since COMMIT]
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]


def floors() -> list[list[str]]:
    """Packages by floor, the highest first."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["name"].startswith("1. Floors"))
    return [[name.strip().removeprefix("sporax.") for name in layer.split("|")] for layer in layers]


def folders_of(changed: Iterable[str]) -> list[str]:
    """The folders and files of tests that changed files concern.

    Args:
        changed: paths of files, from the root of the repository.
    """
    by_floor = floors()
    packages = {path.split("/")[2] for path in changed if path.startswith("src/sporax/") and path.count("/") > 2}
    known = {name for floor in by_floor for name in floor}
    # Files beside the packages (settings, the fixtures of all tests) concern everything; budgets and lists of slow tests nothing.
    if any(path in ("pyproject.toml", "Makefile") or re.fullmatch(r"tests/(?!test_)\w+\.py", path) for path in changed):
        packages |= set(by_floor[-1])
    lowest = max((number for number, floor in enumerate(by_floor) if packages & set(floor)), default=-1)
    names = {name for floor in by_floor[: max(lowest, 0)] for name in floor} | (packages & known)
    if lowest >= 0:
        names |= {path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and path.name not in known}
    folders = {f"tests/{name}" for name in names}
    own = {Path(path) for path in changed if path.startswith("tests/") and path.count("/") > 1}
    own = {path if path.name.startswith("test_") and path.suffix == ".py" else path.parent for path in own}
    folders |= {str(path) for path in own if not folders & {str(path), *map(str, path.parents)}}
    return sorted(name for name in folders if (ROOT / name).is_file() or any((ROOT / name).rglob("test_*.py")))


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def released() -> str:
    """The commit that set the version: the last release, also in clones without tags; empty where its history is not there.

    The oldest commit that a clone has looks as if it had made every file, so it says nothing.
    """
    commit = _git("log", "-1", "--format=%H", "HEAD", "--", "src/sporax/_version.py")
    return commit if commit and _git("rev-parse", "--verify", "--quiet", f"{commit}^") else ""


def base() -> str:
    """The commit to compare with: the last release, or where this branch left the main one; empty where neither is known."""
    head = _git("rev-parse", "HEAD")
    candidates = [
        _git("describe", "--tags", "--abbrev=0", "HEAD^"),
        released(),
        *(_git("merge-base", "HEAD", name) for name in ("origin/main", "main")),
    ]
    return next((commit for commit in candidates if commit and commit != head), "")


def main() -> None:
    """Print the folders, separated by spaces; `tests` stands for all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--since", help="the commit to compare with")
    commit = parser.parse_args().since or base()
    if not commit:
        print("No release and no other branch to compare with: all folders.", file=sys.stderr)
        print("tests")
        return
    changed = [
        *_git("diff", "--name-only", commit).split(),
        *_git("ls-files", "--others", "--exclude-standard").split(),
    ]
    print(*folders_of(changed) or ["tests/test_house.py"])


if __name__ == "__main__":
    main()
