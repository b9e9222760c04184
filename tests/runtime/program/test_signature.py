"""What a program was traced for, and what is said when that changes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sporax.base.errors import SporaxTypeError
from sporax.runtime.program.variant import difference, inputs_of, is_array, sign


def signature(*args, **kwargs):
    leaves, tree = jax.tree.flatten((args, kwargs))
    return sign(leaves, tree, "net")


def test_arrays_are_described_by_shape_and_dtype_and_everything_else_by_its_value():
    first = signature(jnp.zeros((2, 3)), 4, training=True)
    assert first == signature(jnp.ones((2, 3)), 4, training=True)
    assert hash(first) == hash(signature(jnp.ones((2, 3)), 4, training=True))
    for other in (
        signature(jnp.zeros((3, 2)), 4, training=True),
        signature(jnp.zeros((2, 3), jnp.int32), 4, training=True),
        signature(jnp.zeros((2, 3)), 5, training=True),
        signature(jnp.zeros((2, 3)), 4.0, training=True),  # equal to 4, but a program computes with another type
        signature(jnp.zeros((2, 3)), 4, training=1),
        signature((jnp.zeros((2, 3)),), 4, training=True),
    ):
        assert first != other


def test_numpy_arrays_are_static_values_and_are_compared_by_their_elements():
    """A program keeps the elements it was traced with, whatever becomes of the array."""
    array = np.asarray([1, 2], np.int32)
    first = signature(array)
    array[0] = 9
    assert first == signature(np.asarray([1, 2], np.int32))
    for other in (array, np.asarray([1, 2], np.uint32), np.asarray([[1, 2]], np.int32)):
        assert first != signature(other)
    ((kept,), _) = inputs_of(first, [])
    assert kept.tolist() == [1, 2]
    assert not kept.flags.writeable


def test_arguments_are_put_together_from_a_signature_and_arrays_in_order():
    given = signature(jnp.zeros(2), "mode", {"a": jnp.zeros(3), "b": 7}, last=jnp.zeros(4))
    assert inputs_of(given, ["x", "y", "z"]) == (("x", "mode", {"a": "y", "b": 7}), {"last": "z"})


@pytest.mark.parametrize(("culprit", "name"), [({1}, "set"), (bytearray(b"ab"), "bytearray")])
def test_an_argument_that_cannot_be_compared_is_an_error_with_the_name_of_the_program(culprit, name):
    with pytest.raises(
        SporaxTypeError,
        match=f"^For 'net', an argument must be a Tensor, a number, a string or a container of these, but got {name}.$",
    ):
        signature(jnp.zeros(2), 3, culprit)


def test_the_first_difference_is_said_in_words():
    x, wide = jnp.zeros((2, 3), jnp.float32), jnp.zeros((2, 4), jnp.int32)
    assert difference(signature(x, 1), signature(wide, 2)) == "argument 0 changed from float32[2, 3] to int32[2, 4]"
    assert difference(signature(x, "a"), signature(x, "b")) == "argument 1 changed from 'a' to 'b'"
    assert difference(signature(x, 1), signature(x, np.zeros(2, np.int8))) == (
        "argument 1 changed from 1 to numpy array int8[2]"
    )
    assert difference(signature(x), signature([x, x])).startswith("structure of the arguments changed from PyTreeDef(")
    assert difference(signature(x), signature(x)) == "inputs changed"


def test_arrays_and_tracers_are_arrays_and_numpy_arrays_are_not():
    inside = []
    jax.make_jaxpr(lambda x: inside.append(is_array(x)) or x)(jnp.zeros(2))
    assert inside == [True]
    for _ in range(2):  # the answer of a type is remembered
        assert [is_array(leaf) for leaf in (jnp.zeros(2), np.zeros(2), 1.0, None)] == [True, False, False, False]
