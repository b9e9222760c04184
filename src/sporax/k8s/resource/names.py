"""The names that users, pods and tools see: API group, labels, annotations, ports. Changing one breaks running jobs."""

from __future__ import annotations

from typing import Any

GROUP = "mindspore.gitee.com"
VERSION = "v1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "MSJob"
PLURAL = "msjobs"
SINGULAR = "msjob"
SHORT_NAME = "msj"

# What `spec.runPolicy.managedBy` holds where this operator is meant; any other value means: leave the job alone.
OPERATOR_NAME = f"{GROUP}/sporax-operator"

LABEL_JOB = f"{GROUP}/job-name"
LABEL_ROLE = f"{GROUP}/replica-type"
LABEL_INDEX = f"{GROUP}/replica-index"

CONTAINER = "mindspore"
PORT_NAME = "msjob-port"
DEFAULT_PORT = 2222
PROGRESS_PORT = 2281  # where worker 0 says how far it is

STATE_VOLUME = "sporax-state"
DEFAULT_STATE_PATH = "/var/lib/sporax"

Manifest = dict[str, Any]  # an object of the API server as JSON-like data


def job_selector(job_name: str, role: str | None = None) -> dict[str, str]:
    """Labels that every pod of a job carries, or every pod of one of its roles."""
    labels = {LABEL_JOB: job_name}
    if role is not None:
        labels[LABEL_ROLE] = role.lower()
    return labels


def manifest(version: str, kind: str, metadata: Manifest, **parts: object) -> Manifest:
    """An object as the API server takes it."""
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **parts}


def reference(name: str, uid: str, **more: object) -> Manifest:
    """What names a job in other objects."""
    return {"apiVersion": API_VERSION, "kind": KIND, "name": name, "uid": uid, **more}


def selector_text(labels: dict[str, str]) -> str:
    """Labels as the text form of a selector."""
    return ",".join(f"{key}={value}" for key, value in labels.items())


def pod_name(job_name: str, role: str, index: int) -> str:
    """The name of a pod, the same for every incarnation of it."""
    return f"{job_name}-{role.lower()}-{index}"
