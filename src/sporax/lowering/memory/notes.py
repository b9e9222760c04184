"""What a plan's notes say of memory: what recomputation saves and costs, and what travels between devices and their hosts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jax.extend.core import JaxprEqn

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import MARK
from sporax.ir.placement import num_parts
from sporax.ir.plan import Plan
from sporax.lowering.ingest import Ingested, path_of
from sporax.lowering.local_equations import describe
from sporax.lowering.memory.host import DEVICE, HOST
from sporax.lowering.memory.recompute import Recomputed
from sporax.lowering.memory.tags import path_of_tag
from sporax.planner.report.tables import size_text
from sporax.planner.rules import local_flops, rule_for

_LOOPS = ("scan", "while", "cond")


def recomputation_notes(calls: Sequence[Recomputed]) -> list[str]:
    """For each Cell and operator that was marked, in the order of the forward pass, what its mark saves and costs.

    Bytes that are no longer kept, bytes of what is kept to compute them again, and floating-point operations that run twice;
    of all devices together.
    """
    saved: dict[str, int] = {}
    kept: dict[str, int] = {}
    flops: dict[str, float] = {}
    for call in reversed(calls):  # the backward pass began with the last one
        path = path_of(path_of_tag(call.stack))[0] if call.path is None else call.path
        saved[path] = saved.get(path, 0) + _num_bytes(call.released)
        kept[path] = kept.get(path, 0) + _num_bytes(call.kept)
        flops[path] = flops.get(path, 0.0) + sum(map(_flops, call.again))
    return [
        f"recompute {path}: {size_text(saved[path])} of the whole step are not kept, {size_text(kept[path])} are kept to "
        f"compute them again, {flops[path]:.3g} flops run twice"
        for path in saved
    ]


def transfer_notes(names: Mapping[str, int], updated: Iterable[str]) -> list[str]:
    """For each variable that is on the host, what every device fetches and returns per step.

    Args:
        names: bytes of a device's part, by name.
        updated: those that a step updates.
    """
    returned = set(updated)
    return [
        f"host memory {name}: every device fetches {size_text(size)} a step"
        + (f" and returns {size_text(size)}" if name in returned else "")
        for name, size in names.items()
    ]


def activation_notes(step: Ingested, plan: Plan) -> list[str]:
    """What every device sends to its host in the forward pass of a step, and fetches in the backward pass."""
    sizes: dict[Any, list[int]] = {HOST: [], DEVICE: []}
    for operator, equation, planned in zip(step.graph.operators, step.equations, plan.operators, strict=True):
        space = equation.params.get("devices", (None,))[0]
        if operator.name == "device_put" and space in sizes:
            whole = step.graph.tensors[operator.results[0]].num_bytes
            sizes[space].append(whole // num_parts(plan.mesh, tuple(planned.results[0].used)))
    if not sizes[HOST]:
        return []
    return [
        f"host memory of activations: every device sends {size_text(sum(sizes[HOST]))} in {len(sizes[HOST])} transfers a step "
        f"and fetches {size_text(sum(sizes[DEVICE]))} in {len(sizes[DEVICE])}"
    ]


def _num_bytes(variables: Sequence[Any]) -> int:
    return sum(int(variable.aval.size * variable.aval.dtype.itemsize) for variable in variables)


def _flops(eqn: JaxprEqn) -> float:
    if eqn.primitive.name == MARK or eqn.primitive.name in _LOOPS:
        return 0.0
    rule = rule_for(describe(eqn))
    return local_flops(rule, ((),) * len(rule.factors), DeviceMatrix((1,)))
