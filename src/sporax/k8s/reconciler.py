"""One look at one job: take it and its pods from the cache, plan, store the status, carry out the actions."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from sporax.k8s.api import children
from sporax.k8s.api.cache import POD, JobCache, JobKey
from sporax.k8s.api.cluster import ConflictError, KubernetesCluster, RefusedError
from sporax.k8s.decide import actions
from sporax.k8s.decide.job_planning import hold, plan, refuse
from sporax.k8s.decide.observed import Gang, Pod, ReportedMembership
from sporax.k8s.metrics import Metrics
from sporax.k8s.progress_calls import ProgressClient
from sporax.k8s.resource import names
from sporax.k8s.resource.job_status import Progress, Status, is_urgent, read_status, status_patch
from sporax.k8s.resource.spec import InvalidSpecError, Job, PodRole, RestartPolicy, managed_elsewhere, read_job
from sporax.k8s.scheduler_calls import ParameterServerMembership

Body = dict[str, Any]
_log = logging.getLogger(__name__)
_COUNTS_TIME = timedelta(seconds=1)  # between two writes of a status with no other news than counts


class JobGoneError(Exception):
    """The job no longer exists."""


class Reconciler:
    """Brings jobs one step nearer to what is wanted."""

    def __init__(
        self,
        cluster: KubernetesCluster,
        cache: JobCache,
        metrics: Metrics,
        membership: ParameterServerMembership | None = None,
        progress: ProgressClient | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._cluster = cluster
        self._cache = cache
        self._metrics = metrics
        self._membership = membership
        self._progress = progress
        self._clock = clock
        self._checked: dict[
            JobKey, tuple[str, int, str]
        ] = {}  # uid, edition of the spec, what the API server says of it

    async def reconcile(self, key: JobKey) -> float | None:
        """Look at a job once.

        Returns:
            Seconds after which to look again even if nothing happens; None if there is no such time.

        Raises:
            JobGoneError: there is no such job.
        """
        body = self._cache.job(key)
        if body is None:
            self._metrics.statuses.pop(key, None)
            self._checked.pop(key, None)
            if self._progress is not None:
                self._progress.forget(key)
            raise JobGoneError(f"{key.namespace}/{key.name}")
        # It is being deleted, or another controller takes care of it.
        if body["metadata"].get("deletionTimestamp") or managed_elsewhere(body):
            return None
        before = read_status(body.get("status"))
        # pods of an earlier job of the same name are not ours
        pods = [pod for pod in self._cache.pods(key) if pod.owner_uid == body["metadata"]["uid"]]
        try:
            job = read_job(body)
            if not before.is_finished:
                await self._check(key, job)
        except InvalidSpecError as error:
            # The user sees the reason as the job's condition.
            generation = int(body["metadata"].get("generation", 0))
            await self._apply(body, before, refuse(key.name, generation, before, str(error), self._clock()))
            return None
        address = _address(pods, PodRole.SCHEDULER)
        membership = await self._query(job, before, address)
        gang = await self._cluster.find_gang() if job.spec.run_policy.scheduling_policy is not None else None
        rank_0 = "" if before.is_finished else _rank_0_address(job, pods)
        result = plan(
            job,
            before,
            pods,
            self._clock(),
            membership=membership,
            gang=gang,
            shared_is_complete=self._shared_is_complete(key, job, before),
            gang_members=await self._cluster.gang_members(job, gang) if gang is not None else None,
            progress=await self._query_progress(key, rank_0),
        )
        result = _without_counts(before, result, self._clock())
        try:
            await self._apply(body, before, result, job, address, gang)
        except RefusedError as error:
            _log.warning("%s/%s: a look failed: %s", *key, error)
            result = hold(job, result.status, error.reason, str(error), self._clock())
            body = self._cache.job(key)
            if body is None:
                raise ConflictError from error
            await self._apply(body, read_status(body.get("status")), result, job)
        wait = None if result.wake_at is None else max(0.0, (result.wake_at - self._clock()).total_seconds())
        return self._until_query(key, rank_0, wait)

    async def _query_progress(self, key: JobKey, rank_0: str) -> Progress | None:
        """How far the job is; None where rank 0 does not run or does not say it."""
        return await self._progress.read(key, rank_0, self._clock()) if self._progress is not None and rank_0 else None

    def _until_query(self, key: JobKey, rank_0: str, wait: float | None) -> float | None:
        """Seconds until the next look, which is no later than the next question to rank 0."""
        if self._progress is None or not rank_0:
            return wait
        left = self._progress.seconds_left(key)
        return left if wait is None else min(left, wait)

    def _shared_is_complete(self, key: JobKey, job: Job, status: Status) -> bool:
        """Whether what the pods share is there, as it was made; before the first pod there is nothing to restore."""
        allowed = bool(status.servers_may_be_evicted)
        return not status.pods or not self._cluster.missing_shared(job, self._cache.shared(key), allowed)

    async def _check(self, key: JobKey, job: Job) -> None:
        """Query the API server about the pod templates of each edition of a spec, once.

        Raises:
            InvalidSpecError: it would not take a pod of one of them.
        """
        uid, generation, problem = self._checked.get(key, ("", 0, ""))
        if (uid, generation) != (job.uid, job.generation):
            problem, sizes = "", {role: job.spec.replicas(role) for role in PodRole}
            for role in (role for role in _roles_to_check(job) if not problem):
                if words := await self._cluster.check_pod(children.pod(job, role, 0, sizes, None)):
                    problem = f"spec.msReplicaSpecs.{role.value}.template: {words}"
            self._checked[key] = (job.uid, job.generation, problem)
        if problem:
            raise InvalidSpecError(problem)

    async def refresh(self, key: JobKey) -> None:
        """Read a job from the API server: the cache has an old edition."""
        body = await self._cluster.read_job(*key)
        if body is None:
            self._cache.miss_job(key)
        else:
            self._cache.put(names.KIND, body)

    async def _apply(
        self,
        body: Body,
        before: Status,
        result: actions.Actions,
        job: Job | None = None,
        address: str = "",
        gang: Gang | None = None,
    ) -> None:
        """Store the status, then act. An action that fails is planned again at the next look."""
        # Stored first: an action that is lost is planned again, one that was not noted would be repeated.
        if result.status != before:
            stored = body.get("status") or {}
            patch = status_patch(read_status(stored), result.status, stored)
            # Entered at once, so that the next look does not plan from an old status.
            self._cache.put(names.KIND, await self._cluster.patch_status(body, patch))
        key = JobKey(body["metadata"]["namespace"], body["metadata"]["name"])
        self._metrics.statuses[key] = result.status
        for action in result.actions:
            self._metrics.actions.labels(type(action).__name__).inc()
            if isinstance(action, actions.Report):
                _log.info("%s/%s %s: %s", *key, action.reason, action.message)
                await self._cluster.report(body, action.kind, action.reason, action.message)
            elif job is not None:
                await self._act(job, action, self._cache.job(key) or body, address, gang)

    async def _act(self, job: Job, action: actions.Action, body: Body, address: str, gang: Gang | None) -> None:
        """Carry out one action."""
        match action:
            case actions.EnsureShared(wanted, members):
                allowed = bool(read_status(body.get("status")).servers_may_be_evicted)
                known = self._cache.shared(JobKey(job.namespace, job.name))
                for shared in await self._cluster.restore_shared(job, known, wanted, members, allowed):
                    self._cache.put(shared["kind"], shared)
            case actions.CreatePod(role, index, sizes, wanted):
                claim = children.volume_claim(job, role, index)
                # The claim before its pod, which would wait for it.
                if claim is not None:
                    await self._cluster.create(claim)
                created = await self._cluster.create(children.pod(job, role, index, dict(sizes), wanted))
                # None: it has just gone, and the watch reports it.
                if created is not None:
                    self._cache.put(POD, created)
            case actions.DeletePod(name, uid):
                await self._cluster.delete_pod(job.namespace, name, uid)
            case actions.DeleteJob():
                await self._cluster.delete_job(body)
            case actions.DeletePodGroup() if gang is not None:
                await self._cluster.delete_pod_group(job, gang)
            case actions.LimitEvictions(allowed):
                known = self._cache.shared(JobKey(job.namespace, job.name))
                budget = await self._cluster.limit_evictions(job, known, allowed)
                self._cache.put(budget["kind"], budget)
            case actions.ResizeJob(workers, servers) if self._membership is not None and address:
                await self._membership.resize(job, address, workers, servers)

    async def _query(self, job: Job, status: Status, address: str) -> ReportedMembership | None:
        """What the job's scheduler says, where it matters: in a running job with servers."""
        if self._membership is None or not address or status.is_finished or not status.size(PodRole.SERVER):
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


