"""Rules across fields of an `MSJob`, in the Common Expression Language: what `spec.read_job` refuses, by the API server.

Kubernetes has the language since 1.25. An older API server leaves the rules out when the definition is applied, and the
operator refuses such a job later; it checks all of them in any case. Method: each rule is one expression over `self`, the
value that it is attached to: a job, its spec, or one role. Names of roles are compared in lower case, since the original takes
them in any case.

An API server estimates what an expression may cost at worst and refuses a definition that is too expensive, so lists that
rules walk through have a largest size in the schema (`MOST_ROLES`, `MOST_CONTAINERS`, `spec.MOST_RULE_ROLES`).

Reference: kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions, validation rules.
"""

from __future__ import annotations

from typing import Any

from sporax.k8s.resource import names
from sporax.k8s.resource.spec import DNS_LABEL, MAX_NAME_LENGTH, PodRole, RestartPolicy

Rule = dict[str, str]

MOST_ROLES = 8  # more than there are, so that a rule can name the wrong one
MOST_CONTAINERS = 100
_NO_LIMIT = 2**31 - 1
_ROLES = "self.msReplicaSpecs"
_SWITCHES = {PodRole.WORKER: "enableDynamicWorker", PodRole.SERVER: "enableDynamicServer"}


def job_rules() -> list[Rule]:
    """Rules of a whole job: its name, with a role and an index, is the host name of a pod."""
    roles = f"self.spec.{_ROLES.removeprefix('self.')}"
    digits = f"({roles}[r].replicas > 1 ? string({roles}[r].replicas - 1).size() : 1)"
    return [
        _rule(
            f"self.metadata.name.matches('^{DNS_LABEL.pattern}$')",
            "metadata.name: the name is a host name too, so it must consist of lower-case letters, digits and '-', and start "
            "with a letter",
        ),
        _rule(
            f"{roles}.all(r, self.metadata.name.size() + r.size() + {digits} + 2 <= {MAX_NAME_LENGTH})",
            f"metadata.name: with it the name of a pod, such as NAME-worker-0, has more than {MAX_NAME_LENGTH} characters",
        ),
    ]


def spec_rules() -> list[Rule]:
    """Rules of a spec, about its roles together."""
    where = "msReplicaSpecs"
    known = [role.value.lower() for role in PodRole]
    return [
        _rule(
            f"{_ROLES}.all(r, r.lowerAscii() in {known!r})",
            f"{where}: the roles are {', '.join(role.value for role in PodRole)} (in any case)",
        ),
        _rule(
            f"{_ROLES}.all(a, {_ROLES}.all(b, a == b || a.lowerAscii() != b.lowerAscii()))",
            f"{where}: a role must be given once, but is twice in different spellings",
        ),
        _rule(_some(PodRole.WORKER), f"{where}.Worker: a job must have workers"),
        _rule(
            _each(PodRole.SCHEDULER, f"{_ROLES}[r].replicas == 1"), f"{where}.Scheduler.replicas: a job has 1 scheduler"
        ),
        _rule(
            f"{_some(PodRole.SCHEDULER)} || {_each(PodRole.SERVER, f'{_ROLES}[r].replicas == 0')}",
            f"{where}.Scheduler: a job with parameter servers (PS) must have a scheduler",
        ),
        _rule(
            f"{_is_elastic(PodRole.WORKER)} || {_each(PodRole.WORKER, f'{_ROLES}[r].replicas > 0')}",
            f"{where}.Worker.replicas: must be at least 1 unless enableDynamicWorker is true",
        ),
        *(_bounds_have_effect(role) for role in PodRole),
        _rule(
            f"{_ROLES}.all(r, {_is(PodRole.SERVER)} || !has({_ROLES}[r].persistentVolumeClaimTemplate))",
            f"{where}: only PS may have a persistentVolumeClaimTemplate",
        ),
        _failure_rules_are_applied(),
        _gang_fits(),
    ]


