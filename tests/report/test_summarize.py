"""The summary of a plan."""

from dataclasses import replace

import pytest
from planner_graphs import GraphBuilder, layers, mesh_of, placement, product, roofline, scan, training_step

from sporax.planner.memory.peak import memory_of
from sporax.planner.memory.xla_cpu.kernel_fusion import XLA_CPU
from sporax.planner.search import search
from sporax.planner.search.space.plan_assembly import replicated_plan
from sporax.report.summarize import summarize
from sporax.report.view.plan_view import Traffic

MESH = mesh_of(2)


def test_variables_are_counted_as_stored_and_as_a_whole():
    graph = product(8, 16, 32)
    plan = replace(replicated_plan(graph, MESH), inputs=(placement("- -"), placement("0 -")))
    summary = summarize(graph, plan)
    assert summary.totals.parameter_bytes == 16 * 32 * 4 // 2
    assert summary.totals.whole_parameter_bytes == 16 * 32 * 4
    weight = next(row for row in summary.tensors if row.name == "w1")
    assert (weight.shape, weight.slice_shape, weight.kept_as) == ((16, 32), (8, 32), "[a, -]")


def test_collectives_are_counted_per_row_and_in_total():
    graph = product(8, 16, 32)
    plan = replace(replicated_plan(graph, MESH), inputs=(placement("- -"), placement("0 -")))
    summary = summarize(graph, plan)
    assert summary.totals.traffic == (Traffic("all_gather", 1, 8 * 32 * 4),)
    (row,) = summary.operators
    assert [(entry.kind, entry.count) for entry in row.collectives] == [("all_gather", 1)]


def test_peak_and_arithmetic_are_those_of_the_plan():
    graph = training_step()
    plan = replicated_plan(graph, MESH)
    totals = summarize(graph, plan).totals
    assert totals.peak_bytes == memory_of(graph, plan, XLA_CPU).peak_bytes == sum(size for _, size in totals.peak_uses)
    assert totals.flops == sum(row.flops for row in summarize(graph, plan).operators)


def test_what_a_search_said_is_there():
    graph = layers(2)
    result = search(graph, MESH, roofline(MESH), "ilp")
    assert summarize(graph, result.plan).search is None
    row = summarize(graph, result.plan, result).search
    assert (row.method, row.predicted_seconds, row.optimal) == ("ilp", result.cost_seconds, True)


def test_loops_of_unknown_length_are_noted():
    inside = GraphBuilder()
    x = inside.argument()
    test, step = inside.graph(x), inside.graph(x)
    builder = GraphBuilder()
    params = {"cond_nconsts": 0, "body_nconsts": 0}
    result = builder.add("while", [builder.argument()], (), params=params, bodies=(test, step))
    graph = builder.graph(result)
    assert "loops of unknown length are counted once" in summarize(graph, replicated_plan(graph, MESH)).notes
    assert not any("loops" in note for note in summarize(scan(), replicated_plan(scan(), MESH)).notes)


def test_rows_inside_of_a_loop_have_their_own_time_and_the_names_of_what_they_read():
    graph, model = scan(4, 256), roofline(MESH)
    gathered = replace(replicated_plan(graph, MESH), inputs=(placement("- -"), placement("- 0 -")))
    summary = summarize(graph, gathered, None, model)
    rows = {f"{row.path} {row.name}": row for row in summary.operators}
    assert list(rows) == [" scan", "w1 dot_general"]
    loop, product_row = rows.values()
    assert product_row.seconds == pytest.approx(4 * (2 * 256**3 / model.profile.flops_per_second("float32")), rel=0.6)
    assert 0 < loop.seconds < product_row.seconds  # weights are gathered before the first round
    assert sum(row.seconds for row in summary.operators) == pytest.approx(summary.headline.seconds)
    *times, total = summary.memory.moments
    assert total == pytest.approx(summary.headline.seconds)
    assert times == sorted(times)


def test_data_that_every_device_gathers_is_named_at_the_head():
    """At small sizes sending costs more than computing; users who fix their batch should know of it."""
    import jax

    import sporax
    from sporax.report.render.text import plain_text

    def heads(rows, mode):
        w, x = (jax.ShapeDtypeStruct(shape, "float32") for shape in ((512, 512), (rows, 512)))
        step = jax.grad(lambda w, x: ((x @ w) ** 2).mean())
        planned = sporax.plan(step, w, x, devices=8, hardware="h100", mode=mode, fixed={1: (8, 1)})
        return plain_text(planned.summary(), 1000)

    for mode in ("dynamic", "recursive"):
        assert "computed whole" in (small := heads(8, mode))
        assert "[1]: every device gathers it and computes all that reads it" in small
        assert "computed whole" not in heads(1 << 20, mode)
