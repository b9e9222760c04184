"""`sporax solve`: the command of the cost-graph solver, which needs no device and no script."""

from sporax.planner.solver.contest.solve_command import add_arguments, run

__all__ = ["add_arguments", "run"]
