"""Whose collectives are priced as one, because the compiler makes one of them."""

import math
import operator
from functools import reduce

import jax
import jax.numpy as jnp
import pytest
from msgspec import structs

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import Role
from sporax.ir.hardware import known_profiles, load_profile
from sporax.lowering.ingest.ingest import ingest
from sporax.planner.cost import link_costs
from sporax.planner.cost.combined_collectives import num_sharing
from sporax.planner.loops.inline import inline_loops

WIDTH, LAYERS = 16, 5
KINDS = ("gather", "reduce_scatter", "all_reduce", "all_to_all", "permute")


def graph_of(function, num_weights, *shapes):
    """Of a function of weights and data; loops are written out."""
    arguments = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    roles = [(Role.PARAMETER if place < num_weights else Role.DATA, str(place)) for place in range(len(shapes))]
    return inline_loops(ingest(jax.make_jaxpr(function)(*arguments), roles).graph).graph


def step_of(update, layer=lambda x, w: jnp.tanh(x @ w), many=LAYERS):
    """Updated weights and the loss of a chain of layers."""

    def step(*arguments):
        *weights, x = arguments

        def loss(weights):
            y = x
            for w in weights:
                y = layer(y, w)
            return (y * y).sum()

        value, gradients = jax.value_and_grad(loss)(weights)
        return (*update(weights, gradients), value)

    return graph_of(step, many, *[(WIDTH, WIDTH)] * many, (64, WIDTH))


def descend(weights, gradients):
    return [w - 0.1 * g for w, g in zip(weights, gradients, strict=True)]


def of_products(graph):
    """Per product, in order, how many share the starts of its result's collectives."""
    sharing = num_sharing(graph)
    return [sharing[item.results[0]] for item in graph.operators if item.name == "dot_general"]


def test_gradients_share_with_each_other_and_the_loss():
    graph = step_of(descend)
    shared = LAYERS + 1

    assert sorted(of_products(graph)) == [1] * (2 * LAYERS - 1) + [shared] * LAYERS
    assert {num_sharing(graph)[tensor] for tensor in graph.outputs} == {shared}
    assert (
        num_sharing(graph)[graph.inputs[0].tensor] == LAYERS + 1
    )  # weights and data, which are fetched before products


def test_what_a_product_waits_for_goes_alone():
    assert set(of_products(graph_of(lambda a, b, x: (x @ a) @ b, 2, *[(8, 8)] * 3))) == {1}


def test_a_gradient_that_the_optimizer_multiplies_goes_alone():
    def turned(weights, gradients):
        return [w - g @ g.T for w, g in zip(weights, gradients, strict=True)]

    shared = of_products(step_of(turned))
    assert shared.count(LAYERS + 1) == LAYERS  # what is made of them shares instead
    assert len(shared) == 4 * LAYERS - 1


def test_sums_of_several_products_count_once():
    """Losses and gradients of batches that are added up one after another."""

    def step(w, v, *batches):
        def loss(w, v, x):
            return ((x @ w) @ v).sum()

        actual = [jax.tree.leaves(jax.value_and_grad(loss, (0, 1))(w, v, x)) for x in batches]
        value, g, h = (reduce(operator.add, item) for item in zip(*actual, strict=True))
        return w - g, v - h, value

    graph = graph_of(step, 2, *[(WIDTH, WIDTH)] * 2, *[(64, WIDTH)] * 3)
    assert {num_sharing(graph)[tensor] for tensor in graph.outputs} == {3}


def test_sums_of_sums_are_one():
    """A bias that was stretched: its gradient is summed over the batch, and then over a dimension of one."""

    def step(bias, w, x):
        value, (g, h) = jax.value_and_grad(lambda b, w: jnp.tanh(x @ w + b).sum(), (0, 1))(bias, w)
        return bias - g, w - h, value

    graph = graph_of(step, 2, (1, WIDTH), (WIDTH, WIDTH), (64, WIDTH))
    assert {num_sharing(graph)[tensor] for tensor in graph.outputs} == {3}


