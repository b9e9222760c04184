"""What a user wrote in an `MSJob`, read and checked: every field of the original, and a few more (`descriptions`).

`read_job` never trusts the API server's schema: older servers check less, and several rules span two fields. What is
wrong comes out as an `InvalidSpecError` whose text names the field; the operator sets it as the job's condition.

The original's fields and defaults are those of ms-operator's `MSJob`; see docs/kubernetes.md for the list.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, field

from sporax.base.errors import SporaxValueError
from sporax.ir.variables import MAX_PORT
from sporax.k8s.resource import names

_INT32 = {"format": "int32"}
Count = Annotated[int, Meta(ge=0, extra_json_schema=_INT32)]
# Of Kubernetes' names: lower case, digits and hyphens.
DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
MAX_NAME_LENGTH = 63
MOST_RULE_ROLES = 10  # of one rule of the failure policy
_QUANTITIES = {"type": "object", "additionalProperties": {"x-kubernetes-int-or-string": True}}


class InvalidSpecError(SporaxValueError):
    """A job's spec cannot run; the text starts with the field's path."""


class PodRole(StrEnum):
    """What a pod of a job does."""

    SCHEDULER = "Scheduler"
    SERVER = "PS"
    WORKER = "Worker"


class RestartPolicy(StrEnum):
    """What follows when a pod's process ends with an error."""

    ALWAYS = "Always"
    ON_FAILURE = "OnFailure"
    NEVER = "Never"
    EXIT_CODE = "ExitCode"  # 1 to 127 is final, 128 to 255 (a signal) is tried again


class SuccessPolicy(StrEnum):
    """When a job has succeeded."""

    DEFAULT = ""  # worker 0 has
    ALL_WORKERS = "AllWorkers"


class CleanPodPolicy(StrEnum):
    """Which pods are deleted when a job is over."""

    ALL = "All"
    RUNNING = "Running"
    NONE = "None"


class FailureAction(StrEnum):
    """What a rule of the failure policy does."""

    FAIL = "FailJob"
    RESTART = "Restart"
    IGNORE = "Ignore"


# `extra_json_schema` is what an API server gets besides (`schema`). Unknown fields are errors, since a misspelled one would
# be ignored silently.
class _Spec(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """What every part of a spec has in common: camelCase names, no unknown ones."""


class SchedulingPolicy(_Spec, frozen=True):
    """Gang scheduling: all pods of a job at once, or none."""

    min_available: Annotated[int, Meta(ge=1, extra_json_schema=_INT32)] | None = None
    queue: str = ""
    min_resources: Annotated[dict[str, Any], Meta(extra_json_schema=_QUANTITIES)] | None = None
    priority_class: str = ""
    schedule_timeout_seconds: Count | None = None


class RunPolicy(_Spec, frozen=True):
    """How long a job may run, how often it may fail, and what is left of it."""

    clean_pod_policy: CleanPodPolicy = CleanPodPolicy.RUNNING
    ttl_seconds_after_finished: Count | None = None
    active_deadline_seconds: Annotated[int, Meta(ge=1, extra_json_schema={"format": "int64"})] | None = None
    backoff_limit: Count | None = None
    max_restarts: Count = 0
    scheduling_policy: SchedulingPolicy | None = None
    suspend: bool = False
    managed_by: Annotated[str, Meta(extra_json_schema={"maxLength": 63})] = names.OPERATOR_NAME


class VolumeClaimTemplate(_Spec, frozen=True):
    """A volume of its own for each parameter server, kept when the pod is replaced."""

    spec: dict[str, Any]
    metadata: dict[str, Any] = field(default_factory=dict)
    mount_path: Annotated[str, Meta(extra_json_schema={"pattern": "^/"})] = names.DEFAULT_STATE_PATH


class ReplicaSpec(_Spec, frozen=True):
    """The pods of one role."""

    template: dict[str, Any]
    replicas: Count = 1
    restart_policy: RestartPolicy = RestartPolicy.NEVER
    min_replicas: Count | None = None
    max_replicas: Count | None = None
    persistent_volume_claim_template: VolumeClaimTemplate | None = None


class Roles(_Spec, frozen=True):
    """The roles of a job."""

    scheduler: ReplicaSpec | None = field(default=None, name="Scheduler")
    servers: ReplicaSpec | None = field(default=None, name="PS")
    workers: ReplicaSpec | None = field(default=None, name="Worker")


class FailureRule(_Spec, frozen=True):
    """One rule of the failure policy; an empty list matches everything."""

    action: FailureAction
    roles: Annotated[list[PodRole], Meta(extra_json_schema={"maxItems": MOST_RULE_ROLES})] = field(default_factory=list)
    exit_codes: list[Annotated[int, Meta(ge=1, le=255, extra_json_schema=_INT32)]] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)

    def matches(self, role: PodRole, exit_code: int | None, reason: str) -> bool:
        """Whether this rule speaks of a failure."""
        return (
            (not self.roles or role in self.roles)
            and (not self.exit_codes or exit_code in self.exit_codes)
            and (not self.reasons or reason in self.reasons)
        )


