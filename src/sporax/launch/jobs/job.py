"""A launch written out as data: which processes are started here, with which variables, cores and log files.

`plan_job` turns checked options into a `NodeJob` without touching anything, so that what will happen can be read and tested
before it does.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from sporax.base.errors import SporaxValueError
from sporax.cluster import ports
from sporax.cluster.environment import (
    DRY_RUN_DIRECTORY,
    RECOVERY_VARIABLE,
    RESTART_VARIABLE,
    SIMULATION_VARIABLE,
    ProcessRole,
)
from sporax.ir.variables import read
from sporax.launch.jobs import cores
from sporax.launch.jobs.cores import allocation_settings, simulated_devices
from sporax.launch.options import DEFAULT_ADDRESS, DEFAULT_PORT, SCHEDULER, DryRunOptions, LaunchOptions


class RankPlan(Struct, frozen=True):
    """One process to start.

    Attributes:
        local_rank: its number on this node.
        rank: its number in the job; None when the scheduler will number it.
        variables: environment variables it gets on top of the launcher's.
        share: cores and memory it may use.
        log_path: file that takes its output.
    """

    local_rank: int
    rank: int | None
    variables: Mapping[str, str]
    share: cores.Share
    log_path: str

    def __str__(self) -> str:
        return f"rank {self.rank}" if self.rank is not None else f"local rank {self.local_rank}"

    @property
    def label(self) -> str:
        """What stands before each line of its output."""
        return f"[{self.rank}] " if self.rank is not None else f"[{socket.gethostname()} {self.local_rank}] "

    def numbered(self, rank: int) -> RankPlan:
        """The plan of a process that the scheduler has numbered; its log is named after the rank."""
        before, _, _ = self.log_path.rpartition(f"{socket.gethostname()}-{self.local_rank}.log")
        return replace(
            self, rank=rank, log_path=f"{before}{rank}.log", variables={**self.variables, "RANK_ID": str(rank)}
        )


class NodeJob(Struct, frozen=True):
    """This node's part of a job.

    Attributes:
        options: the checked command line.
        ranks: the processes to start here.
        scheduler_address: where the scheduler listens; its port is None until the listener is open.
        serves: whether the scheduler is here.
        scheduler_log: file that takes what launcher and scheduler have to say.
        scheduler_cores: cores of the launcher itself, or None.
        printed: local ranks whose output is shown; empty in the background.
        restart: how often it was started again; None where it is not.
        exits_gracefully: SIGTERM requests ranks to save and leave, which is no failure (MS_ENABLE_GRACEFUL_EXIT=1).
    """

    options: LaunchOptions
    ranks: tuple[RankPlan, ...]
    scheduler_address: tuple[str, int | None]
    serves: bool
    scheduler_log: str
    scheduler_cores: tuple[int, ...] | None
    printed: tuple[int, ...]
    restart: int | None = None
    exits_gracefully: bool = False


def plan_job(options: LaunchOptions, environ: Mapping[str, str]) -> NodeJob:
    """Decide what is started on this node.

    Args:
        options: the checked command line, with a number of workers.
        environ: the launcher's environment.

    Raises:
        SporaxValueError: the scheduler's address does not fit this node, or a binding names what is not there.
    """
    assert options.worker_num is not None
    simulated = simulated_devices(environ, options.local_devices) if options.local_devices is not None else {}
    if options.dry_run is not None:
        # Dry runs neither find nor need an accelerator.
        simulated = {"JAX_PLATFORMS": "cpu"}  # of which the ranks themselves simulate as many as they need
    on_cpu = cores.computes_on_cpu({**environ, **simulated})
    # Ranks that compute on the CPU would otherwise fight for its cores.
    bind_core = on_cpu if options.bind_core is None else options.bind_core
    # Start scripts of public programs export it.
    devices = environ.get("DEVICE_NUM", str(options.worker_num * (options.local_devices or 1)))
    serves = _serves(options)
    common = {"DEVICE_NUM": devices, **simulated, **(allocation_settings(environ) if on_cpu else {})}
    available = cores.available_cores()
    shares = cores.shares(
        options.local_worker_num, bind_core, options.bind_numa, cores=available, nodes=cores.numa_nodes(available)
    )
    everyone = tuple(range(options.local_worker_num))
    unbuffered = {} if "PYTHONUNBUFFERED" in environ else {"PYTHONUNBUFFERED": "1"}  # a killed rank's last words count
    return NodeJob(
        options=options,
        ranks=tuple(
            _plan_rank(options, local_rank, share, {**common, **unbuffered, **cores.thread_limits(share, environ)})
            for local_rank, share in enumerate(shares)
        ),
        scheduler_address=(_scheduler_host(options), _scheduler_port(options)),
        serves=serves,
        # One without the scheduler has a log of its own in a folder that nodes may share.
        scheduler_log=os.path.join(
            options.log_dir,
            "scheduler.log" if options.dry_run is not None or serves else f"launcher_{socket.gethostname()}.log",
        ),
        scheduler_cores=bind_core.get(SCHEDULER) if isinstance(bind_core, Mapping) else None,
        # A job in the background has no terminal to show anything on.
        printed=(everyone if options.tail_worker_log is None else options.tail_worker_log) if options.join else (),
        # Recovery is switched on only where the launcher restarts, even before the first failure.
        restart=0 if options.max_restarts else None,
        exits_gracefully=read(environ, "MS_ENABLE_GRACEFUL_EXIT") == "1",
    )


def connection_variables(job: NodeJob, port: int) -> dict[str, str]:
    """The variables that lead every rank to the scheduler, once its port is known."""
    restarts = {} if job.restart is None else {RECOVERY_VARIABLE: "1", RESTART_VARIABLE: str(job.restart)}
    return {
        **restarts,
        "MS_ROLE": ProcessRole.WORKER.value,
        "MS_WORKER_NUM": str(job.options.worker_num),
        "MS_SCHED_HOST": job.scheduler_address[0],
        "MS_SCHED_PORT": str(port),
        "MS_TOPO_TIMEOUT": str(job.options.cluster_time_out),
    }


def _plan_rank(options: LaunchOptions, local_rank: int, share: cores.Share, settings: Mapping[str, str]) -> RankPlan:
    """One process of this node."""
    rank = _global_rank(options, local_rank)
    variables = {
        "RANK_SIZE": str(options.worker_num),
        # MindSpore's name for the number of a device on its machine.
        "DEVICE_ID": str(local_rank),
        "LOCAL_RANK": str(local_rank),
        "LOCAL_RANK_SIZE": str(options.local_worker_num),
        # The scheduler numbers by these names, so they must sort like the ranks of a node.
        "MS_NODE_ID": str(rank) if rank is not None else f"{socket.gethostname()}-{os.getpid()}-{local_rank}",
        **settings,
    }
    if rank is not None:
        variables["RANK_ID"] = str(rank)
    if options.rank_table_file:
        variables["RANK_TABLE_FILE"] = os.path.abspath(options.rank_table_file)
    if options.dry_run is not None:
        variables |= _simulation(options.dry_run, local_rank, options.log_dir)
    return RankPlan(local_rank, rank, variables, share, _log_path(options, rank, local_rank))


def _simulation(dry_run: DryRunOptions, number: int, log_dir: str) -> dict[str, str]:
    """Variables that make the process `number` simulate its rank."""
    there = str(dry_run.ranks[number] % dry_run.local_size)
    return {
        SIMULATION_VARIABLE: str(dry_run.level),
        DRY_RUN_DIRECTORY: os.path.abspath(os.path.join(log_dir, "dry_run")),
        "DEVICE_ID": there,
        "LOCAL_RANK": there,
        "LOCAL_RANK_SIZE": str(dry_run.local_size),
    }


def _global_rank(options: LaunchOptions, local_rank: int) -> int | None:
    """A rank's number in the job: known when all are here or this node has a number, else the scheduler's to give."""
    if options.dry_run is not None:
        return options.dry_run.ranks[local_rank]
    # The whole job is here, so local ranks are ranks.
    if options.is_one_node:
        return local_rank
    return None if options.node_rank < 0 else options.node_rank * options.local_worker_num + local_rank


def _log_path(options: LaunchOptions, rank: int | None, local_rank: int) -> str:
    """The log file of a worker; without a rank its machine is in the name, so that nodes may share a folder."""
    name = options.worker_log_name or "worker"
    if "{ip}" in name:
        name = name.replace("{ip}", ports.own_address(options.master_addr))
    name = name.replace("{hostname}", socket.gethostname())
    number = f"{socket.gethostname()}-{local_rank}" if rank is None else str(rank)
    return os.path.join(options.log_dir, f"{name}_{number}.log")


def _scheduler_host(options: LaunchOptions) -> str:
    """The scheduler's address; in a dry run it is this machine's own, since no one comes."""
    if options.dry_run is not None:
        return DEFAULT_ADDRESS
    # Ranks of one node may meet at a name that leads every machine to itself.
    return options.master_addr.strip("[]") if options.is_one_node else ports.address_for_others(options.master_addr)


def _scheduler_port(options: LaunchOptions) -> int | None:
    """The port that was requested; on one node any free one will do, several have to agree beforehand."""
    if options.dry_run is not None:
        return None
    if options.master_port is None and not options.is_one_node:
        return DEFAULT_PORT
    return options.master_port


def _serves(options: LaunchOptions) -> bool:
    """Whether the scheduler is on this node: the one that owns `master_addr`, and of those only node 0."""
    # Only the machine that owns the address can listen there.
    local = ports.is_local(_scheduler_host(options))
    if not local and (options.is_one_node or options.node_rank == 0):
        which = "that runs all ranks" if options.is_one_node else "with node_rank 0"
        raise SporaxValueError(
            f"For 'sporax run', master_addr must be an address of the node {which}, but got '{options.master_addr}', "
            f"which is not an address of this machine ({socket.gethostname()})."
        )
    return local and (options.is_one_node or options.node_rank <= 0)
