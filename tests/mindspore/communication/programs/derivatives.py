"""Derivatives of collectives by MindSpore's rules, eagerly and compiled: each against the rule worked out by hand;
forward mode and second derivatives.

Every rank sums its outputs with weights of its own, so the cotangent of rank r is known to all.
"""

import numpy as np

import sporax.mindspore as ms
from sporax.mindspore import Tensor, ops
from sporax.mindspore.communication import get_group_size, get_rank, init

init()
RANK, SIZE = get_rank(), get_group_size()


def values(rank, *shape):
    return np.random.default_rng(rank).permutation(int(np.prod(shape))).reshape(shape).astype(np.float32) + 1 + rank / 8


def weights(rank, *shape):
    return np.random.default_rng(100 + rank).integers(1, 5, shape).astype(np.float32)


def check_gradients(cases):
    """Gradients of sum(weights · run(x)) on this rank: eagerly one by one, and in one compiled program, which must agree.

    A case is an operator, the shapes of its input and output, the expected gradient and perhaps its relative error.
    """
    runs = [run for run, *_ in cases]
    inputs = [Tensor(values(RANK, *shape)) for _, shape, *_ in cases]
    factors = [Tensor(weights(RANK, *out_shape)) for _, _, out_shape, *_ in cases]

    def loss(*inputs):
        return sum((run(x) * w).sum() for run, x, w in zip(runs, inputs, factors, strict=True))

    ms.set_context(mode=ms.GRAPH_MODE)
    compiled = ms.grad(loss, tuple(range(len(cases))))(*inputs)
    ms.set_context(mode=ms.PYNATIVE_MODE)
    for number, (run, _, _, expected, *rtol) in enumerate(cases):
        _, pull = ms.vjp(run, inputs[number])
        (gradient,) = pull(factors[number])
        eager = gradient.asnumpy()
        np.testing.assert_array_equal(compiled[number].asnumpy(), eager, err_msg=f"gradient {number}")
        np.testing.assert_allclose(eager, expected, *rtol, err_msg=f"gradient {number}")


def check_pushes(cases):
    """Derivatives of run(x) on this rank in the direction v; as in `check_gradients`."""
    runs = [run for run, *_ in cases]
    points, directions = ([Tensor(values(rank, *shape)) for _, shape, *_ in cases] for rank in (RANK, 50 + RANK))
    ms.set_context(mode=ms.GRAPH_MODE)
    compiled = ms.jit(lambda points, directions: [*map(ms.jvp, runs, points, directions)])(points, directions)
    ms.set_context(mode=ms.PYNATIVE_MODE)
    for number, (run, _, expected, *rtol) in enumerate(cases):
        output, slope = ms.jvp(run, points[number], directions[number])
        plain = run(points[number]).asnumpy()
        np.testing.assert_allclose(output.asnumpy(), plain, rtol=1e-6, err_msg=f"push {number}")
        np.testing.assert_allclose(compiled[number][0].asnumpy(), plain, rtol=1e-6, err_msg=f"push {number}")
        np.testing.assert_allclose(compiled[number][1].asnumpy(), slope.asnumpy(), rtol=1e-6, err_msg=f"push {number}")
        np.testing.assert_allclose(slope.asnumpy(), expected, *rtol, err_msg=f"push {number}")


shape, short, long, wide = (2 * SIZE, 3), (2, 3), (2 * SIZE * SIZE, 3), (2, 3 * SIZE)
x = np.stack([values(rank, *shape) for rank in range(SIZE)])
w = np.stack([weights(rank, *shape) for rank in range(SIZE)])
v = np.stack([values(50 + rank, *shape) for rank in range(SIZE)])
piece = slice(2 * RANK, 2 * RANK + 2)
product = x.prod(0)
all_w = np.stack([weights(rank, *long) for rank in range(SIZE)]).sum(0)
short_w = np.concatenate([weights(rank, *short) for rank in range(SIZE)])
wide_w = np.concatenate([weights(rank, *wide)[:, 3 * RANK : 3 * RANK + 3] for rank in range(SIZE)])
broadcast = lambda x: ops.Broadcast(1)((x,))[0]

# A ring. What comes back to the sender is the receiver's cotangent.
right, left = (RANK + 1) % SIZE, (RANK - 1) % SIZE
exchange = ops.NeighborExchange([right], [left], (list(short),), (list(short),), ms.float32)
ring = lambda x: exchange((x,))[0]

