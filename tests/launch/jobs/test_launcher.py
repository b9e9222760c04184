"""Real jobs of tiny scripts: what happens to processes, logs and exit codes."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sporax.launch.jobs.logs import write_problem

JOIN = """
import os, sys, time
from sporax.cluster.environment import RankEnvironment
from sporax.cluster.membership import join
membership = join(RankEnvironment.from_environ(os.environ))
me = membership.environment
"""
WITH_CHILD = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
print("pids", os.getpid(), child.pid, flush=True)
time.sleep(300)
"""


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def pids_in(logs: list[Path]) -> list[int]:
    """Process ids that scripts have printed."""
    texts = [log.read_text() for log in logs if log.exists()]
    return [int(number) for text in texts for line in re.findall(r"pids (.*)", text) for number in line.split()]


@pytest.fixture
def logs(tmp_path: Path) -> list[Path]:
    return [tmp_path / "worker_0.log", tmp_path / "worker_1.log"]


@pytest.fixture
def started_pids(logs: list[Path], wait_until) -> Callable[[], list[int]]:
    """The four processes of a two-rank job of WITH_CHILD, once they run."""

    def wait() -> list[int]:
        wait_until(lambda: len(pids_in(logs)) == 4)
        return pids_in(logs)

    return wait


def test_ranks_know_who_they_are(write, run, tmp_path):
    script = (
        JOIN + "print(me.rank, me.size, me.local_rank, os.environ['RANK_ID'], os.environ['DEVICE_ID'], sys.argv[1])"
    )
    done = run("run", "--worker_num", 2, "--log_dir", "logs", write("script.py", script), "--flag")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[0] 0 2 0 0 0 --flag", "[1] 1 2 1 1 1 --flag"]
    assert (tmp_path / "logs/worker_1.log").read_text() == "1 2 1 1 1 --flag\n"
    assert "cluster is done" in (tmp_path / "logs/scheduler.log").read_text()


def test_ranks_have_the_alias_and_their_share_of_the_cores(write, run):
    script = write("script.py", "import os, mindspore; print(mindspore.__name__, sorted(os.sched_getaffinity(0)))")
    cores = sorted(os.sched_getaffinity(0))
    done = run("run", "--worker_num", len(cores), "--bind_core", "True", script)
    assert sorted(done.stdout.splitlines()) == sorted(f"[{i}] mindspore [{core}]" for i, core in enumerate(cores))
    done = run("run", "--worker_num", 1, "--bind_core", "False", script)
    assert done.stdout == f"mindspore {cores}\n"


@pytest.mark.parametrize(
    ("ending", "code", "words"),
    [
        ("sys.exit(7)", 7, "ended with exit code 7"),
        ("1 / 0", 1, "ended with exit code 1"),
        ("os.kill(os.getpid(), 9)", 137, "was killed by SIGKILL"),
        ("os.abort()", 134, "was killed by SIGABRT"),
    ],
)
def test_the_first_rank_that_fails_ends_the_job(write, run, ending: str, code: int, words: str):
    script = (
        JOIN
        + f"""
print('last words of', me.rank, flush=True)
while not os.path.getsize("worker_0.log"):
    time.sleep(0.01)
if me.rank == 1:
    {ending}
time.sleep(300)
"""
    )
    done = run("run", "--worker_num", 3, "--tail_worker_log", "0", write("script.py", script))
    assert done.returncode == code
    assert re.search(rf"rank 1 \(process \d+\) {words}", done.stderr)
    assert "| last words of 1" in done.stderr
    assert "rank 0 (process" not in done.stderr
    assert done.stdout == "[0] last words of 0\n"


def test_a_failing_rank_takes_its_children_along(write, run, logs, wait_until):
    script = WITH_CHILD.replace("time.sleep(300)\n", "sys.exit(3)\n")
    assert run("run", "--worker_num", 2, write("script.py", script)).returncode == 3
    wait_until(lambda: not any(map(is_alive, pids_in(logs))))


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_job(write, start, started_pids, signum: int):
    job = start("run", "--worker_num", 2, write("script.py", WITH_CHILD))
    pids = started_pids()
    job.send_signal(signum)
    assert job.wait(timeout=30) == 128 + signum
    assert not any(map(is_alive, pids))


