"""Plans within a memory limit: one Lagrangian loop, and local searches from where it leads.

Problem: min_x c(x) subject to m_t(x) <= L at all operators t, where x has one candidate per decision, c(x) is the
predicted time of the plan and m_t(x) its memory.

Method: the tensors alone take b_t(x) = sum_i b_ti(x_i) bytes (`measured_plan`). For a multiplier p >= 0 and weights w_t
with sum_t w_t = 1 of the operators at which a plan was too large,

    x(p) = argmin_x c(x) + p sum_t w_t b_t(x)

has no memory rows, so message passing solves it (`quick_choice`). p grows by a factor until x(p) fits, and is then the
geometric mean of the largest p that was too small and the least that was enough. Each x(p) is measured as a complete
plan, so bytes of resharding count though b_t leaves them out. The x(p) that are a little too large and cost less than all that
fit are made smaller (`local_search`), where none fits the smallest one, too; what fits then is improved. The best of
them is made smaller than it needs to be and improved again, which leads out of some local optima. Counts and no clocks end all
this: every process finds the same plan.

A problem of many decisions is solved with tied blocks first (`repeated_blocks`), and not improved after that.

A limit that no plan keeps needs none of it, which takes a minute for a transformer (`reject_infeasible_limit`). Where the memory
of the unsharded step over the number of devices, about the best there is, is far below the limit, nothing is done. Otherwise a
plan that fits is looked for, whatever its time: first by few large multipliers, then as the smallest plan there is (`smallest`).
Where neither fits, no search is begun: it would end with that plan, too. In a large problem, a limit that is far off is looked at
for less long.

References: M. L. Fisher, "The Lagrangian relaxation method for solving integer programming problems", Management Science
27 (1981); H. R. Lourenço, O. C. Martin and T. Stützle, "Iterated local search", Handbook of Metaheuristics, 2003.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterator, Sequence

import numpy as np

from sporax.base.errors import SporaxRuntimeError
from sporax.base.text_tables import limit_text
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import OperatorGraph
from sporax.planner.cost.model import CostModel
from sporax.planner.loops.inline import inline_loops
from sporax.planner.memory.peak import MemoryUse, Use, backend_of, memory_of
from sporax.planner.search.limit.local_search import improved, reduce_memory, smallest_of
from sporax.planner.search.space.measured_plan import MeasuredPlan, measured, weighted_bytes
from sporax.planner.search.space.plan_assembly import replicated_plan
from sporax.planner.search.space.problem import Problem, ProblemBuilder, SearchOptions
from sporax.planner.search.space.repeated_blocks import choose_tied, labels
from sporax.planner.search.space.resharding_cost import Floats
from sporax.planner.solver.portfolio.quick_choice import choose

_FIRST_SHARE = 0.05
"""First multiplier: with it the bytes of a whole peak cost this share of the step's time."""
_FACTOR = 4.0
"""Factor between multipliers until a plan fits."""
_CLOSE = 1.05
"""Factor between a multiplier that is too small and one that is enough, at which the loop ends."""
_MULTIPLIERS = 14
"""Most multipliers: 4 ** 8 above the first one, memory is all that counts."""
_MEMORY_ALONE, _FEW_MULTIPLIERS = _FACTOR**6, 3
"""Factor of the first multiplier, and how many there are, where a plan that fits is enough, whatever it costs."""
_SMALL_MULTIPLIERS = 6
"""Multipliers that the smallest plan is looked for with: with larger ones, what resharding adds is more than what they save."""
_BYTE, _ROUNDS = 1e3, 4
"""Cost of a byte next to a nanosecond where memory alone counts, so that time decides between equal plans; how often at most."""
_NEAR = 1.2
"""Share of the limit up to which a plan that is too large is worth a repair of its own."""
_WORTH = 0.95
"""Share of the cost of a plan that fits below which one that is too large is repaired."""
_SHRUNK = ((0.85, True), (0.75, False))
"""Shares of the limit that a plan is made smaller than, to be improved again, and whether the peak leads."""
_OPERATORS_AGAIN = 15_000
"""Operators of all plans together that may be measured on each way there."""
_NEAR_LEAST = 1.05
"""Times of the least cost without a limit up to which a plan is not improved again."""
_LARGE = 400
"""Decisions from which a problem is large: its loop takes seconds, and each of its plans most of a second to measure."""


