"""Networks written as loops over stacked layers are planned from inside: as well as the same layers written out."""

import re
from collections import Counter
from dataclasses import replace
from functools import cache, partial

import jax
import jax.numpy as jnp
import networks
import numpy as np
import pytest
from program_text import read_collectives
from running import arguments_of, assert_same_results, compiled, run_whole

from sporax.base.errors import SporaxValueError
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import Role
from sporax.ir.hardware import load_profile
from sporax.ir.placement import Placement
from sporax.ir.plan import Plan
from sporax.lowering.ingest.ingest import ingest
from sporax.planner.communication.transfers import collective_bytes, schedule
from sporax.planner.cost import Roofline, cost_of, link_costs
from sporax.planner.loops.inline import inline_loops
from sporax.planner.memory.peak import memory_of
from sporax.planner.memory.xla_cpu.kernel_fusion import XLA_CPU
from sporax.planner.plan_check import check_plan
from sporax.planner.search import MODES, SearchOptions, ilp, replicated_plan, search
from sporax.report.view.explain import explain

EIGHT = DeviceMatrix((2, 4))
PROFILE = load_profile("h200")
MODEL = Roofline(PROFILE, link_costs(PROFILE, EIGHT))
CPU = Roofline(load_profile("cpu"), link_costs(load_profile("cpu"), EIGHT))
FEW_TOKENS, MANY_TOKENS = (8, 32, 2048), (64, 128, 128)
"""Batch, length and width: layers are cut as Megatron-LM does, or data parallel."""


@cache
def best(sizes, loop, again=False):
    """The best plan of four layers."""
    step = networks.layers(4, *sizes, loop, again)
    return step, ilp(step.graph, EIGHT, MODEL)


def loops(step, plan):
    """The scans of a step, with their plans."""
    pairs = zip(step.graph.operators, plan.operators, strict=True)
    return [(operator, planned) for operator, planned in pairs if operator.name == "scan"]


def bytes_inside(body, plan):
    """Bytes of collectives in one round."""
    return collective_bytes(list(schedule(body, plan)))


def megabytes(step, plan):
    """Of collectives in a step, by kind."""
    return {kind: size / 1e6 for kind, (_, size) in cost_of(step.graph, plan, MODEL).collectives.items()}


@pytest.mark.parametrize(("sizes", "again"), [(FEW_TOKENS, True), (MANY_TOKENS, False)])
@pytest.mark.sampled(1)
def test_a_loop_sends_what_its_layers_send_written_out(sizes, again):
    looped, materialization = best(sizes, True, again), best(sizes, False, again)

    assert looped[1].optimal
    assert megabytes(looped[0], looped[1].plan) == pytest.approx(
        megabytes(materialization[0], materialization[1].plan), rel=0.01
    )
    # Scores that a round saves for the backward pass are stacked in memory; without a loop, one kernel of attention holds them.
    assert looped[1].cost_seconds <= materialization[1].cost_seconds * (1.01 if again else 1.35)
    whole = cost_of(looped[0].graph, replicated_plan(looped[0].graph, EIGHT), MODEL)
    assert looped[1].cost_seconds < 0.6 * whole.seconds
    check_plan(looped[0].graph, looped[1].plan)


@pytest.mark.full
def test_few_tokens_are_combined_twice_a_round_and_many_once_a_step():
    step, actual = best(FEW_TOKENS, True)
    rounds = [bytes_inside(operator.bodies[0], planned.bodies[0]) for operator, planned in loops(step, actual.plan)]
    batch, length, width = FEW_TOKENS
    assert rounds == [{"all_reduce": 2 * 4 * batch * length * width}] * 2  # forward and backward

    step, actual = best(MANY_TOKENS, True)
    rounds = [bytes_inside(operator.bodies[0], planned.bodies[0]) for operator, planned in loops(step, actual.plan)]
    assert rounds == [{}] * 2
    assert any(result.partial for _, planned in loops(step, actual.plan) for result in planned.results)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.sampled(2)
def test_every_search_looks_inside(mode):
    step, least = best((16, 64, 512), True)  # somewhere between: rows in some products, columns in others
    actual = search(step.graph, EIGHT, MODEL, mode)
    check_plan(step.graph, actual.plan)
    assert actual.cost_seconds <= least.cost_seconds * 1.01
    assert cost_of(step.graph, actual.plan, MODEL).seconds == pytest.approx(actual.cost_seconds, rel=1e-6)
    assert not actual.plan.notes


