"""Masks of bits and padded permutations; MindSpore has kernels for them on Ascend (and GPUs) only."""

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, ops


@pytest.fixture(autouse=True)
def _seed():
    ms.set_seed(7)


def test_a_mask_has_pieces_of_128_bits_and_its_ones_are_kept(mode):
    x = Tensor(np.arange(1, 601, dtype=np.float32).reshape(3, 200))
    mask = ops.DropoutGenMask()((3, 200), Tensor(0.8, ms.float32))
    assert mask.dtype == ms.uint8 and mask.shape == (80,)
    bits = np.unpackbits(mask.asnumpy(), bitorder="little")
    assert not bits[600:].any() and 430 < bits.sum() < 530
    result = ops.DropoutDoMask()(x, mask, Tensor(0.8, ms.float32))
    np.testing.assert_allclose(result.asnumpy(), x.asnumpy() * bits[:600].reshape(3, 200) / 0.8, rtol=1e-6)
    gradient = ms.grad(lambda x: ops.DropoutDoMask()(x, mask, 0.5).sum())(x)
    np.testing.assert_allclose(gradient.asnumpy(), bits[:600].reshape(3, 200) * 2.0)


def test_masks_follow_their_seeds():
    first, again, other = (ops.DropoutGenMask(*seeds)((256,), 0.5).asnumpy() for seeds in ((3, 1), (3, 1), (4, 1)))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    draw = ops.DropoutGenMask()
    assert not np.array_equal(draw((256,), 0.5).asnumpy(), draw((256,), 0.5).asnumpy())


def test_a_permutation_is_filled_up():
    result = ops.Randperm(max_length=6, pad=-3)(Tensor([4], ms.int32))
    assert result.dtype == ms.int32 and sorted(result.asnumpy()[:4].tolist()) == [0, 1, 2, 3]
    assert result.asnumpy()[4:].tolist() == [-3, -3]
    inside = ms.jit(lambda n: ops.Randperm(5, dtype=ms.int64)(n))(Tensor([5], ms.int32))
    assert inside.dtype == ms.int64 and sorted(inside.asnumpy().tolist()) == [0, 1, 2, 3, 4]
    orders = {tuple(ops.Randperm(8)(8).asnumpy().tolist()) for _ in range(5)}
    assert len(orders) > 1


def test_wrong_arguments_are_refused():
    with pytest.raises(TypeError, match="For 'DropoutGenMask', the type of 'Seed0' should be 'int'"):
        ops.DropoutGenMask(1.5)
    mask = ops.DropoutGenMask()((4,), 0.5)
    with pytest.raises(ValueError, match="a bit for each of the 200 elements"):
        ops.DropoutDoMask()(Tensor(np.ones(200, np.float32)), mask, 0.5)
    with pytest.raises(TypeError, match="'mask' must be uint8"):
        ops.DropoutDoMask()(Tensor([1.0]), Tensor([1]), 0.5)
    with pytest.raises(ValueError, match=r"'n' must be in \[0, 3\]"):
        ops.Randperm(3)(Tensor([4]))
    with pytest.raises(ValueError, match="'max_length' must be int and must > 0"):
        ops.Randperm(0)
