"""Loops and branches in a plan by propagation: their bodies are planned from inside.

Problem: a carried value must have the same placement at the end of a round as at its start.

Method: a body is planned twice: first to see which placements it prefers for what is not decided yet, then with these
placements given at both ends. If a search has inlined the loop (`planner.loops.inline`), it has decided both ends and
the shardings between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sporax.ir.graph import Operator, OperatorGraph
from sporax.ir.placement import Placement
from sporax.ir.plan import OperatorPlan, Plan, Resharding
from sporax.planner.propagation.policy import MaybePlacements
from sporax.planner.rules import Assignment

SCALAR = Placement(())
"""The placement of a tensor without dimensions, such as the index of a branch."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """What a search has decided of a graph, by position of the operator.

    Attributes:
        assignments: how operators are sharded.
        control: plans of loops and branches, which place their bodies' arguments and results.
        bodies: what it has decided of their bodies.
        shared: tensors that are brought somewhere once, for several readers, by number of the tensor.
    """

    assignments: Mapping[int, Assignment] = field(default_factory=dict)
    control: Mapping[int, OperatorPlan] = field(default_factory=dict)
    bodies: Mapping[int, tuple[Fixed, ...]] = field(default_factory=dict)
    shared: Mapping[int, Resharding] = field(default_factory=dict)


class PlanBody(Protocol):
    """Plans a body with given placements of its arguments, and of its results where these are given.

    Results from number `stacked` on may be partial sums. Gives the plan, and where operators inside have the arguments;
    parameters may be kept elsewhere. Operators are sharded as given.
    """

    def __call__(
        self,
        body: OperatorGraph,
        arguments: MaybePlacements,
        outputs: MaybePlacements = (),
        stacked: int | None = None,
        fixed: Fixed | None = None,
        /,
    ) -> tuple[Plan, tuple[Placement, ...]]:
        """Plan it."""


def plan_control_flow(operator: Operator, current: MaybePlacements, plan_body: PlanBody) -> OperatorPlan:
    """How a loop or branch is sharded.

    Args:
        current: where its operands are, as far as it is decided, all of them complete.
    """
    return _KINDS[operator.name](operator, current, plan_body)


def plan_as_decided(
    operator: Operator, decided: OperatorPlan, fixed: Sequence[Fixed], plan_body: PlanBody
) -> OperatorPlan:
    """How a loop or branch is sharded that a search has planned: at the edges of its bodies as there.

    Args:
        decided: the search's plan of it.
        fixed: what the search has decided of its bodies.
    """
    counts = _num_arguments(operator)
    arguments = [
        before.inputs[len(before.inputs) - count :] for before, count in zip(decided.bodies, counts, strict=True)
    ]
    if operator.name == "scan":
        return _scan_as_decided(operator, decided, arguments[0], fixed[0], plan_body)
    plans, are_stable = [], True
    for body, before, there, assignments in zip(operator.bodies, decided.bodies, arguments, fixed, strict=True):
        plans.append(plan_body(body, there, before.outputs, None, assignments)[0])
        are_stable = are_stable and plans[-1].inputs[len(body.inputs) - len(there) :] == tuple(there)
    if not are_stable:
        # Parameters are stored elsewhere than the search has seen, at both ends of each body, which follow from that.
        return plan_control_flow(operator, decided.operands, plan_body)
    return OperatorPlan((), decided.operands, decided.results, tuple(plans))


def _scan_as_decided(
    operator: Operator, decided: OperatorPlan, arguments: Sequence[Placement], fixed: Fixed, plan_body: PlanBody
) -> OperatorPlan:
    """The same for a loop of known length, with the placements of its body's arguments."""
    num_carry = operator.operation.params["num_carry"]
    ends = decided.bodies[0].outputs[:num_carry]
    plan, used = plan_body(operator.bodies[0], arguments, _free_stacks(operator, ends), num_carry, fixed)
    stored = plan.inputs[len(plan.inputs) - len(arguments) :]
    if stored != tuple(arguments):
        # Parameters that the rounds update are stored elsewhere than the search has seen, and must end there, too.
        return _planned_scan(operator, stored, used, plan_body, fixed)
    return OperatorPlan((), decided.operands, (*decided.results[:num_carry], *_stacked(plan, num_carry)), (plan,))


