"""What is sent to the host between forward and backward pass, and when it comes back."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import Literal, Var, jaxpr_as_fun

from sporax.lowering.marks.host_transfer import DEVICE, moves, transfers
from sporax.lowering.marks.tags import offload_scope
from sporax.lowering.passes.host.offload import offloaded
from sporax.lowering.rewriter import flat

LAYERS = 3
X = jnp.linspace(-1.0, 1.0, 8).reshape(2, 4)


def program(prefetch):
    def network(weights, x):
        for number, w in enumerate(weights):
            with jax.named_scope(offload_scope(number, prefetch)):
                x = jnp.tanh(x @ w)
        return x.sum()

    weights = [jnp.eye(4) * (1 + number) for number in range(LAYERS)]
    return flat(jax.make_jaxpr(jax.grad(network))(weights, X)), (*weights, X)


@pytest.mark.parametrize("prefetch", [0, 1, 2])
def test_values_are_equal_and_what_goes_comes_back(prefetch):
    before, args = program(prefetch)
    after = offloaded(before)
    sent = [num_bytes for direction, num_bytes in transfers(after) if direction == "to host"]
    assert sorted(sent) == sorted(num_bytes for direction, num_bytes in transfers(after) if direction == "to device")
    assert sum(sent) >= LAYERS * X.nbytes
    for one, other in zip(jaxpr_as_fun(after)(*args), jaxpr_as_fun(before)(*args), strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_layer_ahead_is_fetched_early():
    """With prefetch two layers are there when the backward pass begins, without it one."""

    def fetched_before_first_product(prefetch):
        eqns = offloaded(program(prefetch)[0]).jaxpr.eqns
        first = next(
            number
            for number, eqn in enumerate(eqns)
            if eqn.primitive.name == "dot_general" and "transpose(" in str(eqn.source_info.name_stack)
        )
        places = [eqn.params["devices"][0] for eqn in eqns[:first] if eqn.primitive.name == "device_put"]
        return sum(place == jax.memory.Space.Device for place in places)

    assert fetched_before_first_product(1) > fetched_before_first_product(0)


def backward_products(eqns):
    """Positions of the products of the backward pass, and the layers they belong to: the last layer comes first."""
    actual = []
    for number, eqn in enumerate(eqns):
        stack = str(eqn.source_info.name_stack)
        if eqn.primitive.name == "dot_general" and "transpose(" in stack:
            actual.append((number, int(re.findall(r"offload-(\d+)-", stack)[-1])))
    return actual


def needed_by(eqns, number):
    """Positions of the equations on which one depends."""
    makers = {var: place for place, eqn in enumerate(eqns) for var in eqn.outvars}
    needed, places = set(), [number]
    while places:
        for var in eqns[places.pop()].invars:
            maker = None if isinstance(var, Literal) else makers.get(var)
            if maker is not None and maker not in needed:
                needed.add(maker)
                places.append(maker)
    return needed


def test_transfers_of_a_layer_may_run_while_the_layer_after_it_is_computed():
    """What a layer kept waits until the backward pass is in the layer two after it, and for no product of the one right after it."""
    eqns = offloaded(program(1)[0]).jaxpr.eqns
    first: dict[int, int] = {}
    for number, layer in backward_products(eqns):
        first.setdefault(layer, number)
    fetches = [number for number, eqn in enumerate(eqns) if moves(eqn) and eqn.params["devices"][0] == DEVICE]
    readers = {
        var: number for number, eqn in reversed(list(enumerate(eqns))) for var in eqn.invars if isinstance(var, Var)
    }
    checked = 0
    for fetch in fetches:
        stack = str(eqns[readers[eqns[fetch].outvars[0]]].source_info.name_stack)
        layer = int(re.findall(r"offload-(\d+)-", stack)[-1])
        if layer + 1 in first:
            assert fetch < first[layer + 1]
            assert first[layer + 1] not in needed_by(eqns, fetch)
            checked += 1
        if layer + 2 in first:
            before = [str(eqns[item].source_info.name_stack) for item in needed_by(eqns, fetch)]
            assert any("transpose(" in stack and f"offload-{layer + 2}-" in stack for stack in before)
    assert checked >= LAYERS - 1
