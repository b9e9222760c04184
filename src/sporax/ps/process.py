"""One process of the parameter server, scheduler or server, set up by the environment.

No JAX and no user script is imported, so a process is up in a fraction of a second.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from sporax.base.errors import SporaxError, SporaxRuntimeError
from sporax.cluster.private import shared_directory
from sporax.ps.environment import PsEnvironment
from sporax.ps.scheduler.journal import journal_path
from sporax.ps.slots.slot_files import read_manifest
from sporax.ps.sockets.security import is_loopback, keys_for

KEPT_VARIABLE = "SPORAX_KEPT_LOGS"
"""Where a launcher wants damaged logs to be kept, when the job's own directory ends with the job."""
REPLACED = 75
"""Exit code of a server that a supervisor should start again."""


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
        if role == "scheduler":
            run_scheduler(place, environ)
        else:
            run_server(place, environ)
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


def run_scheduler(place: PsEnvironment, environ: Mapping[str, str]) -> None:
    """Be the scheduler."""
    from sporax.ps.scheduler.scheduler import Scheduler

    journal = None
    if place.recovery_path:
        Path(place.recovery_path).mkdir(parents=True, exist_ok=True)
        journal = journal_path(Path(place.recovery_path), place.port)
    if place.options.restore:
        _check_restore(place)
    keys = keys_for(place.host, environ)
    # As servers do: a job of this machine is closed to others; with keys every interface may be open.
    address = f"{'*' if keys is not None and not is_loopback(place.host) else place.host}:{place.port}"
    Scheduler(address, place.options, place.worker_num, place.server_num, journal, keys).run()


def _check_restore(place: PsEnvironment) -> None:
    """Raise unless the checkpoint fits the job.

    Raises:
        SporaxRuntimeError: another number of slots, or another kind of staleness.
    """
    manifest = read_manifest(place.options.restore)
    # A checkpoint is of numbered slots, and clocks exist in synchronous mode only.
    for name, there, here in (
        ("MS_PS_SLOTS", manifest.num_slots, place.options.num_slots),
        ("synchronous mode (MS_PS_STALENESS=0)", manifest.staleness == 0, place.options.staleness == 0),
    ):
        if there != here:
            raise SporaxRuntimeError(
                f"For 'sporax.ps', {name} must be what the checkpoint '{place.options.restore}' was taken with, {there}, but "
                f"got {here}."
            )


def run_server(place: PsEnvironment, environ: Mapping[str, str]) -> None:
    """Be a server."""
    from sporax.ps.server.freed_memory import keep_freed_memory
    from sporax.ps.server.server import Server

    keep_freed_memory()
    directory = Path(place.recovery_path or shared_directory(environ)) / "sporax-ps"
    server = Server(
        place.scheduler,
        directory,
        host=place.own_host,
        node=place.node,
        index=place.index,
        keys=keys_for(place.host, environ),
        silent_seconds=place.node_timeout,
        metrics_port=place.metrics_port,
        kept_directory=Path(kept) if (kept := environ.get(KEPT_VARIABLE, "")) else None,
    )
    server.run()
    if server.ends_for_another:
        # A supervisor sees by this code that the job goes on with a new process.
        raise SystemExit(REPLACED)
