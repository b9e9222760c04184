"""What a finished plan costs when it is compiled: its kernels are priced, where searches price operators.

A search needs a price for every operator by itself. When a plan is finished, it is known what is melted into what, which
operands are rearranged and what is written out (`sporax.planner.memory.kernel_fusion`), and so how many bytes really
move. Plans of like bytes of communication are ranked better by this; it takes longer to work out.
"""

from __future__ import annotations

from sporax.ir.graph import LITERAL, OperatorGraph
from sporax.ir.plan import Plan
from sporax.planner.cost.evaluate import cost_of
from sporax.planner.cost.model import Roofline
from sporax.planner.loops.inline import written_out
from sporax.planner.memory.events import Timeline
from sporax.planner.memory.instructions import Kind, Pieces
from sporax.planner.memory.kernel_fusion import Kernel, kernels_of
from sporax.planner.rules import entry_for, local_flops, rule_for


def compiled_seconds(graph: OperatorGraph, plan: Plan, model: Roofline) -> float:
    """Predicted time of one step of the compiled plan.

    Args:
        graph: the step.
        plan: how it is cut.
        model: prices memory, arithmetic and links.
    """
    communicating = cost_of(graph, plan, model).communication_seconds
    out = written_out(graph)
    plan = out.unfolded(plan)
    pieces = Pieces(Timeline(out.graph, plan))
    results = [pieces.number[value] for value in pieces.timeline.outputs if value[0] != LITERAL]
    working = (kernel for kernel in kernels_of(pieces, results) if not kernel.roots[0].sends)
    computing = sum(_seconds(kernel, pieces, plan, model) for kernel in working)
    return computing + communicating


def _seconds(kernel: Kernel, pieces: Pieces, plan: Plan, model: Roofline) -> float:
    """The longer of arithmetic and memory traffic, plus the launch."""
    moved = sum(pieces.arrays[array].num_bytes for array in (*kernel.reads, *kernel.writes))
    arithmetic = 0.0
    (root,) = kernel.roots
    event = pieces.timeline.events[root.event]
    operator = event.operator
    weighs = operator is not None and entry_for(operator.name).family == "3 contraction"
    if operator is not None and weighs and root.kind is Kind.KERNEL:
        assignment = plan.operators[event.position].assignment
        rate = model.profile.flops_per_second(operator.operation.operands[0].dtype)
        arithmetic = local_flops(rule_for(operator.operation), assignment, plan.mesh) / rate
    late = operator is not None and operator.backward
    seconds = model.profile.launch_seconds + max(moved / model.profile.bytes_per_second, arithmetic)
    return seconds * (1 if operator is None else operator.times) * (model.late_computing if late else 1.0)
