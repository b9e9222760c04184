"""Jobs with parameter servers that tests start as users do."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def held_ports() -> Iterator[int]:
    """A port p such that nobody else is given p or p + 1 until the block ends; the job opens both, the second one late.

    A socket that is bound and does not listen keeps a port from those who ask for any free one, but not from a listener that
    asks for this one and has the same option, as the launcher's and ZeroMQ's have.
    """
    while True:
        with socket.socket() as first, socket.socket() as second:
            for holder in (first, second):
                holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            try:
                with socket.socket() as probe:  # without the option: it fails where anybody has the port
                    probe.bind(("127.0.0.1", port + 1))
                second.bind(("127.0.0.1", port + 1))
            except (OSError, OverflowError):
                continue
            yield port
            return


@pytest.fixture(scope="session")
def run_job() -> Callable[..., str]:
    """`run_job(script, folder, *arguments, servers, workers, staleness, **variables)`: run to a good end; gives the output."""
    # One device in each process, and the session's settings of the compiler.
    flags = " ".join(flag for flag in os.environ["XLA_FLAGS"].split() if "device_count" not in flag)

    def run(
        script: str,
        folder: Path,
        *arguments: object,
        servers: int = 2,
        workers: int = 2,
        staleness: int = 0,
        **variables: str,
    ) -> str:
        file = folder / "script.py"
        file.write_text(script, encoding="utf-8")
        with held_ports() as port:
            command = [sys.executable, "-m", "sporax", "run", "--log_dir", str(folder)]
            command += ["--worker_num", str(workers), "--master_port", str(port)]
            command += ["--server_num", str(servers), "--staleness", str(staleness)] if servers else []
            done = subprocess.run(
                [*command, str(file), *map(str, arguments)],
                capture_output=True,
                text=True,
                timeout=200,
                env={**os.environ, "XLA_FLAGS": flags, **variables},
                cwd=folder,
            )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run
