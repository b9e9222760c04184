"""The manifests of what a job consists of: pods, services, volume claims, budgets, policies, pod groups. Pure functions.

Every object has a fixed name and the job as its owner, so creating it twice is refused by the API server and deleting the
job lets the garbage collector remove it.

A pod keeps the user's template. Added are: labels, a stable host name under the job's headless service, the restart
policy, and in the container `mindspore` the environment that MindSpore's processes read: MS_ROLE, MS_SCHED_HOST,
MS_SCHED_PORT, MS_SERVER_NUM, MS_WORKER_NUM, MS_NODE_ID, and for going on MS_ENABLE_RECOVERY and SPORAX_JOB_ID. The counts are
those at the pod's creation: which members a job has now is known to its scheduler alone. A job without a scheduler is one
worker on its own, and gets only the last two.
"""

from __future__ import annotations

import copy

from sporax.k8s.decide.observed import Gang, controller_uid
from sporax.k8s.resource import names
from sporax.k8s.resource.job_status import merge_patch
from sporax.k8s.resource.names import Manifest
from sporax.k8s.resource.spec import Job, PodRole, RestartPolicy, scheduler_port

_MS_ROLES = {PodRole.SCHEDULER: "MS_SCHED", PodRole.SERVER: "MS_PSERVER", PodRole.WORKER: "MS_WORKER"}
_KEYS_PATH = "/etc/sporax/keys"
_RECOVERY = "MS_ENABLE_RECOVERY"
_TOKEN_KEY = "token"  # of the Secret that holds a job's token
# A server writes its log and hands its slots over before it goes.
_SERVER_GRACE_SECONDS = 60
# Where a server says that it serves, and for how long one word of it holds; servers say it at each heartbeat, once a second.
_SERVING_FOLDER, _SERVING_SECONDS = "/var/run/sporax", 5


def service_host(job: Job) -> str:
    """Where the scheduler is reached, whichever incarnation of its pod runs."""
    return f"{names.pod_name(job.name, PodRole.SCHEDULER.value, 0)}.{job.name}.{job.namespace}.svc"


def pod(job: Job, role: PodRole, index: int, sizes: dict[PodRole, int], gang: Gang | None) -> Manifest:
    """One pod of a job."""
    part = job.spec.replica_spec(role)
    assert part is not None  # only pods of roles that the job has are created
    # Copied: the spec of the job must not change while its pods are made.
    template: Manifest = copy.deepcopy(part.template)
    metadata = template.get("metadata") or {}
    name = names.pod_name(job.name, role.value, index)
    labels = names.job_selector(job.name, role.value) | {names.LABEL_INDEX: str(index)}
    body: Manifest = template["spec"]
    # The operator decides about restarts where the kubelet cannot know the exit code's meaning.
    body["restartPolicy"] = "Never" if part.restart_policy is RestartPolicy.EXIT_CODE else part.restart_policy.value
    # Host name and subdomain give the pod a DNS name under the job's headless service.
    body["hostname"], body["subdomain"] = name, job.name
    container = next(item for item in body["containers"] if item["name"] == names.CONTAINER)
    # One of the same name is the user's choice of port.
    ports = container.setdefault("ports", [])
    if not any(port.get("name") == names.PORT_NAME for port in ports):
        ports.append({"name": names.PORT_NAME, "containerPort": names.DEFAULT_PORT})
    # One worker on its own has no other to find.
    if job.spec.replica_spec(PodRole.SCHEDULER) is not None:
        # A process has the number of its pod, so that worker 0 is rank 0 and the last pod is the last member.
        numbers = {PodRole.WORKER: "RANK_ID", PodRole.SERVER: "MS_PS_INDEX"}
        number = [{"name": numbers[role], "value": str(index)}] if role in numbers else []
        _add_environment(container, [*environment(job, role, sizes), *number, *_server_settings(job), *_token(job)])
    _add_recovery(job, container)
    _add_progress(job, role, index, container)
    _add_keys(job, body, container)
    if role is PodRole.SERVER:
        body.setdefault("terminationGracePeriodSeconds", _SERVER_GRACE_SECONDS)
        _add_state_volume(job, name, body, container)
        _add_readiness(body, container)
    annotations = dict(metadata.get("annotations") or {})
    _join_gang(job, role, gang, body, labels, annotations)
    # Our labels win: the operator finds its pods by them.
    own = _metadata(job, name, {**(metadata.get("labels") or {}), **labels})
    return names.manifest("v1", "Pod", own | ({"annotations": annotations} if annotations else {}), spec=body)


