"""The custom resource definition of `MSJob`: a structural schema that refuses what cannot run.

The original's has no schema beyond the field names. Here enums, minimums, required fields and defaults are checked by the
API server. What a schema of Kubernetes before 1.25 cannot say (names of roles in any case, rules across fields) is
checked by `spec.read_job`; `admission_rules` says it in the Common Expression Language for newer servers.

Two traps of real servers shape this: a default of "" on an enum is refused by 1.20, and unknown roles must not be pruned
silently, so the roles are `additionalProperties` and the operator names the wrong one.
"""

from __future__ import annotations

from typing import Any

from sporax.k8s.resource import admission_rules, names
from sporax.k8s.resource.admission_rules import with_rules
from sporax.k8s.resource.descriptions import described
from sporax.k8s.resource.spec import CleanPodPolicy, FailureAction, PodRole, RestartPolicy

Schema = dict[str, Any]

_ANYTHING: Schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_TIME: Schema = {"type": "string", "format": "date-time"}


def custom_resource_definition(*, with_expressions: bool = False) -> Schema:
    """The CRD.

    Args:
        with_expressions: include rules across fields, which API servers know from 1.25 on.
    """
    worker = f".spec.msReplicaSpecs.{PodRole.WORKER.value}.replicas"
    workers = f".status.replicaStatuses.{PodRole.WORKER.value}.active"
    version = {
        "name": names.VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _job_schema(with_expressions)},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": worker,
                "statusReplicasPath": workers,
                "labelSelectorPath": ".status.selector",
            },
        },
        "additionalPrinterColumns": [
            {"name": "State", "type": "string", "jsonPath": ".status.conditions[-1:].type"},
            {"name": "Workers", "type": "integer", "jsonPath": workers},
            {
                "name": "Servers",
                "type": "integer",
                "jsonPath": f".status.replicaStatuses.{PodRole.SERVER.value}.active",
            },
            {"name": "Step", "type": "integer", "jsonPath": ".status.progress.step"},
            {"name": "Restarts", "type": "integer", "jsonPath": ".status.restarts"},
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        ],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names.PLURAL}.{names.GROUP}"},
        "spec": {
            "group": names.GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": names.KIND,
                "listKind": f"{names.KIND}List",
                "plural": names.PLURAL,
                "singular": names.SINGULAR,
                "shortNames": [names.SHORT_NAME],
            },
            "versions": [version],
        },
    }


def _object(properties: Schema, *required: str) -> Schema:
    """An object with these properties."""
    return {"type": "object", "properties": properties} | ({"required": list(required)} if required else {})


def _checked(properties: Schema, *required: str) -> Schema:
    """An object whose misspelled fields reach the operator, which names them; the API server would drop them silently."""
    return _object(properties, *required) | {"x-kubernetes-preserve-unknown-fields": True}


def _integer(minimum: int, maximum: int | None = None) -> Schema:
    """A whole number."""
    bound = {} if maximum is None else {"maximum": maximum}
    return {"type": "integer", "format": "int32", "minimum": minimum, **bound}


def _choice(values: Any, default: str | None = None) -> Schema:
    """One of some words."""
    return {"type": "string", "enum": [str(value) for value in values]} | ({"default": default} if default else {})


def _job_schema(with_expressions: bool) -> Schema:
    """The whole object."""
    spec = _checked(
        {
            "msReplicaSpecs": {
                "type": "object",
                "minProperties": 1,
                "maxProperties": admission_rules.MOST_ROLES,
                "additionalProperties": _replica_schema(with_expressions),
            },
            "runPolicy": _run_policy_schema(),
            "successPolicy": _choice(["", "AllWorkers"]),
            "enableDynamicWorker": {"type": "boolean"},
            "enableDynamicServer": {"type": "boolean"},
            "failurePolicy": _failure_policy_schema(),
            "securityPolicy": _security_policy_schema(),
        },
        "msReplicaSpecs",
    )
    if with_expressions:
        spec = with_rules(spec, admission_rules.spec_rules())
    properties = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "spec": spec,
        "status": _status_schema(),
    }
    job = {"description": "A training job of MindSpore's roles, run by Sporax."} | described(
        _object(properties, "spec")
    )
    return with_rules(job, admission_rules.job_rules()) if with_expressions else job


