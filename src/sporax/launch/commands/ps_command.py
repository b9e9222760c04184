"""`sporax ps status | scale | checkpoint | keys`: look at a running job, change its size, save it, make its keys."""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

from sporax.base.errors import For, SporaxRuntimeError, SporaxValueError
from sporax.cluster.environment import join_address
from sporax.cluster.token import TOKEN_FILE_VARIABLE
from sporax.ir.variables import read
from sporax.launch.jobs.secrets import token_file_of
from sporax.ps.client.scheduler_link import Requester
from sporax.ps.metrics import expositions
from sporax.ps.protocol.messages import Checkpoint, CheckpointReply, GetStatus, Scale, StatusReply, Wanted
from sporax.ps.sockets.security import keys_for, write_keys

_ANSWER_SECONDS = 5.0
_LAST_PORT = 65535
_AS_NOW = -1
"""In `Scale`: as many as there are."""
_SERVER_COLUMNS = ("index", "live", "primary", "backup", "synced", "clock", "lag", "records", "bytes", "log_bytes")
_WORKER_COLUMNS = ("rank", "live", "ended", "incarnation", "clock")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the sub-commands and their flags."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="{status,scale,checkpoint,keys}")
    status = actions.add_parser("status", help="show servers, workers, slots, clocks, bytes and logs of a job")
    status.add_argument("--live", action="store_true", help="show it again every second until Ctrl-C")
    form = status.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="as JSON")
    form.add_argument("--prometheus", action="store_true", help="as Prometheus metrics")
    scale = actions.add_parser("scale", help="change the number of workers or servers of a running job")
    scale.add_argument("--workers", type=int, help="number of workers (default: as many as now)")
    scale.add_argument("--servers", type=int, help="number of servers (default: as many as now)")
    checkpoint = actions.add_parser(
        "checkpoint", help="write all servers' slots to MS_PS_CHECKPOINT_PATH of the job, now"
    )
    keys = actions.add_parser("keys", help="make the keys of a job, for connections between machines")
    keys.add_argument("directory", help="where to write them; copy it to every machine, name it in MS_PS_KEYS")
    for action in (status, scale, checkpoint):
        action.add_argument("--scheduler", default="", help="HOST:PORT of the scheduler (default: from MS_SCHED_*)")


def run(arguments: argparse.Namespace) -> int:
    """Carry out a sub-command; gives the exit code.

    Raises:
        SporaxError: a wrong argument, or no scheduler answers.
    """
    if arguments.action == "keys":
        try:
            write_keys(Path(arguments.directory))
        except OSError as error:
            raise SporaxValueError(
                f"For 'sporax ps keys', the directory must be one that can be written, but got '{arguments.directory}': "
                f"{error.strerror}."
            ) from None
        print(f"wrote {arguments.directory}/keys.json; set MS_PS_KEYS={arguments.directory} on every machine")
        return 0
    address = _checked_address(arguments.scheduler) if arguments.scheduler else _address_in_environment()
    # The keys of a job: those the environment names, else those of this user's job at that address on this machine.
    token_file = token_file_of(address)
    environ = {TOKEN_FILE_VARIABLE: token_file, **os.environ} if token_file else os.environ
    requester = Requester(address, keys_for(address.rpartition(":")[0], environ))
    try:
        action = {"scale": _scale, "status": _status, "checkpoint": _checkpoint}[arguments.action]
        return action(requester, arguments, address)
    finally:
        requester.close()


def _checked_address(address: str) -> str:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 1 <= int(port) <= _LAST_PORT:
        raise SporaxValueError(
            f"For 'sporax ps', --scheduler must be HOST:PORT with a port from 1 to {_LAST_PORT}, but got '{address}'."
        )
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise SporaxValueError(
            f"For 'sporax ps', an IPv6 address in --scheduler must be in brackets, [HOST]:PORT, but got '{address}'."
        )
    return address


