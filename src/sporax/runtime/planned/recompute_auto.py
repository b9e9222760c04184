"""``recompute="auto"``: what a step computes again is chosen by the planner, under the memory limit of a device.

Steps that a plan shards are planned once per choice that is tried, steps of one device as if they were sharded over one.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr

from sporax.base.errors import SporaxNotImplementedError
from sporax.ir.config.parallel_config import ParallelConfig, ParallelMode
from sporax.ir.config.plan_settings import PlanSettings
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import OperatorGraph, Role
from sporax.ir.placement import Placement
from sporax.ir.plan import Plan
from sporax.lowering.ingest.ingest import ingest
from sporax.lowering.passes.pass_order import run_rewrites
from sporax.lowering.passes.recompute.recompute import PlanFacts
from sporax.lowering.passes.recompute.recompute_blocks import Chosen
from sporax.lowering.passes.recompute.recompute_choice import Choice, PlanIt, choose_recomputation
from sporax.lowering.rewriter import flat
from sporax.planner import PlanRequest, cost_model, device_memory, make_plan
from sporax.planner.cost.model import CostModel
from sporax.planner.memory.backend import Backend
from sporax.planner.memory.peak import MemoryUse, backend_of, memory_of
from sporax.runtime.devices.global_view import devices_here
from sporax.runtime.storage.variables import names_of

_WITHIN = re.compile(r"recompute within (\d+)")
_log = logging.getLogger("sporax.compile")


def chosen_for_plan(
    program: ClosedJaxpr, tags: frozenset[str], facts: PlanFacts, plan_it: PlanIt, settings: PlanSettings
) -> Choice:
    """What a step computes again that a plan shards.

    Args:
        program: flat.

    Raises:
        SporaxNotImplementedError: the step has several pipeline stages.
        SporaxRuntimeError: nothing fits a device.
    """
    # Stages keep values of several micro batches at once, which the choice does not model.
    if settings.parallel.pipeline_stages > 1:
        raise SporaxNotImplementedError(
            "For 'set_auto_parallel_context', recompute='auto' is not offered with 'pipeline_stages' above 1, but got "
            f"{settings.parallel.pipeline_stages}. Mark Cells with 'recompute()' there."
        )
    devices = devices_here()
    profile = devices.profile(settings)

    def model_of(plan: Plan | None) -> CostModel:
        mesh = devices.mesh(settings.parallel) if plan is None else plan.mesh
        return cost_model(settings, mesh, profile, plan is None or plan.fusion_is_free)

    return choose_recomputation(
        program,
        facts,
        lambda chosen: run_rewrites(program, tags, facts, chosen)[0],
        plan_it,
        model_of,
        device_memory(settings, profile),
        layout_is_free=settings.parallel.parallel_mode == ParallelMode.AUTO_PARALLEL,
    )


def peak_of_one_device(
    program: Callable[..., Any],
    written: Sequence[Any],
    read: Sequence[Any],
    shapes: Sequence[Sequence[Any]],
    data: Sequence[Any],
    tags: frozenset[str],
) -> int:
    """Memory that a step of one device is predicted to need with all values on the device.

    Args:
        program: the step, of values of updated variables, of other variables, and data.
        shapes: of these, in two lists.
        data: shapes of the data.
        tags: passes of the step; of these, recomputation counts.
    """
    structs = [jax.ShapeDtypeStruct(value.shape, value.dtype) for value in data]
    leaves, tree = jax.tree.flatten((*map(list, shapes), structs))
    closed = jax.make_jaxpr(lambda *value: jax.tree.leaves(program(*jax.tree.unflatten(tree, value))))(*leaves)
    # Of all passes only recomputation changes what the device holds with everything on it.
    rewritten = run_rewrites(flat(closed), tags & {"recompute"})[0]
    backend = _backend_here()
    return memory_of(*_on_one_device(rewritten, names_of(written), names_of(read)), backend=backend).peak_bytes


def memory_of_one_device(
    program: ClosedJaxpr, updated: Sequence[str], read: Sequence[str], with_host: bool = False
) -> MemoryUse:
    """Memory that a step of one device is predicted to need on it, after all passes.

    Args:
        updated, read: names of the variables that it takes, in order.
        with_host: count what is in host memory, too: device and host are one memory, as they are on CPUs.
    """
    return memory_of(*_on_one_device(flat(program), updated, read), _backend_here(), with_host)


def _backend_here() -> Backend:
    """The compiler of the devices at hand, which run such steps."""
    return backend_of(devices_here().platform)


def _on_one_device(program: ClosedJaxpr, updated: Sequence[str], read: Sequence[str]) -> tuple[OperatorGraph, Plan]:
    """A step as if it was sharded over one device."""
    roles = [(Role.PARAMETER, name) for name in (*updated, *read)]
    roles += [(Role.DATA, f"input {number}") for number in range(len(program.jaxpr.invars) - len(roles))]
    graph = ingest(program, roles, [(number, number) for number in range(len(updated))]).graph
    unsharded = {entry.tensor: Placement(((),) * graph.tensors[entry.tensor].num_dims) for entry in graph.inputs}
    settings = PlanSettings(ParallelConfig(parallel_mode=ParallelMode.SEMI_AUTO_PARALLEL))
    request = PlanRequest(graph, DeviceMatrix((1,)), settings, devices_here().profile(settings), unsharded)
    return graph, make_plan(request).plan


def chooser_for_one_device(
    written: Sequence[Any], read: Sequence[Any], tags: frozenset[str]
) -> Callable[[ClosedJaxpr], Chosen]:
    """What chooses for a step of one device, whose arguments are its variables, the updated ones first, and data.

    Args:
        tags: passes of the step; one says the limit.
    """
    limit = next(int(match.group(1)) for tag in tags if (match := _WITHIN.fullmatch(tag)) is not None)
    parallel = ParallelConfig(parallel_mode=ParallelMode.SEMI_AUTO_PARALLEL)
    # The environment may change the hardware or the limit, as for sharded steps.
    settings = PlanSettings(parallel, max_device_bytes=limit).under(os.environ)
    profile = devices_here().profile(settings)
    model = cost_model(settings, DeviceMatrix((1,)), profile)

    def choose(program: ClosedJaxpr) -> Chosen:
        choice = choose_recomputation(
            program,
            None,
            lambda chosen: run_rewrites(program, tags, None, chosen)[0],
            lambda rewritten, is_quick: _on_one_device(rewritten, names_of(written), names_of(read)),
            lambda plan: model,
            device_memory(settings, profile),
        )
        for note in choice.notes:
            _log.info(note)
        return choice.chosen

    return choose
