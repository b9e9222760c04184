"""The operator has the least rights that work: those it is granted are those it uses, no more and no fewer.

Run by `make test-cluster`, as `test_cluster`. The API server writes down every call of the operator's account (its audit log).
"""

from __future__ import annotations

import base64
import json
from datetime import datetime
from typing import Any

import httpx2
import pytest
from support_k8s.control_plane import on_control_plane
from support_k8s.jobs import job
from support_k8s.site import Site, sleeping

from sporax.k8s.api import manifests
from sporax.ps.sockets.security import write_keys

pytestmark = on_control_plane()

GROUPS = {"scheduling.volcano.sh": "v1beta1", "scheduling.x-k8s.io": "v1alpha1"}
Right = tuple[str, str, str]  # group, resource, verb
# Used only when others interfere: names that are taken, objects that are changed; the last one by admission, not by a call.
RARE: set[Right] = {
    ("", "pods", "get"),
    ("", "services", "get"),
    ("", "persistentvolumeclaims", "get"),
    ("networking.k8s.io", "networkpolicies", "get"),
    ("policy", "poddisruptionbudgets", "get"),
    ("", "services", "patch"),
    ("networking.k8s.io", "networkpolicies", "patch"),
    ("scheduling.volcano.sh", "podgroups", "patch"),
    ("scheduling.x-k8s.io", "podgroups", "patch"),
    ("mindspore.gitee.com", "msjobs/finalizers", "update"),
}