class FailurePolicy(_Spec, frozen=True):
    """Rules read in order before the restart policy; the first that matches decides."""

    rules: Annotated[list[FailureRule], Meta(extra_json_schema={"minItems": 1, "maxItems": 20})]


class SecretReference(_Spec, frozen=True):
    """A Secret in the job's namespace."""

    name: Annotated[str, Meta(min_length=1)]


class KeySource(_Spec, frozen=True):
    """Where keys come from."""

    secret_ref: SecretReference


class SecurityPolicy(_Spec, frozen=True):
    """Who may talk to a job's processes. The operator itself never reads the Secrets."""

    curve: KeySource | None = None
    token: KeySource | None = None
    network_policy: bool = False


class JobSpec(_Spec, frozen=True):
    """The `spec` of an `MSJob`."""

    ms_replica_specs: Roles
    run_policy: RunPolicy = field(default_factory=RunPolicy)
    success_policy: SuccessPolicy = SuccessPolicy.DEFAULT
    enable_dynamic_worker: bool = False
    enable_dynamic_server: bool = False
    failure_policy: FailurePolicy | None = None
    security_policy: SecurityPolicy | None = None

    def replica_spec(self, role: PodRole) -> ReplicaSpec | None:
        """The spec of one role; None where the job has none of it."""
        roles = self.ms_replica_specs
        return {PodRole.SCHEDULER: roles.scheduler, PodRole.SERVER: roles.servers, PodRole.WORKER: roles.workers}[role]

    def replicas(self, role: PodRole) -> int:
        """How many pods of a role the user wants."""
        part = self.replica_spec(role)
        return part.replicas if part is not None else 0

    @property
    def is_encrypted(self) -> bool:
        """Whether the job's servers and their scheduler answer only those who have its keys, which the operator has not."""
        policy = self.security_policy
        return self.replicas(PodRole.SERVER) > 0 and policy is not None and (policy.curve or policy.token) is not None

    @property
    def starts_workers_again(self) -> bool:
        """Whether a worker whose process was killed, or the whole job, is started again."""
        workers = self.replica_spec(PodRole.WORKER)
        rules = self.failure_policy.rules if self.failure_policy is not None else ()
        return (
            self.run_policy.max_restarts > 0
            or (workers is not None and workers.restart_policy is not RestartPolicy.NEVER)
            or any(rule.action is FailureAction.RESTART and PodRole.WORKER in (rule.roles or PodRole) for rule in rules)
        )

    def is_elastic(self, role: PodRole) -> bool:
        """Whether the number of pods of a role may change while the job runs."""
        return {PodRole.WORKER: self.enable_dynamic_worker, PodRole.SERVER: self.enable_dynamic_server}.get(role, False)