sizes = [rank + 1 for rank in range(SIZE)]  # everybody sends rank + 1 numbers to `rank`
uneven = lambda x: ops.AlltoAllV()(x, sizes, [RANK + 1] * SIZE)
starts = [RANK * (rank + 1) for rank in range(SIZE)]
uneven_w = [weights(rank, (rank + 1) * SIZE)[starts[rank] : starts[rank] + rank + 1] for rank in range(SIZE)]

gradients = [
    (ops.AllReduce(), shape, shape, w.sum(0)),
    (ops.AllReduce("max"), shape, shape, w.sum(0) * (x[RANK] == x.max(0))),
    (ops.AllReduce("min"), shape, shape, w.sum(0) * (x[RANK] == x.min(0))),
    (ops.AllReduce("prod"), shape, shape, (w * product).sum(0) / x[RANK], 1e-5),
    (ops.AllGather(), shape, long, all_w[RANK * shape[0] : (RANK + 1) * shape[0]]),
    (ops.ReduceScatter(), shape, short, short_w),
    (broadcast, shape, shape, w[RANK]),
    (ops.AlltoAll(SIZE, 0, 1), shape, wide, wide_w),
    (ops.Reduce(1), shape, shape if RANK == 1 else (1,), w[1]),
    (ops.CollectiveScatter(0), shape, short, short_w if RANK == 0 else 0 * short_w),
    (ops.CollectiveGather(0), short, shape if RANK == 0 else (1,), w[0][piece]),
    (ring, short, short, weights(right, *short)),
    (uneven, (sum(sizes),), ((RANK + 1) * SIZE,), np.concatenate(uneven_w)),
]
pushes = [
    (lambda x: ops.AllReduce()(x * x) * x, shape, (2 * x * v).sum(0) * x[RANK] + (x * x).sum(0) * v[RANK], 1e-5),
    (ops.AllReduce("max"), shape, (v * (x == x.max(0))).sum(0)),
    (ops.AllReduce("prod"), shape, product * (v / x).sum(0), 1e-5),
    (ops.AllGather(), shape, np.concatenate(v)),
    (ops.ReduceScatter(), shape, v.sum(0)[piece]),
    (broadcast, shape, v[RANK]),  # as its gradient: MindSpore's rule
    (ops.CollectiveScatter(0), shape, v[0][piece]),
    (ops.Reduce(1), shape, v.sum(0) if RANK == 1 else [0]),
    (ring, short, values(50 + left, *short)),
]
if RANK < 2:  # Send and Receive, backwards: Receive and Send. Rank 0 gets the derivative of what rank 1 does.
    passed = (lambda x: ops.Send(0, 1)(x)) if RANK == 0 else (lambda x: x * ops.Receive(0, 0, [2, 3], ms.float32)(x))
    (a, b), (da, db) = (values(0, *short), values(1, *short)), (values(50, *short), values(51, *short))
    gradients.append((passed, short, short, weights(1, *short) * (a if RANK else b)))
    # What Send gives back stands for the message: its derivative is where the message goes.
    pushes.append((passed, short, a * db + b * da if RANK else 0 * da, 1e-6))
check_gradients(gradients)
check_pushes(pushes)

# A step written by hand: forward AllReduce multiplies gradients by the number of ranks unless the loss is divided.
ms.set_context(mode=ms.GRAPH_MODE)
weight = ms.Parameter(Tensor(np.ones(3, np.float32)), name="w")
loss, grads = ms.value_and_grad(lambda x: ops.AllReduce()((x * weight).sum()), None, [weight])(Tensor(x[RANK]))
np.testing.assert_allclose(loss.asnumpy(), x.sum(), rtol=1e-5)
np.testing.assert_allclose(grads[0].asnumpy(), SIZE * x[RANK].sum(0), rtol=1e-5)

for mode in (ms.PYNATIVE_MODE, ms.GRAPH_MODE):  # derivatives of derivatives: exchanges again
    ms.set_context(mode=mode)
    second = ms.grad(lambda x: ms.grad(lambda x: ops.AllReduce()(x**3).sum())(x).sum())(Tensor(x[RANK]))
    np.testing.assert_allclose(second.asnumpy(), 6 * SIZE * x[RANK], rtol=1e-5)
print("all is well")
