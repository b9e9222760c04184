"""A kubelet whose pods are local processes, for tests: it schedules, starts, watches, restarts and ends them.

What a program in a pod can notice is kept: environment, volumes, host names (see `container`), restart policies, readiness,
termination with a grace period, exit codes, logs, and an address of its own (in 127.0.0.0/8).

A *node* is a label in memory: `kill_node` ends all processes of its pods at once and says nothing for them, as a machine
that lost power does; the pods are then marked lost, as the node controller would.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2

from .container import ContainerStarter
from .log_server import LogServer
from .pod_watch import PodWatch


@dataclass
class Running:
    """One pod's process."""

    body: dict[str, Any]
    node: str
    address: str
    process: subprocess.Popen[bytes] | None = None
    restarts: int = 0
    restart_at: float = 0.0
    kill_at: float | None = None
    last_state: dict[str, Any] = field(default_factory=dict)
    is_ready: bool = True
    probe_at: float = 0.0
    is_over: bool = False

    @property
    def name(self) -> str:
        return self.body["metadata"]["name"]


class ProcessKubelet:
    """Runs every pod of a cluster as a process, in a thread of its own."""

    def __init__(self, url: str, token: str, folder: Path, nodes: int = 2, environment: dict[str, str] | None = None):
        self.nodes = [f"node-{number}" for number in range(nodes)]
        self.is_idle = False  # pods count as running, but no process is started
        self.log: list[tuple[float, str, str]] = []  # when, pod, what
        self._client = httpx2.Client(
            base_url=url, verify=False, headers={"Authorization": f"Bearer {token}"}, timeout=10
        )
        self._watch = PodWatch(self._client)
        self._starter = ContainerStarter(folder, environment or {}, self._read)
        self._logs = LogServer(folder, self.output, self._has_ended)
        self._pods: dict[str, Running] = {}  # by uid
        self._lock = threading.RLock()
        self._stopping = threading.Event()
        self._next_address = 0
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def start(self) -> None:
        self._join()
        self._watch.start()
        self._thread.start()

    def stop(self) -> None:
        self._watch.stop()
        self._stopping.set()
        self._thread.join(timeout=30)
        self._logs.stop()
        self._client.close()
        for pod in self._pods.values():
            self._signal(pod, signal.SIGKILL)

    def pid(self, name: str) -> int | None:
        """The process group of a pod; None while it does not run."""
        with self._lock:
            for pod in self._pods.values():
                if pod.name == name and pod.process is not None and pod.process.poll() is None:
                    return pod.process.pid
        return None

    def runs(self, name: str) -> int:
        """How many processes a pod has had."""
        return sum(entry[1:] == (name, "start") for entry in self.log)

    def pods_on(self, node: str) -> list[str]:
        """Names of the pods that a node runs."""
        with self._lock:
            return [pod.name for pod in self._pods.values() if pod.node == node and not pod.is_over]

    def kill(self, name: str) -> bool:
        """`kill -9` a pod's processes; whether there were any."""
        pid = self.pid(name)
        if pid is None:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        return True

    def kill_node(self, node: str) -> list[str]:
        """A machine loses power: its pods' processes are gone, and nobody reports how they ended."""
        with self._lock:
            lost = [pod for pod in self._pods.values() if pod.node == node and not pod.is_over]
            for pod in lost:
                pod.is_over = True
                self._signal(pod, signal.SIGKILL)
        for pod in lost:
            self._patch(pod, {"phase": "Failed", "reason": "NodeLost", "containerStatuses": None, "conditions": None})
        return [pod.name for pod in lost]

    def alive(self) -> list[str]:
        """Names of pods whose process runs."""
        with self._lock:
            return [p.name for p in self._pods.values() if p.process is not None and p.process.poll() is None]

    def output(self, name: str) -> str:
        """What the incarnations of a pod have written."""
        return self._starter.output(name)

    def _serve(self) -> None:
        while not self._stopping.is_set():
            try:
                self._step()
            except (httpx2.HTTPError, ValueError, KeyError):
                time.sleep(0.1)  # the API server is away; processes go on meanwhile
            self._watch.changed.wait(0.05)  # processes end without a notice

    def _step(self) -> None:
        """Compare with the API server once."""
        self._watch.changed.clear()
        bodies = self._watch.bodies()
        with self._lock:
            for uid in set(self._pods) - set(bodies):
                self._signal(self._pods.pop(uid), signal.SIGKILL)
            for uid, body in bodies.items():
                if uid in self._pods:
                    self._pods[uid].body = body
                elif (body.get("status") or {}).get("phase") == "Pending":
                    self._admit(uid, body)
            pods = list(self._pods.values())
        for pod in pods:
            self._advance(pod)

    def _admit(self, uid: str, body: dict[str, Any]) -> None:
        """Schedule a new pod."""
        self._next_address += 1
        number = self._next_address
        node = self.nodes[number % len(self.nodes)]
        pod = Running(body, node, f"127.77.{number // 250}.{number % 250 + 1}")
        self._pods[uid] = pod
        metadata = body["metadata"]
        binding = {"metadata": {"name": pod.name}, "target": {"kind": "Node", "name": node}}  # without: no grace period
        self._client.post(f"/api/v1/namespaces/{metadata['namespace']}/pods/{pod.name}/binding", json=binding)
        self._write_hosts()
        self._launch(pod)

    def _advance(self, pod: Running) -> None:
        """One step of one pod: deletion, exit, restart."""
        if pod.body["metadata"].get("deletionTimestamp"):
            self._terminate(pod)
            return
        if pod.is_over:
            return
        if pod.process is None:
            if time.monotonic() >= pod.restart_at:
                self._launch(pod)
            return
        code = pod.process.poll()
        if code is None:
            self._probe(pod)
            return
        code = 128 - code if code < 0 else code
        self.log.append((time.time(), pod.name, f"exit {code}"))
        self._signal(pod, signal.SIGKILL)  # what it left behind
        policy = pod.body["spec"].get("restartPolicy", "Always")
        ended = {"terminated": {"exitCode": code, "reason": "Completed" if code == 0 else "Error"}}
        if policy == "Always" or (policy == "OnFailure" and code != 0):
            pod.restarts += 1
            pod.process = None
            delay = 0.0 if pod.restarts == 1 else min(0.2 * 2 ** (pod.restarts - 2), 2.0)
            pod.restart_at = time.monotonic() + delay
            pod.last_state = ended
            self._report(pod, "Running", {"waiting": {"reason": "CrashLoopBackOff"}}, ready=False)
        else:
            pod.is_over = True
            self._report(pod, "Failed" if code else "Succeeded", ended, ready=False)

    def _terminate(self, pod: Running) -> None:
        """End a pod that was deleted: SIGTERM, a grace period, SIGKILL, then remove the object."""
        metadata = pod.body["metadata"]
        runs = pod.process is not None and pod.process.poll() is None
        if runs and pod.kill_at is None:
            pod.kill_at = time.monotonic() + metadata.get("deletionGracePeriodSeconds", 30)
            self._signal(pod, signal.SIGTERM)
            return
        if runs and pod.kill_at is not None and time.monotonic() < pod.kill_at:
            return
        self._signal(pod, signal.SIGKILL)
        pod.is_over = True
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{pod.name}"
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}}
        self._client.request("DELETE", path, json=options)

    def _launch(self, pod: Running) -> None:
        """Start a pod's process."""
        if self.is_idle:
            pod.restart_at = float("inf")
        else:
            pod.process = self._starter.start(pod.body, pod.address)
            self.log.append((time.time(), pod.name, "start"))
        pod.is_ready = self.is_idle or _probe_command(pod) is None
        self._report(pod, "Running", {"running": {"startedAt": _now()}}, ready=pod.is_ready)

    def _probe(self, pod: Running) -> None:
        """Run a pod's readiness probe, a command in its mount namespace, and report what has changed."""
        command = _probe_command(pod)
        if command is None or pod.process is None or time.monotonic() < pod.probe_at:
            return
        pod.probe_at = time.monotonic() + 0.5
        done = subprocess.run(["nsenter", "-t", str(pod.process.pid), "-m", *command], capture_output=True, timeout=10)
        if (done.returncode == 0) != pod.is_ready:
            pod.is_ready = done.returncode == 0
            self._report(pod, "Running", {"running": {"startedAt": _now()}}, ready=pod.is_ready)

    def _write_hosts(self) -> None:
        """The DNS names that headless services give pods."""
        names = {}
        for pod in self._pods.values():
            spec, namespace = pod.body["spec"], pod.body["metadata"]["namespace"]
            if "subdomain" in spec and not pod.is_over:
                name = f"{spec['hostname']}.{spec['subdomain']}.{namespace}.svc"
                names[f"{name} {name}.cluster.local {spec['hostname']}"] = pod.address
        self._starter.write_hosts(names)

    def _read(self, plural: str, namespace: str, name: str) -> dict[str, Any]:
        """A ConfigMap or a Secret that a pod mounts."""
        answer = self._client.get(f"/api/v1/namespaces/{namespace}/{plural}/{name}")
        answer.raise_for_status()
        return answer.json()

    def _has_ended(self, name: str) -> bool:
        with self._lock:
            return all(pod.is_over for pod in self._pods.values() if pod.name == name)

    def _join(self) -> None:
        """Register the nodes: the API server reads logs from them."""
        for node in self.nodes:
            self._client.post("/api/v1/nodes", json={"metadata": {"name": node}}).raise_for_status()
            status = {
                "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": self._logs.port}},
            }
            headers = {"Content-Type": "application/merge-patch+json"}
            place = f"/api/v1/nodes/{node}/status"
            self._client.patch(place, content=json.dumps({"status": status}), headers=headers).raise_for_status()

    def _report(self, pod: Running, phase: str, state: dict[str, Any], *, ready: bool) -> None:
        """Write a pod's status."""
        container = {
            "name": "mindspore", "image": "process", "imageID": "", "ready": ready, "restartCount": pod.restarts,
            "state": state, "lastState": pod.last_state,
        }  # fmt: skip
        condition = {"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": _now()}
        self._patch(
            pod,
            {
                "phase": phase, "podIP": pod.address, "podIPs": [{"ip": pod.address}], "startTime": _now(),
                "containerStatuses": [container], "conditions": [condition],
            },
        )  # fmt: skip

    def _patch(self, pod: Running, status: dict[str, Any]) -> None:
        metadata = pod.body["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{pod.name}/status"
        content = json.dumps({"metadata": {"uid": metadata["uid"]}, "status": status})
        headers = {"Content-Type": "application/merge-patch+json"}
        for _ in range(600):  # the API server may be away; a real kubelet tries again too
            if self._stopping.is_set():
                return
            with contextlib.suppress(httpx2.TransportError):
                answer = self._client.patch(path, content=content, headers=headers)
                if answer.status_code < 500 and answer.status_code != 429:
                    return
            time.sleep(0.1)

    def _signal(self, pod: Running, number: int) -> None:
        if pod.process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pod.process.pid, number)
            if number == signal.SIGKILL:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    pod.process.wait(timeout=5)


def _probe_command(pod: Running) -> list[str] | None:
    """The command of a pod's readiness probe; None without one."""
    container = next(item for item in pod.body["spec"]["containers"] if item["name"] == "mindspore")
    return (container.get("readinessProbe") or {}).get("exec", {}).get("command")


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
