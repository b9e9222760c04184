"""Layers and gradients that need the other ranks: `SyncBatchNorm`, rows of sparse gradients."""

import numpy as np

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn, ops
from sporax.mindspore.communication import get_group_size, get_rank, init

init()
RANK, SIZE = get_rank(), get_group_size()
COUNTS = [3 + rank for rank in range(SIZE)]  # batches may differ in size
WHOLE = np.random.default_rng(1).normal(2, 3, (sum(COUNTS), 2, 4, 4)).astype(np.float32)
WEIGHTS = np.random.default_rng(2).normal(size=WHOLE.shape).astype(np.float32)


def share(array, counts=COUNTS):
    first = sum(counts[:RANK])
    return array[first : first + counts[RANK]]


def trained(norm, x, weights):
    """Result, gradients of input and Parameters, and moving statistics after one batch."""
    norm.set_train()
    grad_fn = ms.value_and_grad(lambda x: (norm(x) * weights).sum(), 0, norm.trainable_params())
    _, (grad_x, grads) = grad_fn(x)
    result = norm(x)
    return [item.asnumpy() for item in (result, grad_x, *grads, norm.moving_mean, norm.moving_variance)]


def check_sync_batch_norm():
    """Each rank's part is that of `BatchNorm2d` on the whole batch; the ranks' gradients of Parameters add up to its."""
    own = trained(nn.SyncBatchNorm(2), Tensor(share(WHOLE)), Tensor(share(WEIGHTS)))
    whole = trained(nn.BatchNorm2d(2), Tensor(WHOLE), Tensor(WEIGHTS))
    for actual, expected in zip(own[:2], whole[:2], strict=True):
        np.testing.assert_allclose(actual, share(expected), rtol=1e-4, atol=1e-5)
    for actual, expected in zip(own[2:4], whole[2:4], strict=True):
        np.testing.assert_allclose(ops.AllReduce()(Tensor(actual)).asnumpy(), expected, rtol=1e-4, atol=1e-4)
    for actual, expected in zip(own[4:], whole[4:], strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-5)


def check_groups_of_sync_batch_norm():
    alone = nn.SyncBatchNorm(2, process_groups=[[rank] for rank in range(SIZE)])
    for actual, expected in zip(
        trained(alone, Tensor(share(WHOLE)), Tensor(share(WEIGHTS))),
        trained(nn.BatchNorm2d(2), Tensor(share(WHOLE)), Tensor(share(WEIGHTS))),
        strict=True,
    ):
        np.testing.assert_array_equal(actual, expected)


def check_rows():
    """Rows of all ranks are put together and scaled; tensors beside them are summed; Parameters of one rank stay."""
    params = [ms.Parameter(Tensor(np.zeros(3, np.float32)), name=f"p{i}") for i in range(3)]
    params[2].layerwise_parallel = True
    rows = ms.RowTensor(Tensor([RANK, 4]), Tensor(np.full((2, 3), 1.0 + RANK), ms.float16), (5, 3))
    reducer = nn.DistributedGradReducer(params, mean=True)
    for reduce in (reducer, ms.jit(reducer)):
        dense, actual, own = reduce((Tensor(np.full(3, RANK + 1.0, np.float32)), rows, rows))
        np.testing.assert_allclose(dense.asnumpy(), sum(range(1, SIZE + 1)) / SIZE)
        np.testing.assert_array_equal(actual.indices.asnumpy(), np.ravel([[rank, 4] for rank in range(SIZE)]))
        expected = np.repeat(np.arange(1.0, SIZE + 1) / SIZE, 2)[:, None] * np.ones(3)
        np.testing.assert_allclose(actual.values.asnumpy(), expected)
        assert (actual.dense_shape, actual.values.dtype) == ((5, 3), ms.float16)
        np.testing.assert_array_equal(own.indices.asnumpy(), [RANK, 4])


for mode in (ms.PYNATIVE_MODE, ms.GRAPH_MODE):
    ms.set_context(mode=mode)
    check_sync_batch_norm()
    check_groups_of_sync_batch_norm()
    check_rows()
print("all is well")
