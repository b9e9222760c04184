"""Of several operators one works: the one that holds the Lease."""

import asyncio
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from lightkube import AsyncClient
from support_k8s.control_plane import free_port
from support_k8s.fake_api import FakeApi
from support_k8s.jobs import job
from support_k8s.playground import OperatorProcess, cluster

from sporax.k8s import operator
from sporax.k8s.api.cache import JobKey
from sporax.k8s.leader import LeaderLease, LeaseLostError, LeaseOptions
from sporax.k8s.metrics import Metrics
from sporax.k8s.operator import OperatorOptions, serve


def lease(identity: str, valid_seconds: int = 60) -> LeaseOptions:
    renew_seconds = valid_seconds - 0.4
    # Calls cost processor time, and both sides of them are in this process.
    pause_seconds = 0.05 if valid_seconds == 1 else 0.3
    return LeaseOptions("default", "lease", valid_seconds, renew_seconds, pause_seconds, identity)


def holder(api: FakeApi) -> str:
    body = api.get("leases", "lease")
    return body["spec"]["holderIdentity"] if body else ""


@asynccontextmanager
async def operators() -> AsyncIterator[Callable[[str], OperatorProcess]]:
    """Start operators by their identity; those that are left are killed."""
    started: list[OperatorProcess] = []
    try:
        yield lambda identity: started.append(OperatorProcess(OperatorOptions(lease=lease(identity)))) or started[-1]
    finally:
        for each in started:
            await each.kill()


@pytest.mark.full
def test_another_operator_takes_over_once_the_lease_of_a_killed_one_is_over(tmp_path, monkeypatch):
    async def story():
        async with cluster(tmp_path, monkeypatch) as (api, playground), operators() as start:
            first = start("first")
            await playground.until(lambda: holder(api) == "first", 60)
            start("second")
            api.put("msjobs", job())
            await playground.until(playground.is_in("Running"), 60)
            pods = {name: api.get("pods", name)["metadata"]["uid"] for name in api.names("pods")}
            await first.kill()
            seen = api.calls["GET", "leases"]
            await playground.until(lambda: api.calls["GET", "leases"] > seen + 2)
            assert holder(api) == "first"
            body = api.get("leases", "lease")
            # A minute passes: the Lease was valid for as long as it says.
            api.put("leases", body | {"spec": body["spec"] | {"leaseDurationSeconds": 1}})
            api.put("msjobs", job("later"))
            playground.end("job-worker-1", 137)
            await playground.until(playground.is_in("Running", "later"), 60)
            assert holder(api) == "second"
            assert api.get("leases", "lease")["spec"]["leaseTransitions"] == 1
            await playground.until(playground.is_in("Failed"), 60)  # what happened while no operator worked is noticed
            left = {name: api.get("pods", name)["metadata"]["uid"] for name in api.names("pods") if name in pods}
            assert left.items() <= pods.items()  # nothing was created twice
            assert api.calls["POST", "services"] == 2

    asyncio.run(story())


def test_an_operator_that_is_stopped_gives_the_lease_back(tmp_path, monkeypatch):
    async def story():
        async with cluster(tmp_path, monkeypatch) as (api, playground):
            client, stop = AsyncClient(), asyncio.Event()
            leader = LeaderLease(client, lease("first"))
            assert await leader.acquire(stop)
            working = asyncio.create_task(leader.lead(stop.wait()))
            renewed = api.get("leases", "lease")["spec"]["renewTime"]
            await playground.until(lambda: api.get("leases", "lease")["spec"]["renewTime"] != renewed)
            stop.set()
            await working
            assert holder(api) == ""
            assert await LeaderLease(client, lease("second")).acquire(None)
            await client.close()

    asyncio.run(story())


@pytest.mark.parametrize("why", ["no answer", "robbed"])
def test_a_holder_that_may_not_be_the_holder_any_more_stops_its_work(tmp_path, monkeypatch, why):
    async def story():
        async with cluster(tmp_path, monkeypatch) as (api, _):
            client, is_stopped = AsyncClient(), asyncio.Event()

            async def work():
                try:
                    await asyncio.Event().wait()
                finally:
                    is_stopped.set()

            leader = LeaderLease(client, lease("first", 1))
            assert await leader.acquire(None)
            working = asyncio.create_task(leader.lead(work()))
            await asyncio.sleep(0)
            if why == "no answer":
                api.faults.answers["GET", "leases"] = [500] * 1000
            else:
                body = api.get("leases", "lease")
                api.put("leases", body | {"spec": body["spec"] | {"holderIdentity": "second", "renewTime": "now"}})
            with pytest.raises(LeaseLostError, match="the lease default/lease must be held"):
                await asyncio.wait_for(working, 10)
            assert is_stopped.is_set()
            assert not leader.is_held
            assert holder(api) == ("first" if why == "no answer" else "second")
            await client.close()

    asyncio.run(story())


def test_without_the_right_to_work_no_look_at_a_job_begins(monkeypatch):
    class Looks:
        def __init__(self):
            self.count = 0

        async def reconcile(self, key):
            self.count += 1

    async def story():
        monkeypatch.setattr(operator, "_FIRST_RETRY_SECONDS", 0.01)
        right, looks = [False], Looks()
        workforce = operator.JobWorkers(looks, Metrics(), OperatorOptions(), lambda: right[0])
        workforce.wake(JobKey("default", "job"))
        await asyncio.sleep(0.1)
        assert looks.count == 0
        right[0] = True
        async with asyncio.timeout(10):
            while not looks.count:
                await asyncio.sleep(0.01)
        await workforce.stop()

    asyncio.run(story())


def test_of_several_that_try_at_once_one_gets_the_lease(tmp_path, monkeypatch):
    async def story():
        async with cluster(tmp_path, monkeypatch) as (api, playground):
            client, stop = AsyncClient(), asyncio.Event()
            trying = [asyncio.create_task(LeaderLease(client, lease(str(n))).acquire(stop)) for n in range(5)]
            await playground.until(lambda: any(task.done() for task in trying))
            stop.set()
            assert sum(await asyncio.gather(*trying)) == 1
            assert api.get("leases", "lease")["spec"]["leaseTransitions"] == 0
            await client.close()

    asyncio.run(story())


def test_an_operator_that_waits_for_the_lease_says_that_it_lives(tmp_path, monkeypatch):
    async def story():
        async with cluster(tmp_path, monkeypatch) as (api, playground):
            body = {"holderIdentity": "other", "leaseDurationSeconds": 3600, "renewTime": "now"}
            api.put("leases", {"metadata": {"name": "lease"}, "spec": body})
            port, stop = free_port(), asyncio.Event()
            options = OperatorOptions(liveness_port=port, lease=lease("first"))
            waiting = asyncio.create_task(serve(options, stop=stop))
            await playground.until(lambda: api.calls["GET", "leases"] > 1)
            query = lambda: urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz").status
            assert await asyncio.to_thread(query) == 200
            assert not waiting.done()
            stop.set()
            await waiting
            assert holder(api) == "other"

    asyncio.run(story())
