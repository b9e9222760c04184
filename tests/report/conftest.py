"""Plans are made of the graphs of the planner's tests: `planner_graphs`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "planner" / "helpers"))