def _replica_schema(with_expressions: bool) -> Schema:
    """One role."""
    port = {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
        "required": ["containerPort"],
        "properties": {"containerPort": _integer(1, 65535)},
    }
    container = {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
        "required": ["name"],
        "properties": {
            "name": {"type": "string", "minLength": 1},
            "image": {"type": "string", "minLength": 1},
            "ports": {"type": "array", "items": port},
        },
    }
    pod = {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
        "required": ["containers"],
        "properties": {
            "containers": {
                "type": "array",
                "minItems": 1,
                "maxItems": admission_rules.MOST_CONTAINERS,
                "items": container,
            }
        },
    }
    claim = _checked(
        {"metadata": _ANYTHING, "spec": _ANYTHING, "mountPath": {"type": "string", "pattern": "^/"}}, "spec"
    )
    role = _checked(
        {
            "replicas": _integer(0) | {"default": 1},
            "minReplicas": _integer(0),
            "maxReplicas": _integer(0),
            "restartPolicy": _choice(RestartPolicy, RestartPolicy.NEVER.value),
            "template": _object({"metadata": _ANYTHING, "spec": pod}, "spec"),
            "persistentVolumeClaimTemplate": claim,
        },
        "template",
    )
    return with_rules(role, admission_rules.role_rules()) if with_expressions else role


def _run_policy_schema() -> Schema:
    """How long, how often, and what is left."""
    quantity = {"x-kubernetes-int-or-string": True}
    return _checked(
        {
            "cleanPodPolicy": _choice(CleanPodPolicy, CleanPodPolicy.RUNNING.value),
            "ttlSecondsAfterFinished": _integer(0),
            "activeDeadlineSeconds": _integer(1) | {"format": "int64"},
            "backoffLimit": _integer(0),
            "maxRestarts": _integer(0),
            "suspend": {"type": "boolean"},
            "managedBy": {"type": "string", "maxLength": 63},
            "schedulingPolicy": _checked(
                {
                    "minAvailable": _integer(1),
                    "queue": {"type": "string"},
                    "minResources": {"type": "object", "additionalProperties": quantity},
                    "priorityClass": {"type": "string"},
                    "scheduleTimeoutSeconds": _integer(0),
                }
            ),
        }
    )


def _failure_policy_schema() -> Schema:
    """Rules, first match first."""
    rule = _checked(
        {
            "action": _choice(FailureAction),
            "roles": {"type": "array", "maxItems": admission_rules.MOST_RULE_ROLES, "items": _choice(PodRole)},
            "exitCodes": {"type": "array", "items": _integer(1, 255)},
            "reasons": {"type": "array", "items": {"type": "string"}},
        },
        "action",
    )
    return _checked({"rules": {"type": "array", "minItems": 1, "maxItems": 20, "items": rule}}, "rules")


def _security_policy_schema() -> Schema:
    """Keys from one of two kinds of Secrets, and who may connect."""
    reference = _checked({"name": {"type": "string", "minLength": 1}}, "name")
    source = _checked({"secretRef": reference}, "secretRef")
    return _checked({"curve": source, "token": source, "networkPolicy": {"type": "boolean"}}) | {
        "not": {"required": ["curve", "token"]}
    }


def _status_schema() -> Schema:
    """What the operator writes."""
    condition = _object(
        {
            "type": {"type": "string"},
            "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
            "observedGeneration": {"type": "integer", "format": "int64"},
            "reason": {"type": "string"},
            "message": {"type": "string"},
            "lastUpdateTime": _TIME,
            "lastTransitionTime": _TIME,
        },
        "type",
        "status",
    )
    counts = {name: {"type": "integer", "format": "int32"} for name in ("active", "ready", "succeeded", "failed")}
    record = _object(
        {
            "uid": {"type": "string"},
            "settledUid": {"type": "string"},
            "since": _TIME,
            "restarts": {"type": "integer"},
            "containerRestarts": {"type": "integer"},
            "quickFailures": {"type": "integer"},
            "notBefore": _TIME,
            "result": {"type": "string"},
        }
    )
    return _object(
        {
            "conditions": {
                "type": "array",
                "items": condition,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
            },
            "replicaStatuses": {
                "type": "object",
                "additionalProperties": _object(counts | {"labelSelector": _ANYTHING}),
            },
            "startTime": _TIME,
            "completionTime": _TIME,
            "lastReconcileTime": _TIME,
            "observedGeneration": {"type": "integer", "format": "int64"},
            "restarts": {"type": "integer"},
            "jobRestarts": {"type": "integer"},
            "failures": {"type": "integer"},
            "sizes": {"type": "object", "additionalProperties": {"type": "integer"}},
            "serversMayBeEvicted": {"type": "boolean"},
            "schedulerAnswers": {"type": "boolean"},
            "selector": {"type": "string"},
            "progress": _object(
                {
                    "epoch": {"type": "integer"},
                    "step": {"type": "integer"},
                    # Texts, as Kubernetes' conventions ask for: numbers of JSON are neither nan nor infinite.
                    "loss": {"type": "string"},
                    "samplesPerSecond": {"type": "string"},
                    "time": _TIME,
                }
            ),
            "pods": {"type": "object", "additionalProperties": record},
        }
    )
