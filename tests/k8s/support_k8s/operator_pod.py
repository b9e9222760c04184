"""The operator's process with what its Deployment gives it, and no more.

It finds the API server as in a cluster, by the files and variables of its service account. It runs as the user that the
manifest names, on a read-only file system, without capabilities but the one to read this machine's Python and checkout
wherever they are (in an image everybody may read them).
"""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

from sporax.k8s.api import manifests

from .control_plane import ControlPlane

_MOUNT_POINT = "/var/run/secrets/kubernetes.io/serviceaccount"


def write_account(folder: Path, plane: ControlPlane) -> None:
    """What a kubelet mounts into a pod of the operator's service account."""
    folder.mkdir()
    (folder / "token").write_text(plane.account_token(manifests.NAMESPACE, manifests.OPERATOR))
    (folder / "namespace").write_text(manifests.NAMESPACE)
    (folder / "ca.crt").write_text((plane.folder / "certificates" / "apiserver.crt").read_text())


def start_as_in_its_pod(command: list[str], plane: ControlPlane, account: Path) -> subprocess.Popen[bytes]:
    """Start the operator; its log is `operator.log` in the control plane's folder."""
    pod = manifests.deployment("")["spec"]["template"]["spec"]
    user = pod["securityContext"]["runAsUser"]
    rights = pod["containers"][0]["securityContext"]
    assert rights["readOnlyRootFilesystem"]
    assert rights["capabilities"]["drop"] == ["ALL"]
    restrict = [
        "setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--no-new-privs",
        "--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search", "--bounding-set=-all,+dac_read_search",
    ]  # fmt: skip
    steps = [
        f"mkdir -p {_MOUNT_POINT}",
        f"mount --bind {shlex.quote(str(account))} {_MOUNT_POINT}",
        "mount -o remount,bind,ro /",
        f"cd / && exec {shlex.join([*restrict, *command])}",
    ]
    environment = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}
    environment |= {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(plane.port)}
    environment |= {key: os.environ[key] for key in ("PYTHONPATH",) if key in os.environ}
    with open(plane.folder / "operator.log", "ab") as log:
        return subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "bash", "-c", " && ".join(steps)],
            env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
        )  # fmt: skip
