"""The manual says what the code does."""

import doctest
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "rules.md"


def test_examples_of_the_page_run():
    results = doctest.testfile(str(PAGE), module_relative=False)
    assert results.attempted > 5
    assert results.failed == 0
