"""Who this process is in its job, read from environment variables.

A rank learns its place in one of six ways, tried in this order:

====================  ======================================================  ===========================================
started by            variables                                               how ranks find each other
====================  ======================================================  ===========================================
dry run               MS_SIMULATION_LEVEL, RANK_ID, RANK_SIZE                 not at all: this process simulates one of them
sporax run, msrun or  MS_ROLE, MS_WORKER_NUM, MS_SCHED_HOST, MS_SCHED_PORT,   the scheduler numbers them and names the
by hand               MS_NODE_ID, RANK_ID …                                   coordinator (`membership.join`)
mpirun                OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE   a port derived from mpirun's job id
rank table            RANK_TABLE_FILE, RANK_ID                                rank 0's server in the table
srun                  SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_STEP_NODELIST the step's first node, a port derived from its id
nothing               none of these                                           one rank, alone
====================  ======================================================  ===========================================

Nothing here opens a connection; `RankEnvironment` is what the environment says, and `membership.join` completes it.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from sporax.base.documents import MalformedError, decode
from sporax.base.errors import For, SporaxValueError
from sporax.base.lazy_members import dataclass
from sporax.ir.variables import JOB, VARIABLES, check, read

# MindSpore's default port of the scheduler.
DEFAULT_SCHEDULER_PORT = 8118
# MindSpore's default of MS_TOPO_TIMEOUT: half an hour.
DEFAULT_TIMEOUT_SECONDS = 1800.0
SIMULATION_VARIABLE = "MS_SIMULATION_LEVEL"
SIMULATION_LEVELS = (0, 1, 2, 3)
VERBOSE = "SPORAX_VERBOSE"
"""Errors have all of their frames and notes, and what JAX and gloo say is shown."""
NO_CACHE = "SPORAX_NO_CACHE"
"""Set to 1, it keeps compiled programs from being kept for later runs (`sporax.runtime.process.compilation_cache`)."""

VERIFY_STEPS = "SPORAX_VERIFY_STEPS"
"""How many steps apart programs run twice from the same inputs, to compare results (`runtime.process.step_verification`)."""
VERIFY_PLAN = "SPORAX_VERIFY_PLAN"
"""Set to 1, the first run of every plan is compared with one device (`sporax.runtime.planned.verification`)."""

RECOVERY_VARIABLE = "MS_ENABLE_RECOVERY"
"""Set to 1, training goes on from the newest checkpoint that all ranks have, and ranks outlive the loss of another one."""

RESUME = "SPORAX_RESUME"
"""Set to 1, training goes on from the newest complete checkpoint, as with ``Model.train(resume=True)``."""

PROFILE = "SPORAX_PROFILE"
"""Folder of a recording of some steps; each rank has a folder of its own in it (`runtime.process.recording`)."""
PROFILE_STEPS = "SPORAX_PROFILE_STEPS"
"""Which steps are recorded, counted from 0: ``"5:8"`` for 5, 6 and 7."""

RESTART_VARIABLE = "SPORAX_RESTART"
"""How often the launcher has started this job again; set by a launcher that does so, and only then."""

DRY_RUN_DIRECTORY = "SPORAX_DRY_RUN_DIR"
SIMULATED_DEVICES = "--xla_force_host_platform_device_count"
"""XLA's flag for the number of devices that a CPU acts as."""
_LOCALHOST = "127.0.0.1"
_JOB_PORTS = range(61000, 65536)  # above the range from which systems draw ports for outgoing connections
_SLURM_JOB_IDS = ("SLURM_JOB_ID", "SLURM_STEP_ID")
# Names of the job's id in different versions of Open MPI.
_MPI_JOB_IDS = ("PMIX_NAMESPACE", "OMPI_MCA_orte_hnp_uri", "OMPI_MCA_ess_base_jobid")


class ProcessRole(Enum):
    """What a process of a job does."""

    WORKER = "MS_WORKER"
    SERVER = "MS_PSERVER"
    SCHEDULER = "MS_SCHED"


