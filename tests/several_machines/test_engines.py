"""Jobs that other engines start: with the variables that the manuals of Open MPI and Slurm name, and by the commands of the page,
where the engines are installed.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from slurm_daemons import NEEDED, Slurm

from compiler_flags import COMPILER
from sporax.launch import cli

PROGRAMS = Path(__file__).parent / "programs"
STEPS = PROGRAMS / "steps.py"
PAGE = (Path(__file__).parents[2] / "docs/engines.md").read_text()
TRAIN = """
import runpy, sys
sys.argv = ["steps.py", "3", "0", "-1"]
runpy.run_path({!r}, run_name="__main__")
"""


def mpirun(number: int) -> dict[str, str]:
    """`mpirun -x MS_SCHED_HOST=10.77.0.10 -n 2 -N 1`; see mpirun(1), "Exported Environment Variables"."""
    return {
        "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": str(number), "OMPI_COMM_WORLD_LOCAL_RANK": "0",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "1", "PMIX_NAMESPACE": "1536884737", "MS_SCHED_HOST": "10.77.0.10",
    }  # fmt: skip


def srun(number: int) -> dict[str, str]:
    """`srun -N 2 -n 2`; see srun(1), "OUTPUT ENVIRONMENT VARIABLES"."""
    return {
        "SLURM_PROCID": str(number), "SLURM_STEP_NUM_TASKS": "2", "SLURM_LOCALID": "0", "SLURM_NODEID": str(number),
        "SLURM_STEP_TASKS_PER_NODE": "1(x2)", "SLURM_STEP_NODELIST": "node[0-1]", "SLURM_JOB_ID": "81", "SLURM_STEP_ID": "0",
    }  # fmt: skip


def environment() -> dict[str, str]:
    return {**os.environ, "XLA_FLAGS": COMPILER, "JAX_PLATFORMS": "cpu"}


def losses(output: str) -> list[str]:
    """Of all ranks; `mpirun` may put two of them in one line."""
    return sorted(re.findall(r"step \d+ of rank \d+: -?0x[0-9a-f.]+p[+-]\d+", output))


@pytest.fixture(scope="module")
def expected(tmp_path_factory) -> list[str]:
    """The losses of a job of the launcher on one machine."""
    command = [sys.executable, "-m", "sporax", "run", "--worker_num", "2", str(STEPS), "3", "0", "-1"]
    where = tmp_path_factory.mktemp("alone")
    return losses(
        subprocess.run(command, capture_output=True, text=True, env=environment(), cwd=where, check=True).stdout
    )


@pytest.mark.full
@pytest.mark.parametrize("engine", [mpirun, srun])
def test_ranks_of_two_machines_meet_without_a_flag(make_machines, tmp_path, expected, engine):
    started = []
    for machine in make_machines(2):
        command = [sys.executable, "-m", "sporax", "run", str(STEPS), "3", "0", "-1"]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        started.append(machine.popen(command, cwd=tmp_path, env={**environment(), **engine(machine.number)}, **pipes))
    outputs = [process.communicate(timeout=120)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0], outputs
    assert losses("".join(outputs)) == expected
    assert len(expected) == 6


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun (Debian's openmpi-bin) is not installed")
def test_mpirun_starts_a_script(tmp_path, expected):
    """As scripts are started that were written for it: plain Python."""
    command = [
        "mpirun",
        "--allow-run-as-root",
        "--oversubscribe",
        "-n",
        "2",
        sys.executable,
        str(STEPS),
        "3",
        "0",
        "-1",
    ]
    job = subprocess.run(command, capture_output=True, text=True, timeout=200, env=environment(), cwd=tmp_path)
    assert job.returncode == 0, job.stderr
    assert losses(job.stdout) == expected


def section(title: str) -> str:
    """Of the page."""
    (text,) = re.findall(rf"^## {title}$(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return text


def commands(title: str) -> list[str]:
    """Of a section of the page, as they stand there."""
    return re.findall(r"^\$ (.*)$", section(title), re.MULTILINE)


def with_programs() -> dict[str, str]:
    """The environment with this Python's programs, as a login shell would have it."""
    return {**environment(), "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def run_line(machine, line: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a line of the page on a machine, in a folder with a `train.py`."""
    (folder / "train.py").write_text(TRAIN.format(str(STEPS)))
    return machine.run(["bash", "-c", line], cwd=folder, env={**with_programs(), **variables}, timeout=250)


@pytest.fixture(scope="module")
def expected_of_four(tmp_path_factory) -> list[str]:
    """The losses of four ranks of the launcher on one machine."""
    command = [sys.executable, "-m", "sporax", "run", "--worker_num", "4", str(STEPS), "3", "0", "-1"]
    where = tmp_path_factory.mktemp("alone")
    return losses(
        subprocess.run(command, capture_output=True, text=True, env=environment(), cwd=where, check=True).stdout
    )


def test_the_page_has_commands_for_each_engine():
    numbers = {title: len(commands(title)) for title in ("Slurm", "Open MPI", "Ray", "Kubernetes")}
    assert numbers == {"Slurm": 3, "Open MPI": 1, "Ray": 0, "Kubernetes": 4}
    assert "```python" in section("Ray")


def test_the_lines_for_kubernetes_are_what_the_command_takes(tmp_path, capsys, monkeypatch):
    """What they do on a real API server is in `tests/k8s/test_cluster_command.py`."""
    pytest.importorskip("lightkube", reason="the extra k8s is not installed")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print('training')\n")
    submit, *others = [shlex.split(line) for line in commands("Kubernetes")]
    assert cli.main([*submit[1:], "--dry-run"]) == 0
    assert "name: train\n" in capsys.readouterr().out
    parser = cli.command_parser("k8s", cli.load_command("k8s"))
    taken = [parser.parsed(words[2:]) for words in others]
    assert [(one.action, one.name) for one in taken] == [(name, "train") for name in ("status", "logs", "delete")]


@pytest.mark.soak
@pytest.mark.parametrize("number", range(3))
def test_slurm_starts_ranks_and_launchers(make_machines, tmp_path, expected_of_four, number):
    """A real slurmctld and two slurmd."""
    if missing := [name for name in NEEDED if shutil.which(name) is None]:
        pytest.skip(f"{', '.join(missing)} (Debian's munge, slurmctld, slurmd, slurm-client) must be installed")
    made = make_machines(2)
    slurm = Slurm(made, tmp_path)
    line = commands("Slurm")[number]
    done = run_line(made[0], line, tmp_path, **slurm.variables)
    output = (tmp_path / "job.txt").read_text() if "sbatch" in line else done.stdout
    assert done.returncode == 0, done.stdout
    assert losses(output) == expected_of_four
    assert len(expected_of_four) == 12


@pytest.mark.soak
@pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun (Debian's openmpi-bin) is not installed")
def test_mpirun_starts_ranks_on_two_machines(make_machines, tmp_path, expected_of_four):
    """Its daemon on the second machine is started by a remote shell of the test's."""
    made = make_machines(2)
    for machine in made:
        command = [sys.executable, str(PROGRAMS / "remote_shell.py"), "serve", str(tmp_path)]
        shell = machine.popen(command, stdout=subprocess.PIPE, text=True, env=with_programs())
        with shell.stdout:
            assert shell.stdout.readline() == "ready\n"
    variables = {
        "OMPI_MCA_plm_rsh_agent": str(tmp_path / "shell"), "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }  # fmt: skip
    done = run_line(made[0], commands("Open MPI")[0], tmp_path, **variables)
    assert done.returncode == 0, done.stdout
    assert losses(done.stdout) == expected_of_four


@pytest.mark.soak
@pytest.mark.timeout(1800)  # Ray's own start takes minutes on a busy machine
@pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed")
@pytest.mark.filterwarnings("ignore")  # ray's own
def test_ray_places_servers_and_workers_on_two_nodes(tmp_path, monkeypatch):
    """Two raylets of this machine; the losses are those of one machine's launcher."""
    from ray.cluster_utils import Cluster

    served = str(PROGRAMS / "served.py")
    (program,) = re.findall(r"```python\n(.*?)```", section("Ray"), re.DOTALL)
    (tmp_path / "page.py").write_text(program)
    # Ray passes on what workers print, and leaves out what it takes for repeated.
    own_output = f"import os, sys\nsys.stdout = open({str(tmp_path)!r} + '/rank ' + os.environ['RANK_ID'], 'w')\n"
    (tmp_path / "train.py").write_text(own_output + TRAIN.format(served))
    launcher = [sys.executable, "-m", "sporax", "run", "--worker_num", "2", "--server_num", "2", served, "3", "0", "-1"]
    alone = subprocess.run(launcher, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=500)
    assert alone.returncode == 0, alone.stdout + alone.stderr
    monkeypatch.setenv("RAY_worker_niceness", "0")  # Ray's 15 leaves them nothing where others want the processor
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        nodes.add_node(num_cpus=1)
        environ = {**environment(), "RAY_ADDRESS": nodes.address, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "page.py"]
        done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=900)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "exit codes [0, 0]" in done.stdout
        output = "".join((tmp_path / f"rank {rank}").read_text() for rank in range(2))
        assert losses(output) == losses(alone.stdout)
        assert len(losses(output)) == 6
    finally:
        nodes.shutdown()
