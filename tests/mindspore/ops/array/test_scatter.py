import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from operator_cases import case, check, numbers

import sporax.mindspore as ms
from sporax.mindspore import Parameter, Tensor, mint, ops

A, U = numbers(4, 2), numbers(3, 2, seed=1)
ROWS = np.array([2, 0, 2])
PLACES = np.array([[0, 1], [3, 0], [0, 1]])
HOW = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "max": np.maximum, "min": np.minimum,
}  # fmt: skip


def one_by_one(target, index, updates, function):
    """The updates worked in one after the other."""
    result = target.copy()
    for at, update in zip(index, updates, strict=True):
        result[tuple(at)] = function(result[tuple(at)], update)
    return result


@pytest.mark.parametrize("how", HOW)
def test_parameters_by_row(how):
    name = f"Scatter{how.capitalize()}"
    parameter = Parameter(Tensor(A), name="p")
    result = getattr(ops, name)()(parameter, Tensor(ROWS), Tensor(U))
    expected = one_by_one(A, ROWS[:, None], U, HOW[how])
    np.testing.assert_allclose(parameter.asnumpy(), expected, rtol=1e-12)
    np.testing.assert_allclose(result.asnumpy(), expected, rtol=1e-12)
    again = getattr(ops, f"scatter_{how}")(parameter, Tensor([0, 1, 3]), Tensor(U))
    np.testing.assert_allclose(again.asnumpy(), one_by_one(expected, [[0], [1], [3]], U, HOW[how]), rtol=1e-12)


@pytest.mark.parametrize("how", HOW)
def test_parameters_by_position(how):
    parameter = Parameter(Tensor(A), name="p")
    getattr(ops, f"ScatterNd{how.capitalize()}")()(parameter, Tensor(PLACES), Tensor(U[:, 0]))
    np.testing.assert_allclose(parameter.asnumpy(), one_by_one(A, PLACES, U[:, 0], HOW[how]), rtol=1e-12)


@pytest.mark.parametrize("how", HOW)
def test_new_tensors(how):
    scatter = getattr(ops, f"TensorScatter{how.capitalize()}")()
    by_place = case(
        lambda x, u: scatter(x, Tensor(PLACES), u), lambda x, u: one_by_one(x, PLACES, u, HOW[how]), A, U[:, 0]
    )
    check(by_place)
    check(
        case(
            lambda x, u: scatter(x, Tensor(ROWS[:, None]), u),
            lambda x, u: one_by_one(x, ROWS[:, None], u, HOW[how]),
            A,
            U,
        )
    )


@pytest.mark.parametrize("zeros", [1, 2])
def test_gradient_of_a_product_with_zeros(zeros):
    """Where an update is 0 the others still show what it would change; two zeros in one place leave nothing."""
    updates = np.array([0.0, 0.0 if zeros == 2 else 3.0, 2.0])
    call = lambda u: (ops.tensor_scatter_mul(Tensor(np.array([5.0, 1.0])), Tensor([[0], [0], [1]]), u)).sum()
    assert ms.grad(call)(Tensor(updates)).tolist() == ([15, 0, 1] if zeros == 1 else [0, 0, 1])


def test_update_of_a_parameter():
    parameter = Parameter(Tensor([0.0, 1.0, 2.0]), name="p")
    assert ops.scatter_update(parameter, Tensor([2, 0]), Tensor([7.0, 8.0])).tolist() == [8, 1, 7]
    assert ops.ScatterNdUpdate()(parameter, Tensor([[1]]), Tensor([9.0])).tolist() == [8, 9, 7]
    assert parameter.tolist() == [8, 9, 7]


