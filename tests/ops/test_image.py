import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from operator_cases import case, check, numbers

from sporax import Tensor, mint, ops

X, V = numbers(2, 3, 4, 5), numbers(1, 2, 2, 3, 3)
L = numbers(2, 3, 5)
GRID = numbers(2, 2, 3, 2, low=-0.9, high=0.9)
BOXES = np.array([[0.0, 0, 4, 4], [2, 1, 6, 7]])


def linear(x, axis, size, align):
    """Interpolation along one dimension with numpy, coordinates limited to the pixels."""
    old = x.shape[axis]
    at = np.linspace(0, old - 1, size) if align else np.clip((np.arange(size) + 0.5) * old / size - 0.5, 0, old - 1)
    return np.apply_along_axis(lambda row: np.interp(at, np.arange(old), row), axis, x)


def bilinear(x, size, align=False):
    for axis, each in zip(range(2, x.ndim), size, strict=True):
        x = linear(x, axis, each, align)
    return x


CASES = {
    "interpolate linear": case(lambda x: ops.interpolate(x, 7, mode="linear"), lambda x: bilinear(x, (7,)), L),
    "interpolate bilinear": case(lambda x: ops.interpolate(x, (7, 3), mode="bilinear"), lambda x: bilinear(x, (7, 3)), X),
    "interpolate align": case(lambda x: mint.nn.functional.interpolate(x, (7, 3), mode="bilinear", align_corners=True), lambda x: bilinear(x, (7, 3), True), X),
    "interpolate trilinear": case(lambda x: ops.upsample(x, (3, 4, 2), mode="trilinear"), lambda x: bilinear(x, (3, 4, 2)), V),
    "interpolate nearest": case(lambda x: ops.interpolate(x, (8, 10)), lambda x: x.repeat(2, 2).repeat(2, 3), X),
    "interpolate by a factor": case(lambda x: ops.interpolate(x, scale_factor=2.0, mode="nearest"), lambda x: x.repeat(2, 2).repeat(2, 3), X),
    "interpolate area": case(lambda x: ops.interpolate(x, (2, 5), mode="area"), lambda x: x.reshape(2, 3, 2, 2, 5).mean(3), X),
    "interpolate bicubic": case(lambda x: ops.interpolate(x, (4, 5), mode="bicubic"), lambda x: x, X),
    "ResizeBilinear": case(ops.ResizeBilinear((7, 3), True), lambda x: bilinear(x, (7, 3), True), X),
    "ResizeBilinearV2": case(lambda x: ops.ResizeBilinearV2(half_pixel_centers=True)(x, (7, 3)), lambda x: bilinear(x, (7, 3)), X),
    "ResizeNearestNeighbor": case(ops.ResizeNearestNeighbor((8, 10)), lambda x: x.repeat(2, 2).repeat(2, 3), X),
    "ResizeBicubic align": case(lambda x: ops.ResizeBicubic(True)(x, (4, 5)), lambda x: x, X),
    "grid_sample": case(lambda x, g: ops.grid_sample(x, g, align_corners=True), None, X, GRID),
    "grid_sample border": case(lambda x, g: ops.grid_sample(x, 2 * g, padding_mode="border"), None, X, GRID),
    "grid_sample reflection": case(lambda x, g: ops.grid_sample(x, 2 * g, padding_mode="reflection"), None, X, GRID),
    "grid_sample 3d": case(ops.GridSampler3D(), None, V, numbers(1, 2, 2, 2, 3, low=-0.9, high=0.9)),
    "identity grid": case(lambda x: ops.grid_sample(x, ops.affine_grid(Tensor(np.tile(np.eye(2, 3), (2, 1, 1))), X.shape)), lambda x: x, X),
    "affine_grid": case(lambda t: ops.affine_grid(t, (1, 1, 2, 3, 2), True), None, numbers(1, 3, 4)),
    "CropAndResize whole": case(lambda x: ops.CropAndResize()(x, Tensor([[0.0, 0, 1, 1]]), Tensor([0]), (7, 9)),
                                lambda x: bilinear(x.transpose(0, 3, 1, 2), (7, 9), True).transpose(0, 2, 3, 1).astype(np.float32), numbers(1, 4, 5, 2), grad=False),
    "ROIAlign": case(lambda x: ops.ROIAlign(2, 2, 0.5)(x, Tensor(np.array([[1.0, 1, 0, 5, 6]]))), None, X),
    "IOU": case(ops.IOU(), lambda a, b: np.array([[1.0, 12 / 48], [12 / 48, 1.0]]), BOXES, BOXES, grad=False),
    "BoundingBoxEncode": case(ops.BoundingBoxEncode(), None, BOXES, BOXES + numbers(2, 4, low=0, high=1)),
    "BoundingBoxDecode": case(lambda a, d: ops.BoundingBoxDecode((100, 100))(a, ops.BoundingBoxEncode()(a, d)), lambda a, d: d, BOXES, BOXES + 1.3),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_case(name):
    check(CASES[name])


@settings(max_examples=8, deadline=None)
@given(st.integers(1, 6), st.integers(1, 7), st.sampled_from(["linear", "area", "nearest"]), st.booleans())
def test_constant_rows_stay_constant(size, target, mode, align):
    """The weights of every output pixel add up to 1."""
    corners = align if mode == "linear" else None
    result = ops.interpolate(Tensor(np.full((1, 1, size), 3.0)), target, mode=mode, align_corners=corners)
    np.testing.assert_allclose(result.asnumpy(), 3)


def test_a_crop_outside_is_extrapolated():
    x = Tensor(np.ones((1, 2, 2, 1), np.float32))
    out = ops.crop_and_resize(x, Tensor([[0.0, 0.0, 2.0, 1.0]]), Tensor([0]), (3, 1), extrapolation_value=5.0)
    assert out.reshape(-1).tolist() == [1, 1, 5]


def test_overlapping_boxes_are_dropped():
    boxes = Tensor([[5.0, 5, 6, 6, 0.7], [0, 0, 4, 4, 0.9], [1, 1, 4, 4, 0.8]])
    ranked, order, kept = ops.NMSWithMask(0.3)(boxes)
    assert order.tolist() == [1, 2, 0] and kept.tolist() == [True, False, True]
    assert ranked[0].tolist() == boxes[1].tolist()


def test_valid_boxes():
    boxes = Tensor([[0.0, 0, 9.5, 5], [0, 0, 9, 9], [1, 1, 2, 9.5], [-1, 0, 3, 3]])
    assert ops.check_valid(boxes, Tensor([10.0, 10, 1])).tolist() == [False, True, False, False]


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: ops.interpolate(Tensor(X)), ValueError, "one of 'size' and 'scale_factor'"),
        (lambda: ops.interpolate(Tensor(X), 4, mode="linear"), ValueError, "dimensions"),
        (lambda: ops.interpolate(Tensor(X), 4, mode="nearest", align_corners=True), ValueError, "must be None"),
        (lambda: ops.interpolate(Tensor(X), (0, 2)), ValueError, ">= 1"),
        (lambda: ops.ResizeBilinearV2(True, True)(Tensor(X), (2, 2)), ValueError, "not both"),
        (
            lambda: ops.crop_and_resize(Tensor(X), Tensor(BOXES), Tensor([0, 0]), (2, 2), "bilinear_v2"),
            NotImplementedError,
            "not offered",
        ),
        (lambda: ops.ROIAlign(2, 2, 0.5, 0)(Tensor(X), Tensor(numbers(1, 5))), NotImplementedError, "'sample_num'"),
        (lambda: ops.iou(Tensor(BOXES), Tensor(BOXES[:, :3])), ValueError, r"\(n, 4\)"),
        (lambda: ops.grid_sample(Tensor(X), Tensor(GRID[:1])), ValueError, "needs a 'grid'"),
    ],
)
def test_refusals(call, error, words):
    with pytest.raises(error, match=words):
        call()
