"""Jobs with parameter servers that tests start as users do."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from compiler_flags import COMPILER
from forked_commands import run_forked


@pytest.fixture(scope="session")
def run_job() -> Callable[..., str]:
    """`run_job(script, folder, *arguments, servers, workers, staleness, **variables)`: run to a good end; gives the output."""

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
        command = [sys.executable, "-m", "sporax", "run", "--log_dir", str(folder), "--worker_num", str(workers)]
        command += ["--server_num", str(servers), "--staleness", str(staleness)] if servers else []
        done = run_forked(
            [*command, str(file), *map(str, arguments)],
            timeout=200,
            env={**os.environ, "XLA_FLAGS": COMPILER, **variables},
            cwd=folder,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run
