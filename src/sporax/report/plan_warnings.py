"""What a plan warns of: it stands at the plan's head, and is said when a step is planned.

Primitives and kernels that the planner does not know, with what they cost. Problem: a primitive without a rule and without a
reason in `planner.rules.rule_table` (of a newer JAX, or the user's own) is computed whole by every device, and so is a kernel of
foreign code, whose arithmetic is not even counted. The plan is right and may be many times slower and larger than it need be.
Method: the plan is costed as it is, and the seconds of these operators and of what is gathered for them are set against those of
the step.
"""

from __future__ import annotations

from sporax.base.text_tables import cost_text, size_text
from sporax.ir.graph import IDENTITIES, OperatorGraph
from sporax.ir.hardware import HardwareProfile
from sporax.ir.marks import OperatorMark
from sporax.ir.plan import Plan
from sporax.planner.cost.evaluate import PlanCost, cost_of
from sporax.planner.cost.model import CostModel
from sporax.planner.cost.symbolic import unit_of
from sporax.planner.loops.inline import inline_loops
from sporax.planner.rules import entry_for, is_uncounted, rule_for


def unknown_primitives(graph: OperatorGraph, plan: Plan, model: CostModel) -> tuple[str, ...]:
    """A warning for each primitive and kernel that the planner does not know; on one device, where all is whole, for each kernel
    whose time is not counted.

    Args:
        graph: the step.
        plan: its plan.
        model: the costs of operators and transfers.
    """
    names = {operator.name for operator in graph.walk()} - IDENTITIES
    unknown = {name for name in names if not entry_for(name).is_known} if plan.mesh.num_devices > 1 else set()
    unknown |= {operator.name for operator in graph.walk() if is_uncounted(operator.operation)}
    if not unknown:
        return ()
    inner, cost = inline_loops(graph).graph, cost_of(graph, plan, model)
    return tuple(_warning(name, inner, cost, unit_of(model)) for name in sorted(unknown))


def _warning(name: str, graph: OperatorGraph, cost: PlanCost, unit: str) -> str:
    numbers = [number for number, operator in enumerate(graph.operators) if operator.name == name]
    where = next((graph.operators[number].path for number in numbers if graph.operators[number].path), "")
    results = {tensor for number in numbers for tensor in graph.operators[number].results}
    share = cost_text(sum(cost.seconds_by_operator[number] for number in numbers), unit)
    held = size_text(sum(graph.tensors[tensor].num_bytes for tensor in results))
    place = f", the first in {where}" if where else ""
    times = "operator" if len(numbers) == 1 else "operators"
    first = graph.operators[numbers[0]].operation
    uncounted = " The time of its arithmetic is not counted." if is_uncounted(first) else ""
    subject, line = (
        f"'{name}' ({len(numbers)} {times}{place})",
        f"sporax.planner.rules.register('{name}', \"b i, i j -> b j\")",
    )
    if not rule_for(first).opaque:
        return (
            f"The kernel {subject} is sharded as its grid allows.{uncounted} {line}, with its own indices, says more."
        )
    return (
        f"The {'kernel' if uncounted else 'primitive'} {subject} is unknown to the planner: every device gathers its operands "
        f"and computes all of it, {share} of {cost_text(cost.seconds, unit)} a step and {held} of results on each device; what "
        f"reads them may be whole, too.{uncounted} {line}, with its own indices, says how it is sharded."
    )


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
