"""Derivatives of collectives by MindSpore's rules, eagerly and compiled: each against the rule worked out by hand;
forward mode and second derivatives.

Every rank sums its outputs with weights of its own, so the cotangent of rank r is known to all.
"""

import numpy as np

import sporax as ms
from sporax import Tensor, ops
from sporax.communication import get_group_size, get_rank, init

init()
RANK, SIZE = get_rank(), get_group_size()


def values(rank, *shape):
    return np.random.default_rng(rank).permutation(int(np.prod(shape))).reshape(shape).astype(np.float32) + 1 + rank / 8


def weights(rank, *shape):
    return np.random.default_rng(100 + rank).integers(1, 5, shape).astype(np.float32)


def gradient(run, shape, out_shape):
    """Gradient on this rank of sum(weights · run(x)), in both modes, which must agree."""
    x, w = Tensor(values(RANK, *shape)), Tensor(weights(RANK, *out_shape))
    actual = []
    for mode in (ms.PYNATIVE_MODE, ms.GRAPH_MODE):
        ms.set_context(mode=mode)
        actual.append(ms.grad(lambda x: (run(x) * w).sum())(x).asnumpy())
    np.testing.assert_array_equal(actual[0], actual[1])
    return actual[0]


shape = (2 * SIZE, 3)
x = np.stack([values(rank, *shape) for rank in range(SIZE)])
w = np.stack([weights(rank, *shape) for rank in range(SIZE)])
piece = slice(2 * RANK, 2 * RANK + 2)

np.testing.assert_allclose(gradient(ops.AllReduce(), shape, shape), w.sum(0))
for op, extreme in (("max", x.max(0)), ("min", x.min(0))):
    np.testing.assert_allclose(gradient(ops.AllReduce(op), shape, shape), w.sum(0) * (x[RANK] == extreme))
product = x.prod(0)
np.testing.assert_allclose(gradient(ops.AllReduce("prod"), shape, shape), (w * product).sum(0) / x[RANK], rtol=1e-5)

long = (SIZE * shape[0], 3)
all_w = np.stack([weights(rank, *long) for rank in range(SIZE)]).sum(0)
np.testing.assert_allclose(gradient(ops.AllGather(), shape, long), all_w[RANK * shape[0] : (RANK + 1) * shape[0]])
short_w = np.concatenate([weights(rank, 2, 3) for rank in range(SIZE)])
np.testing.assert_allclose(gradient(ops.ReduceScatter(), shape, (2, 3)), short_w)
np.testing.assert_allclose(gradient(lambda x: ops.Broadcast(1)((x,))[0], shape, shape), w[RANK])
wide = (2, 3 * SIZE)
wide_w = [weights(rank, *wide)[:, 3 * RANK : 3 * RANK + 3] for rank in range(SIZE)]
np.testing.assert_allclose(gradient(ops.AlltoAll(SIZE, 0, 1), shape, wide), np.concatenate(wide_w))
reduced = gradient(ops.Reduce(1), shape, shape if RANK == 1 else (1,))
np.testing.assert_allclose(reduced, w[1])
scattered = gradient(ops.CollectiveScatter(0), shape, (2, 3))
np.testing.assert_allclose(scattered, short_w if RANK == 0 else 0 * short_w)
gathered = gradient(ops.CollectiveGather(0), (2, 3), shape if RANK == 0 else (1,))
np.testing.assert_allclose(gathered, w[0][piece])

# Messages: a ring. What comes back to the sender is the receiver's cotangent.
right, left = (RANK + 1) % SIZE, (RANK - 1) % SIZE
ring = ops.NeighborExchange([right], [left], ([2, 3],), ([2, 3],), ms.float32)
np.testing.assert_allclose(gradient(lambda x: ring((x,))[0], (2, 3), (2, 3)), weights(right, 2, 3))
sizes = [rank + 1 for rank in range(SIZE)]  # everybody sends rank + 1 numbers to `rank`
uneven = gradient(lambda x: ops.AlltoAllV()(x, sizes, [RANK + 1] * SIZE), (sum(sizes),), ((RANK + 1) * SIZE,))
starts = [RANK * (rank + 1) for rank in range(SIZE)]
expected = [weights(rank, (rank + 1) * SIZE)[starts[rank] : starts[rank] + rank + 1] for rank in range(SIZE)]
np.testing.assert_allclose(uneven, np.concatenate(expected))

