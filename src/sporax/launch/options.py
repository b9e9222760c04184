"""The flags of `sporax run` and `sporax msrun`: msrun's, with the same names and meanings, and what they may hold.

The two commands differ in two defaults only (`Defaults`): `run` without `--worker_num` is one process, and it waits
for the job; `msrun` starts eight workers and returns at once, as the original does.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping

from msgspec import Struct

from sporax.base.errors import SporaxValueError
from sporax.cluster.environment import PROFILE_STEPS, RECOVERY_VARIABLE, SIMULATION_LEVELS, simulation_level
from sporax.ir.config.placement_config import DURABILITIES
from sporax.ir.variables import VARIABLES, check, read, without_effect
from sporax.launch.job_file import complete
from sporax.launch.target import Target, TargetKind, resolve

DEFAULT_PORT = 8118
DEFAULT_ADDRESS = "127.0.0.1"
SCHEDULER = -1
_MIN_PORT, _MAX_PORT = 1024, 65535
# msrun's limit for processes of a dry run.
_MOST_SIMULATED = 128
# A server that is killed is started alone, which disturbs no worker, so the limit is generous.
_RESTARTS_OF_A_PROCESS = 100
# A whole job that fails three times will most likely fail again.
_RESTARTS_IN_RECOVERY = 3
_BINDING_KEY = re.compile(r"device(\d+)|scheduler")
_ID_RANGE = re.compile(r"(\d+)(?:-(\d+))?")

_OF_ONE_PROCESS = frozenset(
    "module config job_file local_devices resume no_cache verbose verify_plan verify_steps profile profile_steps".split()
    + ["target", "target_arguments"]
)
"""Attributes of a command line that have a meaning without a launcher."""

Binding = Mapping[int, tuple[int, ...]]
"""Ids of CPU cores or NUMA nodes, by local rank; the scheduler's under `SCHEDULER`."""


class Defaults(Struct, frozen=True):
    """Where the two commands differ when a flag is not given; `worker_num` also bounds ``--local_worker_num``."""

    worker_num: int | None
    join: bool


RUN_DEFAULTS = Defaults(worker_num=None, join=True)
MSRUN_DEFAULTS = Defaults(worker_num=8, join=False)


class DryRunOptions(Struct, frozen=True):
    """What is simulated in a dry run, in which ranks neither meet nor compute on devices.

    Attributes:
        level: what is done, see `sporax.runtime.process.dry_run`.
        ranks: the ranks that are simulated, each by a process of its own.
        local_size: how many ranks a node of the simulated job has.
    """

    level: int
    ranks: tuple[int, ...]
    local_size: int


class LaunchOptions(Struct, frozen=True):
    """A checked command line: the flags of these names, whose help says what they mean.

    Attributes:
        worker_num: None runs the target in this process.
        master_port: None takes a free one (one node only).
        bind_core: None shares cores out where ranks compute on the CPU.
        tail_worker_log: None shows all.
        token_file: None: the launcher draws a token on one node.
        dry_run: what is simulated; None in a real job.
        staleness, durability: None and "" for the environment's.
        profile, profile_steps: "" for no recording, and for the default.
    """

    target: Target
    worker_num: int | None
    local_worker_num: int
    master_addr: str
    master_port: int | None
    node_rank: int
    local_devices: int | None
    log_dir: str
    join: bool
    cluster_time_out: int
    bind_core: bool | Binding | None
    bind_numa: bool | Binding
    rank_table_file: str
    worker_log_name: str
    tail_worker_log: tuple[int, ...] | None
    dry_run: DryRunOptions | None
    token_file: str | None = None
    no_cache: bool = False
    verbose: bool = False
    verify_plan: bool = False
    verify_steps: int = 0
    server_num: int = 0
    staleness: int | None = None
    durability: str = ""
    max_restarts: int = 0
    resume: bool = False
    profile: str = ""
    profile_steps: str = ""

    @property
    def is_one_node(self) -> bool:
        """Whether all ranks of the job run here."""
        return self.worker_num is None or self.local_worker_num == self.worker_num or self.dry_run is not None


def add_arguments(parser: argparse.ArgumentParser, defaults: Defaults) -> None:
    """Declare the flags, in groups by what they are about."""
    parser.add_argument("target", nargs="?", help="script (.py), command on PATH (pytest), or module after -m")
    parser.add_argument("target_arguments", nargs=argparse.REMAINDER, metavar="...", help="arguments of the target")
    _add_job(parser, defaults)
    _add_nodes(parser)
    _add_servers(parser)
    _add_logs(parser, defaults)
    _add_steps(parser)


