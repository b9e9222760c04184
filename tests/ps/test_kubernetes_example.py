"""What the example for Kubernetes promises: a worker that takes the place of a killed one makes the steps that are left."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "08-kubernetes" / "train.py"
SCRIPT = """
import os, runpy, signal, sys, time
example, victim = sys.argv[1], sys.argv[2] == "kill"
sys.argv = [example, "--steps", "10", "--batch", "8", "--pause", "0.01"]
slept, sleep = [0], time.sleep

def counting(seconds):
    from sporax.runtime.session import SESSION
    if seconds == 0.01 and SESSION.servers is not None and SESSION.servers.store.rank == 1:
        slept[0] += 1
        if victim and slept[0] == 4 and SESSION.servers.store.link.incarnation == 1:
            os.kill(os.getpid(), signal.SIGKILL)
    sleep(seconds)

time.sleep = counting
runpy.run_path(example, run_name="__main__")
"""


@pytest.mark.slow
def test_the_successor_of_a_killed_worker_makes_the_steps_that_are_left(
    tmp_path: Path, run_job: Callable[..., str]
) -> None:
    lines = {
        how: re.findall(
            r"\[(\d)\] step (\d+) loss (\S+)",
            run_job(SCRIPT, tmp_path, EXAMPLE, how, servers=1, MS_PS_WORKER_LEASE="60"),
        )
        for how in ("calm", "kill")
    }
    steps = {
        how: {rank: [int(step) for worker, step, _ in found if worker == rank] for rank in "01"}
        for how, found in lines.items()
    }
    # Exactly as many updates as without the kill, each one once.
    assert steps["calm"] == steps["kill"] == {"0": list(range(1, 11)), "1": list(range(1, 11))}
    assert sorted(lines["calm"]) == sorted(lines["kill"])
