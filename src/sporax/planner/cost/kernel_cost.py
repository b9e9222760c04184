"""The cost of a complete plan after fusion: it costs kernels, while searches cost operators.

Problem: a search needs a cost for every operator by itself and cannot know what will be fused.

Method: the compiler's backend (`sporax.planner.memory.backend`) says of a complete plan which operators are fused and which
arrays are written, and so how many bytes are read and written. This ranks plans with similar communication better, and takes
longer.
"""

from __future__ import annotations

from sporax.ir.graph import OperatorGraph
from sporax.ir.plan import Plan
from sporax.planner.cost.evaluate import cost_of
from sporax.planner.cost.model import Roofline, is_product
from sporax.planner.cost.overlap import exposed_shares
from sporax.planner.loops.inline import inline_loops
from sporax.planner.memory.backend import Kernel, KernelSchedule, Kind
from sporax.planner.memory.peak import backend_of
from sporax.planner.memory.step_events import Timeline
from sporax.planner.rules import local_flops, rule_for


def kernel_seconds(graph: OperatorGraph, plan: Plan, model: Roofline) -> float:
    """Predicted time of one step of the compiled plan.

    Args:
        graph: the step.
        plan: how it is sharded.
        model: costs of memory, arithmetic and links.
    """
    # Communication is the same with and without fusion, so it is taken over.
    cost = cost_of(graph, plan, model)
    out = inline_loops(graph)
    plan = out.unfolded(plan)
    timeline = Timeline(out.graph, plan)
    step = backend_of(model.platform).compiled(timeline)
    # Collectives are in the communication already; several products, and one of several kernels of an operator, are costed by it.
    roots = ((kernel, kernel.roots[0]) for kernel in step.kernels)
    alone = ((kernel, root) for kernel, root in roots if not root.sends and root.kind is not Kind.FUSED)
    working = [kernel for kernel, root in alone if timeline.events[root.event].island is None]
    computing = sum(_seconds(kernel, step, timeline, plan, model) for kernel in working)
    computing += _seconds_of_parts(out.graph, plan, model)
    shares = exposed_shares(cost.by_overlap, computing, model.profile.hidden)
    return float(computing + sum(shares[kind] * seconds for kind, seconds in cost.by_overlap.items()))


def _seconds_of_parts(graph: OperatorGraph, plan: Plan, model: Roofline) -> float:
    """Kernels of attention and of islands."""
    return sum(
        operator.times
        * (model.late_computing if operator.backward else 1.0)
        * model.seconds(operator.operation, rule_for(operator.operation), planned.assignment, plan.mesh)
        for operator, planned in zip(graph.operators, plan.operators, strict=True)
        if (operator.operation.fused and model.profile.attention) or "island" in operator.operation.params
    )


def _seconds(kernel: Kernel, step: KernelSchedule, timeline: Timeline, plan: Plan, model: Roofline) -> float:
    """The longer of arithmetic and memory traffic, plus the launch."""
    # Each array once: what a kernel computes inside stays in registers.
    moved = sum(step.sizes[array] for array in (*kernel.reads, *kernel.writes))
    arithmetic = 0.0
    (root,) = kernel.roots
    event = timeline.events[root.event]
    operator = event.operator
    # Only products do enough arithmetic to be slower than their memory traffic.
    if operator is not None and is_product(operator.operation) and not kernel.rearranges:
        assignment = plan.operators[event.position].assignment
        rate = model.flops_per_second(operator.operation)
        arithmetic = local_flops(rule_for(operator.operation), assignment, plan.mesh) / rate
    late = operator is not None and operator.backward
    seconds = model.profile.launch_seconds + max(moved / model.profile.bytes_per_second, arithmetic)
    return seconds * (1 if operator is None else operator.times) * (model.late_computing if late else 1.0)
