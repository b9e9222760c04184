"""What goes on around a script that runs in this process: steps are recorded, and what was asked for in vain is told at its end.

The engine is named by strings: it is not loaded for scripts that do not ask for it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping

from sporax.base.errors import SporaxError
from sporax.cluster.environment import PROFILE, RESUME, RankEnvironment
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


def run_resumed(run: Callable[[], int], environ: Mapping[str, str]) -> int:
    """Run a script; with `sporax run --resume` it is told at the end if nothing has looked for a checkpoint."""
    if read(environ, RESUME) != "1":
        return run()
    try:
        code = run()
    except SystemExit as end:
        if not end.code:
            _tell_of_resume(environ)
        raise
    if code == 0:
        _tell_of_resume(environ)
    return code


def _tell_of_resume(environ: Mapping[str, str]) -> None:
    session = importlib.import_module(_SESSION).SESSION
    if not session.looked_for_checkpoint and is_first(environ):
        print(
            "sporax: warning: `sporax run --resume` had no effect: nothing was resumed. The script has neither called "
            "Model.train nor loaded a checkpoint (load_checkpoint, load_distributed_checkpoint, sporax.load); a training loop of "
            "one's own loads it itself.",
            file=sys.stderr,
            flush=True,
        )


def is_first(environ: Mapping[str, str]) -> bool:
    """Whether this is rank 0, or a process that is alone or does not know its rank."""
    try:
        return not RankEnvironment.from_environ(environ).rank
    except SporaxError:  # `init` says what is wrong
        return True
