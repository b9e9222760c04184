"""Offload in steps that a plan shards: which variables each device keeps on its host.

The plan is made as if all was on the devices. Then, as in steps of one device (`host_memory`), all Parameters and state go to the
host, or with ``auto_offload`` the largest until what the memory model predicts fits. Sizes are those of one device's part.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from types import SimpleNamespace

import jax

from sporax.base.errors import SporaxNotImplementedError
from sporax.ir.graph import OperatorGraph, Role
from sporax.ir.placement import Placement, num_parts
from sporax.ir.plan import Plan
from sporax.lowering.passes.pass_tags import SAVED_IN_FILES
from sporax.planner.memory.backend import Backend
from sporax.planner.memory.peak import memory_of
from sporax.runtime.devices.argument import Argument
from sporax.runtime.storage.host_memory import check_room, chosen_variables, limits_of


def check_offload(tags: Collection[str]) -> None:
    """Refuse what plans cannot offload.

    Raises:
        SporaxNotImplementedError: files.
    """
    if SAVED_IN_FILES in tags or any(tag.startswith("files ") for tag in tags):
        raise SporaxNotImplementedError(
            "For 'set_offload_context', 'disk' is offered in steps of one device, but this step is sharded by a plan. Use 'cpu' "
            "there."
        )


def sent_to_hosts(
    arguments: Sequence[Argument],
    tags: Collection[str],
    graph: OperatorGraph,
    plan: Plan,
    placements: Sequence[Placement],
    backend: Backend,
) -> list[Argument]:
    """The arguments of a step, those marked that are in host memory between steps.

    Args:
        arguments: of the step.
        tags: what the settings ask for.
        graph, plan: of the step, with everything on the devices.
        placements: where each argument is.
        backend: the compiler of the devices.

    Raises:
        SporaxRuntimeError: the hosts may not hold so much.
    """
    result = list(arguments)
    for above, within in limits_of(tags):
        # Bytes of one device: a sharded variable saves only its slice there.
        sizes = [_part_bytes(argument, plan, place) for argument, place in zip(arguments, placements, strict=True)]
        # `chosen_variables` reads Parameters of one device, so slices are shown to it in that form.
        parts = [
            SimpleNamespace(number=number, raw=SimpleNamespace(ndim=len(argument.array.shape), nbytes=sizes[number]))
            for number, argument in enumerate(result)
            if argument.role is not Role.DATA and not argument.on_host
        ]
        for part in parts:
            if result[part.number].role is Role.PARAMETER:
                part.requires_grad = True
        for part in chosen_variables(parts, above, lambda: memory_of(graph, plan, backend=backend).peak_bytes):
            result[part.number] = replace(result[part.number], on_host=True)
        # All devices of this process share one host's memory.
        on_this_host = plan.mesh.num_devices // jax.process_count()
        there = on_this_host * sum(size for size, argument in zip(sizes, result, strict=True) if argument.on_host)
        check_room(there, within)
    return result


def _part_bytes(argument: Argument, plan: Plan, place: Placement) -> int:
    size: int = math.prod(argument.array.shape) * argument.array.dtype.itemsize
    return size // num_parts(plan.mesh, tuple(place.used))
