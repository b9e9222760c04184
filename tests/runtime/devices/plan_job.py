"""One of two processes of plain JAX that plan a function: `plan_job.py PORT RANK`. Prints what it has found as JSON."""

import json
import sys

import jax
import jax.numpy as jnp
import numpy as np

import sporax
from sporax.base.errors import SporaxRuntimeError, SporaxValueError
from sporax.runtime.devices import agreed_plan

port, rank = sys.argv[1], int(sys.argv[2])
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(f"localhost:{port}", 2, rank)

searched = []
search = agreed_plan.make_plan
agreed_plan.make_plan = lambda request, measure=None: searched.append(request) or search(request)
agreed_plan._BEAT_SECONDS = 0.05  # some beats before the plan is there


def step(w, x):
    return jnp.tanh(x @ w["up"]) @ w["down"]


w = {"up": np.full((64, 128), 0.01, np.float32), "down": np.full((128, 64), 0.02, np.float32)}
x = np.arange(32 * 64, dtype=np.float32).reshape(32, 64) / 2048
planned = sporax.plan(step, w, x)
arrays = jax.tree.map(
    lambda value, sharding: jax.make_array_from_callback(value.shape, sharding, lambda index: value[index]),
    (w, x),
    planned.in_shardings,
)
result = planned.function()(*arrays)
expected = np.tanh(x @ w["up"]) @ w["down"]
equal = all(np.allclose(shard.data, expected[shard.index], atol=1e-5) for shard in result.addressable_shards)

errors = []
try:
    sporax.plan(step, w, x, memory=1000)
except SporaxRuntimeError as error:
    errors.append(str(error))
try:
    # A mistake of the script: the processes plan different functions.
    sporax.plan((lambda w, x: step(w, x) + 1) if rank else step, w, x)
except SporaxValueError as error:
    errors.append(str(error))

found = {
    "devices": planned.plan.mesh.num_devices,
    "searches": len(searched),
    "plan": planned.plan.to_json(),
    "seconds": planned.search.seconds,
    "cost": planned.search.cost_seconds,
    "equal": equal,
    "errors": errors,
}
print(json.dumps(found), flush=True)