def test_the_norm_of_all_gradients_waits_for_them():
    def clipped(weights, gradients):
        norm = jnp.sqrt(reduce(operator.add, [(g * g).sum() for g in gradients]))
        return descend(weights, [g / norm for g in gradients])

    graph = step_of(clipped)
    sharing = num_sharing(graph)
    (norm,) = (item.operands[0] for item in graph.operators if item.name == "sqrt")
    assert sharing[norm] == 1
    assert sorted(of_products(graph))[-LAYERS:] == [LAYERS + 1] * LAYERS


def test_what_rounds_of_a_loop_make_goes_alone_and_what_comes_out_shares():
    def step(stacked, first, x):
        def loss(stacked, first):
            y, _ = jax.lax.scan(lambda y, w: (jnp.tanh(y @ w), None), x @ first, stacked)
            return (y * y).sum()

        value, (g, f) = jax.value_and_grad(loss, (0, 1))(stacked, first)
        return stacked - g, first - f, value

    graph = graph_of(step, 2, (4, WIDTH, WIDTH), (WIDTH, WIDTH), (64, WIDTH))
    sharing = num_sharing(graph)
    assert {sharing[tensor] for item in graph.operators if item.times > 1 for tensor in item.results} == {1}
    assert {sharing[tensor] for tensor in graph.outputs} == {3}


def test_behind_a_barrier_everything_waits():
    """Layers that are computed anew bring their weights anew, each when its turn has come."""
    again = jax.checkpoint(lambda x, w: jnp.tanh(x @ w))
    graph = step_of(descend, again)
    sharing = num_sharing(graph)
    behind = [item for item in graph.operators if item.name == "optimization_barrier"]

    assert len(behind) == LAYERS
    assert all(sharing[tensor] == 1 for item in behind[:-1] for tensor in item.results)


@pytest.mark.parametrize("profile", known_profiles())
def test_all_who_share_pay_one_start_and_all_bytes(profile):
    links = link_costs(load_profile(profile), DeviceMatrix((2, 4)))
    shared, size = links.shared_by(10), 1 << 10
    start = links.launch_seconds + 2 * (links.axis_alpha[0] + 3 * links.axis_alpha[1])

    saved = 10 * (links.all_reduce((0, 1), (2, 4), size) - shared.all_reduce((0, 1), (2, 4), size))
    assert saved == pytest.approx(9 * start)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("profile", ["h200", "tpu-v5e", "cpu"])
def test_only_what_the_compiler_merges_is_shared(profile, kind):
    links = link_costs(load_profile(profile), DeviceMatrix((8,)))
    alone, shared = (getattr(item, kind)((0,), (8,), 4096) for item in (links, links.shared_by(10)))

    merged = {"h200": KINDS[:3], "tpu-v5e": ("all_reduce",), "cpu": ("all_reduce",)}[profile]
    assert (shared < alone) == (kind in merged)
    assert shared <= alone


def test_what_fills_a_merged_collective_pays_its_start():
    links = link_costs(load_profile("h200"), DeviceMatrix((8,)))
    most = dict(links.merged)["all_reduce"]

    assert links.shared_by(10).all_reduce((0,), (8,), most) == links.all_reduce((0,), (8,), most)
    half = links.all_reduce((0,), (8,), most / 2) - links.shared_by(10).all_reduce((0,), (8,), most / 2)
    assert half == pytest.approx((links.launch_seconds + 14 * links.axis_alpha[0]) / 2)


def test_nothing_is_shared_where_somebody_has_said_what_travels_together():
    profile, mesh = load_profile("h200"), DeviceMatrix((8,))
    for links in (
        link_costs(profile, mesh, merging=False),
        link_costs(structs.replace(profile, merged_bytes={}), mesh),
    ):
        assert links.shared_by(10) == links
        assert math.isclose(links.all_reduce((0,), (8,), 8.0), links.shared_by(10).all_reduce((0,), (8,), 8.0))
