"""What each field of an `MSJob` means, for `kubectl explain`.

A field's path joins names with dots; `*` stands for every key of a table and `[]` for every member of a list.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

_ROLE = "spec.msReplicaSpecs.*"
_POD = f"{_ROLE}.template.spec"
_CLAIM = f"{_ROLE}.persistentVolumeClaimTemplate"
_RULE = "spec.failurePolicy.rules[]"
_SECURITY = "spec.securityPolicy"
_RECORD = "status.pods.*"
_SECRET = "A Secret in the job's namespace."
_SECRET_NAME = "Its name."
_OF_KUBERNETES = ("metadata",)  # an API server refuses a description of what it describes itself

DESCRIPTIONS = {
    "apiVersion": "Version of this API: mindspore.gitee.com/v1.",
    "kind": "Kind of this object: MSJob.",
    "spec": "What the user requests.",
    "spec.msReplicaSpecs": (
        "Roles of the job: Scheduler, PS (parameter servers), Worker, in any letter case. Worker is required, and PS "
        "needs a Scheduler."
    ),
    _ROLE: "The pods of one role.",
    f"{_ROLE}.replicas": "Number of pods of this role. A job has at most one scheduler.",
    f"{_ROLE}.minReplicas": "Least number of pods of an elastic role (enableDynamicWorker, enableDynamicServer).",
    f"{_ROLE}.maxReplicas": "Largest number of pods of an elastic role. Without it there is no limit.",
    f"{_ROLE}.restartPolicy": (
        "What follows when a pod's process ends with an error. Always and OnFailure: the kubelet starts the container "
        "again. Never: the pod has failed. ExitCode: 1 to 127 is final, from 128 on (a signal) the pod is replaced."
    ),
    f"{_ROLE}.template": "A pod template with one container called mindspore, which gets MS_ROLE, MS_SCHED_HOST and so on.",
    f"{_ROLE}.template.metadata": "Labels and annotations of the pods.",
    _POD: "A pod's spec, with all fields that Kubernetes has. They are checked by a dry run.",
    f"{_POD}.containers": "Containers of the pod. Exactly one is called mindspore; the others are sidecars.",
    f"{_POD}.containers[].name": "Name of the container: mindspore for the one that trains.",
    f"{_POD}.containers[].image": "Image of the container. Required for the one that trains.",
    f"{_POD}.containers[].ports": "Ports of the container. A scheduler listens on the one called msjob-port, by default 2222.",
    f"{_POD}.containers[].ports[].containerPort": "Number of the port.",
    _CLAIM: "PS only: a volume for the state of each server. It stays when the pod is replaced, and is deleted with the job.",
    f"{_CLAIM}.metadata": "Labels of the volume claims.",
    f"{_CLAIM}.spec": "Spec of the volume claims, as Kubernetes has it.",
    f"{_CLAIM}.mountPath": "Where the volume is mounted; by default /var/lib/sporax.",
    "spec.runPolicy": "How long the job may run, how often it may fail, and what is left of it.",
    "spec.runPolicy.cleanPodPolicy": "Which pods are deleted when the job is over: All, those that still run (Running), or None.",
    "spec.runPolicy.ttlSecondsAfterFinished": "The job is deleted this many seconds after its end. Without it the job stays.",
    "spec.runPolicy.activeDeadlineSeconds": "The job fails when it was active longer than this many seconds.",
    "spec.runPolicy.backoffLimit": "Failures of pods, and of containers in them, that are forgiven; by default all.",
    "spec.runPolicy.maxRestarts": "How often the whole job starts again where the failure of a pod would end it; by default 0.",
    "spec.runPolicy.suspend": "Delete all pods and keep the job; false starts it again. Kueue sets this field.",
    "spec.runPolicy.managedBy": (
        "With a value other than mindspore.gitee.com/sporax-operator the operator leaves the job alone. Kueue's MultiKueue "
        "sets this field."
    ),
    "spec.runPolicy.schedulingPolicy": "Gang scheduling: all pods start at once. Needs Volcano or scheduler-plugins.",
    "spec.runPolicy.schedulingPolicy.minAvailable": "Number of pods that the gang needs; by default all.",
    "spec.runPolicy.schedulingPolicy.queue": "Queue of Volcano.",
    "spec.runPolicy.schedulingPolicy.minResources": "Resources that the gang needs.",
    "spec.runPolicy.schedulingPolicy.priorityClass": "Priority class of the gang and its pods.",
    "spec.runPolicy.schedulingPolicy.scheduleTimeoutSeconds": "How long the scheduler waits for all pods of the gang.",
    "spec.successPolicy": 'When the job has succeeded. "": worker 0 has. AllWorkers: all workers have.',
    "spec.enableDynamicWorker": (
        "The number of workers may change while the job runs, and a worker that failed for good does not fail the job."
    ),
    "spec.enableDynamicServer": "The number of servers may change while the job runs.",
    "spec.failurePolicy": "What follows on particular failures; read before the restart policy.",
    "spec.failurePolicy.rules": "Rules in order. The first one that matches a failure decides.",
    f"{_RULE}.action": (
        "FailJob: the job has failed. Restart: the pod is replaced. Ignore: the job goes on without the pod."
    ),
    f"{_RULE}.roles": "Roles that the rule speaks of; all without it. Their restartPolicy must be Never or ExitCode.",
    f"{_RULE}.exitCodes": "Exit codes that the rule speaks of; all without it.",
    f"{_RULE}.reasons": "Reasons of Kubernetes that the rule speaks of, such as OOMKilled or Evicted; all without it.",
    _SECURITY: "Who may talk to the job's processes. With keys, servers and workers encrypt what they send.",
    f"{_SECURITY}.curve": "Keys from a Secret with the keys.json that `sporax ps keys` writes. Excludes token.",
    f"{_SECURITY}.curve.secretRef": _SECRET,
    f"{_SECURITY}.curve.secretRef.name": _SECRET_NAME,
    f"{_SECURITY}.token": "A Secret with a key called token that all processes of the job share. Excludes curve.",
    f"{_SECURITY}.token.secretRef": _SECRET,
    f"{_SECURITY}.token.secretRef.name": _SECRET_NAME,
    f"{_SECURITY}.networkPolicy": "Whether only pods of the job, and the operator, may connect to the job's pods.",
    "status": "What the operator says of the job, and remembers of it.",
    "status.conditions": (
        "Created, Running, Restarting, Suspended, Succeeded and Failed; also Scaled, GangScheduled, SpecAccepted, Admitted, "
        "PodsReachable and PodsStarted. The newest state stands last."
    ),
    "status.conditions[].type": "What the condition is about.",
    "status.conditions[].status": "Whether it holds: True, False or Unknown.",
    "status.conditions[].observedGeneration": "Edition of the spec that the condition is about.",
    "status.conditions[].reason": "Why, in one word.",
    "status.conditions[].message": "Why, for people.",
    "status.conditions[].lastUpdateTime": "When the condition was last written.",
    "status.conditions[].lastTransitionTime": "When its status last changed.",
    "status.replicaStatuses": "Pods of each role, counted.",
    "status.replicaStatuses.*": "Pods of one role, counted.",
    "status.replicaStatuses.*.active": "Pods that have not ended.",
    "status.replicaStatuses.*.ready": "Pods that run and are ready.",
    "status.replicaStatuses.*.succeeded": "Pods that have succeeded for good.",
    "status.replicaStatuses.*.failed": "Pods that have failed for good.",
    "status.replicaStatuses.*.labelSelector": "Labels of these pods.",
    "status.startTime": "Since when the job is active.",
    "status.completionTime": "When the job ended.",
    "status.lastReconcileTime": "When the status was last written.",
    "status.observedGeneration": "Edition of the spec that the status is about.",
    "status.restarts": "Pods and containers that were started again, for whatever reason.",
    "status.jobRestarts": "How often the whole job was started again; maxRestarts is about these.",
    "status.failures": "Those of the restarts that followed a failure; backoffLimit is about these.",
    "status.sizes": "Pods of each role that the job runs with.",
    "status.sizes.*": "Pods of one role.",
    "status.serversMayBeEvicted": "Whether the servers' disruption budget allows an eviction.",
    "status.schedulerAnswers": "Whether the job's scheduler has ever said how its servers are.",
    "status.selector": "Labels of the job's workers, for the scale sub-resource.",
    "status.progress": "How far the job is, as rank 0 says; written at most every ten seconds.",
    "status.progress.epoch": "Epoch, from 1 on.",
    "status.progress.step": "Steps that rank 0 has made since its process started to train.",
    "status.progress.loss": "Loss of the last step; nan and inf are possible, so it is a text.",
    "status.progress.samplesPerSecond": "Samples of rank 0 per second, over the last report.",
    "status.progress.time": "When rank 0 was queried.",
    "status.pods": "What is remembered of each pod over all its incarnations.",
    _RECORD: "What is remembered of one pod.",
    f"{_RECORD}.uid": "The incarnation that was seen last.",
    f"{_RECORD}.settledUid": "The last incarnation whose end has been counted.",
    f"{_RECORD}.since": "When uid was first seen.",
    f"{_RECORD}.restarts": "Incarnations that had to be replaced.",
    f"{_RECORD}.containerRestarts": "How often the kubelet started the container again, as counted so far.",
    f"{_RECORD}.quickFailures": "Failures in a row of incarnations that did not last; the delay grows with them.",
    f"{_RECORD}.notBefore": "When the next incarnation may be created.",
    f"{_RECORD}.result": "How the pod ended for good.",
}


def described(schema: Schema, path: str = "") -> Schema:
    """A schema whose fields have their descriptions.

    Raises:
        KeyError: a field has none.
    """
    result: Schema = (
        {"description": DESCRIPTIONS[path]} if path and path not in _OF_KUBERNETES and path[-1] != "]" else {}
    )
    result |= schema
    if "properties" in schema:
        names = {name: f"{path}.{name}" if path else name for name in schema["properties"]}
        result["properties"] = {name: described(schema["properties"][name], place) for name, place in names.items()}
    if "items" in schema:
        result["items"] = described(schema["items"], f"{path}[]")
    more = schema.get("additionalProperties")
    if isinstance(more, dict) and not more.get("x-kubernetes-int-or-string"):
        result["additionalProperties"] = described(more, f"{path}.*")
    return result
