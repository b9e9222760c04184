"""Deformable convolution against an ordinary one and against a sum over taps."""

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, ops

RANDOM = np.random.default_rng(3)


def reference(x, weight, offsets, strides, pads, dilations, groups):
    """By the formula: for each output pixel and tap, a bilinear sample."""
    n, c, h, w = x.shape
    out, _, kh, kw = weight.shape
    rows, columns = offsets.shape[2:]
    shifts = offsets.reshape(n, 3, groups, kh, kw, rows, columns)
    result = np.zeros((n, out, rows, columns))
    for b, o, r, q, k, i, j in np.ndindex(n, out, rows, columns, c, kh, kw):
        across, down, factor = shifts[b, :, k // (c // groups), i, j, r, q]
        y = r * strides[2] - pads[0] + i * dilations[2] + down
        z = q * strides[3] - pads[2] + j * dilations[3] + across
        for yy in (int(np.floor(y)), int(np.floor(y)) + 1):
            for zz in (int(np.floor(z)), int(np.floor(z)) + 1):
                if 0 <= yy < h and 0 <= zz < w:
                    sample = x[b, k, yy, zz] * (1 - abs(y - yy)) * (1 - abs(z - zz))
                    result[b, o, r, q] += weight[o, k, i, j] * sample * factor
    return result


@pytest.mark.parametrize(
    ("strides", "pads", "dilations", "groups", "size"),
    [((1, 1, 1, 1), (0, 0, 0, 0), (1, 1, 1, 1), 1, (4, 5)), ((1, 1, 2, 1), (1, 1, 0, 2), (1, 1, 1, 2), 2, (3, 5))],
)
def test_it_is_the_sum_over_taps(strides, pads, dilations, groups, size):
    x = RANDOM.normal(size=(1, 2, 5, 7)).astype(np.float32)
    weight = RANDOM.normal(size=(2, 2, 2, 3)).astype(np.float32)
    offsets = RANDOM.normal(size=(1, 3 * groups * 6, *size)).astype(np.float32)
    output = ops.deformable_conv2d(
        Tensor(x), Tensor(weight), Tensor(offsets), (2, 3), strides, pads, None, dilations, 1, groups
    )
    np.testing.assert_allclose(
        output.asnumpy(), reference(x, weight, offsets, strides, pads, dilations, groups), rtol=1e-4, atol=1e-4
    )


def test_without_offsets_it_is_a_convolution_with_gradients():
    x, weight = (
        Tensor(RANDOM.normal(size=(2, 3, 6, 6)), ms.float32),
        Tensor(RANDOM.normal(size=(4, 3, 3, 3)), ms.float32),
    )
    offsets = np.zeros((2, 27, 4, 4), np.float32)
    offsets[:, 18:] = 1
    settings = ((3, 3), (1, 1, 1, 1), (0, 0, 0, 0), Tensor(np.ones(4, np.float32)))
    output = ops.deformable_conv2d(x, weight, Tensor(offsets), *settings)
    np.testing.assert_allclose(output.asnumpy(), ops.conv2d(x, weight).asnumpy() + 1, rtol=1e-4, atol=1e-4)
    by_weight, by_offsets = ms.grad(lambda w, o: ops.deformable_conv2d(x, w, o, *settings).sum(), (0, 1))(
        weight, Tensor(offsets + 0.25)
    )
    assert by_weight.shape == weight.shape and np.abs(by_offsets.asnumpy()).max() > 0


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"strides": [1, 1, 1, 1]}, TypeError),
        ({"strides": (1, 1)}, ValueError),
        ({"dilations": (2, 1, 1, 1)}, ValueError),
        ({"modulated": False}, NotImplementedError),
        ({"offsets": Tensor(np.ones((1, 27, 3, 3), np.float32))}, ValueError),
    ],
)
def test_what_does_not_fit_is_refused(change, kind):
    settings = {
        "x": Tensor(np.ones((1, 3, 6, 6), np.float32)), "weight": Tensor(np.ones((4, 3, 3, 3), np.float32)),
        "offsets": Tensor(np.ones((1, 27, 4, 4), np.float32)), "kernel_size": (3, 3), "strides": (1, 1, 1, 1),
        "padding": (0, 0, 0, 0),
    }  # fmt: skip
    with pytest.raises(kind, match="^For '"):
        ops.deformable_conv2d(**{**settings, **change})
