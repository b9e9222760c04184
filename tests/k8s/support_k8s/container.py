"""How a pod's process starts: what its container would give it, on this machine.

Environment with field references, volumes (claims are folders that stay; ConfigMaps and Secrets are files; mount points are
created on this machine), a host name, the names of all pods in /etc/hosts: all in a mount namespace of its own
(`unshare --mount`). Images are ignored, but that the examples are in /opt/sporax is kept.
"""

from __future__ import annotations

import base64
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Body = dict[str, Any]

_PYTHON = str(Path(sys.executable).parent)
_EXAMPLES = Path(__file__).parents[3] / "examples"  # what the image that the examples name has in /opt/sporax


@dataclass
class ContainerStarter:
    """Starts processes. `read` gets a ConfigMap or a Secret: its plural, its namespace and name."""

    folder: Path
    environment: dict[str, str]
    read: Callable[[str, str, str], Body]

    def __post_init__(self) -> None:
        (self.folder / "logs").mkdir(parents=True, exist_ok=True)
        self.hosts = self.folder / "hosts"
        self.hosts.write_text("127.0.0.1 localhost\n")

    def start(self, body: Body, address: str) -> subprocess.Popen[bytes]:
        """Start the container `mindspore` of a pod."""
        metadata = body["metadata"]
        container = next(item for item in body["spec"]["containers"] if item["name"] == "mindspore")
        temporary = self.folder / "tmp" / metadata["uid"]  # what a container writes is gone with its pod
        temporary.mkdir(parents=True, exist_ok=True)
        environment = {"PATH": f"{_PYTHON}:{os.environ['PATH']}", "HOME": str(self.folder), "LANG": "C.UTF-8"}
        environment |= {"TMPDIR": str(temporary)} | self.environment | self._variables(body, container, address)
        command = shlex.join([*container.get("command", []), *container.get("args", [])])
        steps = [
            "mount -t tmpfs tmpfs /opt && mkdir -p /opt/sporax/script",
            f"ln -s {_EXAMPLES} /opt/sporax/examples",
            f"hostname {body['spec'].get('hostname', metadata['name'])}",
            f"mount --bind {shlex.quote(str(self.hosts))} /etc/hosts",
            *self._mounts(body, container),
            f"exec {command}",
        ]
        with open(self.folder / "logs" / f"{metadata['name']}.{time.time():.3f}.log", "ab") as log:
            return subprocess.Popen(
                ["unshare", "--mount", "--uts", "--propagation", "private", "bash", "-c", " && ".join(steps)],
                env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True,
                cwd=container.get("workingDir", str(self.folder)),
            )  # fmt: skip

    def output(self, name: str) -> str:
        """What the incarnations of a pod have written."""
        return "".join(path.read_text(errors="replace") for path in sorted(self.folder.glob(f"logs/{name}.*.log")))

    def write_hosts(self, names: dict[str, str]) -> None:
        """Write the names of all pods for all pods; in place, since bind mounts hold on to the file itself."""
        with open(self.hosts, "r+") as file:
            file.write("127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for name, address in names.items()))
            file.truncate()

    def _mounts(self, body: Body, container: Body) -> list[str]:
        """Commands that bring volumes to where the container wants them."""
        folders = {volume["name"]: self._volume(body, volume) for volume in body["spec"].get("volumes") or []}
        commands = []
        for mount in container.get("volumeMounts") or []:
            if (folder := folders.get(mount["name"])) is not None:
                target = shlex.quote(mount["mountPath"])
                commands.append(f"mkdir -p {target} && mount --bind {shlex.quote(str(folder))} {target}")
        return commands

    def _volume(self, body: Body, volume: Body) -> Path | None:
        """The folder that a volume is here; None for kinds that no test needs."""
        namespace, uid = body["metadata"]["namespace"], body["metadata"]["uid"]
        if claim := volume.get("persistentVolumeClaim"):
            folder = self.folder / "volumes" / claim["claimName"]
            folder.mkdir(parents=True, exist_ok=True)
            return folder
        folder = self.folder / "tmp" / uid / f"volume-{volume['name']}"
        if "emptyDir" in volume:
            folder.mkdir(parents=True, exist_ok=True)
            return folder
        if config_map := volume.get("configMap"):
            data = self.read("configmaps", namespace, config_map["name"])["data"]
            return _write_files(folder, {name: text.encode() for name, text in data.items()})
        if secret := volume.get("secret"):
            data = self.read("secrets", namespace, secret["secretName"])["data"]
            return _write_files(folder, {name: base64.b64decode(text) for name, text in data.items()})
        return None

    def _variables(self, body: Body, container: Body, address: str) -> dict[str, str]:
        """The environment that a container's manifest sets."""
        name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
        fields = {"status.podIP": address, "metadata.name": name, "metadata.namespace": namespace}
        values = {}
        for variable in container.get("env", []):
            source = variable.get("valueFrom", {})
            if reference := source.get("fieldRef"):
                values[variable["name"]] = fields[reference["fieldPath"]]
            elif reference := source.get("secretKeyRef"):
                data = self.read("secrets", namespace, reference["name"])["data"]
                values[variable["name"]] = base64.b64decode(data[reference["key"]]).decode()
            else:
                values[variable["name"]] = variable.get("value", "")
        return values


def _write_files(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder
