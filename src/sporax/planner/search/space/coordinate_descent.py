"""Coordinate descent on a problem: each decision takes the candidate that costs least next to its neighbours.

x_i <- argmin_a c_i(a) + sum_j t_ij(a, x_j), and min_b t_ij(a, b) for neighbours j that are open
"""

from __future__ import annotations

from collections.abc import Sequence

from sporax.planner.search.space.problem import Problem
from sporax.planner.search.space.resharding_cost import Floats


class CoordinateDescent:
    """Coordinate descent: improves the decisions of a problem one by one."""

    def __init__(self, problem: Problem) -> None:
        self.costs = problem.costs
        self.links: list[list[tuple[int, Floats, Floats]]] = [[] for _ in problem.costs]
        # With the minima over the neighbour, which spreading asks for again and again.
        for first, second, table in problem.edges:
            self.links[first].append((second, table, table.min(axis=1)))
            self.links[second].append((first, table.T, table.min(axis=0)))

    def candidate_costs(self, node: int, chosen: Sequence[int]) -> Floats:
        """Cost of each candidate next to its neighbours; those that are open (-1) are taken to agree."""
        candidate_costs = self.costs[node].copy()
        for other, table, least in self.links[node]:
            # An open neighbour will take what suits it best, so its minimum is the fair guess.
            candidate_costs += least if chosen[other] < 0 else table[:, chosen[other]]
        return candidate_costs

    def improve(self, chosen: list[int], fixed: frozenset[int] = frozenset()) -> None:
        """Change `chosen` in place until no decision improves; those in `fixed` stay."""
        waiting = dict.fromkeys(node for node in range(len(chosen)) if node not in fixed)
        while waiting:
            node = next(iter(waiting))
            del waiting[node]
            candidate_costs = self.candidate_costs(node, chosen)
            best = int(candidate_costs.argmin())
            # An improvement within rounding could alternate between two candidates for ever.
            if candidate_costs[best] < candidate_costs[chosen[node]] * (1 - 1e-12):
                chosen[node] = best
                waiting.update(dict.fromkeys(other for other, *_ in self.links[node] if other not in fixed))