@dataclass(frozen=True, slots=True)
class RankEnvironment:
    """A process's place in its job.

    Attributes:
        role: worker, parameter server or scheduler.
        rank: number of this process among those of its role; None until the scheduler has given one.
        size: number of workers in the job.
        local_rank: number of this process among those of its node.
        local_size: number of the job's workers on this node; 1 until the scheduler has counted them.
        coordinator_address: "host:port" for `jax.distributed.initialize`; None until joined, or for a single rank.
        scheduler_address: (host, port) of the scheduler that hands out ranks; None where there is none.
        server_num: number of parameter servers in the job.
        node_id: name under which the scheduler knows this process, the same after a restart; "" if not given.
        worker_host: address at which others reach this process, where it must be set (MS_WORKER_IP); else None.
        timeout_seconds: how long to wait for the other processes.
        simulation_level: what a dry run does (0 to 3), in which the other ranks are not there; None in a real job.
    """

    role: ProcessRole = ProcessRole.WORKER
    rank: int | None = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    coordinator_address: str | None = None
    scheduler_address: tuple[str, int] | None = None
    server_num: int = 0
    node_id: str = ""
    worker_host: str | None = None
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    simulation_level: int | None = None

    def __post_init__(self) -> None:
        """Check that the numbers fit each other."""
        count = self.server_num if self.role is ProcessRole.SERVER else self.size
        if self.rank is not None and not 0 <= self.rank < count:
            raise For("RANK_ID").error(
                f"the rank must be in [0, {count}), the number of processes in the job", self.rank
            )

    @property
    def is_joined(self) -> bool:
        """Whether this process knows everything it needs: nothing is left for a scheduler to say."""
        return self.scheduler_address is None or self.coordinator_address is not None

    @staticmethod
    def from_environ(environ: Mapping[str, str]) -> RankEnvironment:
        """Read the place of this process from environment variables.

        Args:
            environ: usually `os.environ`.

        Raises:
            SporaxValueError: a variable is missing or holds a value that makes no sense; names the variable.
        """
        # All of them, also those that another part of this process reads later.
        check(environ, JOB)
        # Before the other ways: a dry run keeps the variables of the job that it simulates.
        if environ.get(SIMULATION_VARIABLE) and environ.get("MS_ROLE") != ProcessRole.SCHEDULER.value:
            return _from_dry_run(environ)
        if "MS_ROLE" in environ:
            return _from_scheduler_variables(environ)
        if "OMPI_COMM_WORLD_SIZE" in environ:
            return _from_mpirun(environ)
        if environ.get("RANK_TABLE_FILE"):
            return _from_rank_table(environ)
        # A batch script has SLURM_PROCID, too, but no step of several tasks.
        if _integer(environ, "SLURM_STEP_NUM_TASKS", default=1, minimum=1) > 1 and environ.get("SLURM_PROCID"):
            return _from_srun(environ)
        # RANK_SIZE alone says nothing about where the other ranks are, unless this process simulates the device of each.
        size = _integer(environ, "RANK_SIZE", default=1, minimum=1)
        if size > 1 and f"{SIMULATED_DEVICES}={size}" not in environ.get("XLA_FLAGS", "").split():
            raise SporaxValueError(
                f"For 'RANK_SIZE', the value must be 1 where nothing says how ranks find each other, but got {size}. "
                "Start the job with `sporax run --worker_num`, or set MS_ROLE and MS_SCHED_HOST, or RANK_TABLE_FILE."
            )
        return RankEnvironment(timeout_seconds=_timeout(environ))


