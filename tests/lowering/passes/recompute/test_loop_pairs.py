"""Recomputation where the forward pass is one loop and the backward pass another."""

import jax
import jax.numpy as jnp
import pytest

from sporax.lowering.jax_versions import scan_numbers
from sporax.lowering.marks.tags import new_tag
from sporax.lowering.passes.recompute.recompute import PlanFacts, recompute
from sporax.lowering.rewriter import flat


@pytest.fixture
def looped():
    """``looped(tagged)``: the flat gradient of a loop over rows, and its arguments."""

    def trace(tagged, **settings):
        scope = new_tag(**settings).scope if tagged else "layer"

        def loss(weight, rows):
            def body(total, row):
                with jax.named_scope(scope):
                    inside = jnp.sin(jnp.sin(row @ weight) @ weight)
                return total + (inside**2).sum(), None

            return jax.lax.scan(body, jnp.float32(0), rows)[0]

        args = jnp.eye(4, dtype=jnp.float32), jnp.linspace(-1, 1, 24, dtype=jnp.float32).reshape(3, 2, 4)
        return flat(jax.make_jaxpr(jax.value_and_grad(loss))(*args)), args

    return trace


def stacked(program):
    """Elements that the forward loop stacks for the backward loop."""
    first = next(eqn for eqn in program.jaxpr.eqns if eqn.primitive.name == "scan")
    return sum(var.aval.size for var in first.outvars[scan_numbers(first.params)[1] :])


def test_the_backward_loop_computes_again_what_the_forward_loop_stacked(looped, same):
    program, args = looped(tagged=True)
    after, calls = recompute(program)
    assert calls
    assert stacked(after) < stacked(program)
    same(program, after, args)


def test_loops_without_tags_stay_as_they_are(looped):
    program, _ = looped(tagged=False)
    after, calls = recompute(program)
    assert calls == () and stacked(after) == stacked(program)


def test_facts_of_a_loop_are_requested_with_what_enters_it(looped):
    """The weight enters both loops as it is, the data row by row; what the facts keep is not computed again."""
    program, _ = looped(tagged=True)
    weight, rows = program.jaxpr.invars
    rounds = []

    def of_loop(joined, entering):
        rounds.append(entering)
        sines = [eqn.outvars[0] for eqn in joined.jaxpr.eqns if eqn.primitive.name == "sin"]
        return PlanFacts(saved=set(sines))

    saved, _ = recompute(program, PlanFacts(of_loop=of_loop))
    (entering,) = rounds
    assert next(entry.is_row for entry in entering if entry.atom is rows)
    assert {entry.is_row for entry in entering if entry.atom is weight} == {False}
    assert stacked(saved) > stacked(recompute(program)[0])


def test_without_a_plan_settings_of_plans_are_passed_over(looped):
    program, _ = looped(tagged=True, mp_comm_recompute=False)
    assert recompute(program)[1]
