"""In PYNATIVE_MODE a sharded part of two processes has the gradients of one process; rows of its own are refused as far as needed."""

import numpy as np

import sporax.mindspore as ms
from sporax.base.errors import SporaxNotImplementedError
from sporax.mindspore import Tensor, communication, context, nn, ops

X = np.random.default_rng(2).normal(size=(8, 16)).astype(np.float32)


def gradients(block, rows):
    step = ms.value_and_grad(lambda x: ops.square(block(x)).mean(), None, block.trainable_params())
    loss, by_weight = step(Tensor(rows))
    return [item.asnumpy() for item in (loss, *by_weight)]


def new_block():
    return nn.SequentialCell(nn.Dense(16, 32, weight_init="ones", bias_init="zeros"), nn.ReLU())


context.set_context(mode=context.PYNATIVE_MODE)
alone = gradients(new_block(), X)
communication.init()
rank = communication.get_rank()
for strategy, rows in (("full_batch", X), ("data_parallel", X[4 * rank : 4 * rank + 4])):
    context.set_auto_parallel_context(
        parallel_mode="auto_parallel", search_mode="sharding_propagation", dataset_strategy=strategy
    )
    block = new_block().shard(((1, 2),))
    for actual, expected in zip(gradients(block, rows), alone, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)
try:
    ms.grad(lambda x: block(x).sum())(Tensor(rows))
except SporaxNotImplementedError as error:
    assert "each process has its own rows" in str(error)  # noqa: PT017 - no pytest in here
    print("all is well")