class Job(Struct, frozen=True, kw_only=True):
    """An `MSJob` with a valid spec."""

    name: str
    namespace: str
    uid: str
    generation: int
    spec: JobSpec


def read_job(body: Mapping[str, Any]) -> Job:
    """Read an `MSJob` as the API server holds it.

    Raises:
        InvalidSpecError: the spec cannot run; says which field is wrong, what it is and what it may be.
    """
    metadata = body["metadata"]
    try:
        # Strict: a text is no number, as in the API server's schema.
        spec = msgspec.convert(_normalised(body.get("spec") or {}), JobSpec)
    except msgspec.ValidationError as error:
        raise InvalidSpecError(_readable(str(error))) from error
    _check_name(metadata["name"], spec)
    _check_roles(spec)
    return Job(
        name=metadata["name"],
        namespace=metadata.get("namespace", "default"),
        uid=metadata.get("uid", ""),
        generation=int(metadata.get("generation", 0)),
        spec=spec,
    )


def managed_elsewhere(body: Mapping[str, Any]) -> bool:
    """Whether a job belongs to another controller (Kueue's MultiKueue uses this)."""
    policy = (body.get("spec") or {}).get("runPolicy")
    manager = policy.get("managedBy") if isinstance(policy, Mapping) else None
    # Kueue leaves the field to its own value for jobs that run in another cluster.
    return manager not in (None, "", names.OPERATOR_NAME)


