"""Variables that a trace read become arguments of the traced program."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxpr_as_fun

from sporax.lowering.marks.mark_primitive import mark_read, with_arguments

A, B = jnp.asarray([1.0, 2.0]), jnp.asarray([[3.0], [4.0]])
X = jnp.asarray([10.0, 20.0])


def test_marked_values_become_the_first_arguments_in_the_requested_order(lines):
    def step(x):
        return mark_read(A, 4) * x, jnp.sum(mark_read(B, 7)) + mark_read(A, 4)

    program = with_arguments(jax.make_jaxpr(step)(X), [7, 4], [B, A])
    assert [var.aval.shape for var in program.jaxpr.invars] == [(2, 1), (2,), (2,)]
    assert lines(program) == ["in a b c", "d = mul b c", "e = reduce_sum a", "f = add e b", "out d f"]
    product, total = jaxpr_as_fun(program)(B + 1, A + 1, X)  # other values than those of the trace
    np.testing.assert_array_equal(product, [20, 60])
    np.testing.assert_array_equal(total, [11, 12])


def test_values_of_the_trace_do_not_stay_alive_and_other_constants_do():
    table = jnp.arange(2.0)
    program = with_arguments(jax.make_jaxpr(lambda x: mark_read(A, 0) * x + table)(X), [0], [A])
    (constant,) = program.consts
    np.testing.assert_array_equal(constant, table)


def test_what_is_only_written_is_an_argument_too_and_what_is_returned_as_it_is_needs_no_equation():
    program = with_arguments(jax.make_jaxpr(lambda x: [mark_read(A, 0)])(X), [0, 1], [A, B])
    first, unread, _ = program.jaxpr.invars
    assert unread.aval.shape == B.shape
    assert (program.jaxpr.eqns, program.jaxpr.outvars) == ([], [first])


def test_reads_in_calls_are_found_and_reads_in_loops_and_branches_are_refused():
    def read(x):
        return mark_read(A, 0) + x

    def branched(x):
        return jax.lax.cond(x[0] > 0, read, jnp.abs, x)

    def looped(x):
        return jax.lax.fori_loop(0, 3, lambda _, carry: branched(carry), x)

    def program(function):
        return with_arguments(jax.make_jaxpr(function)(X), [0], [A])

    np.testing.assert_array_equal(jaxpr_as_fun(program(jax.jit(read)))(A * 2, X)[0], [12, 24])
    assert program(branched) is None
    assert program(looped) is None


@pytest.mark.parametrize(("shape", "dtype"), [((2, 1), "float32"), ((2,), "float16")])
def test_an_argument_of_another_kind_than_was_read_is_refused(shape, dtype):
    closed = jax.make_jaxpr(lambda x: mark_read(A, 0) + x)(X)
    assert with_arguments(closed, [0], [SimpleNamespace(shape=shape, dtype=np.dtype(dtype))]) is None


def test_a_weakly_typed_value_is_refused():
    """As an argument it would have a type of its own, and results another dtype."""
    weak = jnp.asarray(2.0)
    assert weak.weak_type
    half = jnp.ones(2, jnp.float16)
    assert with_arguments(jax.make_jaxpr(lambda x: mark_read(weak, 0) * x)(half), [0], [weak]) is None