def test_the_number_of_rounds_is_a_price_and_no_size():
    actual = [best(MANY_TOKENS, True)[1], ilp(networks.layers(100, *MANY_TOKENS).graph, EIGHT, MODEL)]
    assert actual[0].statistics["decisions"] == actual[1].statistics["decisions"]
    assert actual[0].statistics["candidates"] == actual[1].statistics["candidates"]
    assert actual[1].cost_seconds > 20 * actual[0].cost_seconds


def sent_by(text):
    """Bytes of collectives by computation of a compiled program's text, and which of these are bodies of loops."""
    computations = dict(re.findall(r"^(?:ENTRY )?%?([\w.\-]+) [^\n]*\{\n(.*?)^\}", text, re.M | re.S))
    bodies = re.findall(r" while\([^\n]*body=%?([\w.\-]+)", text)
    return {name: read_collectives(item) for name, item in computations.items()}, bodies


def test_compiled_loops_send_what_their_plans_say():
    """Kinds and bytes, round by round; and the memory of a device, and the losses."""
    step = networks.layers(2, 4, 2, 256, again=True)
    plan = ilp(step.graph, EIGHT, MODEL, SearchOptions(fully_use_devices=True)).plan
    planned = [bytes_inside(operator.bodies[0], planned.bodies[0]) for operator, planned in loops(step, plan)]
    program = jax.jit(compiled(step, plan), donate_argnums=range(len(step.graph.aliases)))
    program = program.lower(*arguments_of(step)).compile()
    sent, bodies = sent_by(program.as_text())

    assert len(bodies) == 2
    assert all(planned)
    for kind in {*planned[0], *planned[1], *(kind for item in bodies for kind in sent[item])}:
        assert sorted(sent[item].get(kind, 0) for item in bodies) == sorted(item.get(kind, 0) for item in planned)
    outside = Counter()
    for name in sent.keys() - {*bodies}:
        outside.update(sent[name])
    assert dict(outside) == pytest.approx(collective_bytes(list(schedule(step.graph, plan))), rel=0.01)
    used = program.memory_analysis()
    there = used.argument_size_in_bytes + used.temp_size_in_bytes + used.output_size_in_bytes - used.alias_size_in_bytes
    assert memory_of(step.graph, plan, XLA_CPU).peak_bytes == pytest.approx(there, rel=0.1)
    assert_same_losses(step, program)


def assert_same_losses(step, compiled_step):
    """Three steps on eight devices are those of one."""
    random = np.random.default_rng(0)
    specs = [step.graph.tensors[item.tensor] for item in step.graph.inputs]
    start = [(random.normal(size=spec.shape) / spec.shape[-1] ** 0.5).astype(np.float32) for spec in specs]
    losses = []
    for program in (compiled_step, jax.jit(lambda *values: run_whole(step, values))):
        values = [*start]
        for _ in range(3):
            *updated, loss = program(*values)
            values[: len(updated)] = map(np.asarray, updated)  # its arguments may be donated, and are on no devices
            losses.append(float(loss))
    assert losses[:3] == pytest.approx(losses[3:], rel=1e-5)
    assert losses[2] < losses[0]


@cache
def accumulated(rounds, batch, width):
    """A step whose gradients are summed up over micro batches, each through three layers in a loop."""

    def loss(weights, x, y):
        h, _ = jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, weights)
        return jnp.mean((h - y) ** 2)

    def step(weights, xs, ys):
        def one(total, batch):
            return jax.tree.map(jnp.add, total, jax.value_and_grad(loss)(weights, *batch)), None

        (value, gradient), _ = jax.lax.scan(one, (jnp.float32(0), jnp.zeros_like(weights)), (xs, ys))
        return weights - 0.1 * gradient, value

    shapes = [jax.ShapeDtypeStruct(item, jnp.float32) for item in ((3, width, width), *[(rounds, batch, width)] * 2)]
    roles = [(Role.PARAMETER, "w"), (Role.DATA, "x"), (Role.DATA, "y")]
    return ingest(jax.make_jaxpr(step)(*shapes), roles, [(0, 0)])


