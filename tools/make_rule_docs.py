"""Write the table of primitives in docs/rules.md from the table that the planner uses.

python tools/make_rule_docs.py            # write it
python tools/make_rule_docs.py --check    # fail when it is out of date
"""

from __future__ import annotations

from collections import defaultdict

from _generated import ROOT, run, table

from sporax.planner.rules.rule_table import TABLE, Behaviour, Entry

PAGE = ROOT / "docs" / "rules.md"
BEGIN, END = "<!-- table of primitives: begin -->", "<!-- table of primitives: end -->"


def table_text() -> str:
    """The table as Markdown: one row per group of primitives with equal rules."""
    groups: dict[tuple[int, str, str], list[str]] = defaultdict(list)
    for name, entry in TABLE.items():
        groups[int(entry.family.split()[0]), entry.family, _treatment(entry)].append(name)
    # Grouped by number of the family first: as text, 10 would come before 2.
    rows = [
        (family, ", ".join(f"`{name}`" for name in sorted(names)), treatment)
        for (_, family, treatment), names in sorted(groups.items(), key=lambda item: (item[0][0], min(item[1])))
    ]
    # The order of the rows does not depend on that of the table, so that insertions change few lines.
    return "\n".join([BEGIN, table(("family", "primitives", "what becomes of them"), rows), END])


def page() -> str:
    """The page with a new table."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    return before + table_text() + rest.partition(END)[2]


def _treatment(entry: Entry) -> str:
    if entry.behaviour is Behaviour.PIN:
        return "pin: an identity that gives the placement of a tensor"
    if entry.rule is None:
        return f"{entry.behaviour.value}: {entry.reason}"
    return (entry.rule.__doc__ or "").splitlines()[0].replace("|", "\\|")


if __name__ == "__main__":
    raise SystemExit(run(__doc__.splitlines()[0], PAGE, page))
