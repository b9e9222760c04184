"""A kubelet whose pods are local processes, for tests: it schedules, starts, watches, restarts and ends them.

What a program in a pod can notice is kept: environment with field references and secrets, restart policies, readiness,
termination with a grace period, exit codes, log files, an address of its own (in 127.0.0.0/8) and the DNS names of
headless services. Names are resolved by a hosts file that is mounted over /etc/hosts in each pod's own mount namespace
(`unshare --mount`), so that code in C resolves them too. Volumes are folders per claim; images are ignored.

A *node* is a label in memory: `kill_node` ends all processes of its pods at once and says nothing for them, as a machine
that lost power does; the pods are then marked lost, as the node controller would.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2

_PYTHON = str(Path(sys.executable).parent)
_EXAMPLES = Path(__file__).parents[3] / "examples"  # what the image that the examples name has in /opt/sporax


@dataclass
class Running:
    """One pod's process."""

    body: dict[str, Any]
    node: str
    address: str
    process: subprocess.Popen[bytes] | None = None
    restarts: int = 0
    restart_at: float = 0.0
    started: float = 0.0
    kill_at: float | None = None
    last_state: dict[str, Any] = field(default_factory=dict)
    is_over: bool = False

    @property
    def name(self) -> str:
        return self.body["metadata"]["name"]


class ProcessKubelet:
    """Runs every pod of a cluster as a process, in a thread of its own."""

    def __init__(self, url: str, token: str, folder: Path, nodes: int = 2, environment: dict[str, str] | None = None):
        self.folder = folder
        self.nodes = [f"node-{number}" for number in range(nodes)]
        self.environment = environment or {}
        self.is_idle = False  # pods count as running, but no process is started
        self.log: list[tuple[float, str, str]] = []  # when, pod, what
        self._client = httpx2.Client(
            base_url=url, verify=False, headers={"Authorization": f"Bearer {token}"}, timeout=10
        )
        self._pods: dict[str, Running] = {}  # by uid
        self._lock = threading.RLock()
        self._stopping = threading.Event()
        self._next_address = 0
        self._thread = threading.Thread(target=self._serve, daemon=True)
        folder.mkdir(parents=True, exist_ok=True)
        self._hosts = folder / "hosts"
        self._hosts.write_text("127.0.0.1 localhost\n")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(timeout=30)
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

    def kill(self, name: str) -> bool:
        """`kill -9` a pod's processes; whether there were any."""
        pid = self.pid(name)
        if pid is None:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        return True

    def kill_node(self, node: str) -> list[str]:
        """A machine loses power: its pods' processes are gone, and nobody tells how they ended."""
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
        return "".join(path.read_text(errors="replace") for path in sorted(self.folder.glob(f"logs/{name}.*.log")))

    def _serve(self) -> None:
        while not self._stopping.is_set():
            try:
                self._step()
            except (httpx2.HTTPError, ValueError, KeyError):
                time.sleep(0.1)  # the API server is away; processes go on meanwhile
            self._stopping.wait(1.0 if self.is_idle else 0.05)  # listing all pods burdens the API server

    def _step(self) -> None:
        """Compare with the API server once."""
        answer = self._client.get("/api/v1/pods")
        answer.raise_for_status()
        bodies = {body["metadata"]["uid"]: body for body in answer.json()["items"]}
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
        body = pod.body
        if self.is_idle:
            pod.restart_at = float("inf")
            self._report(pod, "Running", {"running": {"startedAt": _now()}}, ready=True)
            return
        container = next(item for item in body["spec"]["containers"] if item["name"] == "mindspore")
        environment = {"PATH": f"{_PYTHON}:{os.environ['PATH']}", "HOME": str(self.folder), "LANG": "C.UTF-8"}
        own_folder = self.folder / "tmp" / body["metadata"]["uid"]  # what a container writes is gone with its pod
        own_folder.mkdir(parents=True, exist_ok=True)
        environment["TMPDIR"] = str(own_folder)
        environment |= self.environment | self._variables(pod, container)
        command = [*container.get("command", []), *container.get("args", [])]
        image = (
            f"mount -t tmpfs tmpfs /opt && mkdir -p /opt/sporax/script && ln -s {_EXAMPLES} /opt/sporax/examples && "
        )
        script = f"{image}hostname {body['spec'].get('hostname', pod.name)} && mount --bind {shlex.quote(str(self._hosts))} /etc/hosts && {self._mounts(body, container)}exec {shlex.join(command)}"
        logs = self.folder / "logs"
        logs.mkdir(exist_ok=True)
        with open(logs / f"{pod.name}.{time.time():.3f}.log", "ab") as log:
            pod.process = subprocess.Popen(
                ["unshare", "--mount", "--uts", "--propagation", "private", "bash", "-c", script],
                env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True,
                cwd=container.get("workingDir", str(self.folder)),
            )  # fmt: skip
        pod.started = time.monotonic()
        self.log.append((time.time(), pod.name, "start"))
        self._report(pod, "Running", {"running": {"startedAt": _now()}}, ready=True)

    def _mounts(self, body: dict[str, Any], container: dict[str, Any]) -> str:
        """Commands that bring claimed volumes to where the container wants them."""
        claims = {v["name"]: v["persistentVolumeClaim"]["claimName"] for v in body["spec"].get("volumes", []) if "persistentVolumeClaim" in v}  # fmt: skip
        commands = ""
        for mount in container.get("volumeMounts", []):
            if mount["name"] in claims:
                folder = self.folder / "volumes" / claims[mount["name"]]
                folder.mkdir(parents=True, exist_ok=True)
                target = shlex.quote(mount["mountPath"])
                commands += f"mkdir -p {target} && mount --bind {shlex.quote(str(folder))} {target} && "
        return commands

    def _variables(self, pod: Running, container: dict[str, Any]) -> dict[str, str]:
        """The container's environment."""
        fields = {"status.podIP": pod.address, "metadata.name": pod.name, "metadata.namespace": pod.body["metadata"]["namespace"]}  # fmt: skip
        values = {}
        for variable in container.get("env", []):
            reference = variable.get("valueFrom", {}).get("fieldRef")
            values[variable["name"]] = fields[reference["fieldPath"]] if reference else variable.get("value", "")
        return values

    def _write_hosts(self) -> None:
        """The names of all pods, in place: bind mounts hold on to the file itself."""
        lines = ["127.0.0.1 localhost"]
        for pod in self._pods.values():
            spec, namespace = pod.body["spec"], pod.body["metadata"]["namespace"]
            if "subdomain" in spec and not pod.is_over:
                name = f"{spec['hostname']}.{spec['subdomain']}.{namespace}.svc"
                lines.append(f"{pod.address} {name} {name}.cluster.local {spec['hostname']}")
        with open(self._hosts, "r+") as file:
            file.write("\n".join(lines) + "\n")
            file.truncate()

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


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
