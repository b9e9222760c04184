"""Errors that depend on values are raised after the compiled program has run."""

import jax
import jax.numpy as jnp
import pytest

from sporax.runtime.state import frames, trace_constants


@jax.jit
def guarded(x):
    trace_constants.fail_when(x.sum() > 10, ValueError("too large"))
    trace_constants.fail_when(x.min() < 0, ArithmeticError("negative"))
    return x * 2


def test_a_condition_that_holds_raises_once_after_the_program():
    results = guarded(jnp.asarray([9.0, 8.0]))
    with pytest.raises(ValueError, match="too large"):
        trace_constants.raise_noted(results)
    trace_constants.raise_noted(results)  # it has been reported


def test_one_of_several_errors_of_a_run_is_raised_and_the_others_are_forgotten():
    results = guarded(jnp.asarray([20.0, -1.0]))
    with pytest.raises((ValueError, ArithmeticError)):
        trace_constants.raise_noted(results)
    trace_constants.raise_noted(guarded(jnp.asarray([1.0])))


def test_a_condition_that_does_not_hold_raises_nothing():
    results = guarded(jnp.asarray([1.0, 2.0]))
    trace_constants.raise_noted(results)
    assert results.tolist() == [2.0, 4.0]


def test_the_trace_knows_that_it_has_conditions():
    with frames.Frame(compiled=True) as frame:
        assert not frame.checks
        jax.make_jaxpr(lambda x: trace_constants.fail_when(x > 0, ValueError("positive")))(1.0)
    assert frame.checks
