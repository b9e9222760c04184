"""Fixtures that run the real command line on tiny scripts."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from forked_commands import ForkedCommand

_JOB_VARIABLES = ("MS_", "RANK_", "LOCAL_RANK", "DEVICE_ID", "OMPI_", "PYTHONPATH", "XLA_FLAGS", "JAX_PLATFORMS")


@pytest.fixture
def environ() -> dict[str, str]:
    """The environment without anything that says what job this process belongs to."""
    return {key: value for key, value in os.environ.items() if not key.startswith(_JOB_VARIABLES)}


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], Path]:
    def write_file(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return write_file


Start = Callable[..., subprocess.Popen[str]]
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def start(tmp_path: Path, environ: dict[str, str]) -> Iterator[Start]:
    """Start `python -m sporax …` in `tmp_path`; what still runs at the end of the test is killed."""
    processes = []

    def start_command(*arguments: object, **variables: str) -> subprocess.Popen[str]:
        process = ForkedCommand(
            [sys.executable, "-m", "sporax", *map(str, arguments)],
            cwd=tmp_path,
            env=environ | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        return process

    yield start_command
    for process in processes:
        process.kill()
        process.communicate()


@pytest.fixture
def run(start: Start) -> Run:
    """Run `python -m sporax …` to its end."""

    def run_command(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
        process = start(*arguments, **variables)
        out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    return run_command