def _planned_scan(
    operator: Operator,
    stored: Sequence[Placement],
    used: Sequence[Placement],
    plan_body: PlanBody,
    fixed: Fixed | None = None,
) -> OperatorPlan:
    """A loop of known length whose body's arguments are stored here, the carried ones at both ends of a round, and used there."""
    num_consts, num_carry = operator.operation.params["num_consts"], operator.operation.params["num_carry"]
    first_row = num_consts + num_carry
    ends = stored[num_consts:first_row]
    plan, _ = plan_body(operator.bodies[0], used, _free_stacks(operator, ends), num_carry, fixed)
    # Rows are placed without the dimension of the rounds; outside, that dimension comes first again.
    operands = (*stored[:first_row], *(Placement(((), *item.dims)) for item in stored[first_row:]))
    return OperatorPlan((), operands, (*ends, *_stacked(plan, num_carry)), (plan,))


def _free_stacks(operator: Operator, ends: Sequence[Placement]) -> list[Placement | None]:
    """Placements of a body's results: those of what is carried; what is stacked may end wherever the body makes it."""
    return [*ends, *[None] * (len(operator.bodies[0].outputs) - len(ends))]


def _stacked(plan: Plan, num_carry: int) -> Iterator[Placement]:
    """What the rounds of a body give, stacked along a new first dimension that is never sharded.

    It is combined once where it is partial: gradients of stacked weights are.
    """
    return (Placement(((), *output.dims), output.partial, output.reduction) for output in plan.outputs[num_carry:])


# What the body has beyond these are constants that it brought along.
def _num_arguments(operator: Operator) -> list[int]:
    """How many operands each body is handed."""
    params, count = operator.operation.params, len(operator.operands)
    if operator.name == "while":
        return [count - params["body_nconsts"], count - params["cond_nconsts"]]
    return [count if operator.name == "scan" else count - 1] * len(operator.bodies)


def _scan(operator: Operator, current: MaybePlacements, plan_body: PlanBody) -> OperatorPlan:
    first_row = operator.operation.params["num_consts"] + operator.operation.params["num_carry"]
    # Operands in JAX's order: constants, carried values, stacked values, of which a round sees one row.
    rows = [None if placement is None else Placement(placement.dims[1:]) for placement in current[first_row:]]
    # The first plan shows which placements the body prefers; the second one has them at both ends of a round.
    first, used = plan_body(operator.bodies[0], [*current[:first_row], *rows])
    return _planned_scan(operator, first.inputs[len(first.inputs) - len(current) :], used, plan_body)


def _while(operator: Operator, current: MaybePlacements, plan_body: PlanBody) -> OperatorPlan:
    num_cond = operator.operation.params["cond_nconsts"]
    num_body = operator.operation.params["body_nconsts"]
    condition, body = operator.bodies
    carry = current[num_cond + num_body :]
    # The condition reads what the body carries, so the body decides.
    first, _ = plan_body(body, [*current[num_cond : num_cond + num_body], *carry])
    decided = first.inputs[len(body.inputs) - num_body - len(carry) :]
    # Both ends of a round have the placements that the first plan preferred, and both bodies read them.
    carried = decided[num_body:]
    plan, _ = plan_body(body, decided, carried)
    test, _ = plan_body(condition, [*current[:num_cond], *carried])
    consts = test.inputs[len(condition.inputs) - num_cond - len(carry) :][:num_cond]
    return OperatorPlan((), (*consts, *decided), tuple(carried), (test, plan))


def _cond(operator: Operator, current: MaybePlacements, plan_body: PlanBody) -> OperatorPlan:
    arguments: Sequence[Placement | None] = current[1:]
    # Operand 0 is the index, which all devices need whole.
    plans: list[Plan] = []
    outputs: MaybePlacements = ()
    for body in operator.bodies:
        plan, _ = plan_body(body, arguments, outputs)
        arguments = plan.inputs[len(body.inputs) - len(arguments) :]
        outputs = plan.outputs
        # Each branch starts from what the earlier ones decided, so that all of them end at the same placements.
        plans.append(plan)
    decided = tuple(argument or SCALAR for argument in arguments)
    # A later branch may have decided what earlier ones left open; then all are planned again with the same placements.
    if any(plan.inputs[len(plan.inputs) - len(decided) :] != decided for plan in plans):
        plans = [plan_body(body, decided, outputs)[0] for body in operator.bodies]
    return OperatorPlan((), (SCALAR, *decided), tuple(plans[0].outputs), tuple(plans))


_KINDS: Mapping[str, Callable[[Operator, MaybePlacements, PlanBody], OperatorPlan]] = {
    "scan": _scan,
    "while": _while,
    "cond": _cond,
}
