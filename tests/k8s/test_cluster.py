"""The operator on a real control plane, with pods that are local processes running real training scripts.

`make test-cluster` builds the control plane and runs these. The operator is a process of its own and has nothing but the
token of the account that `deploy/` installs, so a right that is missing there fails these tests.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support_k8s.control_plane import ADMIN_TOKEN, HOW_TO, ControlPlane, assets
from support_k8s.jobs import INVALID, job
from support_k8s.kubelet import ProcessKubelet

from sporax.k8s.status import Status, read_status

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(assets() is None or os.geteuid() != 0, reason=HOW_TO),
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # sockets to a killed API server
    pytest.mark.filterwarnings("ignore::pytest.PytestWarning"),  # figures in a report of pytest's newer kind
]

DEPLOY = Path(__file__).parents[2] / "deploy"
EXAMPLES = Path(__file__).parents[2] / "examples" / "06-kubernetes"


class Site:
    """A control plane, a kubelet and an operator, with the calls that tests need."""

    def __init__(self, folder: Path) -> None:
        self.plane = ControlPlane(folder)
        self.plane.start()
        for name in ("1-crd.yaml", "2-rbac.yaml"):
            self.plane.kubectl("apply", "-f", str(DEPLOY / name))
        self.plane.kubectl("wait", "--for=condition=established", "crd/msjobs.mindspore.gitee.com")
        token = self.plane.account_token("sporax-system", "sporax-operator")
        self.config = self.plane.kubeconfig(token, "operator")
        environment = {key: os.environ[key] for key in ("PYTHONPATH",) if key in os.environ}
        self.kubelet = ProcessKubelet(self.plane.url, ADMIN_TOKEN, folder / "kubelet", environment=environment)
        self.kubelet.start()
        self.operator: subprocess.Popen[bytes] | None = None
        self.start_operator()

    def start_operator(self) -> None:
        command = [sys.executable, "-m", "sporax", "k8s", "operator", "--metrics_port", "0", "--liveness_port", "0"]
        with open(self.plane.folder / "operator.log", "ab") as log:
            environment = os.environ | {"KUBECONFIG": str(self.config)}
            self.operator = subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def kill_operator(self) -> None:
        assert self.operator is not None
        self.operator.kill()
        self.operator.wait()

    def stop(self) -> None:
        if self.operator is not None:
            self.operator.send_signal(signal.SIGTERM)
            self.operator.wait(timeout=20)
        self.kubelet.stop()
        self.plane.stop()

    def apply(self, body: dict[str, Any]) -> str:
        body = {**body, "metadata": {"name": body["metadata"]["name"]}}
        return self.plane.kubectl("apply", "--validate=false", "-f", "-", text=json.dumps(body), check=False)

    def status(self, name: str) -> Status:
        text = self.plane.kubectl("get", "msjob", name, "-o", "json", check=False)
        return read_status(json.loads(text).get("status") if text.startswith("{") else None)

    def pods(self, name: str) -> list[str]:
        selector = f"mindspore.gitee.com/job-name={name}"
        return self.plane.kubectl("get", "pods", "-l", selector, "-o", "name").split()

    def until(self, holds: Callable[[], Any], seconds: float = 60.0, what: str = "") -> float:
        start = time.monotonic()
        while not holds():
            assert time.monotonic() - start < seconds, f"{what} did not come true in {seconds} s"
            time.sleep(0.1)
        return time.monotonic() - start

    def until_in(self, name: str, state: str, seconds: float = 60.0) -> Status:
        def holds() -> bool:
            status = self.status(name)
            assert state == "Failed" or not status.is_true("Failed"), status.condition("Failed")
            return status.is_true(state)

        self.until(holds, seconds, f"{name} {state}")
        return self.status(name)

    def delete(self, name: str) -> None:
        """Delete a job; nothing of it may be left."""
        self.plane.kubectl("delete", "msjob", name, "--wait=false")
        kinds = "pods,services,poddisruptionbudgets,persistentvolumeclaims"
        selector = f"mindspore.gitee.com/job-name={name}"
        left = lambda: self.plane.kubectl("get", kinds, "-l", selector, "-o", "name").split()
        self.until(lambda: not left(), 60, f"everything of {name} gone")
        self.until(lambda: not [pod for pod in self.kubelet.alive() if pod.startswith(f"{name}-")], 10, "no process")


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("site"))
    yield site
    site.stop()


def sleeping(body: dict[str, Any], seconds: int = 300) -> dict[str, Any]:
    """Every pod sleeps; workers succeed after `seconds`."""
    for name, part in body["spec"]["msReplicaSpecs"].items():
        time_to_sleep = seconds if name == "Worker" else 300
        part["template"]["spec"]["containers"][0]["command"] = ["sleep", str(time_to_sleep)]
    return body


def example(name: str) -> dict[str, Any]:
    return yaml.safe_load((EXAMPLES / name).read_text())


def test_a_job_runs_soon_after_it_is_applied_and_leaves_nothing_behind(site, record_property):
    site.apply(sleeping(job("quick", servers=2)))
    record_property("apply_to_running_seconds", site.until(lambda: site.status("quick").is_true("Running")))
    assert len(site.pods("quick")) == 5
    columns = site.plane.kubectl("get", "msj", "quick")
    assert [word in columns for word in ("STATE", "WORKERS", "SERVERS", "RESTARTS", "Running")] == [True] * 5
    site.delete("quick")


@pytest.mark.parametrize("body", [case[1] for case in INVALID], ids=[case[0] for case in INVALID])
def test_a_spec_that_cannot_run_is_refused_or_failed_and_the_field_named(site, body):
    field = next(case[2] for case in INVALID if case[1] is body)
    answer = site.apply(body)
    if "created" not in answer and "configured" not in answer:
        assert field.split(".")[-1] in answer, answer
        return
    name = body["metadata"]["name"]
    site.until(lambda: site.status(name).is_true("Failed"), 20)
    condition = site.status(name).condition("Failed")
    assert condition.reason == "InvalidSpec"
    assert field in condition.message
    assert site.pods(name) == []
    site.delete(name)


def test_kubectl_scale_brings_workers_to_an_elastic_job_and_takes_them_away(site):
    site.apply(sleeping(job("elastic", enableDynamicWorker=True)))
    site.until_in("elastic", "Running")
    before = {name: site.kubelet.pid(name) for name in ("elastic-worker-0", "elastic-worker-1")}
    for count in (4, 1, 2):
        site.plane.kubectl("scale", "msjob", "elastic", f"--replicas={count}")
        site.until(lambda count=count: len([p for p in site.kubelet.alive() if "elastic-worker" in p]) == count)
    assert site.kubelet.pid("elastic-worker-0") == before["elastic-worker-0"]
    scale = site.plane.kubectl("get", "--raw", "/apis/mindspore.gitee.com/v1/namespaces/default/msjobs/elastic/scale")
    assert json.loads(scale)["spec"]["replicas"] == 2
    site.delete("elastic")


def test_suspend_deadline_and_time_to_live(site):
    site.apply(sleeping(job("paused", runPolicy={"suspend": True})))
    site.until_in("paused", "Suspended")
    assert site.pods("paused") == []
    patch = {"spec": {"runPolicy": {"suspend": False, "activeDeadlineSeconds": 3, "ttlSecondsAfterFinished": 2}}}
    site.plane.kubectl("patch", "msjob", "paused", "--type=merge", "-p", json.dumps(patch))
    site.until_in("paused", "Running")
    site.until(lambda: site.status("paused").is_true("Failed"), 20)
    assert site.status("paused").condition("Failed").reason == "DeadlineExceeded"
    site.until(lambda: "NotFound" in site.plane.kubectl("get", "msjob", "paused", check=False), 20)


def test_a_killed_server_is_replaced_and_the_others_go_on(site, record_property):
    site.apply(sleeping(job("servers", servers=2)))
    site.until_in("servers", "Running")
    workers = [site.kubelet.pid(f"servers-worker-{index}") for index in range(2)]
    old = site.kubelet.pid("servers-ps-1")
    site.kubelet.kill("servers-ps-1")
    seconds = site.until(lambda: site.kubelet.pid("servers-ps-1") not in (None, old))
    record_property("server_replaced_seconds", seconds)
    site.until(lambda: not site.status("servers").is_true("Restarting"))
    assert [site.kubelet.pid(f"servers-worker-{index}") for index in range(2)] == workers
    site.delete("servers")


def test_what_happened_while_the_operator_was_dead_is_repaired(site):
    site.apply(sleeping(job("orphan", servers=1)))
    site.until_in("orphan", "Running")
    site.kill_operator()
    site.plane.kubectl("delete", "pod", "orphan-worker-1", "--wait=false")
    site.kubelet.kill("orphan-ps-0")
    site.until(lambda: "orphan-ps-0" not in site.kubelet.alive())
    site.start_operator()
    site.until(lambda: {"orphan-worker-1", "orphan-ps-0"} <= set(site.kubelet.alive()))
    site.until(lambda: site.status("orphan").restarts == 2)
    site.delete("orphan")


def test_an_api_server_that_dies_interrupts_nothing(site):
    site.apply(sleeping(job("steady", servers=1)))
    site.until_in("steady", "Running")
    pids = {name: site.kubelet.pid(name) for name in site.kubelet.alive()}
    site.plane.kill("kube-apiserver")
    site.kubelet.kill("steady-ps-0")
    site.plane.start_api_server()
    site.until(lambda: site.kubelet.pid("steady-ps-0") not in (None, pids["steady-ps-0"]))
    assert site.kubelet.pid("steady-worker-0") == pids["steady-worker-0"]
    site.delete("steady")


def test_the_operator_may_not_read_secrets_nor_change_jobs(site):
    who = "--as=system:serviceaccount:sporax-system:sporax-operator"
    for verb, thing in (
        ("get", "secrets"),
        ("update", "msjobs"),
        ("patch", "pods"),
        ("get", "nodes"),
        ("list", "crds"),
    ):
        assert site.plane.kubectl("auth", "can-i", verb, thing, who, check=False).strip().startswith("no")


@pytest.mark.parametrize("name", ["1-single-worker.yaml", "2-data-parallel.yaml"])
def test_an_example_of_the_original_shape_trains_and_succeeds_unchanged(site, name):
    body = example(name)
    site.apply(body)
    job_name = body["metadata"]["name"]
    site.until_in(job_name, "Succeeded", 400)
    assert "accuracy" in site.kubelet.output(f"{job_name}-worker-0")
    site.delete(job_name)
