"""What is tagged runs again in the backward pass: values stay, what is kept and when it runs is as tags say."""

import jax
import jax.numpy as jnp
import pytest
from jax.extend.core import Var

from sporax.ir.marks import SavedMark
from sporax.lowering.marks.mark_primitive import apply_mark
from sporax.lowering.marks.tags import KEEP, new_tag
from sporax.lowering.passes.recompute.recompute import PlanFacts, recompute, without_saved_marks
from sporax.lowering.rewriter import flat, is_backward, stack_of


def test_tagged_layers_run_again_and_give_the_same(traced, same, count):
    program, args = traced()
    after, calls = recompute(program)
    same(after, program, args)
    assert (count(program, "cos"), count(after, "cos")) == (2, 4)
    assert count(after, "sin") == 2  # results of layers are kept
    assert len(calls) == 2


def test_what_runs_again_waits_for_a_cotangent(traced):
    program, _ = traced()
    after, _ = recompute(program)
    backward = set()
    for eqn in after.jaxpr.eqns:
        if eqn.primitive.name == "optimization_barrier":
            assert backward & set(eqn.invars), "nothing of the backward pass goes through the barrier"
        if is_backward(stack_of(eqn)):
            backward.update(eqn.outvars)
    assert backward


def test_the_backward_pass_reads_the_cotangent_as_it_left_the_barrier(traced):
    """XLA takes out of a barrier what is not read behind it, and then nothing waits."""
    program, _ = traced()
    after, _ = recompute(program)
    read = {var for eqn in after.jaxpr.eqns for var in eqn.invars if isinstance(var, Var)}
    barriers = [eqn for eqn in after.jaxpr.eqns if eqn.primitive.name == "optimization_barrier"]
    assert barriers and all(read.issuperset(eqn.outvars) for eqn in barriers)


def test_a_call_says_what_it_releases_and_what_it_keeps(traced):
    program, _ = traced()
    _, calls = recompute(program)
    released = {var for call in calls for var in call.released}
    read_late = {
        var
        for eqn in program.jaxpr.eqns
        if is_backward(stack_of(eqn))
        for var in eqn.invars
        if isinstance(var, Var) and var not in program.jaxpr.invars
    }
    assert released <= read_late
    first = next(call for call in calls if "layer0" in call.stack)
    assert first.saved == ()  # it starts from an argument
    assert [eqn.primitive.name for eqn in first.again][:1] == ["dot_general"]


def test_nothing_runs_again_without_tags_and_where_a_tag_says_keep(traced, count):
    for scopes in (["a", "b"], [f"{new_tag().scope}/{KEEP.scope}"] * 2):
        program, _ = traced(scopes)
        after, calls = recompute(program)
        assert calls == ()
        assert count(after, "sin") == count(program, "sin")


def test_values_that_a_plan_wants_kept_are_kept(traced, count):
    program, _ = traced()
    products = {eqn.outvars[0] for eqn in program.jaxpr.eqns[:3] if eqn.primitive.name == "dot_general"}
    before = count(recompute(program)[0], "dot_general")
    assert count(recompute(program, PlanFacts(saved=products))[0], "dot_general") == before - 1


@pytest.mark.parametrize("saved", [True, False])
def test_marked_results_are_kept_and_the_marks_left_out(count, saved):
    def function(x):
        with jax.named_scope(new_tag().scope):
            x = jnp.sin(jnp.cos(x))
            if saved:
                (x,) = apply_mark([x], SavedMark())
        return jnp.exp(x * x).sum()

    program = flat(jax.make_jaxpr(jax.grad(function))(jnp.ones(3)))
    after, _ = recompute(program)
    assert count(after, "mark") == count(without_saved_marks(program), "mark") == 0
    assert count(after, "sin") - count(program, "sin") == (1 if saved else 2)  # one is the cosine's derivative


def test_loops_are_rewritten_inside():
    def body(x, _):
        with jax.named_scope(new_tag().scope):
            y = jnp.sin(jnp.cos(x))
        return jax.grad(lambda x: (jnp.sin(jnp.cos(x)) ** 2).sum())(x) + y, None

    program = flat(jax.make_jaxpr(lambda x: jax.lax.scan(body, x, None, length=2)[0])(jnp.ones(3)))
    (loop,) = (eqn for eqn in recompute(program)[0].jaxpr.eqns if eqn.primitive.name == "scan")
    assert len(loop.params["jaxpr"].jaxpr.eqns) > 0
