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
import select
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from sporax.base.errors import SporaxValueError
from sporax.cluster import addresses, membership, messages, ports, private, token
from sporax.cluster.environment import RankEnvironment, is_verbose, join_address
from sporax.cluster.rendezvous import Cluster, Left
from sporax.cluster.scheduler import Scheduler
from sporax.launch.jobs import supervision
from sporax.launch.jobs.logs import LogTail, last_lines, show
from sporax.launch.jobs.secrets import JobSecrets, make_secrets, note_scheduler
from sporax.launch.jobs.supervision import FAILED
from sporax.launch.jobs.supervisor import listening_to_signals, stop_signal
from sporax.launch.options import DEFAULT_PORT, LaunchOptions
from sporax.launch.servers.ps_cluster import LocalCluster, NodeShare
from sporax.ps.environment import serve_ranks
from sporax.ps.sockets.security import keys_for

_RETRY_SECONDS = 1.0
_LAUNCHER = "the launcher on "
"""What a `Cluster` says of a launcher begins so. A rank that is lost is no matter of launchers."""


class LauncherLink(Protocol):
    """A launcher's view of the others."""

    exit_code: int
    """Of the process that is the cause of the failure; 1 where it is not known."""

    def tell(self, reason: str, exit_code: int) -> None:
        """Let the others know that this launcher ends its processes. `reason` continues "the launcher on HOST …"."""

    def failure(self) -> str:
        """What has happened to one of the others; "" while all is well. To be called again and again."""

    def close(self) -> None:
        """Leave in good order."""


class FirstLauncher:
    """Of the first machine: the others connect to it, and ranks that exchange data with each other.

    Args:
        variables: of the job.
        num_others: launchers of other machines.
        timeout_seconds: in which they have to come.

    Raises:
        SporaxError: the port is in use.
    """

    def __init__(self, variables: Mapping[str, str], num_others: int, timeout_seconds: float) -> None:
        place = RankEnvironment.from_environ({**variables, "MS_ROLE": "MS_SCHED", "MS_SERVER_NUM": "0"})
        assert place.scheduler_address is not None
        self._cluster = Cluster(place.size, 0, place.timeout_seconds)
        self._address = join_address(*place.scheduler_address)
        listener = ports.listen(*place.scheduler_address)
        secret = token.token_from_environ(variables)
        self._scheduler = Scheduler(self._cluster, listener, secret=secret, starts_at_first=True, log=lambda _: None)
        self.exit_code = FAILED
        self._num_others, self._timeout_seconds = num_others, timeout_seconds
        self._deadline: float | None = time.monotonic() + timeout_seconds

    def tell(self, reason: str, exit_code: int) -> None:
        """All that are connected hear it."""
        self._scheduler.fail(f"{_LAUNCHER}{socket.gethostname()} {reason}", Left(-1, reason, exit_code=exit_code))

    def failure(self) -> str:
        """A launcher that is gone, or has not come."""
        self._scheduler.step()
        num_here = len(self._cluster.watchers)
        if num_here >= self._num_others:
            self._deadline = None
        if self._deadline is not None and time.monotonic() >= self._deadline:
            return (
                f"only {num_here} of {self._num_others} launchers of other machines came to the scheduler at {self._address} "
                f"within {self._timeout_seconds:g} s"
            )
        self.exit_code = self._cluster.exit_code or FAILED
        return self._cluster.failure if self._cluster.failure.startswith(_LAUNCHER) else ""

    def close(self) -> None:
        """Close all connections."""
        self._scheduler.close()


