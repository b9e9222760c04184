"""Blocks that repeat are decided alike: the decisions at one place are one variable with their costs added up.

For plans that alternate from layer to layer every other block may differ; what lies before and behind is free. Where such a plan
is too large for the memory, bytes at its fullest moments get a price, the same for all blocks, and they are tied again. So depth
adds to the time only what it takes to measure a plan.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from sporax.planner.search.local_search import Fitted, measured
from sporax.planner.search.message_passing import choose
from sporax.planner.search.problem import Problem
from sporax.planner.search.repeated_blocks import Edge, Repeats, find_repeats
from sporax.planner.search.resharding_cost import Floats
from sporax.planner.search.resident_memory import usage
from sporax.planner.solver import CostGraph

TURNS = 2
"""After how many blocks a plan repeats."""
_PRICE, _FACTOR, _PRICES = 0.05, 8.0, 6
"""Of memory: to begin with all bytes together are worth this share of the time; then so much more, until a plan fits, and then
something between; and how many prices are tried."""


def choose_alike(problem: Problem, turns: int = TURNS) -> list[int]:
    """A good choice, in which blocks that repeat are decided alike; nothing is proven, and memory is not looked at."""
    repeats = find_repeats(labels(problem), problem.edges)
    if repeats is None:
        return choose(problem.cost_graph())
    return choice_alike(problem, repeats, turns)[0]


def choose_alike_within(problem: Problem, limit: int, turns: int = TURNS) -> Fitted:
    """The cheapest plan that fits, or the smallest, of those that come of prices on the bytes at the fullest moments; remembered.

    Decisions that are alike pay alike, for the mean of their bytes, whenever theirs are there.

    Args:
        problem: the problem.
        limit: bytes of one device.
        turns: after how many blocks the plan repeats.
    """
    name = f"alike within {limit}, {turns} turns"
    if name not in problem.plans:
        problem.plans[name] = _priced(problem, limit, turns)
    known: Fitted = problem.plans[name]
    return known


def _priced(problem: Problem, limit: int, turns: int) -> Fitted:
    alike: dict[Hashable, list[int]] = {}
    for number, label in enumerate(labels(problem)):
        alike.setdefault(label, []).append(number)
    found = best = measured(problem, choose_alike(problem, turns))
    if found.peak_bytes <= limit:
        return found
    price = _PRICE * problem.seconds(found.chosen) * problem.scale / found.peak_bytes
    least, most = 0.0, np.inf
    moments: dict[int, None] = {}
    for _ in range(_PRICES):
        if found.peak_bytes > limit:
            moments[found.memory.operator] = None
        costs = [*problem.costs]
        for members in alike.values():
            taken = sum(_taken_at(problem, number, moment) for number in members for moment in moments)
            for number in members:
                costs[number] = costs[number] + price * taken / (len(members) * len(moments))
        found = measured(problem, choose_alike(problem.with_costs(costs), turns))
        best = min(found, best, key=lambda each: _merit(problem, each, limit))
        least, most = (price, most) if found.peak_bytes > limit else (least, price)
        price = price * _FACTOR if most == np.inf else (max(least, most / _FACTOR) * most) ** 0.5
    return best


def _merit(problem: Problem, found: Fitted, limit: int) -> tuple[int, float]:
    """Plans that fit by their cost, and behind them those that do not by their memory."""
    return max(found.peak_bytes, limit), problem.seconds(found.chosen)


def _taken_at(problem: Problem, decision: int, operator: int) -> NDArray[np.float64]:
    """[candidates] bytes of a decision's tensors when an operator runs, -1 for the start."""
    taken = np.zeros(len(problem.costs[decision]))
    for (begin, end), sizes in usage(problem)[decision].items():
        if begin <= max(2 * operator + 1, 0) < end:
            taken += sizes
    return taken


def choice_alike(problem: Problem, repeats: Repeats, turns: int) -> tuple[list[int], int]:
    """A choice in which blocks are decided alike, and how many variables it took."""
    small, variable = tied(problem.costs, repeats, turns)
    decided = choose(small)
    return [decided[each] for each in variable], small.num_nodes


def labels(problem: Problem) -> list[Hashable]:
    """Per decision what it is by itself: its candidates and their costs."""
    return [(id(each.steps), costs.tobytes()) for each, costs in zip(problem.choices, problem.costs, strict=True)]


def tied(costs: Sequence[Floats], repeats: Repeats, turns: int) -> tuple[CostGraph, list[int]]:
    """The problem in which blocks are decided alike, and for every decision its variable there.

    Args:
        costs: per decision [candidates].
        repeats: which blocks are alike, and all edges.
        turns: after how many blocks the decisions repeat.
    """
    count, turns = len(repeats.blocks), min(turns, len(repeats.blocks))
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
        times = len(range(turn, count, turns))
        small += [times * costs[decision] for decision in block]
        for (place, decision), table in repeats.shared.items():
            edges.append((variable[block[place]], variable[decision], times * table))
        for (here, there, later), table in repeats.wires.items():
            pairs = len(range(turn, count - later, turns))
            second = repeats.blocks[(turn + later) % turns][there]
            edges += [(variable[block[here]], variable[second], pairs * table)] if pairs else []
    for number, wire, is_first, decision in repeats.ends:
        inside, table = repeats.blocks[number][wire[0 if is_first else 1]], repeats.wires[wire]
        edges.append((variable[inside], variable[decision], table if is_first else table.T))
    return CostGraph.unlimited(small, edges, "repeated blocks"), variable
