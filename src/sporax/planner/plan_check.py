"""Checks that a plan fits its graph: everything that the lowering relies on, from the rules alone.

Problem: plans come from searches, from files and from users' edits.

Method: no code is shared with the searches. Every statement of the plan is compared with the rule of its operator; the
first disagreement is reported with its place and both values.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from sporax.base.errors import For
from sporax.ir.graph import IDENTITIES, LITERAL, Operator, OperatorGraph
from sporax.ir.operation import TensorSpec
from sporax.ir.placement import Placement
from sporax.ir.plan import OperatorPlan, Plan
from sporax.planner.loops.inline import inline_loops
from sporax.planner.rules import placements, problem, rule_for
from sporax.planner.rules.loop_rules import RULES


def check_plan(graph: OperatorGraph, plan: Plan) -> None:
    """Raise unless `plan` can run `graph`.

    Raises:
        SporaxValueError: with the first thing that disagrees, where it is, and the two values.
    """
    reason = next(itertools.chain(_disagreements(graph, plan), _edges(graph, plan)), None)
    For("Plan").refuse(reason is not None, f"{reason}")


def _disagreements(graph: OperatorGraph, plan: Plan, inside: bool = False) -> Iterator[str]:
    """What is wrong; `inside` a loop or branch, arguments and results may be partial sums as far as `_edges` allows it."""
    counts = {
        "operators": (len(graph.operators), len(plan.operators)),
        "inputs": (len(graph.inputs), len(plan.inputs)),
        "outputs": (len(graph.outputs), len(plan.outputs)),
    }
    for name, (expected, got) in counts.items():
        if expected != got:
            yield f"there must be {expected} {name} as in the graph, but got {got}"
            # What follows pairs entries, so a wrong count would only cause strange messages.
            return
    if plan.graph and plan.graph != graph.fingerprint():
        yield f"the graph must be the one it was made for, {plan.graph}, but got {graph.fingerprint()}"
    yield from _ends(graph, plan, inside)
    for number, (operator, planned) in enumerate(zip(graph.operators, plan.operators, strict=True)):
        for reason in _operator(operator, planned, plan):
            yield f"operator {number} ({operator}): {reason}"
    for tensor, resharding in plan.reshardings.items():
        if not 0 <= tensor < len(graph.tensors):
            yield f"a resharded tensor must be one of {len(graph.tensors)}, but got {tensor}"
        else:
            yield from _fits(f"resharded tensor {tensor}", graph.tensors[tensor], resharding.placement, plan)


def _ends(graph: OperatorGraph, plan: Plan, inside: bool) -> Iterator[str]:
    for source, placement in zip(graph.inputs, plan.inputs, strict=True):
        name = f"input {source.name or source.tensor}"
        yield from _fits(name, graph.tensors[source.tensor], placement, plan)
        if not inside:
            # Inside a loop the edges decide what may be partial.
            yield from _complete(name, placement)
    for position, (tensor, placement) in enumerate(zip(graph.outputs, plan.outputs, strict=True)):
        if tensor != LITERAL:
            yield from _fits(f"output {position}", graph.tensors[tensor], placement, plan)
        if not inside:
            yield from _complete(f"output {position}", placement)
    for output, argument in graph.aliases:
        if plan.outputs[output] != plan.inputs[argument]:
            yield (
                f"output {output} must have the placement of the input that it replaces, "
                f"{graph.inputs[argument].name or argument} at {plan.inputs[argument]}, but got {plan.outputs[output]}"
            )


def _complete(name: str, placement: Placement) -> Iterator[str]:
    if placement.partial:
        yield f"{name} must be complete, but got {placement}"


def _fits(name: str, spec: TensorSpec, placement: Placement, plan: Plan) -> Iterator[str]:
    if not placement.used <= set(plan.mesh.device_axes):
        yield f"{name} must be sharded by axes of {plan.mesh}, but got {placement}"
    elif not placement.fits(spec.shape, plan.mesh):
        yield f"{name} of shape {spec.shape} must be divisible by its slices, but got {placement} on {plan.mesh}"


def _operator(operator: Operator, planned: OperatorPlan, plan: Plan) -> Iterator[str]:
    if len(planned.bodies) != len(operator.bodies):
        yield f"there must be {len(operator.bodies)} plans of bodies, but got {len(planned.bodies)}"
        return
    for body, body_plan in zip(operator.bodies, planned.bodies, strict=True):
        yield from _disagreements(body, body_plan, inside=True)
    # Marks have no rule of their own.
    if operator.name in IDENTITIES:
        if planned.operands != planned.results:
            before, after = list(map(str, planned.operands)), list(map(str, planned.results))
            yield f"it must hand on what it gets, {before}, but got {after}"
        return
    if operator.bodies:
        if operator.name == "while":
            yield from _complete("the condition", planned.bodies[0].outputs[0])
        return  # what else must agree, `_edges` says
    rule = rule_for(operator.operation)
    axes = set(itertools.chain(*planned.assignment))
    if not axes <= set(range(plan.mesh.num_axes)):
        yield f"it must be sharded by axes of {plan.mesh}, but got the assignment {planned.assignment}"
        return
    reason = problem(rule, planned.assignment, plan.mesh)
    if reason:
        yield f"the sharding must be possible, but {reason}"
        return
    # The assignment determines the placements; the plan repeats them for readers, so they may disagree.
    expected = placements(rule, planned.assignment)
    for side, needed, got in zip(("operands", "results"), expected, (planned.operands, planned.results), strict=True):
        if needed != got:
            yield f"{side} must have the placements {list(map(str, needed))} that its rule gives, but got {list(map(str, got))}"


def _edges(graph: OperatorGraph, plan: Plan) -> Iterator[str]:
    """What is around a loop or branch must be inside as well, and what is carried at the end of a round as at its start."""
    # Around bodies the edge operators of the inlined step have rules, so one comparison serves all kinds of loops.
    out = inline_loops(graph)
    for operator, planned, owner in zip(out.graph.operators, out.unfolded(plan).operators, out.owners, strict=True):
        if operator.name in RULES:
            expected = placements(rule_for(operator.operation), planned.assignment)
            got = planned.operands, planned.results
            if got != expected:
                texts = [" ".join(map(str, entry)) for entry in (*expected, *got)]
                yield (
                    f"operator {owner} ({graph.operators[owner]}): around its bodies ({operator.name}) tensors "
                    f"must have the placements {texts[0]} → {texts[1]}, but got {texts[2]} → {texts[3]}"
                )
