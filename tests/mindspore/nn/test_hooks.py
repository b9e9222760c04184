import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.base.errors import SporaxTypeError
from sporax.mindspore import Tensor, nn, ops


class Double(nn.Cell):
    def construct(self, x, bias=0.0):
        return x * 2.0 + bias


class Outer(nn.Cell):
    def __init__(self):
        super().__init__()
        self.inner = Double()

    def construct(self, x):
        return self.inner(x * 3.0) * 5.0


X = Tensor([1.0, 2.0])


def run(net, x=X):
    return net(x).asnumpy().tolist()


def gradient(net, x=X):
    return ms.grad(net)(x).asnumpy().tolist()


def test_pre_hook_replaces_the_inputs(mode):
    net = Outer()
    handle = net.inner.register_forward_pre_hook(lambda cell, inputs: inputs[0] + 1.0)
    assert run(net) == [40.0, 70.0]
    handle.remove()
    handle.remove()
    assert run(net) == [30.0, 60.0]


def test_forward_hook_replaces_the_output_and_sees_both(mode):
    net = Outer()
    seen = []

    def hook(cell, inputs, output):
        seen.append((type(cell).__name__, len(inputs)))
        return output + inputs[0]

    handle = net.inner.register_forward_hook(hook)
    assert run(net) == [45.0, 90.0]
    assert ("Double", 1) in seen
    handle.remove()
    assert run(net) == [30.0, 60.0]


def test_hook_that_returns_none_changes_nothing(mode):
    net = Outer()
    net.inner.register_forward_pre_hook(lambda cell, inputs: None)
    net.inner.register_forward_hook(lambda cell, inputs, output: None)
    assert run(net) == [30.0, 60.0]


def test_hooks_run_in_order_and_prepend_goes_first(mode):
    net = Outer()
    net.inner.register_forward_hook(lambda cell, inputs, output: output + 1.0)
    net.inner.register_forward_hook(lambda cell, inputs, output: output * 0.0, prepend=True)
    assert run(net) == [5.0, 5.0]


def test_hooks_see_keyword_arguments():
    cell = Double()
    cell.register_forward_pre_hook(lambda cell, args, kwargs: (args, {"bias": kwargs["bias"] + 1.0}), with_kwargs=True)
    cell.register_forward_hook(lambda cell, args, kwargs, output: output * kwargs["bias"], with_kwargs=True)
    assert cell(X, bias=1.0).asnumpy().tolist() == [8.0, 12.0]
    cell.register_forward_pre_hook(lambda cell, args, kwargs: 3, with_kwargs=True)
    with pytest.raises(SporaxTypeError, match=r"must return None or \(args, kwargs\)"):
        cell(X, bias=1.0)


def test_always_called_hook_runs_when_construct_fails():
    class Failing(nn.Cell):
        def construct(self, x):
            raise ValueError("no")

    cell, calls = Failing(), []
    cell.register_forward_hook(lambda cell, inputs, output: calls.append(output), always_call=True)
    cell.register_forward_hook(lambda cell, inputs, output: calls.append("never"))
    with pytest.raises(ValueError, match="no"):
        cell(X)
    assert calls == [None]


def test_backward_hook_sees_both_gradients_and_replaces_that_of_the_input(mode):
    net, seen = Outer(), {}

    def hook(cell, grad_input, grad_output):
        seen.update(inputs=len(grad_input), outputs=len(grad_output))
        return grad_input[0] * 10.0

    handle = net.inner.register_backward_hook(hook)
    assert gradient(net) == [300.0, 300.0]
    assert seen == {"inputs": 1, "outputs": 1}
    handle.remove()
    assert gradient(net) == [30.0, 30.0]


def test_backward_hook_values_in_pynative():
    net, seen = Outer(), []
    net.inner.register_backward_hook(lambda cell, i, o: seen.append((i[0].asnumpy().tolist(), o[0].asnumpy().tolist())))
    gradient(net)
    assert seen == [([10.0, 10.0], [5.0, 5.0])]


def test_backward_pre_hook_replaces_the_gradient_of_the_output(mode):
    net = Outer()
    net.inner.register_backward_pre_hook(lambda cell, grad_output: grad_output[0] * 0.5)
    assert gradient(net) == [15.0, 15.0]


def test_a_hook_must_be_callable():
    for register in ("forward_pre", "forward", "backward", "backward_pre"):
        with pytest.raises(SporaxTypeError, match="must be a function"):
            getattr(Double(), f"register_{register}_hook")(3)


def test_hooks_act_in_a_training_step(mode):
    net = nn.Dense(2, 1, weight_init="ones", bias_init="zeros")
    net.register_backward_pre_hook(lambda cell, grad_output: grad_output[0] * 0.0)
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params(), 0.1))
    step(Tensor(np.ones((4, 2), np.float32)), ops.zeros((4, 1), ms.float32))
    assert net.weight.asnumpy().tolist() == [[1.0, 1.0]]


def test_gradients_seen_are_those_with_forward_hooks(mode):
    seen = []

    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.relu = nn.ReLU()
            self.relu.register_forward_pre_hook(lambda cell, inputs: (inputs[0] * 3,))
            self.relu.register_forward_hook(lambda cell, inputs, output: output * 5)
            self.relu.register_backward_hook(lambda cell, before, after: seen.append((before[0], after[0])))

        def construct(self, x):
            return self.relu(x) * 7

    gradient = ms.grad(Net())(Tensor([1.0]))
    assert gradient.asnumpy().tolist() == [105]
    if mode == ms.PYNATIVE_MODE:
        assert [(float(before[0]), float(after[0])) for before, after in seen] == [(35, 7)]
