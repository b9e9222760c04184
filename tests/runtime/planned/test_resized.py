"""Planned functions that are called with other shapes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import sporax
from sporax.base.errors import SporaxValueError

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
