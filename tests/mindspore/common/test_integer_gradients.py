"""Gradients of integers; expected values are those of the MindSpore wheel in PyNative mode."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Parameter, Tensor, nn, ops
from sporax.mindspore.common import _integer_gradients

X = Tensor(np.array([3, -4, 5]), ms.int32)
Y = Tensor(np.array([2, 7, -3]), ms.int32)
F = Tensor(np.array([0.5, 1.5, 2.5]), ms.float32)
M = Tensor(np.arange(6).reshape(2, 3), ms.int32)
N = Tensor(np.arange(6).reshape(3, 2), ms.int32)
DIVISORS = Tensor(np.array([2, 1, 1]), ms.int32)
WEIGHTS = Tensor(np.array([1, 2, 3]), ms.int32)
PLACES = Tensor(np.array([0, 0, 2]), ms.int32)
ROWS = Tensor(np.array([[2], [0], [1]]), ms.int32)

Case = tuple[Callable[..., Any], tuple[Tensor, ...], list[Any]]
CASES: dict[str, Case] = {
    "product": (lambda x: x * x, (X,), [[6, -8, 10]]),
    "product of two": (lambda x, y: x * y, (X, Y), [[2, 7, -3], [3, -4, 5]]),
    "difference": (lambda x, y: x - y, (X, Y), [[1, 1, 1], [-1, -1, -1]]),
    "division to floats is cut off": (lambda x, y: x / y, (X, Y), [[0, 0, 0], [0, 0, 0]]),
    "integer division": (lambda x, y: x // y, (X, Y), [[0, 0, 0], [0, 0, 0]]),
    "modulo": (lambda x, y: x % y, (X, Y), [[1, 1, 1], [-1, 1, 2]]),
    "with floats": (lambda x, f: x * f, (X, F), [[0, 1, 2], [3.0, -4.0, 5.0]]),
    "einsum with floats": (lambda x, f: ops.einsum("i,j->ij", x, f), (X, F), [[4, 4, 4], [4.0, 4.0, 4.0]]),
    "with a float": (lambda x: x * 2.5, (X,), [[2, 2, 2]]),
    "power": (lambda x: x**3, (X,), [[27, 48, 75]]),
    "absolute": (ops.abs, (X,), [[1, -1, 1]]),
    "sum": (lambda m: (m * m).sum(0), (M,), [[[0, 2, 4], [6, 8, 10]]]),
    "largest": (lambda x: x.max(), (X,), [[0, 0, 1]]),
    "product of all": (lambda x: x.prod(), (X,), [[-20, 15, -12]]),
    "matmul": (ops.matmul, (M, N), [[[1, 5, 9], [1, 5, 9]], [[3, 3], [5, 5], [7, 7]]]),
    "minimum": (ops.minimum, (X, Y), [[0, 1, 0], [1, 0, 1]]),
    "relu": (ops.relu, (X,), [[1, 0, 1]]),
    "cast and square": (lambda x: ops.cast(x, ms.float32) ** 2, (X,), [[6, -8, 10]]),
    "reshape": (lambda x: x.reshape(3, 1) * 2, (X,), [[2, 2, 2]]),
    "transpose": (lambda m: m.T * 2, (M,), [[[2, 2, 2], [2, 2, 2]]]),
    "concat": (lambda x, y: ops.concat((x, y * 3)), (X, Y), [[1, 1, 1], [3, 3, 3]]),
    "stack": (lambda x, y: ops.stack((x, y * 3)), (X, Y), [[1, 1, 1], [3, 3, 3]]),
    "index": (lambda x: x[1] * 4, (X,), [[0, 4, 0]]),
    "slice": (lambda x: x[1:] * 4, (X,), [[0, 4, 4]]),
    "gather": (lambda x: ops.gather(x, PLACES, 0) * 2, (X,), [[4, 0, 2]]),
    "an index": (lambda i: ops.gather(F, i, 0) * 2, (PLACES,), [[0, 0, 0]]),
    "segments": (lambda x: ops.SegmentSum()(x, PLACES), (Tensor(np.array([3, 4, 20]), ms.int8),), [[1, 1, 1]]),
    "rows added": (lambda x, y: x.index_add(0, PLACES, y) * WEIGHTS, (X, Y), [[1, 2, 3], [1, 1, 3]]),
    "rows multiplied": (lambda x: ops.tensor_scatter_mul(x, PLACES.reshape(3, 1), Y) * WEIGHTS, (X,), [[14, 2, -9]]),
    "largest of rows": (lambda x, y: ops.tensor_scatter_max(x, ROWS, y) * WEIGHTS, (X, Y), [[0, 0, 3], [0, 1, 2]]),
    "smallest of rows": (lambda x, y: ops.tensor_scatter_min(x, ROWS, y) * WEIGHTS, (X, Y), [[1, 2, 0], [3, 0, 0]]),
    "factors of rows": (lambda x, y: ops.tensor_scatter_mul(x, ROWS, y) * WEIGHTS, (X, Y), [[7, -6, 6], [15, 3, -8]]),
    "rows divided": (lambda x: ops.tensor_scatter_div(x, ROWS, DIVISORS) * WEIGHTS, (X,), [[1, 2, 1]]),
    "largest of segments": (lambda x: ops.unsorted_segment_max(x, PLACES, 3)[:1] * 2, (X,), [[2, 0, 0]]),
    "smallest of segments": (lambda x: ops.unsorted_segment_min(x, PLACES, 3) * WEIGHTS, (X,), [[0, 1, 3]]),
    "products of segments": (lambda x: ops.unsorted_segment_prod(x, PLACES, 3) * WEIGHTS, (X,), [[-4, 3, 3]]),
    "largest of sorted segments": (lambda x: ops.SegmentMax()(x, Tensor([0, 0, 2])) * WEIGHTS, (X,), [[1, 0, 3]]),
    "on a limit": (lambda x: ops.clamp(x, -4, 4) * WEIGHTS, (X,), [[1, 2, 0]]),
    "one tensor twice": (lambda x, y: x * x * y, (X, X), [[18, 32, 50], [9, 16, 25]]),
    "where": (lambda x, y: ops.where(x > y, x * 2, y * 3), (X, Y), [[2, 0, 2], [0, 3, 0]]),
    "comparison": (lambda x, y: x == y, (X, Y), [[0, 0, 0], [0, 0, 0]]),
    "cumsum": (lambda x: ops.cumsum(x, 0), (X,), [[3, 2, 1]]),
    "tile": (lambda x: ops.tile(x, (2,)), (X,), [[2, 2, 2]]),
    "sort": (lambda x: ops.sort(x)[0] * WEIGHTS, (X,), [[2, 1, 3]]),
    "topk": (lambda x: ops.topk(x, 2)[0] * 2, (X,), [[2, 0, 2]]),
    "clip": (lambda x: ops.clip(x, -1, 4), (X,), [[1, 0, 0]]),
    "bools": (lambda b: b * 2.5, (Tensor([True, False]),), [[True, True]]),
    "uint8": (lambda x: x * x, (Tensor(np.array([3, 4, 20]), ms.uint8),), [[6, 8, 40]]),
    "overflow": (lambda x: x * x, (Tensor([2**30 + 1], ms.int32),), [[-2147483646]]),
    "two dtypes": (lambda x, y: x * y, (X, Tensor([1, 2, 3])), [[1, 2, 3], [3, -4, 5]]),
    "each cast cuts off": (lambda x: x * x * 0.3, (X,), [[0, 0, 0]]),
    "floats in between": (lambda x: ops.sin(x * 0.5) * x, (X,), [[0, 0, -2]]),
    "stop_gradient": (lambda x: ops.stop_gradient(x) * x, (X,), [[3, -4, 5]]),
    "copy": (lambda x: x.copy() * 3, (X,), [[3, 3, 3]]),
    "stop_gradient of bools": (lambda b: ops.stop_gradient(b) * 2, (Tensor([True, False]),), [[False, False]]),
    "sum of many": (lambda x, y: ops.addn((x, y, x)), (X, Y), [[2, 2, 2], [1, 1, 1]]),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.sampled(42)
def test_gradient_is_that_of_the_wheel(case: str, compiled: bool) -> None:
    function, inputs, expected = CASES[case]
    gradient = ms.grad(function, tuple(range(len(inputs))))
    results = (ms.jit(gradient) if compiled else gradient)(*inputs)
    results = results if isinstance(results, tuple) else (results,)
    for actual, values, tensor in zip(results, expected, inputs, strict=True):
        assert actual.dtype == tensor.dtype
        np.testing.assert_array_equal(actual.asnumpy(), values)


class _Passed(nn.Cell):
    """Two outputs, and a gradient of its own that sees the first one's."""

    def construct(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x + 1

    def bprop(self, x: Tensor, out: Any, dout: Any) -> tuple[Tensor]:
        return (dout[0] * 3 + out[1] * dout[1],)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dtype", [ms.int64, ms.float32])
def test_bprop_of_a_cell_serves_integers_too(compiled: bool, dtype: Any) -> None:
    net, x = _Passed(), Tensor([1, 5], dtype)
    # What the wheel gives: of a first output alone, of both, and behind other operators.
    for function, expected in (
        (lambda x: net(x)[0], [3, 3]),
        (lambda x: net(x)[0] + net(x)[1], [5, 9]),
        (lambda x: net(x * 2)[0] * 10, [60, 60]),
    ):
        gradient = ms.grad(function)
        actual = (ms.jit(gradient) if compiled else gradient)(x)
        assert (actual.dtype, actual.asnumpy().tolist()) == (dtype, expected)


def test_of_an_integer_parameter() -> None:
    weight = Parameter(X, name="weight")
    (gradient,) = ms.grad(lambda f: f * weight, None, [weight])(F)
    assert gradient.dtype == ms.int32
    np.testing.assert_array_equal(gradient.asnumpy(), [0, 1, 2])


def test_sensitivities_and_outputs_of_integers() -> None:
    outputs, backward = ms.vjp(lambda x: x * x, X)
    np.testing.assert_array_equal(outputs.asnumpy(), [9, 16, 25])
    np.testing.assert_array_equal(backward(Y)[0].asnumpy(), [12, -56, -30])


def test_second_derivative() -> None:
    second = ms.grad(ms.grad(lambda x: x * x * x))(X)
    np.testing.assert_array_equal(second.asnumpy(), [18, -24, 30])


def test_inner_gradient_by_floats_of_an_outer_one_by_integers() -> None:
    gradient = ms.grad(lambda x: ms.grad(lambda f: f * x)(F).sum())(X)
    np.testing.assert_array_equal(gradient.asnumpy(), [1, 1, 1])


def test_values_of_integers_can_be_looked_at() -> None:
    gradient = ms.grad(lambda x: x * 2 if int(x[0]) == 3 else x)(X)
    np.testing.assert_array_equal(gradient.asnumpy(), [2, 2, 2])


def test_nothing_is_kept_after_a_gradient() -> None:
    ms.grad(lambda x: x * x)(X)
    assert _integer_gradients.find(X.array) is None


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE])
def test_indices_differentiated_along_with_a_table_count_its_gradient_once(mode):
    ms.set_context(mode=mode)
    table = Parameter(np.arange(6, dtype=np.float32).reshape(3, 2), name="table")

    def loss(ids):
        return (ops.gather(table, ids, 0) ** 2).sum()

    of_ids, of_table = ms.grad(loss, 0, table)(PLACES)
    assert of_ids.tolist() == [0, 0, 0]
    np.testing.assert_array_equal(of_table.asnumpy(), ms.grad(loss, None, table)(PLACES).asnumpy())


