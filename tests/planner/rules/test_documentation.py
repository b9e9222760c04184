"""The manual says what the code does."""

import doctest
from pathlib import Path

from sporax.planner.rules.documentation import with_table

PAGE = Path(__file__).parents[3] / "docs" / "rules.md"


def test_table_of_primitives():
    """Run ``python -m sporax.planner.rules.documentation docs/rules.md`` when this fails."""
    page = PAGE.read_text()
    assert with_table(page) == page


def test_examples_of_the_page_run():
    results = doctest.testfile(str(PAGE), module_relative=False)
    assert results.attempted > 5
    assert results.failed == 0
