"""The solver of cost graphs: one strategy per node, least total cost, within a memory limit at every time.

`graph` holds the problem (`cost_graph`) and what makes it smaller without losing its optimum (`moments`, `network`,
`reductions`). `methods` solve small problems (`integer_program`, `exact`, `label_elimination`, `label_rounds`), bound large
ones (`trws`, `lagrangian`) and find good choices for them (`coordinate_descent`, `neighborhood`, `large_neighborhood_search`).
`portfolio` runs these in parallel processes; its `solution` combines everything, and `choice_check` measures a choice
independently. Plans rarely need `portfolio.team`, `worker`, `roles` and `methods.large_neighborhood_search`: these take over
where a reduced graph has too many entries for one integer program.
"""

from sporax.planner.solver.graph.cost_graph import CostGraph
from sporax.planner.solver.portfolio.solution import Evaluation, Solution, evaluate, solve

__all__ = ["CostGraph", "Solution", "solve", "Evaluation", "evaluate"]
