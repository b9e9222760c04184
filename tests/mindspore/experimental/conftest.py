"""Makes the modules shared with the recorder in `tools/golden` importable by the tests here."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "golden")]
