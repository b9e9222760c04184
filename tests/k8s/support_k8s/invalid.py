"""Specs that cannot run, as a table: what was sent, what the user sees, after how many seconds, by which layer.

`python -m support_k8s.invalid` (in tests/k8s, as root, with SPORAX_KUBE_ASSETS) measures and writes docs/kubernetes_invalid_specs.md.
"""

from __future__ import annotations

import copy
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from sporax.k8s.resource.job_status import Condition

from .jobs import INVALID, job
from .site import JOBS, Site

PAGE = Path(__file__).parents[3] / "docs" / "kubernetes_invalid_specs.md"
HEAD = """# Specs that cannot run

What each of these shows its user, on a real control plane (Kubernetes 1.20.2, which has no strict field validation: from 1.25 on unknown
fields of pods are refused as well). Written by `python -m support_k8s.invalid` in `tests/k8s`; `test_cluster_invalid.py` sends them all again. Layers:
the *schema* of the CRD refuses the object at `kubectl apply`; the *operator* reads it and sets `Failed`/`InvalidSpec`; the operator's *dry run* asks
the API server about the pod, and `Failed`/`InvalidSpec` has its words; at *creation* of the pod something that may change is missing: `Admitted` is
False, and the job starts once it is there. Seconds are those from
sending to seeing. The words "The API server does not take Pod …" are left out here.

| what is wrong | layer | seconds | what the user sees |
|---|---|---|---|
"""
_MOST_CHARACTERS = 160


class Row(NamedTuple):
    """One spec and what came of it."""

    what: str
    layer: str
    seconds: float
    words: str


def _with(container: dict[str, Any] | None = None, **pod: Any) -> dict[str, Any]:
    """A job whose workers' pods have some fields more."""
    body = copy.deepcopy(job(workers=1, scheduler=False))
    template = body["spec"]["msReplicaSpecs"]["Worker"]["template"]
    template["metadata"] = pod.pop("metadata", {})
    template["spec"]["containers"][0] |= container or {}
    template["spec"]["containers"] += pod.pop("containers", [])
    template["spec"] |= pod
    return body


