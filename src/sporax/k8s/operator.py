"""The running operator: kopf watches jobs and pods and wakes up the job concerned; everything else is in the reconciler.

kopf brings the watching (with resuming, relisting after 410 and back-off), the login and the liveness endpoint. Its
change-detection handlers are not used: they would write annotations and finalizers into users' objects. What a watch may
lose, such as a deletion while it was cut, is found by a slow regular look at every job.

Each job has one task, so that two looks at one job never overlap, and jobs do not wait for each other.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import httpx2
import kopf
from lightkube import AsyncClient
from prometheus_client import start_http_server

from sporax.k8s import names
from sporax.k8s.cluster import Cluster
from sporax.k8s.membership import MembershipClient
from sporax.k8s.metrics import Metrics
from sporax.k8s.reconciler import JobGoneError, JobKey, Reconciler, reconcile_until_stored

_log = logging.getLogger(__name__)
_DEFINITION_POLL_SECONDS = 1.0
_FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS = 0.2, 30.0


@dataclass(frozen=True, slots=True)
class OperatorOptions:
    """How an operator runs.

    Attributes:
        namespaces: those it serves; empty: all.
        metrics_port: where Prometheus finds the figures; None: nowhere.
        liveness_port: where the kubelet asks whether the operator lives; None: nowhere.
        resync_seconds: how often every job is looked at without a reason.
        parallel_looks: jobs that are looked at at the same time.
    """

    namespaces: Collection[str] = ()
    metrics_port: int | None = None
    liveness_port: int | None = None
    resync_seconds: float = 120.0
    parallel_looks: int = 8


class Workforce:
    """One task per job, woken up by notices and by time."""

    def __init__(self, reconciler: Reconciler, metrics: Metrics, options: OperatorOptions) -> None:
        self._reconciler = reconciler
        self._metrics = metrics
        self._options = options
        self._turns = asyncio.Semaphore(options.parallel_looks)
        self._notices: dict[JobKey, asyncio.Event] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def wake(self, key: JobKey) -> None:
        """Look at a job soon."""
        if key not in self._notices:
            self._notices[key] = asyncio.Event()
            task = asyncio.create_task(self._serve(key), name=f"msjob {key.namespace}/{key.name}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._notices[key].set()

    async def stop(self) -> None:
        """End all tasks."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, key: JobKey) -> None:
        """Look at one job again and again, until it is gone."""
        notice, wait, failures = self._notices[key], 0.0, 0
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(notice.wait(), wait)
            notice.clear()
            try:
                due = await self._look(key)
            except JobGoneError:
                if not notice.is_set():  # it may just have been created again
                    del self._notices[key]
                    return
                due = 0.0
            except Exception as error:
                failures += 1
                self._metrics.count_error()
                _log.warning("%s/%s: a look failed and is tried again: %r", *key, error)
                wait = min(_FIRST_RETRY_SECONDS * 2 ** (failures - 1), _LONGEST_RETRY_SECONDS)
                notice.clear()
                continue
            failures = 0
            resync = self._options.resync_seconds * random.uniform(0.8, 1.2)  # not all jobs at the same moment
            wait = resync if due is None else min(due, resync)

    async def _look(self, key: JobKey) -> float | None:
        """Look at a job once, when it is its turn."""
        async with self._turns:
            start = time.perf_counter()
            try:
                return await reconcile_until_stored(self._reconciler, key)
            finally:
                self._metrics.observe(time.perf_counter() - start)


async def serve(
    options: OperatorOptions,
    *,
    client: AsyncClient | None = None,
    membership: MembershipClient | None = None,
    metrics: Metrics | None = None,
    stop: asyncio.Event | None = None,
    ready: asyncio.Event | None = None,
) -> None:
    """Run an operator until it is told to stop."""
    metrics = metrics or Metrics()
    if options.metrics_port is not None:
        start_http_server(options.metrics_port, registry=metrics.registry)
    client = client or AsyncClient(field_manager="sporax-operator")
    cluster = Cluster(client, next(iter(options.namespaces), "*"))
    workforce = Workforce(Reconciler(cluster, metrics, membership), metrics, options)
    endpoint = None if options.liveness_port is None else f"http://0.0.0.0:{options.liveness_port}/healthz"
    try:
        await _wait_for_definition(cluster, stop)
        await kopf.operator(
            registry=_handlers(workforce),
            settings=_settings(),
            standalone=True,
            clusterwide=not options.namespaces,
            namespaces=tuple(options.namespaces),
            liveness_endpoint=endpoint,
            stop_flag=stop,
            ready_flag=ready,
        )
    finally:
        await workforce.stop()
        await client.close()


async def _wait_for_definition(cluster: Cluster, stop: asyncio.Event | None) -> None:
    """Return once the API server knows the kind of our jobs: kopf looks for it only when it starts."""
    while stop is None or not stop.is_set():
        try:
            if await cluster.knows_jobs():
                return
            _log.warning("The API server knows no %s: apply deploy/1-crd.yaml.", names.KIND)
        except httpx2.HTTPError as error:
            _log.warning("The API server does not answer: %r", error)
        await asyncio.sleep(_DEFINITION_POLL_SECONDS)


def _settings() -> kopf.OperatorSettings:
    """kopf's settings: it watches, and writes nothing of its own."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True  # rights on all definitions and namespaces, for resources that appear later
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 330
    settings.watching.connect_timeout = 10
    settings.networking.error_backoffs = [0.2, 0.5, 1, 2, 5, 10]
    return settings


def _handlers(workforce: Workforce) -> kopf.OperatorRegistry:
    """What kopf calls: notices become wake-ups."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    def login(**arguments: Any) -> Any:
        return kopf.login_with_service_account(**arguments) or kopf.login_with_kubeconfig(**arguments)

    @kopf.on.event(names.GROUP, names.VERSION, names.PLURAL, registry=registry)
    async def notice_job(*, name: str, namespace: str | None, **_: Any) -> None:
        workforce.wake(JobKey(str(namespace), name))

    @kopf.on.event("", "v1", "pods", labels={names.LABEL_JOB: kopf.PRESENT}, registry=registry)
    async def notice_pod(*, namespace: str | None, labels: Any, **_: Any) -> None:
        workforce.wake(JobKey(str(namespace), labels[names.LABEL_JOB]))

    return registry
