"""The API server, as the operator needs it: a handful of calls over lightkube, each safe to repeat."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Collection, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, TypeVar

import httpx2
from lightkube import AsyncClient
from lightkube.generic_resource import create_namespaced_resource
from lightkube.types import PatchType

from sporax.k8s.api import children
from sporax.k8s.decide.observed import Gang, controller_uid
from sporax.k8s.resource import names
from sporax.k8s.resource.spec import Job

Body = dict[str, Any]
Content = Mapping[str, Any]  # a body that is only read
Answer = TypeVar("Answer")
Resource = Any  # a class of lightkube, which has no type for them
_log = logging.getLogger(__name__)

# lightkube's ApiError is one of these, for answers in JSON; what a proxy answers is not.
CONFLICT, NOT_FOUND = 409, 404
_REFUSALS = {400: "InvalidSpec", 422: "InvalidSpec", 403: "Forbidden"}  # answers that the same call gets again
_NO_DRY_RUN = "does not support dry run"  # of an admission webhook: it says nothing of the object
_OLD_BUDGET = "policy/v1beta1"  # of API servers before 1.21
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


class RefusedError(Exception):
    """The API server does not take an object of a job, or one of its name belongs to somebody else.

    Attributes:
        reason: InvalidSpec, Forbidden, NameTaken, or Leaving where the object of an earlier job is not gone yet.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


async def unless(call: Awaitable[Answer], *codes: int) -> Answer | None:
    """The answer of a call; None where the API server refuses it with one of these codes."""
    try:
        return await call
    except httpx2.HTTPStatusError as error:
        if error.response.status_code not in codes:
            raise
        return None


