"""One look at one job: take it and its pods from the cache, plan, store the status, carry out the actions."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from sporax.k8s.api import children
from sporax.k8s.api.cache import JobCache, JobKey
from sporax.k8s.api.cluster import Cluster, ConflictError
from sporax.k8s.decide.actions import (
    Action,
    CreatePod,
    DeleteJob,
    DeletePod,
    DeletePodGroup,
    EnsureShared,
    LimitEvictions,
    Plan,
    Report,
    ResizeJob,
)
from sporax.k8s.decide.job_planning import plan, refuse
from sporax.k8s.decide.observed import Gang, Membership, Pod
from sporax.k8s.metrics import Metrics
from sporax.k8s.resource import job_status as facts
from sporax.k8s.resource.job_status import Status, read_status, status_patch
from sporax.k8s.resource.spec import InvalidSpecError, Job, Role, managed_elsewhere, read_job
from sporax.k8s.scheduler_calls import MembershipClient

_log = logging.getLogger(__name__)


class JobGoneError(Exception):
    """The job no longer exists."""


class Reconciler:
    """Brings jobs one step nearer to what is wanted."""

    def __init__(
        self,
        cluster: Cluster,
        cache: JobCache,
        metrics: Metrics,
        membership: MembershipClient | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._cluster = cluster
        self._cache = cache
        self._metrics = metrics
        self._membership = membership
        self._clock = clock

    async def reconcile(self, key: JobKey) -> float | None:
        """Look at a job once.

        Returns:
            Seconds after which to look again even if nothing happens; None if there is no such time.

        Raises:
            JobGoneError: there is no such job.
        """
        body = self._cache.job(key)
        if body is None:
            self._metrics.forget(key)
            raise JobGoneError(f"{key.namespace}/{key.name}")
        # It is being deleted, or another controller takes care of it.
        if body["metadata"].get("deletionTimestamp") or managed_elsewhere(body):
            return None
        before = read_status(body.get("status"))
        # pods of an earlier job of the same name are not ours
        pods = [pod for pod in self._cache.pods(key) if pod.owner_uid == body["metadata"]["uid"]]
        try:
            job = read_job(body)
        except InvalidSpecError as error:
            # The user sees the reason as the job's condition.
            await self._apply(body, before, refuse(key.name, _generation(body), before, str(error), self._clock()))
            return None
        address = _scheduler_address(pods)
        membership = await self._ask(job, before, address)
        gang = await self._cluster.find_gang() if job.spec.run_policy.scheduling_policy is not None else None
        result = plan(job, before, pods, self._clock(), membership=membership, gang=gang)
        await self._apply(body, before, result, job, address, gang)
        return None if result.wake_at is None else max(0.0, (result.wake_at - self._clock()).total_seconds())

    async def refresh(self, key: JobKey) -> None:
        """Read a job from the API server: the cache has an old edition."""
        body = await self._cluster.read_job(*key)
        if body is None:
            self._cache.miss_job(key)
        else:
            self._cache.put_job(body)

    async def _apply(
        self,
        body: dict[str, Any],
        before: Status,
        result: Plan,
        job: Job | None = None,
        address: str = "",
        gang: Gang | None = None,
    ) -> None:
        """Store the status, then act. An action that fails is planned again at the next look."""
        # Stored first: an action that is lost is planned again, one that was not noted would be repeated.
        if result.status != before:
            patch = status_patch(read_status(body.get("status")), result.status)
            # Entered at once, so that the next look does not plan from an old status.
            self._cache.put_job(await self._cluster.patch_status(body, patch))
        key = JobKey(body["metadata"]["namespace"], body["metadata"]["name"])
        self._metrics.set_state(key, _state(result.status))
        for action in result.actions:
            self._metrics.count_action(type(action).__name__)
            if isinstance(action, Report):
                _log.info("%s/%s %s: %s", *key, action.reason, action.message)
                await self._cluster.report(body, action.kind, action.reason, action.message)
            elif job is not None:
                await self._act(job, action, address, gang)

    async def _act(self, job: Job, action: Action, address: str, gang: Gang | None) -> None:
        """Carry out one action."""
        match action:
            case EnsureShared(wanted):
                await self._cluster.create_shared(job, wanted)
            case CreatePod(role, index, sizes, wanted):
                claim = children.volume_claim(job, role, index)
                # The claim before its pod, which would wait for it.
                if claim is not None:
                    await self._cluster.create(claim)
                created = await self._cluster.create(children.pod(job, role, index, dict(sizes), wanted))
                # None: it was there already, and the watch tells of it.
                if created is not None:
                    self._cache.put_pod(created)
            case DeletePod(name, _):
                await self._cluster.delete_pod(job.namespace, name)
            case DeleteJob():
                await self._cluster.delete_job(job)
            case DeletePodGroup() if gang is not None:
                await self._cluster.delete_pod_group(job, gang)
            case LimitEvictions(allowed):
                await self._cluster.limit_evictions(job, allowed)
            case ResizeJob(workers, servers) if self._membership is not None and address:
                await self._membership.resize(job, address, workers, servers)

    async def _ask(self, job: Job, status: Status, address: str) -> Membership | None:
        """What the job's scheduler says, where it matters: in a running job with servers."""
        if self._membership is None or not address or status.is_finished or not status.size(Role.SERVER):
            # Only jobs with servers change their membership.
            return None
        return await self._membership.read(job, address)


async def reconcile_until_stored(reconciler: Reconciler, key: JobKey, attempts: int = 5) -> float | None:
    """Look again at once when another client changed the job in between."""
    for _ in range(attempts - 1):
        try:
            return await reconciler.reconcile(key)
        except ConflictError:
            # Another writer changed the job, so the plan is made again from its newest form.
            await reconciler.refresh(key)
    return await reconciler.reconcile(key)


def _generation(body: dict[str, Any]) -> int:
    """Which edition of a job's spec this is."""
    return int(body["metadata"].get("generation", 0))


def _scheduler_address(pods: list[Pod]) -> str:
    """The address of a job's running scheduler; "" if it has none."""
    up = [pod for pod in pods if pod.role is Role.SCHEDULER and pod.is_ready and not pod.is_deleting]
    return up[0].address if up else ""


def _state(status: Status) -> str:
    """The word for a job's state in metrics."""
    order = (facts.SUCCEEDED, facts.FAILED, facts.SUSPENDED, facts.RESTARTING, facts.RUNNING)
    return next((kind for kind in order if status.is_true(kind)), facts.CREATED)