def role_rules() -> list[Rule]:
    """Rules of one role."""
    containers = "self.template.spec.containers"
    return [
        _rule(
            "!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
            "minReplicas: must be at most maxReplicas",
        ),
        _rule(
            f"{containers}.exists_one(c, c.name == '{names.CONTAINER}')",
            f"template.spec.containers: exactly one must be named '{names.CONTAINER}'",
        ),
        _rule(
            f"{containers}.all(c, c.name != '{names.CONTAINER}' || has(c.image))",
            f"template.spec.containers: the one named '{names.CONTAINER}' must have an image",
        ),
    ]


def _rule(expression: str, message: str) -> Rule:
    return {"rule": expression, "message": message}


def _is(role: PodRole) -> str:
    """Whether the role called `r` is this one."""
    return f"r.lowerAscii() == '{role.value.lower()}'"


def _some(role: PodRole) -> str:
    """Whether a job has a role."""
    return f"{_ROLES}.exists(r, {_is(role)})"


def _each(role: PodRole, condition: str) -> str:
    """Whether a condition on `r` holds for a role, if the job has it."""
    return f"{_ROLES}.all(r, !({_is(role)}) || {condition})"


def _is_elastic(role: PodRole) -> str:
    """Whether the size of a role may change while the job runs."""
    switch = _SWITCHES.get(role)
    return f"(has(self.{switch}) && self.{switch})" if switch else "false"


def _bounds_have_effect(role: PodRole) -> Rule:
    switch = _SWITCHES.get(role)
    why = f"{switch} is not true" if switch else "a scheduler cannot be scaled"
    bounded = f"has({_ROLES}[r].minReplicas) || has({_ROLES}[r].maxReplicas)"
    return _rule(
        f"{_is_elastic(role)} || {_each(role, f'!({bounded})')}",
        f"msReplicaSpecs.{role.value}.minReplicas: minReplicas and maxReplicas have no effect, since {why}",
    )


def _failure_rules_are_applied() -> Rule:
    """A rule about a role whose containers the kubelet starts again would never be applied."""
    again = f"{_ROLES}[r].restartPolicy in {[RestartPolicy.ALWAYS.value, RestartPolicy.ON_FAILURE.value]!r}"
    others = "has(f.roles) && f.roles.size() > 0 && !f.roles.exists(name, name.lowerAscii() == r.lowerAscii())"
    return _rule(
        f"!has(self.failurePolicy) || self.failurePolicy.rules.all(f, {_ROLES}.all(r, !({again}) || ({others})))",
        "failurePolicy.rules: roles that a rule speaks of must have the restartPolicy Never or ExitCode: with the others "
        "the kubelet starts the container again and no rule applies",
    )


def _gang_fits() -> Rule:
    """A gang that needs more pods than the job can have would never start."""
    policy = "self.runPolicy.schedulingPolicy"
    total = " + ".join(_most_pods(role) for role in PodRole)
    is_set = f"has(self.runPolicy) && has({policy}) && has({policy}.minAvailable)"
    return _rule(
        f"!({is_set}) || {policy}.minAvailable <= {total}",
        "runPolicy.schedulingPolicy.minAvailable: must be at most the number of pods that the job can have",
    )


def _most_pods(role: PodRole) -> str:
    """The most pods that a role may be scaled to; 0 where the job does not have it."""
    part = f"{_ROLES}[r]"
    elastic = f"(has({part}.maxReplicas) ? {part}.maxReplicas : {_NO_LIMIT})"
    most = f"({_is_elastic(role)} ? {elastic} : {part}.replicas)"
    return f"({_some(role)} ? {_ROLES}.filter(r, {_is(role)}).map(r, {most})[0] : 0)"


def with_rules(schema: dict[str, Any], rules: list[Rule]) -> dict[str, Any]:
    """A schema with rules."""
    return schema | {"x-kubernetes-validations": rules}