def least_cost(problem: Problem, attempts: Sequence[Sequence[int]]) -> list[int]:
    """min_x c(x) within the problem's memory limit, of the plans that were found.

    Args:
        problem: the problem, with its limit in the options.
        attempts: known choices; the one of message passing is added.

    Raises:
        SporaxRuntimeError: nothing fits; says what would, unless the search gives up soon (`SearchOptions.is_quick`).
    """
    limit = problem.options.memory_bytes
    by_cost = sorted([*map(list, attempts), choose(problem.cost_graph())], key=problem.seconds)
    if limit is None:
        return by_cost[0]
    known = next((chosen for chosen in by_cost if measured(problem, chosen).peak_bytes <= limit), None)
    if known is by_cost[0]:
        # Nothing within the limit can be better than what was suggested without one.
        return known
    plan = fit(problem, limit)
    choices = [chosen for chosen in (known, plan.chosen if plan.peak_bytes <= limit else None) if chosen is not None]
    if choices:
        return min(choices, key=problem.seconds)
    if problem.options.is_quick:
        raise SporaxRuntimeError(
            f"For 'search', a plan must be found soon that needs no more than {limit} bytes on a device, but got none."
        )
    raise nothing_fits(limit, plan.profile.memory)


def fit(problem: Problem, limit: int) -> MeasuredPlan:
    """The plan of least cost that fits of those that were found, or the smallest where none was; cached.

    Args:
        problem: the problem; one that gives up looks no further than the Lagrangian loop.
        limit: bytes of one device.
    """
    return problem.cached(f"fitted within {limit}", lambda: _fit(problem, limit), of_costs=True)


def _fit(problem: Problem, limit: int) -> MeasuredPlan:
    large = is_large(problem)
    plans = [lagrangian_plan(problem, limit, tied=large)]
    if large and plans[0].peak_bytes > limit:
        plans.append(lagrangian_plan(problem, limit))
    if not problem.options.is_quick:
        plans = _repaired(problem, plans, limit)
    # Two ways may have led to one plan.
    plans = [*{tuple(plan.chosen): plan for plan in plans}.values()]
    if large:
        return min(plans, key=lambda entry: _rank(problem, entry, limit))
    plans = [plan if plan.peak_bytes > limit else improved(problem, plan, limit) for plan in plans]
    best = min(plans, key=lambda entry: _rank(problem, entry, limit))
    return best if best.peak_bytes > limit or problem.options.is_quick else _improved_again(problem, best, limit)


def _improved_again(problem: Problem, plan: MeasuredPlan, limit: int) -> MeasuredPlan:
    """The plan, or one of less cost that is found from plans that are smaller than they need to be."""
    least = problem.seconds(choose(problem.cost_graph()))
    for share, led in _SHRUNK:
        if problem.seconds(plan.chosen) <= _NEAR_LEAST * least:
            break
        smaller = reduce_memory(problem, plan, int(share * limit), num_operators=_OPERATORS_AGAIN, led=led)
        if smaller.peak_bytes <= limit:
            plan = min(plan, improved(problem, smaller, limit), key=lambda entry: problem.seconds(entry.chosen))
    return plan


def _repaired(problem: Problem, plans: Sequence[MeasuredPlan], limit: int) -> list[MeasuredPlan]:
    """Those of the plans that fit, and repaired ones near the limit that cost less; where none fits, the smallest comes last."""
    fits = [plan for plan in plans if plan.peak_bytes <= limit]
    worth = min((_WORTH * problem.seconds(plan.chosen) for plan in fits), default=math.inf)
    near = [
        plan
        for plan in (plans if is_large(problem) else _trade_offs(problem, limit))
        if limit < plan.peak_bytes <= _NEAR * limit and problem.seconds(plan.chosen) < worth
    ]
    # The smallest plan is found without regard to the limit: what an error names is enough.
    last = [] if fits else [smallest(problem, limit)]
    # Which way leads to the better plan shows only when both have been improved.
    reduced = (reduce_memory(problem, plan, limit, led=led) for plan in near for led in (True, False))
    return [*fits, *reduced, *last]


def smallest(problem: Problem, target_bytes: int = 0) -> MeasuredPlan:
    """The smallest plan that was found; cached.

    Args:
        target_bytes: of one device, at which the search ends; until then it is the same for all.
    """

    def make() -> MeasuredPlan:
        plans = _Relaxation(problem, 0, is_large(problem)).run(multipliers=_SMALL_MULTIPLIERS)
        plans = [*sorted(plans, key=lambda plan: _rank(problem, plan, 0)), *_of_least_bytes(problem)]
        # Two ways may have led to one plan.
        starts = {tuple(plan.chosen): plan for plan in plans}
        return smallest_of(problem, starts.values(), target_bytes)

    return problem.cached(f"smallest, {target_bytes} bytes are enough", make, of_costs=True)


