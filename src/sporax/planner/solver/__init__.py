"""The solver of cost graphs: one strategy per node, least total cost, within a memory limit at every time.

`graph` holds the problem (`cost_graph`), what is left of it and parts of that (`core`), and what makes it smaller without losing
its optimum (`moments`, `network`, `reductions`). `methods` solve small problems (`exact`), bound large ones (`trws`), find good
choices for them (`coordinate_descent`).
`portfolio` combines them: `quick_choice` for choices in linear time, `solution` for the best there is, which it also measures
by code of its own.
"""

from sporax.planner.solver.graph.cost_graph import CostGraph
from sporax.planner.solver.portfolio.solution import Evaluation, Solution, evaluate, solve

__all__ = ["CostGraph", "Solution", "solve", "Evaluation", "evaluate"]
