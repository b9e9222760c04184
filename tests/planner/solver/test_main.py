import json
import subprocess
import sys
from pathlib import Path

from sporax.planner.solver import evaluate, read_graph

DATA = Path(__file__).parents[2] / "data" / "iopddl"


def solve(*arguments):
    command = [sys.executable, "-m", "sporax.planner.solver", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_stands_alone_as_a_module(tmp_path):
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