def _without_counts(before: Status, result: actions.Actions, now: datetime) -> actions.Actions:
    """A plan whose status is not written yet if it has no other news than counts, and was written a moment ago."""
    if before.last_reconcile_time is None or result.status == before or is_urgent(before, result.status):
        return result
    due = before.last_reconcile_time + _COUNTS_TIME
    if now >= due:
        return result
    return actions.Actions(result.actions, before, due if result.wake_at is None else min(due, result.wake_at))


def _roles_to_check(job: Job) -> list[PodRole]:
    """One role of each kind of pods: those of roles with equal templates differ in variables alone, but for servers'."""
    roles: list[PodRole] = []
    kinds: list[tuple[Body, RestartPolicy]] = []
    for role in PodRole:
        part = job.spec.replica_spec(role)
        if part is None:
            continue
        kind = (part.template, part.restart_policy)
        if role is PodRole.SERVER or kind not in kinds:
            roles.append(role)
        if role is not PodRole.SERVER:
            kinds.append(kind)
    return roles


def _address(pods: list[Pod], role: PodRole) -> str:
    """The address of a job's first running pod of a role, such as its scheduler; "" if it has none."""
    up = [pod for pod in pods if pod.role is role and pod.index == 0 and pod.is_ready and not pod.is_deleting]
    return up[0].address if up and up[0].is_active else ""


def _rank_0_address(job: Job, pods: list[Pod]) -> str:
    """Where rank 0 says how far the job is; "" if it does not run or says nothing."""
    return _address(pods, PodRole.WORKER) if children.reports_progress(job, PodRole.WORKER, 0) else ""
