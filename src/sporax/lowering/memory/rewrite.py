"""All passes over a step's jaxpr in their order, and the compiler options that go with them.

A program says by *tags* which passes it wants (`sporax.runtime.state.note_tag`):

    "recompute"        calls or operators were marked for recomputation
    "host"             operators or variables belong on the host
    "offload"          activations of marked Cells and operators wait in host memory
    "offload kept"     so does what is kept for recomputed Cells
    "blocks"           repeated blocks should become loops
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from sporax.ir.graph import Role
from sporax.ir.reuse_limit import reuse_limit
from sporax.lowering.ingest import written_out
from sporax.lowering.memory.flat import flat
from sporax.lowering.memory.host import without_round_trips
from sporax.lowering.memory.offload import offloaded
from sporax.lowering.memory.plan_facts import Planner, plan_facts
from sporax.lowering.memory.recompute import PlanFacts, Recomputed, recompute
from sporax.lowering.memory.repeated_blocks import in_loops

_DISABLED = "xla_disable_hlo_passes"


def rewritten(function: Callable[..., Any], tags: Collection[str]) -> Callable[..., Any]:
    """`function`, of pytrees of arrays, as a program to which the passes have been applied."""

    def program(*args: Any) -> Any:
        leaves, tree = jax.tree.flatten(args)

        def of_leaves(*arrays: Any) -> Any:
            return function(*jax.tree.unflatten(tree, arrays))

        closed, shapes = jax.make_jaxpr(of_leaves, return_shape=True)(*leaves)
        results = jaxpr_as_fun(_passed(flat(closed), tags)[0])(*leaves)
        return jax.tree.unflatten(jax.tree.structure(shapes), results)

    program.__name__ = program.__qualname__ = function.__name__
    return program


def rewrite_for_plan(
    closed: ClosedJaxpr, tags: Collection[str], plan_of: Planner, roles: list[tuple[Role, str]]
) -> tuple[ClosedJaxpr, tuple[Recomputed, ...]]:
    """The same program after all passes, to be sharded by a plan, and what is computed again in it.

    `plan_of` and `roles` as `plan_facts` takes them.
    """
    program = flat(closed, written_out)
    return _passed(program, tags, plan_facts(program, plan_of, roles))


def _passed(
    program: ClosedJaxpr, tags: Collection[str], facts: PlanFacts | None = None
) -> tuple[ClosedJaxpr, tuple[Recomputed, ...]]:
    recomputation = recompute(program, facts)
    program = recomputation.program
    if "offload" in tags or "offload kept" in tags:
        kept = {
            var: -number
            for number, call in enumerate(recomputation.calls if "offload kept" in tags else (), 1)
            for var in call.kept
        }
        program = offloaded(program, kept)
    if "host" in tags:
        program = without_round_trips(program)
    if "blocks" in tags:
        program = in_loops(program, reuse_limit(os.environ))
    return program, recomputation.calls


def compiler_options(tags: Collection[str]) -> Mapping[str, Any]:
    """Options for programs that were rewritten.

    On CPUs XLA takes `optimization_barrier` away before it merges equal expressions, and finds that what is computed again
    is there already. Without that pass barriers stay to the end; they cost nothing.
    """
    if {"recompute", "offload", "offload kept"}.intersection(tags) and jax.default_backend() == "cpu":
        return {_DISABLED: "cse_barrier_expander"}
    return {}


def merged_options(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Options of both; lists of passes that are switched off are joined."""
    lists = [each[_DISABLED] for each in (first, second) if _DISABLED in each]
    return {**first, **second, **({_DISABLED: ",".join(lists)} if lists else {})}
