"""Derivatives: the forms they are requested and returned in, eager and compiled."""

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Parameter, Tensor, nn, ops

X, Y = Tensor([1.0, 2.0]), Tensor([3.0, 4.0])


@pytest.fixture(params=[ms.PYNATIVE_MODE, ms.GRAPH_MODE], ids=["pynative", "graph"], autouse=True)
def _mode(request):
    before = ms.get_context("mode")
    ms.set_context(mode=request.param)
    yield
    ms.set_context(mode=before)


@pytest.fixture
def w():
    return Parameter(Tensor([5.0, 6.0]), name="w")


@pytest.fixture
def b():
    return Parameter(Tensor([7.0, 8.0]), name="b")


def values(tree):
    """Tensors as lists, containers as they are."""
    if isinstance(tree, Tensor):
        return tree.asnumpy().tolist()
    return type(tree)(map(values, tree)) if isinstance(tree, tuple | list) else tree


def product(x, y):
    return x * x * y


# ---------------------------------------------------------------------------------------------- positions and weights


@pytest.mark.parametrize(
    ("position", "expected"),
    [(0, [6, 16]), (1, [1, 4]), ((0,), [6, 16]), ((1, 0), ([1, 4], [6, 16])), ((0, 1), ([6, 16], [1, 4]))],
)
def test_grad_differentiates_by_position(position, expected):
    assert values(ms.grad(product, position)(X, Y)) == expected


def test_named_arguments_count_after_the_others():
    assert values(ms.grad(product, 1)(X, y=Y)) == [1, 4]
    assert values(ms.grad(product, (0, 1))(X, y=Y)) == ([6, 16], [1, 4])


def test_grad_differentiates_by_weights(w, b):
    f = lambda x: x * w + b
    assert values(ms.grad(f, None, w)(X)) == [1, 2]
    assert values(ms.grad(f, None, [w, b])(X)) == ([1, 2], [1, 1])
    assert values(ms.grad(f, None, ms.ParameterTuple([b]))(X)) == ([1, 1],)
    assert values(ms.grad(f, 0, w)(X)) == ([5, 6], [1, 2])
    assert values(ms.grad(f, (0,), [w])(X)) == ([5, 6], ([1, 2],))
    assert ms.grad(f, None, [])(X) == ()


def test_weights_that_do_not_matter_get_zeros(w, b):
    assert values(ms.grad(lambda x: x * w, None, [w, b])(X)) == ([1, 2], [0, 0])
    gradient = ms.grad(lambda x: x * w, None, w)
    assert values(gradient(X)) == [1, 2]
    w.requires_grad = False
    assert values(gradient(X)) == [0, 0]  # a compiled gradient notices


def test_a_parameter_as_an_input_counts_wherever_it_is_read(w):
    assert values(ms.grad(lambda x: x * w)(w)) == [10, 12]


def test_inputs_that_are_not_tensors():
    assert values(ms.grad(lambda x, s: x * s, (0, 1))(X, 2.0)) == [2, 2]
    assert values(ms.grad(lambda x, o: x * o["k"] * o["t"])(X, {"k": 3, "t": Y})) == [9, 12]
    assert ms.grad(lambda s: X * s)(2.0) == ()


def test_integers_next_to_floats():
    gradient = ms.grad(lambda x, i: x * i, (0, 1))(X, Tensor([2, 3], ms.int32))
    assert values(gradient) == ([2, 3], [1, 2])
    assert gradient[1].dtype == ms.int32
    assert values(ms.grad(lambda x: x > 0)(X)) == [0, 0]


# --------------------------------------------------------------------------------------------------- outputs


def test_outputs_are_summed_and_keep_their_form():
    f = lambda x: {"a": x, "b": (x * x, 3)}
    out, gradient = ms.value_and_grad(f)(X)
    assert values(gradient) == [3, 5]
    assert (values(out["a"]), values(out["b"])) == ([1, 2], ([1, 4], 3))


def test_aux_comes_back_as_it_is():
    def f(x):
        return (x * x).sum(), x + 1, {"text": "a", "number": 3, "none": None}

    (loss, more, others), gradient = ms.value_and_grad(f, has_aux=True)(X)
    assert (float(loss), values(more), values(gradient)) == (5, [2, 3], [2, 4])
    assert others == {"text": "a", "number": 3, "none": None}
    gradient, aux = ms.grad(f, has_aux=True)(X)
    assert (values(gradient), len(aux)) == ([2, 4], 2)