def _add_job(parser: argparse.ArgumentParser, defaults: Defaults) -> None:
    add = parser.add_argument_group("what runs").add_argument
    one_process = " (default: one process, no launcher)" if defaults.worker_num is None else ""
    add("-m", "--module", action="store_true", help="the target is a module, as in `python -m`")
    add(
        "--config",
        metavar="FILE",
        help="flags, environment and target from a file (.toml, .json, .yaml); flags here win",
    )
    add("--worker_num", type=int, default=defaults.worker_num, help=f"ranks of the whole job{one_process}")
    add(
        "--local_devices",
        type=int,
        help="devices each process simulates on the CPU (default: the real ones); one process uses all of them in parallel modes",
    )
    add("--resume", action="store_true", help="go on from the newest complete checkpoint of the script's callbacks")
    add(
        "--max_restarts",
        type=int,
        metavar="N",
        help="how often a failed job goes on from its newest checkpoint (with servers: a process)",
    )


def _add_nodes(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("machines and cores").add_argument
    add("--local_worker_num", type=int, help="ranks on this node (default: all, for msrun at most 8)")
    add("--node_rank", type=int, default=-1, help="number of this node; -1: the scheduler numbers the ranks")
    add("--master_addr", default=DEFAULT_ADDRESS, help="address or name of the node the scheduler runs on")
    add("--master_port", type=int, help=f"the scheduler's port (default: {DEFAULT_PORT}; on one node any free port)")
    add("--token-file", metavar="FILE", help="token that the processes of a job on several nodes share (mode 600)")
    add("--cluster_time_out", type=int, default=600, metavar="SECONDS", help="how long ranks wait for each other")
    add("--rank_table_file", default="", help="exported to the ranks as RANK_TABLE_FILE")
    add("--bind_core", type=_binding, metavar="{True,False,JSON}", help='True, False or {"device0": ["0-3"], ...}')
    add("--bind_numa", type=_binding, default=False, metavar="{True,False,JSON}", help="the same for NUMA nodes")


def _add_servers(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("parameter servers").add_argument
    add("--server_num", type=int, default=0, help="number of parameter servers to start, see docs/parameter_server.md")
    add("--staleness", type=int, help="of the parameter server: 0 synchronous, k bounded, -1 unbounded (default: 0)")
    add("--durability", default="", choices=("", *DURABILITIES), help="what an acknowledged update survives")


def _add_logs(parser: argparse.ArgumentParser, defaults: Defaults) -> None:
    add = parser.add_argument_group("output").add_argument
    add("--log_dir", default="", help="where scheduler.log and worker_<rank>.log go (default: here)")
    add("--worker_log_name", default="", help="name of the workers' logs; {ip} and {hostname} are filled in")
    add("--tail_worker_log", default="-1", metavar="RANKS", help='local ranks to show, "0,3"; -1: all')
    add("--join", type=_switch, default=defaults.join, metavar="{True,False}", help="wait until the job has ended")
    add("--verbose", action="store_true", help="errors with all frames, and what JAX and gloo say")


def _add_steps(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("compiled programs").add_argument
    add("--no_cache", action="store_true", help="compile and search for plans again, and store nothing for later runs")
    add("--verify-plan", action="store_true", help="compare the first step of every plan with one device")
    add(
        "--verify-steps",
        type=int,
        default=0,
        metavar="N",
        help="run every N-th step's programs twice and compare, bit by bit",
    )
    add = parser.add_argument_group("where time goes").add_argument
    add("--profile", default="", metavar="DIR", help="record some steps, with Cell paths; print where their time went")
    add("--profile_steps", default="", metavar="FIRST:LAST", help="which steps, counted from 0 (default: 5:8)")
    add = parser.add_argument_group("dry runs").add_argument
    add("--sim_level", type=int, choices=(-1, *SIMULATION_LEVELS), default=-1, help="dry run: simulate ranks, see docs")
    add("--sim_rank_id", type=int, default=-1, help="the one rank to simulate in a dry run (default: all of this node)")


def checked(
    arguments: argparse.Namespace, defaults: Defaults, environ: Mapping[str, str] = os.environ
) -> LaunchOptions:
    """Turn a parsed command line into options whose values agree with each other.

    Args:
        arguments: the parsed command line.
        defaults: of the command.
        environ: where MS_SIMULATION_LEVEL and RANK_ID may request a dry run, as flags do.

    Raises:
        SporaxValueError: a number outside its range, a flag without the one it belongs to, or a target or file that
            does not exist.
    """
    complete(arguments)
    # Of the job's processes as well, which inherit them.
    _check_variables(arguments, environ)
    # Without launched ranks most flags would be ignored without notice.
    if arguments.worker_num is None:
        _check_one_process(arguments, defaults)
    local_worker_num = _local_worker_num(arguments, defaults)
    _check_numbers(arguments, local_worker_num)
    dry_run = _dry_run(arguments, local_worker_num, environ)
    local_worker_num = local_worker_num if dry_run is None else len(dry_run.ranks)
    if arguments.rank_table_file and not os.path.isfile(arguments.rank_table_file):
        # A rank table is read by every rank, so a wrong path is an error before they start.
        raise _wrong("rank_table_file", "a file that exists", arguments.rank_table_file)
    target = resolve(arguments.target, arguments.target_arguments, as_module=arguments.module)
    _check_profile(arguments, target, dry_run)
    # Most options are flags of the same name.
    flags = {name: value for name, value in vars(arguments).items() if name in LaunchOptions.__struct_fields__}
    found = {
        "target": target,
        "local_worker_num": local_worker_num,
        "tail_worker_log": _printed_ranks(arguments.tail_worker_log, local_worker_num),
        "dry_run": dry_run,
        "max_restarts": _max_restarts(arguments, environ),
    }
    return LaunchOptions(**{**flags, **found})


def _check_profile(arguments: argparse.Namespace, target: Target, dry_run: DryRunOptions | None) -> None:
    """Check what is to be recorded, and that it can be."""
    steps = VARIABLES[PROFILE_STEPS].kind
    if arguments.profile_steps:
        try:
            steps.parse(arguments.profile_steps)
        except ValueError:
            raise _wrong("profile_steps", steps.allowed, arguments.profile_steps) from None
        if not arguments.profile:
            raise _wrong("profile_steps", "used together with --profile", arguments.profile_steps)
    if not arguments.profile:
        return
    if os.path.exists(arguments.profile) and not os.path.isdir(arguments.profile):
        raise _wrong("profile", "a folder, or the name of a new one", arguments.profile)
    if target.kind is TargetKind.EXECUTABLE:
        raise _wrong("profile", "used with a Python script or module, whose steps can be counted", target)
    if dry_run is not None:
        raise _wrong("profile", "left out in a dry run, which runs no steps", arguments.profile)


def _check_variables(arguments: argparse.Namespace, environ: Mapping[str, str]) -> None:
    """Check all environment variables; those that nothing reads in this job are named on the error output."""
    servers = {"MS_SERVER_NUM": str(arguments.server_num)} if arguments.server_num > 0 else {}
    check({**environ, **servers})
    # A process of a job that was started by hand may be one with servers.
    with_servers = arguments.server_num > 0 or bool(environ.get("MS_ROLE"))
    for name in without_effect(environ, with_servers=with_servers):
        print(
            f"sporax run: the environment variable {name} has no effect here: "
            + ("the job has no parameter servers" if name in VARIABLES else "Sporax knows no variable of this name"),
            file=sys.stderr,
        )


def _max_restarts(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """What was given, else a number that suits the kind of job."""
    requested = arguments.max_restarts
    if arguments.server_num:
        return _RESTARTS_OF_A_PROCESS if requested is None else int(requested)
    if requested is None:
        return _RESTARTS_IN_RECOVERY if read(environ, RECOVERY_VARIABLE) == "1" else 0
    return int(requested)


def _dry_run(arguments: argparse.Namespace, local_worker_num: int, environ: Mapping[str, str]) -> DryRunOptions | None:
    """What is to be simulated, by the flags or else by the environment."""
    # A flag wins over the environment.
    level = arguments.sim_level if arguments.sim_level != -1 else simulation_level(environ)
    rank, total = arguments.sim_rank_id, arguments.worker_num
    if level is None or total is None:
        if rank != -1:
            raise _wrong("sim_rank_id", "used together with --sim_level", rank)
        return None
    if arguments.local_devices is not None:
        raise _wrong(
            "local_devices", "left out in a dry run, which simulates ranks of one device", arguments.local_devices
        )
    if rank == -1 and environ.get("RANK_ID", "").isdecimal():
        rank = int(environ["RANK_ID"])
    # Without a rank all of this node's are simulated.
    first = max(arguments.node_rank, 0) * local_worker_num
    ranks = tuple(range(first, first + local_worker_num)) if rank == -1 else (rank,)
    if not 0 <= min(ranks) <= max(ranks) < total:
        raise _wrong("sim_rank_id", f"-1 or in [0, {total}), the ranks of the job", max(ranks))
    if len(ranks) > _MOST_SIMULATED:  # msrun's limit
        print(
            f"sporax run: {len(ranks)} processes are too many for a dry run; only rank {first} is simulated",
            file=sys.stderr,
        )
        ranks = ranks[:1]
    return DryRunOptions(level, ranks, local_worker_num)


def _check_one_process(arguments: argparse.Namespace, defaults: Defaults) -> None:
    """Refuse flags of the launcher where nothing is launched."""
    parser = argparse.ArgumentParser()
    # A fresh parser knows the defaults, so what differs was given.
    add_arguments(parser, defaults)
    for flag, value in vars(arguments).items():
        if flag not in _OF_ONE_PROCESS and value != parser.get_default(flag):
            raise SporaxValueError(
                f"For 'sporax run', --{flag} must be used together with --worker_num, but got '{value}' and no "
                "--worker_num. Without it the target runs in one process and nothing is launched."
            )


def _local_worker_num(arguments: argparse.Namespace, defaults: Defaults) -> int:
    """Ranks of this node: what was given, else all of the job up to the command's default."""
    total = 1 if arguments.worker_num is None else arguments.worker_num
    if arguments.local_worker_num is not None:
        return int(arguments.local_worker_num)
    # msrun starts at most eight ranks per node unless it is set otherwise.
    return int(min(total, defaults.worker_num or total))


def _check_numbers(arguments: argparse.Namespace, local_worker_num: int) -> None:
    """Check the range of every number."""
    number, port = arguments.worker_num, arguments.master_port
    for name, wanted, value, least in (
        ("worker_num", "greater than 0", number, 1),
        ("server_num", "0 or more", arguments.server_num, 0),
        ("staleness", "-1 (unbounded), 0 or positive", arguments.staleness, -1),
        ("max_restarts", "0 or more", arguments.max_restarts, 0),
        ("local_worker_num", "greater than 0", local_worker_num, 1),
        ("verify-steps", "0 (never) or more", arguments.verify_steps, 0),
        ("node_rank", "-1 or the number of this node", arguments.node_rank, -1),
        ("local_devices", "greater than 0", arguments.local_devices, 1),
    ):
        if value is not None and value < least:
            raise _wrong(name, wanted, value)
    if arguments.server_num == 0 and (arguments.staleness is not None or arguments.durability):
        raise _wrong("server_num", "greater than 0 where --staleness or --durability is given", 0)
    if number is not None and local_worker_num > number:
        raise _wrong("local_worker_num", f"at most worker_num, which is {number}", local_worker_num)
    if port is not None and not _MIN_PORT <= port <= _MAX_PORT:
        raise _wrong("master_port", f"between {_MIN_PORT} and {_MAX_PORT}", port)
    if arguments.cluster_time_out <= 0:
        raise _wrong("cluster_time_out", "greater than 0 seconds", arguments.cluster_time_out)


def _printed_ranks(text: str, local_worker_num: int) -> tuple[int, ...] | None:
    """Parse `--tail_worker_log`: "-1" is all, which is None; else local ranks between commas."""
    if text.strip() == "-1":
        return None
    # A word that is no number becomes -1, which the next check refuses.
    ranks = tuple(int(word) if word.strip().isdecimal() else -1 for word in text.split(","))
    if any(not 0 <= rank < local_worker_num for rank in ranks):
        raise _wrong("tail_worker_log", f"-1 or numbers in [0, {local_worker_num}) between commas", text)
    return ranks


def _switch(text: str) -> bool:
    """Parse True or False."""
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"must be True or False, but got '{text}'")
    return text.lower() == "true"


def _binding(text: str) -> bool | Binding:
    """Parse True, False or a JSON table such as {"device0": ["0-3", "8"], "scheduler": ["9"]}."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        table = json.loads(text)
        return {_bound_rank(key): tuple(_ids(entries)) for key, entries in table.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise argparse.ArgumentTypeError(
            f'must be True, False or JSON like {{"device0": ["0-3", "8"]}}, but got \'{text}\' ({error})'
        ) from error


def _bound_rank(key: str) -> int:
    """`device3` -> 3, `scheduler` -> SCHEDULER."""
    match = _BINDING_KEY.fullmatch(key)
    if match is None:
        raise ValueError(f"key '{key}' is neither 'scheduler' nor 'device<local rank>'")
    return SCHEDULER if match.group(1) is None else int(match.group(1))


def _ids(entries: list[str]) -> Iterator[int]:
    """`["0-3", "8,9"]` -> 0, 1, 2, 3, 8, 9."""
    for word in ",".join(entries).replace(" ", "").split(","):
        match = _ID_RANGE.fullmatch(word)
        if match is None:
            raise ValueError(f"'{word}' is neither a number nor a range")
        first = int(match.group(1))
        yield from range(first, int(match.group(2) or first) + 1)


def _wrong(flag: str, allowed: str, value: object) -> SporaxValueError:
    """The error for a flag's value."""
    return SporaxValueError(f"For 'sporax run', {flag} must be {allowed}, but got {value}.")
