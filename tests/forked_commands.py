"""Commands and ranks of tests that start in a moment: forks of a process that has imported what they need.

Problem: half of what a small job costs are imports, and every rank imports the same. Method: a *nursery* is a process that has
imported JAX and Sporax's engine, has no thread and has started no device. It forks for every command; a launcher that is such a fork
has a nursery of its own for its ranks. The process between nursery and fork ends at once, and the requester is the next above it
that adopts orphans (`PR_SET_CHILD_SUBREAPER` of Linux): it waits for the fork, signals it and has its CPU seconds among its own, as
of any process that it starts. A fork has its own environment, folder, files, signals, command line and random numbers.

`ForkedCommand` forks for `python -m MODULE …` of this interpreter. Whatever else it starts, starts as always. As a program this
file is a nursery.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import functools
import gc
import importlib
import json
import os
import random
import runpy
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, NoReturn

from compiled_files import store_programs_of_all_ranks
from lowering_context import share_contexts

PRELOADED = """jax.numpy jax.experimental.multihost_utils scipy.optimize opt_einsum sporax.launch.commands.run
    sporax.launch.commands.plan_command sporax.report.questions sporax.runtime.pipeline.pipelined_step""".split()
"""What most commands import, without the facade, whose import changes settings of JAX."""

_READ_BY_IMPORTS = ("PYTHON", "JAX_", "LD_", "TF_")
"""How variables begin that are read by what is imported: nurseries have those of their forks."""
_STARTS_RANKS = frozenset({"msrun", "--worker_num", "--server_num"})
_MOST_BYTES, _MOST_FILES = 1 << 18, 64
_ADOPTS = 36  # PR_SET_CHILD_SUBREAPER
_HIGH = 1000


class Nursery(NamedTuple):
    """A process that forks for this one.

    Attributes:
        connection: where requests come in.
        owner: the process that adopts its forks.
        process: the nursery, where it was started and not forked.
    """

    connection: socket.socket
    owner: int
    process: subprocess.Popen[bytes] | None = None

    def fork(self, request: Mapping[str, Any], files: Sequence[int]) -> int:
        """Fork a command, with these descriptors; returns the number of its process, a child of this one."""
        adopt = functools.partial(ctypes.CDLL(None).prctl, _ADOPTS)
        adopt(1, 0, 0, 0)
        try:
            socket.send_fds(self.connection, [json.dumps(request).encode()], files)
            return int(self.connection.recv(64))
        finally:
            adopt(0, 0, 0, 0)


class ForkedCommand(subprocess.Popen):
    """A `subprocess.Popen` whose process is a nursery's fork where it can be."""

    def _execute_child(self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *rest):
        environ = dict(os.environ if env is None else env)
        words = [] if isinstance(args, str) else [os.fspath(word) for word in args]
        nursery = (
            _nursery(environ) if words[:2] == [sys.executable, "-m"] and preexec_fn is executable is None else None
        )
        if nursery is None or nursery.owner != os.getpid():
            subprocess.Popen._execute_child(self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *rest)
            return
        pipes, leads_session = rest[3:9], rest[-2]
        standard = [
            own if piped == -1 else piped for piped, own in zip((pipes[0], pipes[3], pipes[5]), range(3), strict=True)
        ]
        request = {
            "words": words[2:],
            "folder": os.fspath(cwd or os.getcwd()),
            "environ": environ,
            "leads_session": bool(leads_session),
            "files": [0, 1, 2, *pass_fds],
        }
        self.pid = nursery.fork(request, [*standard, *pass_fds])
        self._child_created = True
        self._close_pipe_fds(*pipes)


