"""What launchers on several machines say and write: labels, names of logs, the rank that failed with its machine."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PLACE = Path(__file__).parent / "programs" / "place.py"
STEPS = Path(__file__).parent / "programs" / "steps.py"

EXIT = "os._exit(3)", 3, "", "ended with exit code 3"
KILL = "os.kill(os.getpid(), 9)", 137, "", "was killed by SIGKILL (signal 9)"
LEAVE = "sys.exit(3)", 3, "ended by sys.exit", "ended with exit code 3"
RAISE = "raise ValueError", 1, "ended with an exception", "ended with exit code 1"
"""What a rank does in the middle of training, its exit code, and what launchers say of it."""


@pytest.mark.parametrize("numbered", [True, False])
@pytest.mark.sampled(1)
def test_labels_and_logs_have_the_ranks_of_the_job(make_machines, start_job, tmp_path, numbered):
    """Without `--node_rank`, too: the scheduler's numbers are used as soon as they are known."""
    made = make_machines(2)
    job = start_job(made, 4, PLACE, flags=["--log_dir", tmp_path / "logs"], numbered=numbered)
    assert job.codes() == [0, 0], job.output()
    for number, own in enumerate(([0, 1], [2, 3])):
        for local_rank, rank in enumerate(own):
            assert f"[{rank}] this is rank {rank}, of 2 here, local rank {local_rank}\n" in job.lines[number], (
                job.output()
            )
            assert f"this is rank {rank}," in (tmp_path / f"logs/worker_{rank}.log").read_text()
    logs = {file.name for file in (tmp_path / "logs").iterdir()}
    assert logs == {*(f"worker_{rank}.log" for rank in range(4)), "scheduler.log", "launcher_node1.log"}


def test_a_rank_that_the_scheduler_has_numbered_is_named_on_every_machine(make_machines, start_job):
    job = start_job(make_machines(2), 4, PLACE, 3, numbered=False)
    assert job.codes() == [7, 7], job.output()
    for number in range(2):
        assert re.search(r"rank 3 \(.*\) (on 10\.77\.0\.11 )?ended with exit code 7", job.headline(number)), (
            job.output()
        )
    assert not re.search("local rank [01] ", job.output())


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("failing", "ending", "code", "own_word", "how"),
    [
        pytest.param(0, *EXIT, marks=pytest.mark.soak),
        (2, *EXIT),
        (0, *KILL),
        pytest.param(2, *KILL, marks=pytest.mark.soak),
        (0, *LEAVE),
        pytest.param(2, *LEAVE, marks=pytest.mark.soak),
        pytest.param(0, *RAISE, marks=pytest.mark.soak),
        (2, *RAISE),
    ],
)
def test_every_machine_knows_how_a_rank_ended(make_machines, start_job, tmp_path, ending, code, own_word, how, failing):
    """In the middle of training; the first machine has the scheduler, and the rank is on it or on another one."""
    program = tmp_path / "ends.py"
    program.write_text(STEPS.read_text().replace('raise ValueError("the data is spoiled")', f"import os; {ending}"))
    made = make_machines(3)
    job = start_job(made, 3, program, 400, 0.1, failing)
    assert job.codes() == [code] * 3, job.output()
    for number in range(3):
        headline = job.headline(number)
        if number == failing and (not own_word or number == 0):
            assert re.match(rf"sporax run: rank {failing} \(process \d+\) {re.escape(how)} after", headline), (
                job.output()
            )
        else:
            said = f"{own_word} ({how})" if own_word else how
            assert headline == f"sporax run: rank {failing} (worker '{failing}') on 10.77.0.1{failing} {said}\n", (
                job.output()
            )
    assert not any(machine.processes() for machine in made)


def test_logs_of_all_machines_are_shown_from_any_of_them(make_machines, start_job, tmp_path):
    """Each has a folder of its own, which the others read over a remote shell; here one that enters the machine."""
    made = make_machines(2)
    job = start_job(made, 4, PLACE, 3)
    assert job.codes() == [7, 7], job.output()
    shell = tmp_path / "shell"
    numbers = " ".join(f"{machine.name}) number={machine._first};;" for machine in made)
    shell.write_text(
        f'#!/bin/sh\ncase "$1" in {numbers} esac\nexec nsenter --target=$number --mount --uts -- sh -c "$2"\n'
    )
    shell.chmod(0o755)
    command = [sys.executable, "-m", "sporax", "logs", *(f"{machine.name}:/tmp/logs" for machine in made)]
    done = subprocess.run([*command, "--rsh", str(shell)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    heads = re.findall(r"== (.*) ==", done.stdout)
    assert heads[0] == "rank 3, the first to fail: node1:/tmp/logs/worker_3.log, 1 lines"
    assert [head.partition(":")[0] for head in heads[1:]] == ["rank 0", "rank 1", "rank 2"]
    assert "this is rank 3, of 2 here, local rank 1\n" in done.stdout
    assert re.search(r"node0:/tmp/logs/scheduler.log: \S+ rank 3 \(.*\) on 10.77.0.11 ended with", done.stdout)
