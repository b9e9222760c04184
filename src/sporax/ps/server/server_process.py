"""The process of one server, set up by the environment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sporax.cluster.private import shared_directory
from sporax.ps.environment import DAMAGED_LOGS_VARIABLE, REPLACED, SERVING_FILE_VARIABLE, PsEnvironment
from sporax.ps.server.freed_memory import keep_freed_memory
from sporax.ps.server.server import Server
from sporax.ps.sockets.security import keys_for


def run(place: PsEnvironment, environ: Mapping[str, str]) -> None:
    """Be a server."""
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
        damaged_directory=Path(damaged) if (damaged := environ.get(DAMAGED_LOGS_VARIABLE, "")) else None,
        serving_file=Path(serving) if (serving := environ.get(SERVING_FILE_VARIABLE, "")) else None,
    )
    server.run()
    if server.ends_for_another:
        # A supervisor sees by this code that the job goes on with a new process.
        raise SystemExit(REPLACED)
