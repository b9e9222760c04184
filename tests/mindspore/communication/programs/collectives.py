"""Every collective against numpy: all dtypes, all reductions, world and sub-groups, eagerly and inside one program.

All ranks know what every rank brings (`brought`), so each computes by numpy what it must get.
"""

import numpy as np

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn, ops
from sporax.mindspore.communication import create_group, get_group_size, get_rank, init

DTYPES = [
    *(ms.bool_, ms.int8, ms.int16, ms.int32, ms.int64, ms.uint8, ms.uint16, ms.uint32, ms.uint64),
    *(ms.float16, ms.bfloat16, ms.float32, ms.float64, ms.complex64, ms.complex128),
]
COMBINE = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min}

init()
RANK, SIZE = get_rank(), get_group_size()


def brought(rank, dtype, shape):
    """What a rank brings: small numbers, so that sums and products of all are exact in every dtype."""
    rng = np.random.default_rng(1000 + rank)
    values = rng.integers(0, 2 if dtype in (ms.int8, ms.bool_) else 4, shape)
    if dtype in (ms.complex64, ms.complex128):
        values = values + 1j * rng.integers(0, 3, shape)
    return values.astype(np.float32 if dtype == ms.bfloat16 else dtype.np_dtype)


def same(tensor, expected, what):
    values = tensor.astype(ms.float32).asnumpy() if tensor.dtype == ms.bfloat16 else tensor.asnumpy()
    assert values.shape == np.shape(expected), (what, values.shape, np.shape(expected))
    np.testing.assert_array_equal(values, expected, err_msg=str(what))


def combined(op, stacked):
    if stacked.dtype == np.bool_:
        return stacked.any(0) if op in ("sum", "max") else stacked.all(0)
    return COMBINE[op](stacked, 0).astype(stacked.dtype)


class Everything(nn.Cell):
    """All collectives of one group on one input, for a program of its own in GRAPH_MODE."""

    def __init__(self, group, ranks, reductions):
        super().__init__()
        count = len(ranks)
        self.reduces = {op: ops.AllReduce(op, group) for op in reductions}
        self.scatters = {op: ops.ReduceScatter(op, group) for op in reductions}
        self.to_one = ops.Reduce(count - 1, "sum", group)
        self.gather = ops.AllGather(group)
        self.broadcast = ops.Broadcast(ranks[-1], group)
        self.swap = ops.AlltoAll(count, 0, 1, group)
        self.scatter = ops.CollectiveScatter(ranks[0], group)
        self.gather_one = ops.CollectiveGather(ranks[-1], group)
        self.barrier = ops.Barrier(group)

    def construct(self, x):
        self.barrier()
        results = {f"reduce {op}": run(x) for op, run in self.reduces.items()}
        results |= {f"reduce_scatter {op}": run(x) for op, run in self.scatters.items()}
        results["reduce_to_one"] = self.to_one(x)
        results["all_gather"] = self.gather(x)
        results["broadcast"], results["broadcast_second"] = self.broadcast((x, x[0]))
        results["all_to_all"] = self.swap(x)
        results["scatter"] = self.scatter(x)
        results["gather"] = self.gather_one(x)
        return results


def expected(ranks, dtype, shape, reductions):
    """What `Everything` must give on this rank."""
    inputs = np.stack([brought(rank, dtype, shape) for rank in ranks])
    position, count = ranks.index(RANK), len(ranks)
    piece = slice(position * shape[0] // count, (position + 1) * shape[0] // count)
    nothing = np.zeros(1, inputs.dtype)
    results = {f"reduce {op}": combined(op, inputs) for op in reductions}
    results |= {f"reduce_scatter {op}": combined(op, inputs)[piece] for op in reductions}
    results["reduce_to_one"] = combined("sum", inputs) if position == count - 1 else nothing
    results["all_gather"] = np.concatenate(inputs)
    results["broadcast"], results["broadcast_second"] = inputs[-1], inputs[-1][0]
    results["all_to_all"] = np.concatenate([item[piece] for item in inputs], 1)
    results["scatter"] = inputs[0][piece]
    results["gather"] = np.concatenate(inputs) if position == count - 1 else nothing
    return results


def check_group(group, ranks, dtypes, modes):
    if RANK not in ranks:
        return
    shape = (2 * len(ranks), 3)
    for mode in modes:
        ms.set_context(mode=mode)
        for dtype in dtypes:
            ordered = dtype not in (ms.complex64, ms.complex128)
            reductions = ("sum", "prod", "max", "min") if ordered else ("sum", "prod")
            values = Tensor(brought(RANK, dtype, shape)).astype(dtype)
            actual = Everything(group, ranks, reductions)(values)
            for what, result in expected(ranks, dtype, shape, reductions).items():
                same(actual[what], result, (group, mode, dtype, what))


def check_bits():
    """A broadcast changes no bit: NaN, -0 and infinities arrive as they are."""
    odd = np.array([np.nan, -0.0, np.inf, -np.inf, 1e-45], np.float32)
    (received,) = ops.Broadcast(0)((Tensor(odd if RANK == 0 else np.ones(5, np.float32)),))
    np.testing.assert_array_equal(received.asnumpy().view(np.uint32), odd.view(np.uint32))


def check_sums_are_the_same_everywhere():
    """Sums that are rounded have the same bits on all ranks, whatever their size: large ones may go another way."""
    for count in (3, 2**20 + 8):
        mine = np.random.default_rng(RANK).normal(size=count).astype(np.float32)
        total = ops.AllReduce()(Tensor(mine))
        everywhere = ops.AllGather()(ops.expand_dims(total, 0)).asnumpy()
        np.testing.assert_array_equal(everywhere.view(np.uint32), everywhere[:1].view(np.uint32).repeat(SIZE, 0))
        summands = [np.random.default_rng(rank).normal(size=count).astype(np.float32) for rank in range(SIZE)]
        np.testing.assert_allclose(total.asnumpy(), np.sum(summands, 0), rtol=1e-5, atol=1e-5)


def check_constants():
    """Constants of a program may differ between ranks; XLA must not take them for equal."""
    ms.set_context(mode=ms.GRAPH_MODE)

    @ms.jit
    def constants(x):
        mine = ops.full((4,), RANK + 1, dtype=ms.float32)
        return ops.AllReduce()(mine) + 0 * x, ops.AllGather()(mine), ops.AllReduce("max")(Tensor(float(RANK)))

    total, gathered, largest = constants(Tensor(np.zeros(4, np.float32)))
    same(total, np.full(4, SIZE * (SIZE + 1) / 2), "sum of constants")
    same(gathered, np.repeat(np.arange(1.0, SIZE + 1), 4), "gathered constants")
    same(largest, SIZE - 1.0, "largest constant")


WORLD = list(range(SIZE))
BOTH = (ms.PYNATIVE_MODE, ms.GRAPH_MODE)
check_group("hccl_world_group", WORLD, DTYPES if SIZE == 2 else DTYPES[:2], (ms.GRAPH_MODE,))
check_group("hccl_world_group", WORLD, (ms.float32, ms.bool_) if SIZE == 2 else (ms.float32,), (ms.PYNATIVE_MODE,))
check_bits()
check_sums_are_the_same_everywhere()
check_constants()
if SIZE == 4:
    for name, members in (("ends", [3, 0]), ("middle", [1, 2]), ("three", [0, 1, 3]), ("one", [2])):
        create_group(name, members)
        check_group(name, members, (ms.float32,), BOTH)
print("all is well")
