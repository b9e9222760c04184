"""The part of `docs/coverage.md` about names that public programs use, from what `tools/count_names.py` counted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import Any

from _generated import table
from count_names import OUTPUT, lacks

#: Packages of the table; a name belongs to the longest that it starts with.
PACKAGES = ("mindspore", *(
    f"mindspore.{name}"
    for name in (
        "nn", "nn.probability", "ops", "ops.operations", "ops.composite", "ops.functional", "ops.function", "mint", "numpy",
        "scipy", "common", "common.initializer", "amp", "train", "train.callback", "train.serialization", "context", "dataset",
        "dataset.vision", "dataset.transforms", "dataset.text", "mindrecord", "communication", "parallel", "boost",
        "experimental", "profiler", "log",
    )
))  # fmt: skip
INTERNAL, KEYWORDS = "internal names (`_…`)", "keyword arguments"
#: Rows of the tables of names that are not offered.
NUM_LISTED, NUM_LISTED_OLD = 60, 30


@cache
def recorded() -> dict[str, Any]:
    """What was counted."""
    return dict(json.loads(OUTPUT.read_text()))


def sections() -> list[str]:
    """Paragraphs and tables."""
    data = recorded()
    absent = set(data["wheel_lacks"])
    names = list(data["names"])
    lacking = set(filter(lacks, names))
    needs = [(row[0], [name for name in row[1:] if lacks(name)]) for row in data["needs"]]
    programs = data["programs"]
    whole = programs - sum(count for count, needed in needs if needed)
    possible = programs - sum(count for count, needed in needs if not absent.isdisjoint(needed))
    by_wheel = programs - sum(count for count, needed in needs if not absent.issuperset(needed))
    rows = [
        ("programs", programs),
        ("programs that use offered names only", f"{whole} ({_percent(whole, programs)})"),
        (
            "programs that lack at most names that the 2.10 wheel lacks as well",
            f"{by_wheel} ({_percent(by_wheel, programs)})",
        ),
        (
            "programs that lack nothing that the 2.10 wheel lacks as well",
            f"{possible} ({_percent(possible, programs)})",
        ),
    ]
    repositories = ", ".join(f"{row['name']} ({row['commit'][:7]}, {row['programs']})" for row in data["repositories"])
    return [
        "## Names used by public code",
        f"What {programs} programs (Python files, notebooks, tutorials) of {len(data['repositories'])} public repositories take "
        "from `mindspore`, read from their\nsources by `tools/count_names.py`; a name counts once per program, and copies of a "
        f"program once. {data['unreadable']} files are no Python 3. Names that one\nprogram alone uses are in the counts of "
        "programs, not in the counts of names.",
        table(("", "Number"), rows),
        table(
            ("Package", "Used", "Offered", "Share", "In the 2.10 wheel", "Of these, offered", "Share", "Uses offered",
             "Programs that use a name not offered"),
            _package_rows(data["names"], lacking, absent, needs),
        ),
        f"The names that most programs use and Sporax does not offer, by the first part that is missing: {NUM_LISTED} that "
        f"the wheel has, then\n{NUM_LISTED_OLD} that it has no more.",
        *_most_requested(needs, absent),
        f"Repositories (commit, programs): {repositories}.",
    ]  # fmt: skip


def _package_rows(
    counts: dict[str, int], lacking: set[str], absent: set[str], needs: list[tuple[int, list[str]]]
) -> list[tuple[object, ...]]:
    members: dict[str, list[str]] = {}
    for name in counts:
        members.setdefault(package_of(name), []).append(name)
    short: Counter[str] = Counter()
    for count, names in needs:
        short.update(dict.fromkeys(set(map(package_of, names)) | ({"all"} if names else set()), count))
    rows = []
    for package, names in (*((package, members[package]) for package in _order(members)), ("all", list(counts))):
        there = [name for name in names if name not in lacking]
        current = [name for name in names if name not in absent]
        both = [name for name in there if name not in absent]
        title = package if package in (INTERNAL, KEYWORDS, "all") else f"`{package}`"
        rows.append(
            (title, len(names), len(there), _percent(len(there), len(names)), len(current), len(both),
             _percent(len(both), len(current)), _percent(_uses(there, counts), _uses(names, counts), 1), short[package])
        )  # fmt: skip
    return rows


def package_of(name: str) -> str:
    """The row of the table that a name belongs to."""
    path, _, keyword = name.partition("(")
    if keyword:
        return KEYWORDS
    if any(part.startswith("_") for part in path.split(".")):
        return INTERNAL
    return max((package for package in PACKAGES if f"{path}.".startswith(f"{package}.")), key=len)


def _order(packages: Iterable[str]) -> list[str]:
    order = {package: number for number, package in enumerate((*PACKAGES, INTERNAL, KEYWORDS))}
    return sorted(packages, key=order.__getitem__)


def _most_requested(needs: list[tuple[int, list[str]]], absent: set[str]) -> list[str]:
    """Two tables: missing names that the wheel has, and that it has not."""
    counts: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}
    for count, names in needs:
        for is_current, counter in counts.items():
            counter.update(
                dict.fromkeys({first_missing(name) for name in names if (name not in absent) == is_current}, count)
            )
    tables = []
    for is_current, size in ((True, NUM_LISTED), (False, NUM_LISTED_OLD)):
        title = "Not offered, in the 2.10 wheel" if is_current else "Not offered, and not in the 2.10 wheel"
        order = sorted(counts[is_current].items(), key=lambda row: (-row[1], row[0]))
        tables.append(table((title, "Programs"), [(f"`{name}`", count) for name, count in order[:size]]))
    return tables


@cache
def first_missing(name: str) -> str:
    """The shortest beginning of a dotted name that is not offered; a keyword argument is missing itself."""
    if name.endswith(")"):
        return name
    parts = name.split(".")
    beginnings = [".".join(parts[:length]) for length in range(1, len(parts) + 1)]
    return next(filter(lacks, beginnings), name)


def _uses(names: Iterable[str], counts: dict[str, int]) -> int:
    return sum(counts[name] for name in names)


def _percent(part: int, whole: int, digits: int = 0) -> str:
    return f"{100 * part / whole:.{digits}f} %" if whole else "-"
