"""What a network may do to a job: cables that are pulled, losses, delays, partitions, machines that are gone, clocks that jump.

Every case makes two or three machines (`machines.py`), starts a job on them and disturbs it at a drawn moment, also while its
ranks still come together. It must end in one of two ways: with every loss of a job on one machine, bit by bit, or on every
machine that is left with an exit code that is not 0 and a line that names a machine or a rank, within `END_SECONDS`. What a job
has to survive (`MUST_GO_ON`) must end in the first way. No process of the job may be left, and no file of it outside of its logs.

Needs Linux and root.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from machines import Link, Machines, MachinesUnavailableError

from soaks.scenario import NotCountedError, Scenario, Trial, UnavailableError

STEPS = 30
END_SECONDS = 60.0
"""In which all launchers end after the cause: 8 s until silence is noticed, and some for the ranks on a busy computer."""
GATHER_SECONDS = 45
"""`--cluster_time_out`: for which ranks wait for each other, where the network keeps some from coming."""
_JOB_SECONDS = 300.0
_FAKETIME = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
_SLEEP = "import select, time\ntime.sleep = lambda seconds: select.select([], [], [], seconds)\n"
"""For processes under libfaketime, which (0.9.10) misreads the moment on the monotonic clock until which Python sleeps."""
_NAMED = re.compile(r"node\d|rank \d|10\.77\.0\.\d|local ranks? \[?\d|worker \d|server \d")
PROGRAM = """
    import sys, time
    import numpy as np
    import sporax.mindspore as ms
    from sporax.mindspore import Tensor, nn
    from sporax.mindspore.communication import get_group_size, get_rank, init

    kind, steps, slow, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    ms.set_context(mode=ms.GRAPH_MODE)
    if kind == "servers":
        ms.set_ps_context(enable_ps=True)
    init()
    if kind == "ranks":
        ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
    ms.set_seed(1)
    net = nn.SequentialCell(nn.Dense(8, 12), nn.ReLU(), nn.Dense(12, 4))
    if kind == "servers":
        net.set_param_ps()
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.Momentum(net.trainable_params(), 0.1, 0.9))
    draws = np.random.RandomState(0)
    x, y = draws.randn(12, 8).astype(np.float32), draws.randn(12, 4).astype(np.float32)
    rank, size = get_rank(), get_group_size()
    for number in range(steps):
        if number == 5 and rank == slow:
            time.sleep(seconds)
        loss = float(step(Tensor(x[rank::size]), Tensor(y[rank::size])).asnumpy())
        print(f"step {number} of rank {rank}: {loss.hex()}", flush=True)
        time.sleep(0.1)
