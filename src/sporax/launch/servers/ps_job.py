"""`sporax run --server_num=S --worker_num=W script.py`: scheduler, servers and workers of one machine under one launcher.

A server, the scheduler or a worker that is killed is started again alone by the launcher of its machine, so its loss is no
failure; a worker's own error ends the job with its last lines. The ranks' rendezvous for collectives between workers lives in the
launcher, so it survives the scheduler.

A machine that is lost takes its launcher along, and no one would start anything there again. Launchers of several machines
therefore keep a connection to the first one, which breaks after `ports.UNANSWERED_SECONDS` without an answer. Ranks that exchange
data with each other meet at the same port.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from sporax.base.errors import SporaxValueError
from sporax.cluster import messages, ports, private, token
from sporax.cluster.environment import RankEnvironment, is_verbose, join_address
from sporax.launch.jobs import supervision
from sporax.launch.jobs.cluster_links import ClusterLink, SchedulerElsewhere, SchedulerHere
from sporax.launch.jobs.logs import QUOTED_LINES, LogTail, last_lines
from sporax.launch.jobs.secrets import make_secrets, note_scheduler
from sporax.launch.jobs.supervision import ClusterEnded
from sporax.launch.jobs.supervisor import listening_to_signals
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

    def report(self, reason: str, exit_code: int) -> None:
        """Let the others know that this launcher ends its processes. `reason` continues "the launcher on HOST …"."""
        # A scheduler elsewhere that was never reached notifies no one.
        if self.link.watched() is not None:
            self.link.report_failure(messages.Leave(reason, exit_code=exit_code))

    def events(self) -> Iterator[ClusterEnded]:
        """What has happened to one of the others since the last call."""
        for event in self.link.events(is_expected=False):
            # What is said of ranks is no matter of launchers.
            if isinstance(event, ClusterEnded) and (event.failure or "").startswith(_OF_LAUNCHERS):
                yield event
        if self.link.num_others >= self._num_expected:
            self._deadline = None
        if self._deadline is not None and time.monotonic() >= self._deadline:
            yield ClusterEnded(self._missing.format(num_here=self.link.num_others))


class LaunchedCluster(LocalCluster):
    """This machine's processes of a job: shows what workers write, and ends together with launchers of other machines.

    Args:
        options: the checked command line.
        variables: of all processes.
        directory: journal and logs of servers.
    """

    def __init__(self, options: LaunchOptions, variables: Mapping[str, str], directory: Path) -> None:
        workers, log_dir = options.worker_num or 1, Path(options.log_dir or ".")
        self._own_log = log_dir / f"launcher_{socket.gethostname()}.log"
        """Takes why the job has failed, as this launcher says; `sporax logs` reads it."""
        self._own_log.unlink(missing_ok=True)  # what an earlier job has left
        place = (0, 1) if options.is_one_node else (options.node_rank, -(-workers // options.local_worker_num))
        share = NodeShare(*place, options.local_worker_num)
        self._others: OtherLaunchers | None = None
        # In the launcher, so that ranks still find each other after the scheduler was started again.
        if share.num_nodes == 1:
            serve_ranks(variables)
        else:
            self._others = OtherLaunchers(share, variables, options.cluster_time_out)
        super().__init__(
            variables,
            directory,
            servers=options.server_num,
            workers=workers,
            worker=options.target,
            log_dir=log_dir,
            max_restarts=options.max_restarts,
            keys=keys_for(variables["MS_SCHED_HOST"], variables),
            share=share,
        )
        here = {role: sum(child.role == role for child in self.children.values()) for role in ("server", "worker")}
        of = (f" of {options.server_num}", f" of {workers}") if share.num_nodes > 1 else ("", "")
        self.summary = (
            f"{here['server']}{of[0]} servers and {here['worker']}{of[1]} workers of `{options.target}`, scheduler at "
            f"{self.address}, logs in {log_dir}"
        )
        """One line on what is started."""

    def close(self) -> None:
        """End everything that still runs, leave the other launchers, and say why the job has failed."""
        super().close()
        if self._others is not None:
            self._others.link.close()
        # Whoever has sent a signal knows.
        if not self.failure or self._state.is_stopped_by_signal:
            return
        print(f"sporax run: {self.failure}", file=sys.stderr)
        with suppress(OSError):  # the terminal has it, too
            self._own_log.write_text(f"{time.strftime('%H:%M:%S')} sporax run: {self.failure}\n", encoding="utf-8")
        for child in self.children.values():
            # The message names the process, and its log says why it failed.
            if child.log is not None and f"{child.role} {child.index} " in self.failure:
                print(f"last lines of {child.log}:", file=sys.stderr)
                for line in last_lines(str(child.log), QUOTED_LINES):
                    print(f"  | {line}", file=sys.stderr)

    def _launcher_events(self) -> Iterator[supervision.Event]:
        return iter(()) if self._others is None else self._others.events()

    def _notify_others(self) -> None:
        # At once: workers elsewhere would fail without the servers of this machine.
        if self._others is not None:
            exit_code = 0 if self._state.is_stopped_by_signal else self._state.exit_code
            self._others.report(f"has ended its processes: {self.failure}", exit_code)

    def _show_tails(self) -> None:
        workers = [child for child in self.children.values() if child.role == "worker"]
        for child in workers:
            if child.log is not None and child.number not in self._tails and child.log.exists():
                label = f"[{child.index}] " if len(workers) > 1 else ""
                self._tails[child.number] = LogTail(str(child.log), label, is_verbose=is_verbose(os.environ))
        super()._show_tails()


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
        cluster = LaunchedCluster(options, variables, Path(variables.get("MS_RECOVERY_PATH", "") or secrets.directory))
        note_scheduler(secrets, cluster.address)
        print(f"sporax run: {cluster.summary}", file=sys.stderr, flush=True)
        with listening_to_signals() as signals, cluster:
            return cluster.run(signals)
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