def test_a_parameter_as_an_output(w):
    out, gradient = ms.value_and_grad(lambda x: (x * w, w), None, w)(X)
    assert (values(gradient), values(out[1])) == ([2, 3], [5, 6])


def test_gradients_come_with_ids_where_requested(w, b):
    f = lambda x, y: x * y * w + b
    gradients = ms.grad(f, (0, 1), [w, b], return_ids=True)(X, Y)
    assert values(gradients)[0][0] == (0, [15, 24])
    assert [name for name, _ in gradients[1]] == ["w", "b"]
    assert values(ms.get_grad(gradients, 1)) == [5, 12]
    assert values(ms.get_grad(gradients, w)) == [3, 8]
    assert values(ms.get_grad(ms.grad(f, 0, return_ids=True)(X, Y), 0)) == [15, 24]
    assert values(ms.get_grad(ms.grad(f, None, w, return_ids=True)(X, Y), w)) == [3, 8]
    with pytest.raises(RuntimeError, match="Can not find the gradient for position or Parameter 2"):
        ms.get_grad(gradients, 2)
    with pytest.raises(TypeError, match="must be int or Parameter, but got str"):
        ms.get_grad(gradients, "w")


def test_a_sensitivity_scales_the_gradients():
    assert values(ms.grad(product, sens_param=True)(X, Y, Tensor([1.0, 10.0]))) == [6, 160]
    assert values(ms.value_and_grad(lambda x: (x, x * x), sens_param=True)(X, (X, Y))[1]) == [7, 18]


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
@pytest.mark.parametrize(
    "sensitivity", [3.0, Tensor(3.0), Tensor([3.0]), Tensor([[3.0]])], ids=["3", "()", "(1,)", "(1, 1)"]
)
def test_a_sensitivity_of_one_element_fits_an_output_of_one_element(shape, sensitivity):
    def loss(x):
        return (x * x).sum().reshape(shape)

    assert values(ms.grad(loss, sens_param=True)(X, sensitivity)) == [3 * value for value in values(2 * X)]
    gradient = ops.GradOperation(sens_param=True)(loss)
    assert values(gradient(X, sensitivity)) == [3 * value for value in values(2 * X)]


# ----------------------------------------------------------------------------------------------- writes inside


def test_writes_happen_once(w):
    def f(x):
        ops.assign_add(w, Tensor([1.0, 1.0]))
        return x * w

    assert values(ms.grad(f)(X)) == [6, 7]
    assert values(w) == [6, 7]
    assert values(ms.grad(f, None, w)(X)) == [1, 2]
    assert values(w) == [7, 8]


def test_moving_statistics_move_once():
    net = nn.BatchNorm1d(2, momentum=0.5).set_train()
    ms.value_and_grad(net, None, net.trainable_params())(Tensor([[1.0, 2.0], [3.0, 6.0]]))
    assert values(net.moving_mean) == [1, 2]


def test_gradient_of_gradient(w):
    assert values(ms.grad(ms.grad(lambda x: x**3))(X)) == [6, 12]
    inner = ms.grad(lambda x: (x * w) ** 2, None, w)
    assert values(ms.grad(inner)(X)) == [4 * 1 * 5, 4 * 2 * 6]


def test_gradient_of_compiled_and_compiled_gradient():
    assert values(ms.grad(ms.jit(product))(X, Y)) == [6, 16]
    assert values(ms.jit(ms.grad(product))(X, Y)) == [6, 16]
    assert values(ms.jit(lambda x, y: ms.grad(product)(x, y) + 1)(X, Y)) == [7, 17]


# ------------------------------------------------------------------------------------------------ GradOperation


@pytest.mark.parametrize(
    ("flags", "arguments", "expected"),
    [
        ({}, (X, Y), [6, 16]),
        ({"get_all": True}, (X, Y), ([6, 16], [1, 4])),
        ({"sens_param": True}, (X, Y, Tensor([1.0, 2.0])), [6, 32]),
        ({"get_all": True, "sens_param": True}, (X, Y, Tensor([1.0, 2.0])), ([6, 32], [1, 8])),
    ],
    ids=str,
)
def test_grad_operation_of_inputs(flags, arguments, expected):
    assert values(ops.GradOperation(**flags)(product)(*arguments)) == expected


