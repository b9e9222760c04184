"""Ranks with weights of their own and `parameter_broadcast`: every way of training begins with those of rank 0."""

import numpy as np

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn, ops
from sporax.mindspore.communication import get_group_size, get_rank, init

init()
RANK, SIZE = get_rank(), get_group_size()


def data(step):
    rng = np.random.default_rng(10 * step + RANK)
    return Tensor(rng.normal(size=(4, 3)).astype(np.float32)), Tensor(rng.normal(size=(4, 1)).astype(np.float32))


class Looped(nn.Cell):
    """A layer whose weight is read in the body of a loop; `fixed` is drawn and does not train."""

    def __init__(self):
        super().__init__()
        self.fixed = nn.Dense(3, 4)
        self.norm = nn.BatchNorm1d(4)
        self.head = nn.Dense(4, 1)
        self.scale = ms.Parameter(Tensor(np.full(1, 1.0 + RANK, np.float32)), name="scale", requires_grad=False)
        for parameter in self.fixed.get_parameters():
            parameter.requires_grad = False

    def construct(self, x):
        x = ops.fori_loop(0, 2, lambda _, value: value * self.scale, x)
        return self.head(self.norm(self.fixed(x)))


def functions(net, optimizer, loss_fn):
    def forward(x, y):
        return loss_fn(net(x), y)

    grad_fn = ms.value_and_grad(forward, None, optimizer.parameters)
    reducer = nn.DistributedGradReducer(optimizer.parameters)

    def step(x, y):
        loss, grads = grad_fn(x, y)
        optimizer(reducer(grads))
        return loss

    return step


def jitted(net, optimizer, loss_fn):
    return ms.jit(functions(net, optimizer, loss_fn))


class OwnStep(nn.Cell):
    def __init__(self, network, optimizer):
        super().__init__(auto_prefix=False)
        self.network, self.optimizer, self.weights = network, optimizer, optimizer.parameters
        self.grad = ops.GradOperation(get_by_list=True)
        self.reducer = nn.DistributedGradReducer(self.weights)

    def construct(self, *inputs):
        self.optimizer(self.reducer(self.grad(self.network, self.weights)(*inputs)))
        return self.network(*inputs)


def own_cell(net, optimizer, loss_fn):
    return OwnStep(nn.WithLossCell(net, loss_fn), optimizer)


def model(net, optimizer, loss_fn):
    return ms.Model(net, loss_fn, optimizer).train_network


def train(way, mode, broadcast):
    """Parameters by name after two steps."""
    ms.reset_auto_parallel_context()
    ms.set_context(mode=mode)
    ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True, parameter_broadcast=broadcast)
    # Without the broadcast: the weights that rank 0 draws.
    ms.set_seed(1 + (RANK if broadcast else 0))
    net = Looped().set_train()
    if not broadcast:
        net.scale.set_data(Tensor(np.ones(1, np.float32)))
    optimizer = nn.Momentum(net.trainable_params(), 0.05, 0.9)
    if broadcast:
        # As after a checkpoint that rank 0 alone has loaded: moments and statistics, too.
        for moment in optimizer.moments:
            moment.set_data(Tensor(np.full(moment.shape, 0.01 * RANK, np.float32)))
        net.norm.moving_mean.set_data(Tensor(np.full(4, float(RANK), np.float32)))
    step = way(net, optimizer, nn.MSELoss())
    for number in range(2):
        step(*data(number))
    return {
        parameter.name: parameter.asnumpy()
        for parameter in (*net.get_parameters(), *optimizer.moments)
        if "moving" not in parameter.name  # statistics of each rank's own batches
    }


WAYS = {ms.PYNATIVE_MODE: (functions, own_cell), ms.GRAPH_MODE: (functions, jitted, own_cell, model)}

for mode, ways in WAYS.items():
    for way in ways:
        actual, expected = train(way, mode, True), train(way, mode, False)
        for name, value in expected.items():
            where = f"{way.__name__} in mode {mode}: {name} of rank {RANK}"
            np.testing.assert_allclose(actual[name], value, rtol=1e-5, atol=1e-6, err_msg=where)
            everywhere = ops.AllGather()(Tensor(np.atleast_1d(actual[name])[None])).asnumpy()
            np.testing.assert_array_equal(everywhere[0], everywhere[-1], err_msg=where)

# What runs before anything trains: the first loss, as loops with GradOperation read it.
for mode, way in ((ms.PYNATIVE_MODE, lambda net: net), (ms.GRAPH_MODE, lambda net: net), (ms.GRAPH_MODE, ms.jit)):
    ms.reset_auto_parallel_context()
    ms.set_context(mode=mode)
    ms.set_auto_parallel_context(parallel_mode="data_parallel", parameter_broadcast=True)
    net = nn.Dense(3, 1, weight_init=24.0 * (1 + 10 * RANK), bias_init="zeros")
    losses = ops.AllGather()(way(net)(Tensor(np.ones((1, 3), np.float32)))).asnumpy()
    np.testing.assert_array_equal(losses, np.full((SIZE, 1), 72.0), err_msg=f"{mode} {way}")
print("all is well", flush=True)
