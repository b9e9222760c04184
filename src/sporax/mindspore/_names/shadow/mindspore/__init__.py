"""Is on `PYTHONPATH` of the processes a script starts: turns their `import mindspore` into `import sporax.mindspore`.

An interpreter of another environment inherits the variable too; where Sporax is not installed, the import goes on to
whatever `mindspore` that environment has.
"""

import importlib
import importlib.util
import sys
from pathlib import Path

del sys.modules[__name__]
if importlib.util.find_spec("sporax") is not None:
    importlib.import_module("sporax.mindspore._names.alias").install()
else:
    _here = Path(__file__).resolve().parent.parent
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != _here]
sys.modules[__name__] = importlib.import_module(__name__)