def _normalised(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The spec with role names in the usual spelling, whatever case the user chose."""
    roles = spec.get("msReplicaSpecs")
    if not isinstance(roles, Mapping):
        return dict(spec)
    usual = {role.value.lower(): role.value for role in PodRole}
    renamed: dict[str, Any] = {}
    for key, value in roles.items():
        name = usual.get(key.lower())
        if name is None:
            raise InvalidSpecError(
                f"spec.msReplicaSpecs.{key}: the role must be one of {', '.join(usual.values())} (in any case)"
            )
        if name in renamed:
            raise InvalidSpecError(f"spec.msReplicaSpecs.{key}: the role {name} must be given once, but is twice")
        renamed[name] = _without_nulls(value)
    return {**_without_nulls(spec), "msReplicaSpecs": renamed}


def _without_nulls(part: Any) -> Any:
    """An object without the fields that are null: YAML's way to leave a field empty."""
    return {key: value for key, value in part.items() if value is not None} if isinstance(part, Mapping) else part


def _readable(message: str) -> str:
    """The reader's error as `field: what is wrong`."""
    # msgspec's messages end with the path of the value.
    what, _, path = message.partition(" - at ")
    where = path.strip("`").replace("$", "spec", 1) or "spec"
    if unknown := re.search(r"unknown field `(\w+)`", what):
        return f"{where}.{unknown.group(1)}: there is no such field"
    if missing := re.search(r"missing required field `(\w+)`", what):
        return f"{where}.{missing.group(1)}: the field must be given"
    return f"{where}: {what[:1].lower()}{what[1:]}"


def _check_name(name: str, spec: JobSpec) -> None:
    """The job's name and an index must make a host name."""
    if not DNS_LABEL.fullmatch(name):
        raise InvalidSpecError(
            f"metadata.name: the name is a host name too, so it must consist of lower-case letters, digits and '-', "
            f"and start with a letter, but is '{name}'"
        )
    for role in PodRole:
        # The highest index has the longest name.
        longest = names.pod_name(name, role.value, max(0, spec.replicas(role) - 1))
        if spec.replica_spec(role) is not None and len(longest) > MAX_NAME_LENGTH:
            raise InvalidSpecError(
                f"metadata.name: with it the pod '{longest}' has {len(longest)} characters, "
                f"but a host name has at most {MAX_NAME_LENGTH}"
            )


def _check_roles(spec: JobSpec) -> None:
    """Rules that span fields."""
    where = "spec.msReplicaSpecs"
    if spec.replica_spec(PodRole.WORKER) is None:
        raise InvalidSpecError(f"{where}.Worker: a job must have workers")
    if spec.replica_spec(PodRole.SCHEDULER) is not None and spec.replicas(PodRole.SCHEDULER) != 1:
        raise InvalidSpecError(
            f"{where}.Scheduler.replicas: a job has 1 scheduler, but {spec.replicas(PodRole.SCHEDULER)} are requested"
        )
    # Servers and workers find each other by the scheduler.
    if spec.replicas(PodRole.SERVER) > 0 and spec.replica_spec(PodRole.SCHEDULER) is None:
        raise InvalidSpecError(f"{where}.Scheduler: a job with parameter servers (PS) must have a scheduler")
    if spec.replicas(PodRole.WORKER) == 0 and not spec.enable_dynamic_worker:
        raise InvalidSpecError(f"{where}.Worker.replicas: must be at least 1 unless enableDynamicWorker is true")
    _check_each_role(spec)
    _check_port(spec)
    security = spec.security_policy
    if security is not None and security.curve is not None and security.token is not None:
        raise InvalidSpecError("spec.securityPolicy.token: keys come from curve or from token, but both are given")
    _check_failure_policy(spec)
    policy = spec.run_policy.scheduling_policy
    # A gang that needs more pods than the job has would never start.
    total = sum(_most_replicas(spec, role) for role in PodRole)
    if policy is not None and policy.min_available is not None and policy.min_available > total:
        raise InvalidSpecError(
            f"spec.runPolicy.schedulingPolicy.minAvailable: must be at most {total}, the job's pods, "
            f"but is {policy.min_available}"
        )


def _check_port(spec: JobSpec) -> None:
    """The scheduler of servers takes the next port, too."""
    if spec.replica_spec(PodRole.SERVER) is not None and scheduler_port(spec) == MAX_PORT:
        raise InvalidSpecError(
            f"spec.msReplicaSpecs.Scheduler: the port '{names.PORT_NAME}' must be less than {MAX_PORT} in a job with parameter "
            f"servers, whose scheduler takes the next one, too, but is {MAX_PORT}"
        )


def _most_replicas(spec: JobSpec, role: PodRole) -> int:
    """The most pods that a role may be scaled to."""
    part = spec.replica_spec(role)
    if part is None:
        return 0
    if not spec.is_elastic(role):
        return part.replicas
    return sys.maxsize if part.max_replicas is None else part.max_replicas


def _check_each_role(spec: JobSpec) -> None:
    """Bounds, template and volume of each role."""
    where = "spec.msReplicaSpecs"
    for role in PodRole:
        part = spec.replica_spec(role)
        if part is None:
            continue
        _check_bounds(f"{where}.{role.value}", role, part, spec)
        _check_template(f"{where}.{role.value}", part)
        if (claim := part.persistent_volume_claim_template) is not None:
            if role is not PodRole.SERVER:
                raise InvalidSpecError(f"{where}.{role.value}.persistentVolumeClaimTemplate: only PS may have one")
            _check_metadata(f"{where}.{role.value}.persistentVolumeClaimTemplate.metadata", claim.metadata)


def _check_failure_policy(spec: JobSpec) -> None:
    """A rule about a role whose containers the kubelet starts again would never be applied."""
    for index, rule in enumerate(spec.failure_policy.rules if spec.failure_policy is not None else ()):
        for role in rule.roles or PodRole:
            part = spec.replica_spec(role)
            if part is not None and part.restart_policy in (RestartPolicy.ALWAYS, RestartPolicy.ON_FAILURE):
                raise InvalidSpecError(
                    f"spec.failurePolicy.rules[{index}]: speaks of {role.value}, so its restartPolicy must be Never or "
                    f"ExitCode, but is {part.restart_policy.value}: the kubelet starts its container again and no rule applies"
                )


def _check_bounds(where: str, role: PodRole, part: ReplicaSpec, spec: JobSpec) -> None:
    """The least and the most replicas must make sense, and be allowed to matter."""
    # No bounds, so nothing has to fit.
    if part.min_replicas is None and part.max_replicas is None:
        return
    if not spec.is_elastic(role):
        switch = {PodRole.WORKER: "enableDynamicWorker", PodRole.SERVER: "enableDynamicServer"}.get(role)
        why = f"spec.{switch} is not true" if switch else "a scheduler cannot be scaled"
        raise InvalidSpecError(f"{where}.minReplicas: minReplicas and maxReplicas have no effect, since {why}")
    low, high = part.min_replicas or 0, part.max_replicas
    if high is not None and low > high:
        raise InvalidSpecError(f"{where}.minReplicas: must be at most maxReplicas, {high}, but is {low}")


def _check_template(where: str, part: ReplicaSpec) -> None:
    """The pod template must have the container that gets the environment, with an image."""
    pod = part.template.get("spec")
    containers = pod.get("containers") if isinstance(pod, Mapping) else None
    if not isinstance(containers, list) or not containers:
        raise InvalidSpecError(f"{where}.template.spec.containers: must have at least one container")
    ours = [
        (index, item)
        for index, item in enumerate(containers)
        if isinstance(item, Mapping) and item.get("name") == names.CONTAINER
    ]
    if len(ours) != 1:
        # Shown in the message, since a misspelled container name is the usual mistake.
        called = [item.get("name") if isinstance(item, Mapping) else item for item in containers]
        raise InvalidSpecError(
            f"{where}.template.spec.containers: exactly one must be named '{names.CONTAINER}', but the names are {called}"
        )
    _check_metadata(f"{where}.template.metadata", part.template.get("metadata"))
    _check_trainer(f"{where}.template.spec.containers[{ours[0][0]}]", ours[0][1])
    _check_tables(f"{where}.template.spec.volumes", part.template["spec"].get("volumes"))


def _check_trainer(where: str, container: Mapping[str, Any]) -> None:
    """The container that trains must have an image, and ports that exist."""
    if not container.get("image"):
        raise InvalidSpecError(f"{where}.image: must be given")
    for position, port in enumerate(container.get("ports") or []):
        number = port.get("containerPort") if isinstance(port, Mapping) else None
        if not isinstance(number, int) or not 0 < number <= MAX_PORT:
            raise InvalidSpecError(
                f"{where}.ports[{position}].containerPort: must be from 1 to {MAX_PORT}, but is {number}"
            )
    for name in ("env", "volumeMounts"):
        _check_tables(f"{where}.{name}", container.get(name))


def _check_metadata(where: str, metadata: object) -> None:
    """Labels and annotations, to which the operator adds, must be tables; what is in them the API server checks."""
    fields = [(where, metadata)]
    if isinstance(metadata, Mapping):
        fields += [(f"{where}.{name}", metadata.get(name)) for name in ("labels", "annotations")]
    for place, value in fields:
        if value is not None and not isinstance(value, Mapping):
            raise InvalidSpecError(f"{place}: must be a table of names and values, but is {value!r:.60}")


def _check_tables(where: str, value: object) -> None:
    """What the operator adds to must be a list of tables; all else of them the API server checks."""
    if value and not (isinstance(value, list) and all(isinstance(item, Mapping) for item in value)):
        raise InvalidSpecError(f"{where}: must be a list of tables, but is {value!r:.60}")


def scheduler_port(spec: JobSpec) -> int:
    """The port that a job's scheduler listens on: the one called `msjob-port`, by default 2222."""
    part = spec.replica_spec(PodRole.SCHEDULER)
    if part is None:
        return names.DEFAULT_PORT
    containers = [item for item in part.template["spec"]["containers"] if item["name"] == names.CONTAINER]
    ports = [port for port in containers[0].get("ports") or [] if port.get("name") == names.PORT_NAME]
    return int(ports[0]["containerPort"]) if ports else names.DEFAULT_PORT