def _mounting(*volumes: dict[str, Any], mounts: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return _with({"volumeMounts": mounts or []}, volumes=list(volumes))


_EMPTY = {"name": "v", "emptyDir": {}}
_TERM = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Maybe"}]}]}
PODS = [
    ("memory with a blank", _with({"resources": {"limits": {"memory": "2 GB"}}})),
    ("negative processors", _with({"resources": {"limits": {"cpu": "-1"}}})),
    ("request above the limit", _with({"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}})),
    ("request without limit for a device", _with({"resources": {"requests": {"nvidia.com/gpu": "1"}}})),
    ("unknown pull policy", _with({"imagePullPolicy": "Sometimes"})),
    ("image with blanks around", _with({"image": " sporax:latest "})),
    ("command is text", _with({"command": "train"})),
    ("working directory is a number", _with({"workingDir": 5})),
    ("variable without a name", _with({"env": [{"value": "x"}]})),
    ("variable whose name has a blank", _with({"env": [{"name": "A B", "value": "x"}]})),
    ("variable whose value is a number", _with({"env": [{"name": "A", "value": 1}]})),
    (
        "variable with two values",
        _with({"env": [{"name": "A", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}),
    ),
    (
        "variable of an unknown field",
        _with({"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "status.x"}}}]}),
    ),
    ("variables of a ConfigMap without a name", _with({"envFrom": [{"configMapRef": {}}]})),
    ("port name too long", _with({"ports": [{"name": "a-very-long-port-name", "containerPort": 80}]})),
    ("unknown protocol", _with({"ports": [{"containerPort": 80, "protocol": "HTTP"}]})),
    ("probe of two kinds", _with({"readinessProbe": {"exec": {"command": ["true"]}, "httpGet": {"port": 80}}})),
    ("probe of no kind", _with({"livenessProbe": {"periodSeconds": 5}})),
    ("probe of no such port", _with({"livenessProbe": {"httpGet": {"path": "/", "port": 70000}}})),
    (
        "probe with a negative delay",
        _with({"livenessProbe": {"exec": {"command": ["true"]}, "initialDelaySeconds": -1}}),
    ),
    ("hook of no kind", _with({"lifecycle": {"preStop": {}}})),
    ("negative user", _with({"securityContext": {"runAsUser": -1}})),
    (
        "privileged without privileges",
        _with({"securityContext": {"privileged": True, "allowPrivilegeEscalation": False}}),
    ),
    ("mount of a volume that is not there", _mounting(mounts=[{"name": "nothing", "mountPath": "/x"}])),
    ("mount without a path", _mounting(_EMPTY, mounts=[{"name": "v"}])),
    ("two mounts at one path", _mounting(_EMPTY, mounts=[{"name": "v", "mountPath": "/x"}] * 2)),
    ("volume of two kinds", _mounting({"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}})),
    ("volume whose name is none", _mounting({"name": "V_1", "emptyDir": {}})),
    ("two volumes of one name", _mounting(_EMPTY, _EMPTY)),
    ("ConfigMap volume without a name", _mounting({"name": "v", "configMap": {}})),
    ("host path that is relative", _mounting({"name": "v", "hostPath": {"path": "../x"}})),
    ("second container without image", _with(containers=[{"name": "sidecar"}])),
    ("second container with a wrong name", _with(containers=[{"name": "side_car", "image": "i"}])),
    ("init container without image", _with(initContainers=[{"name": "fetch"}])),
    ("account that is no name", _with(serviceAccountName="Not A Name")),
    ("priority class that is not there", _with(priorityClassName="nothing")),
    ("unknown DNS policy", _with(dnsPolicy="Sometimes")),
    ("no time at all for the pod", _with(activeDeadlineSeconds=0)),
    ("node selector with a number", _with(nodeSelector={"gpu": 1})),
    ("unknown operator of a toleration", _with(tolerations=[{"key": "a", "operator": "Maybe"}])),
    (
        "unknown operator of an affinity",
        _with(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _TERM}}),
    ),
    ("label that is none", _with(metadata={"labels": {"team": "not a label!"}})),
    ("annotation whose key is none", _with(metadata={"annotations": {"a b": "x"}})),
]
SPECS = [*((what, body) for what, body, _ in INVALID), *PODS]


def send(site: Site, number: int, what: str, body: dict[str, Any]) -> Row:
    """Send one spec and wait until its user sees what is wrong with it; then it is deleted."""
    name = body["metadata"]["name"]
    name = name if name != "job" else f"wrong-{number}"
    start = time.monotonic()
    answer = site.client.post(JOBS, json={**body, "metadata": {"name": name}})
    if answer.status_code >= 400:
        return Row(what, "schema", time.monotonic() - start, _short(answer.json()["message"]))
    try:
        site.until(lambda: _told(site, name) is not None, 30, what, pause=0.02)
        seconds, condition = time.monotonic() - start, _told(site, name)
        assert condition is not None
        if condition.type == "Admitted":
            return Row(what, "creation", seconds, _short(f"{condition.reason}: {condition.message}"))
        assert condition.reason == "InvalidSpec"
        layer = "dry run" if "The API server does not take" in condition.message else "operator"
        return Row(what, layer, seconds, _short(condition.message))
    finally:
        site.client.delete(f"{JOBS}/{name}")


def _told(site: Site, name: str) -> Condition | None:
    """The condition that tells the user what is wrong, once there is one."""
    status = site.status(name)
    admitted = status.condition("Admitted")
    if status.is_true("Failed"):
        return status.condition("Failed")
    return admitted if admitted is not None and admitted.status == "False" else None


def _short(words: str) -> str:
    """Words that fit into a table, without names and numbers of this run."""
    words = re.sub(r'MSJob.mindspore.gitee.com "[^"]*" is invalid: ', "", " ".join(words.split()))
    words = re.sub(r"wrong-\d+", "NAME", words).replace("|", "/")
    words = re.sub(r"(NAME-\w+-0-)\w*", r"\1", words)
    words = words.replace("The API server does not take Pod 'NAME-worker-0': ", "").replace(
        'Pod "NAME-worker-0-" is invalid: ', ""
    )
    return words if len(words) <= _MOST_CHARACTERS else f"{words[:_MOST_CHARACTERS]} …"


def page(rows: list[Row]) -> str:
    """The page of the documentation."""
    lines = (f"| {row.what} | {row.layer} | {row.seconds:.2f} | {row.words} |\n" for row in rows)
    return HEAD + "".join(lines)


def rows_of(text: str) -> list[Row]:
    """The rows of a page."""
    table = text.partition("|---|---|---|---|\n")[2].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table if line.startswith("|")]
    return [Row(what, layer, float(seconds), words) for what, layer, seconds, words in cells]


def main() -> None:
    """Measure, and write the page."""
    with tempfile.TemporaryDirectory() as folder:
        site = Site(Path(folder) / "site")
        try:
            PAGE.write_text(page([send(site, number, *spec) for number, spec in enumerate(SPECS)]))
        finally:
            site.stop()


if __name__ == "__main__":
    sys.exit(main())
