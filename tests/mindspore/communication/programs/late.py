"""Settings that come after what they are about was made: both ranks train to the weights of the usual order.

Each rank's gradient is its batch, 2 or 4, and the learning rate is 1: alone a rank would come to -2 or -4.
"""

import numpy as np

import sporax.mindspore as ms
from sporax.mindspore import Parameter, Tensor, context, nn
from sporax.mindspore.communication import create_group, destroy_group, get_rank, init


class Product(nn.Cell):
    def __init__(self):
        super().__init__()
        self.weight = Parameter(Tensor(np.zeros(1, np.float32)))

    def construct(self, x):
        return (self.weight * x).sum()


def functional(optimizer, net):
    grad_fn = ms.value_and_grad(net, None, optimizer.parameters)
    reducer = nn.DistributedGradReducer(optimizer.parameters)

    def step(x):
        loss, grads = grad_fn(x)
        optimizer(reducer(grads))
        return loss

    return step


def step_cell(optimizer, net):
    return nn.TrainOneStepCell(net, optimizer)


def scaled(optimizer, net):
    return nn.TrainOneStepWithLossScaleCell(net, optimizer, Tensor(np.ones(1, np.float32)))


def model(optimizer, net):
    return ms.Model(net, None, optimizer).train_network


def derived(optimizer, net):
    """As MindSpore's users derive steps: flags and reducer of the base class."""

    class Step(nn.TrainOneStepCell):
        def construct(self, x):
            grads = self.grad_no_sens(self.network, self.weights)(x)
            self.optimizer(self.grad_reducer(grads) if self.reducer_flag else grads)
            return self.network(x)

    return Step(net, optimizer)


WAYS = (step_cell, scaled, model, derived, functional)


def set_mode():
    context.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)


def made(way, mode):
    context.set_context(mode=mode)
    context.reset_auto_parallel_context()
    net = Product()
    return net, way(nn.SGD(net.trainable_params(), 1.0), net)


def check(what, net, step):
    step(Tensor(np.array([2.0 + 2 * get_rank()], np.float32)))
    np.testing.assert_array_equal(net.weight.asnumpy(), [-3.0], err_msg=what)


before_init = [(way.__name__, *made(way, context.GRAPH_MODE)) for way in WAYS]
set_mode()
init()
for name, net, step in before_init:
    check(f"init after {name}", net, step)

for way in WAYS:
    for mode in (context.GRAPH_MODE, context.PYNATIVE_MODE):
        net, step = made(way, mode)
        set_mode()
        check(f"mode after {way.__name__} in mode {mode}", net, step)
    # After a first step, which changes nothing since the batch is zero.
    net, step = made(way, context.GRAPH_MODE)
    step(Tensor(np.zeros(1, np.float32)))
    set_mode()
    check(f"mode after the first step of {way.__name__}", net, step)

# Parameters are dealt to ranks by settings that come after the optimizer.
context.reset_auto_parallel_context()
parameters = [Parameter(Tensor(np.ones(2, np.float32)), name=f"p{i}") for i in range(2)]
optimizer = nn.AdamWeightDecay(parameters, 0.1)
assert not optimizer.use_parallel
set_mode()
context.set_auto_parallel_context(enable_parallel_optimizer=True)
assert optimizer.use_parallel
assert optimizer.param_rank == (0, 1)
optimizer(tuple(Tensor(np.ones(2, np.float32)) for _ in parameters))
moments = [parameter.asnumpy() for parameter in optimizer.moments1]
assert [bool(moment.any()) for moment in moments] == [index == get_rank() for index in (0, 1)], moments
assert all((parameter.asnumpy() < 1).all() for parameter in parameters)

# A group that has got other ranks.
context.reset_auto_parallel_context()
context.set_context(mode=context.GRAPH_MODE)
create_group("some", [0, 1])
total = ms.jit(lambda x: ms.ops.AllReduce(group="some")(x))
one = Tensor(np.ones(1, np.float32))
assert total(one).asnumpy() == 2
destroy_group("some")
create_group("some", [get_rank()])
assert total(one).asnumpy() == 1
print("all is well")