def test_in_a_compiled_step_with_a_gradient():
    parameter = Parameter(Tensor([1.0, 2.0]), name="p")

    @ms.jit
    def step(x):
        ops.scatter_add(parameter, Tensor([0]), x)
        return (parameter * parameter).sum()

    assert step(Tensor([2.0])).item() == 13
    assert parameter.tolist() == [3, 2]
    # As in MindSpore, who reads the Parameter again differentiates by it and not by what was written.
    assert ms.grad(step)(Tensor([1.0])).tolist() == [0]
    assert ms.grad(step, 0, parameter)(Tensor([2.0]))[1].tolist() == [12, 4]


def test_positions_out_of_range_write_nothing():
    assert ops.tensor_scatter_add(Tensor([1.0, 2.0]), Tensor([[5]]), Tensor([9.0])).tolist() == [1, 2]


CASES = {
    "TensorScatterUpdate": case(lambda x, u: ops.TensorScatterUpdate()(x, Tensor(PLACES[:2]), u),
                                lambda x, u: one_by_one(x, PLACES[:2], u, lambda _, new: new), A, U[:2, 0]),
    "ScatterNd": case(lambda u: ops.ScatterNd()(Tensor(PLACES), u, (4, 2)),
                      lambda u: one_by_one(np.zeros((4, 2)), PLACES, u, np.add), U[:, 0]),
    "scatter": case(lambda x, u: ops.scatter(x, 1, Tensor([[1], [0]]), u),
                    lambda x, u: np.array([[x[0, 0], u[0, 0]], [u[1, 0], x[1, 1]]]), A[:2], U[:2, :1]),
    "scatter a number": case(lambda x: x.scatter(0, Tensor([[1, 0]]), 5.0), lambda x: np.array([[x[0, 0], 5], [5, x[1, 1]]]), A[:2]),
    "mint.scatter_add": case(lambda x, u: mint.scatter_add(x, 0, Tensor([[0, 1], [0, 1]]), u),
                             lambda x, u: x + np.array([[u[0, 0] + u[1, 0], 0], [0, u[0, 1] + u[1, 1]]]), A[:2], U[:2]),
    "TensorScatterElements mul": case(lambda x, u: ops.TensorScatterElements(0, "mul")(x, Tensor([[0, 1], [0, -1]]), u),
                                      lambda x, u: x * np.array([[u[0, 0] * u[1, 0], 1], [1, u[0, 1] * u[1, 1]]]), A[:2], U[:2]),
    "Tensor.index_add": case(lambda x, u: x.index_add(0, Tensor(ROWS), u, alpha=2.0),
                             lambda x, u: one_by_one(x, ROWS[:, None], 2 * u, np.add), A, U),
    "index_fill": case(lambda x: ops.index_fill(x, 0, Tensor([0, 3]), 7.0), lambda x: np.vstack([[[7, 7]], x[1:3], [[7, 7]]]), A),
    "Tensor.index_put": case(lambda x, u: x.index_put((Tensor(PLACES[:, 0]), Tensor(PLACES[:, 1])), u, True),
                             lambda x, u: one_by_one(x, PLACES, u, np.add), A, U[:, 0]),
    "InplaceUpdate": case(lambda x, u: ops.InplaceUpdate((0, 2, 3))(x, u), lambda x, u: np.vstack([u[:1], x[1:2], u[1:]]), A, U),
    "InplaceAdd": case(lambda x, u: ops.InplaceAdd((0, 2, 3))(x, u), lambda x, u: x + np.vstack([u[:1], 0 * u[:1], u[1:]]), A, U),
    "InplaceSub": case(lambda x, u: ops.inplace_sub(x, u, (0, 2, 3)), lambda x, u: x - np.vstack([u[:1], 0 * u[:1], u[1:]]), A, U),
    "MaskedScatter": case(lambda x, u: ops.MaskedScatter()(x, Tensor(A > 0), u),
                          lambda x, u: np.where(A > 0, u.ravel()[np.cumsum(A > 0).reshape(A.shape) - 1], x), A, numbers(8)),
    "select_scatter": case(lambda x, u: ops.select_scatter(x, u, 0, -1), lambda x, u: np.vstack([x[:3], u[None]]), A, U[0]),
    "slice_scatter": case(lambda x, u: ops.slice_scatter(x, u, 0, 1, 4, 2), lambda x, u: np.vstack([x[:1], u[:1], x[2:3], u[1:]]), A, U[:2]),
    "diagonal_scatter": case(lambda x, u: ops.diagonal_scatter(x, u, -1), lambda x, u: np.array([x[0], [u[0], x[1, 1]], [x[2, 0], u[1]], x[3]]), A, U[0]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_operator_equals_its_reference_formula(name):
    check(CASES[name])


def test_index_add_to_a_parameter():
    parameter = Parameter(Tensor(np.zeros((2, 3))), name="p")
    ops.index_add(parameter, Tensor([0, 2], ms.int32), Tensor(np.ones((2, 2))), 1)
    ops.IndexAdd(0)(parameter, Tensor([1], ms.int32), Tensor(np.ones((1, 3))))
    assert parameter.tolist() == [[1, 0, 1], [2, 1, 2]]


@settings(max_examples=8, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-4, 4)), max_size=6))
def test_adding_and_multiplying_any_updates(updates):
    """Repeated positions, zeros and no updates at all."""
    index = np.array([[at] for at, _ in updates], np.int64).reshape(-1, 1)
    values = np.array([float(value) for _, value in updates])
    base = np.array([1.0, 2, 3, 4])
    for how in ("add", "mul"):
        ours = getattr(ops, f"tensor_scatter_{how}")(Tensor(base), Tensor(index), Tensor(values))
        np.testing.assert_allclose(ours.asnumpy(), one_by_one(base, index, values, HOW[how]))


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: ops.scatter_add(Tensor(A), Tensor(ROWS), Tensor(U)), TypeError, "must be a Parameter"),
        (
            lambda: ops.tensor_scatter_add(Tensor(A), Tensor(ROWS[:, None]), Tensor(U[:2])),
            ValueError,
            "must have shape",
        ),
        (lambda: ops.tensor_scatter_add(Tensor(A), Tensor(PLACES * 1.0), Tensor(U[:, 0])), TypeError, "integer"),
        (
            lambda: ops.tensor_scatter_add(Tensor(A), Tensor(PLACES), Tensor([1, 2, 3])),
            TypeError,
            "dtypes must be the same",
        ),
        (lambda: ops.tensor_scatter_elements(Tensor(A), Tensor(PLACES), Tensor(U), 0, "avg"), ValueError, "one of"),
        (lambda: ops.inplace_add(Tensor(A), Tensor(U), (0, 1, 4)), ValueError, r"\[0, 4\)"),
        (lambda: Tensor(A).masked_scatter(Tensor(A), Tensor(U)), TypeError, r"Tensor\[Bool\]"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize("name", ["ScatterAdd", "ScatterNdUpdate", "Assign", "AssignAdd"])
@pytest.mark.parametrize(
    ("own", "other", "fits"),
    [
        (ms.float32, ms.float16, True),
        (ms.float32, ms.int64, True),
        (ms.int32, ms.int8, True),
        (ms.float16, ms.float32, False),
        (ms.int32, ms.float32, False),
        (ms.int8, ms.int32, False),
    ],
)
def test_what_is_written_to_a_parameter_has_its_dtype_or_a_lower_one(name, own, other, fits):
    parameter = Parameter(Tensor(np.zeros((2, 1)), own), name="p")
    values = Tensor(np.full((2, 1), 3), other)
    rows = {"ScatterAdd": (Tensor([0, 1]),), "ScatterNdUpdate": (Tensor([[0], [1]]),)}.get(name, ())
    if fits:
        getattr(ops, name)()(parameter, *rows, values)
        assert parameter.dtype == own and parameter.asnumpy().tolist() == [[3], [3]]
    else:
        words = f"For '{name}', .* is {own}, which cannot be converted to data type {other} automatically"
        with pytest.raises(TypeError, match=words):
            getattr(ops, name)()(parameter, *rows, values)
