"""Dtypes other than floats: what MindSpore 2.10's functions take on the CPU, and which dtype and values they give."""

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, mint, nn, ops

A = np.array([[-4, -1, 1], [2, 3, 9]])
B = np.array([[1, 2, 0], [-3, 4, 4]])
MATRIX = np.array([[-4, -1], [2, 3]])
VOLUME = A.reshape(1, 1, 2, 3)
CLASSES = Tensor([0, 2], ms.int32)


def _pair(function):
    return lambda dtype: function(Tensor(A.astype(dtype)), Tensor(B.astype(dtype)))


def _one(function, array=A):
    return lambda dtype: function(Tensor(array.astype(dtype)))


SIGNED = ("int8", "int32", "int64")
CUT = [0, 0, 1, 2, 3, 9]
DISTANCES = [5, 3, 1, 5, 1, 5]
SQUARES = [25, 9, 1, 25, 1, 25]
SHRUNK = [-3.000671, -0.238406, 0.238406, 1.035972, 2.004945, 8.0]


# name, dtypes, dtype of the result (None: the input's), values, call
CASES = [
    ("hardsigmoid", SIGNED, None, [0, 0, 0, 0, 1, 1], _one(ops.hardsigmoid)),
    ("HSigmoid", SIGNED, None, [0, 0, 0, 0, 1, 1], _one(nn.HSigmoid())),
    ("hardswish", SIGNED, None, [0, 0, 0, 1, 3, 9], _one(ops.hardswish)),
    ("HSwish", ("int32", "int64"), None, [0, 0, 0, 1, 3, 9], _one(nn.HSwish())),
    ("hardtanh", SIGNED, None, [-1, -1, 1, 1, 1, 1], _one(ops.hardtanh)),
    ("hardtanh", ("uint8",), None, [1, 1, 1, 1, 1, 1], _one(ops.hardtanh, np.abs(A))),
    ("leaky_relu", ("int32", "int64"), None, CUT, _one(ops.leaky_relu)),
    ("rrelu", ("int32", "int64"), None, CUT, _one(ops.rrelu)),
    ("tanhshrink", SIGNED, "float32", SHRUNK, _one(ops.tanhshrink)),
    ("l1_loss none", SIGNED, None, DISTANCES, _pair(lambda a, b: ops.l1_loss(a, b, reduction="none"))),
    ("l1_loss mean", SIGNED, None, [3], _pair(ops.l1_loss)),
    ("L1Loss", SIGNED, None, [3], _pair(nn.L1Loss())),
    ("MAELoss", SIGNED, None, [3], _pair(nn.MAELoss())),
    ("MSELoss", ("int32", "int64"), None, [14], _pair(nn.MSELoss())),
    ("MSELoss none", ("int32", "int64"), None, SQUARES, _pair(nn.MSELoss("none"))),
    ("mse_loss", SIGNED, "float32", [14.333333], _pair(ops.mse_loss)),
    ("mse_loss none", SIGNED, "float32", SQUARES, _pair(lambda a, b: ops.mse_loss(a, b, reduction="none"))),
    ("huber_loss", SIGNED, "float32", [2.833333], _pair(ops.huber_loss)),
    ("HuberLoss", SIGNED, "float32", [2.833333], _pair(nn.HuberLoss())),
    ("nll_loss", SIGNED, "float32", [-2.5], _one(lambda x: ops.nll_loss(x, CLASSES))),
    ("margin_ranking_loss", SIGNED, "float32", [5], _pair(lambda a, b: ops.margin_ranking_loss(a, b, b))),
    ("adaptive_avg_pool3d", SIGNED, None, [0, 3], _one(lambda x: ops.adaptive_avg_pool3d(x, (1, 1, 2)), VOLUME)),
    ("adaptive_max_pool3d", SIGNED, None, [3, 9], _one(lambda x: ops.adaptive_max_pool3d(x, (1, 1, 2)), VOLUME)),
    ("lp_pool1d", SIGNED, "float32", [4.123106, 3.605551], _one(lambda x: ops.lp_pool1d(x, 2.0, 2))),
    ("matrix_power", SIGNED, None, [-54, -11, 22, 23], _one(lambda x: ops.matrix_power(x, 3), MATRIX)),
    ("sum", ("uint8",), "int64", [20], _one(ops.sum, np.abs(A))),
    ("mint.nansum", ("int8", "int32", "int64"), None, [10], _one(mint.nansum)),
    ("bmm", SIGNED, None, [-6, 12, 8, 42], _pair(lambda a, b: ops.bmm(a, b.T))),
    ("outer", SIGNED, None, [4, 8, 1, 2, -1, -2, -2, -4, -3, -6, -9, -18], _one(lambda x: ops.outer(-x, Tensor([1, 2], x.dtype)))),
    ("kron", ("bool",), None, [0, 0, 0, 1], _one(lambda x: ops.kron(x, x), np.array([[0, 1]]))),
    ("bincount", ("float32", "int32"), "float32", [0, 0, 1, 1], _one(ops.bincount, np.array([2, 3]))),
    ("bincount bool", ("bool",), "float32", [1, 2], _one(ops.bincount, np.array([1, 0, 1]))),
    ("bucketize", ("int32", "int64"), "int32", [0, 0, 2, 2, 2, 3], _one(lambda x: ops.bucketize(x, Tensor([-1, 0, 3], x.dtype)))),
    ("diagonal_scatter", ("int8", "int32"), "int64", [1, -1, 1, 2, 2, 9], _one(lambda x: ops.diagonal_scatter(x, Tensor([1, 2], ms.int64)))),
    ("histc", ("float16",), "float32", [2, 2, 1, 1], _one(lambda x: ops.histc(x, 4, -4.0, 9.0))),
    ("squeeze", SIGNED, None, A.ravel(), _one(lambda x: ops.squeeze(x, 0))),
    ("mint.squeeze", ("bool", "int32"), None, [1, 1, 1], _one(lambda x: mint.squeeze(x[:1], (0, 1)), np.ones((2, 3)))),
    ("pow", SIGNED, None, [0, 0, 1, -1, 1, 8], _one(lambda x: x ** Tensor([-2, -3, -4, -3, -2, 3], x.dtype), np.array([2, -3, 1, -1, -1, 2]))),
    ("pow -2", SIGNED, None, [0, 1, 1], _one(lambda x: x**-2, np.array([3, 1, -1]))),
    ("frac", SIGNED, None, [0] * 6, _one(ops.frac)),
    ("heaviside", SIGNED, None, [0, 0, 1, 1, 1, 1], _pair(ops.heaviside)),
    ("gaussian_nll_loss", SIGNED, "float32", [0.818147], _one(lambda x: ops.gaussian_nll_loss(x, x + x, x * 4), np.array([1]))),
    ("vander", ("int8", "int32"), "int64", [4, 2, 1, 9, 3, 1], _one(lambda x: ops.vander(x, 3), np.array([2, 3]))),
    ("trace", ("int8", "int32"), "int64", [-1], _one(lambda x: x.trace(), MATRIX)),
    ("prod", ("uint8",), "int64", [216], _one(ops.prod, np.abs(A))),
    ("cov", ("float16",), "float32", [0.5], _one(ops.cov, np.array([1, 2]))),
    ("searchsorted", SIGNED, "int32", [1, 2], _one(lambda x: x.searchsorted(Tensor([2, 4], x.dtype)), np.array([1, 3, 9]))),
    ("cartesian_prod", SIGNED, None, [2, 3], _one(lambda x: ops.cartesian_prod(x).reshape(2, 1), np.array([2, 3]))),
]  # fmt: skip


