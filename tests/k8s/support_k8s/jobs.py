"""Jobs for tests: valid ones, and thirty that cannot run."""

from __future__ import annotations

import copy
from typing import Any

Body = dict[str, Any]


def template(*command: str, **container: Any) -> Body:
    return {
        "spec": {"containers": [{"name": "mindspore", "image": "mindspore:2", "command": list(command), **container}]}
    }


def role(replicas: int, *command: str, **fields: Any) -> Body:
    return {"replicas": replicas, "template": template(*command), **fields}


def job(name: str = "job", *, workers: int = 2, servers: int = 0, scheduler: bool = True, **spec: Any) -> Body:
    roles = {"Worker": role(workers)}
    if servers:
        roles["PS"] = role(servers)
    if scheduler:
        roles["Scheduler"] = role(1)
    return {
        "apiVersion": "mindspore.gitee.com/v1",
        "kind": "MSJob",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "generation": 1},
        "spec": {"msReplicaSpecs": roles, **spec},
    }


def changed(path: str, value: Any, **options: Any) -> Body:
    """A job with one field changed; `del` as the value deletes it."""
    body = copy.deepcopy(job(servers=1, **options))
    *parents, last = path.split("/")
    place: Any = body
    for key in parents:
        place = place[int(key)] if isinstance(place, list) else place.setdefault(key, {})
    if value == "del":
        del place[last]
    else:
        place[last] = value
    return body


def named_by_rules(field: str) -> str:
    """What the message of a rule has for a field: the field's last part, but rules of all roles name no role of the job."""
    return {"Wroker": "the roles are", "Worker": "Worker"}.get(field, field.rpartition(".")[2])


ROLES = "spec/msReplicaSpecs"
CONTAINERS = "template/spec/containers"

# (what is wrong, a job with it, the field that the refusal names)
INVALID = [
    ("no spec", changed("spec", {}), "msReplicaSpecs"),
    ("no roles", changed(ROLES, {}), "msReplicaSpecs"),
    ("roles are a list", changed(ROLES, []), "msReplicaSpecs"),
    ("unknown role", changed(f"{ROLES}/Wroker", role(1)), "Wroker"),
    ("role twice", changed(f"{ROLES}/worker", role(1)), "msReplicaSpecs"),
    ("no worker", changed(f"{ROLES}/Worker", "del"), "Worker"),
    ("no worker wanted", changed(f"{ROLES}/Worker/replicas", 0), "Worker.replicas"),
    ("negative replicas", changed(f"{ROLES}/Worker/replicas", -3), "Worker.replicas"),
    ("replicas are text", changed(f"{ROLES}/Worker/replicas", "two"), "Worker.replicas"),
    ("replicas are a fraction", changed(f"{ROLES}/Worker/replicas", 1.5), "Worker.replicas"),
    ("two schedulers", changed(f"{ROLES}/Scheduler/replicas", 2), "Scheduler.replicas"),
    ("servers without a scheduler", changed(f"{ROLES}/Scheduler", "del"), "Scheduler"),
    ("unknown restart policy", changed(f"{ROLES}/Worker/restartPolicy", "Sometimes"), "Worker.restartPolicy"),
    ("unknown success policy", changed("spec/successPolicy", "Nope"), "successPolicy"),
    ("unknown clean-up policy", changed("spec/runPolicy/cleanPodPolicy", "Most"), "cleanPodPolicy"),
    ("negative time to live", changed("spec/runPolicy/ttlSecondsAfterFinished", -1), "ttlSecondsAfterFinished"),
    ("no time at all", changed("spec/runPolicy/activeDeadlineSeconds", 0), "activeDeadlineSeconds"),
    ("negative retries", changed("spec/runPolicy/backoffLimit", -1), "backoffLimit"),
    ("suspend is text", changed("spec/runPolicy/suspend", "yes"), "suspend"),
    ("gang larger than the job", changed("spec/runPolicy/schedulingPolicy", {"minAvailable": 9}), "minAvailable"),
    ("no template", changed(f"{ROLES}/Worker/template", "del"), "template"),
    ("no containers", changed(f"{ROLES}/Worker/{CONTAINERS}", []), "containers"),
    ("wrong container name", changed(f"{ROLES}/Worker/{CONTAINERS}/0/name", "main"), "containers"),
    ("no image", changed(f"{ROLES}/PS/{CONTAINERS}/0/image", "del"), "image"),
    ("no such port", changed(f"{ROLES}/PS/{CONTAINERS}/0/ports", [{"containerPort": 70000}]), "containerPort"),
    ("limits without elasticity", changed(f"{ROLES}/Worker/maxReplicas", 4), "minReplicas"),
    (
        "least above most",
        changed(f"{ROLES}/Worker", role(2, minReplicas=4, maxReplicas=3), enableDynamicWorker=True),
        "minReplicas",
    ),
    (
        "a volume for workers",
        changed(f"{ROLES}/Worker/persistentVolumeClaimTemplate", {"spec": {}}),
        "persistentVolumeClaimTemplate",
    ),
    ("failure rule without action", changed("spec/failurePolicy", {"rules": [{"exitCodes": [3]}]}), "action"),
    ("impossible exit code", changed("spec/failurePolicy", {"rules": [{"action": "FailJob", "exitCodes": [0]}]}), "exitCodes"),
    (
        "a failure rule that is never applied",
        changed("spec/failurePolicy", {"rules": [{"action": "Ignore", "roles": ["Worker"]}]}, workers=2)
        | {"spec": job(failurePolicy={"rules": [{"action": "Ignore"}]})["spec"] | {"msReplicaSpecs": {"Worker": role(1, restartPolicy="OnFailure")}}},
        "failurePolicy",
    ),
    ("two kinds of keys", changed("spec/securityPolicy", {kind: {"secretRef": {"name": "k"}} for kind in ("curve", "token")}), "securityPolicy"),
    ("keys without a Secret", changed("spec/securityPolicy", {"curve": {}}), "secretRef"),
    ("a Secret without a name", changed("spec/securityPolicy", {"token": {"secretRef": {"name": ""}}}), "name"),
    ("name is no host name", changed("metadata/name", "9.lives"), "metadata.name"),
    ("name too long", changed("metadata/name", "n" * 60), "metadata.name"),
]  # fmt: skip