def test_grad_operation_of_weights(w, b):
    f = lambda x: x * w + b
    assert values(ops.GradOperation(get_by_list=True)(f, w)(X)) == [1, 2]
    assert values(ops.GradOperation(get_by_list=True)(f, ms.ParameterTuple([w, b]))(X)) == ([1, 2], [1, 1])
    both = ops.GradOperation(get_all=True, get_by_list=True, sens_param=True)(f, [b])
    assert values(both(X, Tensor([2.0, 3.0]))) == (([10, 18],), ([2, 3],))
    assert values(ops.GradOperation(get_all=True)(f)(X)) == ([5, 6],)


# ------------------------------------------------------------------------------------------------ jvp and vjp


def test_jvp_gives_values_and_directional_derivatives():
    out, slope = ms.jvp(product, (X, Y), (Tensor([1.0, 1.0]), Tensor([0.0, 1.0])))
    assert (values(out), values(slope)) == ([3, 16], [6, 20])
    out, slope, aux = ms.jvp(lambda x: (x * x, x, "a"), X, Y, has_aux=True)
    assert (values(slope), values(aux)) == ([6, 16], ([1, 2], "a"))
    assert values(ms.jvp(lambda x, i: (x * i, i), (X, Tensor([2, 3])), (Y, Tensor([0, 0])))[1]) == ([6, 12], [0, 0])


def test_vjp_gives_values_and_a_function_of_cotangents(w):
    out, pull = ms.vjp(product, X, Y)
    assert (values(out), values(pull(Tensor([1.0, 2.0])))) == ([3, 16], ([6, 32], [1, 8]))
    out, pull = ms.vjp(lambda x: x * w, X, weights=w)
    assert values(pull(Y)) == (([15, 24],), [3, 8])
    out, pull = ms.vjp(lambda x: x * w, X, weights=[w])
    assert values(pull(Y)) == (([15, 24],), ([3, 8],))
    out, pull, aux = ms.vjp(lambda x: (x, x * x), X, has_aux=True)
    assert (values(pull(Y)), values(aux)) == (([3, 4],), [1, 4])  # one by itself
    assert values(ms.jvp(lambda x: (x * x, x), X, Y, has_aux=True)[2]) == [1, 2]
    with pytest.raises(ValueError, match=r"output's shape \(2,\), but got \(3,\)"):
        pull(Tensor([1.0, 2.0, 3.0]))
    with pytest.raises(TypeError, match="must match the 1 outputs, but got 2"):
        pull(Y, Y)


# ------------------------------------------------------------------------------------------------------ errors

ERRORS = [
    (lambda: ms.grad(product, None), ValueError, "can not be None at the same time"),
    (lambda: ms.grad(product, "0"), TypeError, "must be int, tuple of ints or None, but got '0'"),
    (lambda: ms.grad(product, -1), ValueError, ">= 0, but got -1"),
    (lambda: ms.grad(product, (0, 0)), ValueError, "distinct numbers"),
    (lambda: ms.grad(product, 2)(X, Y), IndexError, "'grad_position' is 2, but the call has 2 arguments"),
    (lambda: ms.grad(product)(), TypeError, "'product' cannot be called like this: missing a required argument: 'x'"),
    (lambda: ms.grad(product, 0, "w"), TypeError, "'weights' must be a Parameter or a list or tuple"),
    (lambda: ms.grad(product, has_aux=1), TypeError, "'has_aux' must be a bool, but got int"),
    (lambda: ms.grad(product, has_aux=True)(X, Y), ValueError, "at least two outputs, but got Tensor"),
    (lambda: ms.grad(3), TypeError, "must be a function or a Cell, but got int"),
    (lambda: ms.grad(product, sens_param=True)(X, Y, Tensor(1.0)), ValueError, r"shape \(2,\), but got \(\)"),
    (lambda: ms.grad(product, sens_param=True)(), TypeError, "the call has none"),
    (lambda: ops.GradOperation(get_all=1), TypeError, "'get_all' must be a bool"),
    (lambda: ops.GradOperation(get_by_list=True)(product), TypeError, "needs the 'weights'"),
    (lambda: ms.jvp(product, (X, Y), (X,)), ValueError, "should be 2, but got 1"),
    (
        lambda: ms.jvp(product, (X, Y), (X, Tensor(1.0))),
        ValueError,
        r"v\[1\] has shape \(\), but input 1 has shape \(2,\)",
    ),
    (lambda: ms.jvp(product, X, 1.0), TypeError, "must be a Tensor, or a tuple or list of Tensors"),
    (lambda: ms.vjp(product, X, 2.0), TypeError, "must be a Tensor"),
]


