"""Text tables and quantities for people."""

import pytest

from sporax.base.text_tables import Section, cost_text, limit_text, page_width, size_text, table_lines, time_text
from sporax.base.units import parse_bytes


@pytest.mark.parametrize(("seconds", "text"), [
    (2.5, "2.5 s"),
    (1234.0, "1234 s"),
    (0.00125, "1.25 ms"),
    (3e-6, "3 µs"),
    (1e-13, "0 µs"),
])  # fmt: skip
def test_times_have_three_digits(seconds, text):
    assert time_text(seconds) == text


@pytest.mark.parametrize(
    ("num_bytes", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (1.5e6, "1.5 MB"), (2e12, "2 TB")]
)
def test_sizes_are_in_powers_of_a_thousand(num_bytes, text):
    assert size_text(num_bytes) == text


@pytest.mark.parametrize("num_bytes", [1, 999, 1000, 1001, 999_999, 5_711_004, 274_877_906_944])
def test_a_limit_of_as_much_as_the_text_says_is_enough(num_bytes):
    text = limit_text(num_bytes)
    assert num_bytes <= parse_bytes(text, "the limit") <= num_bytes * 1.001
    assert not text.startswith("0")


def test_other_costs_than_seconds_keep_their_unit():
    assert cost_text(0.5) == "500 ms"
    assert cost_text(12345.6, "weighted bytes") == "1.235e+04 weighted bytes"


def test_columns_are_as_wide_as_their_cells_and_numbers_stand_right():
    section = Section("", ("name", "size"), (("a", "10"), ("long", "2")), right=(1,))
    assert list(table_lines(section)) == ["name  size", "────  ────", "a       10", "long     2"]


def test_no_line_is_longer_than_the_page_and_layouts_stay_in_one_piece():
    section = Section("", ("name", "layouts"), (("net.layers.3.attention.query", "[a, b] [-, c] [a·b, -]"),))
    lines = list(table_lines(section, width=30))
    assert max(map(len, lines)) <= 30
    assert "query" in "".join(lines)
    assert any("[a·b, -]" in line for line in lines)


def test_the_page_is_as_wide_as_the_environment_says():
    assert page_width({"COLUMNS": "77"}) == 77
    assert page_width({"COLUMNS": "5"}) == 40  # narrower tables cannot be read
