"""Callbacks of planned functions: once a call, whatever the devices and their names are."""

import re
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

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


MESH = jax.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,))


def doubled(x):
    return jax.pure_callback(lambda array: np.asarray(array) * 2, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


def several(x):
    structs = SCALAR, jax.ShapeDtypeStruct((16,), "float32"), jax.ShapeDtypeStruct((16,), "bool")
    total, twice, large = jax.pure_callback(lambda a: (host(a), np.asarray(a) * 2, np.asarray(a) > 8), structs, x)
    return jnp.where(large, twice, x) + total


def by_row(x):
    rows = jax.vmap(lambda row: jax.pure_callback(host, SCALAR, row, vmap_method="sequential"))(x.reshape(8, 2))
    return x + rows.sum()


# All-reduces of a call on whole arrays; what comes with a sharded argument is an all-gather of it.
SENT = {
    "of a scalar": (FUNCTIONS["pure"][0], 1),
    "of an array": (doubled, 1),
    "of several": (several, 1),
    "in a scan": (lambda x: jax.lax.scan(lambda c, _: (called(c, False), None), x, None, length=3)[0], 1),
    "in a gradient": (FUNCTIONS["in a gradient"][0], 1),
    "for each row": (by_row, 1),
    "of a branch": (lambda x: jax.lax.cond(x[0] > 0, lambda x: called(x, False), lambda x: x, x), 1),
    "read by another alone": (lambda x: x + jax.pure_callback(host, SCALAR, doubled(doubled(x))), 1),
    "read by another, too": (lambda x: (y := doubled(x)) + jax.pure_callback(host, SCALAR, y), 1),
    "read by nothing": (lambda x: (io_callback(host, SCALAR, x), x * 2)[1], 0),
}


def collectives(jitted, x):
    text = jitted.lower(x).compile().as_text()
    return Counter(re.findall(r" (all-reduce|all-gather|collective-permute|all-to-all)\(", text))


@pytest.mark.parametrize("name", SENT)
def test_results_are_sent_once_and_no_more_often_than_by_jit(name):
    function, count = SENT[name]
    for spec in (P(), P("x")):
        x = jax.ShapeDtypeStruct((16,), "float32", sharding=NamedSharding(MESH, spec))
        planned = sporax.plan(function, x, devices={"x": 8}, in_shardings=spec)
        struct = jax.ShapeDtypeStruct((16,), "float32", sharding=planned.in_shardings[0])
        sent = collectives(planned.jitted(()), struct)
        of_jit = collectives(jax.jit(function, out_shardings=x.sharding), x)
        assert sent["all-reduce"] <= of_jit["all-reduce"] and sent.total() <= of_jit.total()
        if spec == P():
            assert sent == Counter({"all-reduce": count})


def test_what_another_callback_reads_alone_is_what_the_first_made():
    function, _ = SENT["read by another alone"]
    x = jnp.arange(16, dtype=jnp.float32)
    planned = sporax.plan(function, x, devices={"x": 8}, in_shardings=P("x"))
    np.testing.assert_allclose(planned.function()(jax.device_put(x, planned.in_shardings[0])), x + 4 * x.sum())


@pytest.mark.parametrize("devices", [8, {"x": 8}], ids=str)
def test_in_a_shard_map_every_device_calls_as_under_jit_and_nothing_is_sent(devices):
    def function(x):
        spec = {"mesh": MESH, "in_specs": P("x"), "out_specs": P("x"), "check_vma": False}
        return jax.shard_map(lambda part: part + jax.pure_callback(host, SCALAR, part), **spec)(x)

    x = jnp.arange(16, dtype=jnp.float32)
    planned = sporax.plan(function, x, devices=devices)
    placed = jax.device_put(x, planned.in_shardings[0])
    seen.clear()
    np.testing.assert_allclose(planned.function()(placed), jax.jit(function)(x))
    assert seen == [(2,)] * 16
    assert not collectives(planned.jitted(()), placed)