"""
_VARIABLES = ("MS_", "RANK_", "LOCAL_RANK", "DEVICE_ID", "OMPI_", "SLURM_", "SPORAX_", "PYTHONPATH")


@dataclass(frozen=True, slots=True)
class Case:
    """One case.

    Attributes:
        kind: what happens; a key of `KINDS`.
        job: "ranks" (data parallelism over gloo) or "servers" (parameter servers, two of them).
        num_machines: machines of the job.
        ranks_each: ranks on each of them.
        step: when it happens, after this step of all ranks; -1 while they still come together.
        delay: seconds after that.
        victim: the machine that it happens to.
    """

    kind: str
    job: str
    num_machines: int
    ranks_each: int
    step: int
    delay: float
    victim: int

    @property
    def must_go_on(self) -> bool:
        """Whether the job has to survive it."""
        return self.kind in MUST_GO_ON and not (self.kind in _OF_JAX and self.job == "ranks" and self.victim == 0)

    @property
    def num_ranks(self) -> int:
        """Ranks of the job."""
        return self.num_machines * self.ranks_each

    def __str__(self) -> str:
        when = f"after step {self.step}" if self.step >= 0 else "while ranks come together"
        return (
            f"{self.kind}, {self.job}, {self.num_machines} machines with {self.ranks_each} ranks each, node{self.victim}, {when} "
            f"and {self.delay:.1f} s"
        )


# -------------------------------------------------------------------------------------------------------------- what may happen


def _pull(seconds: float) -> Callable[[Machines, Case], None]:
    def happen(made: Machines, case: Case) -> None:
        made.unplug(case.victim)
        time.sleep(seconds)
        made.plug(case.victim)

    return happen


def _pull_often(made: Machines, case: Case) -> None:
    for _ in range(5):
        made.unplug(case.victim)
        time.sleep(0.7)
        made.plug(case.victim)
        time.sleep(0.7)


def _one_way(loss: float) -> Callable[[Machines, Case], None]:
    def happen(made: Machines, case: Case) -> None:
        made.set_link(Link(loss=loss), [case.victim])

    return happen


def _one_way_for_a_while(made: Machines, case: Case) -> None:
    made.set_link(Link(up=False), None, [case.victim])
    time.sleep(4)
    made.set_link(Link(), None, [case.victim])


def _all_links(link: Link) -> Callable[[Machines, Case], None]:
    return lambda made, case: made.set_link(link)


def _vanish(made: Machines, case: Case) -> None:
    made.unplug(case.victim)
    made[case.victim].vanish()


def _shut_down(made: Machines, case: Case) -> None:
    made[case.victim].vanish()


def _partition(made: Machines, case: Case) -> None:
    made.partition(set(range(len(made))) - {case.victim}, {case.victim})


def _partition_for(seconds: float) -> Callable[[Machines, Case], None]:
    def happen(made: Machines, case: Case) -> None:
        _partition(made, case)
        time.sleep(seconds)
        made.heal()

    return happen


def _two_partitions(made: Machines, case: Case) -> None:
    made.partition()


def _two_partitions_in_turn(made: Machines, case: Case) -> None:
    for victim in (case.victim, (case.victim + 1) % len(made)):
        made.unplug(victim)
        time.sleep(2)
        made.plug(victim)
        time.sleep(1)


def _forget_names(made: Machines, case: Case) -> None:
    for machine in made:
        machine.set_hosts([])


def _jump(offset: str) -> Callable[[Machines, Case], None]:
    def happen(made: Machines, case: Case) -> None:
        (made[case.victim].folder / "tmp" / "clock").write_text(f"{offset}\n")

    return happen


def _nothing(made: Machines, case: Case) -> None:
    """The program itself is slow."""


KINDS: dict[str, tuple[Callable[[Machines, Case], None], int]] = {
    "cable pulled for 1 s": (_pull(1), 3),
    "cable pulled for 5 s": (_pull(5), 3),
    "cable pulled for 30 s": (_pull(30), 2),
    "cable pulled five times for 0.7 s": (_pull_often, 2),
    "one direction only": (_one_way(1.0), 3),
    "one direction only, for 4 s": (_one_way_for_a_while, 2),
    "30 % lost in one direction": (_one_way(0.3), 1),
    "5 % lost": (_all_links(Link(loss=0.05)), 3),
    "200 ms there and back": (_all_links(Link(latency=100)), 3),
    "10 Mbit/s": (_all_links(Link(rate=1.25e6)), 3),
    "machine without power": (_vanish, 3),
    "machine shut down": (_shut_down, 2),
    "partition": (_partition, 3),
    "partition that heals after 4 s": (_partition_for(4), 2),
    "partition that heals after 20 s": (_partition_for(20), 2),
    "two partitions": (_two_partitions, 2),
    "two partitions in turn, 2 s each": (_two_partitions_in_turn, 2),
    "names are known no more": (_forget_names, 1),
    "a clock jumps an hour ahead": (_jump("+1h"), 2),
    "a clock jumps a day back": (_jump("-1d"), 2),
    "a rank comes 35 s late": (_nothing, 1),
}
"""What happens, and how often it is drawn."""
MUST_GO_ON = {
    "cable pulled for 1 s", "cable pulled for 5 s", "one direction only, for 4 s", "5 % lost", "200 ms there and back",
    "10 Mbit/s", "partition that heals after 4 s", "two partitions in turn, 2 s each", "names are known no more",
    "a clock jumps an hour ahead", "a clock jumps a day back", "a rank comes 35 s late",
}  # fmt: skip
_OF_JAX = ("a clock jumps an hour ahead", "a clock jumps a day back")
"""JAX's coordinator counts by the time of day on the machine of rank 0: there such a jump may end a job of ranks."""
_LATE, _LATE_SECONDS = "a rank comes 35 s late", 35
_THREE = {"two partitions", "two partitions in turn, 2 s each"}


