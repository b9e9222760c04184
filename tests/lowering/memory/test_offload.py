"""What is sent to the host between forward and backward pass, and when it comes back."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxpr_as_fun

from sporax.lowering.memory.flat import flat
from sporax.lowering.memory.host import transfers
from sporax.lowering.memory.offload import offload_scope, offloaded

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
