"""Graphs for the tests of the planner are built by `planner_graphs`, in the folder next to this file."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "helpers"))
