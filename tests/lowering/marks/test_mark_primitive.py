"""Marks are identities that survive tracing and differentiation."""

import jax
import jax.numpy as jnp
import numpy as np

from sporax.ir.marks import DerivativeMark, OperatorMark, Side
from sporax.lowering.marks.mark_primitive import apply_mark, mark_p

MARK = OperatorMark("MatMul", 7, Side.IN, ((2, 1),), None, ())


def marks_of(function, *arrays):
    return [eqn.params["mark"] for eqn in jax.make_jaxpr(function)(*arrays).eqns if eqn.primitive is mark_p]


def test_a_mark_changes_no_value_and_stays_in_the_program():
    x = jnp.arange(3.0)
    np.testing.assert_array_equal(apply_mark([x], MARK)[0], x)
    assert marks_of(lambda x: apply_mark([x], MARK), x) == [MARK]


def test_a_cotangent_finds_the_mark_of_its_tensor():
    def loss(x):
        return jnp.square(apply_mark([x], MARK)[0]).sum()

    np.testing.assert_array_equal(jax.grad(loss)(jnp.arange(3.0)), [0, 2, 4])
    marks = marks_of(jax.grad(loss), jnp.arange(3.0))
    assert any(isinstance(mark, DerivativeMark) and mark.of == MARK for mark in marks)


def test_without_tensors_there_is_no_mark():
    assert apply_mark([], MARK) == []
