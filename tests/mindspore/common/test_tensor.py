"""Tensor: construction, what it reports, conversions and protocols."""

import copy
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor
from sporax.mindspore.common.initializer import Normal, One


@pytest.mark.parametrize(
    ("value", "dtype", "shape"),
    [
        (1, ms.int64, ()),
        (1.5, ms.float32, ()),
        (True, ms.bool_, ()),
        (1j, ms.complex128, ()),
        ([1, 2.5], ms.float32, (2,)),
        ([True, 2], ms.int64, (2,)),
        ([], ms.float32, (0,)),
        (((1, 2), (3, 4)), ms.int64, (2, 2)),
        (np.ones(2), ms.float64, (2,)),
        (np.float16(3), ms.float16, ()),
        ([Tensor([1]), Tensor([2])], ms.int64, (2, 1)),
        ([np.ones(2, np.float32)] * 3, ms.float32, (3, 2)),
    ],
    ids=str,
)
def test_dtype_of_what_it_is_made_from(value, dtype, shape):
    tensor = Tensor(value)
    assert (tensor.dtype, tensor.shape) == (dtype, shape)


def test_conversion_is_that_of_c():
    np.testing.assert_array_equal(Tensor([1.7, -2.7], ms.int32).asnumpy(), [1, -2])
    np.testing.assert_array_equal(Tensor([300], ms.int8).asnumpy(), [44])
    np.testing.assert_array_equal(Tensor([2, 0], ms.bool_).asnumpy(), [True, False])
    assert Tensor(2**63).dtype == ms.uint64


def test_what_it_reports():
    tensor = Tensor(np.zeros((2, 3, 4), np.float16))
    assert (tensor.ndim, tensor.dim(), tensor.size, tensor.numel()) == (3, 3, 24, 24)
    assert (tensor.itemsize, tensor.nbytes, tensor.strides) == (2, 48, (24, 8, 2))
    assert (len(tensor), tensor.device, tensor.has_init) == (2, "CPU", False)


def test_it_owns_its_memory():
    array = np.ones(2, np.float32)
    for tensor in (Tensor(array), Tensor.from_numpy(array), ms.from_numpy(array), ms.tensor(array)):
        array[0] = 5
        assert float(tensor[0]) == 1
        tensor.asnumpy()[0] = 7
        assert float(tensor[0]) == 1
        array[0] = 1
    original = Tensor([1.0])
    twin = Tensor(original)
    twin[0] = 2
    assert float(original) == 1


def test_lazy_tensors_get_values_at_first_use():
    ms.set_seed(0)
    lazy = Tensor(shape=(2, 3), dtype=ms.float32, init=Normal())
    assert (lazy.has_init, lazy.shape, lazy.dtype) == (True, (2, 3), ms.float32)
    values = lazy.init_data().asnumpy()
    assert not lazy.has_init
    ms.set_seed(0)
    np.testing.assert_array_equal(values, (Tensor(shape=(2, 3), dtype=ms.float32, init=Normal()) + 0).asnumpy())
    np.testing.assert_array_equal(Tensor(shape=2, dtype=ms.int32, init=One()).asnumpy(), [1, 1])
    np.testing.assert_array_equal(Tensor(shape=(2,), dtype=ms.float32).asnumpy(), [0, 0])


def test_one_element_converts_to_python_numbers():
    one = Tensor([[3.5]])
    assert (float(one), int(one), bool(one), one.item(), complex(one)) == (3.5, 3, True, 3.5, 3.5 + 0j)
    assert [10, 20][Tensor(1)] == 20
    assert Tensor([[1, 2]]).tolist() == [[1, 2]]
    assert [int(entry) for entry in Tensor([1, 2])] == [1, 2]
    assert (f"{Tensor(2.5)}", str(Tensor([1.0, 2.5]))) == ("2.5", "[1.  2.5]")


def test_numpy_protocol():
    tensor = Tensor([1.0, 2.0])
    np.testing.assert_allclose(np.sin(tensor), np.sin([1, 2]))
    assert np.asarray(tensor, np.float64).dtype == np.float64
    assert isinstance(np.ones(2) * tensor, np.ndarray)


def test_dlpack_protocol():
    np.testing.assert_array_equal(np.from_dlpack(Tensor([1, 2])), [1, 2])
    assert jnp.from_dlpack(Tensor([1.5])).dtype == jnp.float32
    assert "dltensor" in repr(Tensor([1.5]).to_dlpack())
    for given in (np.arange(6.0).reshape(2, 3), np.array([1, 2], np.int8), jnp.ones(2, jnp.bfloat16), Tensor([1.5])):
        taken = Tensor.from_dlpack(given)
        assert taken.dtype == Tensor(given).dtype
        np.testing.assert_array_equal((taken * 1).asnumpy(), np.asarray(given))
    with pytest.raises(TypeError, match="must be an array with '__dlpack__', but got PyCapsule"):
        Tensor.from_dlpack(Tensor([1.5]).to_dlpack())


