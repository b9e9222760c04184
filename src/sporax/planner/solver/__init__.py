"""The solver of cost graphs: one strategy per node, least total cost, within a memory limit at every time.

The problem is `graph`, its files are read by `reader`, and `checker` measures a choice independently. `timeline`,
`network` and `reductions` make the problem smaller without losing its optimum. `integer_program`, `exact`,
`label_elimination` and `label_rounds` solve small problems. `core`, `trws` and `lagrangian` bound large ones;
`coordinate_descent`, `neighborhood` and `large_neighborhood_search` find good choices for them. `roles`, `worker` and
`team` run these in parallel processes; `solution` combines everything and `command` is ``sporax solve``. `synthetic`
makes graphs that resemble real ones, for tests and benchmarks.
"""

from sporax.planner.solver.checker import Evaluation, evaluate
from sporax.planner.solver.graph import CostGraph
from sporax.planner.solver.reader import read_graph
from sporax.planner.solver.solution import Solution, solve

__all__ = ["CostGraph", "Solution", "solve", "Evaluation", "evaluate", "read_graph"]
