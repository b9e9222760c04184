"""A real etcd, kube-apiserver and kube-controller-manager on this machine, for tests.

The binaries come from the folder that SPORAX_KUBE_ASSETS or KUBEBUILDER_ASSETS names (envtest's layout); `make test-cluster`
builds them and sets it. Versions 1.20 and 1.36 were tried. There is no scheduler and no kubelet: `kubelet.ProcessKubelet`
plays both.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2
import pytest
import yaml

BINARIES = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl")
ADMIN_TOKEN = "admin-token"
AUDITED = "system:serviceaccount:sporax-system:sporax-operator"  # whose calls are written down
_SETTLING = timedelta(seconds=2)  # after an API server says that it is ready
HOW_TO = "no control plane here: run `make test-cluster`, which builds one and runs these tests"


def assets() -> Path | None:
    """The folder with all binaries; None if there is none."""
    places = [os.environ.get("SPORAX_KUBE_ASSETS"), os.environ.get("KUBEBUILDER_ASSETS")]
    for place in map(Path, filter(None, places)):
        if all((place / name).exists() or shutil.which(name) for name in BINARIES) and (place / BINARIES[1]).exists():
            return place
    return None


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class ControlPlane:
    """Runs the three processes in a folder; any of them can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.assets = assets()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._starts: list[tuple[datetime, datetime]] = []
        self.etcd_port, self.etcd_peer_port, self.port = free_port(), free_port(), free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        version = subprocess.run(
            [self._binary("kube-apiserver"), "--version"], capture_output=True, text=True, check=True
        )
        major, minor = re.findall(r"v(\d+)\.(\d+)", version.stdout)[0]
        self.version = int(major), int(minor)
        self._write_credentials()

    def start(self) -> None:
        self.start_etcd()
        self.start_api_server()
        self.start_controller_manager()

    def start_etcd(self) -> None:
        client, peer = f"http://127.0.0.1:{self.etcd_port}", f"http://127.0.0.1:{self.etcd_peer_port}"
        self._run(
            "etcd",
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
        )

    def start_api_server(self, timeout: float = 90.0) -> None:
        begin = datetime.now(UTC)
        self._run(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self.etcd_port}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.port}",
            f"--cert-dir={self.folder / 'certificates'}",
            "--service-cluster-ip-range=10.200.0.0/16",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self.folder / 'account.key'}",
            f"--service-account-signing-key-file={self.folder / 'account.key'}",
            "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
            "--disable-admission-plugins=ServiceAccount",
            "--kubelet-preferred-address-types=InternalIP",
            f"--audit-policy-file={self.folder / 'audit.yaml'}",
            f"--audit-log-path={self.folder / 'audit.log'}",
        )
        self.wait_ready(timeout)
        self._starts.append((begin, datetime.now(UTC) + _SETTLING))

    def was_starting(self, moment: datetime) -> bool:
        """Whether the API server forbade what it allows then, as it had not read yet who may do what."""
        return any(begin <= moment <= end for begin, end in self._starts)

    @property
    def has_rules(self) -> bool:
        """Whether the API server holds objects to the rules (CEL) of their definition."""
        return self.version >= (1, 25)

    def start_controller_manager(self) -> None:
        no_second_port = ["--port=0"] if self.version < (1, 23) else []
        self._run(
            "kube-controller-manager",
            f"--kubeconfig={self.kubeconfig()}",
            "--controllers=garbagecollector,namespace,serviceaccount,serviceaccount-token,disruption,pvc-protection",
            f"--service-account-private-key-file={self.folder / 'account.key'}",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            f"--secure-port={free_port()}",
            f"--cert-dir={self.folder / 'certificates-manager'}",
            *no_second_port,
        )

    def wait_ready(self, timeout: float = 90.0) -> None:
        end = time.monotonic() + timeout
        with httpx2.Client(verify=False, headers={"Authorization": f"Bearer {ADMIN_TOKEN}"}) as client:
            while time.monotonic() < end:
                with suppress(httpx2.HTTPError):
                    if client.get(f"{self.url}/readyz", timeout=2).status_code == 200:
                        return
                time.sleep(0.1)
        raise TimeoutError((self.folder / "kube-apiserver.log").read_text()[-3000:])

    def kill(self, name: str) -> None:
        """`kill -9` one of the processes."""
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def stop(self) -> None:
        for process in self.processes.values():
            process.send_signal(signal.SIGKILL)
        for process in self.processes.values():
            process.wait()

    def kubeconfig(
        self, token: str = ADMIN_TOKEN, name: str = "admin", namespace: str = "default", server: str = ""
    ) -> Path:
        """A kubeconfig file for a token; without a server, for the API server itself."""
        path = self.folder / f"{name}.kubeconfig"
        cluster = {"server": server or self.url, "insecure-skip-tls-verify": True}
        context = {"cluster": "test", "user": name, "namespace": namespace}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": name, "user": {"token": token}}],
            "contexts": [{"name": "test", "context": context}],
            "current-context": "test",
        }
        path.write_text(yaml.safe_dump(content))
        return path

    def kubectl(self, *arguments: str, text: str | None = None, check: bool = True) -> str:
        """Run kubectl as the administrator; returns what it prints."""
        command = [self._binary("kubectl"), f"--kubeconfig={self.kubeconfig()}", *arguments]
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60)
        if check and done.returncode:
            raise AssertionError(f"{' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def account_token(self, namespace: str, name: str) -> str:
        """A token of a service account, good for a day."""
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": 86400},
        }
        path = f"{self.url}/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        with httpx2.Client(verify=False, headers={"Authorization": f"Bearer {ADMIN_TOKEN}"}) as client:
            answer = client.post(path, json=request, timeout=20)
        answer.raise_for_status()
        return str(answer.json()["status"]["token"])

    def memory_bytes(self, name: str) -> int:
        """Resident memory of one of the processes."""
        return resident_bytes(self.processes[name].pid)

    def _run(self, name: str, *arguments: str) -> None:
        with open(self.folder / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen([self._binary(name), *arguments], stdout=log, stderr=log)

    def _binary(self, name: str) -> str:
        assert self.assets is not None
        return str(self.assets / name) if (self.assets / name).exists() else name

    def _write_credentials(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "tokens.csv").write_text(f"{ADMIN_TOKEN},admin,admin,system:masters\n")
        rules = [{"level": "Metadata", "users": [AUDITED], "omitStages": ["RequestReceived"]}, {"level": "None"}]
        policy = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules}
        (self.folder / "audit.yaml").write_text(yaml.safe_dump(policy))
        key = self.folder / "account.key"
        subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)


def resident_bytes(pid: int) -> int:
    """Resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def on_control_plane(seconds: int = 600) -> list[pytest.MarkDecorator]:
    """Marks of tests that need a control plane, and may take so many seconds each."""
    return [
        pytest.mark.cluster,
        pytest.mark.skipif(assets() is None or os.geteuid() != 0, reason=HOW_TO),
        pytest.mark.timeout(seconds),
        pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # sockets to a killed API server
        pytest.mark.filterwarnings("ignore::pytest.PytestWarning"),  # figures in a report of pytest's newer kind
    ]
