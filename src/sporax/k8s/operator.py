"""The running operator: kopf watches jobs and pods and wakes up the job concerned; everything else is in the reconciler.

kopf brings the watching (with resuming, relisting after 410 and back-off), the login and the liveness endpoint. Its
change-detection handlers are not used: they would write annotations and finalizers into users' objects. What is seen enters
a cache, and looks read from there. What a watch may lose, such as a deletion while it was closed, is found by a slow regular
list of everything.

Each job has one task, so that two looks at one job never overlap, and jobs do not wait for each other.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import random
import time
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import replace
from typing import Any

import httpx2
import kopf
from lightkube import AsyncClient
from msgspec import Struct
from prometheus_client import start_http_server

from sporax.base.text_pages import HEALTHY, TextPages
from sporax.k8s.api.cache import POD, SHARED, JobCache, JobKey, key_of
from sporax.k8s.api.cluster import NOT_FOUND, KubernetesCluster
from sporax.k8s.leader import LeaderLease, LeaseOptions
from sporax.k8s.metrics import Metrics
from sporax.k8s.progress_calls import ProgressClient
from sporax.k8s.reconciler import JobGoneError, Reconciler, reconcile_until_stored
from sporax.k8s.resource import names
from sporax.k8s.scheduler_calls import ParameterServerMembership

_log = logging.getLogger(__name__)
_DEFINITION_POLL_SECONDS = 1.0
_IDENTITY: Any = (
    "sporax-operator"  # unused without peering; kopf's own needs a user name, which no container has to give
)
# What kopf finds each kind by.
_WATCHED = {
    names.KIND: (names.GROUP, names.VERSION, names.PLURAL),
    POD: ("", "v1", "pods"),
    "Service": ("v1", "services"),
    "PodDisruptionBudget": ("policy", "poddisruptionbudgets"),
    "NetworkPolicy": ("networking.k8s.io", "networkpolicies"),
}
_LOGGERS_OF_TASKS = ("kopf._core.reactor.running", "kopf._core.reactor.orchestration")
_EVERY_ADDRESS = "0.0.0.0"
_FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS = 0.2, 30.0


class OperatorOptions(Struct, frozen=True):
    """How an operator runs.

    Attributes:
        namespaces: those it serves; empty: all.
        metrics_port: where Prometheus finds the figures; None: nowhere.
        liveness_port: where the kubelet probes whether the operator lives; None: nowhere.
        resync_seconds: how often everything is listed and every job looked at without a reason.
        parallel_looks: jobs that are looked at at the same time.
        lease: of several operators only the one that holds it works; None: this is the only one.
    """

    namespaces: Collection[str] = ()
    metrics_port: int | None = None
    liveness_port: int | None = None
    resync_seconds: float = 120.0
    parallel_looks: int = 8
    lease: LeaseOptions | None = None


class JobWorkers:
    """One task per job, woken up by notices and by time."""

    def __init__(
        self,
        reconciler: Reconciler,
        metrics: Metrics,
        options: OperatorOptions,
        may_work: Callable[[], bool] = lambda: True,
    ) -> None:
        self._reconciler = reconciler
        self._may_work = may_work
        self._metrics = metrics
        self._concurrency = asyncio.Semaphore(options.parallel_looks)
        self._notices: dict[JobKey, asyncio.Event] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def wake(self, key: JobKey) -> None:
        """Look at a job soon."""
        # The task of a job begins with its first notice.
        if key not in self._notices:
            self._notices[key] = asyncio.Event()
            task = asyncio.create_task(self._serve(key), name=f"msjob {key.namespace}/{key.name}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        # Also for a task that is busy: it looks once more afterwards.
        self._notices[key].set()

    async def stop(self) -> None:
        """End all tasks."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, key: JobKey) -> None:
        """Look at one job again and again, until it is gone."""
        notice, failures = self._notices[key], 0
        wait: float | None = 0.0
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(notice.wait(), wait)
            # Cleared before the look: a notice during it must cause another one.
            notice.clear()
            try:
                wait = await self._look(key)
            except JobGoneError:
                if not notice.is_set():  # it may just have been created again
                    del self._notices[key]
                    return
                wait = 0.0
            except Exception as error:
                failures += 1
                self._metrics.errors.inc()
                _log.warning("%s/%s: a look failed and is tried again: %r", *key, error)
                # Doubled after each failure, up to half a minute.
                wait = min(_FIRST_RETRY_SECONDS * 2 ** (failures - 1), _LONGEST_RETRY_SECONDS)
                # What woke it up is part of the look that is tried again.
                notice.clear()
            else:
                failures = 0

    async def _look(self, key: JobKey) -> float | None:
        """Look at a job once, when it is its turn."""
        async with self._concurrency:
            if not self._may_work():  # kopf takes a moment to end
                return _FIRST_RETRY_SECONDS
            start = time.perf_counter()
            try:
                return await reconcile_until_stored(self._reconciler, key)
            finally:
                self._metrics.reconcile_seconds.observe(time.perf_counter() - start)


async def serve(
    options: OperatorOptions,
    *,
    client: AsyncClient | None = None,
    membership: ParameterServerMembership | None = None,
    progress: ProgressClient | None = None,
    metrics: Metrics | None = None,
    stop: asyncio.Event | None = None,
    ready: asyncio.Event | None = None,
) -> None:
    """Run an operator until it is stopped.

    Raises:
        LeaseLostError: another operator works, or will soon.
    """
    metrics = metrics or Metrics()
    # Before anything else, so that a failing start can be seen.
    if options.metrics_port is not None:
        start_http_server(options.metrics_port, registry=metrics.registry)
    client = client or AsyncClient(field_manager="sporax-operator")
    try:
        work = functools.partial(_work, options, client, metrics, (membership, progress), stop, ready)
        if options.lease is None:
            await work(lambda: True)
        elif await _wait_to_lead(lease := LeaderLease(client, options.lease), options, stop):
            await lease.lead(work(lambda: lease.is_held))
    finally:
        await client.close()


async def _wait_to_lead(lease: LeaderLease, options: OperatorOptions, stop: asyncio.Event | None) -> bool:
    """Whether this operator works now; False where it is stopped before. Meanwhile the kubelet sees that it lives."""
    if options.liveness_port is None:
        return await lease.acquire(stop)
    pages = TextPages(options.liveness_port, {}, _EVERY_ADDRESS)
    try:
        return await lease.acquire(stop)
    finally:
        pages.close()


async def _work(
    options: OperatorOptions,
    client: AsyncClient,
    metrics: Metrics,
    calls: tuple[ParameterServerMembership | None, ProgressClient | None],
    stop: asyncio.Event | None,
    ready: asyncio.Event | None,
    may_work: Callable[[], bool],
) -> None:
    """Look after jobs until stopped; no look begins while `may_work` says no."""
    cluster, cache = KubernetesCluster(client, options.namespaces), JobCache()
    workforce = JobWorkers(Reconciler(cluster, cache, metrics, *calls), metrics, options, may_work)
    resync = asyncio.create_task(_resync(cluster, cache, workforce, metrics, options.resync_seconds))
    endpoint = None if options.liveness_port is None else f"http://{_EVERY_ADDRESS}:{options.liveness_port}{HEALTHY}"
    without_missing = _WithoutMissing()
    for name in _LOGGERS_OF_TASKS:
        logging.getLogger(name).addFilter(without_missing)
    try:
        is_served = False
        while not is_served:
            await _wait_for_definition(cluster, stop)
            watching = kopf.operator(
                registry=_handlers(workforce, cache),
                settings=_settings(),
                standalone=True,
                identity=_IDENTITY,
                clusterwide=not options.namespaces,
                namespaces=tuple(options.namespaces),
                liveness_endpoint=endpoint,
                stop_flag=stop,
                ready_flag=ready,
            )
            is_served = await _watched_to_the_end(watching, cluster)
    finally:
        for name in _LOGGERS_OF_TASKS:
            logging.getLogger(name).removeFilter(without_missing)
        resync.cancel()
        await asyncio.gather(resync, return_exceptions=True)
        await workforce.stop()


class _WithoutMissing(logging.Filter):
    """Leaves out what kopf writes, with tracebacks, when a definition is deleted: `serve` says it in one line."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is written."""
        error = record.exc_info[1] if record.exc_info else None
        return getattr(error, "status", None) != NOT_FOUND