def _address_in_environment() -> str:
    if not os.environ.get("MS_SCHED_PORT"):
        raise SporaxValueError(
            "For 'sporax ps', --scheduler must be given, HOST:PORT as `sporax run` prints it, where MS_SCHED_PORT is not set."
        )
    # The store listens one port above the scheduler of ranks.
    host = (os.environ.get("MS_SCHED_HOST") or "127.0.0.1").strip("[]")
    port = read(os.environ, "MS_SCHED_PORT") + 1
    if port > _LAST_PORT:
        raise SporaxValueError(
            f"For 'sporax ps', MS_SCHED_PORT must be less than {_LAST_PORT}, since the servers' scheduler takes the next port, "
            f"but got {_LAST_PORT}."
        )
    return join_address(host, port)


def _scale(requester: Requester, arguments: argparse.Namespace, address: str) -> int:
    wanted = {"workers": arguments.workers, "servers": arguments.servers}
    if wanted == {"workers": None, "servers": None}:
        raise SporaxValueError("For 'sporax ps scale', --workers or --servers must be given, but neither was.")
    for name, number in wanted.items():
        For("sporax ps scale").refuse(number is not None and number < 1, f"--{name} must be at least 1", number)
    numbers = [_AS_NOW if number is None else number for number in wanted.values()]
    target = requester.request(Scale(*numbers), Wanted, _ANSWER_SECONDS)
    if target is None:
        raise _silent(address)
    if target.finished or target.error:
        raise For("sporax ps scale").state_error(
            f"the job must be running, but it has ended: {target.error or 'all its workers have finished'}"
        )
    print(f"the job will have {target.workers} workers and {target.servers} servers")
    return 0


def _checkpoint(requester: Requester, arguments: argparse.Namespace, address: str) -> int:
    answer = requester.request(Checkpoint(True), CheckpointReply, _ANSWER_SECONDS)
    # Writing goes on in the servers; a further request shows when it is done.
    while answer is not None and answer.running:
        time.sleep(0.1)
        answer = requester.request(Checkpoint(False), CheckpointReply, _ANSWER_SECONDS)
    if answer is None:
        raise _silent(address)
    For("sporax ps checkpoint").refuse_state(answer.error, f"all slots must be written, but {answer.error}")
    print(f"wrote {answer.folder}; set MS_PS_RESTORE={answer.folder} to continue from it")
    return 0


def _status(requester: Requester, arguments: argparse.Namespace, address: str) -> int:
    while True:
        answer = requester.request(GetStatus(), StatusReply, _ANSWER_SECONDS)
        if answer is None:
            raise _silent(address)
        if arguments.json:
            print(answer.text)
        elif arguments.prometheus:
            print(_metrics(json.loads(answer.text)), end="")
        else:
            # Clears the screen, so that the table stays in place.
            print(("\x1b[2J\x1b[H" if arguments.live else "") + table(json.loads(answer.text)), flush=True)
        if not arguments.live:
            return 0
        time.sleep(1.0)


def table(status: dict[str, Any]) -> str:
    """The state of a job as text."""
    staleness = {0: "synchronous", -1: "asynchronous"}.get(
        status["staleness"], f"at most {status['staleness']} steps apart"
    )
    lines = [f"job {status['job']}  epoch {status['epoch']}  {staleness}  durability {status['durability']}"]
    if status["note"]:
        lines.append(status["note"])
    lines += ["", *_rows(_SERVER_COLUMNS, status["servers"]), "", *_rows(_WORKER_COLUMNS, status["workers"])]
    return "\n".join(lines)


def _rows(columns: tuple[str, ...], entries: list[dict[str, Any]]) -> list[str]:
    """A table with a line per entry."""
    cells = [list(columns), *([_cell(entry.get(name, "-")) for name in columns] for entry in entries)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(columns))]
    return ["  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)) for row in cells]


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(int(value)) if isinstance(value, float) else str(value)


def _metrics(status: dict[str, Any]) -> str:
    """The numbers of all servers and workers in Prometheus' format."""
    entries = [
        ({kind: str(entry[number])}, {name: float(value) for name, value in entry.items() if name != number})
        for kind, number in (("server", "index"), ("worker", "rank"))
        for entry in status[f"{kind}s"]
    ]
    return expositions(entries)


def _silent(address: str) -> SporaxRuntimeError:
    return SporaxRuntimeError(
        f"For 'sporax ps', the scheduler at {address} must answer, but did not in {_ANSWER_SECONDS:.0f} s: the job has ended, "
        "or its scheduler is elsewhere (`sporax run` prints where)."
    )