def test_a_rank_that_ignores_the_signal_is_killed(write, start, logs, wait_until):
    script = "import os, signal, time\nsignal.signal(15, signal.SIG_IGN)\nprint('pids', os.getpid(), flush=True)\n"
    job = start("run", "--worker_num", 2, write("script.py", script + "time.sleep(300)"))
    wait_until(lambda: len(pids_in(logs)) == 2)
    job.send_signal(signal.SIGTERM)
    job.send_signal(signal.SIGINT)  # whoever signals twice does not want to wait for the grace
    job.wait(timeout=30)
    assert not any(map(is_alive, pids_in(logs)))


def test_no_orphan_survives_the_launcher(write, start, started_pids, wait_until):
    job = start("run", "--worker_num", 2, write("script.py", WITH_CHILD))
    pids = started_pids()
    assert all(map(is_alive, pids))
    job.kill()
    wait_until(lambda: not any(map(is_alive, pids)))


def test_an_executable_ends_with_the_launcher_too(write, start, logs, wait_until):
    job = start("run", "--worker_num", 2, "sh", "-c", "sleep 300 & echo pids $$ $!; wait")
    wait_until(lambda: len(pids_in(logs)) == 4)
    pids = pids_in(logs)
    assert all(map(is_alive, pids))
    job.kill()
    wait_until(lambda: not any(map(is_alive, pids)))


def test_a_job_in_the_background(write, run, started_pids, tmp_path, wait_until):
    script = write("script.py", WITH_CHILD)
    done = run("msrun", "--worker_num", 2, script)
    assert done.returncode == 0, done.stderr
    supervisor = int(re.search(r"`kill (\d+)`", done.stdout).group(1))
    pids = started_pids()
    assert all(map(is_alive, [supervisor, *pids]))
    os.kill(supervisor, signal.SIGTERM)
    wait_until(lambda: not any(map(is_alive, [supervisor, *pids])))
    assert "ends with exit code 143" in (tmp_path / "scheduler.log").read_text()


def test_a_port_in_use_is_a_users_mistake(write, run):
    script = write("script.py", "")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run("run", "--worker_num", 2, "--master_port", taken.getsockname()[1], script)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "must be free" in done.stderr


def test_two_jobs_at_once_do_not_collide(write, start):
    script = write("script.py", JOIN + "time.sleep(0.2); print(me.coordinator_address)")
    jobs = [start("run", "--worker_num", 2, "--log_dir", f"job{number}", script) for number in range(2)]
    addresses = []
    for job in jobs:
        out, err = job.communicate(timeout=60)
        assert job.returncode == 0, err
        addresses.append({line.split()[1] for line in out.splitlines()})
    assert [len(one) for one in addresses] == [1, 1]
    assert addresses[0] != addresses[1]


def test_a_rank_that_never_joins_is_named(write, run):
    script = JOIN.replace("membership =", "if os.environ['RANK_ID'] == '1': time.sleep(300)\nmembership =")
    done = run("run", "--worker_num", 2, "--cluster_time_out", 1, write("script.py", script))
    assert done.returncode == 1
    assert "not complete after 1 s: 1 of 2 workers joined ('0'); ranks [1] never did" in done.stderr


def test_a_rank_that_ends_before_joining_is_named_at_once(write, run):
    script = JOIN.replace("membership =", "if os.environ['RANK_ID'] == '1': sys.exit()\nmembership =")
    done = run("run", "--worker_num", 2, write("script.py", script))
    assert done.returncode == 1
    assert "local ranks [1] ended without joining the job" in done.stderr


def test_ranks_that_never_join_are_fine(write, run):
    assert run("run", "--worker_num", 2, write("script.py", "print(1)")).returncode == 0


def test_log_names_and_hidden_output(write, run, tmp_path):
    write("script.py", "print('said')")
    done = run("run", "--worker_num", 1, "--worker_log_name", "w_{ip}_{hostname}", "--tail_worker_log", 0, "script.py")
    assert done.stdout == "said\n"
    assert (tmp_path / f"w_127.0.0.1_{socket.gethostname()}_0.log").read_text() == "said\n"