def _chosen(x, y):
    if x > 0:
        if y > 0:
            return y * x
        return y * y
    return x


def _repeated(x, y):
    total = x * 0
    while x > 0:
        if y > 2:
            total = total + y * x
        else:
            total = total + x
        x = x - 1
    return total


def _counted(x, y):
    for i in range(4):
        if x > i:
            y = y * x
        if y > 100:
            break
    return y


def _through_floats(x, y):
    z = (x * y).astype(ms.float32)
    if z > 0:
        z = z * 1.5
    return z * x


def _by_operator(x, y):
    return ops.cond(x > 0, lambda a: a * x, lambda a: a, y)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (_chosen, [(3, 2), (0, -2), (1, 0)]),
        (_repeated, [(6, 3), (3, 0), (0, 0)]),
        (_counted, [(12, 4), (-27, 27), (0, 1)]),
        (_through_floats, [(18, 6), (-6, 9), (-4, 1)]),
        (_by_operator, [(3, 2), (-1, 3), (0, 1)]),
    ],
)
def test_branches_and_loops_of_compiled_functions(function, expected):
    """They gave zeros; expected values are the wheel's in graph mode (of the last function by hand)."""
    gradients = ms.jit(ms.grad(function, (0, 1)))
    inputs = [(2, 3), (3, -1), (-1, 2)]
    found = [tuple(map(int, gradients(Tensor(x, ms.int32), Tensor(y, ms.int32)))) for x, y in inputs]
    assert found == expected


@pytest.mark.parametrize(
    ("function", "other", "expected"),
    [
        (lambda x, y: x * y, F, [1, -12, 25]),
        (lambda x, y: x * y, Y, [12, -56, -30]),
        (lambda x, y: x.astype(ms.float32) * y * 1.5, Y, [18, -84, -45]),
        (lambda x, y: (x * x).sum(), Y, 100),
        (lambda x, y: y * y, F, [0.5, 4.5, 12.5]),
    ],
)
def test_derivatives_in_a_direction(function, other, expected):
    """They were zeros along integers; expected values as the wheel's, whose are of the same form."""
    x = Tensor([1, -4, 5], ms.int32) if other is F else Tensor([3, -4, 5], ms.int32)
    output, slope = ms.jvp(function, (x, other), (x, other))
    assert (slope.asnumpy().tolist(), slope.dtype) == (expected, output.dtype)
