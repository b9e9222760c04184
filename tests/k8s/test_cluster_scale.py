"""Many jobs at once on a real control plane: what one more job costs does not depend on how many there are.

Run by `make test-cluster`, as `test_cluster`. No process is started: the kubelet says that pods run, so that only the operator
and the API server work. At each size some jobs more are submitted one after the other, and some pods change; the figures of
the operator itself say how long its looks took.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support_k8s.control_plane import on_control_plane, resident_bytes
from support_k8s.jobs import job
from support_k8s.site import Site, sleeping

pytestmark = [pytest.mark.soak, *on_control_plane(900)]

SIZES = (25, 50, 100, 200)
PROBES = 8
EVENTS = 100


class Cost(NamedTuple):
    """What was measured while so many jobs were there.

    Attributes:
        filled_seconds: from the submission of the jobs that were missing, at once, until all ran.
        new_job_looks, new_job_look_ms: looks at one more job until it ran, and the mean time of one (calls included).
        new_job_cpu_ms: processor time of the whole operator for it.
        event_look_ms: mean time of a look that a changed pod caused.
        event_cpu_ms: processor time of the whole operator for one changed pod.
        running_seconds: from the submission of one more job until it ran.
        memory_mb: the operator's resident memory.
    """

    jobs: int
    filled_seconds: float
    new_job_looks: float
    new_job_look_ms: float
    new_job_cpu_ms: float
    event_look_ms: float
    event_cpu_ms: float
    running_seconds: float
    memory_mb: float


@pytest.fixture
def idle_site(site):
    """Pods run by word only."""
    site.kubelet.is_idle = True
    yield site
    site.plane.kubectl("delete", "msjob", "--all", "--wait=false")
    site.until(lambda: not site.plane.kubectl("get", "pods", "-o", "name").split(), 400, "no pods")
    site.kubelet.is_idle = False


def test_one_more_job_costs_the_same_among_two_hundred_as_among_twenty_five(idle_site, record_property):
    site = idle_site
    site.kill_operator()
    site.start_operator()
    site.figures()
    memory_before = operator_memory(site)
    start, costs = time.monotonic(), []
    for size in SIZES:
        first = 0 if not costs else costs[-1].jobs + PROBES
        costs.append(measure(site, size, fill(site, range(first, size))))
    record_property("costs", json.dumps([cost._asdict() for cost in costs]))
    record_property("memory_mb_without_jobs", memory_before)
    record_property("seconds", time.monotonic() - start)
    few, many = costs[0], costs[-1]
    # processor time, since others on this machine stretch what a clock on the wall shows
    assert many.event_cpu_ms < 2 * few.event_cpu_ms
    assert many.new_job_cpu_ms < 2 * few.new_job_cpu_ms
    assert many.new_job_looks < 2 * few.new_job_looks
    assert (many.memory_mb - memory_before) / many.jobs < 2 * (few.memory_mb - memory_before) / few.jobs


def fill(site: Site, numbers: range) -> float:
    """Submit jobs at once, and wait until all run; gives the seconds."""
    items = [named(f"many-{number}") for number in numbers]
    body = {"apiVersion": "v1", "kind": "List", "items": items}
    site.plane.kubectl("create", "--validate=false", "-f", "-", text=json.dumps(body))
    seconds = site.until(lambda: site.count_running() >= numbers.stop, 400, f"{numbers.stop} jobs run")
    quiet(site)
    return seconds


def measure(site: Site, size: int, filled_seconds: float) -> Cost:
    looks, seconds = site.figures()
    start, cpu_before = time.monotonic(), operator_cpu(site)
    for number in range(size, size + PROBES):
        site.create(named(f"many-{number}"))
        site.until(lambda number=number: site.status(f"many-{number}").is_true("Running"), 60, pause=0.02)
    running_seconds = (time.monotonic() - start) / PROBES
    quiet(site)
    new_jobs_cpu = operator_cpu(site) - cpu_before
    more_looks, more_seconds = (now - then for now, then in zip(site.figures(), (looks, seconds), strict=True))
    rounds = [events_of(site, size, number) for number in range(3)]
    event_looks, event_seconds, cpu = sorted(rounds, key=lambda costs: costs[2])[1]  # a regular list may fall into one
    return Cost(
        jobs=size,
        filled_seconds=filled_seconds,
        new_job_cpu_ms=1000 * new_jobs_cpu / PROBES,
        new_job_looks=more_looks / PROBES,
        new_job_look_ms=1000 * more_seconds / more_looks,
        event_look_ms=1000 * event_seconds / event_looks,
        event_cpu_ms=1000 * cpu / EVENTS,
        running_seconds=running_seconds,
        memory_mb=operator_memory(site),
    )


def events_of(site: Site, size: int, turn: int) -> tuple[float, float, float]:
    """Change pods that matter to nobody, spread over the jobs: looks, the seconds they took, processor seconds."""
    looks, seconds = site.figures()
    cpu = operator_cpu(site)
    for number in range(EVENTS):
        pod = f"many-{number * size // EVENTS}-worker-{number % 2}"
        patch = {"metadata": {"annotations": {"probe": f"{size}-{turn}-{number}"}}}
        site.client.patch(
            f"/api/v1/namespaces/default/pods/{pod}",
            content=json.dumps(patch),
            headers={"Content-Type": "application/merge-patch+json"},
        ).raise_for_status()
        time.sleep(0.02)
    quiet(site)  # events that come while a look at their job is due are one look
    more_looks, more_seconds = (now - then for now, then in zip(site.figures(), (looks, seconds), strict=True))
    return more_looks, more_seconds, operator_cpu(site) - cpu


def quiet(site: Site) -> None:
    """Wait until the operator has nothing to do."""
    looks = -1.0
    while looks != (looks := site.figures()[0]):
        time.sleep(1)


def operator_memory(site: Site) -> float:
    assert site.operator is not None
    return resident_bytes(site.operator.pid) / 1e6


def operator_cpu(site: Site) -> float:
    assert site.operator is not None
    fields = Path(f"/proc/{site.operator.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def named(name: str) -> dict[str, Any]:
    body = sleeping(job(name))
    return {**body, "metadata": {"name": name, "namespace": "default"}}