def join_address(host: str, port: int | str) -> str:
    """`host:port`, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_verbose(environ: Mapping[str, str]) -> bool:
    """Whether all that is said is shown."""
    return bool(read(environ, VERBOSE) == "1")


def simulation_level(environ: Mapping[str, str]) -> int | None:
    """The level of a dry run; None where none is requested.

    Raises:
        SporaxValueError: there is no such level.
    """
    level: int | None = read(environ, SIMULATION_VARIABLE)
    return level


def _from_dry_run(environ: Mapping[str, str]) -> RankEnvironment:
    """The place that this process simulates."""
    return RankEnvironment(
        rank=_integer(environ, "RANK_ID", default=0),
        size=_integer(environ, "RANK_SIZE", default=1, minimum=1),
        local_rank=_integer(environ, "LOCAL_RANK", default=0),
        local_size=_integer(environ, "LOCAL_RANK_SIZE", default=1, minimum=1),
        simulation_level=simulation_level(environ),
    )


def _from_scheduler_variables(environ: Mapping[str, str]) -> RankEnvironment:
    """A process of a dynamic cluster, whoever set the variables."""
    role = _role(environ["MS_ROLE"])
    # A scheduler has no number among workers; servers, and workers that got none, are numbered by it.
    rank = 0 if role is ProcessRole.SCHEDULER else None
    if role is ProcessRole.WORKER and environ.get("RANK_ID"):
        rank = _integer(environ, "RANK_ID")
    size = _integer(environ, "MS_WORKER_NUM", minimum=1)
    return RankEnvironment(
        role=role,
        rank=rank,
        size=size,
        local_rank=_integer(environ, "LOCAL_RANK", default=0),
        local_size=_integer(environ, "LOCAL_RANK_SIZE", default=1, minimum=1),
        scheduler_address=(_text(environ, "MS_SCHED_HOST").strip("[]"), _integer(environ, "MS_SCHED_PORT", minimum=1)),
        server_num=_integer(environ, "MS_SERVER_NUM", default=0),
        node_id=environ.get("MS_NODE_ID", ""),
        worker_host=environ.get("MS_WORKER_IP") or None,
        timeout_seconds=_timeout(environ),
    )


def _from_mpirun(environ: Mapping[str, str]) -> RankEnvironment:
    """A process started by Open MPI's mpirun."""
    size = _integer(environ, "OMPI_COMM_WORLD_SIZE", minimum=1)
    local_size = _integer(environ, "OMPI_COMM_WORLD_LOCAL_SIZE", default=size, minimum=1)
    # On one host the loopback address is enough, and no other machine can reach it.
    host = environ.get("MS_SCHED_HOST", "").strip("[]") or (_LOCALHOST if size == local_size else None)
    if host is None:
        raise SporaxValueError(
            f"For 'MS_SCHED_HOST', the value must be the address of rank 0's host when mpirun spreads {size} ranks "
            f"over several hosts ({local_size} here), but got nothing. Pass it: mpirun -x MS_SCHED_HOST=<address>."
        )
    rank, local_rank = _integer(environ, "OMPI_COMM_WORLD_RANK"), _integer(environ, "OMPI_COMM_WORLD_LOCAL_RANK")
    return _numbered(environ, rank, size, local_rank, local_size, host, _port_of_job(environ, _MPI_JOB_IDS))


def _from_srun(environ: Mapping[str, str]) -> RankEnvironment:
    """A process started by Slurm's srun; see "OUTPUT ENVIRONMENT VARIABLES" in srun(1)."""
    size, node = _integer(environ, "SLURM_STEP_NUM_TASKS", minimum=1), _integer(environ, "SLURM_NODEID", default=0)
    tasks = _tasks_per_node(_text(environ, "SLURM_STEP_TASKS_PER_NODE"))
    if sum(tasks) != size or node >= len(tasks):
        raise SporaxValueError(
            f"For 'SLURM_STEP_TASKS_PER_NODE', the numbers must add up to SLURM_STEP_NUM_TASKS, {size}, and be those of nodes "
            f"up to SLURM_NODEID, {node}, but got '{environ['SLURM_STEP_TASKS_PER_NODE']}'."
        )
    host = environ.get("MS_SCHED_HOST", "").strip("[]") or (
        _LOCALHOST if len(tasks) == 1 else _first_node(_text(environ, "SLURM_STEP_NODELIST"))
    )
    rank, local_rank = _integer(environ, "SLURM_PROCID"), _integer(environ, "SLURM_LOCALID")
    return _numbered(environ, rank, size, local_rank, tasks[node], host, _port_of_job(environ, _SLURM_JOB_IDS))


def _tasks_per_node(text: str) -> list[int]:
    """`2(x3),1` -> 2, 2, 2, 1."""
    tasks: list[int] = []
    for word in text.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", word.strip())
        if match is None:
            raise For("SLURM_STEP_TASKS_PER_NODE").error(f"the value must be numbers as in '2(x3),1', but got '{text}'")
        tasks += [int(match[1])] * int(match[2] or 1)
    return tasks


def _first_node(nodes: str) -> str:
    """`gpu[03-05,7],cpu1` -> gpu03."""
    match = re.match(r"([^,\[]+)(?:\[([^\],-]+))?", nodes)
    if match is None:
        raise For("SLURM_STEP_NODELIST").error(f"the value must be names of nodes, but got '{nodes}'")
    return match[1] + (match[2] or "")


def _port_of_job(environ: Mapping[str, str], ids: tuple[str, ...]) -> int:
    """A port that all ranks of one job agree on and another job seldom shares: derived from the job's id."""
    job = "".join(environ.get(key, "") for key in ids)
    # All ranks compute the same number from the same id, so nothing has to be exchanged.
    return _JOB_PORTS[zlib.crc32(job.encode()) % len(_JOB_PORTS)]


