"""Differences of plans fit a terminal, speak of axes as summaries do, and look into loops."""

import re
from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

import sporax
from sporax.base.errors import SporaxTypeError
from sporax.ir.placement import Placement
from sporax.ir.plan import Resharding

LAYERS, WIDTH = 4, 64
WEIGHTS = jax.ShapeDtypeStruct((LAYERS, WIDTH, WIDTH), jnp.float32)
X = jax.ShapeDtypeStruct((32, WIDTH), jnp.float32)
A_LONG_NAME = "a_layer_with_a_name_that_is_longer_than_most_of_the_names_that_layers_have"


def unrolled(weights, x):
    for number in range(LAYERS):
        with jax.named_scope(f"{A_LONG_NAME}.{number}"):
            x = jnp.tanh(x @ weights[number])
    return x


def as_a_loop(weights, x):
    return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, weights)[0]


def planned(fn, cut):
    return sporax.plan(fn, WEIGHTS, X, devices=8, hardware="h100", mode="recursive", fixed={0: cut, 1: (1, 1)})


def test_lines_fit_and_layers_that_differ_alike_are_one_row():
    mine, other = planned(unrolled, (1, 1, 8)), planned(unrolled, (1, 2, 4))
    text = mine.diff(other)
    assert max(map(len, text.splitlines())) <= 120
    assert text.startswith("axes a = 8 (a1 = 2, a2 = 4)")
    assert "variable [0]" in text
    assert "[-, -, a]" in text
    assert "[-, a1, a2]" in text
    assert str(mine.summary().axes) == "(('a', 8),)"
    assert re.search(r"\d-\d dot_general \(\d ×\)", text)


def test_a_loop_whose_rounds_are_sharded_otherwise_differs():
    mine, other = planned(as_a_loop, (1, 1, 8)), planned(as_a_loop, (1, 8, 1))
    assert "dot_general" in mine.diff(other)
    assert mine.diff(mine) == ""


def test_tensors_that_settle_elsewhere_differ():
    mine = planned(unrolled, (1, 1, 8))
    reshardings = {
        mine.graph.operators[-1].results[0]: Resharding(Placement(((), ())), "result of the last layer", fusion=3)
    }
    text = mine.diff(replace(mine.plan, reshardings=reshardings))
    assert "result of the last layer" in text
    assert "[-, -] together as 3" in text


@pytest.mark.parametrize("other", [None, 3, "plan"], ids=repr)
def test_only_plans_differ(other):
    with pytest.raises(SporaxTypeError, match="For 'diff', 'other' must be a plan"):
        planned(unrolled, (1, 1, 8)).diff(other)
