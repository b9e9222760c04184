"""Makes the modules shared with the recorders in `tools/golden` importable by the tests here."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
