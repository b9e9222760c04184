"""Jobs on several machines that go on after a failure, or leave on request."""

import re
import signal
from pathlib import Path

import pytest

JOB = Path(__file__).parents[1] / "mindspore" / "train" / "checkpoint" / "recovered_job.py"
PLACE = Path(__file__).parent / "programs" / "place.py"


def losses(lines: list[str]) -> set[str]:
    """Each loss of the ranks of some machines, and their weights at the end."""
    return {
        found for line in lines for found in re.findall(r"(?:loss \d+|weights) 0x\S+|(?:loss \d+|weights) -0x\S+", line)
    }


@pytest.mark.parametrize("folder", ["each its own", pytest.param("shared", marks=pytest.mark.soak)])
@pytest.mark.full
def test_all_machines_start_again_from_the_newest_checkpoint(make_machines, start_job, tmp_path, folder):
    """The rank of the second machine is killed; checkpoints are in a folder of each machine or in one of all."""
    (tmp_path / "alone").mkdir()
    alone = start_job(make_machines(1), 2, JOB, tmp_path / "alone", 0)
    assert alone.codes() == [0], alone.output()
    made = make_machines(2)
    place = "/tmp" if folder != "shared" else tmp_path
    job = start_job(made, 2, JOB, place, 7, flags=["--max_restarts", 2])
    assert job.codes() == [0, 0], job.output()
    for lines in job.lines:
        assert "sporax run: starts all ranks again (1 of 2)\n" in lines
    assert losses(sum(job.lines, [])) == losses(alone.lines[0])
    assert len(losses(alone.lines[0])) == 2 * 12 + 1
    # What was trained before the checkpoint was not trained again.
    again = "".join(job.lines[0]).partition("starts all ranks again")[2]
    assert "loss 7" in again
    assert "loss 6" not in again
    assert not any(machine.processes() for machine in made)


@pytest.mark.full
def test_launchers_restart_together_until_their_number_is_used_up(make_machines, start_job):
    """A rank that fails each time: three starts on both machines, also without `--node_rank`."""
    job = start_job(make_machines(2), 2, PLACE, 1, flags=["--max_restarts", 2], numbered=False)
    assert job.codes() == [7, 7], job.output()
    for lines in job.lines:
        assert sum("starts all ranks again" in line for line in lines) == 2, job.output()
        assert all(
            "rank 1" in line or "again" in line for line in lines if line.startswith("sporax run: ") and "ended" in line
        )
    assert len(re.findall(r"sporax run: rank 1 \(process \d+\) ended with exit code 7", job.output())) == 3


def test_a_machine_whose_launcher_is_stopped_ends_the_others_for_good(make_machines, start_job):
    made = make_machines(2)
    job = start_job(made, 2, PLACE, "wait", flags=["--max_restarts", 2])
    job.wait_for("this is rank")
    made[1].send_signal(job.launchers[1], signal.SIGTERM)
    assert job.codes() == [1, 128 + signal.SIGTERM], job.output()
    assert "the launcher on node1 ended its ranks: got SIGTERM (signal 15)" in job.headline(0)
    assert "starts all ranks again" not in job.output()


@pytest.mark.soak
def test_ranks_of_all_machines_save_and_leave_when_one_is_requested_to(make_machines, start_job, tmp_path):
    """MS_ENABLE_GRACEFUL_EXIT: the launcher of the first machine gets SIGTERM."""
    settings = {"MS_ENABLE_GRACEFUL_EXIT": "1", "SAVE_STEPS": "100"}
    made = make_machines(2)
    job = start_job(made, 2, JOB, tmp_path, 0, **settings)
    assert job.codes() == [0, 0], job.output()
    assert "ranks save and leave" in "".join(job.lines[0])
    for number in range(2):
        assert (tmp_path / "exit" / f"rank_{number}" / "Net_train.ckpt").is_file()
    assert not any(machine.processes() for machine in made)
