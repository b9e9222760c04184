"""`sporax run --server_num=S --worker_num=W script.py`: scheduler, servers and workers of one machine under one launcher.

A server, the scheduler or a worker that is killed is started again alone; a worker's own error ends the job with its last
lines. The ranks' rendezvous for collectives between workers lives in the launcher, so it survives the scheduler.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from sporax.base.errors import SporaxValueError
from sporax.cluster import ports, private
from sporax.launch.jobs.logs import LogTail, last_lines
from sporax.launch.jobs.secrets import JobSecrets, make_secrets, note_scheduler
from sporax.launch.options import LaunchOptions
from sporax.launch.servers.ps_cluster import LocalCluster
from sporax.ps.mixed_mode import serve_ranks
from sporax.ps.sockets.security import keys_for

_PAUSE_SECONDS = 0.02
_QUOTED_LINES = 20


def run_job(options: LaunchOptions, environ: Mapping[str, str] = os.environ) -> int:
    """Run a job with parameter servers on this machine; gives its exit code.

    Raises:
        SporaxValueError: flags of the launcher that do not go together with servers.
    """
    # The launcher supervises processes of this machine only.
    if not options.is_one_node or options.dry_run is not None or not options.join:
        raise SporaxValueError(
            "For 'sporax run', --server_num starts a job on one machine and waits for it. For several machines start the "
            "processes yourself: MS_ROLE=MS_SCHED, MS_PSERVER or MS_WORKER, with MS_SCHED_HOST and MS_SCHED_PORT."
        )
    workers = options.worker_num or 1
    secrets = make_secrets(options.token_file, True, environ)
    variables = {
        **environ,
        **secrets.variables,
        "MS_SCHED_HOST": options.master_addr,
        "MS_SCHED_PORT": str(options.master_port or ports.two_free_ports()),
        "MS_WORKER_NUM": str(workers),
        "MS_SERVER_NUM": str(options.server_num),
        **({"MS_PS_STALENESS": str(options.staleness)} if options.staleness is not None else {}),
        **({"MS_PS_DURABILITY": options.durability} if options.durability else {}),
    }
    try:
        return _run(options, variables, secrets)
    finally:
        private.remove(secrets.directory)


def _run(options: LaunchOptions, variables: Mapping[str, str], secrets: JobSecrets) -> int:
    """Run the job with the variables of all its processes."""
    workers, log_dir = options.worker_num or 1, Path(options.log_dir or ".")
    # In the launcher, so that ranks still find each other after the scheduler was started again.
    serve_ranks(variables)
    cluster = LocalCluster(
        variables,
        Path(variables.get("MS_RECOVERY_PATH", "") or secrets.directory),
        servers=options.server_num,
        workers=workers,
        worker=options.target,
        log_dir=log_dir,
        max_restarts=options.max_restarts,
        keys=keys_for(options.master_addr, variables),
    )
    note_scheduler(secrets, cluster.address)
    print(
        f"sporax run: {options.server_num} servers and {workers} workers of `{options.target}`, scheduler at "
        f"{cluster.address}, logs in {log_dir}",
        file=sys.stderr,
        flush=True,
    )
    return _watch(cluster, log_dir)


def _watch(cluster: LocalCluster, log_dir: Path) -> int:
    """Show the workers' output until the job is over; gives the exit code."""
    tails: dict[int, LogTail] = {}
    signals: list[int] = []
    # A handler only notes the signal: ending processes inside of it could interrupt `step`.
    before = {number: signal.signal(number, lambda got, _: signals.append(got)) for number in _STOP_SIGNALS}
    try:
        running = True
        while running and not signals:
            running = cluster.step()
            _show(cluster, log_dir, tails)
            time.sleep(_PAUSE_SECONDS)
    finally:
        cluster.close()
        # Once more, for the last lines of processes that have just ended.
        _show(cluster, log_dir, tails)
        for number, handler in before.items():
            signal.signal(number, handler)
    if signals:
        return 128 + signals[0]
    if cluster.failure:
        print(f"sporax run: {cluster.failure}", file=sys.stderr)
        for child in cluster.children.values():
            # The message names the process, and its log says why it failed.
            if child.log is not None and f"{child.role} {child.index} " in cluster.failure:
                print(f"last lines of {child.log}:", file=sys.stderr)
                for line in last_lines(str(child.log), _QUOTED_LINES):
                    print(f"  | {line}", file=sys.stderr)
    return 1 if cluster.failure else 0


_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _show(cluster: LocalCluster, log_dir: Path, tails: dict[int, LogTail]) -> None:
    """Print what workers have written since the last call."""
    ranks = [index for role, index in cluster.children if role == "worker"]
    for rank in ranks:
        path = log_dir / f"worker_{rank}.log"
        if rank not in tails and path.exists():
            tails[rank] = LogTail(str(path), f"[{rank}] " if len(ranks) > 1 else "")
        if rank in tails:
            for line in tails[rank].new_lines():
                print(line, flush=True)