@pytest.mark.parametrize(("call", "kind", "message"), ERRORS)
def test_arguments_that_do_not_fit_are_refused(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


def test_numbers_agree_with_numpy():
    x = np.linspace(-1, 1, 6).reshape(2, 3)
    gradient = ms.grad(lambda x: ops.log(1 + ops.exp(x)))(Tensor(x))
    np.testing.assert_allclose(gradient.asnumpy(), 1 / (1 + np.exp(-x)), rtol=1e-12)


def test_inputs_by_name_and_the_sensitivity_by_name_have_gradients_as_others_do():
    class Net(nn.Cell):
        def construct(self, x, *args, **kwargs):
            return 2 * x + 4 * args[0] + 5 * kwargs["v"]

    every = ops.GradOperation(get_all=True)
    assert values(every(Net())(X, X, v=X)) == ([2, 2], [4, 4], [5, 5])
    assert values(ops.GradOperation()(lambda *, x, n: n * x)(x=X, n=3)) == [3, 3]
    for call in (lambda sens: (X, X, sens), lambda sens: (X, X)):
        by_name = {} if len(call(X)) == 3 else {"sens": Y}
        found = ops.GradOperation(get_all=True, sens_param=True)(Net())(*call(Y), v=X, **by_name)
        assert values(found) == ([6, 8], [12, 16], [15, 20])
        found = ms.grad(Net(), (0, 1, 2), sens_param=True)(*call(Y), v=X, **by_name)
        assert values(found) == ([6, 8], [12, 16], [15, 20])


def test_what_is_no_tensor_is_its_own_constant(mode):
    x = Tensor([2.0])
    assert ops.stop_gradient(None) is None
    assert ops.StopGradient()((3, "a")) == (3, "a")
    gradient = ms.grad(lambda x: (ops.stop_gradient((x, [x]))[1][0] * x).sum())(x)
    assert gradient.asnumpy().tolist() == [2.0]


def test_a_list_that_is_not_said_is_that_of_the_network():

    class Scaled(nn.Cell):
        def __init__(self):
            super().__init__()
            self.w = Parameter(X, name="w")
            self.fixed = Parameter(X, name="fixed", requires_grad=False)

        def construct(self, x):
            return self.w * x * self.fixed

    (by_weight,) = ops.GradOperation(get_by_list=True)(Scaled())(Y)
    np.testing.assert_allclose(by_weight.asnumpy(), (X * Y).asnumpy())
    ((by_input,), (again,)) = ops.GradOperation(get_by_list=True, get_all=True)(Scaled())(Y)
    np.testing.assert_allclose(by_input.asnumpy(), (X * X).asnumpy())
    np.testing.assert_allclose(again.asnumpy(), by_weight.asnumpy())


class Shifted(nn.Cell):
    def __init__(self, factor):
        super().__init__()
        self.factor, self.last = factor, ms.Parameter(Tensor([0.0, 1.0]), name="last")

    def construct(self, x, y):
        ops.assign(self.last, x)
        return self.last * self.factor + y, 2


def test_vmap_over_cells_gives_each_its_member():
    cells = nn.CellList([Shifted(1.0), Shifted(10.0)])
    x, y = Tensor([[1.0, 2.0], [3.0, 4.0]]), Tensor([0.5, 0.25])
    shifted, numbers = ms.vmap(cells, (1, None), (0, None))(x, y)
    np.testing.assert_array_equal(shifted.asnumpy(), [[1.5, 3.25], [20.5, 40.25]])
    assert int(numbers) == 2
    assert [cell.last.asnumpy().tolist() for cell in cells] == [[1.0, 3.0], [2.0, 4.0]]


def test_axes_may_be_lists_and_results_numbers():
    found, number = ms.vmap(lambda x, pair: (x * pair[0], 3), (0, [-1, None]), (0, 0))(X, (X.T, 1))
    np.testing.assert_array_equal(found.asnumpy(), X.asnumpy() ** 2)
    np.testing.assert_array_equal(number.asnumpy(), [3] * len(X))


def test_without_inputs_there_are_no_gradients():
    assert ms.GradOperation()(lambda: Tensor(1.0))() == ()
    with pytest.raises(RuntimeError, match="'grad_position' must not be empty"):
        ms.grad(lambda x: x, ())
