"""Jobs as tables, for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sporax.k8s.decide.observed import why_not_ready
from sporax.k8s.resource import job_status as facts
from sporax.k8s.resource.job_status import PodRecord, Progress, Status, read_status
from sporax.k8s.resource.spec import PodRole

Body = Mapping[str, Any]  # an object as the API server holds it
_COLOURS = {
    facts.SUCCEEDED: "green",
    facts.FAILED: "red",
    facts.RUNNING: "cyan",
    facts.RESTARTING: "yellow",
    facts.SUSPENDED: "magenta",
}
# Largest unit first, with its seconds.
_UNITS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))


def job_table(bodies: Iterable[Body], now: datetime, *, with_namespace: bool) -> Table:
    """One row per job."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    columns = (["NAMESPACE"] if with_namespace else []) + ["NAME", "STATE", "SCHEDULER", "SERVERS", "WORKERS"]
    for column in [*columns, "RESTARTS", "AGE", "MESSAGE"]:
        table.add_column(column, no_wrap=column != "MESSAGE")
    for body in bodies:
        metadata, status = body["metadata"], read_status(body.get("status"))
        state = job_state(status)
        condition, started = status.condition(state), status.condition(facts.STARTED)
        # What keeps a job from running says more than that it is there.
        if state in (facts.CREATED, facts.RESTARTING) and started is not None and started.status == "False":
            condition = started
        table.add_row(
            *([metadata["namespace"]] if with_namespace else []),
            metadata["name"],
            Text(state, style=_COLOURS.get(state, "")),
            *(_share(body, status, role) for role in PodRole),
            str(status.restarts),
            age(metadata.get("creationTimestamp"), now),
            condition.message if condition is not None else "",
        )
    return table


def job_page(body: Body, now: datetime, pod_bodies: Iterable[Body] = ()) -> RenderableType:
    """One job with its conditions and pods: those of which something is remembered, and those that are there."""
    status = read_status(body.get("status"))
    conditions = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("CONDITION", "HOLDS", "SINCE", "REASON", "MESSAGE"):
        conditions.add_column(column, no_wrap=column != "MESSAGE")
    for item in status.conditions:
        since = item.last_transition_time.isoformat() if item.last_transition_time is not None else None
        conditions.add_row(item.type, item.status, age(since, now), item.reason, item.message)
    pods = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("POD", "PHASE", "READY", "RESULT", "RESTARTS", "NODE", "WHY"):
        pods.add_column(column, no_wrap=column != "WHY")
    there = {pod["metadata"]["name"]: pod for pod in pod_bodies}
    for name in sorted({*status.pods, *there}):
        record, pod = status.pods.get(name, PodRecord()), there.get(name)
        live = ("-", "-") if pod is None else pod_phase(pod)
        restarts = str(record.restarts + record.container_restarts)
        node = "" if pod is None else (pod.get("spec") or {}).get("nodeName", "")
        pods.add_row(name, *live, record.result or "-", restarts, node, "" if pod is None else why_not_ready(pod))
    progress = [] if status.progress is None else ["", progress_line(status.progress, now)]
    return Group(job_table([body], now, with_namespace=True), *progress, "", conditions, "", pods)


def progress_line(progress: Progress, now: datetime) -> str:
    """How far a job is: `epoch 2, step 40, loss 0.25, 812 samples/s (3s ago)`."""
    parts = [f"epoch {progress.epoch}" if progress.epoch else "", f"step {progress.step}"]
    parts.append(f"loss {progress.loss}" if progress.loss else "")
    parts.append(f"{progress.samples_per_second} samples/s" if progress.samples_per_second else "")
    queried = f" ({age(progress.time.isoformat(), now)} ago)" if progress.time is not None else ""
    return ", ".join(filter(None, parts)) + queried


def pod_phase(pod: Body) -> tuple[str, str]:
    """A pod's phase, and whether it is ready."""
    status = pod.get("status") or {}
    is_ready = any(item["type"] == "Ready" and item["status"] == "True" for item in status.get("conditions") or [])
    phase = "Terminating" if pod["metadata"].get("deletionTimestamp") else status.get("phase") or "Pending"
    return phase, "yes" if is_ready else "no"


def job_state(status: Status) -> str:
    """The newest of the job's states that holds; Pending before there is one. Conditions of others are no state."""
    # The newest change stands last.
    states = (item.type for item in reversed(status.conditions) if item.status == "True" and item.type in facts.STATES)
    return next(states, "Pending")


def age(since: str | None, now: datetime) -> str:
    """How long ago something was, in its largest unit: `42s`, `5m`, `3h`."""
    if since is None:
        return ""
    seconds = max(0, int((now - datetime.fromisoformat(since).astimezone(UTC)).total_seconds()))
    unit, length = next(((unit, length) for unit, length in _UNITS if seconds >= length), ("s", 1))
    return f"{seconds // length}{unit}"


def _share(body: Body, status: Status, role: PodRole) -> str:
    """Pods of a role that are ready or done, of those wanted."""
    counts = status.replica_statuses.get(role.value)
    size = status.sizes.get(role.value)
    if counts is None:
        return "-"
    # Before the first look there is no size.
    return f"{counts.ready + counts.succeeded}/{size if size is not None else '?'}"