class KubernetesCluster:
    """The objects of all jobs."""

    def __init__(self, client: AsyncClient, namespaces: Collection[str] = ()) -> None:
        """A cluster, of which some namespaces are looked at; without any, all."""
        self._scopes = tuple(namespaces) or ("*",)
        self._client = client
        self._budget_version = "policy/v1"
        self._gang: Gang | None = None
        self._gang_queried_at: float | None = None

    async def knows_jobs(self) -> bool:
        """Whether the definition of our jobs is installed."""
        return await unless(self._knows(JOB), NOT_FOUND) is not None

    async def _knows(self, resource: Resource) -> bool:
        """True; an unknown kind is not found."""
        # One item is enough to see that the kind is known.
        async for _ in self._client.list(resource, namespace=self._scopes[0], chunk_size=1):
            break
        return True

    async def read_job(self, namespace: str, name: str) -> Body | None:
        """A job; None if there is none."""
        return await self._read(JOB, namespace, name)

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

    async def patch_status(self, body: Content, patch: Body) -> Body:
        """Change a job's status, if the job is still the one that was read; returns the job as it is then.

        Raises:
            ConflictError: it is not.
        """
        metadata = body["metadata"]
        # Both make the API server refuse the patch if the job has changed since, or is another of its name.
        change = {"metadata": {key: metadata[key] for key in ("uid", "resourceVersion")}, "status": patch}
        call = self._client.patch(
            JOB.Status, metadata["name"], change, namespace=metadata["namespace"], patch_type=PatchType.MERGE
        )
        changed: Body | None = await unless(call, CONFLICT, NOT_FOUND)
        if changed is None:
            raise ConflictError
        return changed

    async def create(self, manifest: Body) -> Body | None:
        """Create an object; returns it as it is then, None if it has just gone.

        Raises:
            RefusedError: the API server does not take it, or an object of its name is not the job's.
        """
        resource = _KINDS[manifest["apiVersion"], manifest["kind"]]
        try:
            created: Body = await self._client.create(resource(manifest))
        except httpx2.HTTPStatusError as error:
            if error.response.status_code == CONFLICT:
                return await self._existing(resource, manifest)
            raise _refusal(manifest, error) from error
        return created

    async def _existing(self, resource: Resource, manifest: Body) -> Body | None:
        """The object that has a name already: of an earlier attempt to create it, or not ours."""
        metadata, what = manifest["metadata"], f"{manifest['kind']} '{manifest['metadata']['name']}'"
        body = await self._read(resource, metadata["namespace"], metadata["name"])
        wanted = controller_uid(metadata)
        if body is None or (wanted and controller_uid(body["metadata"]) == wanted):
            return body
        owner = metadata["ownerReferences"][0]
        others = body["metadata"].get("ownerReferences") or []
        earlier = any(item["kind"] == names.KIND and item["name"] == owner["name"] for item in others)
        if earlier or body["metadata"].get("deletionTimestamp"):
            raise RefusedError("Leaving", f"{what} of an earlier job is not gone yet.")
        raise RefusedError(
            "NameTaken", f"{what} is there already and does not belong to this job; it is left as it is."
        )

    async def check_pod(self, manifest: Body) -> str:
        """Why the API server would not take a pod, whatever room there is; "" if it would. Nothing is created."""
        metadata = {key: value for key, value in manifest["metadata"].items() if key != "name"}
        # Under a name of its own: the pod itself may be there already.
        body = {**manifest, "metadata": {**metadata, "generateName": f"{manifest['metadata']['name']}-"}}
        # Older API servers know no fieldValidation, and ignore it.
        options = {"dryRun": "All", "fieldValidation": "Strict"}
        try:
            await self._send("post", _POD, metadata["namespace"], None, body, options)
        except httpx2.HTTPStatusError as error:
            refusal = _refusal(manifest, error)
            if not isinstance(refusal, RefusedError):
                raise
            return "" if refusal.reason == "Forbidden" or _NO_DRY_RUN in str(refusal) else str(refusal)
        return ""

    async def restore_shared(
        self, job: Job, known: list[Body], gang: Gang | None, gang_members: int | None, allowed: bool
    ) -> list[Body]:
        """Create what a job's pods share where it is missing, and change back what somebody has changed.

        Args:
            job: the job.
            known: what was last seen of it; what is as it was made costs no call.
            gang: whose pod group to create; None for none.
            gang_members: how many pods it waits for.
            allowed: whether a server may be evicted.

        Raises:
            RefusedError: an object of such a name is not the job's.
            ConflictError: somebody has just changed or deleted one.
        """
        bodies = []
        for manifest in self.missing_shared(job, known, allowed):
            is_budget = manifest["kind"] == "PodDisruptionBudget"
            restored = self.limit_evictions(job, known, allowed) if is_budget else self._restore(manifest, known)
            bodies.append(await restored)
        if gang is not None and gang_members is not None:
            await self._restore(children.pod_group(job, gang, gang_members))
        return bodies

    async def _restore(self, manifest: Body, known: Iterable[Body] = ()) -> Body:
        """Create an object, or change it back to what its manifest says. One that is known is not created in vain."""
        if (body := _found(manifest, known)) is not None:
            with suppress(ConflictError):  # what is known is old
                return await self._change_back(manifest, body)
        body = await self.create(manifest)
        if body is None:
            raise ConflictError
        return await self._change_back(manifest, body)

    async def _change_back(self, manifest: Body, body: Body) -> Body:
        """Make an object what its manifest says, unless it is that already."""
        changed = body
        if not children.is_as_made(manifest, body):
            change = children.change_back(manifest, body)
            resource = _KINDS[manifest["apiVersion"], manifest["kind"]]
            name, namespace = manifest["metadata"]["name"], manifest["metadata"]["namespace"]
            try:
                changed = await self._client.patch(
                    resource, name, change, namespace=namespace, patch_type=PatchType.MERGE
                )
            except httpx2.HTTPStatusError as error:
                if error.response.status_code in (CONFLICT, NOT_FOUND):
                    raise ConflictError from error
                raise _refusal(manifest, error) from error
        return {**changed, "kind": manifest["kind"]}

    async def delete_pod(self, namespace: str, name: str, uid: str) -> None:
        """Delete one incarnation of a pod, if it is there."""
        await self._delete(_POD, namespace, name, uid)

    async def delete_job(self, body: Content) -> None:
        """Delete a job as it was read; the garbage collector deletes what it owns.

        Raises:
            ConflictError: it has changed since.
        """
        metadata = body["metadata"]
        is_there = await self._delete(
            JOB, metadata["namespace"], metadata["name"], metadata["uid"], metadata["resourceVersion"]
        )
        if not is_there:
            raise ConflictError

    async def gang_members(self, job: Job, gang: Gang) -> int | None:
        """How many pods the job's pod group waits for; None if it has none."""
        body = await self._read(_GANGS[gang], job.namespace, job.name)
        is_ours = body is not None and controller_uid(body["metadata"]) == job.uid
        return int(body["spec"].get("minMember", 0)) if body is not None and is_ours else None

    async def delete_pod_group(self, job: Job, gang: Gang) -> None:
        """Give a gang's reservation back, if it is this job's."""
        body = await self._read(_GANGS[gang], job.namespace, job.name)
        if body is not None and controller_uid(body["metadata"]) == job.uid:
            await self._delete(_GANGS[gang], job.namespace, job.name, body["metadata"]["uid"])

    async def limit_evictions(self, job: Job, known: list[Body], allowed: bool) -> Body:
        """Set how many of a job's servers may be evicted at once: one or none; gives the budget.

        Args:
            job: the job.
            known: what was last seen of what its pods share.
            allowed: whether a server may be evicted.

        Raises:
            RefusedError: a budget of that name is not the job's.
            ConflictError: somebody has changed the budget since it was read.
        """
        try:
            return await self._restore(children.disruption_budget(job, self._budget_version, allowed), known)
        except httpx2.HTTPStatusError as error:
            # Every cluster has this kind; only its version differs.
            if error.response.status_code != NOT_FOUND or self._budget_version == _OLD_BUDGET:
                raise
        self._budget_version = _OLD_BUDGET
        return await self._restore(children.disruption_budget(job, self._budget_version, allowed), known)

    def missing_shared(self, job: Job, known: list[Body], allowed: bool) -> list[Body]:
        """Manifests of what a job's pods share and is not there, or not as it was made; no call."""
        missing = []
        for manifest in children.shared(job, self._budget_version, allowed):
            body = _found(manifest, known)
            if body is None or not children.is_as_made(manifest, body):
                missing.append(manifest)
        return missing

    async def report(self, job_body: Content, kind: str, reason: str, message: str) -> None:
        """Write an event about a job."""
        metadata = job_body["metadata"]
        # Kubernetes wants times in UTC with seconds.
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        event = names.manifest(
            "v1",
            "Event",
            # A name of its own for each event.
            {"generateName": f"{metadata['name']}.", "namespace": metadata["namespace"]},
            involvedObject=names.reference(metadata["name"], metadata["uid"], namespace=metadata["namespace"]),
            type=kind,
            reason=reason,
            # Kubernetes refuses an event with a message of more than 1024 characters.
            message=message[:1000],
            firstTimestamp=now,
            lastTimestamp=now,
            count=1,
            source={"component": "sporax-operator"},
        )
        try:
            await self.create(event)
        except RefusedError as error:
            # A job must not wait for its events.
            _log.warning("%s/%s: an event is not taken: %s", metadata["namespace"], metadata["name"], error)

    async def find_gang(self) -> Gang | None:
        """The gang scheduler that the cluster has; Volcano if it has both."""
        now = time.monotonic()
        # Queried seldom: a look at one job must not cost two more requests.
        if self._gang_queried_at is None or now - self._gang_queried_at > _GANG_MEMORY_SECONDS:
            found = [gang for gang, resource in _GANGS.items() if await unless(self._knows(resource), NOT_FOUND)]
            # Written after the answers: looks at other jobs go on meanwhile, and a query that failed is repeated.
            self._gang, self._gang_queried_at = next(iter(found), None), now
        return self._gang

    async def _read(self, resource: Resource, namespace: str, name: str) -> Body | None:
        """An object; None if there is none."""
        return await unless(self._client.get(resource, name, namespace=namespace), NOT_FOUND)

    async def _delete(self, resource: Resource, namespace: str, name: str, uid: str, version: str = "") -> bool:
        """Delete an object if it is there, has this uid and, where one is given, this version; whether it was so."""
        conditions = {"uid": uid} | ({"resourceVersion": version} if version else {})
        # In the background: the API server answers at once.
        body = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "propagationPolicy": "Background",
            "preconditions": conditions,
        }
        call = self._send("delete", resource, namespace, name, body, {})
        return await unless(call, NOT_FOUND, CONFLICT) is not None

    async def _send(
        self, method: str, resource: Resource, namespace: str, name: str | None, body: Body, options: dict[str, str]
    ) -> bool:
        """A call with a body and options that lightkube's own methods do not take; True, or the error."""
        generic: Any = self._client._client
        if method == "post":
            await generic.request("post", resource, resource(body), namespace=namespace, params=options)
            return True
        request = generic.prepare_request(method, resource, None, name, namespace, params=options)
        request.data = body
        generic.raise_for_status(await generic.send(generic.build_adapter_request(request)))
        return True


def _found(manifest: Body, known: Iterable[Body]) -> Body | None:
    """The object of a manifest's kind and name that belongs to the same job, among those that were seen."""
    metadata, owner = manifest["metadata"], controller_uid(manifest["metadata"])
    for body in known:
        is_named = (body["kind"], body["metadata"]["name"]) == (manifest["kind"], metadata["name"])
        if is_named and controller_uid(body["metadata"]) == owner:
            return body
    return None


def _refusal(manifest: Body, error: httpx2.HTTPStatusError) -> Exception:
    """What an answer means: an object that is not taken, or the error itself."""
    reason = _REFUSALS.get(error.response.status_code)
    if reason is None:
        return error
    what = manifest["metadata"].get("name") or manifest["metadata"].get("generateName", "")
    try:
        words = error.response.json()["message"]
    except (ValueError, KeyError, TypeError):
        words = error.response.text  # what a proxy answers is no Status
    return RefusedError(reason, f"The API server does not take {manifest['kind']} '{what}': {words}")
