"""Rows that differ in one number of their names are one."""

import pytest

from sporax.report.view.folding import folded

TIMES = "\N{NO-BREAK SPACE}×)"


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        (["l.0.q", "l.1.q", "l.2.q", "l.5.q"], [f"l.0-2,5.q (4{TIMES}"]),
        (["l.0.q", "l.0.k", "l.1.q", "l.1.k"], [f"l.0-1.q (2{TIMES}", f"l.0-1.k (2{TIMES}"]),
        (["l.0.n1", "l.0.n2", "l.1.n1", "l.1.n2", "l.2.n1"], [f"l.0-2.n1 (3{TIMES}", f"l.0-1.n2 (2{TIMES}"]),
        (["add", "add"], [f"add (2{TIMES}"]),
        (["l.0.add", "l.0.add", "l.1.add"], [f"l.0-1.add (3{TIMES}"]),
        (["head", "w0"], ["head", "w0"]),
        ([], []),
    ],
    ids=["ranges", "order", "layers-before-norms", "no-number", "twice-in-one-layer", "alone", "nothing"],
)
def test_names_become_one(names, wanted):
    assert [name for name, _ in folded((name, "same") for name in names)] == wanted


def test_rows_that_say_something_else_stay():
    rows = [("l.0.q", "a"), ("l.1.q", "b"), ("l.2.q", "a")]
    assert folded(rows) == ((f"l.0,2.q (2{TIMES}", "a"), ("l.1.q", "b"))
