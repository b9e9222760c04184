import numpy as np
import pytest
from operator_cases import bilinear, case, check, numbers

from sporax.mindspore import Tensor, ops

X, V = numbers(2, 3, 4, 5), numbers(1, 2, 2, 3, 3)
GRID = numbers(2, 2, 3, 2, low=-0.9, high=0.9)
BOXES = np.array([[0.0, 0, 4, 4], [2, 1, 6, 7]])

CASES = {
    "grid_sample": case(lambda x, g: ops.grid_sample(x, g, align_corners=True), None, X, GRID),
    "grid_sample border": case(lambda x, g: ops.grid_sample(x, 2 * g, padding_mode="border"), None, X, GRID),
    "grid_sample reflection": case(lambda x, g: ops.grid_sample(x, 2 * g, padding_mode="reflection"), None, X, GRID),
    "grid_sample 3d": case(ops.GridSampler3D(), None, V, numbers(1, 2, 2, 2, 3, low=-0.9, high=0.9)),
    "identity grid": case(lambda x: ops.grid_sample(x, ops.affine_grid(Tensor(np.tile(np.eye(2, 3), (2, 1, 1))), X.shape)), lambda x: x, X),
    "affine_grid": case(lambda t: ops.affine_grid(t, (1, 1, 2, 3, 2), True), None, numbers(1, 3, 4)),
    "CropAndResize whole": case(lambda x: ops.CropAndResize()(x, Tensor([[0.0, 0, 1, 1]]), Tensor([0]), (7, 9)),
                                lambda x: bilinear(x.transpose(0, 3, 1, 2), (7, 9), True).transpose(0, 2, 3, 1).astype(np.float32), numbers(1, 4, 5, 2), grad=False),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_operator_equals_its_reference_formula(name):
    check(CASES[name])


def test_a_crop_outside_is_extrapolated():
    x = Tensor(np.ones((1, 2, 2, 1), np.float32))
    out = ops.crop_and_resize(x, Tensor([[0.0, 0.0, 2.0, 1.0]]), Tensor([0]), (3, 1), extrapolation_value=5.0)
    assert out.reshape(-1).tolist() == [1, 1, 5]


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (
            lambda: ops.crop_and_resize(Tensor(X), Tensor(BOXES), Tensor([0, 0]), (2, 2), "bilinear_v2"),
            NotImplementedError,
            "not offered",
        ),
        (lambda: ops.grid_sample(Tensor(X), Tensor(GRID[:1])), ValueError, "needs a 'grid'"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()
