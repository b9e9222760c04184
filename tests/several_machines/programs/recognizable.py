"""A worker whose weights, gradients and rows are one repeated value each; arguments: that value, address of the scheduler."""

import sys

import numpy as np

from sporax.ps.client.store import Dense, ServerStore
from sporax.ps.protocol.messages import OptimizerSpec, VariableSpec
from sporax.ps.sockets.security import keys_for

value, scheduler = np.float32(sys.argv[1]), sys.argv[2]
store = ServerStore(scheduler, keys=keys_for(scheduler.rpartition(":")[0]), timeout=60)
sgd = OptimizerSpec("sgd")
store.declare([Dense("w", 4096, 0)], [sgd], [VariableSpec(32, "rows", 0, 64, sgd)])
store.initialise([np.full(4096, value)])
ids = np.arange(64)
for _ in range(3):
    rows = np.full((64, 64), value)
    store.wait(store.push([np.full(4096, value)], [0.0], {32: (ids, rows, 0.5)}))
dense, tables = store.pull({32: ids}, newest=True)
assert (dense[0] == value).all()
print(f"pulled {dense[0].size} weights and {tables[32].size} values of rows", flush=True)
store.close()
