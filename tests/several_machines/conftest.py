"""Machines that see each other through a network only, and jobs on them.

`tools/machines.py` makes them of Linux namespaces, which needs root: without it these tests are skipped, and the summary at the
end of the session says why.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pytest

from compiler_flags import COMPILER

sys.path += [str(Path(__file__).parents[2] / "tools"), str(Path(__file__).parent / "programs")]
import machines

_JOB_VARIABLES = ("MS_", "RANK_", "LOCAL_RANK", "DEVICE_ID", "OMPI_", "PYTHONPATH", "XLA_FLAGS")


@pytest.fixture
def make_machines(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """``make_machines(count, **options)``: started machines, which see the test's folder; they are removed after the test."""
    if reason := machines.why_unavailable():
        pytest.skip(f"machines cannot be had here: {reason}")
    with ExitStack() as stack:
        yield lambda count, **options: stack.enter_context(machines.Machines(count, shared=[tmp_path], **options))


@dataclass
class MachineJob:
    """A job that runs on several machines.

    Attributes:
        launchers: `sporax run` on each machine.
        lines: what each has printed so far.
    """

    launchers: list[subprocess.Popen[str]] = field(default_factory=list)
    lines: list[list[str]] = field(default_factory=list)

    def wait_for(self, text: str, seconds: float = 120) -> None:
        """Wait until every launcher has printed a text."""
        end = time.monotonic() + seconds
        while not all(any(text in line for line in lines) for lines in list(self.lines)):
            assert time.monotonic() < end, f"'{text}' was not printed: {self.output()}"
            time.sleep(0.05)

    def codes(self, seconds: float = 120) -> list[int]:
        """The exit codes, when all have ended."""
        end = time.monotonic() + seconds
        return [launcher.wait(max(end - time.monotonic(), 0.1)) for launcher in self.launchers]

    def output(self) -> str:
        """All that was printed, by machine."""
        return "".join(f"node{number}: {line}" for number, lines in enumerate(self.lines) for line in lines)

    def headline(self, number: int) -> str:
        """What the launcher of a machine says of the end of the job."""
        own = [line for line in self.lines[number] if line.startswith("sporax run: ")]
        return next(line for line in own if "logs in" not in line and "no token" not in line)


def _read(output: IO[str], lines: list[str]) -> None:
    with output:
        lines.extend(output)


@pytest.fixture
def start_job(tmp_path: Path) -> Callable[..., MachineJob]:
    """``start_job(machines, num_ranks, program, *arguments, **variables)``: `sporax run` on every machine, with equal parts.

    `flags` are more of the launcher's; where `numbered` is False, machines get no `--node_rank`.
    """

    def start(
        made: Any,
        num_ranks: int,
        program: Path,
        *arguments: object,
        master_addr: str = "",
        flags: Sequence[object] = (),
        numbered: bool = True,
        **variables: str,
    ) -> MachineJob:
        environ = {key: value for key, value in os.environ.items() if not key.startswith(_JOB_VARIABLES)}
        job = MachineJob()
        for machine in made:
            command = [sys.executable, "-m", "sporax", "run", "--worker_num", num_ranks]
            command += [
                "--local_worker_num",
                num_ranks // len(made),
                *(["--node_rank", machine.number] if numbered else []),
            ]
            command += ["--master_addr", master_addr or made[0].address, "--log_dir", "/tmp/logs", *flags]
            command += [program, *arguments]
            launcher = machine.popen(
                [str(word) for word in command],
                env={**environ, "XLA_FLAGS": COMPILER, "JAX_PLATFORMS": "cpu", **variables},
                cwd=tmp_path,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            lines: list[str] = []
            job.launchers.append(launcher)
            job.lines.append(lines)
            threading.Thread(target=_read, args=(launcher.stdout, lines), daemon=True).start()
        return job

    return start
