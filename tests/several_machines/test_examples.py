"""The commands for two machines in the page of the examples, as they stand there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import machines
import pytest

from compiler_flags import COMPILER

REPOSITORY = Path(__file__).parents[2]
COMMANDS = re.findall(
    r"^\$ (.*tools/machines\.py -- .*)$", (REPOSITORY / "examples" / "README.md").read_text(), re.MULTILINE
)


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a line of the page with this Python's programs; results go to a folder of the test's."""
    if reason := machines.why_unavailable():
        pytest.skip(f"machines cannot be had here: {reason}")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for name in ("examples", "tools"):
        (folder / name).symlink_to(REPOSITORY / name)
    environ = {**os.environ, "PATH": path, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": COMPILER}
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=folder, env=environ, timeout=250)


def test_the_page_has_a_command_for_each():
    assert ["02-data-parallel" in COMMANDS[0], "07-parameter-server" in COMMANDS[1]] == [True, True]


@pytest.mark.full
def test_digits_on_two_machines(tmp_path):
    """The example ends with an error where the network does not learn."""
    done = run(COMMANDS[0], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"node0: .*2 ranks", done.stdout), done.stdout
    assert (tmp_path / "outputs/02-data-parallel/curve.png").is_file()


@pytest.mark.full
def test_servers_on_two_machines(tmp_path):
    done = run(COMMANDS[1], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"node0: 2 workers: loss 0\.\d+ -> 0\.\d+", done.stdout), done.stdout
