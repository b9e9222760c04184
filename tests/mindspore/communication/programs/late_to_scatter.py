"""One rank comes to a reduce-scatter, an all-reduce and an all-gather so many seconds later than the others; nothing ends early."""

import sys
import time

import numpy as np

import sporax.mindspore as ms
from sporax.mindspore import Tensor, ops
from sporax.mindspore.communication import get_group_size, get_rank, init

init()
RANK, SIZE, SECONDS = get_rank(), get_group_size(), float(sys.argv[1])
ROWS = slice(RANK * 2, RANK * 2 + 2)
X = np.arange(SIZE * 6, dtype=np.float32).reshape(SIZE * 2, 3)
for mode in (ms.GRAPH_MODE, ms.PYNATIVE_MODE):
    ms.set_context(mode=mode)
    for operator, argument, expected in (
        (ops.ReduceScatter(), X, SIZE * X[ROWS]),
        (ops.AllReduce(), X, SIZE * X),
        (ops.AllGather(), X[ROWS], X),
    ):
        run = ms.jit(operator) if mode == ms.GRAPH_MODE else operator
        np.testing.assert_array_equal(run(Tensor(argument)).asnumpy(), expected)  # compiled, and all ranks are there
        late = mode == ms.GRAPH_MODE and isinstance(operator, ops.ReduceScatter)
        if RANK == SIZE - 1:
            time.sleep(SECONDS if late else 0.0)
        start = time.monotonic()
        np.testing.assert_array_equal(run(Tensor(argument)).asnumpy(), expected)
        if late and RANK == 0:
            assert time.monotonic() - start > SECONDS / 2, "did not wait"
print("all is well")
