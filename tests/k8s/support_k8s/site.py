"""A control plane, a kubelet and an operator at work, with the calls that tests need."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import yaml

from sporax.k8s.api import manifests
from sporax.k8s.decide.observed import ReportedMembership
from sporax.k8s.resource.job_status import Status, read_status
from sporax.k8s.scheduler_calls import read_membership

from .control_plane import ADMIN_TOKEN, ControlPlane, free_port
from .kubelet import ProcessKubelet
from .operator_pod import start_as_in_its_pod, write_account
from .proxy import running_proxy

DEPLOY = Path(__file__).parents[3] / "deploy"
EXAMPLES = Path(__file__).parents[3] / "examples" / "08-kubernetes"
JOBS = "/apis/mindspore.gitee.com/v1/namespaces/default/msjobs"


class Site:
    """A control plane, a kubelet and an operator, with the calls that tests need.

    Args:
        seed: of what a proxy between operator and API server does wrong all the time; None: there is no proxy.
    """

    def __init__(self, folder: Path, seed: int | None = None) -> None:
        self.plane = ControlPlane(folder)
        self.plane.start()
        self.install()
        self.account = folder / "account"
        write_account(self.account, self.plane)
        environment = {key: os.environ[key] for key in ("PYTHONPATH",) if key in os.environ}
        self.kubelet = ProcessKubelet(self.plane.url, ADMIN_TOKEN, folder / "kubelet", environment=environment)
        self.kubelet.start()
        self.metrics_port, self.liveness_port = free_port(), free_port()
        self.client = httpx2.Client(
            base_url=self.plane.url, verify=False, headers={"Authorization": f"Bearer {ADMIN_TOKEN}"}, timeout=20
        )
        self.operator: subprocess.Popen[bytes] | None = None
        self._at_end, self._address = ExitStack(), ""
        if seed is not None:
            proxy = self._at_end.enter_context(running_proxy(self.plane.url))
            proxy.disturb(seed)
            self._address = proxy.url
        self.start_operator()

    @property
    def is_disturbed(self) -> bool:
        """Whether calls of the operator are lost all the time."""
        return bool(self._address)

    def install(self) -> None:
        """The definition and the operator's rights."""
        for name in ("1-crd.yaml", "2-rbac.yaml"):
            # kubectl before 1.25 does not know rules
            self.plane.kubectl("apply", "--validate=false", "-f", str(DEPLOY / name))
        self.plane.kubectl("wait", "--for=condition=established", "crd/msjobs.mindspore.gitee.com")

    def start_operator(self, address: str = "") -> None:
        """Start it as in its pod, or, with an address, behind a proxy there."""
        ports = ["--metrics_port", str(self.metrics_port), "--liveness_port", str(self.liveness_port)]
        command = [
            sys.executable,
            "-m",
            "sporax",
            *manifests.deployment("")["spec"]["template"]["spec"]["containers"][0]["args"],
        ]
        address = address or self._address
        if not address:
            self.operator = start_as_in_its_pod([*command, *ports], self.plane, self.account)
            return
        config = self.plane.kubeconfig((self.account / "token").read_text(), "proxied", server=address)
        with open(self.plane.folder / "operator.log", "ab") as log:
            environment = os.environ | {"KUBECONFIG": str(config), "PYTHONUNBUFFERED": "1"}
            self.operator = subprocess.Popen([*command, *ports], env=environment, stdout=log, stderr=log)

    def kill_operator(self) -> None:
        assert self.operator is not None
        self.operator.kill()
        self.operator.wait()

    def stop(self) -> None:
        if self.operator is not None:
            self.operator.send_signal(signal.SIGTERM)
            self.operator.wait(timeout=20)
        self._at_end.close()
        self.client.close()
        self.kubelet.stop()
        self.plane.stop()

    def apply(self, body: dict[str, Any]) -> str:
        body = {**body, "metadata": {"name": body["metadata"]["name"]}}
        return self.plane.kubectl("apply", "--validate=false", "-f", "-", text=json.dumps(body), check=False)

    def create(self, body: dict[str, Any]) -> None:
        """Create a job without starting kubectl."""
        self.client.post(JOBS, json=body).raise_for_status()

    def status(self, name: str) -> Status:
        answer = self.client.get(f"{JOBS}/{name}")
        return read_status(answer.json().get("status") if answer.status_code == 200 else None)

    def count_running(self) -> int:
        statuses = [read_status(body.get("status")) for body in self.client.get(JOBS).json()["items"]]
        return sum(status.is_true("Running") for status in statuses)

    def figures(self) -> tuple[float, float]:
        """Looks at jobs so far, and the seconds they took."""
        self.until(lambda: _listens(self.metrics_port), 30, "the operator")
        lines = httpx2.get(f"http://127.0.0.1:{self.metrics_port}/metrics").text.splitlines()
        values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        prefix = "sporax_operator_reconcile_seconds"
        return float(values[f"{prefix}_count"]), float(values[f"{prefix}_sum"])

    def read_membership(self, name: str) -> ReportedMembership | None:
        """What the job's own scheduler says."""
        body = self.client.get(f"/api/v1/namespaces/default/pods/{name}-scheduler-0").json()
        address = body.get("status", {}).get("podIP")
        return read_membership(f"{address}:2223") if address else None

    def is_replicated(self, name: str) -> bool:
        """Whether the job's own scheduler says that every slot has its copies."""
        membership = self.read_membership(name)
        return membership is not None and membership.is_replicated

    def pods(self, name: str) -> list[str]:
        selector = f"mindspore.gitee.com/job-name={name}"
        return self.plane.kubectl("get", "pods", "-l", selector, "-o", "name").split()

    def until(self, holds: Callable[[], Any], seconds: float = 60.0, what: str = "", pause: float = 0.1) -> float:
        start = time.monotonic()
        while not holds():
            assert time.monotonic() - start < seconds, f"{what} did not come true in {seconds} s"
            time.sleep(pause)
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


def sleeping(body: dict[str, Any], seconds: int = 300) -> dict[str, Any]:
    """Every pod sleeps; workers succeed after `seconds`."""
    for name, part in body["spec"]["msReplicaSpecs"].items():
        time_to_sleep = seconds if name == "Worker" else 300
        container = part["template"]["spec"]["containers"][0]
        container["command"] = ["sleep", str(time_to_sleep)]
        if name == "PS":  # it serves nothing, but is to count as ready
            container["readinessProbe"] = {"exec": {"command": ["true"]}}
    return body


def example(name: str) -> dict[str, Any]:
    return yaml.safe_load((EXAMPLES / name).read_text())


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
