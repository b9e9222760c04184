"""Whole programs on eight devices by plans of propagation: equal to one device, with the collectives of the plan."""

import re
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.placement import Placement
from sporax.ir.plan import Plan
from sporax.lowering.execute.rank_program import rank_program
from sporax.lowering.ingest.ingest import ingest
from sporax.planner.communication.transfers import schedule
from sporax.planner.propagation.propagate import plan_by_propagation

MESH = DeviceMatrix((2, 2, 2))
RNG = np.random.default_rng(0)
P = Placement


def floats(*shape):
    return jnp.asarray(RNG.normal(size=shape) * 0.2, jnp.float32)


def cut(devices, function, args, pins):
    """Run `function` on eight devices; returns its plan, its graph and the text of the compiled program."""
    leaves = jax.tree.leaves(args)
    step = ingest(jax.make_jaxpr(function)(*args))
    first = len(step.constants)
    inputs = {step.graph.inputs[first + number].tensor: placement for number, placement in pins.items()}
    plan = plan_by_propagation(step.graph, MESH, inputs)
    plan = Plan.from_json(plan.to_json())  # what is saved is what runs
    program = rank_program(step, plan, ("a", "b", "c"))
    compiled = devices((2, 2, 2)).compile(lambda *x: tuple(program(*x)), plan.inputs[first:], plan.outputs, *leaves)
    placed = [
        devices((2, 2, 2)).put(leaf, placement) for leaf, placement in zip(leaves, plan.inputs[first:], strict=True)
    ]
    for own, alone in zip(compiled(*placed), jax.tree.leaves(function(*args)), strict=True):
        np.testing.assert_allclose(np.asarray(own), np.asarray(alone), rtol=2e-5, atol=2e-6)
    return step.graph, plan, compiled.as_text()


def collectives(text):
    return Counter(re.findall(r" (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)\(", text))


def mlp(w1, w2, x, y):
    def loss(weights):
        return ((jax.nn.gelu(x @ weights[0]) @ weights[1] - y) ** 2).mean()

    value, gradients = jax.value_and_grad(loss)((w1, w2))
    return value, w1 - 0.1 * gradients[0], w2 - 0.1 * gradients[1]


def test_data_parallel(devices):
    args = (floats(16, 32), floats(32, 16), floats(8, 16), floats(8, 16))
    graph, plan, text = cut(devices, mlp, args, {2: P(((0, 1, 2), ()))})
    assert all(item.is_replicated for item in plan.inputs[:2])
    assert plan.inputs[3] == P(((0, 1, 2), ()))  # the labels follow
    moved = [
        move.collective for together in schedule(graph, plan) for item in together for move in item.redistribution.moves
    ]
    assert moved == ["all_reduce"] * 3  # loss and two gradients
    assert set(collectives(text)) == {"all-reduce"}


def test_columns_then_rows(devices):
    args = (floats(16, 32), floats(32, 16), floats(8, 16), floats(8, 16))
    pins = {2: P(((0,), ())), 0: P(((), (1, 2))), 1: P(((1, 2), ()))}
    graph, plan, text = cut(devices, mlp, args, pins)
    assert plan.outputs[1:] == (pins[0], pins[1])
    assert set(collectives(text)) == {"all-reduce"}
    activation = [
        item for together in schedule(graph, plan) for item in together if graph.tensors[item.tensor].shape == (8, 16)
    ]
    assert (
        len(activation) == 1
    )  # Megatron's single all-reduce per block and direction; the first block has no backward one


def attention(weights, x):
    def loss(weights):
        q, k, v, o, gamma, beta = weights
        mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        y = (x - mean) * jax.lax.rsqrt(variance + 1e-5) * gamma + beta
        batch, length, width = x.shape

        def heads(z):
            return z.reshape(batch, length, 4, width // 4).transpose(0, 2, 1, 3)

        scores = jax.nn.softmax(heads(y @ q) @ heads(y @ k).transpose(0, 1, 3, 2) / 4.0, -1)
        mixed = (scores @ heads(y @ v)).transpose(0, 2, 1, 3).reshape(x.shape)
        return ((x + mixed @ o) ** 2).mean()

    value, gradients = jax.value_and_grad(loss)(weights)
    return value, jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradients)