def _of_least_bytes(problem: Problem) -> Iterator[MeasuredPlan]:
    """argmin_x sum_t w_t b_t(x): w_t is 1 at first, and then the most that a plan needed at operator t, while that makes less."""
    weights, needed = dict.fromkeys(range(len(problem.graph.operators)), 1.0), dict[int, float]()
    least = math.inf
    for _ in range(_ROUNDS):
        total = sum(weights.values())
        sizes = weighted_bytes(problem, {operator: weight / total for operator, weight in weights.items()})
        costs = [cost + _BYTE * size for cost, size in zip(problem.costs, sizes, strict=True)]
        plan = measured(problem, choose(problem.with_costs(costs).cost_graph()))
        yield plan
        if plan.peak_bytes >= least:
            break
        least = plan.peak_bytes
        for operator, uses in plan.profile.history:
            needed[operator] = max(needed.get(operator, 0.0), float(sum(uses.values())))
        weights = needed


def is_large(problem: Problem) -> bool:
    """Whether there are too many decisions for a loop with all of them free."""
    return len(problem.costs) > _LARGE


def lagrangian_plan(problem: Problem, limit: int, *, tied: bool = False) -> MeasuredPlan:
    """The x(p) of least cost that fits, or the smallest where none does; cached.

    Args:
        limit: bytes of one device.
        tied: blocks that repeat are decided equally, with the mean of their bytes.
    """
    return min(_lagrangian_plans(problem, limit, tied), key=lambda plan: _rank(problem, plan, limit))


def _lagrangian_plans(problem: Problem, limit: int, tied: bool = False) -> list[MeasuredPlan]:
    """All x(p) of the loop; cached."""
    return problem.cached(f"dual, {limit}, {tied}", lambda: _Relaxation(problem, limit, tied).run(), of_costs=True)


def _trade_offs(problem: Problem, limit: int) -> list[MeasuredPlan]:
    """The x(p) that cost less than all smaller ones, the smallest first."""
    plans = sorted(_lagrangian_plans(problem, limit), key=lambda plan: (plan.peak_bytes, problem.seconds(plan.chosen)))
    costs = [math.inf, *itertools.accumulate((problem.seconds(plan.chosen) for plan in plans), min)]
    return [plan for plan, least in zip(plans, costs, strict=False) if problem.seconds(plan.chosen) < least]


def _rank(problem: Problem, plan: MeasuredPlan, limit: int) -> tuple[float, float]:
    """Plans that fit by their cost, and behind them those that do not by their memory; forbidden ones last."""
    cost = problem.seconds(plan.chosen)
    return (max(plan.peak_bytes, limit) if math.isfinite(cost) else math.inf), cost


class _Relaxation:
    """The Lagrangian loop."""

    def __init__(self, problem: Problem, limit: int, tied: bool) -> None:
        self.problem, self.limit, self.tied = problem, limit, tied
        self.plans: list[MeasuredPlan] = []
        self.excess: dict[int, float] = {}
        """By operator the most bytes above the limit that a plan had there."""
        self.isomorphic: dict[Hashable, list[int]] = {}
        for number, label in enumerate(labels(problem)) if tied else ():
            self.isomorphic.setdefault(label, []).append(number)

    def run(self, first: float = 1.0, multipliers: int = _MULTIPLIERS) -> list[MeasuredPlan]:
        plan = self._plan(self.problem)
        if plan.peak_bytes <= self.limit:
            return self.plans
        multiplier = first * _FIRST_SHARE * self.problem.seconds(plan.chosen) * self.problem.scale / plan.peak_bytes
        least, most = 0.0, math.inf
        for _ in range(multipliers):
            if most <= _CLOSE * least:
                break
            if plan.peak_bytes > self.limit:
                self._note(plan)
            plan = self._plan(self.problem.with_costs(self._costs(multiplier)))
            least, most = (multiplier, most) if plan.peak_bytes > self.limit else (least, multiplier)
            multiplier = multiplier * _FACTOR if most == math.inf else math.sqrt(max(least, most / _FACTOR**2) * most)
        return self.plans

    def _plan(self, problem: Problem) -> MeasuredPlan:
        chosen = choose_tied(problem) if self.tied else choose(problem.cost_graph())
        self.plans.append(measured(self.problem, chosen))
        return self.plans[-1]

    def _note(self, plan: MeasuredPlan) -> None:
        """Operators at which a plan is too large; those of earlier plans stay, since peaks move as memory is saved."""
        for operator, uses in plan.profile.history:
            excess = float(sum(uses.values()) - self.limit)
            if excess > 0:
                self.excess[operator] = max(self.excess.get(operator, 0.0), excess)

    def _costs(self, multiplier: float) -> list[Floats]:
        """c(x) + p sum_t w_t b_t(x), per decision [candidates]; w_t is in proportion to the excess at t."""
        total = sum(self.excess.values())
        weighted = weighted_bytes(self.problem, {entry: size / total for entry, size in self.excess.items()})
        for members in self.isomorphic.values():
            mean = np.mean([weighted[member] for member in members], axis=0)
            for member in members:
                weighted[member] = mean
        return [costs + multiplier * size for costs, size in zip(self.problem.costs, weighted, strict=True)]


