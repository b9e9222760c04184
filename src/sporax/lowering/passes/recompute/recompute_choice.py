"""The choice of what is computed again (`planner.memory.recomputation`), for a program and a way to plan it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from jax.extend.core import ClosedJaxpr, Var

from sporax.base.errors import SporaxRuntimeError
from sporax.base.progress import activity
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import IDENTITIES, OperatorGraph
from sporax.ir.placement import num_parts
from sporax.ir.plan import Plan
from sporax.lowering.ingest.describe import describe
from sporax.lowering.passes.recompute.recompute import CONTROL, PlanFacts, Recomputed, recompute
from sporax.lowering.passes.recompute.recompute_blocks import Chosen, RecomputeBlock, blocks_of, chosen
from sporax.lowering.rewriter import num_bytes, runs_backward, variables
from sporax.planner.cost.evaluate import cost_of, kernel_seconds
from sporax.planner.cost.model import CostModel, Roofline
from sporax.planner.memory.peak import backend_of, memory_of
from sporax.planner.memory.recomputation import Level, Levels, RecomputeOutcome, Saving, choose
from sporax.planner.rules import rule_for

PlanIt = Callable[[ClosedJaxpr, bool], tuple[OperatorGraph, Plan]]
"""Plans a rewritten program; raises SporaxRuntimeError where nothing fits a device, or where it may give up soon and does."""

_TOO_LARGE = RecomputeOutcome(float("inf"), float("inf"))


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
        model_of: the cost model of a plan; of None, operators on one device.
        limit_bytes: memory of one device.
        layout_is_free: `plan_it` searches for shardings.

    Raises:
        SporaxRuntimeError: nothing fits.
    """
    blocks = blocks_of(program)
    plans: dict[Levels, tuple[OperatorGraph, Plan]] = {}

    def evaluate(levels: Levels, is_quick: bool) -> RecomputeOutcome:
        try:
            graph, plan = plans[levels] = plan_it(rewrite(chosen(program, blocks, levels)), is_quick)
        except SporaxRuntimeError:
            # Where strategies are fixed, a failure has another cause than memory.
            if not is_quick:
                raise
            return _TOO_LARGE  # a search found no plan within the limit
        model = model_of(plan)
        return RecomputeOutcome(
            kernel_seconds(graph, plan, model) if isinstance(model, Roofline) else cost_of(graph, plan, model).seconds,
            memory_of(graph, plan, backend=backend_of(model.platform)).peak_bytes,
        )

    with activity("choosing what is computed again"):
        nothing = (Level.NOTHING,) * len(blocks)
        first = evaluate(nothing, layout_is_free)
        planned = plans.get(nothing)
        # Costs of operators come from the plan without recomputation, which all levels share.
        costs = _costs(rewrite(Chosen()), planned, model_of(None if planned is None else planned[1]))
        savings = _savings(program, facts, blocks, costs)
        decision = choose(
            savings,
            lambda levels, is_quick: first if levels == nothing else evaluate(levels, is_quick),
            limit_bytes,
            layout_is_free,
        )
    notes = decision.notes([block.path for block in blocks])
    return Choice(chosen(program, blocks, decision.levels), tuple(notes))


@dataclass(frozen=True, slots=True)
class _Costs:
    """Seconds of equations, by their first result, and bytes of values, on one device."""

    seconds: Mapping[Var, float]
    num_bytes: Mapping[Var, float]

    def saving(self, call: Recomputed, late: Collection[Var]) -> Saving:
        """What one call saves and costs; `late` is what the backward pass reads anyway."""
        released = sum(self.num_bytes.get(var, 0.0) for var in call.released)
        # What the backward pass reads anyway is not stored for the recomputation.
        stored = sum(self.num_bytes.get(var, 0.0) for var in call.saved if var not in late)
        again = sum(self.seconds.get(eqn.outvars[0], 0.0) for eqn in call.again if eqn.outvars)
        return Saving(released - stored, again)


def _costs(program: ClosedJaxpr, planned: tuple[OperatorGraph, Plan] | None, model: CostModel) -> _Costs:
    """What equations and values cost as they are sharded; as on one device where the plan is of a changed program."""
    seconds: dict[Var, float] = {}
    sizes: dict[Var, float] = {}
    # Only a program with one operator per equation can be matched with its plan.
    same_length = planned is not None and len(planned[0].operators) == len(program.jaxpr.eqns)
    for position, eqn in enumerate(program.jaxpr.eqns):
        here = planned[1].operators[position] if same_length and planned is not None else None
        mesh = planned[1].mesh if same_length and planned is not None else DeviceMatrix((1,))
        for number, var in enumerate(eqn.outvars):
            parts = 1 if here is None else num_parts(mesh, tuple(here.results[number].used))
            sizes[var] = num_bytes(var) / parts
        if not eqn.outvars or eqn.primitive.name in (*IDENTITIES, *CONTROL):
            continue
        operation = describe(eqn)
        rule = rule_for(operation)
        assignment = ((),) * len(rule.factors) if here is None else here.assignment
        seconds[eqn.outvars[0]] = model.seconds(operation, rule, assignment, mesh)
    return _Costs(seconds, sizes)


def _savings(
    program: ClosedJaxpr, facts: PlanFacts | None, blocks: Sequence[RecomputeBlock], costs: _Costs
) -> list[dict[Level, Saving]]:
    """What each level of each block saves and costs; levels that save nothing are left out."""
    savings: list[dict[Level, Saving]] = [{} for _ in blocks]
    numbers = {block.path: number for number, block in enumerate(blocks)}
    late = {var for eqn in program.jaxpr.eqns if runs_backward(eqn) for var in variables(eqn.invars)}
    for level in (level for level in Level if level is not Level.NOTHING):
        # All blocks at one level at once: one pass gives the savings of every block.
        _, calls = recompute(program, facts, chosen(program, blocks, (level,) * len(blocks)))
        for call in calls:
            if call.path is not None:
                of_block = savings[numbers[call.path]]
                before, more = of_block.get(level, Saving(0.0, 0.0)), costs.saving(call, late)
                of_block[level] = Saving(before.num_bytes + more.num_bytes, before.seconds + more.seconds)
    # A level that saves nothing only costs time.
    return [{level: saving for level, saving in block.items() if saving.num_bytes > 0} for block in savings]
