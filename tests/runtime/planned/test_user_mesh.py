"""Plans under the user's mesh: contexts, axes that are types, and arrays that are sharded by their type."""

import warnings
from contextlib import nullcontext

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec as P

import sporax
from sporax.base.errors import SporaxTypeError, SporaxValueError
from sporax.runtime.planned.user_mesh import context_mesh

W, X = (
    jnp.linspace(-1, 1, 64).reshape(8, 8).astype(jnp.float32),
    jnp.linspace(0, 1, 128).reshape(16, 8).astype(jnp.float32),
)
AUTO, EXPLICIT = AxisType.Auto, AxisType.Explicit


def mesh(*types, names=("data", "model")):
    return Mesh(np.array(jax.devices()).reshape(2, 4), names, axis_types=types or (AUTO, AUTO))


def legacy(of):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        of.__enter__()
        return of


def product(w, x):
    return jnp.tanh(x @ w)


CONTEXTS = {
    "set_mesh": lambda: jax.set_mesh(mesh()),
    "explicit": lambda: jax.set_mesh(mesh(EXPLICIT, EXPLICIT)),
    "abstract": lambda: jax.sharding.use_abstract_mesh(
        AbstractMesh((2, 4), ("data", "model"), axis_types=(AUTO, AUTO))
    ),
}


@pytest.mark.parametrize("name", CONTEXTS)
def test_the_mesh_of_the_context_is_that_of_the_plan_and_calls_may_be_in_it(name):
    outside = sporax.plan(product, W, X, devices=8)
    with CONTEXTS[name]():
        planned = sporax.plan(product, W, X)
        assert planned.mesh.shape == {"data": 2, "model": 4} or ".0" in str(planned.mesh)
        for one in (planned, outside):
            got = one.function()(*jax.device_put((W, X), one.in_shardings))
            np.testing.assert_allclose(got, product(W, X), rtol=1e-5, atol=1e-6)


def test_the_mesh_of_a_with_statement_is_found_and_none_outside():
    assert context_mesh() is None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        with mesh(names=("rows", "columns")):
            assert context_mesh() == mesh(names=("rows", "columns"))
            planned = sporax.plan(product, W, X, in_shardings=(None, P("rows")))
            got = planned.function()(*jax.device_put((W, X), planned.in_shardings))
    np.testing.assert_allclose(got, product(W, X), rtol=1e-5, atol=1e-6)


def test_a_program_may_put_another_function_in_the_place_of_the_constraint(monkeypatch):
    """MaxText does: `jax.reshard` where the constraint fails, whose error without a mesh is another one."""
    own = jax.lax.with_sharding_constraint

    def constraint(x, sharding):
        try:
            return own(x, sharding)
        except RuntimeError:
            return jax.sharding.reshard(x, sharding)

    monkeypatch.setattr(jax.lax, "with_sharding_constraint", constraint)
    assert context_mesh() is None
    planned = sporax.plan(lambda w, x: constraint(product(w, x), P("data")), W, X, devices={"data": 8})
    assert planned.plan.outputs[0].dims[0]


@pytest.mark.parametrize("option", ["fixed", "in_shardings", "out_shardings"])
def test_the_mesh_of_a_sharding_is_that_of_the_plan(option):
    def requested(of):
        sharding = NamedSharding(of, P("data", None))
        return {option: {"fixed": {1: sharding}, "in_shardings": (None, sharding)}.get(option, sharding)}

    planned = sporax.plan(product, W, X, **requested(mesh()))
    assert planned.mesh.shape["data"] == 2
    chosen = planned.out_shardings if option == "out_shardings" else planned.in_shardings[1]
    assert chosen.spec == P("data", None)
    other = Mesh(np.array(jax.devices()).reshape(4, 2), ("data", "model"))
    whose = r"result" if option == "out_shardings" else r"args\[1\]"
    with pytest.raises(SporaxValueError, match=f"For '{whose}', the mesh .* data=2, model=4, but got data=4, model=2"):
        sporax.plan(product, W, X, devices=mesh(), **requested(other))


