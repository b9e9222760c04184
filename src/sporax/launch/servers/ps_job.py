"""`sporax run --server_num=S --worker_num=W script.py`: scheduler, servers and workers of one machine under one launcher.

A server, the scheduler or a worker that is killed is started again alone; a worker's own error ends the job with its last
lines. The ranks' rendezvous for collectives between workers lives in the launcher, so it survives the scheduler.

How launchers of several machines notice each other's end, in jobs with parameter servers.

A process that is lost is started again by the launcher of its machine, so its loss is no failure. A machine that is lost takes
its launcher along, and no one would start anything there again. Launchers therefore keep a connection to the first one, which
breaks after `ports.UNANSWERED_SECONDS` without an answer. Ranks that exchange data with each other meet at the same port.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from sporax.base.errors import SporaxValueError
from sporax.cluster import messages, ports, private, token
from sporax.cluster.environment import RankEnvironment, is_verbose, join_address
from sporax.launch.jobs import supervision
from sporax.launch.jobs.cluster_links import ClusterLink, SchedulerElsewhere, SchedulerHere
from sporax.launch.jobs.logs import LogTail, last_lines, show
from sporax.launch.jobs.secrets import JobSecrets, make_secrets, note_scheduler
from sporax.launch.jobs.supervision import FAILED
from sporax.launch.jobs.supervisor import listening_to_signals, stop_signal
from sporax.launch.options import DEFAULT_PORT, LaunchOptions
from sporax.launch.servers.ps_cluster import LocalCluster, NodeShare
from sporax.ps.environment import serve_ranks
from sporax.ps.sockets.security import keys_for

# How failures of launchers begin; others are of ranks.
_OF_LAUNCHERS = ("the launcher on ", "the scheduler at ")


class OtherLaunchers:
    """The launchers of a job's other machines: whether they have come, and what has happened to one of them. All others come to
    the first one.

    Args:
        share: what this machine runs.
        variables: of the job.
        timeout_seconds: in which they have to come.

    Raises:
        SporaxError: the port is in use.
    """

    exit_code = FAILED
    """Of the process that is the cause of the failure; 1 where it is not known."""

    def __init__(self, share: NodeShare, variables: Mapping[str, str], timeout_seconds: float) -> None:
        address = variables["MS_SCHED_HOST"], int(variables["MS_SCHED_PORT"])
        secret, where = token.token_from_environ(variables), f"the scheduler at {join_address(*address)}"
        within = f"within {timeout_seconds:g} s"
        self.link: ClusterLink
        if share.node_rank > 0:
            self.link, self._num_expected = SchedulerElsewhere(address, secret), 1
            self._missing = f"{where} could not be reached {within}"
        else:
            # Ranks that exchange data with each other meet here, too.
            place = RankEnvironment.from_environ({**variables, "MS_ROLE": "MS_SCHED", "MS_SERVER_NUM": "0"})
            self.link = SchedulerHere(ports.listen(*address), place.size, place.timeout_seconds, secret)
            self._num_expected = share.num_nodes - 1
            # What is wrong where they do not come, and `num_here` of them have.
            self._missing = (
                f"only {{num_here}} of {self._num_expected} launchers of other machines came to {where} {within}"
            )
        self._deadline: float | None = time.monotonic() + timeout_seconds
        self._failure = ""

    def tell(self, reason: str, exit_code: int) -> None:
        """Let the others know that this launcher ends its processes. `reason` continues "the launcher on HOST …"."""
        # A scheduler elsewhere that was never reached tells no one.
        if self.link.watched() is not None:
            self.link.tell_failure(messages.Leave(reason, exit_code=exit_code))

    def failure(self) -> str:
        """What has happened to one of the others; "" while all is well. To be called again and again."""
        for event in self.link.events(is_expected=False):
            # What is said of ranks is no matter of launchers.
            if isinstance(event, supervision.ClusterEnded) and (event.failure or "").startswith(_OF_LAUNCHERS):
                self._failure, self.exit_code = str(event.failure), event.exit_code or FAILED
        if self.link.num_others >= self._num_expected:
            self._deadline = None
        if self._deadline is not None and time.monotonic() >= self._deadline and not self._failure:
            return self._missing.format(num_here=self.link.num_others)
        return self._failure


_PAUSE_SECONDS = 0.02
_QUOTED_LINES = 20


def run_job(options: LaunchOptions, environ: Mapping[str, str] = os.environ) -> int:
    """Run a job with parameter servers on this machine; gives its exit code.

    Raises:
        SporaxValueError: flags of the launcher that do not go together with servers.
    """
    if options.dry_run is not None or not options.join:
        raise SporaxValueError(
            "For 'sporax run', --server_num starts a job and waits for it: it must be given without --sim_level and "
            "--join False."
        )
    workers = options.worker_num or 1
    host, port = _scheduler_address(options)
    secrets = make_secrets(options.token_file, options.is_one_node, environ)
    variables = {
        **environ,
        **secrets.variables,
        "MS_SCHED_HOST": host,
        "MS_SCHED_PORT": str(port),
        "MS_WORKER_NUM": str(workers),
        "MS_SERVER_NUM": str(options.server_num),
        "MS_TOPO_TIMEOUT": str(options.cluster_time_out),
        **({"MS_PS_STALENESS": str(options.staleness)} if options.staleness is not None else {}),
        **({"MS_PS_DURABILITY": options.durability} if options.durability else {}),
    }
    try:
        return _run(options, variables, secrets)
    finally:
        private.remove(secrets.directory)


def _scheduler_address(options: LaunchOptions) -> tuple[str, int]:
    """Where the ranks of the job meet; the store's scheduler has the next port.

    Raises:
        SporaxValueError: the address is not one of the first node, or the node has no number.
    """
    if options.is_one_node:
        return options.master_addr.strip("[]"), options.master_port or ports.two_free_ports()
    if options.node_rank < 0:
        raise SporaxValueError(
            "For 'sporax run', --node_rank must be given together with --server_num on several nodes, as servers are dealt out "
            "by it, but got none."
        )
    host = ports.address_for_others(options.master_addr)
    if options.node_rank == 0 and not ports.is_local(host):
        raise SporaxValueError(
            f"For 'sporax run', master_addr must be an address of the node with node_rank 0, but got '{options.master_addr}', "
            "which is not an address of this machine."
        )
    return host, options.master_port or DEFAULT_PORT


def _run(options: LaunchOptions, variables: Mapping[str, str], secrets: JobSecrets) -> int:
    """Run the job with the variables of all its processes."""
    workers, log_dir = options.worker_num or 1, Path(options.log_dir or ".")
    _own_log(log_dir).unlink(missing_ok=True)  # what an earlier job has left
    place = (0, 1) if options.is_one_node else (options.node_rank, -(-workers // options.local_worker_num))
    share = NodeShare(*place, options.local_worker_num)
    others: OtherLaunchers | None = None
    # In the launcher, so that ranks still find each other after the scheduler was started again.
    if share.num_nodes == 1:
        serve_ranks(variables)
    else:
        others = OtherLaunchers(share, variables, options.cluster_time_out)
    cluster = LocalCluster(
        variables,
        Path(variables.get("MS_RECOVERY_PATH", "") or secrets.directory),
        servers=options.server_num,
        workers=workers,
        worker=options.target,
        log_dir=log_dir,
        max_restarts=options.max_restarts,
        keys=keys_for(variables["MS_SCHED_HOST"], variables),
        share=share,
    )
    note_scheduler(secrets, cluster.address)
    here = {role: sum(child.role == role for child in cluster.children.values()) for role in ("server", "worker")}
    of = (f" of {options.server_num}", f" of {workers}") if share.num_nodes > 1 else ("", "")
    print(
        f"sporax run: {here['server']}{of[0]} servers and {here['worker']}{of[1]} workers of `{options.target}`, scheduler at "
        f"{cluster.address}, logs in {log_dir}",
        file=sys.stderr,
        flush=True,
    )
    return _watch(cluster, log_dir, others)


def _watch(cluster: LocalCluster, log_dir: Path, others: OtherLaunchers | None) -> int:
    """Show the workers' output until the job is over; gives the exit code."""
    tails: dict[int, LogTail] = {}
    signum = 0
    with listening_to_signals() as signals:
        try:
            running = True
            while running and not signum:
                running = cluster.step()
                if others is not None and (lost := others.failure()):
                    running = False
                    cluster.fail_elsewhere(lost, others.exit_code)
                _show(cluster, log_dir, tails)
                signum = stop_signal(signals, _PAUSE_SECONDS)
        finally:
            if cluster.failure or signum:
                reason = cluster.failure or f"got {supervision.signal_name(signum)}"
                # First: workers elsewhere would fail without the servers of this machine.
                if others is not None:
                    others.tell(f"has ended its processes: {reason}", cluster.exit_code)
            cluster.close()
            if others is not None:
                others.link.close()
            # Once more, for the last lines of processes that have just ended.
            _show(cluster, log_dir, tails)
    if signum:
        return 128 + signum
    if cluster.failure:
        _tell(cluster, log_dir)
    return cluster.exit_code


