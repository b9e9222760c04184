"""What is printed of something planned without a request for it: short, and as wide as the page."""

import io
import re
from dataclasses import replace

import jax.numpy as jnp
import pytest
from rich.console import Console

import sporax
from sporax.base.text_tables import page_width, shortened
from sporax.mindspore.parallel import show_plan
from sporax.planner.pipeline.generators import generate
from sporax.planner.pipeline.simulate import simulate, uniform_costs
from sporax.report.pipeline_summary import PipelineSummary
from sporax.report.render.text import plain_text


@pytest.fixture(scope="module")
def planned():
    def deep(x, *weights):
        for weight in weights:
            x = jnp.tanh(x @ weight)
        return x

    return sporax.plan(deep, *[jnp.ones((16, 16))] * 30, devices=8, hardware="h100", mode="recursive")


def test_repr_has_one_line_per_fact_and_no_graph(planned):
    text = repr(planned)
    assert text.startswith("PlannedFunction:\n  devices: 8, axes 2 × 2 × 2\n  graph: ")
    assert "recursive, predicted" in text
    assert len(text) < 600
    assert all(len(line) <= 120 for line in text.splitlines())


def test_its_parts_are_short_as_well(planned):
    assert all(len(repr(part)) < 300 for part in (planned.plan, planned.graph, planned.search))


def test_notebooks_get_a_table_of_the_same_facts(planned):
    page = planned._repr_html_()
    assert page.startswith("<table><caption>PlannedFunction</caption><tr><th>devices</th><td>8, axes")
    assert page.count("<tr>") == len(repr(planned).splitlines()) - 1


@pytest.mark.parametrize("width", [80, 100, 120])
def test_no_line_is_wider_than_the_page(planned, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    assert all(len(line) <= width for line in str(planned.summary()).splitlines())
    assert all(len(line) <= width for line in plain_text(planned.summary(), width).splitlines())


@pytest.mark.parametrize("width", [80, 100, 120])
def test_terminals_get_the_same_lines_in_colours_with_paths_shortened_on_the_left(planned, width):
    whole = planned.summary()
    deep = ".".join(f"a_long_name_of_block_{number}" for number in range(9)) + ".the_last_layer"
    rows = tuple(replace(row, path=f"{deep}_{number}") for number, row in enumerate(whole.operators))
    summary = replace(whole, operators=(*rows, *(replace(row, path=f"other{row.path}") for row in rows)))
    shown = io.StringIO()
    show_plan(summary, Console(file=shown, force_terminal=True, width=width, color_system="standard"))
    lines = re.sub(r"\x1b\[[\d;]*m", "", shown.getvalue()).splitlines()
    assert lines == plain_text(summary, width).splitlines()
    assert "\x1b[1;36m" in shown.getvalue()
    assert all(len(line) <= width for line in lines)
    assert not any("…" in line[1:] for line in lines)
    assert any(line.startswith("…") for line in lines)


def test_the_head_of_a_pipeline_fits_the_page(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    schedule = generate("1f1b", 2, 4, 1)
    outcome = simulate(schedule, uniform_costs(schedule))
    text = str(
        PipelineSummary(outcome, 4, (), "the stages were chosen by the planner, since that is the quickest " * 3)
    )
    assert all(len(line) <= 80 for line in text.splitlines())


@pytest.mark.parametrize(("value", "width"), [("80", 80), ("7", 40), ("wide", 120), ("0", 120), ("", 120), (None, 120)])
def test_the_width_of_the_page(value, width, monkeypatch):
    monkeypatch.setattr("sys.stdout", None)
    assert page_width({} if value is None else {"COLUMNS": value}) == width


def test_paths_lose_their_left_end():
    short = shortened("network.encoder.layers.3.attention.query MatMul", 30)
    assert len(short) == 30
    assert short.startswith("…")
    assert short.endswith("attention.query MatMul")
    assert shortened("fc MatMul", 30) == "fc MatMul"
