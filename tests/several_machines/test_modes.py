"""Every parallel mode on several machines has the numbers of one machine, bit by bit."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from compiler_flags import COMPILER

STEPS = Path(__file__).parent / "programs" / "steps.py"
RANKS = Path(__file__).parents[1] / "mindspore" / "communication" / "programs"


def results(folder: Path, name: str) -> dict[str, object]:
    """What the programs have written: losses by way, and the weights of each rank."""
    found = {file.name.removeprefix(name): json.loads(file.read_text()) for file in folder.glob(f"{name}*.json")}
    found |= {file.name.removeprefix(name): file.read_bytes() for file in folder.glob(f"{name}-*.ckpt")}
    return found


def losses(output: str) -> list[str]:
    return sorted(re.findall(r"step \d+ of rank \d+: \S+", output))


def programs(folder: Path, name: str, *ways: str) -> list[str]:
    return [f"{program} {folder} {name} {rest}" for program, _, rest in (way.partition(" ") for way in ways)]


@pytest.mark.full
def test_a_search_strategies_and_a_pipeline_over_two_machines(make_machines, start_job, tmp_path):
    """Two devices on each machine; no `--node_rank`, and one shared folder for the logs of both."""
    ways = ["semi_auto.py searched full_batch", "pipeline.py sharded"]
    logs = tmp_path / "logs"
    logs.mkdir()
    alone = start_job(
        make_machines(1), 2, RANKS / "in_turn.py", *programs(tmp_path, "alone", *ways), flags=["--local_devices", 2]
    )
    assert alone.codes() == [0], alone.output()
    flags = ["--local_devices", 2, "--log_dir", logs]
    job = start_job(
        make_machines(2), 2, RANKS / "in_turn.py", *programs(tmp_path, "two", *ways), flags=flags, numbered=False
    )
    assert job.codes() == [0, 0], job.output()
    assert results(tmp_path, "two") == results(tmp_path, "alone")
    assert {"full_batch", "searched"} == results(tmp_path, "two")[".json"].keys()
    assert {file.name for file in logs.iterdir()} == {
        "worker_0.log",
        "worker_1.log",
        "scheduler.log",
        "launcher_node1.log",
    }


WIDE = [
    "semi_auto.py data_parallel full_batch cuts functions model searched sink",
    "pipeline.py plain gpipe four scaled parts sharded broadcast frozen lookup",
]


@pytest.mark.soak
@pytest.mark.parametrize("numbered", [True, False])
def test_all_modes_over_two_machines(make_machines, start_job, tmp_path, numbered):
    """Four ranks, two on each machine: stages of two ranks, of one, and strategies over all."""
    alone = start_job(make_machines(1), 4, RANKS / "in_turn.py", *programs(tmp_path, "alone", *WIDE))
    assert alone.codes(600) == [0], alone.output()
    job = start_job(make_machines(2), 4, RANKS / "in_turn.py", *programs(tmp_path, "two", *WIDE), numbered=numbered)
    assert job.codes(600) == [0, 0], job.output()
    assert results(tmp_path, "two") == results(tmp_path, "alone")
    assert len(results(tmp_path, "two")) > 4 * len(" ".join(WIDE).split()) - 8


@pytest.mark.soak
def test_four_machines(make_machines, start_job, tmp_path):
    """A rank on each."""
    ways = ["semi_auto.py full_batch searched", "pipeline.py four"]
    alone = start_job(make_machines(1), 4, RANKS / "in_turn.py", *programs(tmp_path, "alone", *ways))
    assert alone.codes(300) == [0], alone.output()
    job = start_job(make_machines(4), 4, RANKS / "in_turn.py", *programs(tmp_path, "four", *ways), numbered=False)
    assert job.codes(300) == [0] * 4, job.output()
    assert results(tmp_path, "four") == results(tmp_path, "alone")


@pytest.mark.soak
def test_two_jobs_side_by_side(make_machines, start_job, tmp_path):
    """On the same machines, with another port each."""
    alone = start_job(make_machines(1), 2, STEPS, 20, 0, -1)
    assert alone.codes() == [0], alone.output()
    made = make_machines(2)
    jobs = [start_job(made, 2, STEPS, 20, 0.1, -1, flags=["--master_port", port]) for port in (8118, 8218)]
    for job in jobs:
        assert job.codes() == [0, 0], job.output()
        assert losses(job.output()) == losses(alone.output())
    assert not any(machine.processes() for machine in made)


@pytest.mark.soak
def test_a_rank_table_starts_a_job(make_machines, start_job, tmp_path):
    """Each rank by hand, with MindSpore's variables."""
    alone = start_job(make_machines(1), 2, STEPS, 5, 0, -1)
    assert alone.codes() == [0], alone.output()
    made = make_machines(2)
    servers = [
        {"server_id": machine.address, "device": [{"device_id": "0", "rank_id": str(machine.number)}]}
        for machine in made
    ]
    (tmp_path / "table.json").write_text(json.dumps({"version": "1.0", "server_count": "2", "server_list": servers}))
    started = []
    for machine in made:
        variables = {
            "RANK_TABLE_FILE": str(tmp_path / "table.json"),
            "RANK_ID": str(machine.number),
            "JAX_PLATFORMS": "cpu",
        }
        environ = {**os.environ, "XLA_FLAGS": COMPILER, **variables}
        command = [sys.executable, str(STEPS), "5", "0", "-1"]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        started.append(machine.popen(command, cwd=tmp_path, env=environ, **pipes))
    outputs = [process.communicate(timeout=120)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0], outputs
    assert losses("".join(outputs)) == losses(alone.output())
