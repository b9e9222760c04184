"""A plan as one program of all devices, on arrays that are whole."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import wraps
from typing import Any

import jax
from jax.sharding import AbstractMesh

from sporax.ir.plan import Plan
from sporax.lowering.execute.local_norms import LocalNorms
from sporax.lowering.execute.rank_program import rank_program
from sporax.lowering.ingest.ingest import Ingested
from sporax.lowering.passes.pass_order import with_hosts
from sporax.runtime.devices.global_view import axis_names, jax_mesh, partition_spec
from sporax.runtime.ranks.communication_reuse import reusing

# XLA:CPU's name of the pass that merges all-reduces which are ready at the same time.
_UNMERGED = {"xla_disable_hlo_passes": "cpu-all-reduce-combiner"}


def fusion_options(plan: Plan) -> dict[str, str]:
    """Options for XLA: it merges all-reduces that are ready at the same time only where nothing was said about fusion."""
    return {} if plan.fusion_is_free or jax.default_backend() != "cpu" else dict(_UNMERGED)


def device_program(
    step: Ingested,
    plan: Plan,
    name: str,
    norms: LocalNorms | None = None,
    away: Collection[int] = (),
    num_updated: int = 0,
) -> Callable[..., Any]:
    """The step by its plan: from its arguments, one after another, to the list of its results.

    Args:
        step: the program, as ingested.
        plan: how it is sharded.
        name: what it is called in the compiled module.
        norms: what is reported of gradients before they are combined, if anything.
        away: the arguments that are in host memory, by position.
        num_updated: how many arguments are updated.
    """
    mesh = plan.mesh
    program = rank_program(step, plan, axis_names(mesh), norms)
    if away or any(equation.on_host for equation in step.equations):
        # What a step updates comes first, in its results as in its arguments.
        program = with_hosts(program, away, {number for number in away if number < num_updated})
    program = reusing(program, name)
    # The name that profiles and XLA's messages show.
    program.__name__ = program.__qualname__ = name
    mapped: Callable[..., Any] = jax.shard_map(
        program,
        mesh=jax_mesh(mesh),
        in_specs=tuple(partition_spec(place, mesh) for place in plan.inputs[len(step.constants) :]),
        out_specs=[partition_spec(place, mesh) for place in plan.outputs],
        # The plan says which values are equal on several devices; JAX's own check cannot know it.
        check_vma=False,
    )

    @wraps(program)
    def outside(*args: Any) -> Any:
        # Users may have set a mesh of their own; this program names the axes of its mesh.
        with jax.sharding.use_abstract_mesh(AbstractMesh((), ())):
            return mapped(*args)

    return outside
