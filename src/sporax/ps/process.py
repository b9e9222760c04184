"""One process of the parameter server, scheduler or server, set up by the environment.

No JAX and no user script is imported, so a process is up in a fraction of a second.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib import import_module

from sporax.base.errors import SporaxError
from sporax.ps.environment import PsEnvironment

_ROLES = {"scheduler": "sporax.ps.scheduler.scheduler", "server": "sporax.ps.server.server_process"}
"""A process imports the module of its own role alone, which has `run(place, environ)`."""
USAGE_ERROR = 2
"""Exit code of a process whose variables make no sense."""


def main(role: str, environ: Mapping[str, str] = os.environ) -> int:
    """Run one role until the job ends; gives the exit code."""
    try:
        place = PsEnvironment.read(environ)
    except SporaxError as error:
        # One line, and no start again would help.
        print(f"sporax ps {role}: {error}", file=sys.stderr, flush=True)
        return USAGE_ERROR
    try:
        run = import_module(_ROLES[role]).run
        run(place, environ)
    except SporaxError as error:
        print(f"sporax ps {role}: {error}", file=sys.stderr, flush=True)
        return 1
    except OSError as error:
        # It names its file: a disk that is full or gone is no fault of the program.
        print(
            f"sporax ps {role}: For 'sporax.ps', files must be written, but got: {error}.", file=sys.stderr, flush=True
        )
        return 1
    except KeyboardInterrupt:
        # As shells do for SIGINT.
        return 130
    return 0
