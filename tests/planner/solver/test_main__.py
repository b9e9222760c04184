import json
import subprocess
import sys
from pathlib import Path

from sporax.planner.solver import evaluate, read_graph

DATA = Path(__file__).parents[2] / "data" / "iopddl"


def test_stands_alone_as_a_module(tmp_path):
    target = tmp_path / "choices.json"
    path = DATA / "B.json.gz"
    command = [sys.executable, "-m", "sporax.planner.solver", str(path), "--json", "--solution", str(target)]
    finished = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    record = json.loads(finished.stdout)
    assert record["cost"] == 532_843
    assert record["optimal"]
    assert evaluate(read_graph(path), json.loads(target.read_text())).cost == 532_843
