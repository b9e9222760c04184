import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Parameter, Tensor, mint, ops
from sporax.mindspore.ops import aliases


@pytest.mark.parametrize("name", sorted(aliases._FUNCTION_ALIASES))
def test_every_alias_is_there(name):
    assert getattr(ops, name).__doc__ == getattr(ops, aliases._FUNCTION_ALIASES[name]).__doc__


def test_some_aliases():
    x = Tensor([-0.5, 0.25])
    assert ops.absolute(x).tolist() == [0.5, 0.25]
    assert ops.floor_divide(input=Tensor([7]), other=Tensor([2])).tolist() == [3]
    assert ops.TensorAdd()(x, x).tolist() == [-1, 0.5]
    assert mint.divide(x, 0.25).tolist() == [-2, 1]
    assert ops.Pack()((x, x)).shape == (2, 2)


IN_PLACE = {
    "add_": (2.0,), "sub_": (2.0,), "mul_": (2.0,), "div_": (2.0,), "floor_divide_": (2.0,), "remainder_": (2.0,),
    "exp_": (), "log_": (), "floor_": (), "sign_": (), "sigmoid_": (), "tanh_": (), "clamp_": (0.5, 2.0),
}  # fmt: skip


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place(name):
    values, arguments = np.array([0.5, 1.5, 2.5], np.float32), IN_PLACE[name]
    x = Tensor(values)
    expected = getattr(Tensor(values), name.rstrip("_"))(*arguments)
    assert getattr(x, name)(*arguments) is x
    np.testing.assert_allclose(x.asnumpy(), expected.asnumpy())
    assert x.dtype == ms.float32


def test_in_place_keeps_the_dtype_and_parameters():
    counts = Tensor([1, 2], ms.int32)
    counts.mul_(2.5)
    assert counts.dtype == ms.int32 and counts.tolist() == [2, 5]
    parameter = Parameter(Tensor([1.0]), name="p")
    ms.jit(lambda: parameter.add_(1))()
    assert parameter.tolist() == [2] and parameter.name == "p"


def test_methods_with_words_of_their_own():
    x = Tensor([[1.0, 2.0]])
    assert x.new_zeros((2,)).tolist() == [0, 0] and x.new_ones((1,), dtype=ms.int32).dtype == ms.int32
    assert x.new_full((1,), 3).dtype == ms.float32
    assert x.mT.shape == (2, 1) and x.contiguous() is x and x.is_contiguous() and x.is_signed()
    assert x.argmin_with_value(1)[1].tolist() == [0]
    assert x.zero_().tolist() == [[0, 0]] and x.fill_(4).tolist() == [[4, 4]]
    assert x.copy_(Tensor([7])).tolist() == [[7, 7]] and x.dtype == ms.float32


def test_elements_are_written_in_place():
    x = Tensor([[1.0, 2, 3], [4, 5, 6]])
    assert x.index_copy_(1, Tensor([2, 0]), Tensor([[7.0, 8], [9, 10]])) is x
    assert x.asnumpy().tolist() == [[8, 2, 7], [10, 5, 9]]
    assert x.put_(Tensor([0, 5]), Tensor([1.0, 2.0])).asnumpy().tolist() == [[1, 2, 7], [10, 5, 2]]
    assert x.put_(Tensor([0, 0]), Tensor([1.0, 2.0]), accumulate=True).asnumpy()[0, 0] == 4
    assert x.scatter_add_(0, Tensor([[0, 0], [0, 1]]), Tensor([[1.0, 2, 9], [3, 4, 9]])).asnumpy().tolist() == [
        [8, 4, 7],
        [10, 9, 2],
    ]
    with pytest.raises(ValueError, match="For 'scatter_add_'"):
        x.scatter_add_(2, Tensor([[0]]), x)
    with pytest.raises(TypeError, match="For 'put_'"):
        x.put_(Tensor([0.5]), x)


def test_bytes_of_a_tensor():
    x = Tensor([1.0, 2.0])
    assert x.get_bytes() == b"\x00\x00\x80?\x00\x00\x00@"
    assert x.data_sync(True) is None
    assert x.data_ptr() != 0


@pytest.mark.parametrize("value", [(Tensor([1.0]), Tensor([2, 3])), [Tensor([1.0])], Tensor([1.0]), 3, "s", None])
def test_identity_gives_what_it_is_given(mode, value):
    from sporax.mindspore.ops import functional

    assert functional.identity is ops.identity
    assert ops.identity(value) is value


def test_identity_is_the_gradient_reducer_of_one_device(mode):
    weights = [Parameter(Tensor([float(number), 1.0]), name=f"w{number}") for number in range(2)]
    step = ms.value_and_grad(lambda x: (x * weights[0] * weights[1]).sum(), None, weights)

    @ms.jit
    def reduced(x):
        _, gradients = step(x)
        return ops.identity(gradients)

    first, second = reduced(Tensor([2.0, 3.0]))
    assert (first.tolist(), second.tolist()) == ([2, 3], [0, 3])
