import json
import subprocess
import sys
from pathlib import Path

from contest_graphs import read_graph

from sporax.planner.solver import evaluate

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "iopddl" / "solve_contest.py"
DATA = Path(__file__).parents[2] / "data" / "iopddl"


def solve(*arguments):
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_is_a_script(tmp_path):
    target = tmp_path / "choices.json"
    path = DATA / "B.json.gz"
    finished = solve(path, "--json", "--solution", target)
    assert finished.returncode == 0, finished.stderr
    record = json.loads(finished.stdout)
    assert record["cost"] == 532_843
    assert record["optimal"]
    assert evaluate(read_graph(path), json.loads(target.read_text())).cost == 532_843


def test_the_status_of_the_process_is_that_of_the_command(tmp_path):
    node = {"intervals": [[0, 1]], "costs": [[1]], "usages": [[5]]}
    path = tmp_path / "large.json"
    path.write_text(
        json.dumps({"problem": {"name": "x", "nodes": node, "edges": {"nodes": [], "costs": []}, "usage_limit": 4}})
    )
    finished = solve(path, "--json")
    assert finished.returncode == 1
    assert json.loads(finished.stdout)["infeasible"] == "proven"