def test_a_planned_function_is_called_in_other_compiled_functions():
    planned = sporax.plan(product, W, X, devices=mesh())
    args, step = jax.device_put((W, X), planned.in_shardings), planned.function()
    for context in (nullcontext(), jax.set_mesh(mesh())):
        with context:
            np.testing.assert_allclose(jax.jit(lambda *args: step(*args) + 1)(*args), product(W, X) + 1, rtol=1e-5)


@pytest.mark.parametrize("in_context", [True, False])
def test_types_of_arrays_are_pins_and_results_have_types(in_context):
    typed = mesh(EXPLICIT, EXPLICIT)
    w, x = jax.device_put((W, X), (NamedSharding(typed, P("model", None)), NamedSharding(typed, P("data", "model"))))

    def loss(w, x):
        y = jnp.dot(x, w, out_sharding=NamedSharding(typed, P("data", None)))
        return jnp.tanh(y), (jax.sharding.reshard(y, NamedSharding(typed, P(None, "model"))) ** 2).mean()

    with jax.set_mesh(typed) if in_context else nullcontext():
        planned = sporax.plan(loss, w, x)
        got, value = planned.function()(w, x)
    assert [one.spec for one in planned.in_shardings] == [P("model", None), P("data", "model")]
    assert planned.mesh == typed and str(jax.typeof(got)) == "float32[16@data,8]"
    np.testing.assert_allclose(got, product(W, X), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(value, ((X @ W) ** 2).mean(), rtol=1e-5)


def test_gradients_and_automatic_axes_next_to_explicit_ones():
    mixed = mesh(EXPLICIT, AUTO)
    x = jax.device_put(X, NamedSharding(mixed, P("data", None)))
    with jax.set_mesh(mixed):
        function = jax.value_and_grad(lambda w, x: product(w, x).sum())
        planned = sporax.plan(function, W, x)
        assert planned.in_shardings[1].spec == P("data", None)
        value, gradient = planned.function()(jax.device_put(W, planned.in_shardings[0]), x)
    alone = function(W, X)
    np.testing.assert_allclose(value, alone[0], rtol=1e-5)
    np.testing.assert_allclose(gradient, alone[1], rtol=1e-4)


def test_conversions_under_vmap_on_explicit_axes():
    """JAX says of a converted basis of `jacfwd` that it has one dimension more than it has."""
    typed = mesh(EXPLICIT, EXPLICIT)
    x = jax.device_put(X, NamedSharding(typed, P("data", None)))
    with jax.set_mesh(typed):
        planned = sporax.plan(jax.jacfwd(lambda x: x.sum(0) ** 2), x)
        assert planned.in_shardings[0].spec == P("data", None)
        got = planned.function()(x)
    np.testing.assert_allclose(got, jax.jacfwd(lambda x: x.sum(0) ** 2)(X), rtol=1e-5)


def test_donated_arguments_carry_results_of_their_type_on_explicit_axes():
    """A result that is elsewhere than the argument cannot take its place: none is carried, as `jax.jit` does it."""
    typed = mesh(EXPLICIT, EXPLICIT)
    square = jnp.arange(64.0).reshape(8, 8)
    x = jax.device_put(square, NamedSharding(typed, P("data", None)))
    with jax.set_mesh(typed):
        planned = sporax.plan(lambda x: (x.T, x * 2), x, donate_argnums=0)
        assert planned.graph.aliases == ((1, 0),)
        turned, double = planned.function(donate=())(x)
    np.testing.assert_array_equal(turned, square.T)
    np.testing.assert_array_equal(double, square * 2)


@pytest.mark.parametrize("hardware", ["cpu", "h100"])
def test_islands_reduce_over_axes_of_one_device(hardware):
    devices = jax.make_mesh((2, 1), ("data", "model"), axis_types=(AUTO, AUTO), devices=jax.devices()[:2])

    def step(x):
        both = ("data", "model")
        largest = jax.shard_map(lambda x: jax.lax.pmax(x.max(0), both), mesh=devices, in_specs=P(both), out_specs=P())
        gathered = jax.shard_map(
            lambda x: jax.lax.all_gather(x, "model", tiled=True), mesh=devices, in_specs=P("data"), out_specs=P("data"),
            check_vma=False,
        )  # fmt: skip
        return largest(x), gathered(x)

    largest, gathered = sporax.plan(step, X, devices=devices, hardware=hardware).function()(X)
    np.testing.assert_array_equal(largest, X.max(0))
    np.testing.assert_array_equal(gathered, X)


def test_typed_arrays_are_taken_by_plans_on_automatic_axes():
    typed = mesh(EXPLICIT, EXPLICIT)
    planned = sporax.plan(lambda x: x * 2, X, devices=mesh(), in_shardings=P("data", "model"))
    got = planned.function()(jax.device_put(X, NamedSharding(typed, P("data", "model"))))
    np.testing.assert_allclose(got, 2 * X)
    other = Mesh(np.array(jax.devices()).reshape(8), ("data",), axis_types=(EXPLICIT,))
    planned = sporax.plan(lambda x: x * 2, jnp.ones((3, 3)), devices=6)
    with pytest.raises((SporaxTypeError, ValueError)):
        planned.function()(jax.device_put(jnp.ones((3, 3)), NamedSharding(other, P())))


def test_results_of_loops_have_the_types_of_the_program():
    """An operator says where its result is, a loop does not: a search would take another place."""
    typed = mesh(EXPLICIT, EXPLICIT)

    def rounds(w, x):
        return jax.lax.scan(lambda x, _: (jnp.tanh(x @ jax.sharding.reshard(w, P())), x.sum()), x, None, length=2)

    with jax.set_mesh(typed):
        w, x = jax.device_put(W, P(None, "model")), jax.device_put(X, P("data"))
        for mode in ("dynamic", "propagation"):
            got = sporax.plan(rounds, w, x, mode=mode).function()(w, x)
            expected = jax.jit(rounds)(w, x)
            assert list(map(str, map(jax.typeof, got))) == list(map(str, map(jax.typeof, expected)))
            jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-4), got, expected)