def case_of(seed: int, number: int) -> Case:
    """The case with this number."""
    draw = random.Random(f"network {seed} {number}")
    kind = draw.choices(list(KINDS), [weight for _, weight in KINDS.values()])[0]
    job = draw.choice(["ranks", "ranks", "servers"])
    num_machines = 3 if kind in _THREE else draw.choice([2, 2, 3])
    ranks_each = 1 if job == "servers" or num_machines == 3 else draw.choice([1, 1, 2])
    comes_early = draw.random() < 0.2 and kind not in ("names are known no more", _LATE)
    step, delay = (-1, draw.uniform(0, 4)) if comes_early else (draw.randrange(1, STEPS - 8), draw.uniform(0, 0.3))
    return Case(kind, job, num_machines, ranks_each, step, delay, draw.randrange(num_machines))


# ------------------------------------------------------------------------------------------------------------------------ a job


@dataclass(slots=True)
class Job:
    """A job on some machines: its launchers, and what each has printed so far."""

    launchers: list[subprocess.Popen[str]] = field(default_factory=list)
    lines: list[list[str]] = field(default_factory=list)

    def losses(self) -> list[str]:
        """Of all steps of all ranks."""
        return sorted(re.findall(r"step \d+ of rank \d+: \S+", "".join("".join(lines) for lines in self.lines)))

    def has_done(self, step: int) -> bool:
        """Whether all machines have printed a step."""
        return all(any(f"step {step} of rank" in line for line in lines) for lines in list(self.lines))

    def is_running(self) -> bool:
        """Whether a launcher runs."""
        return any(launcher.poll() is None for launcher in self.launchers)


