"""A compiled step that calls a Cell and differentiates it runs it once, as MindSpore's compiler makes of it."""

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Parameter, Tensor, context, nn, ops
from sporax.mindspore.parallel.nn import PipelineCell

ROWS = np.random.default_rng(0).normal(size=(16, 8)).astype(np.float32)


class First(nn.Cell):
    """Draws, keeps statistics and counts its calls."""

    def __init__(self):
        super().__init__()
        self.w = Parameter(Tensor(np.full((8,), 0.5, np.float32)), name="w")
        self.calls = Parameter(Tensor(np.float32(0)), name="calls", requires_grad=False)
        self.drop, self.norm = nn.Dropout(p=0.3), nn.BatchNorm1d(8)

    def construct(self, x):
        self.calls = self.calls + 1
        return self.drop(self.norm(ops.tanh(x * self.w)))


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first = First()
        self.second = nn.Dense(8, 4)
        self.first.pipeline_stage, self.second.pipeline_stage = 0, 1

    def construct(self, x):
        return (self.second(self.first(x)) ** 2).mean()


class Step(nn.Cell):
    """A step as MindSpore's libraries write it."""

    def __init__(self, network, optimizer, order):
        super().__init__(auto_prefix=False)
        self.network, self.optimizer, self.weights, self.order = network, optimizer, optimizer.parameters, order
        self.network.set_grad()
        self.grad = ops.GradOperation(get_by_list=True, sens_param=True)
        self.scale = Parameter(Tensor(np.float32(4)), name="scale", requires_grad=False)

    def construct(self, *inputs):
        if self.order == "gradient first":
            grads = self.grad(self.network, self.weights)(*inputs, ops.fill(ms.float32, (), 4.0))
            loss = self.network(*inputs)
        else:
            loss = self.network(*inputs)
            if self.order == "written between":
                self.scale = self.scale * 1
            scale = ops.depend(self.scale, loss)
            grads = self.grad(self.network, self.weights)(*inputs, ops.ones_like(loss) * scale)
        self.optimizer(tuple(grad / 4 for grad in grads))
        return loss


def trained(order, stages=1, micro=0):
    """Losses of a few steps and all Parameters; `order` "plain" is our own step cell."""
    context.reset_auto_parallel_context()
    ms.set_seed(3)
    if stages > 1:
        context.set_auto_parallel_context(
            parallel_mode="semi_auto_parallel", device_num=8, pipeline_stages=stages, dataset_strategy="full_batch"
        )
    net = Net().set_train()
    cell = PipelineCell(net, micro) if micro else net
    optimizer = nn.SGD(net.trainable_params(), 0.1)
    step = nn.TrainOneStepCell(cell, optimizer) if order == "plain" else Step(cell, optimizer, order)
    step.set_train()
    losses = [float(step(Tensor(ROWS))) for _ in range(2)]
    context.reset_auto_parallel_context()
    return losses, {parameter.name: parameter.asnumpy() for parameter in net.get_parameters()}


def assert_same(got, expected):
    np.testing.assert_allclose(got[0], expected[0], rtol=1e-5)
    for name, value in expected[1].items():
        np.testing.assert_allclose(got[1][name], value, rtol=1e-4, atol=1e-6, err_msg=name)


@pytest.fixture(autouse=True)
def graph_mode():
    context.set_context(mode=context.GRAPH_MODE)


@pytest.mark.parametrize("order", ["loss first", "gradient first"])
def test_a_call_and_its_gradient_are_one_forward_pass(order):
    expected = trained("plain")
    assert expected[1]["first.calls"] == 2
    assert_same(trained(order), expected)


@pytest.mark.parametrize("order", ["loss first", "gradient first"])
def test_a_pipeline_has_one_loop_for_both(order):
    assert_same(trained(order, 2, 4), trained("plain", 2, 4))


def test_what_is_written_between_the_two_makes_them_two():
    """As the Cell might read it."""
    assert trained("written between")[1]["first.calls"] == 4


def test_in_pynative_mode_both_calls_run():
    context.set_context(mode=context.PYNATIVE_MODE)
    assert trained("loss first")[1]["first.calls"] == 4


def step_of(function):
    """A compiled function of a network, its weights and rows, and the network's number of calls afterwards."""
    net = Net().set_train()
    weights = net.trainable_params()
    ms.jit(lambda x: function(net, weights, x))(Tensor(ROWS))
    return int(net.first.calls.asnumpy())


def test_other_inputs_another_training_flag_and_two_calls_are_calls_of_their_own():
    gradient = ops.GradOperation(get_by_list=True)

    def evaluated(net, weights, x):
        net.set_train(False)
        loss = net(x)
        net.set_train(True)
        return loss, gradient(net, weights)(x)

    assert step_of(lambda net, weights, x: (net(x), gradient(net, weights)(x))) == 1
    assert step_of(lambda net, weights, x: (net(x), gradient(net, weights)(x * 2))) == 2
    assert step_of(lambda net, weights, x: (net(x), net(x))) == 2
    assert step_of(evaluated) == 2


def test_gradients_of_other_weights_have_a_forward_pass_of_their_own():
    gradient = ops.GradOperation(get_by_list=True)

    def step(net, weights, x):
        return net(x), gradient(net, weights[:1])(x), gradient(net, weights[1:])(x)

    assert step_of(step) == 2
