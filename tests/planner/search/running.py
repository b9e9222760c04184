"""Runs a plan on simulated devices, beside the program on one device."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, PartitionSpec

from sporax.ir.plan import Plan
from sporax.lowering.execute.rank_program import rank_program
from sporax.lowering.ingest.ingest import Ingested


def arguments_of(step: Ingested, seed: int = 0):
    """Random arguments: integers below 8, small positive floats."""
    random = np.random.default_rng(seed)
    values = []
    for item in step.graph.inputs[len(step.constants) :]:
        spec = step.graph.tensors[item.tensor]
        if spec.dtype.startswith("int"):
            values.append(jnp.asarray(random.integers(0, 8, spec.shape), spec.dtype))
        else:
            values.append(jnp.asarray(0.1 + 0.1 * random.random(spec.shape), spec.dtype))
    return values


def run_whole(step: Ingested, arguments):
    """The program on one device, operator by operator, from the graph itself."""
    values = dict(zip((item.tensor for item in step.graph.inputs), [*step.constants, *arguments], strict=True))
    for operator, equation in zip(step.graph.operators, step.equations, strict=True):
        operands = [
            equation.literals[place] if tensor == -1 else values[tensor]
            for place, tensor in enumerate(operator.operands)
        ]
        results = equation.primitive.bind(*operands, **equation.params)
        results = results if equation.primitive.multiple_results else [results]
        values.update(zip(operator.results, results, strict=True))
    return [
        step.literal_outputs[place] if item == -1 else values[item] for place, item in enumerate(step.graph.outputs)
    ]


def compiled(step: Ingested, plan: Plan):
    """The plan as one compiled program over simulated devices."""
    shape = plan.mesh.shape
    names = tuple(f"a{axis}" for axis in range(len(shape)))
    devices = np.array(jax.devices("cpu")[: plan.mesh.num_devices]).reshape(shape)
    mesh = Mesh(devices, names, axis_types=(AxisType.Auto,) * len(names))

    def spec(placement):
        return PartitionSpec(*(tuple(names[axis] for axis in cut) or None for cut in placement.dims))

    inputs = tuple(map(spec, plan.inputs[len(step.constants) :]))
    program = rank_program(step, plan, names)
    return jax.jit(
        jax.shard_map(program, mesh=mesh, in_specs=inputs, out_specs=list(map(spec, plan.outputs)), check_vma=False)
    )


def assert_same_results(step: Ingested, plan: Plan) -> None:
    """The plan's program gives what one device gives."""
    arguments = arguments_of(step)
    for ours, theirs in zip(
        compiled(step, plan)(*arguments), jax.jit(lambda *a: run_whole(step, a))(*arguments), strict=True
    ):
        np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=2e-4, atol=1e-5)
