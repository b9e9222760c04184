"""The choice of what is computed again (`planner.memory.recomputation`), for a program and a way to plan it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jax.extend.core import ClosedJaxpr, Var

from sporax.base.errors import SporaxRuntimeError
from sporax.base.progress import doing
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import IDENTITIES, OperatorGraph
from sporax.ir.placement import num_parts
from sporax.ir.plan import Plan
from sporax.lowering.flat_program import is_backward, stack_of
from sporax.lowering.ingest.describe import describe
from sporax.lowering.passes.recompute.recompute import PlanFacts, recompute
from sporax.lowering.passes.recompute.recompute_blocks import Block, Chosen, blocks_of, chosen
from sporax.planner.cost.evaluate import cost_of
from sporax.planner.cost.kernel_cost import kernel_seconds
from sporax.planner.cost.model import CostModel, Roofline
from sporax.planner.memory.peak import memory_of
from sporax.planner.memory.recomputation import Level, Levels, Outcome, Saving, choose
from sporax.planner.rules import rule_for

PlanIt = Callable[[ClosedJaxpr, bool], tuple[OperatorGraph, Plan]]
"""Plans a rewritten program; raises SporaxRuntimeError where nothing fits a device, or where it may give up soon and does."""

_CONTROL = ("scan", "while", "cond")
_TOO_LARGE = Outcome(float("inf"), float("inf"))


@dataclass(frozen=True, slots=True)
class Choice:
    """What is computed again, and what a plan's notes say of it."""

    chosen: Chosen = field(default_factory=Chosen)
    notes: tuple[str, ...] = ()


def choose_recomputation(
    program: ClosedJaxpr,
    facts: PlanFacts | None,
    rewrite: Callable[[Chosen], ClosedJaxpr],
    plan_it: PlanIt,
    model_of: Callable[[Plan | None], CostModel],
    limit_bytes: int,
    layout_is_free: bool = False,
) -> Choice:
    """Choose what a step computes again, so that it fits a device and is as fast as possible.

    Args:
        program: flat, as `rewrite` starts from it.
        facts: of a first plan, for `recompute`.
        rewrite: the program after all passes with such a choice.
        plan_it: plans that.
        model_of: what prices a plan; of None, operators on one device.
        limit_bytes: memory of one device.
        layout_is_free: `plan_it` searches for shardings.

    Raises:
        SporaxRuntimeError: nothing fits.
    """
    blocks = blocks_of(program)
    plans: dict[Levels, tuple[OperatorGraph, Plan]] = {}

    def evaluate(levels: Levels, gives_up: bool) -> Outcome:
        try:
            graph, plan = plans[levels] = plan_it(rewrite(chosen(program, blocks, levels)), gives_up)
        except SporaxRuntimeError:
            # Where strategies are fixed, a failure has another cause than memory.
            if not gives_up:
                raise
            return _TOO_LARGE  # a search found no plan within the limit
        return Outcome(_seconds(graph, plan, model_of(plan)), memory_of(graph, plan).peak_bytes)

    with doing("choosing what is computed again"):
        nothing = (Level.NOTHING,) * len(blocks)
        first = evaluate(nothing, layout_is_free)
        planned = plans.get(nothing)
        # Prices of operators come from the plan without recomputation, which all levels share.
        prices = _prices(rewrite(Chosen()), planned, model_of(None if planned is None else planned[1]))
        savings = _savings(program, facts, blocks, prices)
        decision = choose(
            savings,
            lambda levels, gives_up: first if levels == nothing else evaluate(levels, gives_up),
            limit_bytes,
            layout_is_free,
        )
    notes = decision.notes([block.path for block in blocks])
    return Choice(chosen(program, blocks, decision.levels), tuple(notes))


def _seconds(graph: OperatorGraph, plan: Plan, model: CostModel) -> float:
    return kernel_seconds(graph, plan, model) if isinstance(model, Roofline) else cost_of(graph, plan, model).seconds


@dataclass(frozen=True, slots=True)
class _Prices:
    """Seconds of equations, by their first result, and bytes of values, on one device."""

    seconds: Mapping[Var, float]
    num_bytes: Mapping[Var, float]


def _prices(program: ClosedJaxpr, planned: tuple[OperatorGraph, Plan] | None, model: CostModel) -> _Prices:
    """What equations and values cost as they are sharded; as on one device where the plan is of a changed program."""
    seconds: dict[Var, float] = {}
    sizes: dict[Var, float] = {}
    # Only a program with one operator per equation can be matched with its plan.
    alike = planned is not None and len(planned[0].operators) == len(program.jaxpr.eqns)
    for position, eqn in enumerate(program.jaxpr.eqns):
        here = planned[1].operators[position] if alike and planned is not None else None
        mesh = planned[1].mesh if alike and planned is not None else DeviceMatrix((1,))
        for number, var in enumerate(eqn.outvars):
            parts = 1 if here is None else num_parts(mesh, tuple(here.results[number].used))
            sizes[var] = _num_bytes(var) / parts
        if not eqn.outvars or eqn.primitive.name in (*IDENTITIES, *_CONTROL):
            continue
        operation = describe(eqn)
        rule = rule_for(operation)
        assignment = ((),) * len(rule.factors) if here is None else here.assignment
        seconds[eqn.outvars[0]] = model.seconds(operation, rule, assignment, mesh)
    return _Prices(seconds, sizes)


def _num_bytes(var: Any) -> float:
    return float(getattr(var.aval, "size", 0) * getattr(getattr(var.aval, "dtype", None), "itemsize", 0))


def _savings(
    program: ClosedJaxpr, facts: PlanFacts | None, blocks: Sequence[Block], prices: _Prices
) -> list[dict[Level, Saving]]:
    """What each level of each block saves and costs; levels that save nothing are left out."""
    savings: list[dict[Level, Saving]] = [{} for _ in blocks]
    places = {block.path: number for number, block in enumerate(blocks)}
    late = {
        var for eqn in program.jaxpr.eqns if is_backward(stack_of(eqn)) for var in eqn.invars if isinstance(var, Var)
    }
    for level in Level:
        if level is Level.NOTHING:
            continue
        # All blocks at one level at once: one pass gives the savings of every block.
        calls = recompute(program, facts, chosen(program, blocks, (level,) * len(blocks))).calls
        for call in calls:
            if call.path is None:
                continue
            released = sum(prices.num_bytes.get(var, 0.0) for var in call.released)
            # What the backward pass reads anyway is not kept for the recomputation.
            kept = sum(prices.num_bytes.get(var, 0.0) for var in call.kept if var not in late)
            again = sum(prices.seconds.get(eqn.outvars[0], 0.0) for eqn in call.again if eqn.outvars)
            before = savings[places[call.path]].get(level, Saving(0.0, 0.0))
            savings[places[call.path]][level] = Saving(before.num_bytes + released - kept, before.seconds + again)
    # A level that saves nothing only costs time.
    return [{level: saving for level, saving in block.items() if saving.num_bytes > 0} for block in savings]