def run_forked(
    command: Sequence[str | os.PathLike[str]], *, timeout: float, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end as `subprocess.run` does, and return what it wrote as text; killed after `timeout` seconds."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
    with ForkedCommand(command, **options) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def _nursery(environ: Mapping[str, str]) -> Nursery | None:
    """The nursery of this process for commands with these variables; a launcher that is a fork has one, of its own variables."""
    variables = frozenset((name, value) for name, value in environ.items() if name.startswith(_READ_BY_IMPORTS))
    if _LAUNCHERS:
        nursery, its_variables = _LAUNCHERS
        return nursery if variables == its_variables else None
    return _started(variables) if sys.platform == "linux" else None


_LAUNCHERS: list[Any] = []
"""Of a launcher that is a fork, its nursery and the variables that were read by imports."""


@functools.cache
def _started(variables: frozenset[tuple[str, str]]) -> Nursery:
    """A new nursery."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environ = {name: value for name, value in os.environ.items() if not name.startswith(_READ_BY_IMPORTS)}
    process = subprocess.Popen(
        [sys.executable, __file__, str(theirs.fileno())],
        env=environ | dict(variables),
        stdin=subprocess.DEVNULL,
        pass_fds=[theirs.fileno()],
        start_new_session=True,
    )
    theirs.close()
    return Nursery(ours, os.getpid(), process)


# ------------------------------------------------------------------------------------------------------------- in a nursery


def _fork() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX warns of forks, as its threads are lost: none has started yet
        return os.fork()


def _awaited(connection: socket.socket) -> dict[str, Any] | None:
    """Fork for every request. Returns the request in the fork, and None where no request can come any more."""
    while True:
        message, files, _, _ = socket.recv_fds(connection, _MOST_BYTES, _MOST_FILES)
        if not message:
            return None
        reader, writer = os.pipe()
        if (between := _fork()) == 0:
            if child := _fork():
                os.write(writer, str(child).encode())
                os._exit(0)
            request = json.loads(message)
            _become(request, files)
            return request
        os.waitpid(between, 0)
        for file in (*files, writer):
            os.close(file)
        connection.send(os.read(reader, 64))
        os.close(reader)


def _become(request: Mapping[str, Any], files: Sequence[int]) -> None:
    """Give this process the files, the session, the signals and the variables of a new one."""
    if request["leads_session"]:
        os.setsid()
    high = [fcntl.fcntl(file, fcntl.F_DUPFD, _HIGH) for file in files]
    os.closerange(3, _HIGH)
    for file, number in zip(high, request["files"], strict=True):
        os.dup2(file, number)
    os.closerange(_HIGH, _HIGH + 2 * _MOST_FILES)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)  # as Python does when it starts
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environ"])
    sys.argv[1:] = request["words"][1:]
    sys.orig_argv[:] = [sys.executable, "-m", *request["words"]]
    sys.path[0] = os.getcwd()
    random.seed()
    sys.modules["numpy"].random.seed()


def _divide(environ: Mapping[str, str]) -> socket.socket | None:
    """Become a launcher and its nursery: returns where requests come in in the nursery, and None in the launcher."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    launcher = os.getpid()
    if _fork() == 0:
        ours.close()
        null = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(null, number)
        return theirs
    theirs.close()
    variables = frozenset((name, value) for name, value in environ.items() if name.startswith(_READ_BY_IMPORTS))
    _LAUNCHERS[:] = Nursery(ours, launcher), variables
    bound = importlib.import_module("sporax.launch.jobs.rank")
    bound.BoundProcess._execute_child = ForkedCommand._execute_child
    return None


def main(connection: socket.socket | None) -> str | None:
    """Fork for requests; returns in forks the module that they are to run."""
    for name in PRELOADED:
        importlib.import_module(name)
    share_contexts()
    store_programs_of_all_ranks()
    gc.freeze()  # a command that ends would look at all that was imported, page after page that it shares with this process
    while connection and (request := _awaited(connection)):
        connection = None
        if _STARTS_RANKS.intersection(request["words"]):
            connection = _divide(request["environ"])
        if connection is None:
            return request["words"][0]
    return None


def _run(module: str) -> NoReturn:
    """Run a module as `python -m` does, and end this process without taking all apart that was imported."""
    sys.modules.pop(module, None)  # it may have been imported as what it is, and is imported as `__main__` now
    code: object = 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1
    if not isinstance(code, int | None):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit((code or 0) & 0xFF)


if __name__ == "__main__" and (module := main(socket.socket(fileno=int(sys.argv[1])))):
    _run(module)
