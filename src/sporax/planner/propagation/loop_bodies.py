"""Loops and branches in a plan by propagation: bodies are planned from inside, with layouts that fit from one round to the next.

What a loop carries must lie at the end of its body as at the start. So a body is planned twice: first to see where it wants
what nobody has decided yet, then with that as given, at both ends. Where a search has looked inside
(`planner.loops.inline`), it has decided on both ends, and on the cuts between them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sporax.ir.graph import Operator, OperatorGraph
from sporax.ir.placement import Placement
from sporax.ir.plan import OperatorPlan, Plan, Settlement
from sporax.planner.propagation.policy import Known
from sporax.planner.rules import Assignment

SCALAR = Placement(())


@dataclass(frozen=True, slots=True)
class Given:
    """What a search has decided of a graph, by position of the operator.

    Attributes:
        cuts: how operators are cut.
        control: plans of loops and branches, by which their bodies' arguments and results lie.
        bodies: what it has decided of their bodies.
        shared: tensors that are brought somewhere once, for several readers, by number of the tensor.
    """

    cuts: Mapping[int, Assignment] = field(default_factory=dict)
    control: Mapping[int, OperatorPlan] = field(default_factory=dict)
    bodies: Mapping[int, tuple[Given, ...]] = field(default_factory=dict)
    shared: Mapping[int, Settlement] = field(default_factory=dict)


class PlanBody(Protocol):
    """Plans a body whose arguments lie as given, and whose results shall lie as given where that is said.

    Results from number `stacked` on may be parts of sums. Gives the plan, and where operators inside have the arguments;
    parameters may be kept elsewhere. Operators are cut as given.
    """

    def __call__(
        self,
        body: OperatorGraph,
        arguments: Known,
        outputs: Known = (),
        stacked: int | None = None,
        given: Given | None = None,
        /,
    ) -> tuple[Plan, tuple[Placement, ...]]:
        """Plan it."""
        ...


def plan_control_flow(operator: Operator, known: Known, plan_body: PlanBody) -> OperatorPlan:
    """How a loop or branch is cut.

    Args:
        operator: it.
        known: where its operands lie, as far as it is decided, all of them complete.
        plan_body: plans one of its bodies.
    """
    return _KINDS[operator.name](operator, known, plan_body)


def plan_as_decided(
    operator: Operator, decided: OperatorPlan, given: Sequence[Given], plan_body: PlanBody
) -> OperatorPlan:
    """How a loop or branch is cut that a search has planned: at the edges of its bodies as there.

    Args:
        operator: it.
        decided: the search's plan of it.
        given: what the search has decided of its bodies.
        plan_body: plans one of them.
    """
    params = operator.operation.params
    carried = params["num_carry"] if operator.name == "scan" else None
    plans = []
    for body, before, cuts, count in zip(operator.bodies, decided.bodies, given, _handed(operator), strict=True):
        ends = [where if carried is None or n < carried else None for n, where in enumerate(before.outputs)]
        plans.append(plan_body(body, before.inputs[len(before.inputs) - count :], ends, carried, cuts)[0])
    results = decided.results
    if carried is not None:
        stacked = (Placement(((), *each.dims), each.partial, each.reduction) for each in plans[0].outputs[carried:])
        results = (*results[:carried], *stacked)
    return OperatorPlan((), decided.operands, results, tuple(plans))


def _handed(operator: Operator) -> list[int]:
    """How many operands each body is handed."""
    params, count = operator.operation.params, len(operator.operands)
    if operator.name == "while":
        return [count - params["body_nconsts"], count - params["cond_nconsts"]]
    return [count if operator.name == "scan" else count - 1] * len(operator.bodies)


def _scan(operator: Operator, known: Known, plan_body: PlanBody) -> OperatorPlan:
    params = operator.operation.params
    num_consts, num_carry = params["num_consts"], params["num_carry"]
    specs = operator.operation.operands
    body = operator.bodies[0]
    consts = known[:num_consts]
    carry = list(known[num_consts : num_consts + num_carry])
    rows = [None if each is None else Placement(each.dims[1:]) for each in known[num_consts + num_carry :]]
    first, used = plan_body(body, [*consts, *carry, *rows])
    found = first.inputs[len(body.inputs) - len(specs) :]
    plan, _ = plan_body(
        body, used, [*found[num_consts : num_consts + num_carry], *[None] * (len(body.outputs) - num_carry)], num_carry
    )
    carried = found[num_consts : num_consts + num_carry]
    wanted = (
        *found[: num_consts + num_carry],
        *(Placement(((), *each.dims)) for each in found[num_consts + num_carry :]),
    )
    # What all rounds give is stacked, and combined once where it is in parts: gradients of stacked weights are.
    stacked = tuple(Placement(((), *each.dims), each.partial, each.reduction) for each in plan.outputs[num_carry:])
    return OperatorPlan((), wanted, (*carried, *stacked), (plan,))


def _while(operator: Operator, known: Known, plan_body: PlanBody) -> OperatorPlan:
    num_cond = operator.operation.params["cond_nconsts"]
    num_body = operator.operation.params["body_nconsts"]
    condition, body = operator.bodies
    carry = known[num_cond + num_body :]
    first, _ = plan_body(body, [*known[num_cond : num_cond + num_body], *carry])
    found = first.inputs[len(body.inputs) - num_body - len(carry) :]
    carried = found[num_body:]
    plan, _ = plan_body(body, found, carried)
    test, _ = plan_body(condition, [*known[:num_cond], *carried])
    consts = test.inputs[len(condition.inputs) - num_cond - len(carry) :][:num_cond]
    return OperatorPlan((), (*consts, *found), tuple(carried), (test, plan))


def _cond(operator: Operator, known: Known, plan_body: PlanBody) -> OperatorPlan:
    arguments: Sequence[Placement | None] = known[1:]
    plans: list[Plan] = []
    outputs: Known = ()
    for body in operator.bodies:
        plan, _ = plan_body(body, arguments, outputs)
        arguments = plan.inputs[len(body.inputs) - len(arguments) :]
        outputs = plan.outputs
        plans.append(plan)
    decided = tuple(each or SCALAR for each in arguments)
    if any(plan.inputs[len(plan.inputs) - len(decided) :] != decided for plan in plans):
        plans = [plan_body(body, decided, outputs)[0] for body in operator.bodies]
    return OperatorPlan((), (SCALAR, *decided), tuple(plans[0].outputs), tuple(plans))


_KINDS: Mapping[str, Callable[[Operator, Known, PlanBody], OperatorPlan]] = {
    "scan": _scan,
    "while": _while,
    "cond": _cond,
}