def test_a_log_that_cannot_be_written_is_a_users_mistake(write, run):
    done = run("run", "--worker_num", 2, "--worker_log_name", "no/such/directory/w", write("script.py", ""))
    assert (done.returncode, done.stderr.count("\n")) == (2, 2)  # what was to be started, and why it could not
    assert "every rank must start, but rank 0 got" in done.stderr


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def two_nodes(start, script: Path, *flags: object, later: float = 0.0) -> list[subprocess.Popen[str]]:
    """Launch a four-rank job as two nodes would, the one with the scheduler so many seconds after the other."""
    port = free_port()
    return [
        time.sleep(later * (1 - node))
        or start(
            "run", "--worker_num", 4, "--local_worker_num", 2, "--node_rank", node, "--master_port", port,
            "--log_dir", f"node{node}", *flags, script,
        )
        for node in (1, 0)
    ]  # fmt: skip


def test_two_nodes(write, start):
    nodes = two_nodes(start, write("script.py", JOIN + "print(me.rank, me.size, me.coordinator_address)"))
    lines = [line for node in nodes for line in node.communicate(timeout=60)[0].splitlines()]
    assert [node.returncode for node in nodes] == [0, 0]
    assert sorted(line.split()[1] for line in lines) == ["0", "1", "2", "3"]
    assert len({line.split()[3] for line in lines}) == 1


@pytest.mark.parametrize("joined", [True, False])
def test_a_failure_on_one_node_ends_the_other(write, start, joined: bool):
    """Also when the rank fails before it has joined, and before the other node has even started."""
    ending = "if os.environ['RANK_ID'] == '3': os.kill(os.getpid(), 9)\n"
    script = JOIN + ending + "time.sleep(300)" if joined else "import os\n" + ending + JOIN
    nodes = two_nodes(start, write("script.py", script))
    answers = [node.communicate(timeout=60)[1] for node in nodes]
    assert [node.returncode for node in nodes] == [137, 137]
    assert "rank 3 (process" in answers[0]
    assert "rank 3 (" in answers[1]


def test_a_failure_reaches_a_node_that_starts_seconds_later(write, start):
    """As on a machine with much other work, where Python takes long to start."""
    script = write("script.py", "import os\nif os.environ['RANK_ID'] == '3': os.kill(os.getpid(), 9)\n" + JOIN)
    nodes = two_nodes(start, script, later=8.0)
    answers = [node.communicate(timeout=60)[1] for node in nodes]
    assert [node.returncode for node in nodes] == [137, 137]
    assert "rank 3 (" in answers[1]


@pytest.mark.parametrize("seconds", [0.0, 0.3, 1.0])
def test_a_killed_rank_is_named_though_others_end_by_exceptions_before(write, run, seconds: float):
    """The system needs a while to end a process; its connections are gone before, and the others see that at once."""
    ending = f"""
if os.environ["RANK_ID"] == "0":
    time.sleep({seconds})
    os.kill(os.getpid(), 9)
raise RuntimeError("Connection reset by peer")
"""
    done = run("run", "--worker_num", "3", "--log_dir", "logs", write("script.py", JOIN + ending))
    assert done.returncode == 137
    headline = next(line for line in done.stderr.splitlines() if "rank " in line and "process" in line)
    assert "rank 0 (process" in headline
    assert "was killed by SIGKILL" in headline


