"""What a plan warns of: it stands at the plan's head, and is said when a step is planned."""

from __future__ import annotations

from sporax.base.text_tables import size_text
from sporax.ir.graph import OperatorGraph
from sporax.ir.hardware import HardwareProfile
from sporax.ir.marks import OperatorMark
from sporax.ir.plan import Plan
from sporax.planner.cost.model import CostModel
from sporax.report.unknown_primitives import unknown_primitives


def plan_warnings(graph: OperatorGraph, plan: Plan, model: CostModel) -> tuple[str, ...]:
    """All of it.

    Args:
        graph: the step.
        plan: its plan.
        model: the costs of operators and transfers.
    """
    return (*unknown_primitives(graph, plan, model), *_overwritten(graph, plan))


def beyond_the_chip(peak_bytes: int, profile: HardwareProfile) -> tuple[str, ...]:
    """The warning of a plan that needs more memory than a device has.

    Args:
        peak_bytes: predicted, of one device.
        profile: the devices.
    """
    if peak_bytes <= profile.memory_bytes:
        return ()
    needed, there = size_text(peak_bytes), size_text(profile.memory_bytes)
    return (
        f"The plan needs {needed} on each device, but '{profile.name}' has {there}: it cannot run there. Without memory=None a "
        "plan that fits is looked for; more devices, recomputation or a smaller batch need less.",
    )


def _overwritten(graph: OperatorGraph, plan: Plan) -> tuple[str, ...]:
    """Strategies of the user that a search has replaced."""
    lost = frozenset(plan.overwritten)
    if not lost:
        return ()
    marked: dict[int, str] = {}
    for operator in graph.walk():
        mark = operator.mark
        if isinstance(mark, OperatorMark) and mark.number in lost:
            marked.setdefault(mark.number, f"{mark.operator} in {operator.path}" if operator.path else mark.operator)
    first = next(iter(marked.values()), "an operator")
    whose = (
        f"the strategy of {first} is"
        if len(lost) == 1
        else f"the strategies of {len(lost)} operators ({first}, ...) are"
    )
    return (
        f"With search_mode='recursive_programming', {whose} replaced by the search's own, as in MindSpore. "
        "set_algo_parameters(recursive_keeps_strategies=True) keeps them; so do the other searches.",
    )