def start(made: Sequence[Any], case: Case, program: Path) -> Job:
    """Start the launchers."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_VARIABLES)}
    variables = {
        **kept, "JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(sys.path), "SPORAX_TOKEN": "0123456789abcdef" * 2,
        "XLA_FLAGS": "--xla_backend_optimization_level=0",
    }  # fmt: skip
    if "clock" in case.kind:
        clock = {"FAKETIME_TIMESTAMP_FILE": "/tmp/clock", "FAKETIME_NO_CACHE": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
        variables |= {"LD_PRELOAD": str(_FAKETIME[0]), **clock}
        variables["PYTHONPATH"] = f"{program.parent / 'sleep'}{os.pathsep}{variables['PYTHONPATH']}"
    job = Job()
    for machine in made:
        words = [sys.executable, "-m", "sporax", "run", "--worker_num", case.num_ranks, "--local_worker_num"]
        words += [case.num_ranks // len(made), "--node_rank", machine.number, "--master_addr", made[0].address]
        words += ["--cluster_time_out", GATHER_SECONDS, "--log_dir", "/tmp/logs"]
        words += ["--server_num", 2] if case.job == "servers" else []
        late = case.victim * case.ranks_each if case.kind == _LATE and len(made) > 1 else -1
        words += [program, case.job, STEPS, late, _LATE_SECONDS]
        lines: list[str] = []
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        launcher = machine.popen([str(word) for word in words], env=variables, cwd=program.parent, **pipes)
        threading.Thread(target=_read, args=(launcher.stdout, lines), daemon=True).start()
        job.launchers.append(launcher)
        job.lines.append(lines)
    return job


def _read(output: IO[str], lines: list[str]) -> None:
    with output:
        lines.extend(output)


def _ended(job: Job, until: float) -> bool:
    while job.is_running() and time.monotonic() < until:
        time.sleep(0.1)
    return not job.is_running()


def expected_losses(case: Case, program: Path, known: dict[tuple[str, int], list[str]]) -> list[str]:
    """Of the same job on one machine that nothing disturbs."""
    if (case.job, case.num_ranks) not in known:
        with Machines(1, shared=[program.parent]) as alone:
            job = start(alone, case, program)
            if not _ended(job, time.monotonic() + _JOB_SECONDS) or job.launchers[0].returncode:
                raise AssertionError(f"the job on one machine fails: {''.join(job.lines[0])[-3000:]}")
            if lost := [line for line in job.lines[0] if "go on without it" in line]:
                raise AssertionError(f"the job on one machine is no reference: {lost}")
            time.sleep(0.2)
            known[case.job, case.num_ranks] = job.losses()
        if len(job.losses()) != STEPS * case.num_ranks:
            raise AssertionError(f"the job on one machine has {len(job.losses())} losses")
    return known[case.job, case.num_ranks]


def tried(case: Case, program: Path, known: dict[tuple[str, int], list[str]]) -> str:
    """Run a case; "went on" or "ended".

    Raises:
        AssertionError: it ended in another way.
    """
    with ExitStack() as stack:
        made = stack.enter_context(Machines(case.num_machines, shared=[program.parent], seed=case.victim))
        if "clock" in case.kind:
            for machine in made:
                (machine.folder / "tmp" / "clock").write_text("+0\n")
        job = start(made, case, program)
        began = time.monotonic()
        while case.step >= 0 and not job.has_done(case.step):
            if not job.is_running() or time.monotonic() > began + _JOB_SECONDS:
                raise AssertionError(f"it does not reach step {case.step}: {_in_repr(job)}")
            time.sleep(0.02)
        time.sleep(case.delay)
        KINDS[case.kind][0](made, case)
        # What goes on slowly is given its time; what has ended for a cause is looked at below.
        happened = time.monotonic()
        waits = GATHER_SECONDS if case.step < 0 else 0
        has_ended = _ended(job, happened + _JOB_SECONDS)
        seconds = time.monotonic() - happened
        time.sleep(0.3)  # for the last lines
        up = [machine for machine in made if machine.is_up]
        codes = [job.launchers[machine.number].returncode for machine in up]
        left = {machine.name: machine.processes() for machine in up if machine.processes()}
        files = [path.name for machine in up for path in (machine.folder / "tmp").glob("sporax-*")]
        problems = [
            *([] if has_ended else [f"it has not ended after {seconds:.0f} s"]),
            *([f"processes are left: {left}"] if left else []),
            *([f"files are left: {files}"] if files else []),
        ]
        if has_ended and all(code == 0 for code in codes) and len(up) == len(made):
            outcome = "went on"
        else:
            outcome = "ended"
            problems += ["it should have gone on"] if case.must_go_on else []
            problems += [f"exit codes {codes}"] if 0 in codes else []
            problems += [f"it took {seconds:.0f} s to end"] if seconds > END_SECONDS + waits else []
            problems += [
                f"{machine.name} names no cause" for machine in up if not names_a_cause(job.lines[machine.number])
            ]
        if problems:
            raise AssertionError(f"{'; '.join(problems)} (exit codes {codes}, {seconds:.0f} s)\n{_in_repr(job)}")
    # A job that has ended has no losses to compare: only then is the one on one machine run.
    if outcome == "went on" and job.losses() != (expected := expected_losses(case, program, known)):
        raise AssertionError(f"other losses: {sorted(set(job.losses()) ^ set(expected))[:6]}\n{_in_repr(job)}")
    return outcome


def names_a_cause(lines: list[str]) -> bool:
    """Whether a launcher says which machine or rank was the cause."""
    own = [line for line in lines if line.startswith("sporax run: ") and "logs in" not in line]
    return any(_NAMED.search(line) for line in own)


def _in_repr(job: Job) -> str:
    return "".join(
        f"node{number}: {line}" for number, lines in enumerate(job.lines) for line in lines[-25:] if "step" not in line
    )


def disturb(trial: Trial, case: Case) -> str:
    """A job whose network, machines or clocks are disturbed has every loss of one machine, or ends everywhere with the cause."""
    if "clock" in case.kind and not _FAKETIME:
        raise NotCountedError("libfaketime is not installed")
    program = trial.folder / "job.py"
    if not program.exists():
        program.write_text(textwrap.dedent(PROGRAM))
        (trial.folder / "sleep").mkdir()
        (trial.folder / "sleep" / "sitecustomize.py").write_text(_SLEEP)
    try:
        return tried(case, program, trial.memory)
    except MachinesUnavailableError as error:
        raise UnavailableError(str(error)) from error


NETWORK_SCENARIO = Scenario(
    "network", disturb, cases=200, case=case_of, kind=lambda case: case.kind, kinds=tuple(KINDS)
)
