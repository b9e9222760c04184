"""The programs are next to the tests."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "mindspore" / "parallel")]  # the latter reads texts of programs