def environment(job: Job, role: PodRole, sizes: dict[PodRole, int]) -> list[Manifest]:
    """The variables that give a process its place in the job."""
    own_address = {"valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    # The scheduler binds its own address: its name may not be in the DNS before it runs.
    host = own_address if role is PodRole.SCHEDULER else {"value": service_host(job)}
    return [
        {"name": "MS_ROLE", "value": _MS_ROLES[role]},
        {"name": "MS_SCHED_HOST", **host},
        {"name": "MS_SCHED_PORT", "value": str(scheduler_port(job.spec))},
        {"name": "MS_SERVER_NUM", "value": str(sizes.get(PodRole.SERVER, 0))},
        {"name": "MS_WORKER_NUM", "value": str(sizes.get(PodRole.WORKER, 0))},
        {"name": "MS_NODE_ID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]


def _server_settings(job: Job) -> list[Manifest]:
    """What processes of a job with parameter servers need to know."""
    part = job.spec.replica_spec(PodRole.SERVER)
    if part is None:
        return []
    policy, claim = job.spec.security_policy, part.persistent_volume_claim_template
    settings: list[Manifest] = []
    if policy is not None and policy.curve is not None:
        settings.append({"name": "MS_PS_KEYS", "value": _KEYS_PATH})
    # As in the original: the cluster's network is trusted.
    elif policy is None or policy.token is None:
        settings.append({"name": "MS_PS_INSECURE", "value": "1"})
    if claim is not None:
        settings += [{"name": _RECOVERY, "value": "1"}, {"name": "MS_RECOVERY_PATH", "value": claim.mount_path}]
    return settings


def _token(job: Job) -> list[Manifest]:
    """The secret that all processes of the job share."""
    policy = job.spec.security_policy
    if policy is None or policy.token is None:
        return []
    reference = {"name": policy.token.secret_ref.name, "key": _TOKEN_KEY}
    return [{"name": "SPORAX_TOKEN", "valueFrom": {"secretKeyRef": reference}}]


def shared(job: Job, budget_version: str, allowed: bool = False) -> list[Manifest]:
    """What a job's pods share, gang apart.

    Args:
        job: the job.
        budget_version: `policy/v1` or, before Kubernetes 1.21, `policy/v1beta1`.
        allowed: whether a server may be evicted.
    """
    objects = [service(job)]
    if job.spec.replica_spec(PodRole.SERVER) is not None:
        objects.append(disruption_budget(job, budget_version, allowed))
    if job.spec.security_policy is not None and job.spec.security_policy.network_policy:
        objects.append(network_policy(job))
    return objects


def is_as_made(manifest: Manifest, body: Manifest) -> bool:
    """Whether an object still has its owner, labels and all that its manifest gave it; defaults of the server may be added."""
    return (
        controller_uid(body["metadata"]) == controller_uid(manifest["metadata"])
        and _has(body["metadata"].get("labels"), manifest["metadata"]["labels"])
        and _has(body.get("spec"), manifest["spec"])
    )


def change_back(manifest: Manifest, body: Manifest) -> Manifest:
    """A merge patch that makes an object what its manifest says; it holds for this edition of the object alone."""
    metadata = {key: body["metadata"][key] for key in ("uid", "resourceVersion")}
    stored = body.get("spec") or {}
    spec = {key: merge_patch(stored.get(key), value) for key, value in manifest["spec"].items()}
    return {"metadata": metadata | {"labels": manifest["metadata"]["labels"]}, "spec": spec}


def _has(value: object, part: Manifest) -> bool:
    """Whether a table has all that another says; it may have more, such as defaults of the API server."""
    return isinstance(value, dict) and all(key in value and _equals(value[key], part[key]) for key in part)


def _equals(value: object, part: object) -> bool:
    """Whether two values are equal, up to defaults in the members of lists: a selector with one label more is another."""
    if isinstance(part, list):
        if not isinstance(value, list) or len(value) != len(part):
            return False
        pairs = zip(value, part, strict=True)
        return all(_has(old, new) if isinstance(new, dict) else old == new for old, new in pairs)
    if isinstance(part, dict):
        return isinstance(value, dict) and set(value) == set(part) and _has(value, part)
    return bool(value == part)


def service(job: Job) -> Manifest:
    """A headless service: a DNS name for every pod, ready or not."""
    spec = {
        "clusterIP": "None",
        # A scheduler must be reachable before its pod counts as ready.
        "publishNotReadyAddresses": True,
        "selector": names.job_selector(job.name),
        "ports": [{"name": names.PORT_NAME, "port": scheduler_port(job.spec)}],
    }
    return names.manifest("v1", "Service", _metadata(job, job.name, names.job_selector(job.name)), spec=spec)


def disruption_budget(job: Job, version: str, allowed: bool = False) -> Manifest:
    """How many servers may be evicted at a time: none until the operator knows that all slots have their copies."""
    metadata = _metadata(job, budget_name(job.name), names.job_selector(job.name))
    selector = {"matchLabels": names.job_selector(job.name, PodRole.SERVER.value)}
    # Two lost servers at once could be both copies of a slot.
    spec = {"maxUnavailable": int(allowed), "selector": selector}
    return names.manifest(version, "PodDisruptionBudget", metadata, spec=spec)


def budget_name(job_name: str) -> str:
    """The name of a job's disruption budget."""
    return f"{job_name}-ps"


def network_policy(job: Job) -> Manifest:
    """Only pods of the job, and the operator, may connect to the job's pods."""
    # The operator queries schedulers about membership, from another namespace.
    operator = {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app.kubernetes.io/name": "sporax-operator"}}}
    own = {"podSelector": {"matchLabels": names.job_selector(job.name)}}
    spec = {**own, "policyTypes": ["Ingress"], "ingress": [{"from": [own, operator]}]}
    metadata = _metadata(job, job.name, names.job_selector(job.name))
    return names.manifest("networking.k8s.io/v1", "NetworkPolicy", metadata, spec=spec)


def volume_claim(job: Job, role: PodRole, index: int) -> Manifest | None:
    """The volume claim of a server; None where it has none."""
    part = job.spec.replica_spec(role)
    template = part.persistent_volume_claim_template if part is not None else None
    if template is None:
        return None
    name = names.pod_name(job.name, role.value, index)
    # Labels of the user first, ours last.
    labels = {**(template.metadata.get("labels") or {}), **names.job_selector(job.name, role.value)}
    return names.manifest(
        "v1", "PersistentVolumeClaim", _metadata(job, name, labels), spec=copy.deepcopy(template.spec)
    )


def pod_group(job: Job, gang: Gang, members: int) -> Manifest:
    """The gang of a job, as its scheduler wants it written."""
    policy = job.spec.run_policy.scheduling_policy
    assert policy is not None  # it is what requests a gang
    spec: Manifest = {"minMember": members}
    if policy.min_resources:
        spec["minResources"] = policy.min_resources
    if gang is Gang.VOLCANO:
        version = "scheduling.volcano.sh/v1beta1"
        spec |= {"queue": policy.queue} if policy.queue else {}
        spec |= {"priorityClassName": policy.priority_class} if policy.priority_class else {}
    else:
        version = "scheduling.x-k8s.io/v1alpha1"
        if policy.schedule_timeout_seconds is not None:
            spec["scheduleTimeoutSeconds"] = policy.schedule_timeout_seconds
    metadata = _metadata(job, job.name, names.job_selector(job.name))
    return names.manifest(version, "PodGroup", metadata, spec=spec)


def _join_gang(
    job: Job, role: PodRole, gang: Gang | None, body: Manifest, labels: dict[str, str], annotations: dict[str, str]
) -> None:
    """Put a pod into the job's gang."""
    policy = job.spec.run_policy.scheduling_policy
    if gang is None or policy is None:
        return
    if policy.priority_class:
        # `setdefault`: what the user's template says stays.
        body.setdefault("priorityClassName", policy.priority_class)
    if gang is Gang.VOLCANO:
        body.setdefault("schedulerName", "volcano")
        annotations |= {"scheduling.k8s.io/group-name": job.name, "volcano.sh/task-spec": role.value.lower()}
    else:
        body.setdefault("schedulerName", "scheduler-plugins-scheduler")
        labels["scheduling.x-k8s.io/pod-group"] = job.name


def _metadata(job: Job, name: str, labels: dict[str, str]) -> Manifest:
    """Name, labels and owner."""
    # "controller" lets the garbage collector delete what the job owns, for which a deletion in the foreground waits.
    owner = names.reference(job.name, job.uid, controller=True, blockOwnerDeletion=True)
    return {"name": name, "namespace": job.namespace, "labels": labels, "ownerReferences": [owner]}


def _add_environment(container: Manifest, variables: list[Manifest]) -> None:
    """Set variables; one that the user set to something else is ours, since a wrong place breaks the job."""
    ours = {variable["name"] for variable in variables}
    remaining = [variable for variable in container.get("env") or [] if variable.get("name") not in ours]
    container["env"] = [*remaining, *variables]  # so that the API server counts the user's as the user does


def _add_recovery(job: Job, container: Manifest) -> None:
    """Let processes go on from what this job, and no other, has saved; in a job that starts its workers again they do so.

    With parameter servers the state is theirs, and a worker finds its place there. A value of the user wins.
    """
    is_set = any(variable.get("name") == _RECOVERY for variable in container.get("env") or [])
    recovers = job.spec.starts_workers_again and job.spec.replica_spec(PodRole.SERVER) is None
    if recovers and not is_set:
        _add_environment(container, [{"name": _RECOVERY, "value": "1"}])
    if recovers or is_set:
        _add_environment(container, [{"name": "SPORAX_JOB_ID", "value": job.uid}])


def _add_progress(job: Job, role: PodRole, index: int, container: Manifest) -> None:
    """Let rank 0 say how far it is. With keys it does not: it would say it to everybody. A value of the user wins."""
    is_set = any(
        variable.get("name") in ("SPORAX_PROGRESS_HOST", "SPORAX_PROGRESS_PORT")
        for variable in container.get("env") or []
    )
    if is_set or not reports_progress(job, role, index):
        return
    host = {"name": "SPORAX_PROGRESS_HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    _add_environment(container, [host, {"name": "SPORAX_PROGRESS_PORT", "value": str(names.PROGRESS_PORT)}])


def reports_progress(job: Job, role: PodRole, index: int) -> bool:
    """Whether a pod is the one that says how far the job is."""
    policy = job.spec.security_policy
    has_keys = policy is not None and (policy.curve is not None or policy.token is not None)
    return role is PodRole.WORKER and index == 0 and not has_keys


def _add_keys(job: Job, body: Manifest, container: Manifest) -> None:
    """Mount the job's keys where its processes read them."""
    policy = job.spec.security_policy
    if policy is None or policy.curve is None:
        return
    # Readable by its owner alone.
    secret = {"secretName": policy.curve.secret_ref.name, "defaultMode": 0o400}
    _mount(body, container, {"name": "sporax-keys", "secret": secret}, {"mountPath": _KEYS_PATH, "readOnly": True})


def _add_readiness(body: Manifest, container: Manifest) -> None:
    """Let a server be ready while it serves: while it touches a file. A probe of the user wins."""
    if "readinessProbe" in container:
        return
    file = f"{_SERVING_FOLDER}/serving"
    # By its age: a process that was started again, or hangs, leaves an old file.
    test = f"test $(( $(date +%s) - $(stat -c %Y {file}) )) -lt {_SERVING_SECONDS}"
    container["readinessProbe"] = {
        "exec": {"command": ["sh", "-c", test]},
        "periodSeconds": 1,
        "failureThreshold": 2,
        "timeoutSeconds": 5,
    }
    container["env"] = [*(container.get("env") or []), {"name": "SPORAX_SERVING_FILE", "value": file}]
    _mount(body, container, {"name": "sporax-serving", "emptyDir": {}}, {"mountPath": _SERVING_FOLDER})


def _add_state_volume(job: Job, name: str, body: Manifest, container: Manifest) -> None:
    """Mount a server's own volume where its state is written."""
    part = job.spec.replica_spec(PodRole.SERVER)
    template = part.persistent_volume_claim_template if part is not None else None
    if template is None:
        return
    claim = {"name": names.STATE_VOLUME, "persistentVolumeClaim": {"claimName": name}}
    _mount(body, container, claim, {"mountPath": template.mount_path})


def _mount(body: Manifest, container: Manifest, volume: Manifest, mount: Manifest) -> None:
    """Add a volume to the pod, and where the container has it."""
    body.setdefault("volumes", []).append(volume)
    container.setdefault("volumeMounts", []).append({"name": volume["name"], **mount})