def test_jax_sees_a_tree_with_one_array():
    leaves, tree = jax.tree.flatten({"x": Tensor([1.0]), "y": 2})
    assert [type(leaf).__name__ for leaf in leaves] == ["ArrayImpl", "int"]
    assert isinstance(jax.tree.unflatten(tree, leaves)["x"], Tensor)
    assert isinstance(jax.jit(lambda t: t * 2)(Tensor([1.0])), Tensor)
    assert float(jnp.sum(Tensor([1.0, 2.0]).array)) == 3


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))])
@pytest.mark.parametrize("dtype", [ms.float32, ms.bfloat16, ms.bool_])
def test_copies_are_apart(duplicate, dtype):
    tensor = Tensor([1, 0], dtype)
    twin = duplicate(tensor)
    assert twin.dtype == dtype
    np.testing.assert_array_equal(twin.asnumpy(), tensor.asnumpy())
    if duplicate is not copy.copy:
        twin[0] = 0
        assert bool(tensor[0])


def test_changes_in_place():
    tensor = Tensor([1.0, 2.0])
    same = tensor
    tensor[0] += 5
    assert tensor.assign_value(Tensor([7, 8])) is tensor
    assert tensor.set_dtype(ms.float16) == ms.float16
    np.testing.assert_array_equal(same.asnumpy(), [7, 8])
    tensor += 1  # a new Tensor
    np.testing.assert_array_equal(same.asnumpy(), [7, 8])


def test_repr_is_that_of_mindspore():
    assert repr(Tensor([1.0, 2.5])) == "Tensor(shape=[2], dtype=Float32, value= [ 1.00000000e+00,  2.50000000e+00])"
    assert repr(Tensor([[1, -2]])) == "Tensor(shape=[1, 2], dtype=Int64, value=\n[[ 1, -2]])"
    assert repr(Tensor(True)) == "Tensor(shape=[], dtype=Bool, value= True)"
    assert repr(Tensor([1.5, 2], ms.bfloat16)) == "Tensor(shape=[2], dtype=BFloat16, value= [1.5,   2])"
    assert " ... " in repr(Tensor(np.zeros(2000)))
    seen = []
    ms.jit(lambda x: seen.append(repr(x)) or x)(Tensor([1.0]))
    assert seen[0] == "Tensor(shape=[1], dtype=Float32, value=<traced 0>)"


def test_it_hashes_by_identity():
    one, other = Tensor([1.0]), Tensor([1.0])
    assert {one: 1, other: 2}[one] == 1
    assert hash(one) == hash(one)


ERRORS = [
    (lambda: Tensor("a"), TypeError, "got type 'str'"),
    (lambda: Tensor(), TypeError, "got type 'NoneType'"),
    (lambda: Tensor([[1], [1, 2]]), TypeError, "ragged"),
    (lambda: Tensor(["a"]), TypeError, "must be numbers, but got 'a'"),
    (lambda: Tensor([1], np.float32), TypeError, "the 'dtype' should be one of"),
    (lambda: Tensor(shape=(2,), init=One()), ValueError, "init, dtype and shape must have values at the same time"),
    (lambda: Tensor([1.0], ms.float32, (1,), One()), ValueError, "and input_data none"),
    (lambda: Tensor(shape=(2,), dtype=ms.float32, init="ones"), TypeError, "must be an Initializer, but got str"),
    (lambda: Tensor([1.0]).init_data(), TypeError, "must have been created with 'init'"),
    (lambda: Tensor.from_numpy([1]), TypeError, "must be a numpy array, but got list"),
    (lambda: bool(Tensor([1, 2])), ValueError, r"only one element.*shape \(2,\)"),
    (lambda: Tensor([1, 2]).item(), ValueError, "only one element"),
    (lambda: len(Tensor(1)), TypeError, "0-D tensor"),
    (lambda: list(Tensor(1)), TypeError, "0-D tensor"),
    (lambda: [0, 1][Tensor(1.0)], TypeError, "must hold an integer, but its dtype is Float32"),
    (lambda: f"{Tensor(1.0):.2f}", TypeError, r"must be empty, but got '\.2f'"),
    (lambda: Tensor([1.0]).nothing, AttributeError, "has no attribute 'nothing'"),
    (
        lambda: ms.jit(lambda x: complex(x))(Tensor([1.0])),
        TypeError,
        "For 'complex', the value of this tensor is not known",
    ),
]


@pytest.mark.parametrize(("call", "kind", "message"), ERRORS)
def test_arguments_that_do_not_fit_are_refused(call, kind, message):
    with pytest.raises(kind, match=message):
        call()
