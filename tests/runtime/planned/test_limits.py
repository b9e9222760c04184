"""Memory limits of functions of plain JAX: the hardware's by default, the user's, and none."""

import warnings

import jax
import jax.numpy as jnp
import pytest

import sporax
from sporax.base.errors import SporaxRuntimeError, SporaxTypeError
from sporax.ir.hardware import load_profile
from sporax.planner import peak_bytes

LARGE = jax.ShapeDtypeStruct((262_144, 262_144), "float32"), jax.ShapeDtypeStruct((8, 262_144), "float32")


def product(w, x):
    return (x @ w).sum()


def test_the_memory_of_the_hardware_is_the_limit():
    with pytest.raises(
        SporaxRuntimeError, match=r"must fit into 85\.521 GB per device, but 27\d\.\d+ GB is the smallest"
    ):
        sporax.plan(product, *LARGE, devices=1, hardware="h100")
    planned = sporax.plan(product, *LARGE, devices=8, hardware="h100")
    assert planned.search.options.memory_bytes == load_profile("h100").memory_bytes
    assert planned.remarks == ()


def test_without_a_limit_a_plan_beyond_the_chip_is_warned_of_at_its_head():
    with pytest.warns(UserWarning, match=r"^The plan needs 275 GB on each device, but 'h100' has 85\.5 GB"):
        planned = sporax.plan(product, *LARGE, devices=1, hardware="h100", memory=None)
    assert planned.search.options.memory_bytes is None
    assert "needs 275 GB on each device" in str(planned.summary())[:400]
    with pytest.warns(UserWarning, match="The plan needs 275 GB"):
        saved = sporax.plan(product, *LARGE, hardware="h100", saved=planned.plan.to_json())
    assert saved.plan == planned.plan


def test_small_plans_have_no_such_warning_and_are_compiled_under_no_limit(monkeypatch):
    monkeypatch.setattr("sporax.runtime.planned.function._compiled", None)  # only limits of users lead there
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sporax.plan(product, jnp.ones((8, 8)), jnp.ones((8, 8)), devices=8).remarks == ()


@pytest.mark.full
def test_a_limit_holds_for_the_compiled_program_in_half_precision():
    params, x = [jnp.ones((64, 64), "float32")] * 3, jnp.ones((128, 64), "float32")

    def loss(params, x):
        for w in params:
            x = jax.nn.gelu(x.astype("bfloat16") @ w.astype("bfloat16"))
        return (x.astype("float32") ** 2).mean()

    def step(params, x):
        return jax.tree.map(lambda w, g: w - 0.01 * g, params, jax.grad(loss)(params, x))

    options = {"devices": 4, "hardware": "cpu", "mode": "recursive", "fixed": {1: (4, 1)}, "carry": {0: 0}}
    limit = int(1.1 * peak_bytes(sporax.plan(step, params, x, **options).result))
    try:
        planned = sporax.plan(step, params, x, **options, memory=limit)
    except SporaxRuntimeError as error:
        assert "once it is compiled" in str(error)  # noqa: PT017 -- either answer keeps the limit
    else:
        assert planned.search.statistics["compiled_bytes"] <= limit


def test_an_unknown_option_is_refused_with_the_one_that_was_meant():
    with pytest.raises(
        SporaxTypeError, match=r"'memry' must be one of its options\. Did you mean 'memory'\? .*kwargs="
    ) as got:
        sporax.plan(product, 1.0, 1.0, memry="80GB")
    assert "kwargs={'memry': ...}" in str(got.value)