@pytest.mark.parametrize("mode", MODES)
def test_accumulated_gradients_are_combined_once(mode):
    step = accumulated(8, 16384, 256)
    plan = search(step.graph, EIGHT, MODEL, mode).plan
    check_plan(step.graph, plan)
    assert Plan.from_json(plan.to_json()) == plan
    assert plan.inputs[1] == Placement(((), (0, 1), ()))
    cost = cost_of(step.graph, plan, MODEL)
    assert dict(cost.collectives) == {"all_reduce": (2, 4 * (3 * 256**2 + 1))}


def test_accumulated_gradients_are_those_of_one_device():
    step = accumulated(4, 2048, 64)
    plan = search(step.graph, EIGHT, CPU, "recursive").plan
    program = compiled(step, plan).lower(*arguments_of(step)).compile()
    sent, bodies = sent_by(program.as_text())
    assert bodies
    assert not any(sent[item] for item in bodies)
    assert any(sent.values())
    assert_same_losses(step, program)


def other_loops(table, weights, shared, x, steps):
    """Constants read in a loop, a loop in a loop, stacked results, branches, and a loop whose rounds nobody knows."""

    def layer(carry, row):
        h, count = carry
        h, _ = jax.lax.scan(lambda h, _: (jnp.tanh(h @ row) + h @ shared, None), h, None, length=2)
        h = jax.lax.cond(count > 1, lambda h: h * 2.0, lambda h: h @ shared, h)
        return (h, count + 1), h.sum(0)

    (h, _), sums = jax.lax.scan(layer, (x @ table, 0), weights)
    h, _ = jax.lax.while_loop(lambda c: c[1] < steps, lambda c: (jnp.sin(c[0] @ shared), c[1] + 1), (h, 0))
    return h, sums, jax.lax.scan(lambda c, n: (c + n, (c, 1.0)), 0, jnp.arange(4))[1]


@pytest.mark.parametrize("busy", [False, True])
def test_other_loops_run_as_on_one_device(busy):
    floats = partial(jax.ShapeDtypeStruct, dtype=jnp.float32)
    shapes = [
        floats((64, 64)),
        floats((3, 64, 64)),
        floats((64, 64)),
        floats((32, 64)),
        jax.ShapeDtypeStruct((), jnp.int32),
    ]
    step = ingest(jax.make_jaxpr(lambda *a: jax.tree.leaves(other_loops(*a)))(*shapes), [(Role.DATA, "")] * 5)
    for mode in MODES if busy else ("ilp",):
        actual = search(step.graph, EIGHT, CPU, mode, SearchOptions(fully_use_devices=busy))
        check_plan(step.graph, actual.plan)
        assert cost_of(step.graph, actual.plan, CPU).seconds == pytest.approx(actual.cost_seconds, rel=1e-6)
    inside = loops(step, actual.plan)[0][1].bodies[0]
    assert any(any(item.assignment) for item in inside.operators) or any(item.bodies for item in inside.operators)
    assert_same_results(step, actual.plan)


def test_plans_are_folded_and_unfolded_without_loss():
    step, actual = best(FEW_TOKENS, True, True)
    out = inline_loops(step.graph)
    flat = out.unfolded(actual.plan)
    check_plan(out.graph, flat)
    assert out.folded(flat) == actual.plan
    assert {operator.times for operator in out.graph.operators} == {1, 4}
    assert memory_of(step.graph, actual.plan, XLA_CPU) == memory_of(step.graph, out.folded(flat), XLA_CPU)
    bare = networks.mlp(2, 64, 64).graph
    assert inline_loops(bare).graph is bare


def test_what_is_carried_must_lie_at_the_end_as_at_the_start():
    step, actual = best(MANY_TOKENS, True)
    number = next(n for n, item in enumerate(step.graph.operators) if item.name == "scan")
    planned = actual.plan.operators[number]
    body = planned.bodies[0]
    moved = Placement(((), (0, 1), ()))
    assert body.outputs[0] != moved
    wrong = replace(planned, bodies=(replace(body, outputs=(moved, *body.outputs[1:])),))
    operators = (*actual.plan.operators[:number], wrong, *actual.plan.operators[number + 1 :])
    with pytest.raises(SporaxValueError, match=rf"operator {number} .*loop_carry"):
        check_plan(step.graph, replace(actual.plan, operators=operators))


def test_operators_of_a_loop_can_be_questioned():
    step, actual = best(FEW_TOKENS, True)
    report = explain(step.graph, actual.plan, MODEL, "")
    inside = [item for item in report if item.chosen.operator_seconds and "dot_general" in item.title]
    assert len(inside) >= 6
