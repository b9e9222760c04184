"""The custom resource definition of `MSJob`: a structural schema that refuses what cannot run.

The original's has no schema beyond the field names. Here enums, minimums, required fields and defaults are checked by the
API server. What a schema of Kubernetes before 1.25 cannot say (names of roles in any case, rules across fields) is
checked by `spec.read_job`; `admission_rules` says it in the Common Expression Language for newer servers.

Method: types, bounds and defaults are those of the structs that read a spec (`spec`) and a status (`job_status`); what Kubernetes
says otherwise stands at their fields, or here.

Two traps of real servers shape this: a default of "" on an enum is refused by 1.20, and unknown roles must not be pruned
silently, so the roles are `additionalProperties` and the operator names the wrong one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from msgspec import inspect

from sporax.ir.variables import MAX_PORT
from sporax.k8s.resource import admission_rules, names
from sporax.k8s.resource.admission_rules import with_rules
from sporax.k8s.resource.descriptions import described
from sporax.k8s.resource.job_status import Status
from sporax.k8s.resource.spec import JobSpec, PodRole, ReplicaSpec

Schema = dict[str, Any]

_ANYTHING: Schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_PLAIN: Mapping[type[inspect.Type], Callable[[Any], Schema]] = {
    inspect.BoolType: lambda _: {"type": "boolean"},
    inspect.DateTimeType: lambda _: {"type": "string", "format": "date-time"},
    inspect.IntType: lambda kind: {"type": "integer"} | _bounds(minimum=kind.ge, maximum=kind.le),
    inspect.StrType: lambda kind: {"type": "string"} | _bounds(minLength=kind.min_length),
    inspect.EnumType: lambda kind: {"type": "string", "enum": [str(value) for value in kind.cls]},
    inspect.LiteralType: lambda kind: {"type": "string", "enum": list(kind.values)},
    inspect.AnyType: lambda _: _ANYTHING,
}
"""Schemas of types that hold no others."""


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


def _of(kind: inspect.Type) -> Schema:
    """The schema of the values of a type."""
    match kind:
        case inspect.Metadata():
            own = kind.extra_json_schema or {}
            return own if "type" in own else _of(kind.type) | own
        case inspect.UnionType():
            return _of(next(one for one in kind.types if not isinstance(one, inspect.NoneType)))
        case inspect.StructType():
            return _struct(kind)
        case inspect.ListType():
            return {"type": "array", "items": _of(kind.item_type)}
        case inspect.DictType():
            is_any = isinstance(kind.value_type, inspect.AnyType | inspect.DictType)
            return _ANYTHING if is_any else {"type": "object", "additionalProperties": _of(kind.value_type)}
    return _PLAIN[type(kind)](kind)


def _bounds(**bounds: int | None) -> Schema:
    return {name: bound for name, bound in bounds.items() if bound is not None}


def _struct(kind: inspect.StructType) -> Schema:
    """An object. Misspelled fields of a spec reach the operator, which names them; the API server would drop them silently."""
    properties = {item.encode_name: _of(item.type) for item in kind.fields}
    for item in kind.fields:
        if isinstance(item.default, StrEnum) and item.default:
            properties[item.encode_name]["default"] = str(item.default)
    required = [item.encode_name for item in kind.fields if item.required]
    schema: Schema = {"type": "object", "properties": properties} | ({"required": required} if required else {})
    return schema | ({"x-kubernetes-preserve-unknown-fields": True} if kind.forbid_unknown_fields else {})


def _type(kind: type) -> Schema:
    return _of(inspect.type_info(kind))


def _job_schema(with_expressions: bool) -> Schema:
    """The whole object."""
    spec = _type(JobSpec)
    spec["properties"]["msReplicaSpecs"] = {
        "type": "object",
        "minProperties": 1,
        "maxProperties": admission_rules.MOST_ROLES,
        "additionalProperties": _replica_schema(with_expressions),
    }
    spec["properties"]["securityPolicy"]["not"] = {"required": ["curve", "token"]}
    if with_expressions:
        spec = with_rules(spec, admission_rules.spec_rules())
    properties = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "spec": spec,
        "status": _type(Status),
    }
    job = {"description": "A training job of MindSpore's roles, run by Sporax."} | described(
        {"type": "object", "properties": properties, "required": ["spec"]}
    )
    return with_rules(job, admission_rules.job_rules()) if with_expressions else job


def _replica_schema(with_expressions: bool) -> Schema:
    """One role."""
    text = {"type": "string", "minLength": 1}
    port = _part({"containerPort": {"type": "integer", "format": "int32", "minimum": 1, "maximum": MAX_PORT}})
    container = _part({"name": text}, image=text, ports={"type": "array", "items": port})
    containers = {"type": "array", "minItems": 1, "maxItems": admission_rules.MOST_CONTAINERS, "items": container}
    role = _type(ReplicaSpec)
    role["properties"]["replicas"]["default"] = 1
    role["properties"]["template"] = {
        "type": "object",
        "properties": {"metadata": _ANYTHING, "spec": _part({"containers": containers})},
        "required": ["spec"],
    }
    return with_rules(role, admission_rules.role_rules()) if with_expressions else role


def _part(required: Schema, **others: Schema) -> Schema:
    """A part of a pod, of which Kubernetes has more fields."""
    return {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
        "required": list(required),
        "properties": {**required, **others},
    }