def _tell(cluster: LocalCluster, log_dir: Path) -> None:
    """Say why the job has failed, with the last lines of the process that has."""
    print(f"sporax run: {cluster.failure}", file=sys.stderr)
    with suppress(OSError):  # the terminal has it, too
        _own_log(log_dir).write_text(f"{time.strftime('%H:%M:%S')} sporax run: {cluster.failure}\n", encoding="utf-8")
    for child in cluster.children.values():
        # The message names the process, and its log says why it failed.
        if child.log is not None and f"{child.role} {child.index} " in cluster.failure:
            print(f"last lines of {child.log}:", file=sys.stderr)
            for line in last_lines(str(child.log), _QUOTED_LINES):
                print(f"  | {line}", file=sys.stderr)


def _own_log(log_dir: Path) -> Path:
    """Takes why the job has failed, as this launcher says; `sporax logs` reads it."""
    return log_dir / f"launcher_{socket.gethostname()}.log"


def _show(cluster: LocalCluster, log_dir: Path, tails: dict[int, LogTail]) -> None:
    """Print what workers have written since the last call."""
    ranks = [index for role, index in cluster.children if role == "worker"]
    for rank in ranks:
        path = log_dir / f"worker_{rank}.log"
        if rank not in tails and path.exists():
            label = f"[{rank}] " if len(ranks) > 1 else ""
            tails[rank] = LogTail(str(path), label, is_verbose=is_verbose(os.environ))
        if rank in tails:
            show(tails[rank].new_lines())
