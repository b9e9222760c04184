"""The API server, as the operator needs it: a handful of calls over lightkube, each safe to repeat."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any

import httpx2
from lightkube import AsyncClient
from lightkube.generic_resource import create_namespaced_resource
from lightkube.types import CascadeType, PatchType

from sporax.k8s.api import children
from sporax.k8s.decide.observed import Gang
from sporax.k8s.resource import names
from sporax.k8s.resource.spec import Job, Role

Body = dict[str, Any]

# lightkube's ApiError is one of these, for answers in JSON; what a proxy answers is not.
CONFLICT, NOT_FOUND = 409, 404
# Seconds; a scheduler that is installed later is noticed after this time.
_GANG_MEMORY_SECONDS = 60.0

JOB: Any = create_namespaced_resource(names.GROUP, names.VERSION, names.KIND, names.PLURAL)
_KINDS: dict[tuple[str, str], Any] = {
    (version, kind): create_namespaced_resource(group, edition, kind, plural)
    for version, kind, plural in (
        ("v1", "Pod", "pods"),
        ("v1", "Service", "services"),
        ("v1", "Event", "events"),
        ("v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
        ("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets"),
        ("policy/v1beta1", "PodDisruptionBudget", "poddisruptionbudgets"),
        ("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies"),
        ("scheduling.volcano.sh/v1beta1", "PodGroup", "podgroups"),
        ("scheduling.x-k8s.io/v1alpha1", "PodGroup", "podgroups"),
    )
    for group, _, edition in [version.rpartition("/")]
}
_POD = _KINDS["v1", "Pod"]
_ANY_JOB: Any = {names.LABEL_JOB: None}  # the selector "has this label"
_GANGS = {
    Gang.VOLCANO: _KINDS["scheduling.volcano.sh/v1beta1", "PodGroup"],
    Gang.COSCHEDULING: _KINDS["scheduling.x-k8s.io/v1alpha1", "PodGroup"],
}


class ConflictError(Exception):
    """Somebody changed an object since it was read."""


class Cluster:
    """The objects of all jobs."""

    def __init__(self, client: AsyncClient, namespaces: Collection[str] = ()) -> None:
        """A cluster, of which some namespaces are looked at; without any, all."""
        self._scopes = tuple(namespaces) or ("*",)
        self._client = client
        self._budget_version = "policy/v1"
        self._gang: Gang | None = None
        self._gang_asked_at: float | None = None

    async def knows_jobs(self) -> bool:
        """Whether the definition of our jobs is installed."""
        try:
            # One item is enough to see that the kind is known.
            async for _ in self._client.list(JOB, namespace=self._scopes[0], chunk_size=1):
                break
        except httpx2.HTTPStatusError as error:
            if error.response.status_code == NOT_FOUND:
                return False
            raise
        return True

    async def read_job(self, namespace: str, name: str) -> Body | None:
        """A job; None if there is none."""
        try:
            body: Body = await self._client.get(JOB, name, namespace=namespace)
        except httpx2.HTTPStatusError as error:
            if error.response.status_code == NOT_FOUND:
                return None
            raise
        return body

    async def read_all(self) -> tuple[list[Body], list[Body], int]:
        """All jobs, all their pods, and a version that both lists are at least at."""
        jobs: list[Body] = []
        pods: list[Body] = []
        versions = []
        for scope in self._scopes:
            for kind, labels, bodies in ((JOB, None, jobs), (_POD, _ANY_JOB, pods)):
                # With the label alone: pods of other programs are none of the operator's business.
                listing = self._client.list(kind, namespace=scope, labels=labels)
                bodies += [body async for body in listing]
                versions.append(int(listing.resourceVersion))
        # The oldest version: both lists are at least as new.
        return jobs, pods, min(versions)

    async def patch_status(self, body: Mapping[str, Any], patch: Body) -> Body:
        """Change a job's status, if the job is still the one that was read; returns the job as it is then.

        Raises:
            ConflictError: it is not.
        """
        metadata = body["metadata"]
        # The version makes the API server refuse the patch if the job has changed since.
        change = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "status": patch}
        try:
            changed: Body = await self._client.patch(
                JOB.Status, metadata["name"], change, namespace=metadata["namespace"], patch_type=PatchType.MERGE
            )
        except httpx2.HTTPStatusError as error:
            if error.response.status_code in (CONFLICT, NOT_FOUND):
                raise ConflictError from error
            raise
        return changed

    async def create(self, manifest: Body) -> Body | None:
        """Create an object; returns it as it is then, None if it was there already."""
        resource = _KINDS[manifest["apiVersion"], manifest["kind"]]
        try:
            created: Body = await self._client.create(resource(manifest))
        except httpx2.HTTPStatusError as error:
            # It was there already, from an earlier attempt with the same name.
            if error.response.status_code == CONFLICT:
                return None
            raise
        return created

    async def create_shared(self, job: Job, gang: Gang | None) -> None:
        """Create what a job's pods share, where it is missing."""
        for manifest in children.shared(job, self._budget_version):
            try:
                await self.create(manifest)
            except httpx2.HTTPStatusError as error:
                # Every cluster has this kind; only its version differs.
                if manifest["kind"] != "PodDisruptionBudget" or error.response.status_code != NOT_FOUND:
                    raise
                self._budget_version = "policy/v1beta1"  # an API server before 1.21
                await self.create(children.disruption_budget(job, self._budget_version))
        if gang is not None:
            total = sum(job.spec.replicas(role) for role in Role)
            await self.create(children.pod_group(job, gang, total))

    async def delete_pod(self, namespace: str, name: str) -> None:
        """Delete a pod, if it is there."""
        await self._delete(_POD, namespace, name)

    async def delete_job(self, job: Job) -> None:
        """Delete a job; the garbage collector deletes what it owns."""
        await self._delete(JOB, job.namespace, job.name)

    async def delete_pod_group(self, job: Job, gang: Gang) -> None:
        """Give a gang's reservation back."""
        await self._delete(_GANGS[gang], job.namespace, job.name)

    async def limit_evictions(self, job: Job, allowed: bool) -> None:
        """Set how many of a job's servers may be evicted at once."""
        resource = _KINDS[self._budget_version, "PodDisruptionBudget"]
        # 0 or 1: how many servers may be missing.
        change = {"spec": {"maxUnavailable": int(allowed)}}
        try:
            await self._client.patch(
                resource,
                children.budget_name(job.name),
                change,
                namespace=job.namespace,
                patch_type=PatchType.MERGE,
            )
        except httpx2.HTTPStatusError as error:
            if error.response.status_code != NOT_FOUND:
                raise
            # The budget was deleted, or the operator died before it was made.
            await self.create_shared(job, None)

    async def report(self, job_body: Mapping[str, Any], kind: str, reason: str, message: str) -> None:
        """Write an event about a job."""
        metadata = job_body["metadata"]
        # Kubernetes wants times in UTC with seconds.
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            # A name of its own for each event.
            "metadata": {"generateName": f"{metadata['name']}.", "namespace": metadata["namespace"]},
            "involvedObject": {
                "apiVersion": names.API_VERSION,
                "kind": names.KIND,
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "uid": metadata["uid"],
            },
            "type": kind,
            "reason": reason,
            # Kubernetes refuses an event with a message of more than 1024 characters.
            "message": message[:1000],
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "source": {"component": "sporax-operator"},
        }
        await self.create(event)

    async def find_gang(self) -> Gang | None:
        """The gang scheduler that the cluster has; Volcano if it has both."""
        now = time.monotonic()
        # Asked seldom: a look at one job must not cost two more requests.
        if self._gang_asked_at is None or now - self._gang_asked_at > _GANG_MEMORY_SECONDS:
            self._gang = next([gang async for gang in self._gangs()].__iter__(), None)
            self._gang_asked_at = now
        return self._gang

    async def _gangs(self) -> Any:
        """Gang schedulers whose PodGroup resource exists."""
        for gang, resource in _GANGS.items():
            try:
                async for _ in self._client.list(resource, namespace=self._scopes[0], chunk_size=1):
                    break
            except httpx2.HTTPStatusError as error:
                if error.response.status_code == NOT_FOUND:
                    continue
                raise
            yield gang

    async def _delete(self, resource: Any, namespace: str, name: str) -> None:
        """Delete an object, if it is there."""
        try:
            # In the background: the API server answers at once.
            await self._client.delete(resource, name, namespace=namespace, cascade=CascadeType.BACKGROUND)
        except httpx2.HTTPStatusError as error:
            if error.response.status_code != NOT_FOUND:
                raise
