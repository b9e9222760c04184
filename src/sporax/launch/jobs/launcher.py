"""Starting a job from a command line: in the foreground, or in the background under a process of its own."""

from __future__ import annotations

import os
import socket
import sys
import time
import traceback
from collections.abc import Callable
from typing import NoReturn, TextIO

from msgspec.structs import replace

from sporax.base.errors import SporaxRuntimeError, SporaxValueError
from sporax.cluster import ports, private
from sporax.cluster.environment import join_address
from sporax.cluster.scheduler import UNPROTECTED
from sporax.launch.jobs import cores, supervision
from sporax.launch.jobs.cluster_links import await_scheduler
from sporax.launch.jobs.job import NodeJob, plan_job
from sporax.launch.jobs.secrets import JobSecrets, make_secrets
from sporax.launch.jobs.supervisor import RankSupervisor, listening_to_signals, stop_signal
from sporax.launch.options import LaunchOptions


def launch(options: LaunchOptions) -> int:
    """Run a job, or start it in the background.

    Args:
        options: the checked command line, with a number of workers.

    Returns:
        The job's exit code: 0; that of the first rank that failed, 128 + N where it was killed by signal N; or
        128 + N when the launcher itself was stopped. 0 for a job that now runs in the background.

    Raises:
        SporaxError: the job cannot be started: bad address or binding, port in use, no place for logs.
    """
    job = plan_job(options, os.environ)
    for plan in job.ranks:
        cores.memory_prefix(plan.share)  # now, before anything has started
    _make_log_directory(options.log_dir)
    secrets = make_secrets(job.options.token_file, job.options.is_one_node, os.environ)
    try:
        # Opened by the launcher, so that a port in use is an error before ranks start.
        listener = ports.listen(*job.scheduler_address) if job.serves else None
    except BaseException:
        private.remove(secrets.directory)
        raise
    # Without a token every process that reaches the port could join.
    if not secrets.token and options.dry_run is None:
        print(f"sporax run: {UNPROTECTED.format(*job.scheduler_address)}", file=sys.stderr, flush=True)
    if not options.join:
        return _in_background(job, listener, secrets)
    print(f"sporax run: {_summary(job)}", file=sys.stderr, flush=True)
    with listening_to_signals() as signals:
        return _supervise(job, listener, sys.stderr, secrets, signals)


def _supervise(
    job: NodeJob,
    listener: socket.socket | None,
    console: TextIO | None,
    secrets: JobSecrets,
    signals: int,
    started: Callable[[], None] = lambda: None,
) -> int:
    """Run a job, and start it again while it fails and may be.

    A rank that is lost takes part in every later exchange of the others, so all of them start again; what they have in common is
    the newest checkpoint that all have written, from which training goes on (`Model.train`).
    """
    while True:
        # The clock distinguishes a job that fails at once from one that ran for a while.
        began = time.monotonic()
        with RankSupervisor(job, listener, console, secrets) as supervisor:
            supervisor.start()
            if not job.restart:
                started()
            exit_code = supervisor.run(signals)
        # A job that was stopped, or has used up its restarts, stays ended.
        if supervisor.pause is None or stop_signal(signals, max(0.0, supervisor.pause - (time.monotonic() - began))):
            return exit_code
        job = replace(supervisor.job, restart=(job.restart or 0) + 1)
        _report(console, f"starts all ranks again ({job.restart} of {job.options.max_restarts})")
        # The directory of the first start was removed with its supervisor.
        secrets = make_secrets(job.options.token_file, job.options.is_one_node, os.environ)
        listener = ports.listen(*job.scheduler_address) if job.serves else None
        if not job.serves and not await_scheduler(job, secrets.token):
            private.remove(secrets.directory)
            where = join_address(job.scheduler_address[0], job.scheduler_address[1] or 0)
            _report(console, f"the node of the scheduler at {where} has not started the job again")
            return exit_code


def _report(console: TextIO | None, text: str) -> None:
    """Say something to the user, where there is a terminal."""
    if console is not None:
        print(f"sporax run: {text}", file=console, flush=True)


def _in_background(job: NodeJob, listener: socket.socket | None, secrets: JobSecrets) -> int:
    """Let a process of its own, without a terminal, supervise the job; returns when all ranks have been started."""
    reader, writer = os.pipe()
    # The child has the listener and its own copies of all options.
    child = os.fork()
    if child == 0:
        os.close(reader)
        _supervise_detached(job, listener, secrets, started=writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        # Returns when the child has written, or when it has ended and closed the pipe.
        started = pipe.read()
    if not started:
        raise SporaxRuntimeError(
            f"For 'sporax run', all ranks must start, but got an error; '{job.scheduler_log}' says which."
        )
    print(f"sporax run: {_summary(job)}, in the background; `kill {child}` ends them", flush=True)
    return 0


def _supervise_detached(job: NodeJob, listener: socket.socket | None, secrets: JobSecrets, started: int) -> NoReturn:
    """The life of the background process."""
    exit_code = supervision.FAILED
    try:
        # A session of its own: closing the terminal does not end the job.
        os.setsid()
        log = os.open(job.scheduler_log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        null = os.open(os.devnull, os.O_RDONLY)
        for source, standard in ((null, 0), (log, 1), (log, 2)):
            os.dup2(source, standard)

        def report() -> None:
            os.write(started, b"ok")
            os.close(started)

        with listening_to_signals() as signals:
            exit_code = _supervise(job, listener, None, secrets, signals, report)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        # Without Python's exit handlers, which belong to the parent's state.
        os._exit(exit_code)


def _summary(job: NodeJob) -> str:
    """One line on what was started."""
    where = os.path.dirname(job.scheduler_log) or "."
    of_all = "" if job.options.is_one_node else f" of {job.options.worker_num}"
    return f"{len(job.ranks)}{of_all} ranks of `{job.options.target}`, logs in {where}"


def _make_log_directory(path: str) -> None:
    """Create the directory for logs."""
    try:
        if path:
            os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise SporaxValueError(
            f"For 'sporax run', log_dir must be a directory that can be made, but got '{path}' ({error.strerror})."
        ) from error
    if not os.access(path or ".", os.W_OK):
        raise SporaxValueError(f"For 'sporax run', log_dir must be writable, but got '{path or os.getcwd()}'.")
