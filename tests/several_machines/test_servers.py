"""Parameter servers on several machines: started by the launchers, and by hand with MindSpore's variables."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

SERVED = Path(__file__).parent / "programs" / "served.py"
TOKEN = {"SPORAX_TOKEN": "0123456789abcdef0123456789abcdef"}


def losses(output: str) -> list[str]:
    return sorted(re.findall(r"step \d+ of rank \d+: \S+", output))


def query(machine, cwd: Path, *words: str) -> str:
    """What `sporax ps` says on a machine."""
    command = [sys.executable, "-m", "sporax", "ps", *words, "--scheduler", "10.77.0.10:8119"]
    return machine.run(command, cwd=cwd, env={**os.environ, **TOKEN}, stderr=subprocess.DEVNULL).stdout


def servers(machine, cwd: Path) -> list[bool]:
    """Whether each server lives, as a machine reads it."""
    return [server["live"] for server in json.loads(query(machine, cwd, "status", "--json"))["servers"]]


def start_by_hand(machine, cwd: Path, role: str, number: int, scheduler: str) -> subprocess.Popen[str]:
    """A process as MindSpore's guides start it."""
    variables = {
        **TOKEN, "MS_ROLE": role, "MS_SCHED_HOST": scheduler, "MS_SCHED_PORT": "8118", "MS_WORKER_NUM": "2",
        "MS_SERVER_NUM": "2", "JAX_PLATFORMS": "cpu", "MS_NODE_ID": f"{role}-{number}",
    }  # fmt: skip
    if role == "MS_WORKER":
        variables["RANK_ID"] = str(number)
    command = [sys.executable, str(SERVED), "6", "0", "-1"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return machine.popen(command, cwd=cwd, env={**os.environ, **variables}, **pipes)


def num_server_processes(machine) -> int:
    return sum("ps_process server" in command for command in machine.processes().values())


PUSHES = """
import os, sys, time
import numpy as np
from sporax.ps.client.store import Dense, ServerStore
from sporax.ps.protocol.messages import OptimizerSpec
store = ServerStore(sys.argv[1], timeout=60.0)
store.declare([Dense("w", 5, 0)], [OptimizerSpec("sgd")])
store.initialise([np.zeros(5)])
peers = store._client._peers
assert len(peers._direct) == 1 and not peers._remote
for number in range(int(sys.argv[2])):
    store.wait(store.push([-np.ones(5, np.float32)], [1.0]))
    print("push", number, flush=True)
    time.sleep(0.2)
assert not peers._remote
print("values", store.pull(newest=True)[0][0].tolist(), flush=True)
store.close()
"""
ROLE = "import sys; from sporax.ps.process import main; sys.exit(main(sys.argv[1]))"


@pytest.mark.full
@pytest.mark.parametrize("address", [pytest.param("10.77.0.10", marks=pytest.mark.soak), "fd77::10"])
def test_without_keys_pushes_need_no_zeromq_and_outlive_a_broken_connection(make_machines, tmp_path, address):
    """The cable is away for longer than a connection lives without an answer."""
    made = make_machines(2)
    variables = {
        **os.environ, "MS_SCHED_HOST": address, "MS_SCHED_PORT": "8118", "MS_WORKER_NUM": "1", "MS_SERVER_NUM": "1",
        "MS_PS_SLOTS": "1", "MS_PS_INSECURE": "1", "MS_PS_STALENESS": "-1", "MS_PS_LEASE": "60",
    }  # fmt: skip
    own = ["10.77.0.10", "10.77.0.11"] if "." in address else ["fd77::10", "fd77::11"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    for machine, role in ((made[0], "scheduler"), (made[1], "server")):
        environ = {**variables, "MS_WORKER_IP": own[machine.number]}
        machine.popen([sys.executable, "-c", ROLE, role], cwd=tmp_path, env=environ)
    where = f"{address}:8119" if "." in address else f"[{address}]:8119"
    worker = made[0].popen([sys.executable, "-c", PUSHES, where, "30"], cwd=tmp_path, env=variables, **pipes)
    with worker.stdout as printed:
        lines = [printed.readline()]
        while "push 5" not in lines[-1]:
            lines.append(printed.readline())
            assert lines[-1], lines
        made.unplug(1)
        time.sleep(12)
        made.plug(1)
        output = "".join([*lines, *printed])
    assert worker.wait(60) == 0, output
    assert "values [30.0, 30.0, 30.0, 30.0, 30.0]" in output


@pytest.mark.full
def test_launchers_start_servers_on_each_machine(make_machines, start_job, tmp_path):
    """With the numbers of one machine, also while servers are added; any machine may query the state and change it."""
    alone = start_job(make_machines(1), 2, SERVED, 8, 0, -1, flags=["--server_num", 2], **TOKEN)
    made = make_machines(2)
    go_on = tmp_path / "go on"
    job = start_job(made, 2, SERVED, 8, 0, -1, go_on, flags=["--server_num", 2], **TOKEN)
    job.wait_for("step 3 of")
    for machine in made:
        assert servers(machine, tmp_path) == [True, True]
        assert num_server_processes(machine) == 1
    assert "2 workers and 4 servers" in query(made[1], tmp_path, "scale", "--servers", "4")
    end = time.monotonic() + 30
    while servers(made[0], tmp_path) != [True] * 4 and time.monotonic() < end:
        time.sleep(0.2)
    assert [num_server_processes(machine) for machine in made] == [2, 2]
    go_on.touch()
    assert alone.codes() == [0], alone.output()
    assert job.codes() == [0, 0], job.output()
    assert losses(job.output()) == losses(alone.output())
    assert len(losses(job.output())) == 16
    assert not any(machine.processes() for machine in made)


@pytest.mark.full
@pytest.mark.parametrize("failing", [0, pytest.param(1, marks=pytest.mark.soak)])
def test_the_exit_code_of_a_worker_is_that_of_every_launcher(make_machines, start_job, tmp_path, failing):
    """Its machine has the scheduler, or another one has."""
    program = tmp_path / "ends.py"
    program.write_text(SERVED.read_text().replace('raise ValueError("the data is spoiled")', "sys.exit(3)"))
    made = make_machines(2)
    job = start_job(made, 2, program, 1000, 0.1, failing, flags=["--server_num", 2], **TOKEN)
    assert job.codes() == [3, 3], job.output()
    assert job.headline(failing) == f"sporax run: worker {failing} ended with exit code 3\n", job.output()
    said = f"the launcher on node{failing} has ended its processes: worker {failing} ended with exit code 3"
    assert said in job.headline(1 - failing), job.output()
    assert not any(machine.processes() for machine in made)


@pytest.mark.full
@pytest.mark.parametrize(
    ("failing", "master"),
    [
        (1, "[fd77::10]"),
        pytest.param(1, "10.77.0.10", marks=pytest.mark.soak),
        pytest.param(0, "10.77.0.10", marks=pytest.mark.soak),
    ],
)
def test_a_worker_that_raises_ends_the_processes_of_all_machines(make_machines, start_job, failing, master):
    """Over IPv4 and IPv6."""
    made = make_machines(2)
    job = start_job(made, 2, SERVED, 1000, 0.1, failing, master_addr=master, flags=["--server_num", 2], **TOKEN)
    assert job.codes(60) == [1, 1], job.output()
    assert "ValueError: the data is spoiled" in "".join(job.lines[failing])
    reason = f"the launcher on node{failing} has ended its processes: worker {failing} ended with exit code 1"
    assert reason in "".join(job.lines[1 - failing]), job.output()
    # As `sporax logs` finds it; the other worker may end first with an error of its own, since its servers are gone.
    logs = [(machine.folder / "tmp" / "logs" / f"launcher_{machine.name}.log").read_text() for machine in made]
    assert logs[failing].endswith(f" sporax run: worker {failing} ended with exit code 1\n")
    assert re.search(r"sporax run: (worker|the launcher on node)", logs[1 - failing]), logs
    assert not any(machine.processes() for machine in made)


@pytest.mark.soak
@pytest.mark.parametrize("scheduler", ["10.77.0.10", "fd77::10"])
def test_processes_are_started_by_hand_with_mindspores_variables(make_machines, start_job, tmp_path, scheduler):
    """Scheduler, a server and a worker on the first machine, the others on the second."""
    alone = start_job(make_machines(1), 2, SERVED, 6, 0, -1, flags=["--server_num", 2], **TOKEN)
    assert alone.codes() == [0], alone.output()
    made = make_machines(2)
    roles = [(0, "MS_SCHED", 0), (0, "MS_PSERVER", 0), (0, "MS_WORKER", 0), (1, "MS_PSERVER", 1), (1, "MS_WORKER", 1)]
    started = [start_by_hand(made[number], tmp_path, role, index, scheduler) for number, role, index in roles]
    outputs = [process.communicate(timeout=120)[0] for process in started]
    assert [process.returncode for process in started] == [0] * 5, outputs
    assert losses("".join(outputs)) == losses(alone.output())


def test_what_servers_on_several_machines_need_is_said_at_the_start(tmp_path):
    """Without machines: the launcher refuses before anything runs."""
    start = [sys.executable, "-m", "sporax", "run", "--server_num", "2", "--worker_num", "2", "--local_worker_num", "1"]
    for flags, message in (
        ([], "--node_rank must be given together with --server_num on several nodes"),
        (
            ["--node_rank", "0", "--master_addr", "192.0.2.1"],
            "must be an address of the node with node_rank 0, but got '192.0.2.1'",
        ),
        (
            ["--node_rank", "0", "--master_addr", "[2001:db8::1]"],
            "must be an address of the node with node_rank 0, but got '[2001:db8::1]'",
        ),
    ):
        job = subprocess.run([*start, *flags, str(SERVED)], capture_output=True, text=True, cwd=tmp_path, timeout=60)
        assert job.returncode == 2 or job.returncode == 1
        assert message in job.stderr
