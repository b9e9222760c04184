"""All environment variables that Sporax reads, and what each may hold: `VARIABLES`.

Problem: a variable is text, so a wrong one says nothing by itself; a process that takes it as it is waits for ever, or runs with
another number. Method: one table, by subject, with the kind of each value; whoever reads a variable reads it by this table, and
commands that start processes check all of them first. The message is one line with the variable, what it may be, and what it is.

A variable that is empty counts as not set.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sporax.base.errors import SporaxValueError
from sporax.base.lazy_members import dataclass
from sporax.base.units import parse_bytes
from sporax.ir.config.placement_config import DURABILITIES
from sporax.ir.config.search_config import SEARCH_NAMES

JOB, SERVERS, PLAN, RUNTIME, LOG = "job", "parameter servers", "plan", "runtime", "log"
"""Subjects of variables."""

MAX_PORT = 65535


@dataclass(frozen=True, slots=True)
class ValueKind:
    """What a value may be.

    Attributes:
        allowed: in words, behind "must be".
        parse: gives the value of a text; raises ValueError for any other.
        outside: texts next to what is allowed.
    """

    allowed: str
    parse: Callable[[str], Any]
    outside: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EnvironmentVariable:
    """An environment variable.

    Attributes:
        name: in the environment.
        subject: `JOB`, `SERVERS`, …
        kind: what it may hold.
        default: its value where it is not set.
        by_launcher: launchers and operators set it, so that it is there in every process of a job.
    """

    name: str
    subject: str
    kind: ValueKind
    default: Any = None
    by_launcher: bool = False

    def read(self, environ: Mapping[str, str]) -> Any:
        """The value, or the default where it is not set.

        Raises:
            SporaxValueError: anything else than it may hold.
        """
        text = environ.get(self.name, "")
        return self.parsed(text) if text else self.default

    def parsed(self, text: str) -> Any:
        """The value of a text.

        Raises:
            SporaxValueError: as `read`.
        """
        try:
            return self.kind.parse(text)
        except ValueError:
            raise self.wrong(self.kind.allowed, text) from None

    def wrong(self, allowed: str, text: object) -> SporaxValueError:
        """The error for a value."""
        return SporaxValueError(f"For '{self.name}', the value must be {allowed}, but got '{text}'.")


def integer(low: int, high: int | None = None) -> ValueKind:
    """A whole number."""
    return ValueKind(
        f"a whole number from {low} on" if high is None else f"a whole number in [{low}, {high}]",
        lambda text: _between(int(text), low, high),
        ("some", "1.5", str(low - 1), *([] if high is None else [str(high + 1)])),
    )


def seconds(low: float = 0, *, above: bool = True) -> ValueKind:
    """A number of seconds: more than `low`, or at least that."""
    allowed = "a positive number of seconds" if above else f"a number of seconds from {low:g} on"

    def parse(text: str) -> float:
        value = float(text)
        if not math.isfinite(value) or value < low or (above and value == low):
            raise ValueError
        return value

    return ValueKind(allowed, parse, ("soon", "nan", "inf", str(low if above else low - 1)))


def one_of(*names: str, any_case: bool = False) -> ValueKind:
    """One of these words; with `any_case` in letters of any case."""

    def parse(text: str) -> str:
        text = text.lower() if any_case else text
        if text not in names:
            raise ValueError
        return text

    return ValueKind(f"one of {', '.join(names)}", parse, ("another", f"{names[0]} "))


def step_range() -> ValueKind:
    """A range of steps with at least one, as a pair of whole numbers."""

    def parse(text: str) -> tuple[int, int]:
        first, _, last = text.partition(":")
        if not (first.isdecimal() and last.isdecimal()) or int(first) >= int(last):
            raise ValueError
        return int(first), int(last)

    allowed = "FIRST:LAST with FIRST < LAST, such as 5:8 for steps 5, 6 and 7"
    return ValueKind(allowed, parse, ("some", "5", "8:5", "5:5", "-1:2", "1:2:3"))


SWITCH = one_of("0", "1")
TEXT = ValueKind("a text", str, ())
"""Names, addresses and files, which whoever opens them checks."""
SIZE = ValueKind("a size such as 80GB", lambda text: parse_bytes(text, "the size"), ("much", "0GB", "-1GB"))


def _between(value: int, low: int, high: int | None) -> int:
    if value < low or (high is not None and value > high):
        raise ValueError
    return value


_TABLE = (
    EnvironmentVariable("MS_ROLE", JOB, one_of("MS_WORKER", "MS_PSERVER", "MS_SERVER", "MS_SCHED"), by_launcher=True),
    EnvironmentVariable("MS_WORKER_NUM", JOB, integer(0), 1, by_launcher=True),
    EnvironmentVariable("MS_SERVER_NUM", JOB, integer(0), 0, by_launcher=True),
    EnvironmentVariable("MS_SCHED_HOST", JOB, TEXT, "", by_launcher=True),
    EnvironmentVariable("MS_SCHED_PORT", JOB, integer(1, MAX_PORT), 8118, by_launcher=True),
    EnvironmentVariable("MS_NODE_ID", JOB, TEXT, "", by_launcher=True),
    EnvironmentVariable("MS_WORKER_IP", JOB, TEXT, "", by_launcher=True),
    EnvironmentVariable("MS_TOPO_TIMEOUT", JOB, integer(1), 1800, by_launcher=True),
    EnvironmentVariable("MS_NODE_TIMEOUT", JOB, seconds(), 600.0),
    EnvironmentVariable("MS_RECEIVE_MSG_TIMEOUT", JOB, seconds(), 600.0),
    EnvironmentVariable("MS_ENABLE_RECOVERY", JOB, SWITCH, "0", by_launcher=True),
    EnvironmentVariable("MS_RECOVERY_PATH", JOB, TEXT, "", by_launcher=True),
    EnvironmentVariable("MS_ENABLE_GRACEFUL_EXIT", JOB, SWITCH, "0"),
    EnvironmentVariable(
        "MS_SIMULATION_LEVEL",
        JOB,
        ValueKind("one of (0, 1, 2, 3)", ("0", "1", "2", "3").index, ("some", "4", "-1", "12")),
    ),
    EnvironmentVariable("RANK_ID", JOB, integer(0), by_launcher=True),
    EnvironmentVariable("RANK_SIZE", JOB, integer(1), 1, by_launcher=True),
    EnvironmentVariable("LOCAL_RANK", JOB, integer(0), 0, by_launcher=True),
    EnvironmentVariable("LOCAL_RANK_SIZE", JOB, integer(1), 1, by_launcher=True),
    EnvironmentVariable("DEVICE_ID", JOB, integer(0), by_launcher=True),
    EnvironmentVariable("DEVICE_NUM", JOB, integer(1), by_launcher=True),
    EnvironmentVariable("RANK_TABLE_FILE", JOB, TEXT, "", by_launcher=True),
    EnvironmentVariable("OMPI_COMM_WORLD_RANK", JOB, integer(0), by_launcher=True),
    EnvironmentVariable("OMPI_COMM_WORLD_SIZE", JOB, integer(1), by_launcher=True),
    EnvironmentVariable("OMPI_COMM_WORLD_LOCAL_RANK", JOB, integer(0), by_launcher=True),
    EnvironmentVariable("OMPI_COMM_WORLD_LOCAL_SIZE", JOB, integer(1), by_launcher=True),
    EnvironmentVariable("PMIX_NAMESPACE", JOB, TEXT, "", by_launcher=True),
    EnvironmentVariable("OMPI_MCA_orte_hnp_uri", JOB, TEXT, "", by_launcher=True),
    EnvironmentVariable("OMPI_MCA_ess_base_jobid", JOB, TEXT, "", by_launcher=True),
    EnvironmentVariable("SLURM_PROCID", JOB, integer(0), by_launcher=True),
    EnvironmentVariable("SLURM_STEP_NUM_TASKS", JOB, integer(1), by_launcher=True),
    EnvironmentVariable("SLURM_LOCALID", JOB, integer(0), by_launcher=True),
    EnvironmentVariable("SLURM_NODEID", JOB, integer(0), by_launcher=True),
    EnvironmentVariable("SLURM_STEP_TASKS_PER_NODE", JOB, TEXT, "", by_launcher=True),
    EnvironmentVariable("SLURM_STEP_NODELIST", JOB, TEXT, "", by_launcher=True),
    EnvironmentVariable("SLURM_JOB_ID", JOB, TEXT, "", by_launcher=True),
    EnvironmentVariable("SLURM_STEP_ID", JOB, TEXT, "", by_launcher=True),
    EnvironmentVariable("SPORAX_EXCHANGE_TIMEOUT", JOB, seconds()),
    EnvironmentVariable("SPORAX_IDLE_TIMEOUT", JOB, seconds()),
    EnvironmentVariable("SPORAX_JOB_ID", JOB, TEXT, "", by_launcher=True),
    EnvironmentVariable("SPORAX_RESUME", JOB, SWITCH, "0"),
    EnvironmentVariable("SPORAX_RESTART", JOB, integer(0), by_launcher=True),
    EnvironmentVariable("SPORAX_JOB_DIRECTORY", JOB, TEXT, "", by_launcher=True),
    EnvironmentVariable("SPORAX_TOKEN", JOB, TEXT, "", by_launcher=True),
    EnvironmentVariable("SPORAX_TOKEN_FILE", JOB, TEXT, "", by_launcher=True),
    EnvironmentVariable("SPORAX_KEPT_LOGS", JOB, TEXT, "", by_launcher=True),
    EnvironmentVariable("SPORAX_SERVING_FILE", JOB, TEXT, "", by_launcher=True),
    EnvironmentVariable("SPORAX_PROGRESS_HOST", JOB, TEXT, "127.0.0.1", by_launcher=True),
    EnvironmentVariable("SPORAX_PROGRESS_PORT", JOB, integer(0, MAX_PORT), 0, by_launcher=True),
    EnvironmentVariable("SPORAX_DRY_RUN_DIR", JOB, TEXT, ""),
    EnvironmentVariable("MS_PS_STALENESS", SERVERS, integer(-1), 0),
    EnvironmentVariable("MS_PS_DURABILITY", SERVERS, one_of(*DURABILITIES), ""),
    EnvironmentVariable("MS_PS_SLOTS", SERVERS, integer(1), 16),
    EnvironmentVariable("MS_PS_LEASE", SERVERS, seconds(), 10.0),
    EnvironmentVariable("MS_PS_WORKER_LEASE", SERVERS, seconds(), 0.0),
    EnvironmentVariable("MS_PS_SNAPSHOT_BYTES", SERVERS, integer(1), 256 << 20),
    EnvironmentVariable("MS_PS_CHECKPOINT_PATH", SERVERS, TEXT, ""),
    EnvironmentVariable("MS_PS_CHECKPOINT_SECONDS", SERVERS, seconds(above=False), 0.0),
    EnvironmentVariable("MS_PS_RESTORE", SERVERS, TEXT, ""),
    EnvironmentVariable("MS_PS_METRICS_PORT", SERVERS, integer(0, MAX_PORT), 0),
    EnvironmentVariable("MS_PS_INDEX", SERVERS, integer(-1), -1, by_launcher=True),
    EnvironmentVariable("MS_PS_KEYS", SERVERS, TEXT, "", by_launcher=True),
    EnvironmentVariable("MS_PS_INSECURE", SERVERS, SWITCH, "0", by_launcher=True),
    EnvironmentVariable("MS_PS_RECOVERY", SERVERS, SWITCH, by_launcher=True),
    EnvironmentVariable("SPORAX_HARDWARE", PLAN, TEXT, ""),
    EnvironmentVariable("GROUP_INFO_FILE", PLAN, TEXT, ""),
    EnvironmentVariable("SPORAX_PLAN_MODE", PLAN, one_of("semi_auto", *SEARCH_NAMES, any_case=True), ""),
    EnvironmentVariable("SPORAX_PLAN_MEMORY", PLAN, SIZE),
    EnvironmentVariable("SPORAX_PLAN_DEVICES", PLAN, integer(1)),
    EnvironmentVariable("SPORAX_PLAN_SCHEDULE", PLAN, TEXT, ""),
    EnvironmentVariable("SPORAX_PLAN_STAGES", PLAN, one_of("auto"), ""),
    EnvironmentVariable("SPORAX_REPEATED_BLOCKS", PLAN, SWITCH),
    # A number that is neither -1 nor positive switches reuse off with a warning, as in MindSpore.
    EnvironmentVariable(
        "MS_COMM_COMPILER_OPT", PLAN, ValueKind("-1 or a positive number of operators", int, ("many", "1.5"))
    ),
    EnvironmentVariable("MS_INDEPENDENT_DATASET", RUNTIME, TEXT, ""),
    EnvironmentVariable("SPORAX_NO_CACHE", RUNTIME, SWITCH, "0"),
    EnvironmentVariable("SPORAX_VERBOSE", RUNTIME, SWITCH, "0"),
    EnvironmentVariable("SPORAX_VERIFY_STEPS", RUNTIME, integer(0), 0),
    EnvironmentVariable("SPORAX_VERIFY_PLAN", RUNTIME, SWITCH, "0"),
    EnvironmentVariable("SPORAX_PROFILE", RUNTIME, TEXT, ""),
    EnvironmentVariable("SPORAX_PROFILE_STEPS", RUNTIME, step_range(), (5, 8)),
    EnvironmentVariable("SPORAX_KEEP_MEMORY", RUNTIME, SWITCH, "1"),
    EnvironmentVariable("SPORAX_MINDSPORE_VERSION", RUNTIME, TEXT, ""),
    # Of this project's tests and benchmarks.
    EnvironmentVariable("SPORAX_KUBE_ASSETS", RUNTIME, TEXT, ""),
    EnvironmentVariable("SPORAX_KILLS", RUNTIME, integer(1)),
    EnvironmentVariable("SPORAX_OPERATOR_KILLS", RUNTIME, integer(1)),
    EnvironmentVariable("SPORAX_DISTURBED", RUNTIME, integer(0)),
    EnvironmentVariable("SPORAX_MINDSPORE_PYTHON", RUNTIME, TEXT, ""),
    EnvironmentVariable("GLOG_v", LOG, integer(0, 4), 2),
    EnvironmentVariable("GLOG_logtostderr", LOG, SWITCH, "1"),
    EnvironmentVariable("GLOG_log_dir", LOG, TEXT, ""),
)

VARIABLES: Mapping[str, EnvironmentVariable] = {variable.name: variable for variable in _TABLE}
"""By name."""


def read(environ: Mapping[str, str], name: str) -> Any:
    """The value of one variable, or its default.

    Raises:
        SporaxValueError: as `EnvironmentVariable.read`.
    """
    return VARIABLES[name].read(environ)


def check(environ: Mapping[str, str], *subjects: str) -> None:
    """Check all variables of these subjects; without any, all there are.

    Raises:
        SporaxValueError: one holds what it must not, or two contradict each other.
    """
    for variable in VARIABLES.values():
        if not subjects or variable.subject in subjects:
            variable.read(environ)
    if not subjects or SERVERS in subjects:
        check_slots(environ)


def check_slots(environ: Mapping[str, str]) -> None:
    """Check that each server gets a slot.

    Raises:
        SporaxValueError: there are fewer slots than servers.
    """
    servers, slots = read(environ, "MS_SERVER_NUM"), read(environ, "MS_PS_SLOTS")
    if slots < servers:
        raise VARIABLES["MS_PS_SLOTS"].wrong(f"at least MS_SERVER_NUM, which is {servers}", slots)


def without_effect(environ: Mapping[str, str], *, with_servers: bool) -> Iterator[str]:
    """Names of variables that are set and read by nothing: of parameter servers where there are none, and mistyped ones."""
    for name, text in environ.items():
        known = VARIABLES.get(name)
        if not text:
            continue
        # Of other MS_… variables MindSpore has hundreds.
        if known is None and name.startswith(("SPORAX_", "MS_PS_")):
            yield name
        if known is not None and known.subject == SERVERS and not (with_servers or known.by_launcher):
            yield name
