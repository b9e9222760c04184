"""Repeated blocks with tied decisions: all decisions at one position of the blocks share one variable.

Problem: decide a deep network in a time that does not depend on its depth.

Method: the costs of tied decisions are added up. With two turns, every other block may differ; decisions before and
after the blocks are free. If the tied plan is too large for the memory, the bytes at its peak moments get a Lagrangian
price, the same in all blocks, and the problem is solved again.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from sporax.base.identity import ByIdentity
from sporax.planner.search.limit.local_search import MeasuredPlan, measured
from sporax.planner.search.limit.message_passing import choose
from sporax.planner.search.limit.resident_memory import resident_usage
from sporax.planner.search.space.problem import Problem
from sporax.planner.search.space.repeated_blocks import Edge, Repeats, find_repeats
from sporax.planner.search.space.resharding_cost import Floats
from sporax.planner.solver import CostGraph

TURNS = 2
"""Blocks after which the decisions may repeat: with two, neighbouring layers may alternate."""
_PRICE = 0.05
"""First price of memory: all bytes together are worth this share of the step's time."""
_FACTOR = 8.0
"""Factor between prices until a plan fits; after that prices are between the last two."""
_PRICES = 6
"""Prices that are tried: each one is a solution of the whole tied problem."""


def choose_tied(problem: Problem, turns: int = TURNS) -> list[int]:
    """A good choice, in which blocks that repeat are decided alike; nothing is proven, and memory is not looked at."""
    repeats = find_repeats(labels(problem), problem.edges)
    # Without blocks there is nothing to tie, and the problem is solved as it is.
    if repeats is None:
        return choose(problem.cost_graph())
    return tied_choice(problem, repeats, turns)[0]


def choose_tied_within(problem: Problem, limit: int, turns: int = TURNS) -> MeasuredPlan:
    """The cheapest plan that fits, or the smallest, of those found with prices on the bytes at the peak moments; cached.

    Decisions that are tied pay the same price, for the mean of their bytes at these moments.

    Args:
        problem: the problem.
        limit: bytes of one device.
        turns: after how many blocks the plan repeats.
    """
    name = f"alike within {limit}, {turns} turns"
    if name not in problem.plans:
        problem.plans[name] = _priced(problem, limit, turns)
    cached: MeasuredPlan = problem.plans[name]
    return cached


def _priced(problem: Problem, limit: int, turns: int) -> MeasuredPlan:
    alike: dict[Hashable, list[int]] = {}
    for number, label in enumerate(labels(problem)):
        alike.setdefault(label, []).append(number)
    plan = best = measured(problem, choose_tied(problem, turns))
    if plan.peak_bytes <= limit:
        return plan
    # Bytes have no cost of their own, so the first price makes all of them worth a small share of the step.
    price = _PRICE * problem.seconds(plan.chosen) * problem.scale / plan.peak_bytes
    least, most = 0.0, np.inf
    moments: dict[int, None] = {}
    for _ in range(_PRICES):
        if plan.peak_bytes > limit:
            # Peaks move as memory is saved, so all moments that were once too full are priced.
            moments[plan.memory.operator] = None
        costs = [*problem.costs]
        for members in alike.values():
            taken = sum(_taken_at(problem, number, moment) for number in members for moment in moments)
            for number in members:
                costs[number] = costs[number] + price * taken / (len(members) * len(moments))
        plan = measured(problem, choose_tied(problem.with_costs(costs), turns))
        best = min(plan, best, key=lambda entry: _rank(problem, entry, limit))
        least, most = (price, most) if plan.peak_bytes > limit else (least, price)
        # Rising until a plan fits; then between the last price that did not and the last that did (geometric mean).
        price = price * _FACTOR if most == np.inf else (max(least, most / _FACTOR) * most) ** 0.5
    return best


def _rank(problem: Problem, plan: MeasuredPlan, limit: int) -> tuple[int, float]:
    """Plans that fit by their cost, and behind them those that do not by their memory."""
    return max(plan.peak_bytes, limit), problem.seconds(plan.chosen)


def _taken_at(problem: Problem, decision: int, operator: int) -> NDArray[np.float64]:
    """[candidates] bytes of a decision's tensors when an operator runs, -1 for the start."""
    taken = np.zeros(len(problem.costs[decision]))
    for (begin, end), sizes in resident_usage(problem)[decision].items():
        # Ticks of `resident_usage`: operator k runs at tick 2k + 1, and arguments are there from tick 0.
        if begin <= max(2 * operator + 1, 0) < end:
            taken += sizes
    return taken


def tied_choice(problem: Problem, repeats: Repeats, turns: int) -> tuple[list[int], int]:
    """A choice in which blocks are decided alike, and how many variables it took."""
    small, variable = tied_problem(problem.costs, repeats, turns)
    decided = choose(small)
    return [decided[entry] for entry in variable], small.num_nodes


def labels(problem: Problem) -> list[Hashable]:
    """Per decision what it is by itself: its candidates and their costs."""
    return [
        (ByIdentity(choice.steps), costs.tobytes())
        for choice, costs in zip(problem.choices, problem.costs, strict=True)
    ]


def tied_problem(costs: Sequence[Floats], repeats: Repeats, turns: int) -> tuple[CostGraph, list[int]]:
    """The problem in which blocks are decided alike, and for every decision its variable there.

    Args:
        costs: per decision [candidates].
        repeats: which blocks are alike, and all edges.
        turns: after how many blocks the decisions repeat.
    """
    count, turns = len(repeats.blocks), min(turns, len(repeats.blocks))
    # Variables: first those of the decisions outside, then one set for every turn.
    variable = [0] * len(costs)
    for place, decision in enumerate(repeats.outside):
        variable[decision] = place
    for number, block in enumerate(repeats.blocks):
        first = len(repeats.outside) + number % turns * len(block)
        for place, decision in enumerate(block):
            variable[decision] = first + place
    small = [costs[decision] for decision in repeats.outside]
    edges: list[Edge] = [(variable[first], variable[second], table) for first, second, table in repeats.others]
    for turn, block in enumerate(repeats.blocks[:turns]):
        # Blocks of a turn share variables, so their costs add up: a factor instead of a sum over blocks.
        times = len(range(turn, count, turns))
        small += [times * costs[decision] for decision in block]
        for (place, decision), table in repeats.shared.items():
            edges.append((variable[block[place]], variable[decision], times * table))
        for (here, there, later), table in repeats.wires.items():
            # The last blocks have no block `later` after them, so a wire has fewer pairs than there are blocks.
            pairs = len(range(turn, count - later, turns))
            second = repeats.blocks[(turn + later) % turns][there]
            edges += [(variable[block[here]], variable[second], pairs * table)] if pairs else []
    for number, wire, is_first, decision in repeats.ends:
        inside, table = repeats.blocks[number][wire[0 if is_first else 1]], repeats.wires[wire]
        edges.append((variable[inside], variable[decision], table if is_first else table.T))
    return CostGraph.unlimited(small, edges, "repeated blocks"), variable
