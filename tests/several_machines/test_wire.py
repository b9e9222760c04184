"""What can be read on the wire between two machines of a job with parameter servers: nothing with keys, everything without."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

PROGRAMS = Path(__file__).parent / "programs"
TOKEN = {"SPORAX_TOKEN": "0123456789abcdef0123456789abcdef"}
ROLE = "import sys; from sporax.ps.process import main; sys.exit(main(sys.argv[1]))"
PIPES = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
SECRET, READABLE = 3.1415927, 2.7182817
"""Values of the two jobs."""


def start(made, cwd: Path, port: int, value: float, protection: dict[str, str]) -> list[subprocess.Popen[str]]:
    """A job: scheduler and a server on the first machine, another server, which has the copies, and the worker on the second."""
    variables = {
        **os.environ, **protection, "MS_SCHED_HOST": made[0].address, "MS_SCHED_PORT": str(port), "MS_WORKER_NUM": "1",
        "MS_SERVER_NUM": "2", "MS_PS_STALENESS": "-1", "MS_PS_DURABILITY": "replica",
    }  # fmt: skip
    roles = [(0, "scheduler"), (0, "server"), (1, "server")]
    commands = [(number, ["-c", ROLE, role]) for number, role in roles]
    commands += [(1, [str(PROGRAMS / "recognizable.py"), str(value), f"{made[0].address}:{port + 1}"])]
    return [made[number].popen([sys.executable, *words], cwd=cwd, env=variables, **PIPES) for number, words in commands]


def runs_of(value: float) -> bytes:
    """Eight times the value: more than chance or a message's own fields bring together."""
    return np.full(8, value, np.float32).tobytes()


@pytest.mark.full
def test_weights_gradients_and_rows_are_unreadable_with_a_token(make_machines, tmp_path):
    """Between worker and server, and between the servers; a job without keys at the same time shows that they would be seen."""
    made = make_machines(2)
    file = tmp_path / "frames"
    watching = made[1].popen([sys.executable, str(PROGRAMS / "frames.py"), str(file)], **PIPES)
    with watching.stdout:
        assert watching.stdout.readline() == "ready\n"
    jobs = [start(made, tmp_path, 8118, SECRET, TOKEN), start(made, tmp_path, 8218, READABLE, {"MS_PS_INSECURE": "1"})]
    for job in jobs:
        outputs = [process.communicate(timeout=60)[0] for process in job]
        assert [process.returncode for process in job] == [0] * 4, outputs
        assert "pulled 4096 weights and 4096 values of rows\n" in outputs[3]
    wire = seen(file, runs_of(READABLE))
    # Each of them is 16 KiB: the first weights, three gradients, three times rows, the weights at the end, and copies of them.
    assert wire.count(runs_of(READABLE)) > 8 * 4096 // 8 / 2
    assert runs_of(SECRET) not in wire
    assert np.float32(SECRET).tobytes() * 2 not in wire
    assert TOKEN["SPORAX_TOKEN"].encode() not in wire


def seen(file: Path, last: bytes) -> bytes:
    """The frames of the job, which the file may have a moment later."""
    end = time.monotonic() + 20
    while last not in (frames := file.read_bytes()):
        assert time.monotonic() < end, f"{len(frames)} bytes were seen"
        time.sleep(0.05)
    return frames