def _from_rank_table(environ: Mapping[str, str]) -> RankEnvironment:
    """A process that a user started with a rank table."""
    path, rank = environ["RANK_TABLE_FILE"], _integer(environ, "RANK_ID")
    servers = _read_rank_table(path)
    host_of = {number: host for host, ranks in servers for number in ranks}
    local_ranks = next((ranks for _, ranks in servers if rank in ranks), None)
    if local_ranks is None or 0 not in host_of:
        raise SporaxValueError(
            f"For 'RANK_TABLE_FILE', the table must list rank 0 and this process's rank, but '{path}' lists "
            f"{sorted(host_of)} and RANK_ID is {rank}."
        )
    size = _integer(environ, "RANK_SIZE", default=len(host_of), minimum=1)
    For("RANK_SIZE").refuse(
        size != len(host_of), f"the value must be the number of ranks in '{path}', {len(host_of)}", size
    )
    # With several hosts the others must reach rank 0's own address.
    host = _LOCALHOST if len(servers) == 1 else host_of[0]
    return _numbered(environ, rank, size, local_ranks.index(rank), len(local_ranks), host, DEFAULT_SCHEDULER_PORT)


def _numbered(
    environ: Mapping[str, str], rank: int, size: int, local_rank: int, local_size: int, host: str, port: int
) -> RankEnvironment:
    """A process whose number is known, and which meets the others at rank 0's `host`, by default at `port`."""
    port = _integer(environ, "MS_SCHED_PORT", default=port, minimum=1)
    address = join_address(host, port) if size > 1 else None
    return RankEnvironment(
        ProcessRole.WORKER, rank, size, local_rank, local_size, address, timeout_seconds=_timeout(environ)
    )


_MAX_TABLE_BYTES = 1 << 24
"""Of a rank table: 16 MiB; a device has some 100 bytes in it."""
_RankText = Annotated[str, Meta(pattern="^[0-9]{1,9}$")]


class RankTableDevice(Struct, frozen=True):
    """A device in a rank table, with its rank: a text in MindSpore's files."""

    rank_id: _RankText | Annotated[int, Meta(ge=0)]


class RankTableServer(Struct, frozen=True):
    """A host in a rank table."""

    server_id: str
    device: tuple[RankTableDevice, ...]


class RankTable(Struct, frozen=True):
    """The file that RANK_TABLE_FILE names, as far as it is read."""

    server_list: tuple[RankTableServer, ...]


def _read_rank_table(path: str) -> list[tuple[str, list[int]]]:
    """The hosts of a rank table with the ranks on each, in the table's order."""
    try:
        table = decode(Path(path).read_bytes(), RankTable, _MAX_TABLE_BYTES)
    except (OSError, MalformedError) as error:
        raise SporaxValueError(
            "For 'RANK_TABLE_FILE', the file must be JSON with server_list[].server_id and "
            f"server_list[].device[].rank_id, but reading '{path}' got: {error}."
        ) from error
    return [(server.server_id, [int(device.rank_id) for device in server.device]) for server in table.server_list]


def _role(text: str) -> ProcessRole:
    """Parse MS_ROLE; MS_SERVER is another spelling of MS_PSERVER."""
    try:
        return ProcessRole.SERVER if text == "MS_SERVER" else ProcessRole(text)
    except ValueError as error:
        names = ", ".join(role.value for role in ProcessRole)
        raise SporaxValueError(f"For 'MS_ROLE', the value must be one of {names}, but got '{text}'.") from error


def _timeout(environ: Mapping[str, str]) -> float:
    """Seconds to wait for the cluster to form."""
    return float(_integer(environ, "MS_TOPO_TIMEOUT", default=int(DEFAULT_TIMEOUT_SECONDS), minimum=1))


def _text(environ: Mapping[str, str], key: str) -> str:
    """A variable that must be set."""
    value = environ.get(key)
    if not value:
        raise SporaxValueError(
            f"For '{key}', the variable must be set "
            + (f"when MS_ROLE is '{environ['MS_ROLE']}'" if "MS_ROLE" in environ else "in a step of srun")
            + ", but got nothing."
        )
    return value


def _integer(environ: Mapping[str, str], key: str, *, default: int | None = None, minimum: int = 0) -> int:
    """A variable that holds a whole number, at least `minimum`; must be set where there is no default."""
    text = environ.get(key)
    if not text:
        if default is not None:
            return default
        raise SporaxValueError(f"For '{key}', the variable must be set to a number, but got nothing.")
    variable = VARIABLES[key]
    value: int = variable.parsed(text)
    if value < minimum:
        raise variable.wrong(f"a whole number from {minimum} on", text)
    return value