async def _watched_to_the_end(watching: Awaitable[None], cluster: KubernetesCluster) -> bool:
    """Whether the operator was stopped; False where the definition of our jobs was deleted while it watched."""
    try:
        await watching
    except Exception:
        # kopf ends when a kind that it watches is gone, whatever the kind.
        if await cluster.knows_jobs():
            raise
        _log.warning("The definition of %s was deleted, and all jobs with it.", names.KIND)
        return False
    return True


async def _resync(
    cluster: KubernetesCluster, cache: JobCache, workforce: JobWorkers, metrics: Metrics, pause_seconds: float
) -> None:
    """Compare the cache with everything there is, and look at every job, now and then."""
    while True:
        # Not at the same moment as other operators.
        await asyncio.sleep(pause_seconds * random.uniform(0.8, 1.2))
        try:
            keys = cache.replace(*await cluster.read_all())
        except httpx2.HTTPError as error:
            metrics.errors.inc()
            _log.warning("Listing all jobs and pods failed and is tried again: %r", error)
            continue
        for key in keys:
            workforce.wake(key)


async def _wait_for_definition(cluster: KubernetesCluster, stop: asyncio.Event | None) -> None:
    """Return once the API server knows the kind of our jobs: kopf looks for it only when it starts."""
    while stop is None or not stop.is_set():
        try:
            if await cluster.knows_jobs():
                return
            _log.warning("The API server knows no %s: apply deploy/1-crd.yaml.", names.KIND)
        except httpx2.HTTPError as error:
            # Not an error: the definition may be applied after the operator.
            _log.warning("The API server does not answer: %r", error)
        await asyncio.sleep(_DEFINITION_POLL_SECONDS)


def _settings() -> kopf.OperatorSettings:
    """kopf's settings: it watches, and writes nothing of its own."""
    settings = kopf.OperatorSettings()
    # Writing events into users' objects is the reconciler's work.
    settings.posting.enabled = False
    settings.scanning.disabled = True  # rights on all definitions and namespaces, for resources that appear later
    # Seconds; shorter than what proxies in between allow.
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 330
    settings.watching.connect_timeout = 10
    settings.networking.error_backoffs = [0.2, 0.5, 1, 2, 5, 10]
    return settings


def _handlers(workforce: JobWorkers, cache: JobCache) -> kopf.OperatorRegistry:
    """What kopf calls: notices enter the cache and become wake-ups.

    kopf calls functions of an index for every object there is before it calls any other: the cache is complete when
    the first job is looked at. They return nothing, since kopf's own index cannot hold what the operator writes itself.
    """
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    def login(**arguments: Any) -> Any:
        found = kopf.login_with_service_account(**arguments)
        host, port = (os.environ.get(f"KUBERNETES_SERVICE_{part}", "") for part in ("HOST", "PORT"))
        # A pod reaches the API server by its address, as lightkube does, so that the operator does not need the DNS.
        if found is not None and host:
            return replace(found, server=f"https://{f'[{host}]' if ':' in host else host}:{port}")
        return found or kopf.login_with_kubeconfig(**arguments)

    for kind in _WATCHED:
        _watch(registry, workforce, cache, kind)
    return registry


def _watch(registry: kopf.OperatorRegistry, workforce: JobWorkers, cache: JobCache, kind: str) -> None:
    """Notices of one kind of objects."""
    labels: Any = None if kind == names.KIND else {names.LABEL_JOB: kopf.PRESENT}

    @kopf.index(*_WATCHED[kind], labels=labels, registry=registry, id=f"keep_{kind}")
    async def keep(*, body: kopf.Body, **_: Any) -> None:
        cache.put(kind, body)

    @kopf.on.event(*_WATCHED[kind], labels=labels, registry=registry, id=f"notice_{kind}")
    async def notice(*, event: kopf.RawEvent, body: kopf.Body, **_: Any) -> None:
        if event["type"] == "DELETED":
            cache.remove(kind, body)
        # What the operator has made itself is no news.
        if kind not in SHARED or event["type"] in ("DELETED", "MODIFIED"):
            workforce.wake(key_of(kind, body))
