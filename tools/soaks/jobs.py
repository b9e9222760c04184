"""A rank of a real job ends in a random way at a random moment.

The job must end soon with an exit code that is not 0, the first thing that the launcher says must be about that rank, no stack
trace of JAX's C++ code may be shown, and neither a process nor a file of the job may be left.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from soaks.scenario import SURVIVED, Scenario, Trial

HOWS = ("kill", "stop", "abort", "fault", "raise", "exit 0", "exit 3")
_SECONDS = 120
_TRACES = ("Check failure", "    @     0x", "grpc_status", "jaxlib", "_pjit_call_impl")
_PROGRAM = """
    import os, random, signal, sys, threading, time
    import numpy as np
    import sporax.mindspore as ms
    from sporax.mindspore import Tensor, nn
    from sporax.mindspore.communication import get_rank, init

    victim, how, seconds = int(sys.argv[1]), sys.argv[2], float(sys.argv[3])
    init()
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
    net = nn.Dense(4, 4)
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params(), 0.1))
    batch = Tensor(np.ones((2, 4), np.float32))
    step(batch, batch).asnumpy()
    signals = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "abort": signal.SIGABRT, "fault": signal.SIGSEGV}
    ends = time.monotonic() + seconds
    if get_rank() == victim and how in signals:
        threading.Timer(seconds, os.kill, (os.getpid(), signals[how])).start()
    while True:
        step(batch, batch).asnumpy()
        if get_rank() == victim and how not in signals and time.monotonic() > ends:
            if how == "raise":
                raise ValueError("the data is spoiled")
            sys.exit(int(how.split()[1]))
"""


def end_of_a_rank(trial: Trial, case: Any) -> str:
    """A rank of a job is killed, stopped, aborted, raises or leaves; the launcher names it, and nothing is left."""
    draw, folder = trial.draw, trial.folder
    how, size = draw.choice(HOWS), draw.choice([2, 2, 3])
    victim, seconds = draw.randrange(size), draw.random() * 0.5
    program = folder / f"job{draw.randrange(10**9)}.py"
    program.write_text(textwrap.dedent(_PROGRAM))
    temporary = folder / program.stem
    temporary.mkdir()
    variables = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    job = subprocess.run(
        [
            sys.executable,
            "-m",
            "sporax",
            "run",
            "--worker_num",
            str(size),
            "--log_dir",
            str(folder / "logs"),
            str(program),
        ]
        + [str(victim), how, str(seconds)],
        env={**variables, "TMPDIR": str(temporary), "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    trial.faults.counts[f"ranks that {how}"] += 1
    said = [line for line in job.stderr.splitlines() if line.startswith("sporax run: ")]
    problems = [
        *(["the exit code is 0"] if job.returncode == 0 else []),
        *([] if len(said) > 1 and said[1].startswith(f"sporax run: rank {victim} ") else ["another headline"]),
        *(f"'{trace}' is shown" for trace in _TRACES if trace in job.stdout + job.stderr),
        *(f"process {process} is left" for process in _processes(str(program))),
        *(f"'{left.name}' is left" for left in temporary.iterdir()),
    ]
    if problems:
        tail = "\n".join((job.stdout + job.stderr).splitlines()[-40:])
        raise AssertionError(f"rank {victim} of {size}, {how} after {seconds:.2f} s: {'; '.join(problems)}\n{tail}")
    return SURVIVED


def _processes(word: str) -> list[int]:
    """Processes with a word in their command line."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word.encode() in entry.read_bytes():
                found.append(int(entry.parent.name))
        except OSError:  # it has ended
            continue
    return found


JOBS_SCENARIO = Scenario("jobs", end_of_a_rank, cases=24)
