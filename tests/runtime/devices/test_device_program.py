"""A plan as one program of all devices."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.placement import Placement
from sporax.ir.plan import Resharding
from sporax.lowering.ingest.ingest import ingest
from sporax.planner.propagation.propagate import plan_by_propagation
from sporax.runtime.devices.global_view import device_program, fusion_options

X = np.arange(32, dtype=np.float32).reshape(8, 4)
W = np.arange(12, dtype=np.float32).reshape(4, 3)
MESH = DeviceMatrix((2, 2, 2))


def planned():
    """A product and a sum of a batch that is sharded over all devices."""
    table = jnp.ones(3)
    step = ingest(jax.make_jaxpr(lambda x, w: (x @ w + table, (x @ w).sum()))(X, W))
    first = len(step.constants)
    batch = {step.graph.inputs[first].tensor: Placement(((0, 1, 2), ()))}
    return step, plan_by_propagation(step.graph, MESH, batch)


def test_whole_arrays_go_in_and_whole_results_come_out():
    step, plan = planned()
    program = device_program(step, plan, "forward")
    compiled = jax.jit(program).lower(X, W).compile()
    product, total = compiled(X, W)
    np.testing.assert_allclose(product, X @ W + 1)
    np.testing.assert_allclose(total, (X @ W).sum())
    assert {shard.data.shape for shard in product.addressable_shards} == {(1, 3)}
    assert "all-reduce(" in compiled.as_text()
    assert "forward" in compiled.as_text().splitlines()[0]


def test_the_compiler_combines_collectives_only_where_nothing_was_said():
    plan = planned()[1]
    assert fusion_options(plan) == {}
    alone = replace(plan, reshardings={0: Resharding(plan.inputs[0], fusion=0)})
    assert fusion_options(alone) == {"xla_disable_hlo_passes": "cpu-all-reduce-combiner"}
