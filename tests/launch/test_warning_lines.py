"""Warnings of Sporax in a job: one line, once, by rank 0."""

import ast
import sys
import warnings
from pathlib import Path

import pytest

from forked_commands import run_forked
from sporax.launch import warning_lines

RANK_3 = {
    "MS_ROLE": "MS_WORKER", "MS_WORKER_NUM": "4", "RANK_ID": "3", "MS_SCHED_HOST": "127.0.0.1", "MS_SCHED_PORT": "8118"
}  # fmt: skip
SCRIPT = """
import warnings
def warn(): warnings.warn("For 'Thing', 'x' has no effect.", stacklevel=2)
warn()
warn()
warnings.warn("somebody else's")
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "warns.py"
    path.write_text(SCRIPT)
    return path


def run(*words):
    done = run_forked([sys.executable, "-m", "sporax", "run", *map(str, words)], timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_one_line_once_without_source(script):
    lines = run(script).splitlines()
    assert [line for line in lines if "Thing" in line] == ["sporax: warning: For 'Thing', 'x' has no effect."]
    assert sum("UserWarning: somebody else's" in line for line in lines) == 1


def test_rank_0_alone_speaks(script, tmp_path):
    text = run("--worker_num", "2", "--log_dir", tmp_path, script)
    assert text.count("For 'Thing'") == 1
    assert text.count("UserWarning: somebody else's") == 2


def test_verbose_shows_them_as_python_does(script):
    text = run("--verbose", script)
    assert text.count("UserWarning: For 'Thing'") == 2
    assert "sporax: warning" not in text


@pytest.mark.parametrize(("rank", "speaks"), [({}, True), ({"RANK_SIZE": "x"}, True), (RANK_3, False)])
def test_who_speaks(rank, speaks, capsys, monkeypatch):
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", lambda *_: None)
        warning_lines.install(rank)
        warnings.warn("For 'Thing', no.")
        warnings.showwarning("For 'Thing', no.", UserWarning, "f.py", 1)
    assert ("For 'Thing', no." in capsys.readouterr().err) == speaks


def test_all_warnings_of_the_package_begin_as_those_that_are_shown_so():
    texts = []
    for path in Path(warning_lines.__file__).parents[1].rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and ast.unparse(node.func) == "warnings.warn"
                and "RuntimeWarning" not in ast.unparse(node)
            ):
                text = node.args[0]
                first = text.values[0] if isinstance(text, ast.JoinedStr) else text
                texts += [(path.name, node.lineno, first.value)] if isinstance(first, ast.Constant) else []
    assert len(texts) > 50
    assert not [text for text in texts if not text[2].startswith("For '")]
