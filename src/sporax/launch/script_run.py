"""What goes on around a script that runs in this process: steps are recorded, and what was asked for in vain is told at its end.

The engine is named by strings: it is not loaded for scripts that do not ask for it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence

from sporax.base.errors import SporaxError
from sporax.cluster.environment import PROFILE, RESUME, VERIFY_PLAN, RankEnvironment
from sporax.ir.variables import read

_RECORDING = "sporax.runtime.process.recording"
_SESSION = "sporax.runtime.session"


def run_recorded(run: Callable[[], int], environ: Mapping[str, str]) -> int:
    """Run a script, and record the steps that ``SPORAX_PROFILE`` asks for; returns its exit code."""
    if not read(environ, PROFILE):
        return run()
    recording = importlib.import_module(_RECORDING)
    recording.begin(environ)
    try:
        return run()
    finally:
        recording.end()


_EFFECTS = {
    RESUME: (
        "looked_for_checkpoint",
        "`sporax run --resume` had no effect: nothing was resumed. The script has neither called Model.train nor loaded a "
        "checkpoint (load_checkpoint, load_distributed_checkpoint, sporax.load); a training loop of one's own loads it itself.",
    ),
    VERIFY_PLAN: (
        "verified_plan",
        "`sporax run --verify-plan` had no effect: no plan was run, or only plans of several pipeline stages, which are not "
        "compared with one device.",
    ),
}
"""What a flag asks for: the attribute of the session that says it has happened, and what is told where it has not."""


def run_told(run: Callable[[], int], environ: Mapping[str, str]) -> int:
    """Run a script; at its end it is told what `sporax run` was asked for in vain."""
    asked = [effect for variable, effect in _EFFECTS.items() if read(environ, variable) == "1"]
    if not asked:
        return run()
    try:
        code = run()
    except SystemExit as end:
        if not end.code:
            _tell(asked, environ)
        raise
    if code == 0:
        _tell(asked, environ)
    return code


def _tell(asked: Sequence[tuple[str, str]], environ: Mapping[str, str]) -> None:
    session = importlib.import_module(_SESSION).SESSION
    for attribute, text in asked:
        if not getattr(session, attribute) and is_first(environ):
            print(f"sporax: warning: {text}", file=sys.stderr, flush=True)


def is_first(environ: Mapping[str, str]) -> bool:
    """Whether this is rank 0, or a process that is alone or does not know its rank."""
    try:
        return not RankEnvironment.from_environ(environ).rank
    except SporaxError:  # `init` says what is wrong
        return True
