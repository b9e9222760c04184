"""What a job lives through on a real control plane: it goes on from what it saved, starts again, is refused and set right.

Run by `make test-cluster`, as `test_cluster_training`.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support_k8s.control_plane import on_control_plane
from support_k8s.jobs import job
from support_k8s.site import DEPLOY, Site, sleeping

pytestmark = on_control_plane()

SCRIPT = Path(__file__).parent / "support_k8s" / "checkpointed.py"
STEPS = 24


def checkpointed(
    name: str, folder: Path, *more: object, pause: float = 0.0, policy: str = "ExitCode", **spec: Any
) -> dict[str, Any]:
    body = job(name, workers=2, successPolicy="AllWorkers", **spec)
    for part in body["spec"]["msReplicaSpecs"].values():
        part["restartPolicy"] = policy
        container = part["template"]["spec"]["containers"][0]
        container["command"] = ["sporax", "run", str(SCRIPT), str(folder), str(pause), *map(str, more)]
    return body


def losses(site: Site, pod: str) -> list[tuple[int, str]]:
    """The steps that rank 0 wrote, in order, with the digits of their losses."""
    return [(int(step), loss) for step, loss in re.findall(r"step (\d+) loss (\S+)", site.kubelet.output(pod))]


@pytest.fixture(scope="module")
def expected(site, tmp_path_factory) -> dict[int, str]:
    """Losses of a job without disturbances."""
    site.apply(checkpointed("calm", tmp_path_factory.mktemp("calm")))
    site.until_in("calm", "Succeeded", 200)
    whole = dict(losses(site, "calm-worker-0"))
    assert sorted(whole) == list(range(1, STEPS + 1))
    site.delete("calm")
    return whole


def test_a_killed_worker_goes_on_from_the_checkpoint_without_a_variable_of_the_user(site, expected, tmp_path):
    site.apply(checkpointed("resumed", tmp_path, pause=0.3))
    site.until(lambda: len(losses(site, "resumed-worker-0")) >= 7, 120, "training has begun")
    assert site.kubelet.kill("resumed-worker-1")
    site.until_in("resumed", "Succeeded", 200)
    written = losses(site, "resumed-worker-0")
    assert dict(written) == expected
    again = Counter(step for step, _ in written)
    assert again[1] == 1  # not from the start
    assert sum(again.values()) > STEPS  # but some steps twice, from the checkpoint on
    assert site.status("resumed").restarts == 1
    site.delete("resumed")


def test_a_new_job_with_the_folder_of_an_old_one_trains_from_the_start(site, expected, tmp_path):
    for _ in range(2):
        site.apply(checkpointed("again", tmp_path))
        site.until_in("again", "Succeeded", 200)
        site.delete("again")
    written = losses(site, "again-worker-0")
    assert [step for step, _ in written] == [*range(1, STEPS + 1)] * 2
    assert dict(written[STEPS:]) == expected


def test_the_whole_job_starts_again_from_its_newest_checkpoint(site, expected, tmp_path):
    site.apply(checkpointed("restarted", tmp_path, 9, policy="Never", runPolicy={"maxRestarts": 1}))
    site.until_in("restarted", "Succeeded", 200)
    written = losses(site, "restarted-worker-0")
    assert dict(written) == expected
    assert Counter(step for step, _ in written)[1] == 1
    body = site.client.get("/apis/mindspore.gitee.com/v1/namespaces/default/msjobs/restarted").json()
    assert (body["status"]["jobRestarts"], body["status"]["failures"]) == (1, 1)
    site.delete("restarted")


REPORTING = """
import time, sporax
for step in range(1, 2000):
    sporax.report_progress(step, epoch=3, loss=1 / step, samples_per_second=12.5)
    time.sleep(0.1)
