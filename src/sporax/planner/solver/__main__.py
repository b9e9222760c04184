"""``python -m sporax.planner.solver`` is ``sporax solve``."""

import sys

from sporax.planner.solver.contest.solve_command import main

if __name__ == "__main__":
    sys.exit(main())