def pod_group_definition(group: str, version: str) -> dict[str, Any]:
    """The CRD of a gang scheduler, reduced to what an API server needs to store its PodGroups."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": "PodGroup", "listKind": "PodGroupList", "plural": "podgroups", "singular": "podgroup"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"podgroups.{group}",
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/scheduler-plugins"},
        },
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [served]},
    }


def granted(rules: list[dict[str, Any]]) -> set[Right]:
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def calls(site: Site) -> list[tuple[Right, int, bool]]:
    """What the operator requested so far, but while an API server started: rights, status codes, whether rights were missing."""
    actual = []
    for line in (site.plane.folder / "audit.log").read_text().splitlines():
        entry = json.loads(line)
        if (place := entry.get("objectRef")) is not None:
            resource = "/".join(filter(None, (place["resource"], place.get("subresource"))))
            if site.plane.was_starting(datetime.fromisoformat(entry["requestReceivedTimestamp"])):
                continue
            right = (place.get("apiGroup", ""), resource, entry["verb"])
            # Admission answers 403, too: of what it objects to, not of rights.
            forbidden = entry.get("annotations", {}).get("authorization.k8s.io/decision") == "forbid"
            actual.append((right, entry.get("responseStatus", {}).get("code", 0), forbidden))
    return actual


def test_every_right_is_used_and_none_is_missing(site, tmp_path):
    gang_job(site, "volcano", "scheduling.volcano.sh")
    gang_job(site, "plugins", "scheduling.x-k8s.io")
    body = sleeping(job("full", servers=2))
    claim = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}}
    body["spec"]["msReplicaSpecs"]["PS"]["persistentVolumeClaimTemplate"] = claim | {"mountPath": str(tmp_path)}
    body["spec"]["securityPolicy"] = {"networkPolicy": True}
    site.apply(body)
    site.until_in("full", "Running")
    site.delete("full")
    site.apply(sleeping(job("short", runPolicy={"ttlSecondsAfterFinished": 1, "activeDeadlineSeconds": 2})))
    site.until(
        lambda: site.client.get("/apis/mindspore.gitee.com/v1/namespaces/default/msjobs/short").status_code == 404
    )
    conflict(site)
    used = {right for right, code, _ in calls(site) if code < 500}
    # Other tests of this control plane run several operators.
    of_several_operators = granted(manifests.lease_rights()[0]["rules"])
    assert used - of_several_operators | RARE == granted(manifests.rules())
    assert [right for right, _, forbidden in calls(site) if forbidden] == []


def gang_job(site: Site, name: str, group: str) -> None:
    """A gang of a scheduler whose CRD is there while it runs. The operator queries it once a minute: start it again."""
    definition = pod_group_definition(group, GROUPS[group])
    site.plane.kubectl("apply", "-f", "-", text=json.dumps(definition))
    site.plane.kubectl("wait", "--for=condition=established", f"crd/podgroups.{group}")
    site.kill_operator()
    site.start_operator()
    site.apply(sleeping(job(name, runPolicy={"schedulingPolicy": {"minAvailable": 3}}), seconds=1))
    site.until(lambda: site.status(name).is_true("GangScheduled"), 30, "a gang")
    site.until_in(name, "Succeeded")
    groups = f"/apis/{group}/{GROUPS[group]}/namespaces/default/podgroups"
    site.until(lambda: not site.client.get(groups).json()["items"], 20, "the reservation is given back")
    site.delete(name)
    site.plane.kubectl("delete", "crd", f"podgroups.{group}")


def conflict(site: Site) -> None:
    """Edit a job again and again while the operator writes its status, until one of its writes comes too late."""
    site.apply(sleeping(job("edited")))
    for number in range(500):
        patch = {"metadata": {"annotations": {"edit": str(number)}}}
        headers = {"Content-Type": "application/merge-patch+json"}
        place = "/apis/mindspore.gitee.com/v1/namespaces/default/msjobs/edited"
        site.client.patch(place, content=json.dumps(patch), headers=headers)
        if number % 20 == 19:
            site.plane.kubectl("delete", "pod", "edited-worker-0", "--wait=false", "--grace-period=1", check=False)
            if any(code == 409 for right, code, _ in calls(site) if right[1] == "msjobs/status"):
                break
    site.until_in("edited", "Running")
    site.delete("edited")


def test_without_a_right_the_operator_says_so_and_goes_on_once_it_has_it(site):
    """The other half of least: a verb taken away is missed."""
    rules = [rule for rule in manifests.rules() if "pods" not in rule["resources"]]
    rules.append({"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "delete"]})
    role = manifests.cluster_role()
    site.plane.kubectl("replace", "-f", "-", text=json.dumps({**role, "rules": rules}))
    site.apply(sleeping(job("forbidden")))
    log = site.plane.folder / "operator.log"
    site.until(lambda: "default/forbidden: a look failed" in log.read_text(), 20)
    assert site.pods("forbidden") == []
    site.plane.kubectl("replace", "-f", "-", text=json.dumps(role))
    site.until_in("forbidden", "Running", 60)
    site.delete("forbidden")


def test_the_liveness_endpoint_answers(site):
    address = f"http://127.0.0.1:{site.liveness_port}/healthz"

    def answers() -> bool:
        try:
            return httpx2.get(address).status_code == 200
        except httpx2.HTTPError:
            return False

    site.until(answers, 20)
    assert httpx2.get(address).status_code == 200


@pytest.mark.parametrize("kind", ["curve", "token"])
def test_a_job_with_keys_trains_encrypted_while_the_operator_knows_none(site, kind, tmp_path):
    write_keys(tmp_path)
    files = {"keys.json": (tmp_path / "keys.json").read_text(), "token": "a token of enough characters"}
    data = {name: base64.b64encode(text.encode()).decode() for name, text in files.items()}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": f"{kind}-keys"}, "data": data}
    site.plane.kubectl("apply", "-f", "-", text=json.dumps(secret))
    name = f"{kind}-job"
    body = job(name, workers=2, servers=1, successPolicy="AllWorkers")
    body["spec"]["securityPolicy"] = {kind: {"secretRef": {"name": f"{kind}-keys"}}}
    script = "/opt/sporax/examples/08-kubernetes/train.py"
    for part in body["spec"]["msReplicaSpecs"].values():
        part["template"]["spec"]["containers"][0]["command"] = [
            "sporax",
            "run",
            script,
            "--steps",
            "20",
            "--pause",
            "0.1",
        ]
    site.apply(body)
    site.until(lambda: "step 5 " in site.kubelet.output(f"{name}-worker-0"), 120)
    assert site.read_membership(name) is None  # without the keys there is no answer
    site.until_in(name, "Succeeded", 120)
    site.delete(name)