@pytest.mark.parametrize("way", ["struct", "in_shardings", "out_shardings"])
def test_arguments_and_results_in_host_memory_are_refused(way):
    on_host = NamedSharding(mesh(), P(), memory_kind="pinned_host")
    x = jax.ShapeDtypeStruct(X.shape, X.dtype, sharding=on_host) if way == "struct" else X
    with pytest.raises(SporaxValueError, match="must be in the memory of devices .* but got pinned_host"):
        sporax.plan(product, W, x, devices=mesh(), **({} if way == "struct" else {way: on_host}))


def test_a_struct_with_a_sharding_is_a_pin():
    struct = jax.ShapeDtypeStruct(X.shape, X.dtype, sharding=NamedSharding(mesh(), P(None, "model")))
    assert sporax.plan(product, W, struct, devices=mesh()).in_shardings[1].spec == P(None, "model")
    assert sporax.plan(product, W, struct).mesh.shape["model"] == 4
    with pytest.raises(
        SporaxValueError, match=r"args\[1\] must be sharded as its type says, \(None, model\).* has \[axis 0"
    ):
        sporax.plan(product, W, struct, devices=mesh(), in_shardings=(None, P("data")))
    with pytest.raises(
        SporaxValueError, match=r"For 'args\[1\]', the mesh must be that of the plan, d=8, but got data=2, model=4"
    ):
        sporax.plan(product, W, struct, devices={"d": 8})


def test_shardings_of_results_are_not_read_while_they_are_traced(monkeypatch):
    """JAX refuses after a search through the whole trace, for each result: planning would take quadratic time."""
    requested = []
    monkeypatch.setattr(jax.core.Tracer, "sharding", property(lambda tracer: requested.append(tracer)), raising=False)
    sporax.plan(product, W, X, devices=8)
    assert requested == []
