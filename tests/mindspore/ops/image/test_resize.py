import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from operator_cases import bilinear, case, check, numbers

from sporax.mindspore import Tensor, mint, ops

X, V = numbers(2, 3, 4, 5), numbers(1, 2, 2, 3, 3)
L = numbers(2, 3, 5)

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
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_operator_equals_its_reference_formula(name):
    check(CASES[name])


@settings(max_examples=8, deadline=None)
@given(st.integers(1, 6), st.integers(1, 7), st.sampled_from(["linear", "area", "nearest"]), st.booleans())
def test_constant_rows_stay_constant(size, target, mode, align):
    """The weights of every output pixel add up to 1."""
    corners = align if mode == "linear" else None
    result = ops.interpolate(Tensor(np.full((1, 1, size), 3.0)), target, mode=mode, align_corners=corners)
    np.testing.assert_allclose(result.asnumpy(), 3)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: ops.interpolate(Tensor(X)), ValueError, "one of 'size' and 'scale_factor'"),
        (lambda: ops.interpolate(Tensor(X), 4, mode="linear"), ValueError, "dimensions"),
        (lambda: ops.interpolate(Tensor(X), 4, mode="nearest", align_corners=True), ValueError, "must be None"),
        (lambda: ops.interpolate(Tensor(X), (0, 2)), ValueError, ">= 1"),
        (lambda: ops.ResizeBilinearV2(True, True)(Tensor(X), (2, 2)), ValueError, "not both"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()
