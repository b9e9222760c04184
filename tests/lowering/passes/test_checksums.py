import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, PartitionSpec

from sporax.lowering.passes.checksums import Checksums


def sums_of(function, *arguments):
    watched = Checksums(jax.make_jaxpr(function)(*arguments))
    return np.asarray(jax.jit(watched)(*arguments)), watched.values


@jax.jit
def doubled(x):
    return x * 2


def test_every_value_has_a_sum_and_the_name_of_its_call():
    def program(x):
        with jax.named_scope("layer"):
            return jnp.sin(doubled(x)) + 1

    sums, values = sums_of(program, jnp.arange(3.0))
    assert [value.primitive for value in values] == ["mul", "sin", "add"]
    assert (values[0].operator, values[0].path, values[0].backward) == ("doubled", "layer", False)
    assert sums.shape == (3,)


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "bfloat16", "float16", "float32", "float64", "complex64", "uint64", "int4"]
)
def test_one_changed_value_changes_the_sum(dtype):
    x = jnp.asarray([0, 1, 1, 0, 1], dtype)
    (one, *_), _ = sums_of(lambda x: x.reshape(5, 1), x)
    (same, *_), _ = sums_of(lambda x: x.reshape(5, 1), x)
    (other, *_), _ = sums_of(lambda x: x.reshape(5, 1), jnp.asarray([0, 1, 0, 0, 1], dtype))
    (moved, *_), _ = sums_of(lambda x: x.reshape(5, 1), jnp.asarray([1, 0, 1, 0, 1], dtype))
    assert one == same
    assert len({int(one), int(other), int(moved)}) == 3


def test_the_lowest_and_the_highest_bit_of_long_types_count():
    x = np.asarray([1.5, 2.5], np.float64)
    bits = x.view(np.uint64)
    before = sums_of(lambda x: x.reshape(2, 1), jnp.asarray(x))[0][0]
    for bit in (0, 31, 32, 63):
        changed = bits.copy()
        changed[0] ^= np.uint64(1 << bit)
        assert sums_of(lambda x: x.reshape(2, 1), jnp.asarray(changed.view(np.float64)))[0][0] != before


def test_devices_of_a_mesh_have_sums_of_their_own():
    mesh = Mesh(np.array(jax.devices()[:4]), ("x",), axis_types=(AxisType.Auto,))

    def body(x):
        return jax.lax.psum(x * 3, "x")

    spec = PartitionSpec("x")
    mapped = jax.shard_map(body, mesh=mesh, in_specs=spec, out_specs=PartitionSpec(), check_vma=False)
    watched = Checksums(jax.make_jaxpr(lambda x: mapped(x) + 1)(jnp.arange(8.0)))
    sums = jax.jit(watched)(jnp.arange(8.0))
    rows = np.stack([np.asarray(shard.data) for shard in sums.addressable_shards])
    assert [value.primitive for value in watched.values] == ["mul", "psum", "add"]
    assert watched.values[0].shape == (2,)
    assert len(set(rows[:, 0])) == 4  # slices differ
    assert len(set(rows[:, 1])) == 1  # and their sum is the same


def test_loops_and_custom_derivatives_are_one_value_each():
    @jax.custom_vjp
    def own(x):
        return x * 2

    own.defvjp(lambda x: (own(x), None), lambda _, cotangent: (cotangent,))
    _, values = sums_of(lambda x: own(jax.lax.fori_loop(0, 3, lambda i, y: y + i, x)), jnp.arange(3.0))
    assert "custom_vjp_call" in [value.primitive for value in values]
    assert any(value.primitive in ("scan", "while") for value in values)