if RANK < 2:  # Send and Receive, backwards: Receive and Send. Rank 0 gets the derivative of what rank 1 does.
    passed = (lambda x: ops.Send(0, 1)(x)) if RANK == 0 else (lambda x: x * ops.Receive(0, 0, [2, 3], ms.float32)(x))
    found = gradient(passed, (2, 3), (2, 3))
    np.testing.assert_allclose(found, weights(1, 2, 3) * values(1 if RANK == 0 else 0, 2, 3))

# A step written by hand: forward AllReduce multiplies gradients by the number of ranks unless the loss is divided.
ms.set_context(mode=ms.GRAPH_MODE)
weight = ms.Parameter(Tensor(np.ones(3, np.float32)), name="w")
loss, grads = ms.value_and_grad(lambda x: ops.AllReduce()((x * weight).sum()), None, [weight])(Tensor(x[RANK]))
np.testing.assert_allclose(loss.asnumpy(), x.sum(), rtol=1e-5)
np.testing.assert_allclose(grads[0].asnumpy(), SIZE * x[RANK].sum(0), rtol=1e-5)

# Forward mode, and derivatives of derivatives: exchanges again.


def push(run, shape):
    """Derivative of run(x) on this rank in the direction v, in both modes, which must agree."""
    point, direction = Tensor(values(RANK, *shape)), Tensor(values(50 + RANK, *shape))
    actual = []
    for mode, compiled in ((ms.PYNATIVE_MODE, lambda function: function), (ms.GRAPH_MODE, ms.jit)):
        ms.set_context(mode=mode)
        jvp = compiled(lambda x, v: ms.jvp(run, x, v))
        output, slope = jvp(point, direction)
        np.testing.assert_allclose(output.asnumpy(), run(point).asnumpy(), rtol=1e-6)
        actual.append(slope.asnumpy())
    np.testing.assert_allclose(actual[0], actual[1], rtol=1e-6)
    return actual[0]


v = np.stack([values(50 + rank, *shape) for rank in range(SIZE)])
expected = (2 * x * v).sum(0) * x[RANK] + (x * x).sum(0) * v[RANK]
np.testing.assert_allclose(push(lambda x: ops.AllReduce()(x * x) * x, shape), expected, rtol=1e-5)
np.testing.assert_allclose(push(ops.AllReduce("max"), shape), (v * (x == x.max(0))).sum(0))
np.testing.assert_allclose(push(ops.AllReduce("prod"), shape), product * (v / x).sum(0), rtol=1e-5)
np.testing.assert_allclose(push(ops.AllGather(), shape), np.concatenate(v))
np.testing.assert_allclose(push(ops.ReduceScatter(), shape), v.sum(0)[piece])
np.testing.assert_allclose(
    push(lambda x: ops.Broadcast(1)((x,))[0], shape), v[RANK]
)  # as its gradient: MindSpore's rule
np.testing.assert_allclose(push(ops.CollectiveScatter(0), shape), v[0][piece])
np.testing.assert_allclose(push(ops.Reduce(1), shape), v.sum(0) if RANK == 1 else [0])
np.testing.assert_allclose(push(lambda x: ring((x,))[0], (2, 3)), values(50 + left, 2, 3))
if RANK < 2:  # what Send gives back stands for the message: its derivative is where the message goes
    (a, b), (da, db) = (values(0, 2, 3), values(1, 2, 3)), (values(50, 2, 3), values(51, 2, 3))
    np.testing.assert_allclose(push(passed, (2, 3)), a * db + b * da if RANK else 0 * da, rtol=1e-6)
for mode in (ms.PYNATIVE_MODE, ms.GRAPH_MODE):
    ms.set_context(mode=mode)
    second = ms.grad(lambda x: ms.grad(lambda x: ops.AllReduce()(x**3).sum())(x).sum())(Tensor(x[RANK]))
    np.testing.assert_allclose(second.asnumpy(), 6 * SIZE * x[RANK], rtol=1e-5)
print("all is well")