@pytest.mark.parametrize(
    ("dtype", "result", "values", "call"),
    [pytest.param(dtype, *case[2:], id=f"{case[0]} {dtype}") for case in CASES for dtype in case[1]],
)
def test_results_of_other_dtypes(dtype, result, values, call):
    output = call(dtype).asnumpy()
    assert output.dtype == np.dtype(result or dtype)
    np.testing.assert_allclose(output.ravel().astype(np.float64), values, rtol=1e-5)


@pytest.mark.parametrize("function", [ops.mse_loss, ops.huber_loss, ops.margin_ranking_loss, ops.l1_loss])
def test_bools_have_no_distance(function):
    bools = [Tensor([True, False])] * (3 if function is ops.margin_ranking_loss else 2)
    with pytest.raises(TypeError, match="must be a number type, but got Bool"):
        function(*bools)


@pytest.mark.parametrize(
    ("function", "exact"),
    [
        (ops.logdet, lambda x: np.linalg.slogdet(x)[1]),
        (lambda x: ops.slogdet(x)[1], lambda x: np.linalg.slogdet(x)[1]),
        (lambda x: ops.log_matrix_determinant(x)[1], lambda x: np.linalg.slogdet(x)[1]),
        (ops.det, np.linalg.det),
        (lambda x: ops.qr(x)[0] @ ops.qr(x)[1], lambda x: x),
        (lambda x: ops.lstsq(x, x + 1), lambda x: np.linalg.solve(x, x + 1)),
        (lambda x: ops.matrix_solve(x, x + 1), lambda x: np.linalg.solve(x, x + 1)),
    ],
)
def test_half_precision_is_solved_in_single(function, exact):
    matrix = np.array([[2.0, 0.5, 1.0], [1.5, -1.0, 0.0], [0.5, 1.0, -1.5]])
    result = function(Tensor(matrix, ms.float16))
    assert result.dtype == ms.float16
    np.testing.assert_allclose(result.asnumpy(), exact(matrix), rtol=2e-3, atol=2e-3)


def test_the_method_gives_the_value_before_its_position():
    matrix = Tensor(A, ms.int32)
    for (value, position), (place, found) in (
        (matrix.argmax_with_value(0), ops.ArgMaxWithValue()(matrix)),
        (matrix.argmin_with_value(0), ops.ArgMinWithValue()(matrix)),
    ):
        assert value.asnumpy().tolist() == found.asnumpy().tolist()
        assert position.asnumpy().tolist() == place.asnumpy().tolist()
    assert matrix.argmax_with_value(1)[0].asnumpy().tolist() == [1, 9]


def test_powers_of_integer_matrices_have_no_inverse():
    with pytest.raises(ValueError, match="not be negative for integers"):
        ops.matrix_power(Tensor([[1, 2], [3, 4]]), -1)
