"""Gradients of extremes: shared between equal elements, and never lost or NaN when the operand is rounded in another way."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, ops
from sporax.mindspore.ops._core import extremes

_EXTREMES = {
    "ReduceMax": lambda x: ops.ReduceMax()(x, 1),
    "ReduceMin": lambda x: ops.ReduceMin()(x, 1),
    "amax": lambda x: ops.amax(x, 1),
    "amin": lambda x: ops.amin(x, 1),
    "ptp": lambda x: x.ptp(1),
    "infinity norm": lambda x: ops.norm(x, float("inf"), 1),
    "row sums": lambda x: ops.norm(x, float("inf"), (0, 1)),
    "numpy.max": lambda x: ms.numpy.max(x, 1),
    "numpy.nanmin": lambda x: ms.numpy.nanmin(x, 1),
    "numpy.norm": lambda x: ms.numpy.norm(x, float("inf"), 1),
    "adaptive pooling": lambda x: ops.adaptive_max_pool2d(x.reshape(1, *x.shape), (2, 3)),
}


def _rounded(x: jax.Array, ulps: int) -> jax.Array:
    return x * (1 + ulps * jnp.finfo(x.dtype).eps)


@pytest.mark.parametrize("upwards", [True, False])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("ulps", [-4, -1, 0, 1, 4])
@pytest.mark.parametrize("axis", [None, (1,), (0, 2)])
def test_a_differently_rounded_operand_gives_its_extreme_the_gradient(upwards, dtype, ulps, axis):
    x = jnp.asarray(np.random.default_rng(3).integers(-6, 9, size=(3, 8, 5)), dtype)
    function = jnp.max if upwards else jnp.min
    extreme = function(x, axis, keepdims=True)
    weights = extremes._chosen(_rounded(x, ulps), extreme, axis, upwards)
    expected = (x == extreme) / jnp.sum(x == extreme, axis, keepdims=True)
    np.testing.assert_allclose(np.asarray(weights, "f4"), np.asarray(expected, "f4"), atol=1e-3)
    np.testing.assert_allclose(np.asarray(jnp.sum(weights, axis), "f4"), 1, rtol=2e-2)


@pytest.mark.parametrize("value", [0.0, 1.0, -3e30, 1e-30])
@pytest.mark.parametrize("ulps", [-1, 0, 1])
def test_equal_elements_share_the_gradient_even_when_all_are_rounded_away(value, ulps):
    x = jnp.full((4, 6), value)
    weights = extremes._chosen(_rounded(x, ulps), jnp.max(x, 1, keepdims=True), (1,), True)
    np.testing.assert_allclose(weights, np.full((4, 6), 1 / 6), rtol=1e-6)


def test_masked_elements_get_nothing_whatever_the_rounding():
    x = jnp.array([[1.0, -jnp.inf, 3.0], [-jnp.inf, -jnp.inf, -jnp.inf]])
    weights = extremes._chosen(_rounded(x, -2), jnp.max(x, 1, keepdims=True), (1,), True)
    np.testing.assert_allclose(weights, [[0, 0, 1], [1 / 3] * 3], atol=1e-6)


def test_nan_stays_nan():
    slope = jax.grad(lambda x: extremes.largest(x))(jnp.array([1.0, jnp.nan]))
    assert np.isnan(slope).all()


@pytest.mark.parametrize("name", _EXTREMES)
def test_gradients_are_those_of_finite_differences(name):
    x = np.random.default_rng(5).permutation(24).reshape(4, 6).astype("f8") + 1
    function = _EXTREMES[name]
    slope = ms.grad(lambda value: ops.ReduceSum()(function(value)))(Tensor(x)).asnumpy()
    numeric = np.zeros_like(x)
    for place in np.ndindex(*x.shape):
        step = np.zeros_like(x)
        step[place] = 1e-3
        above, below = (function(Tensor(moved)).asnumpy().sum() for moved in (x + step, x - step))
        numeric[place] = (above - below) / 2e-3
    np.testing.assert_allclose(slope, numeric, atol=1e-6)


@pytest.mark.parametrize("name", ["ReduceMax", "ReduceMin", "amax", "amin", "numpy.max"])
def test_ties_share_the_gradient(name):
    x = Tensor(np.array([[2.0, 2.0, 2.0, 2.0]], "f4"))
    slope = ms.grad(lambda value: ops.ReduceSum()(_EXTREMES[name](value)))(x)
    np.testing.assert_array_equal(slope.asnumpy(), np.full((1, 4), 0.25, "f4"))


@pytest.mark.parametrize("function", [extremes.larger, extremes.smaller])
def test_of_two_elements_one_gets_the_gradient_and_equal_ones_share_it(function):
    x, y = jnp.array([1.0, 2.0, 3.0]), jnp.array([2.0, 2.0, 2.0])
    slopes = jax.grad(lambda x, y: function(x, y).sum(), (0, 1))(x, y)
    np.testing.assert_array_equal(slopes[0] + slopes[1], np.ones(3))
    assert slopes[0][1] == 0.5


def test_the_gradient_of_two_elements_does_not_compare_with_the_result():
    """The result may have been rounded in another way; the two elements stand on either side of each other anyhow."""
    text = str(jax.make_jaxpr(jax.grad(lambda x: extremes.larger(x, 2.0).sum()))(jnp.ones(3)))
    gradient = jax.make_jaxpr(jax.grad(lambda x: extremes.larger(x, 2.0).sum()))(jnp.ones(3)).jaxpr
    compared = [e for e in gradient.eqns if e.primitive.name in ("eq", "gt", "ge")]
    results = {v for e in gradient.eqns if e.primitive.name in ("max", "custom_jvp_call") for v in e.outvars}
    assert compared, text
    assert not [e for e in compared if results & {v for v in e.invars if not hasattr(v, "val")}], text


@pytest.mark.parametrize("function", ["clamp", "hardtanh", "hardsigmoid"])
def test_limits_keep_the_slope_inside(function):
    inside = ms.grad(lambda x: ops.ReduceSum()(_limit(function, x)))(
        Tensor(np.array([-9.0, 0.25, 9.0], "f4"))
    ).asnumpy()
    np.testing.assert_allclose(inside, [0, 1 / 6 if function == "hardsigmoid" else 1, 0], rtol=1e-6)


def _limit(function, x):
    return ops.clamp(x, -1, 1) if function == "clamp" else getattr(ops, function)(x)


def test_second_derivatives_pass_through_the_chosen_element():
    second = jax.hessian(lambda x: extremes.largest(x) ** 2)(jnp.array([1.0, 3.0]))
    np.testing.assert_allclose(second, [[0, 0], [0, 2]])


_ON_THE_EDGE = {
    "clamp": (lambda x: ops.clamp(x, -1, 2), [-1, 2, 3, -4], [1, 1, 0, 0]),
    "clip of a tensor": (lambda x: x.clip(x * 0 - 1, x * 0 + 2), [-1, 2, 3, -4], [1, 1, 0, 0]),
    "mint.clamp": (lambda x: ms.mint.clamp(x, -1, 2), [-1, 2, 3, -4], [1, 1, 0, 0]),
    "clip_by_value": (lambda x: ops.clip_by_value(x, -1, 2), [-1, 2, 3, -4], [0.5, 0.5, 0, 0]),
    "hardsigmoid": (ops.hardsigmoid, [-3, 3, 0, 4], [0, 0, 1 / 6, 0]),
    "hardswish": (ops.hardswish, [-3, 3, 0, 4], [-0.5, 1.5, 0.5, 1]),
    "l1_loss": (lambda x: ops.l1_loss(x, ops.zeros_like(x) + 1, "none"), [1, 0, -1, 2], [0, -1, -1, 1]),
    "margin_ranking_loss": (
        lambda x: ops.margin_ranking_loss(x, ops.ones_like(x), ops.ones_like(x), 0.0, "none"),
        [1, 0, 2, 3],
        [-1, -1, 0, 0],
    ),
    "distance": (lambda x: ops.cdist(x[None], ops.ones_like(x)[None], 1.0), [1, 0, -1, 2], [0, -1, -1, 1]),
    "norm": (lambda x: ops.norm(x, 1), [1, 0, -1, 2], [1, 0, -1, 1]),
    "fmax": (lambda x: ops.fmax(x, ops.ones_like(x)), [1, 0, -1, 2], [1, 0, 0, 1]),
    "aminmax": (lambda x: sum(ops.aminmax(x, axis=0)), [1, 1, 2, 2], [1, 0, 1, 0]),
}


@pytest.mark.parametrize("name", _ON_THE_EDGE)
def test_where_a_function_has_a_corner_its_gradient_is_that_of_the_wheel(name):
    function, values, expected = _ON_THE_EDGE[name]
    np.testing.assert_allclose(ms.grad(function)(Tensor(np.array(values, np.float32))).asnumpy(), expected, rtol=1e-6)
