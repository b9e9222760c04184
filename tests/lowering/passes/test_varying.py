"""Labels of values that differ from rank to rank, through calls, branches and loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import Mesh, PartitionSpec

from sporax.ir.marks import GradientMark, RowsMark
from sporax.lowering.marks.mark_primitive import apply_mark, mark_read
from sporax.lowering.passes.varying import DIFFERENT, EQUAL, GRADIENT, NUMBER, labels_of_results


def labels(function, *given, reads=None):
    """Labels of the results of `function` of arrays (4,) with these labels, on two ranks."""
    mesh, spec = Mesh(np.array(jax.devices()[:2]), ("rank",)), PartitionSpec()
    mapped = jax.shard_map(function, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
    (eqn,) = jax.make_jaxpr(mapped)(*(jnp.ones(4) for _ in given)).jaxpr.eqns
    jaxpr = eqn.params["jaxpr"]
    known = [EQUAL] * (len(jaxpr.invars) - len(given))
    return labels_of_results(jaxpr, [*known, *given], reads or {})


def test_only_what_depends_on_it_differs():
    assert labels(lambda x, w: (x * w, w + 1, x.argmax() * 0), DIFFERENT, EQUAL) == [DIFFERENT, EQUAL, DIFFERENT]


def test_what_is_made_of_numbers_alone_is_distinguished_from_rows():
    def function(x, w):
        total = x.sum()
        losses = jnp.stack([total, (x * w).mean(), jnp.float32(1)])
        return losses, total * w, jax.jit(jnp.square)(losses), total + x, total > 0, jnp.where(total > 0, w, -w)

    assert labels(function, DIFFERENT, EQUAL) == [NUMBER, NUMBER, NUMBER, DIFFERENT, DIFFERENT, DIFFERENT]
    assert labels(function, GRADIENT, EQUAL) == [GRADIENT] * 6


@pytest.mark.parametrize("combine", [lax.psum, lax.pmax, lax.pmin, lax.pmean, lax.all_gather])
def test_a_collective_over_all_ranks_makes_equal(combine):
    assert labels(lambda x: combine(x, "rank") * 2, DIFFERENT) == [EQUAL]


def test_parts_of_ranks_and_their_places_differ():
    def function(w):
        part = lax.psum_scatter(w, "rank", tiled=True)
        return part, lax.axis_index("rank"), lax.ppermute(w, "rank", [(0, 1)])

    assert labels(function, EQUAL) == [DIFFERENT] * 3
    assert labels(lambda x: lax.psum(x, "rank", axis_index_groups=[[0], [1]]), DIFFERENT) == [DIFFERENT]


def test_calls_with_rules_of_their_own():
    @jax.custom_vjp
    def rule(x, w):
        return x + 1, w + 1

    rule.defvjp(lambda x, w: (rule(x, w), None), lambda _, g: g)
    inner = jax.jit(lambda x, w: rule(x, w))
    assert labels(inner, DIFFERENT, EQUAL) == [DIFFERENT, EQUAL]
    assert labels(jax.checkpoint(lambda x, w: (jnp.sin(x), jnp.sin(w))), DIFFERENT, EQUAL) == [DIFFERENT, EQUAL]


def test_branches_differ_with_their_choice_or_their_values():
    def function(choice, x, w):
        return lax.cond(choice.sum() > 0, lambda a, b: (a, b), lambda a, b: (a * 2, b * 2), x, w)

    assert labels(function, EQUAL, DIFFERENT, EQUAL) == [DIFFERENT, EQUAL]
    assert labels(function, DIFFERENT, EQUAL, EQUAL) == [DIFFERENT, DIFFERENT]


def test_loops_carry_a_difference_on_until_all_have_it():
    def scanned(x, w):
        # The difference reaches the third value in the second round, the sum over ranks never.
        def body(carry, _):
            first, second, third, _total = carry
            return (first, first + second, second + third, lax.psum(first, "rank")), third

        return lax.scan(body, (x, w, w, w), None, 3)

    assert labels(scanned, DIFFERENT, EQUAL) == [DIFFERENT, DIFFERENT, DIFFERENT, EQUAL, DIFFERENT]

    def repeated(x, w):
        return lax.while_loop(lambda c: c[0].sum() < 9, lambda c: (c[0] + 1, c[1] + 1), (x, w))

    assert labels(repeated, EQUAL, EQUAL) == [EQUAL, EQUAL]
    # Another number of rounds on each rank.
    assert labels(repeated, DIFFERENT, EQUAL) == [DIFFERENT, DIFFERENT]


def test_gradients_keep_their_label_until_they_are_combined():
    def function(x, w):
        of_data, of_weights = apply_mark([x, w], GradientMark(("a", "b"), (1, 1)))
        return of_data * 2, lax.psum(of_data, "rank"), of_weights, apply_mark([w], RowsMark())[0]

    assert labels(function, DIFFERENT, EQUAL) == [GRADIENT, EQUAL, EQUAL, DIFFERENT]


def test_variables_that_differ_are_known_by_number():
    def function(x):
        return x + mark_read(jnp.ones(4), 0), mark_read(jnp.ones(4), 1) * 2

    assert labels(function, EQUAL, reads={1: DIFFERENT}) == [EQUAL, DIFFERENT]
