"""Minima of functions, and assignments; places and values as MindSpore 2.10 (CPU) finds them."""

import importlib

import numpy as np
import pytest

import sporax.mindspore as ms
import sporax.mindspore.numpy as mnp
from sporax.mindspore import Tensor
from sporax.mindspore.scipy import optimize


def himmelblau(p):
    x, y = p
    return (x**2 + y - 11.0) ** 2 + (x + y**2 - 7.0) ** 2


def rosenbrock(x):
    return mnp.sum(100.0 * mnp.diff(x) ** 2 + (1.0 - x[:-1]) ** 2)


@pytest.mark.parametrize("mode", [ms.PYNATIVE_MODE, ms.GRAPH_MODE])
@pytest.mark.parametrize("method", ["BFGS", "LBFGS"])
@pytest.mark.parametrize(("function", "place"), [(himmelblau, [3.0, 2.0]), (rosenbrock, [1.0, 1.0])])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_minima(function, place, method, mode, dtype):
    ms.set_context(mode=mode)
    found = optimize.minimize(
        function, Tensor(np.zeros(2, dtype)), method=method, options={"gtol": 1e-4, "maxiter": None}
    )
    np.testing.assert_allclose(found.x.asnumpy(), place, atol=1e-3 if dtype == np.float32 else 1e-4)
    assert (found.success, found.status) == (True, 0) and found.fun == pytest.approx(0, abs=1e-4)
    assert found.x.dtype == found.jac.dtype == ms.pytype_to_dtype(dtype)
    assert (found.hess_inv is None) == (method == "LBFGS") and found.nfev >= found.nit > 1


def test_more_inputs_gradients_of_ones_own_and_too_few_steps():
    def away(x, centre, scale):
        return scale * ((x - centre) ** 2).sum()

    def slope(x, centre, scale):
        return 2 * scale * (x - centre)

    inputs = Tensor([1.0, -2.0]), 3.0
    for jac in (None, slope):
        found = optimize.minimize(away, Tensor([0.0, 0.0]), inputs, "bfgs", jac)
        np.testing.assert_allclose(found.x.asnumpy(), [1, -2], atol=1e-5)
    short = optimize.minimize(
        rosenbrock, Tensor(np.zeros(3)), method="lbfgs", options={"maxiter": 2, "history_size": 3}
    )
    assert (short.success, short.status, short.nit) == (False, 1, 2)


@pytest.mark.parametrize(
    ("function", "x", "direction", "step", "value"),
    [
        (lambda x: mnp.dot(x, mnp.dot(Tensor([[1.0, 0.5], [-1.0, 1.0]]), x)) + 1, [0.5, 1.0], [-1.0, -2.0], 0.5, 1.0),
        (lambda x: -mnp.sin(10 * x), 0.0, 1.0, 0.154008, -0.999528),
        (lambda x: -x - x**3 + x**4, 0.0, 1.0, 1.0, -1.0),
    ],
)
def test_line_search(function, x, direction, step, value):
    found = optimize.line_search(function, Tensor(x, ms.float32), Tensor(direction, ms.float32), maxiter=10)
    assert not found.failed and found.status == 0 and found.nfev == found.ngev
    assert (found.a_k, found.f_k) == (pytest.approx(step, rel=1e-4), pytest.approx(value, rel=1e-4))


def test_a_line_search_uphill_fails():
    found = optimize.line_search(lambda x: (x * x).sum(), Tensor([1.0, 1.0]), Tensor([1.0, 1.0]))
    assert found.failed and found.status == 1 and found.a_k == 0 and found.f_k == 2


@pytest.mark.parametrize("mode", [ms.PYNATIVE_MODE, ms.GRAPH_MODE])
def test_constraints_are_kept(mode):
    ms.set_context(mode=mode)
    found = optimize.minimize(
        lambda d: -(2 * d[0] * d[1] + 2 * d[0] - d[0] ** 2 - 2 * d[1] ** 2),
        Tensor([-1.0, 1.0], ms.float32),
        method="lagrange",
        constraints=[lambda x: -(x[0] - x[1] - 1.0)],
        options={"rounds": 10, "steps": 50},
    )
    assert found.succeeded and found.object_value == pytest.approx(-2, abs=0.02)
    np.testing.assert_allclose(found.best_value, [2, 1], atol=0.03)


@pytest.mark.parametrize(
    ("bounds", "place"), [({"upper": [0.5]}, 0.5), ({"lower": [2.0]}, 2.0), ({"lower": [-1.0], "upper": [0.0]}, 0.0)]
)
def test_bounds_are_kept(bounds, place):
    options = {"rounds": 2, "steps": 100, **{name: Tensor(bound, ms.float32) for name, bound in bounds.items()}}
    function, shared = lambda x, square: square.sum(), lambda x: (x - 1.0) ** 2
    found = optimize.minimize(
        function, Tensor([0.7], ms.float32), method="lagrange", constraints=[lambda x, square: -square.sum()],
        options={**options, "coincide_fun": shared},
    )  # fmt: skip
    np.testing.assert_allclose(found.best_value, [place], atol=0.05)


@pytest.mark.parametrize("mode", [ms.PYNATIVE_MODE, ms.GRAPH_MODE])
def test_assignments(mode):
    ms.set_context(mode=mode)
    costs = Tensor(np.array([[2, 3, 3], [3, 2, 3], [3, 3, 2.0]]))
    assign = ms.jit(optimize.linear_sum_assignment)
    rows, columns = assign(costs, False, Tensor(2))
    assert rows.dtype == ms.int64 and rows.asnumpy().tolist() == columns.asnumpy().tolist() == [0, 1, -1]
    rows, columns = assign(Tensor(np.array([[2, 3, 3, 1], [3, 2, 3, 9]])), True)
    assert (rows.asnumpy().tolist(), columns.asnumpy().tolist()) == ([0, 1], [1, 3])


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda x: optimize.minimize(himmelblau, x), ValueError, "For 'minimize', 'method' must be one of"),
        (
            lambda x: optimize.minimize(himmelblau, x, method="newton"),
            ValueError,
            "For 'minimize', 'method' must be one of",
        ),
        (lambda x: optimize.minimize(himmelblau, x, 1, "bfgs"), TypeError, "For 'minimize', 'args' must be a tuple"),
        (
            lambda x: optimize.minimize(himmelblau, x, method="lagrange", constraints=[3]),
            TypeError,
            "must be functions",
        ),
        (
            lambda x: optimize.minimize(himmelblau, x, method="lagrange", constraints=[himmelblau], tol=[1, 2]),
            ValueError,
            "For 'minimize', 'tol' must have 1 numbers",
        ),
        (lambda x: optimize.linear_sum_assignment(x, True), ValueError, "'cost_matrix' must have 2 dims"),
        (lambda x: optimize.linear_sum_assignment(x, 1), TypeError, "the type of 'maximize' must be bool"),
    ],
)
def test_what_does_not_fit_is_refused(call, kind, message):
    with pytest.raises(kind, match=message):
        call(Tensor(np.zeros(2)))


def test_modules_of_one_function_are_called_as_that():
    module = importlib.import_module("sporax.mindspore.scipy.optimize.line_search")

    found = [
        call(himmelblau, Tensor([0.0, 0.0]), Tensor([1.0, 1.0])) for call in (module.line_search, optimize.line_search)
    ]
    assert found[0].a_k == found[1].a_k
