"""Planned functions that are called with other shapes."""

from contextlib import nullcontext
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import sporax
from sporax.base.errors import SporaxTypeError, SporaxValueError

W, X = (
    jnp.linspace(-1, 1, 64).reshape(8, 8).astype(jnp.float32),
    jnp.linspace(0, 1, 128).reshape(16, 8).astype(jnp.float32),
)


def step(w, batch):
    value, gradient = jax.value_and_grad(lambda w: ((batch["x"] @ w) ** 2).mean())(w)
    return w - 0.1 * gradient, value


@pytest.fixture(scope="module")
def planned():
    return sporax.plan(step, W, {"x": X}, devices={"data": 8}, carry={0: 0}, in_shardings=(P("data"), P("data")))


@pytest.mark.parametrize("shape", [(8, 8), (3, 8), (16, 4), (16,)], ids=str)
def test_another_shape_is_an_error_with_both_shapes(planned, shape):
    words = rf"args\[1\]\['x'\] must have the shape that was planned, \(16, 8\), but got \({shape[0]}, ?{str(shape[1:])[1:-2]}"
    with pytest.raises(SporaxValueError, match=words):
        planned.function()(W, {"x": jnp.ones(shape, jnp.float32)})


@pytest.mark.parametrize("dtype", ["int32", "bfloat16", "bool"])
def test_another_dtype_is_an_error_with_both_dtypes(planned, dtype):
    words = rf"args\[1\]\['x'\] must have the dtype that was planned, float32, but got {dtype}"
    with pytest.raises(SporaxValueError, match=words):
        planned.function()(W, {"x": X.astype(dtype)})


@pytest.mark.parametrize("in_context", [True, False])
def test_numbers_of_python_take_the_dtype_that_was_planned(in_context):
    planned = sporax.plan(lambda x, rate, count: (x * rate, rate + 1, count * 2), X, 2.5, 2, devices={"data": 8})
    with jax.set_mesh(planned.mesh) if in_context else nullcontext():
        scaled, more, twice = planned.function()(X, 3, 4)
        with pytest.raises(
            SporaxValueError, match=r"args\[2\] must have the dtype that was planned, int.., but got float"
        ):
            planned.function()(X, 3, 4.5)
    np.testing.assert_allclose(scaled, 3 * X)
    assert (more, twice, more.dtype, twice.dtype) == (4, 8, jnp.asarray(2.5).dtype, jnp.asarray(2).dtype)


@pytest.mark.parametrize(
    ("args", "keywords", "words"),
    [
        ((W,), {}, r"must have the structure .* but got PyTreeDef\(\(\*,\)\)"),
        ((W, X), {}, r"must have the structure PyTreeDef\(\(\*, \{'x': \*\}\)\), but got PyTreeDef\(\(\*, \*\)\)"),
        (([[0.0] * 8] * 8, {"x": X}), {}, "must have the structure"),
        ((W,), {"batch": {"x": X}}, r"must be called by position, .* but got \['batch'\] by keyword"),
    ],
)
def test_another_structure_is_an_error_with_both(planned, args, keywords, words):
    with pytest.raises(SporaxTypeError, match=words):
        planned.function()(*args, **keywords)


def test_an_array_that_is_elsewhere_on_purpose_is_named(planned):
    rows = jax.sharding.NamedSharding(
        jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 4), ("u", "v")), P(None, "v")
    )
    words = r"args\[1\]\['x'\] must be where the plan has it, .*'data'.* but got .*'v'.*device_put\(args, planned.in_sh"
    with pytest.raises(SporaxValueError, match=words):
        planned.function()(jax.device_put(W, jax.devices()[3]), {"x": jax.device_put(X, rows)})


def test_planned_functions_are_functions_for_jax(planned):
    batches = {"x": jnp.stack([X, 2 * X])}
    got, values = jax.jit(lambda w, batches: jax.lax.scan(planned.function(), w, batches))(W, batches)
    expected, alone = jax.lax.scan(step, W, batches)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(values, alone, rtol=1e-5)


def test_a_smaller_batch_is_planned_again_and_no_state_moves(planned):
    run = planned.function(donate=0, resize=True)
    w, alone = jax.device_put(jnp.copy(W), planned.in_shardings[0]), W
    for rows in (16, 8, 3, 16, 3):
        batch = {"x": X[:rows]}
        w, value = run(w, jax.device_put(batch, planned.in_shardings[1]) if rows == 16 else batch)
        assert w.sharding == planned.in_shardings[0]
        alone, expected = step(alone, batch)
        np.testing.assert_allclose(value, expected, rtol=1e-5)
        np.testing.assert_allclose(w, alone, rtol=1e-4, atol=1e-6)


def test_other_shapes_by_keyword():
    planned = sporax.plan(lambda w, *, x: (x @ w).sum(), W, kwargs={"x": X}, devices=8)
    run = planned.function(resize=True)
    np.testing.assert_allclose(run(W, x=X[:4]), (X[:4] @ W).sum(), rtol=1e-5, atol=1e-5)
    with pytest.raises(SporaxValueError, match=r"args\[1\] must have the shape"):
        planned.function()(W, x=X[:5])


def test_keywords_come_in_any_order():
    options = {"kwargs": {"x": X, "scale": jnp.ones(16)}, "devices": 8}
    planned = sporax.plan(lambda w, *, x, scale: x @ w * scale[:, None], W, **options)
    run = replace(planned, plan_again=None).function(resize=True)
    np.testing.assert_allclose(run(W, scale=jnp.ones(16), x=X), X @ W, rtol=1e-5, atol=1e-6)
