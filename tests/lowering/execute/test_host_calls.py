"""Callbacks of planned functions: once a call, whatever the devices and their names are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback
from jax.sharding import PartitionSpec as P

import sporax

SCALAR = jax.ShapeDtypeStruct((), "float32")
seen = []


def host(array):
    seen.append(np.shape(array))
    return np.float32(np.sum(array))


def note(array):
    seen.append(np.shape(array))


def called(x, ordered):
    return x * 2 + io_callback(host, SCALAR, x, ordered=ordered)


FUNCTIONS = {
    "ordered": (lambda x: called(x, True), 1),
    "unordered": (lambda x: called(x, False), 1),
    "pure": (lambda x: x + jax.pure_callback(host, SCALAR, x), 1),
    "debug": (lambda x: (jax.debug.callback(note, x), x * 2)[1], 1),
    "debug in order": (lambda x: (jax.debug.callback(note, x, ordered=True), x * 2)[1], 1),
    "in a loop": (lambda x: jax.lax.scan(lambda c, _: (called(c, True), c.sum()), x, None, length=3), 3),
    "in a gradient": (jax.grad(lambda x: (called(jax.lax.stop_gradient(x), False) * x).sum()), 1),
}


@pytest.mark.parametrize("devices", [8, {"x": 8}], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_host_is_called_once(name, devices):
    function, count = FUNCTIONS[name]
    x = jnp.arange(16, dtype=jnp.float32)
    planned = sporax.plan(function, x, devices=devices, in_shardings=None if devices == 8 else P("x"))
    seen.clear()
    got = planned.function()(jax.device_put(x, planned.in_shardings[0]))
    jax.block_until_ready(got)
    jax.effects_barrier()
    assert seen == [(16,)] * count
    jax.tree.map(np.testing.assert_allclose, got, function(x))
    assert jax.tree.leaves(got)[0].sharding == jax.tree.leaves(planned.out_shardings)[0]


def test_results_of_every_kind_reach_all_devices_bit_by_bit():
    values = (
        np.array([True, False]), np.array([1 + 2j, -0j], np.complex64), np.array([-3, 4], np.int8),
        np.array([-0.0, np.nan], np.float16), np.array([-7, 2**31 - 1], np.int32), np.array([-0.0, np.inf]),
    )  # fmt: skip
    structs = tuple(jax.ShapeDtypeStruct(value.shape, value.dtype) for value in values)
    planned = sporax.plan(lambda x: io_callback(lambda _: values, structs, x), 1.0, devices={"x": 8})
    for got, value in zip(planned.function()(1.0), values, strict=True):
        assert {np.asarray(shard.data).tobytes() for shard in got.addressable_shards} == {value.tobytes()}
