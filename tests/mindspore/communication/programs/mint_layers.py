"""`mint.nn.SyncBatchNorm` on every rank's part of a batch is `mint.nn.BatchNorm2d` on the whole."""

import numpy as np

import sporax.mindspore as ms
from sporax.mindspore import Tensor, mint, ops
from sporax.mindspore.communication import get_group_size, get_rank, init

init()
RANK, SIZE = get_rank(), get_group_size()
COUNTS = [3 + rank for rank in range(SIZE)]  # batches may differ in size
WHOLE = np.random.default_rng(1).normal(2, 3, (sum(COUNTS), 2, 4, 4)).astype(np.float32)
WEIGHTS = np.random.default_rng(2).normal(size=WHOLE.shape).astype(np.float32)


def share(array):
    first = sum(COUNTS[:RANK])
    return array[first : first + COUNTS[RANK]]


def trained(norm, x, weights):
    """Gradients of input and Parameters, and running statistics after one batch."""
    norm.set_train()
    grad_fn = ms.value_and_grad(lambda x: (norm(x) * weights).sum(), 0, norm.trainable_params())
    _, (grad_x, grads) = grad_fn(x)
    return [item.asnumpy() for item in (grad_x, *grads, norm.running_mean, norm.running_var)]


for mode in (ms.PYNATIVE_MODE, ms.GRAPH_MODE):
    ms.set_context(mode=mode)
    own = trained(mint.nn.SyncBatchNorm(2), Tensor(share(WHOLE)), Tensor(share(WEIGHTS)))
    whole = trained(mint.nn.BatchNorm2d(2), Tensor(WHOLE), Tensor(WEIGHTS))
    np.testing.assert_allclose(own[0], share(whole[0]), rtol=1e-4, atol=1e-5)
    for found, expected in zip(own[1:3], whole[1:3], strict=True):
        np.testing.assert_allclose(ops.AllReduce()(Tensor(found)).asnumpy(), expected, rtol=1e-4, atol=1e-4)
    for found, expected in zip(own[3:], whole[3:], strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5)
print(f"rank {RANK}: all is well")
