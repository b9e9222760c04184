"""Jobs as tables, for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sporax.k8s.resource import job_status as facts
from sporax.k8s.resource.job_status import Status, read_status
from sporax.k8s.resource.spec import Role

_COLOURS = {
    facts.SUCCEEDED: "green",
    facts.FAILED: "red",
    facts.RUNNING: "cyan",
    facts.RESTARTING: "yellow",
    facts.SUSPENDED: "magenta",
}
# Largest unit first, with its seconds.
_UNITS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))


def job_table(bodies: Iterable[Mapping[str, Any]], now: datetime, *, with_namespace: bool) -> Table:
    """One row per job."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    columns = (["NAMESPACE"] if with_namespace else []) + ["NAME", "STATE", "SCHEDULER", "SERVERS", "WORKERS"]
    for column in [*columns, "RESTARTS", "AGE", "MESSAGE"]:
        table.add_column(column, no_wrap=column != "MESSAGE")
    for body in bodies:
        metadata, status = body["metadata"], read_status(body.get("status"))
        state = job_state(status)
        condition = status.condition(state)
        table.add_row(
            *([metadata["namespace"]] if with_namespace else []),
            metadata["name"],
            Text(state, style=_COLOURS.get(state, "")),
            *(_share(body, status, role) for role in Role),
            str(status.restarts),
            age(metadata.get("creationTimestamp"), now),
            condition.message if condition is not None else "",
        )
    return table


def job_page(body: Mapping[str, Any], now: datetime) -> RenderableType:
    """One job with its conditions and pods."""
    status = read_status(body.get("status"))
    conditions = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("CONDITION", "HOLDS", "SINCE", "REASON", "MESSAGE"):
        conditions.add_column(column, no_wrap=column != "MESSAGE")
    for item in status.conditions:
        since = item.last_transition_time.isoformat() if item.last_transition_time is not None else None
        conditions.add_row(item.type, item.status, age(since, now), item.reason, item.message)
    pods = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("POD", "RESULT", "RESTARTS"):
        pods.add_column(column)
    for name, record in sorted(status.pods.items()):
        pods.add_row(name, record.result or "-", str(record.restarts + record.container_restarts))
    return Group(job_table([body], now, with_namespace=True), "", conditions, "", pods)


def job_state(status: Status) -> str:
    """The newest condition that holds; Pending before there is one."""
    # The newest change stands last.
    return next((item.type for item in reversed(status.conditions) if item.status == "True"), "Pending")


def age(since: str | None, now: datetime) -> str:
    """How long ago something was, in its largest unit: `42s`, `5m`, `3h`."""
    if since is None:
        return ""
    seconds = max(0, int((now - datetime.fromisoformat(since).astimezone(UTC)).total_seconds()))
    unit, length = next(((unit, length) for unit, length in _UNITS if seconds >= length), ("s", 1))
    return f"{seconds // length}{unit}"


def _share(body: Mapping[str, Any], status: Status, role: Role) -> str:
    """Pods of a role that are ready or done, of those wanted."""
    counts = status.replica_statuses.get(role.value)
    size = status.sizes.get(role.value)
    if counts is None:
        return "-"
    # Before the first look there is no size.
    return f"{counts.ready + counts.succeeded}/{size if size is not None else '?'}"
