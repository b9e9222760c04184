"""Sporax: plans for programs on many devices, and their execution. This is the door for JAX programs.

    planned = sporax.plan(train_step, params, batch, devices=64, hardware="h100")
    sporax.save("runs/a", params)

MindSpore's names are in `sporax.mindspore`: write ``import sporax.mindspore as ms``, or run a script that says ``import
mindspore`` with ``sporax run script.py``.

Names are loaded when they are first used, so ``import sporax`` itself is quick and does not load JAX.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from sporax._version import __version__
from sporax.base.lazy_names import homes, lazy_names

if TYPE_CHECKING:
    from sporax.base.errors import SporaxError
    from sporax.cluster.job_progress import report_progress
    from sporax.ir.plan import Plan
    from sporax.runtime.devices.calibrate import calibrate
    from sporax.runtime.planned.function import plan
    from sporax.runtime.planned.planned_function import PlannedFunction
    from sporax.runtime.resharding.explain import explain_resharding
    from sporax.runtime.session import Session
    from sporax.runtime.storage.trees import load, save

__all__ = [
    "Plan",
    "PlannedFunction",
    "Session",
    "SporaxError",
    "__version__",
    "calibrate",
    "explain_resharding",
    "load",
    "plan",
    "report_progress",
    "save",
]

_IMPORT_SYSTEM = "importlib._bootstrap"

if not TYPE_CHECKING:  # checkers should see a missing name themselves

    def __getattr__(name: str) -> Any:
        if name in homes(__name__):
            return lazy_names(__name__)(name)
        text = f"module '{__name__}' has no attribute '{name}'"
        if name.startswith("_") or find_spec(f"{__name__}.{name}") is not None:
            raise AttributeError(text)
        text += "; MindSpore's names are in sporax.mindspore: `import sporax.mindspore as ms`"
        # `from sporax import nn` would put words of its own in the place of an AttributeError's.
        is_from_import = sys._getframe(1).f_globals.get("__name__") == _IMPORT_SYSTEM
        raise (ImportError if is_from_import else AttributeError)(text)


def __dir__() -> list[str]:
    return sorted(__all__)