def test_a_cluster_started_by_hand(write, environ, tmp_path):
    script = write("script.py", """
import os
from sporax.cluster.environment import RankEnvironment, ProcessRole
from sporax.cluster.membership import join
from sporax.cluster.scheduler import serve_cluster
me = RankEnvironment.from_environ(os.environ)
if me.role is ProcessRole.SCHEDULER:
    serve_cluster(me)
else:
    print(me.node_id, join(me).environment.rank)
""")  # fmt: skip
    common = environ | {"MS_WORKER_NUM": "2", "MS_SCHED_HOST": "127.0.0.1", "MS_SCHED_PORT": str(free_port())}
    roles = [("MS_WORKER", "w-10"), ("MS_WORKER", "w-9"), ("MS_SCHED", "s")]
    processes = [
        subprocess.Popen(
            [sys.executable, script],
            env=common | {"MS_ROLE": role, "MS_NODE_ID": name},
            stdout=subprocess.PIPE,
            text=True,
        )
        for role, name in roles
    ]
    outputs = [process.communicate(timeout=60)[0] for process in processes]
    assert outputs[:2] == ["w-10 1\n", "w-9 0\n"]
    assert [process.returncode for process in processes] == [0, 0, 0]


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="Open MPI is not installed")
def test_ranks_started_by_mpirun_form_one_job(write, environ, tmp_path):
    report = "open(f'rank{me.rank}', 'w').write(f'{me.size} {me.local_rank} {me.local_size} {me.coordinator_address}')"
    script = write("script.py", JOIN + report)
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", sys.executable, "-m", "sporax", "run"]
    subprocess.run([*command, script], env=environ, cwd=tmp_path, check=True, timeout=60)
    first, second = ((tmp_path / f"rank{rank}").read_text().split() for rank in (0, 1))
    assert first[:3] == ["2", "0", "2"]
    assert second[:3] == ["2", "1", "2"]
    assert first[3] == second[3]
    assert first[3].startswith("127.0.0.1:")


def test_a_job_goes_on_when_nobody_reads_its_output(write, start, tmp_path):
    text = (
        "import time\nfor n in range(40):\n    print(n, flush=True)\n    time.sleep(0.05)\nopen('done', 'w').close()\n"
    )
    launcher = start("run", "--worker_num", 1, write("talk.py", text))
    launcher.stdout.readline()
    launcher.stdout.close()
    assert launcher.wait(timeout=60) == 0
    assert (tmp_path / "done").exists()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no /dev/full")
def test_a_full_disk_is_named(run, write, tmp_path):
    (tmp_path / "scheduler.log").symlink_to("/dev/full")
    job = run("run", "--worker_num", "1", write("train.py", "print('all is well')\n"))
    assert job.returncode == 0, job.stderr
    assert "all is well" in job.stdout
    assert job.stderr.count("'scheduler.log' cannot be written: No space left on device") == 1
    assert write_problem("/dev/full") == "No space left on device"


def test_a_log_that_cannot_be_opened_is_named(run, write, tmp_path):
    (tmp_path / "scheduler.log").mkdir()
    job = run("run", "--worker_num", "1", write("train.py", "pass\n"))
    assert job.returncode == 2
    assert "scheduler.log' got: Is a directory" in job.stderr
    assert "Traceback" not in job.stderr


def test_ranks_find_a_token_that_nobody_else_can_read_and_nothing_stays(run, write, tmp_path):
    text = (
        "import os, stat\n"
        "path = os.environ['SPORAX_TOKEN_FILE']\n"
        "print(oct(stat.S_IMODE(os.stat(path).st_mode)), oct(stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode)))\n"
        "print(len(open(path).read()), 'characters')\n"
    )
    (tmp_path / "temporary").mkdir()
    job = run("run", "--worker_num", "1", write("train.py", text), TMPDIR=str(tmp_path / "temporary"))
    assert job.returncode == 0, job.stderr
    assert "0o600 0o700" in job.stdout
    assert "64 characters" in job.stdout
    assert not any((tmp_path / "temporary").iterdir())


FAILING = """
import os
def inner():
    raise ValueError("my own failure")
if os.environ["RANK_ID"] == "1":
    inner()
import time
time.sleep(60)
"""


def test_the_traceback_of_a_failing_rank_is_shown_once(run, write):
    write("script.py", FAILING)
    done = run("run", "--worker_num", "2", "script.py")
    text = done.stdout + done.stderr
    assert done.returncode == 1
    assert text.count("Traceback (most recent call last)") == 1
    assert done.stderr.splitlines()[-2:] == [
        "  | last line of worker_1.log, shown above:",
        "  | ValueError: my own failure",
    ]
    # Where its output is not shown, its log is quoted.
    done = run("run", "--worker_num", "2", "--tail_worker_log", "0", "script.py")
    assert "Traceback" not in done.stdout
    assert done.stderr.count("Traceback (most recent call last)") == 1
