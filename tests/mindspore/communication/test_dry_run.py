"""A dry run of one rank compiles what the job compiles, without the other ranks."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "programs" / "dry_run.py"


@pytest.fixture
def for_dry_run(tmp_path):
    """`for_dry_run(level, size, *arguments)`: the answer of the program in a dry run of rank 1, its log and its summary."""

    def run(level, size, *arguments):
        flags = ["--worker_num", size, "--sim_level", level, "--sim_rank_id", 1, "--log_dir", tmp_path / "log"]
        command = [sys.executable, "-m", "sporax", "run", *flags, PROGRAM, tmp_path / "dry", *arguments]
        job = subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=tmp_path, timeout=120)
        assert job.returncode == 0, job.stdout + job.stderr
        directory = tmp_path / "log" / "dry_run" / "rank_1"
        return (
            json.loads((tmp_path / "dry").read_text()),
            job.stdout,
            json.loads((directory / "summary.json").read_text()),
        )

    return run


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("cut", "program"), [([], "{folder}/cut.json"), (["whole"], "{folder}/whole.json whole")])
def test_a_dry_run_compiles_the_step_of_the_job(check_in_turn, for_dry_run, tmp_path, cut, program):
    folder, _ = check_in_turn(f"dry_run.py {program}")
    real = json.loads((folder / program.split()[0].removeprefix("{folder}/")).read_text())
    dry, log, summary = for_dry_run(1, 2, *cut)
    assert {name: dry[name] for name in ("place", "collectives", "memory", "ones")} == {
        name: real[name] for name in ("place", "collectives", "memory", "ones")
    }
    assert cut or dry["collectives"] == {"collective-permute": 2}
    assert (real["learned"], dry["learned"], dry["losses"]) == (True, False, [0, 0, 0])
    assert "DRY RUN, level 1: this process simulates rank 1 of 2" in log
    (step,) = summary["steps"]
    assert [step[f"{what}_bytes"] for what in ("argument", "output", "temporary")] == real["memory"]
    assert (tmp_path / "log" / "dry_run" / "rank_1" / "1_TrainOneStepCell.txt").stat().st_size > 1000


def test_level_three_computes_this_ranks_part_of_a_large_job(for_dry_run):
    dry, log, summary = for_dry_run(3, 100)
    assert dry["place"] == [1, 100, 1]
    assert dry["learned"]
    assert dry["losses"][0] > dry["losses"][-1] > 0
    assert dry["ones"] == [[100, 100]] * 100
    assert len(summary["steps"][0]["run_seconds"]) == 3
    assert "3 times" in log
