"""Training on all ranks equals training on one, with the whole batch: losses and weights.

Each rank trains twice: alone on whole batches, then with the others on its share. The mean of the ranks' losses must be
the loss of the whole batch, and all weights must agree.
"""

import sys
from functools import cache
from pathlib import Path

import numpy as np

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn, ops
from sporax.mindspore.communication import get_group_size, get_rank, init

sys.path.insert(0, str(Path(__file__).parents[2] / "golden"))
import curve_recipes
from curve_recipes import RECIPES, set_weights

STEPS = 4
init()
RANK, SIZE = get_rank(), get_group_size()


def share(array):
    """This rank's part of a batch."""
    rows = len(array) // SIZE
    return array[RANK * rows : (RANK + 1) * rows]


def step_cell(net, loss_fn, optimizer):
    return nn.TrainOneStepCell(nn.WithLossCell(net, loss_fn), optimizer)


def functional(net, loss_fn, optimizer):
    """As scripts do: the reducer made by hand, everything uncompiled outside."""
    grad_fn = ms.value_and_grad(lambda x, y: loss_fn(net(x), y), None, optimizer.parameters)
    reducer = nn.DistributedGradReducer(optimizer.parameters)

    def step(x, y):
        loss, grads = grad_fn(x, y)
        optimizer(reducer(grads))
        return loss

    return step


def compiled(net, loss_fn, optimizer):
    """One program written with `jit`."""
    return ms.jit(functional(net, loss_fn, optimizer))


def train(name, way, part):
    recipe = RECIPES[name]
    net = recipe.net(ms)
    set_weights(ms, net)
    net.set_train()
    step = way(net, recipe.loss(ms), recipe.optimizer(ms, net))
    batches = [batch for batch, _ in zip(recipe.batches(), range(STEPS), strict=False)]
    losses = [float(step(Tensor(part(x)), Tensor(part(y))).asnumpy()) for x, y in batches]
    return losses, {p.name: p.asnumpy() for p in net.trainable_params()}


@cache
def alone(name):
    """Losses and weights of one rank with whole batches."""
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.reset_auto_parallel_context()
    return train(name, step_cell, np.asarray)


def check(name, way, mode):
    losses, weights = alone(name)
    ms.set_context(mode=mode)
    ms.reset_auto_parallel_context()
    ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
    own_losses, own_weights = train(name, way, share)
    mean = ops.AllReduce()(Tensor(np.array(own_losses, np.float32))).asnumpy() / SIZE
    np.testing.assert_allclose(mean, losses, rtol=1e-5, err_msg=f"{name} {way.__name__} {mode}")
    for key, expected in weights.items():
        np.testing.assert_allclose(own_weights[key], expected, rtol=2e-5, atol=2e-6, err_msg=f"{name} {key}")


def check_model():
    """`Model.train` on a sharded dataset, from different weights: rank 0's are taken."""
    import sporax.mindspore.dataset as ds

    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(32, 20)).astype(np.float32), rng.integers(0, 5, 32).astype(np.int32)
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.reset_auto_parallel_context()
    ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True, parameter_broadcast=True)
    ms.set_seed(10 + RANK)
    net = curve_recipes.mlp(ms)
    model = ms.Model(net, nn.CrossEntropyLoss(), nn.Momentum(net.trainable_params(), 0.05, 0.9))
    data = ds.NumpySlicesDataset({"x": x, "y": y}, shuffle=False, num_shards=SIZE, shard_id=RANK).batch(4)
    model.train(2, data, dataset_sink_mode=False)
    for parameter in net.trainable_params():
        both = ops.AllGather()(parameter.value().expand_dims(0)).asnumpy()
        np.testing.assert_array_equal(both[0], both[-1])


def check_hybrid():
    """Parameters of one layer belong to each rank alone: neither broadcast nor reduced."""
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.reset_auto_parallel_context()
    ms.set_auto_parallel_context(parallel_mode="hybrid_parallel", gradients_mean=True, parameter_broadcast=True)
    net = nn.SequentialCell(nn.Dense(3, 4, weight_init=0.1 * (RANK + 1)), nn.Dense(4, 1, weight_init=0.1 * (RANK + 1)))
    for parameter in net[0].trainable_params():
        parameter.layerwise_parallel = True
    step = nn.TrainOneStepCell(
        nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params(), 0.1), return_grad=True
    )
    _, grads = step(Tensor(np.full((2, 3), RANK + 1.0, np.float32)), Tensor(np.zeros((2, 1), np.float32)))
    own, shared = (ops.AllGather()(grads[name].expand_dims(0)).asnumpy() for name in ("0.weight", "1.weight"))
    assert not np.allclose(own[0], own[1])
    np.testing.assert_array_equal(shared[0], shared[1])
    weights = ops.AllGather()(net[0].weight.value().expand_dims(0)).asnumpy()
    assert abs(weights[1]).mean() > 1.5 * abs(weights[0]).mean(), "the layer of each rank was overwritten"
    head = ops.AllGather()(net[1].weight.value().expand_dims(0)).asnumpy()
    np.testing.assert_array_equal(head[0], head[1])


def check_sum_and_dtypes():
    """Without the mean gradients are added up; half precision is summed in single; degree divides."""
    ms.reset_auto_parallel_context()
    params = [ms.Parameter(Tensor(np.ones(3), dtype), name=f"p{i}") for i, dtype in enumerate((ms.float16, ms.float32))]
    grads = tuple(Tensor(np.full(3, 1.0 + RANK), p.dtype) for p in params)
    total = sum(1.0 + rank for rank in range(SIZE))
    for options, factor in (({}, 1.0), ({"mean": True}, 1 / SIZE), ({"mean": True, "degree": 4}, 0.25)):
        for fusion_type in (0, 1):
            actual = nn.DistributedGradReducer(params, fusion_type=fusion_type, **options)(grads)
            assert [grad.dtype for grad in actual] == [ms.float16, ms.float32]
            for grad in actual:
                np.testing.assert_allclose(grad.asnumpy(), np.full(3, total * factor), rtol=1e-3)


which = sys.argv[1]
if which == "equal":
    check("lenet_momentum", step_cell, ms.GRAPH_MODE)
    check("mlp_adam", step_cell, ms.PYNATIVE_MODE)
    check("mlp_adam_weight_decay", compiled, ms.PYNATIVE_MODE)
    check("mlp_momentum", functional, ms.GRAPH_MODE)
    check("mlp_momentum", functional, ms.PYNATIVE_MODE)
else:
    check_model()
    check_hybrid()
    check_sum_and_dtypes()
print("all is well")
