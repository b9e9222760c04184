"""Variables in host memory between steps: which ones go there, and where programs find and leave them."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sporax.base.errors import SporaxRuntimeError
from sporax.lowering.marks.host_transfer import KIND, is_on_host, to_device, to_host
from sporax.runtime.storage import host_memory


def variable(size, on_host=False, **more):
    return SimpleNamespace(raw=jnp.zeros(size, jnp.float32), on_host=on_host, requires_grad=True, **more)


def test_marked_variables_are_stored_on_the_host_where_the_step_wants_it():
    marked, other = variable(4, on_host=True), variable(4)
    host_memory.bring_to_host([marked, other], {"recompute"}, unknown)
    assert not is_on_host(marked.raw)
    host_memory.bring_to_host([marked, other], {"host"}, unknown)
    assert is_on_host(marked.raw)
    assert not is_on_host(other.raw)


def unknown():
    """No prediction of what the step needs."""


@pytest.mark.parametrize(
    ("above", "peak", "sent"),
    [
        (400, None, []),
        (250, None, [40]),
        (130, None, [40, 30]),
        (0, None, [40, 30, 20]),
        (800, 1000, [40, 30]),  # what the step needs beside its variables counts where it is predicted
        (800, 800, []),
    ],
)
def test_the_largest_parameters_are_sent_away_until_the_rest_fits(above, peak, sent):
    state = SimpleNamespace(raw=jnp.zeros(10, jnp.float32))  # no Parameter, so it stays
    variables = [variable(20), variable(40), state, variable(30)]
    host_memory.bring_to_host(variables, {"host", f"offload above {above} within -1"}, lambda: peak)
    away = sorted((item.raw.size for item in variables if is_on_host(item.raw)), reverse=True)
    assert away == sent


def test_more_than_the_host_may_have_is_an_error():
    variables = [variable(100), variable(50)]
    with pytest.raises(
        SporaxRuntimeError,
        match=r"^For 'set_offload_context', 'offload_cpu_size' times 'cpu_ratio' is 500 bytes, but 600 bytes of Parameters",
    ):
        host_memory.bring_to_host(variables, {"host", "offload above 0 within 500"}, unknown)


def test_a_step_fetches_what_is_on_the_host_and_returns_it():
    variables, values = [variable(3, on_host=True), variable(3)], [jnp.ones(3), jnp.zeros(3)]

    def places(move, requested):
        eqns = jax.make_jaxpr(lambda *arrays: host_memory.moved(variables, arrays, move, requested))(*values).jaxpr.eqns
        return [eqn.params["devices"][0] for eqn in eqns]

    assert places(to_device, True) == [jax.memory.Space.Device]
    assert places(to_host, True) == [jax.memory.Space.Host]
    assert places(to_device, False) == places(to_host, False) == []


def test_values_survive_the_way_to_the_host_and_back():
    marked = variable(3, on_host=True)
    marked.raw = jnp.arange(3.0)
    host_memory.bring_to_host([marked], {"host"}, unknown)
    assert marked.raw.sharding.memory_kind == KIND
    (fetched,) = jax.jit(lambda x: host_memory.moved([marked], [x], to_device, True))(marked.raw)
    np.testing.assert_array_equal(fetched, [0, 1, 2])
