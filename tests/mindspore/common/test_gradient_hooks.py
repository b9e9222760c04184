"""Hooks on the gradients of tensors and Parameters."""

import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn, ops

X = Tensor(3.0)


def test_a_hook_sees_and_replaces_the_gradient_of_a_tensor(mode):
    seen = []

    def function(x):
        square = x * x
        square.register_hook(lambda gradient: gradient * 2)
        handle = square.register_hook(lambda gradient: seen.append(gradient.shape))
        square.register_hook(lambda gradient: gradient * 100).remove()
        assert handle is not None
        return square * 3

    assert ms.grad(function)(X).item() == 36
    assert set(seen) == {()}


def test_what_a_hook_returns_must_fit(mode):
    def gradient(result):
        def function(x):
            double = x * 2
            double.register_hook(lambda gradient: result)
            return (double * double).sum()

        return ms.grad(function)(Tensor([1.0, 2.0]))

    with pytest.raises(
        ValueError, match=r"'register_hook', the hook must return a gradient of shape \(2,\), but got \(\)"
    ):
        gradient(X)
    with pytest.raises(TypeError, match="'register_hook', what the hook returns must be a Tensor or None, but got int"):
        gradient(3)
    assert gradient(Tensor([1.0, 2.0], ms.float16)).asnumpy().tolist() == [2, 4]


@pytest.mark.parametrize("compiled", [False, True])
def test_hooks_of_an_input_get_its_whole_gradient(mode, compiled):
    x, y = Tensor([1.0, 2.0]), Tensor([3.0, 4.0])
    double = x.register_hook(lambda gradient: gradient * 2)
    y.register_hook(lambda gradient: gradient * 3)
    by_all = ops.GradOperation(get_all=True)(lambda x, y: x * x + x * y)
    by_first = ms.grad(lambda x: x * x + x)

    def gradients():
        every = (ms.jit(by_all) if compiled else by_all)(x, y)
        return [value.asnumpy().tolist() for value in (*every, (ms.jit(by_first) if compiled else by_first)(x))]

    # The wheel's; it goes on with a hook that is removed where a function was compiled with it.
    assert gradients() == gradients() == [[10, 16], [3, 6], [6, 10]]
    double.remove()
    assert gradients() == [[5, 8], [3, 6], [3, 5]]
    x.register_hook(lambda gradient: gradient * 5)
    assert gradients() == [[25, 40], [3, 6], [15, 25]]
    # Another tensor has no hooks, though the program is that of equal shapes; nor has what is made of the first one.
    assert by_first(Tensor([1.0, 2.0])).asnumpy().tolist() == by_first(x * 1).asnumpy().tolist() == [3, 5]


def test_a_hook_on_a_parameter_sees_the_whole_gradient(mode):
    net = nn.Dense(1, 1, weight_init="ones", has_bias=False)
    handle = net.weight.register_hook(lambda gradient: gradient * 10)

    def loss(x):
        return (net(x) + net(x)).sum()

    gradient = ms.value_and_grad(loss, None, net.trainable_params())
    assert gradient(Tensor([[3.0]]))[1][0].asnumpy().tolist() == [[60.0]]
    handle.remove()
    assert gradient(Tensor([[3.0]]))[1][0].asnumpy().tolist() == [[6.0]]


def test_primitives_replace_gradients(mode):
    hook, triple = ops.HookBackward(lambda gradients: (gradients[0] * 2,)), ops.InsertGradientOf(lambda g: g * 3)
    assert ms.grad(lambda x: hook(x * x))(X).item() == 12
    assert ms.grad(lambda x: triple(x * x))(X).item() == 18
    silent = ops.HookBackward(lambda gradients: None)
    first, second = ms.grad(lambda x, y: ops.mul(*silent(x * x, y * y)), (0, 1))(X, Tensor(2.0))
    assert (first.item(), second.item()) == (24, 36)


def test_hooks_of_cells_print_values(capsys):
    ms.set_context(mode=ms.PYNATIVE_MODE)
    net = nn.ReLU()
    net.register_forward_pre_hook(lambda cell, inputs: print("before", inputs[0]))
    net.register_forward_hook(lambda cell, inputs, output: print("after", inputs[0], output))
    net.register_backward_hook(lambda cell, grad_input, grad_output: print("back", grad_input[0], grad_output[0]))
    ms.grad(lambda x: net(x * 2).sum())(Tensor([1.0, -2.0]))
    assert capsys.readouterr().out == "before [ 2. -4.]\nafter [ 2. -4.] [2. 0.]\nback [1. 0.] [1. 1.]\n"


def test_a_backward_hook_runs_where_no_input_has_a_gradient(mode):
    net, seen = nn.Dense(2, 1), []
    net.register_backward_hook(lambda cell, grad_input, grad_output: seen.append((grad_input, grad_output[0].shape)))
    ms.value_and_grad(lambda x: net(x).sum(), None, net.trainable_params())(Tensor([[1.0, 2.0]]))
    assert set(seen) == {((None,), (1, 1))}


@pytest.mark.parametrize("make", [ops.HookBackward, ops.InsertGradientOf, Tensor(1.0).register_hook])
def test_a_hook_must_be_callable(make):
    with pytest.raises(TypeError, match="must be a"):
        make(3)
