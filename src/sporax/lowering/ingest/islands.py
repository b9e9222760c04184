"""`jax.shard_map` in a program: what plans must know of it, and its body as a graph of one device's slices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal
from jax.sharding import PartitionSpec

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import OperatorGraph
from sporax.ir.island import Island, IslandCollective, Names
from sporax.lowering.ingest.constraints import Constraints
from sporax.lowering.rewriter import aval_of
from sporax.planner.loops.inline import inline_loops
from sporax.planner.rules import local_flops, rule_for, unsharded

SHARD_MAP = "shard_map"
COLLECTIVES: Mapping[str, str] = {
    **dict.fromkeys(("psum", "psum_invariant", "pmax", "pmin"), "all_reduce"),
    **dict.fromkeys(("all_gather", "all_gather_invariant"), "all_gather"),
    "reduce_scatter": "reduce_scatter",
    "all_to_all": "all_to_all",
    "ppermute": "permute",
}
"""Collectives of JAX, and the kinds of moves that cost as much."""
_ONE_DEVICE = DeviceMatrix((1,))


def body_of(eqn: JaxprEqn) -> ClosedJaxpr:
    """The program of one device."""
    body: Jaxpr | ClosedJaxpr = eqn.params["jaxpr"]
    return body if isinstance(body, ClosedJaxpr) else ClosedJaxpr(body, ())


def island_of(eqn: JaxprEqn, body: OperatorGraph, constraints: Constraints) -> Island:
    """What a plan must know of an island.

    Raises:
        SporaxValueError: it is for other devices than the plan.
    """
    mesh = eqn.params["mesh"]
    matrix = constraints.matrix(mesh, SHARD_MAP, any_names=True)
    manual = eqn.params.get("newly_manual_axes", eqn.params.get("manual_axes", mesh.axis_names))
    axes = tuple(name for name in map(str, mesh.axis_names) if name in manual and name in matrix.names)

    def names(spec: PartitionSpec, num_dims: int) -> Names:
        entries = [*spec, *[None] * (num_dims - len(spec))]
        each = (() if entry is None else (entry,) if isinstance(entry, str) else tuple(entry) for entry in entries)
        return tuple(tuple(name for name in entry if name in axes) for entry in each)

    return Island(
        matrix,
        axes,
        tuple(
            names(spec, len(aval_of(var).shape)) for spec, var in zip(eqn.params["in_specs"], eqn.invars, strict=True)
        ),
        tuple(
            names(spec, len(aval_of(var).shape)) for spec, var in zip(eqn.params["out_specs"], eqn.outvars, strict=True)
        ),
        *_work(body),
    )


def _work(body: OperatorGraph) -> tuple[float, tuple[IslandCollective, ...]]:
    """Arithmetic and collectives of one device."""
    flops, collectives = 0.0, []
    for operator in inline_loops(body).graph.operators:
        rule = rule_for(operator.operation)
        flops += operator.times * local_flops(rule, unsharded(rule), _ONE_DEVICE)
        axes = named_axes(operator.operation.params)
        if operator.name in COLLECTIVES and axes:
            num_bytes = sum(spec.num_bytes for spec in operator.operation.operands)
            collectives.append(IslandCollective(COLLECTIVES[operator.name], axes, num_bytes, operator.times))
        elif (inner := operator.operation.params.get("island")) is not None:
            collectives += inner.collectives
    return flops, tuple(collectives)


def value_of(literal: Literal) -> Any:
    """The value of a literal; those in islands have axes of the island in their type, which is left out."""
    sharding = getattr(literal.aval, "sharding", None)
    return np.asarray(literal.val) if sharding is not None and not sharding.mesh.are_all_axes_auto else literal.val


def named_axes(params: Mapping[str, Any]) -> tuple[str, ...]:
    """The axes that a collective names."""
    names = params.get("axes", params.get("axis_name", ()))
    return tuple(
        str(name) for name in (names if isinstance(names, tuple | list) else (names,)) if isinstance(name, str)
    )