class PlanTooLargeError(SporaxRuntimeError):
    """No plan was found that fits the memory of a device.

    Attributes:
        needed_bytes: what the smallest plan that was found is predicted to need.
    """

    def __init__(self, text: str, needed_bytes: int) -> None:
        super().__init__(text)
        self.needed_bytes = needed_bytes


def nothing_fits(limit: int, least: MemoryUse) -> PlanTooLargeError:
    """The error that nothing fits, with what would.

    Args:
        limit: bytes of one device.
        least: memory of the smallest plan that was found.
    """
    uses = sorted(least.by_use.items(), key=lambda entry: -entry[1])
    return PlanTooLargeError(
        f"For 'memory', the plan must fit into {limit_text(limit)} per device, but {limit_text(least.peak_bytes)} is the "
        f"smallest plan that was found ({', '.join(f'{use.value} {limit_text(size)}' for use, size in uses if size)}). "
        f"{_HELP[uses[0][0]]}; more devices share all of it.",
        least.peak_bytes,
    )


_HELP = {
    Use.PARAMETERS: "Optimizer parallel stores parameters and their state in smaller slices",
    Use.STATE: "Optimizer parallel stores parameters and their state in smaller slices",
    Use.DATA: "A smaller batch needs less",
    Use.ACTIVATIONS: "Recomputation keeps fewer activations, and so does a smaller batch",
    Use.TRANSIENTS: "A smaller batch, or gradient accumulation, needs less at a time",
}


_ROOM = 2.0
"""Times of the unsharded step's memory over the devices from which a limit is not looked at: nearly always a plan keeps it."""
_FAR = 12.0
"""Times of the limit that a plan of large multipliers needs where no search would find one that fits: they save four fifths.
Computed for large problems alone, of which the smallest plan takes longer."""
_FEW_OPERATORS = 10_000
"""Operators of all plans together that may be measured then: how far the limit is off is what the error is to say."""


def reject_infeasible_limit(graph: OperatorGraph, mesh: DeviceMatrix, model: CostModel, options: SearchOptions) -> None:
    """Raise the error of a search under a memory limit where it is known soon.

    Args:
        options: those of the search; without a limit nothing is done, nor for one that gives up soon anyway.

    Raises:
        SporaxRuntimeError: no plan fits; names the smallest one that was found.
    """
    limit = options.memory_bytes
    if limit is None or options.is_quick:
        return
    inlined = inline_loops(graph).graph
    shared = memory_of(inlined, replicated_plan(inlined, mesh), backend=backend_of(options.platform))
    if limit >= _ROOM * shared.peak_bytes / mesh.num_devices:
        return
    problem = ProblemBuilder(inlined, mesh, model, options, approximate=True).build()
    plans = _Relaxation(problem, limit, tied=False).run(_MEMORY_ALONE, _FEW_MULTIPLIERS)
    plan = min(plans, key=lambda plan: _rank(problem, plan, limit))
    if plan.peak_bytes > limit:
        far = is_large(problem) and plan.peak_bytes > _FAR * limit
        plan = reduce_memory(problem, plan, limit, num_operators=_FEW_OPERATORS) if far else smallest(problem, limit)
    if plan.peak_bytes > limit:
        raise nothing_fits(limit, plan.profile.memory)