def test_attention_by_heads(devices):
    weights = [floats(32, 32) for _ in range(4)] + [floats(32), floats(32)]
    columns, rows = P(((), (1, 2))), P(((1, 2), ()))
    pins = {0: columns, 1: columns, 2: columns, 3: rows, 6: P(((0,), (), ()))}
    _, plan, text = cut(devices, attention, (weights, floats(4, 8, 32)), pins)
    assert plan.notes == ()
    assert set(collectives(text)) == {"all-reduce"}


@pytest.mark.parametrize("rows", [(), (2,)])
def test_a_sharded_scan_equals_one_device(devices, rows):
    def function(w, x):
        def loss(w):
            carry, sums = jax.lax.scan(lambda c, wi: (jnp.tanh(c @ wi), c.sum()), x, w)
            return (carry**2).sum() + sums.sum()

        value, gradient = jax.value_and_grad(loss)(w)
        return value, w - 0.1 * gradient

    graph, plan, _ = cut(
        devices, function, (floats(3, 16, 16), floats(8, 16)), {1: P(((0, 1), ())), 0: P(((), (), rows))}
    )
    loops = [planned for item, planned in zip(graph.operators, plan.operators, strict=True) if item.name == "scan"]
    assert len(loops) == 2  # forward and backward
    if not rows:  # each round sums over the batch: the sums of all rounds are combined at once, behind the loop
        bodies = [item.bodies[0] for item in graph.operators if item.name == "scan"]
        assert not [item for body, loop in zip(bodies, loops, strict=True) for item in schedule(body, loop.bodies[0])]
        assert all(any(item.partial == (0, 1) for item in loop.results) for loop in loops)
    assert all(any(any(item.assignment) for item in loop.bodies[0].operators) for loop in loops)  # cut inside, too
    assert plan.outputs[1] == P(((), (), rows))


def test_while_and_cond(devices):
    def function(x):
        def body(carry):
            value, count = carry
            return value * 0.5 + 0.01 * jnp.sin(value).sum(1, keepdims=True), count + 1

        value, _ = jax.lax.while_loop(lambda carry: carry[1] < 5, body, (x, 0))
        return jax.lax.cond(value.sum() > 0, lambda v: v * 2, lambda v: v + v.sum(), value)

    _, plan, _ = cut(devices, function, (floats(8, 16),), {0: P(((0, 1), (2,)))})
    assert plan.outputs == (P(((0, 1), (2,))),)  # never brought together on the way


def test_random_numbers_and_recomputation(devices):
    def function(key, x):
        def loss(x):
            dropped = jnp.where(jax.random.bernoulli(key, 0.5, x.shape), x, 0.0)
            return jax.checkpoint(lambda y: jnp.sin(jnp.sin(y)))(dropped).sum()

        return jax.value_and_grad(loss)(x)

    _, plan, text = cut(devices, function, (jax.random.key(0), floats(8, 16)), {1: P(((0, 1), (2,)))})
    assert plan.outputs[1] == P(((0, 1), (2,)))
    assert collectives(text)["all-gather"] == 0


def test_what_cannot_be_sharded_runs_unsharded_and_is_noted(devices):
    def function(x):
        return jax.pure_callback(lambda a: np.asarray(a) * 2, jax.ShapeDtypeStruct(x.shape, x.dtype), x) + 1

    _, plan, _ = cut(devices, function, (floats(8, 16),), {0: P(((0,), (1,)))})
    assert len(plan.notes) == 1
    assert "pure_callback" in plan.notes[0]


def test_results_that_are_arguments_and_literals(devices):
    _, plan, _ = cut(devices, lambda x: (x, 2.0, x.T), (floats(8, 16),), {0: P(((0,), (1, 2)))})
    assert plan.outputs == (P(((0,), (1, 2))), P(()), P(((1, 2), (0,))))
