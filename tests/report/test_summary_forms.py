"""One view of a plan, three renderers: text, a page and JSON show the same values."""

import html
import re
from importlib.resources import files

import jax
import jax.numpy as jnp
import msgspec
import pytest

import sporax
from sporax.report.render.templates import template
from sporax.report.summary import Summary


@pytest.fixture(scope="module")
def summary():
    def loss(w, x):
        return ((jax.nn.relu(x @ w["up"]) @ w["down"]) ** 2).mean()

    w = {"up": jnp.ones((512, 1024), jnp.float32), "down": jnp.ones((1024, 512), jnp.float32)}

    def step(w, x):
        value, gradients = jax.value_and_grad(loss)(w, x)
        return jax.tree.map(lambda a, b: a - b, w, gradients), value

    return sporax.plan(step, w, jnp.ones((64, 512), jnp.float32), devices=8, hardware="h100", carry={0: 0}).summary()


def test_json_is_read_back_as_the_same_view_and_drawn_again(summary):
    again = msgspec.json.decode(summary.to_json(), type=Summary)
    assert again == summary
    assert (str(again), again.to_html()) == (str(summary), summary.to_html())


def test_the_headline_says_hardware_time_throughput_and_memory(summary):
    head = summary.headline
    assert (head.hardware, head.unit, head.samples, head.tokens) == ("h100", "s", 64, None)
    assert head.seconds == summary.search.predicted_seconds
    assert head.bound == summary.search.bound_seconds
    assert head.samples_per_second == pytest.approx(64 / head.seconds)
    assert head.peak_bytes == summary.totals.peak_bytes < head.limit_bytes == 85_520_809_984
    # Two products forward, three backward, each of 2 x 64 x 512 x 1024 operations, in float32.
    ideal = 5 * 2 * 64 * 512 * 1024 / sporax_rate("h100", "float32")
    assert head.mfu == pytest.approx(ideal / (8 * head.seconds), rel=1e-6)


def test_samples_are_unknown_where_weights_are_data():
    planned = sporax.plan(lambda w, x: x @ w, jnp.ones((8, 8)), jnp.ones((4, 8)), devices=2, hardware="h100")
    head = planned.summary().headline
    assert (head.samples, head.samples_per_second) == (None, None)
    assert head.seconds > 0


def sporax_rate(name, dtype):
    from sporax.ir.hardware import load_profile

    flops = load_profile(name).flops
    return flops.get(dtype, flops["default"])


def test_templates_are_files_of_the_package_and_hold_the_markup():
    names = {file.name for file in files("sporax.report.render.templates").iterdir()}
    assert {"plan.html", "plan.css", "tip.svg", "pipeline.html"} <= names
    assert template("plan.html").template.startswith("<!DOCTYPE html>")
    for file in files("sporax.report").joinpath("render").iterdir():
        if file.name.endswith(".py"):
            assert not re.search(r"<!doctype|<style|<script", file.read_text(encoding="utf-8"), re.IGNORECASE)


def test_the_headline_stands_first(summary):
    head, *lines = str(summary.of_script("train.py")).splitlines()
    assert head.startswith("Plan for 8 devices")
    facts = dict(re.split(r"  +", line) for line in lines[: lines.index("")])
    assert (facts["script"], facts["hardware"]) == ("train.py", "h100")
    assert re.fullmatch(r"[\d.]+ µs, at best [\d.]+ µs", facts["predicted time of a step"])
    assert re.fullmatch(r"[\d,]+ samples/s", facts["throughput"])
    assert facts["peak memory of a device"].endswith(" of 85.5 GB")
    assert "what figures mean" not in facts


def test_on_simulated_devices_it_says_what_figures_mean():
    def step(w, x):
        return x @ w

    text = str(sporax.plan(step, jnp.ones((8, 8)), jnp.ones((8, 8)), devices=2, hardware="cpu").summary())
    assert "more of them do not make a step faster" in " ".join(text.split())


def layered(depth):
    """A step of plain JAX in layers without names of their own, with products by einsum."""

    def loss(layers, x):
        for layer in layers:
            x = x + jnp.einsum("bst,btd->bsd", jax.nn.softmax(jnp.einsum("bsd,btd->bst", x @ layer["q"], x)), x)
        return jnp.mean(x**2)

    def step(layers, x):
        return (jax.tree.map(lambda a, b: a - 0.1 * b, layers, jax.grad(loss)(layers, x)),)

    layers = [{"q": jax.ShapeDtypeStruct((64, 64), jnp.float32)}] * depth
    x = jax.ShapeDtypeStruct((16, 32, 64), jnp.float32)
    return sporax.plan(step, layers, x, devices=4, hardware="h100", carry={0: 0})


def test_equal_layers_of_plain_jax_are_folded_and_their_products_have_names():
    planned = layered(6)
    text = str(planned.summary())
    tables = [entry[entry.index("Forward") :].splitlines() for entry in (text, str(layered(4).summary()))]
    assert len(tables[0]) <= len(tables[1]) + 1
    assert re.search(r"bst,btd->bsd einsum \(\d+\s×\)", text)
    (row,) = set(re.findall(r"gradient of \[0\]\[0-5\]\['q'\] \(6\s×\)", text))
    assert not re.search(r"^dot_general ", text, re.MULTILINE)
    # The names of rows are names for questions.
    assert len(planned.explain(row)) == 6
    assert len(planned.explain("bsd,btd->bst einsum")) >= 6


def test_rows_without_work_and_communication_are_one():
    def step(x, w, tiny):
        for name in "abc":
            with jax.named_scope(f"tiny_{name}"):
                tiny = tiny @ tiny
        return x @ w, tiny

    large, tiny = (jax.ShapeDtypeStruct((size, size), jnp.float32) for size in (16384, 4))
    fixed = {0: (1, 1), 1: (1, 2), 2: (1, 1)}
    summary = sporax.plan(step, large, large, tiny, devices=2, hardware="h100", fixed=fixed, mode="recursive").summary()
    least = 0.0005 * summary.headline.seconds
    small = [row for row in summary.operators if row.name and row.seconds < least and not row.collectives]
    assert len(small) >= 2
    text = str(summary)
    assert f"{len(small)} others" in text
    assert "tiny_a" not in text[text.index("Forward") :]
    assert "tiny_a" in summary.to_json()


def test_notebooks_show_the_page_in_a_frame(summary):
    shown = summary._repr_html_()
    assert shown.startswith('<iframe srcdoc="')
    assert html.unescape(shown.split('"')[1]) == summary.to_html()