"""


def test_how_far_a_job_is_stands_in_its_status_and_in_the_figures_of_the_operator(site):
    body = job("reporting", workers=2, scheduler=False)
    body["spec"]["msReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["command"] = [
        "python",
        "-c",
        REPORTING,
    ]
    site.create(body)
    site.until(lambda: site.status("reporting").progress, 120, "a first progress")
    first = site.status("reporting").progress
    site.until(lambda: site.status("reporting").progress.step >= first.step + 50, 60, "more progress")
    now = site.status("reporting").progress
    assert (now.epoch, now.loss, now.samples_per_second) == (3, f"{1 / now.step:.6g}", "12.5")
    figures = httpx2.get(f"http://127.0.0.1:{site.metrics_port}/metrics").text
    step = re.search(r'^sporax_operator_job_step\{job="reporting",namespace="default"\} (\S+)$', figures, re.M)
    assert step is not None
    assert float(step[1]) >= now.step
    site.delete("reporting")


def test_a_size_that_was_refused_and_is_right_again_runs(site):
    """The size, edited to what cannot be and back; messages may be empty, which the server must not take for null."""
    if site.plane.has_rules:
        pytest.skip("this API server refuses such a size itself")
    body = sleeping(job("mended", workers=2))
    body["spec"]["msReplicaSpecs"]["Worker"]["replicas"] = 0
    assert_it_runs_once_right(site, body, "Worker.replicas", {"msReplicaSpecs": {"Worker": {"replicas": 2}}})


def test_a_field_that_was_refused_and_is_gone_again_runs(site):
    body = sleeping(job("spelled", workers=2, sucessPolicy="AllWorkers"))
    assert_it_runs_once_right(site, body, "sucessPolicy", {"sucessPolicy": None})


def assert_it_runs_once_right(site: Site, body: dict[str, Any], field: str, change: dict[str, Any]) -> None:
    """A job that the operator refuses for one field runs after a change of its spec."""
    name = body["metadata"]["name"]
    site.apply(body)
    site.until(lambda: site.status(name).is_true("Failed"), 30)
    assert field in site.status(name).condition("Failed").message
    site.plane.kubectl("patch", "msjob", name, "--type=merge", "-p", json.dumps({"spec": change}))
    site.until(lambda: site.status(name).is_true("Running"), 60, "it runs")
    assert not site.status(name).is_true("Failed")
    site.delete(name)


def test_an_empty_text_in_a_status_is_no_null_for_this_control_plane(site):
    """What the build of the control plane mends: Kubernetes 1.20 with Go 1.16 and later refused it."""
    site.apply(sleeping(job("empty", workers=1, scheduler=False, runPolicy={"managedBy": "somebody.else/controller"})))
    condition = {"type": "Created", "status": "True", "reason": "", "message": ""}
    answer = site.client.patch(
        "/apis/mindspore.gitee.com/v1/namespaces/default/msjobs/empty/status",
        content=json.dumps({"status": {"conditions": [condition]}}),
        headers={"Content-Type": "application/merge-patch+json"},
    )
    assert answer.status_code == 200, answer.text
    site.plane.kubectl("delete", "msjob", "empty")


def test_fifty_jobs_at_once_are_created_once_each_and_cheaply(site, record_property):
    log = site.plane.folder / "audit.log"
    site.until(log.exists, 30, "the operator's first call")
    before = len(log.read_text().splitlines())
    site.kubelet.is_idle = True
    try:
        for number in range(50):
            site.create({**sleeping(job(f"many-{number}", workers=2)), "metadata": {"name": f"many-{number}"}})
        site.until(lambda: site.count_running() == 50, 120, "all jobs run")
        entries = [json.loads(line) for line in log.read_text().splitlines()[before:]]
    finally:
        for number in range(50):
            site.plane.kubectl("delete", "msjob", f"many-{number}", "--wait=false")
        site.until(lambda: not site.plane.kubectl("get", "pods", "-o", "name").split(), 120, "all pods gone")
        site.kubelet.is_idle = False
    writes = [entry for entry in entries if entry["verb"] in ("create", "patch", "delete", "update")]
    repeated = [entry for entry in writes if entry["verb"] == "create" and entry["responseStatus"]["code"] == 409]
    record_property("calls_per_job", len(entries) / 50)
    if site.is_disturbed:  # what was lost is requested again, and what was only not answered is there
        return
    assert repeated == []
    assert len(writes) <= 50 * 12


def test_a_definition_that_is_deleted_and_applied_again_is_served_again(site):
    log = site.plane.folder / "operator.log"
    before = len(log.read_text())
    site.apply(sleeping(job("old")))
    site.until_in("old", "Running")
    site.plane.kubectl("delete", "-f", str(DEPLOY / "1-crd.yaml"))
    site.until(lambda: "apply deploy/1-crd.yaml" in log.read_text()[before:], 60, "the operator says so")
    site.install()
    site.until(lambda: "created" in site.apply(sleeping(job("new"))) or site.status("new").conditions, 30)
    site.until_in("new", "Running", 90)
    assert "Traceback" not in log.read_text()[before:]
    assert site.operator.poll() is None  # the same process
    site.delete("new")


def test_a_deletion_in_the_foreground_waits_for_the_pods(site):
    body = sleeping(job("slow", workers=1, scheduler=False))
    container = body["spec"]["msReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    container["command"] = [
        sys.executable,
        "-c",
        "import signal,time;signal.signal(15,lambda *_:time.sleep(3)or exit());time.sleep(300)",
    ]
    site.apply(body)
    site.until_in("slow", "Running")
    options = {"propagationPolicy": "Foreground"}
    place = "/apis/mindspore.gitee.com/v1/namespaces/default/msjobs/slow"
    site.client.request("DELETE", place, json=options)
    seen = []

    def is_gone() -> bool:
        job_is_there = site.client.get(place).status_code == 200
        pods_are_there = bool(site.pods("slow"))
        seen.append((job_is_there, pods_are_there))
        return not job_is_there

    site.until(is_gone, 60)
    assert seen[-1] == (False, False)
    assert (True, True) in seen
