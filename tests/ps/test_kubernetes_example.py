"""What the example for Kubernetes promises: a worker that takes the place of a killed one makes the steps that are left."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from compiler_flags import COMPILER
from sporax.k8s.api import children
from sporax.k8s.resource.spec import Job, PodRole, read_job

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


@pytest.mark.full
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


STEPS, WORKERS = 12, 2
ROLES = ((PodRole.SCHEDULER, 0), (PodRole.SERVER, 0), *((PodRole.WORKER, number) for number in range(WORKERS)))


class Pods:
    """The containers of the example's job as processes of this machine, each with the command and the variables of its pod."""

    def __init__(self, folder: Path, **variables: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        self._folder, self._job = folder, self._read(variables)
        self._running: dict[tuple[PodRole, int], subprocess.Popen[bytes]] = {}
        folder.mkdir()

    def _read(self, variables: dict[str, str]) -> Job:
        body = yaml.safe_load((EXAMPLE.parent / "4-parameter-server.yaml").read_text())
        body["metadata"] |= {"namespace": "default", "uid": "1", "generation": 1}
        for role, part in body["spec"]["msReplicaSpecs"].items():
            part["replicas"] = WORKERS if role == "Worker" else 1
            (container,) = part["template"]["spec"]["containers"]
            container["command"] += ["--steps", str(STEPS), "--batch", "8", "--pause", "0.25"]
            container["ports"] = [{"name": "msjob-port", "containerPort": self._port}]
            container["env"] = [{"name": name, "value": value} for name, value in variables.items()]
        return read_job(body)

    def start(self, role: PodRole, number: int) -> None:
        """Start a pod, or another one in its place."""
        pod = children.pod(self._job, role, number, {role: self._job.spec.replicas(role) for role in PodRole}, None)
        (container,) = pod["spec"]["containers"]
        fields = {"status.podIP": "127.0.0.1", "metadata.name": pod["metadata"]["name"]}
        variables = {
            entry["name"]: entry["value"] if "value" in entry else fields[entry["valueFrom"]["fieldRef"]["fieldPath"]]
            for entry in container["env"]
        }
        variables["MS_SCHED_HOST"] = "127.0.0.1"  # what the name of the scheduler's pod stands for here
        assert container["command"][:2] == ["sporax", "run"]
        command = [sys.executable, "-m", *container["command"][:2], str(EXAMPLE), *container["command"][3:]]
        with self._output(role, number).open("ab") as output:
            self._running[role, number] = subprocess.Popen(
                command,
                env={**os.environ, "XLA_FLAGS": COMPILER, **variables},
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                start_new_session=True,
            )

    def _output(self, role: PodRole, number: int) -> Path:
        return self._folder / f"{role.value}-{number}"

    def kill(self, role: PodRole, number: int) -> None:
        """End all processes of a pod, as its end does."""
        process = self._running.pop((role, number))
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def steps(self, number: int) -> list[tuple[int, str]]:
        """The steps that a worker has printed, with the digits of their losses."""
        found = re.findall(r"step (\d+) loss (\S+)", self._output(PodRole.WORKER, number).read_text())
        return [(int(step), loss) for step, loss in found]

    @property
    def notices(self) -> list[int]:
        """Steps of which the scheduler says that a share does not count."""
        text = self._output(PodRole.SCHEDULER, 0).read_text()
        return [int(step) for step in re.findall(r"its share of the samples of step (\d+) does not count", text)]

    def wait(self, seconds: float = 150) -> None:
        """Wait for a good end of all."""
        for (role, number), process in self._running.items():
            assert process.wait(seconds) == 0, self._output(role, number).read_text()

    def close(self) -> None:
        for key in list(self._running):
            self.kill(*key) if self._running[key].poll() is None else self._running.pop(key)


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[Callable[..., Pods]]:
    started: list[Pods] = []

    def start(name: str, **variables: str) -> Pods:
        started.append(Pods(tmp_path / name, **variables))
        for role, number in ROLES:
            started[-1].start(role, number)
        return started[-1]

    yield start
    for job in started:
        job.close()


def until(happened: Callable[[], bool], seconds: float = 150) -> None:
    ends = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < ends
        time.sleep(0.02)


@pytest.mark.soak
@pytest.mark.parametrize(("lease", "pause"), [("60", 0.0), ("60", 6.0), ("2", 6.0)])
def test_a_pod_in_place_of_a_killed_worker_makes_the_steps_that_are_left(
    pods: Callable[..., Pods], lease: str, pause: float
) -> None:
    """The command and the variables are those that the operator gives; with a short lease the other worker goes on alone."""
    calm = pods("calm", MS_PS_WORKER_LEASE=lease)
    calm.wait()
    shaken = pods("shaken", MS_PS_WORKER_LEASE=lease)
    until(lambda: len(shaken.steps(1)) >= 4)
    shaken.kill(PodRole.WORKER, 1)
    time.sleep(pause)
    shaken.start(PodRole.WORKER, 1)
    shaken.wait()
    right = [(worker, *step) for worker in range(WORKERS) for step in calm.steps(worker)]
    found = [(worker, *step) for worker in range(WORKERS) for step in shaken.steps(worker)]
    assert len(right) == len(set(right)) == STEPS * WORKERS
    # Every step is made once, and by the other worker in any case.
    assert [step for step, _ in shaken.steps(0)] == list(range(1, STEPS + 1))
    assert len({found_step[:2] for found_step in found}) == len(found)
    if pause < float(lease):
        # The losses are those of the undisturbed run, to the last bit. A worker that is killed between the answer of the servers
        # and its line has not printed one of its steps.
        assert set(found) <= set(right)
        assert len(found) >= STEPS * WORKERS - 1
        assert not shaken.notices
    else:
        (step,) = shaken.notices
        assert step == len([None for worker, *_ in found if worker == 1]) + 1
