import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from operator_cases import case, check, numbers

from sporax.mindspore import Tensor, mint, ops

A, X = numbers(2, 3, 4), numbers(2, 4, 4, 6)


def shuffled(x):
    """Pixel shuffle by 2, pixel by pixel."""
    n, c, h, w = x.shape
    result = np.zeros((n, c // 4, 2 * h, 2 * w))
    for i in range(2):
        for j in range(2):
            result[:, :, i::2, j::2] = x[:, 2 * i + j :: 4]
    return result


def depth(x):
    """Space to depth by 2, block cell by block cell."""
    return np.concatenate([x[:, :, i::2, j::2] for i in range(2) for j in range(2)], 1)


def columns(x, size, stride, pad):
    """Patches as columns, one place after the other."""
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    places = [
        x[:, :, i : i + size, j : j + size].reshape(len(x), -1)
        for i in range(0, x.shape[2] - size + 1, stride)
        for j in range(0, x.shape[3] - size + 1, stride)
    ]
    return np.stack(places, -1)


CASES = {
    "pad": case(lambda x: ops.pad(x, (1, 0, 0, 2), value=7.0), lambda x: np.pad(x, ((0, 0), (0, 2), (1, 0)), constant_values=7), A),
    "pad takes away": case(lambda x: ops.pad(x, (-1, 1)), lambda x: np.pad(x[:, :, 1:], ((0, 0), (0, 0), (0, 1))), A),
    "pad reflect": case(lambda x: ops.pad(x, [2, 1], "reflect"), lambda x: np.pad(x, ((0, 0), (0, 0), (2, 1)), "reflect"), A),
    "pad replicate": case(lambda x: ops.pad(x, Tensor([2, 1]), "replicate"), lambda x: np.pad(x, ((0, 0), (0, 0), (2, 1)), "edge"), A),
    "pad circular": case(lambda x: mint.nn.functional.pad(x, (2, 1), mode="circular"), lambda x: np.pad(x, ((0, 0), (0, 0), (2, 1)), "wrap"), A),
    "Pad": case(ops.Pad(((1, 0), (0, 2), (0, 0))), lambda x: np.pad(x, ((1, 0), (0, 2), (0, 0))), A),
    "PadV3": case(lambda x: ops.PadV3()(x, (1, 2), 3.0), lambda x: np.pad(x, ((0, 0), (0, 0), (1, 2)), constant_values=3), A),
    "PadV3 not contiguous": case(lambda x: ops.PadV3("edge", False)(x, (1, 0, 2, 1)), lambda x: np.pad(x, ((0, 0), (0, 1), (1, 2)), "edge"), A),
    "MirrorPad": case(lambda x: ops.MirrorPad("SYMMETRIC")(x, Tensor([[1, 0], [2, 1], [0, 0]])), lambda x: np.pad(x, ((1, 0), (2, 1), (0, 0)), "symmetric"), A),
    "mirror_pad": case(lambda x: ops.mirror_pad(x, ((0, 0), (2, 1), (1, 0)), "REFLECT"), lambda x: np.pad(x, ((0, 0), (2, 1), (1, 0)), "reflect"), A),
    "Padding": case(ops.Padding(3), lambda x: np.pad(x, ((0, 0), (0, 0), (0, 2))), A[..., :1]),
    "SpaceToDepth": case(ops.SpaceToDepth(2), depth, X),
    "DepthToSpace": case(lambda x: ops.DepthToSpace(2)(ops.SpaceToDepth(2)(x)), lambda x: x, X),
    "pixel_shuffle": case(lambda x: ops.pixel_shuffle(x, 2), shuffled, X),
    "pixel_unshuffle": case(lambda x: ops.pixel_unshuffle(ops.pixel_shuffle(x, 2), 2), lambda x: x, X),
    "ChannelShuffle": case(ops.ChannelShuffle(2), lambda x: x[:, [0, 2, 1, 3]], X),
    "SpaceToBatchND": case(ops.SpaceToBatchND(2, ((0, 0), (0, 0))), lambda x: np.concatenate([x[:, :, i::2, j::2] for i in range(2) for j in range(2)]), X),
    "BatchToSpaceND": case(lambda x: ops.batch_to_space_nd(ops.space_to_batch_nd(x, [2, 3], [[1, 1], [0, 0]]), [2, 3], [[1, 1], [0, 0]]), lambda x: x, X),
    "unfold": case(lambda x: ops.unfold(x, 2, stride=2, padding=1), lambda x: columns(x, 2, 2, 1), X),
    "Im2Col": case(lambda x: ops.Im2Col(3)(x), lambda x: columns(x, 3, 1, 0).reshape(2, 4, 9, -1), X),
    "fold": case(lambda x: ops.fold(ops.unfold(x, 2, stride=2), (4, 6), 2, stride=2), lambda x: x, X),
    "fold adds": case(lambda x: ops.fold(x, Tensor([2, 3]), 2), lambda x: np.array([[[[x[0, 0, 0], x[0, 1, 0] + x[0, 0, 1], x[0, 1, 1]],
                                                                                     [x[0, 2, 0], x[0, 3, 0] + x[0, 2, 1], x[0, 3, 1]]]]]), numbers(1, 4, 2)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_operator_equals_its_reference_formula(name):
    check(CASES[name])


@settings(max_examples=6, deadline=None)
@given(st.integers(1, 3), st.integers(1, 3), st.integers(0, 2), st.integers(1, 2))
def test_folding_counts_in_how_many_windows_a_pixel_was(size, stride, pad, gap):
    reach = (size - 1) * gap + 1
    settings = {"kernel_size": size, "stride": stride, "padding": pad, "dilation": gap}
    image = Tensor(np.ones((1, 1, 5 + reach, 6)))
    folded = ops.fold(ops.unfold(image, **settings), (5 + reach, 6), **settings)
    assert folded.sum().item() == ops.unfold(image, **settings).sum().item()


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: ops.pad(Tensor(A), (1,)), ValueError, "two numbers a dim"),
        (lambda: ops.pad(Tensor(A), (4, 0), "reflect"), ValueError, "at most 3 cells"),
        (lambda: ops.pad(Tensor(A), (1, 0), "mirror"), ValueError, "'mode' must be one of"),
        (lambda: ops.Pad(((1, 0),))(Tensor(A)), ValueError, "a pair for each of the 3 dims"),
        (lambda: ops.SpaceToDepth(3)(Tensor(X)), ValueError, "divisible by 3"),
        (lambda: ops.pixel_shuffle(Tensor(X), 3), ValueError, "divisible by 9"),
        (lambda: ops.unfold(Tensor(X), 7), ValueError, "does not fit"),
        (lambda: ops.fold(Tensor(numbers(1, 4, 3)), (2, 3), 2), ValueError, "2 places"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()
