"""Loops and branches in a plan by propagation: bodies are planned from inside, with layouts that fit from one round to the next.

What a loop carries must lie at the end of its body as at the start. So a body is planned twice: first to see where it wants
what nobody has decided yet, then with that as given, at both ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from sporax.ir.graph import Operator, OperatorGraph
from sporax.ir.placement import Placement
from sporax.ir.plan import OperatorPlan, Plan
from sporax.planner.policy import Known

SCALAR = Placement(())


class PlanBody(Protocol):
    """Plans a body whose arguments lie as given, and whose results shall lie as given where that is said.

    Results from number `stacked` on may be parts of sums. Gives the plan, and where operators inside have the arguments;
    parameters may be kept elsewhere.
    """

    def __call__(
        self, body: OperatorGraph, arguments: Known, outputs: Known = (), stacked: int | None = None, /
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
