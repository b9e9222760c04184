"""Type checkers see the public names: planted mistakes are reported, and nothing else is."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import sporax

PROGRAM = Path(__file__).with_name("user_program.py")
SOURCE = Path(sporax.__file__).parents[1]
WRONG = {number for number, line in enumerate(PROGRAM.read_text().splitlines(), 1) if line.endswith("# wrong")}


def run(*words: object, **variables: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "MYPYPATH": str(SOURCE), **variables}
    return subprocess.run([*map(str, words)], capture_output=True, text=True, env=environ, timeout=280)


@pytest.fixture(scope="module", autouse=True)
def stubs():
    """Written beside their modules, as an editable installation does."""
    script = Path(__file__).parents[3] / "tools" / "type_stubs" / "make_type_stubs.py"
    done = run(sys.executable, script, PYTHONPATH=str(SOURCE))
    assert done.returncode == 0, done.stderr


def test_stubs_have_what_is_made_when_a_module_is_imported():
    text = (SOURCE / "sporax" / "mindspore" / "ops" / "__init__.pyi").read_text()
    assert "\ndef matmul(input: Tensor" in text
    assert "\nclass MatMul(Primitive):\n    def __init__(self, transpose_a: builtins.bool = ..." in text
    assert "    def softmax(self, " in (SOURCE / "sporax" / "mindspore" / "common" / "tensor.pyi").read_text()


@pytest.mark.full
def test_mypy_reports_the_planted_mistakes_and_nothing_else(tmp_path):
    pytest.importorskip("mypy")
    settings = tmp_path / "mypy.ini"
    settings.write_text("[mypy]\nfollow_imports = silent\n")
    flags = ["--config-file", settings, "--cache-dir", os.devnull, "--no-error-summary", "--ignore-missing-imports"]
    done = run(sys.executable, "-m", "mypy", *flags, PROGRAM)
    reported = {int(line) for line in re.findall(r"user_program\.py:(\d+): error", done.stdout)}
    assert reported == WRONG, done.stdout + done.stderr


def test_pyright_reports_the_planted_mistakes_and_nothing_else(tmp_path):
    command = shutil.which("pyright", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if command is None:
        pytest.skip("pyright is not installed: pip install pyright")
    project = tmp_path / "pyrightconfig.json"
    shutil.copy(PROGRAM, tmp_path)
    project.write_text(json.dumps({"include": [PROGRAM.name], "extraPaths": [str(SOURCE)], "pythonVersion": "3.11"}))
    done = run(command, "--outputjson", "--pythonpath", sys.executable, "--project", project)
    if not done.stdout.startswith("{"):
        pytest.skip(
            f"pyright cannot start, it fetches its own program when it first runs: {done.stdout or done.stderr}"
        )
    actual = json.loads(done.stdout)["generalDiagnostics"]
    reported = {entry["range"]["start"]["line"] + 1 for entry in actual if entry["severity"] == "error"}
    assert reported == WRONG, [entry for entry in actual if entry["range"]["start"]["line"] + 1 not in WRONG]