class OtherLauncher:
    """Of another machine.

    Args:
        variables: of the job.
        timeout_seconds: in which the first launcher must be there.
    """

    def __init__(self, variables: Mapping[str, str], timeout_seconds: float) -> None:
        self.exit_code = FAILED
        self._timeout_seconds = timeout_seconds
        self._deadline = time.monotonic() + timeout_seconds
        self._address = (variables["MS_SCHED_HOST"], int(variables["MS_SCHED_PORT"]))
        self._secret = token.token_from_environ(variables)
        self._stream: socket.socket | None = None
        self._next_try: float | None = 0.0

    def tell(self, reason: str, exit_code: int) -> None:
        """The first launcher hears it, and tells the others."""
        if self._stream is not None:
            membership.leave_as_launcher(self._stream, reason, ended=membership.EndedRank(exit_code=exit_code))
        self._stream, self._next_try = None, None

    def failure(self) -> str:
        """The first launcher's machine is gone, or it says that another one is."""
        if self._next_try is not None and time.monotonic() >= self._next_try:
            self._stream = membership.watch_as_launcher(self._address, self._secret)
            self._next_try = time.monotonic() + _RETRY_SECONDS if self._stream is None else None
        if self._next_try is not None and time.monotonic() >= self._deadline:
            scheduler = join_address(*self._address)
            return f"the scheduler at {scheduler} could not be reached within {self._timeout_seconds:g} s"
        if self._stream is None or not select.select([self._stream], [], [], 0)[0]:
            return ""
        heard = membership.receive_as_launcher(self._stream, self._address)
        self.close()
        reason = "" if not isinstance(heard, messages.Ended) or heard.well else heard.reason
        self.exit_code = heard.exit_code or FAILED if isinstance(heard, messages.Ended) else FAILED
        # It ends in good order, or says what has happened; what it says of ranks is no matter of launchers.
        return reason if reason.startswith((_LAUNCHER, "the scheduler at")) else ""

    def close(self) -> None:
        """Leave."""
        if self._stream is not None:
            membership.leave_as_launcher(self._stream, None)
        self._stream, self._next_try = None, None


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
    host = addresses.address_for_others(options.master_addr)
    if options.node_rank == 0 and not ports.is_local(host):
        raise SporaxValueError(
            f"For 'sporax run', master_addr must be an address of the node with node_rank 0, but got '{options.master_addr}', "
            "which is not an address of this machine."
        )
    return host, options.master_port or DEFAULT_PORT


def _share(options: LaunchOptions) -> NodeShare:
    """What this node runs."""
    if options.is_one_node:
        return NodeShare(local_workers=options.local_worker_num)
    return NodeShare(
        options.node_rank, -(-(options.worker_num or 1) // options.local_worker_num), options.local_worker_num
    )


def _run(options: LaunchOptions, variables: Mapping[str, str], secrets: JobSecrets) -> int:
    """Run the job with the variables of all its processes."""
    workers, log_dir = options.worker_num or 1, Path(options.log_dir or ".")
    _own_log(log_dir).unlink(missing_ok=True)  # what an earlier job has left
    share = _share(options)
    link: LauncherLink | None = None
    # In the launcher, so that ranks still find each other after the scheduler was started again.
    if share.num_nodes == 1:
        serve_ranks(variables)
    elif share.node_rank == 0:
        link = FirstLauncher(variables, share.num_nodes - 1, options.cluster_time_out)
    else:
        link = OtherLauncher(variables, options.cluster_time_out)
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
    return _watch(cluster, log_dir, link)


def _watch(cluster: LocalCluster, log_dir: Path, link: LauncherLink | None) -> int:
    """Show the workers' output until the job is over; gives the exit code."""
    tails: dict[int, LogTail] = {}
    signum = 0
    with listening_to_signals() as signals:
        try:
            running = True
            while running and not signum:
                running = cluster.step()
                if link is not None and (lost := link.failure()):
                    running = False
                    cluster.fail_elsewhere(lost, link.exit_code)
                _show(cluster, log_dir, tails)
                signum = stop_signal(signals, _PAUSE_SECONDS)
        finally:
            if cluster.failure or signum:
                reason = cluster.failure or f"got {supervision.signal_name(signum)}"
                # First: workers elsewhere hear it from the scheduler, and may end before their launcher hears it from there.
                if link is not None:
                    link.tell(f"has ended its processes: {reason}", cluster.exit_code)
                cluster.tell_others(f"the launcher on {socket.gethostname()} has ended its processes: {reason}")
            cluster.close()
            if link is not None:
                link.close()
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
