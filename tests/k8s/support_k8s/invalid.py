"""Specs that cannot run, as a table: what was sent, what the user sees, after how many seconds, by which layer.

`python -m support_k8s.invalid` (in tests/k8s, as root, with SPORAX_KUBE_ASSETS) measures on that control plane and writes its table of
docs/kubernetes_invalid_specs.md.
"""

from __future__ import annotations

import copy
import json
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from sporax.k8s.resource.job_status import Condition
from sporax.k8s.resource.schema import custom_resource_definition

from .jobs import INVALID, job
from .site import JOBS, Site

PAGE = Path(__file__).parents[3] / "docs" / "kubernetes_invalid_specs.md"
HEAD = """# Specs that cannot run

What each of these shows its user, on real control planes. Written by `python -m support_k8s.invalid` in `tests/k8s`; `test_cluster_invalid.py`
sends them all again. Layers: the *schema* of the CRD refuses the object at `kubectl apply`, and so do its *rules* from Kubernetes 1.25 on; the *operator*
reads it and sets `Failed`/`InvalidSpec`; the operator's *dry run* sends the pod to the API server, and `Failed`/`InvalidSpec` has its words; at
*creation* of the pod something that may change is missing: `Admitted` is False, and the job starts once it is there. Seconds are those from
sending to seeing. The words "The API server does not take Pod …" and "Pod in version …" are left out here.

## Kubernetes 1.20
"""
NEWER = """
## What differs on Kubernetes 1.36

Rules are checked, fields of pods that no one knows are refused, and variables may have any name.
"""
COLUMNS = """
| what is wrong | layer | seconds | what the user sees |
|---|---|---|---|
"""
_MOST_CHARACTERS = 100


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
MISSPELLED = [
    ("misspelled field of a container", _with({"imagePullPolice": "Always"})),
    ("misspelled field of resources", _with({"resources": {"limit": {"memory": "2Gi"}}})),
    ("misspelled field of a pod", _with(nodeSelectors={"gpu": "a"})),
    ("field of a container in the pod", _with(workingDir="/data")),
    ("misspelled kind of a volume", _mounting({"name": "v", "emptyDirectory": {}})),
]
"""Which API servers before 1.25 drop without a word."""
SPECS = [*((what, body) for what, body, _ in INVALID), *PODS]
_RULES = re.findall(r'"message": "([^"]*)"', json.dumps(custom_resource_definition(with_expressions=True)))


def specs(site: Site) -> list[tuple[str, dict[str, Any]]]:
    """What is wrong on this control plane."""
    return [*SPECS, *(MISSPELLED if site.plane.has_rules else [])]


def send(site: Site, number: int, what: str, body: dict[str, Any]) -> Row:
    """Send one spec and wait until its user sees what is wrong with it, or it runs; then it is deleted."""
    name = body["metadata"]["name"]
    name = name if name != "job" else f"wrong-{number}"
    start = time.monotonic()
    answer = site.client.post(JOBS, json={**body, "metadata": {"name": name}})
    if answer.status_code >= 400:
        message = answer.json()["message"]
        layer = "rules" if any(rule in message for rule in _RULES) else "schema"
        return Row(what, layer, time.monotonic() - start, _short(message))
    try:
        site.until(lambda: _reported(site, name) or _ran(site, name), 30, what, pause=0.02)
        seconds, condition = time.monotonic() - start, _reported(site, name)
        if condition is None:
            return Row(what, "none", seconds, "it runs: this server takes it")
        if condition.type == "Admitted":
            return Row(what, "creation", seconds, _short(f"{condition.reason}: {condition.message}"))
        assert condition.reason == "InvalidSpec"
        layer = "dry run" if "The API server does not take" in condition.message else "operator"
        return Row(what, layer, seconds, _short(condition.message))
    finally:
        site.client.delete(f"{JOBS}/{name}")


def _reported(site: Site, name: str) -> Condition | None:
    """The condition that says to the user what is wrong, once there is one."""
    status = site.status(name)
    admitted = status.condition("Admitted")
    if status.is_true("Failed"):
        return status.condition("Failed")
    return admitted if admitted is not None and admitted.status == "False" else None


def _ran(site: Site, name: str) -> bool:
    """Whether its pods run, or have come to a good end before anybody looked."""
    status = site.status(name)
    return status.is_true("Running") or status.is_true("Succeeded")


def _short(words: str) -> str:
    """Words that fit into a table, without names and numbers of this run."""
    words = re.sub(r'MSJob.mindspore.gitee.com "[^"]*" is invalid: ', "", " ".join(words.split()))
    words = re.sub(r"wrong-\d+", "NAME", words).replace("|", "/")
    words = re.sub(r"(NAME-\w+-0-)\w*", r"\1", words)
    for common in (
        "The API server does not take Pod 'NAME-worker-0': ",
        'Pod "NAME-worker-0-" is invalid: ',
        'Pod in version "v1" cannot be handled as a Pod: ',
    ):
        words = words.replace(common, "")
    return words if len(words) <= _MOST_CHARACTERS else f"{words[:_MOST_CHARACTERS]} …"


def page(old: list[Row], new: list[Row]) -> str:
    """The page of the documentation: all rows of an old server, and those of a new one whose layer differs."""
    return f"{HEAD}{_table(old)}{NEWER}{_table(differing(old, new))}"


def differing(old: list[Row], new: list[Row]) -> list[Row]:
    """The new rows that another layer refuses, and those of specs that an old server takes."""
    before = {row.what: row.layer for row in old}
    return [row for row in new if before.get(row.what) != row.layer]


def rows_of(text: str, has_rules: bool) -> list[Row]:
    """The rows of a page for an old server, or for a new one, whose words are stated only where its layer is another."""
    old, new = map(_read_table, text.split(NEWER))
    if not has_rules:
        return old
    return list({row.what: row for row in [*(row._replace(words="") for row in old), *new]}.values())


def _table(rows: list[Row]) -> str:
    lines = (f"| {row.what} | {row.layer} | {row.seconds:.2f} | {row.words} |\n" for row in rows)
    return COLUMNS + "".join(lines)


def _read_table(text: str) -> list[Row]:
    table = text.partition(COLUMNS)[2].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table if line.startswith("|")]
    return [Row(what, layer, float(seconds), words) for what, layer, seconds, words in cells]


def main() -> None:
    """Measure, and write the page."""
    with tempfile.TemporaryDirectory() as folder:
        site = Site(Path(folder) / "site")
        try:
            measured = [send(site, number, *spec) for number, spec in enumerate(specs(site))]
            old, new = (rows_of(PAGE.read_text(), has_rules) for has_rules in (False, True))
            PAGE.write_text(page(old, measured) if site.plane.has_rules else page(measured, new))
        finally:
            site.stop()


if __name__ == "__main__":
    sys.exit(main())
