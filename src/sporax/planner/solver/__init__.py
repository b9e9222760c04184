"""The solver of cost graphs: one strategy per node, least total cost, within a memory limit at every time.

The story, file by file: `graph` is the problem and `reader` its files; `evaluate` is the independent checker;
`timeline`, `network` and `reduce` make the problem smaller without losing its optimum; `milp` and `exact` solve what is
small; `core`, `dual` and `prices` bound what is large; `descent`, `neighbourhood` and `search` find good choices for
it; `roles`, `worker` and `team` run these side by side; `solution` ties it together and `command` is ``sporax solve``.
`synthetic` makes look-alikes of real graphs for tests and benchmarks.
"""

from sporax.planner.solver.checker import Evaluation, evaluate
from sporax.planner.solver.graph import CostGraph
from sporax.planner.solver.reader import read_graph
from sporax.planner.solver.solution import Solution, solve

__all__ = ["CostGraph", "Solution", "solve", "Evaluation", "evaluate", "read_graph"]
