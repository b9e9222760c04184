"""The operator behind a proxy that holds watches back and loses calls, and killed at any moment: jobs end as if undisturbed."""

import asyncio
import random
from contextlib import asynccontextmanager

import pytest
from support_k8s.fake_api import FakeApi
from support_k8s.jobs import job
from support_k8s.playground import OperatorProcess, cluster, point_at
from support_k8s.proxy import Fate, FaultyProxy

from sporax.k8s import operator
from sporax.k8s.operator import OperatorOptions

CHANGES = ("POST", "PATCH", "DELETE")


@asynccontextmanager
async def behind_a_proxy(tmp_path, monkeypatch):
    monkeypatch.setattr(operator, "_FIRST_RETRY_SECONDS", 0.02)
    async with cluster(tmp_path, monkeypatch) as (api, playground), FaultyProxy(api.url) as proxy:
        point_at(proxy, tmp_path, monkeypatch)
        yield api, playground, proxy


def started(playground):
    return OperatorProcess(OperatorOptions(resync_seconds=0.5), metrics=playground.metrics)


def outcome(api: FakeApi, playground):
    """What a job has come to, without times and names of incarnations."""
    status = playground.status()
    conditions = sorted((item.type, item.status, item.reason) for item in status.conditions)
    pods = {name: (record.result, record.restarts) for name, record in status.pods.items()}
    return conditions, pods, status.restarts, status.failures, api.names("pods"), api.names("services")


async def live(api, playground):
    """The life of a job: it starts, a server is killed and replaced, it succeeds and is cleaned up."""
    api.put("msjobs", job(servers=2))
    await playground.until(playground.is_in("Running"), 90)
    old = api.get("pods", "job-ps-1")["metadata"]["uid"]
    playground.end("job-ps-1", 137)
    is_replaced = lambda: (api.get("pods", "job-ps-1") or {"metadata": {"uid": old}})["metadata"]["uid"] != old
    await playground.until(is_replaced, 90)
    await playground.until(lambda: playground.is_in("Running")() and not playground.is_in("Restarting")(), 90)
    playground.end("job-worker-0", 0)
    await playground.until(lambda: playground.is_in("Succeeded")() and api.names("pods") == ["job-worker-0"], 90)


UNDISTURBED = (
    [
        ("Created", "True", "MSJobCreated"),
        ("Restarting", "False", "MSJobRunning"),
        ("Running", "False", "MSJobSucceeded"),
        ("Succeeded", "True", "MSJobSucceeded"),
    ],
    {"job-worker-0": ("Succeeded", 0), "job-worker-1": ("", 0), "job-scheduler-0": ("", 0), "job-ps-0": ("", 0), "job-ps-1": ("", 1)},
    1,
    1,
    ["job-worker-0"],
    ["job"],
)  # fmt: skip


@pytest.mark.sampled(1)
@pytest.mark.parametrize("fate", [Fate.LOST, Fate.SWALLOWED])
def test_a_job_lives_as_ever_when_two_of_five_changes_are_lost(tmp_path, monkeypatch, fate):
    async def story():
        async with behind_a_proxy(tmp_path, monkeypatch) as (api, playground, proxy):
            dice, fates = random.Random(3), []

            def judge(method, path):
                if method not in CHANGES:
                    return Fate.ANSWERED
                fates.append(dice.choices([fate, Fate.ANSWERED], [2, 3])[0])
                return fates[-1]

            proxy.judge = judge
            serving = started(playground)
            try:
                await live(api, playground)
            finally:
                await serving.kill()
            assert outcome(api, playground) == UNDISTURBED
            assert fates.count(fate) > 5

    asyncio.run(story())


async def live_with_kills(tmp_path, monkeypatch, kills):
    """A job's life during which the operator is killed at each of these numbers of changes, and started again.

    The change itself is lost, or only its answer.
    """
    async with behind_a_proxy(tmp_path, monkeypatch) as (api, playground, proxy):
        serving, left, number = started(playground), list(kills), 0
        restarting: set[asyncio.Task[None]] = set()

        async def start_again():
            nonlocal serving
            await serving.kill()
            serving = started(playground)

        def judge(method, path):
            nonlocal number
            number += method in CHANGES
            if method not in CHANGES or not left or number < left[0]:
                return Fate.ANSWERED
            del left[0]
            number = 0
            restarting.add(asyncio.create_task(start_again()))
            return random.Random(f"{kills} {len(left)}").choice([Fate.LOST, Fate.SWALLOWED])

        proxy.judge = judge
        try:
            await live(api, playground)
        finally:
            await asyncio.gather(*restarting)
            await serving.kill()
        assert outcome(api, playground) == UNDISTURBED
        return len(kills) - len(left)


@pytest.mark.full
def test_an_operator_that_is_killed_at_changes_counts_and_creates_nothing_twice(tmp_path, monkeypatch):
    assert asyncio.run(live_with_kills(tmp_path, monkeypatch, [4, 5, 6])) == 3


@pytest.mark.soak
def test_fifty_kills_at_random_changes_alter_no_outcome(tmp_path, monkeypatch):
    dice, done = random.Random(5), 0
    while done < 50:
        done += asyncio.run(live_with_kills(tmp_path, monkeypatch, [dice.randint(1, 9) for _ in range(4)]))


ENDS = {
    "time to live": ({"runPolicy": {"ttlSecondsAfterFinished": 1}}, lambda play: play.end("job-worker-0", 0)),
    "deadline": ({"runPolicy": {"activeDeadlineSeconds": 1}}, lambda play: None),
}


@pytest.mark.parametrize("why", list(ENDS))
@pytest.mark.sampled(1)
def test_what_ends_a_job_while_watches_are_held_back_never_hits_the_next_job_of_its_name(tmp_path, monkeypatch, why):
    async def story():
        spec, then = ENDS[why]
        async with behind_a_proxy(tmp_path, monkeypatch) as (api, playground, proxy):
            serving = OperatorProcess(OperatorOptions(resync_seconds=3600.0))
            api.put("msjobs", job(workers=1, **spec))
            await playground.until(playground.is_in("Running"))
            then(playground)
            if why == "time to live":
                await playground.until(playground.is_in("Succeeded"))
            proxy.watches_pass.clear()
            before = len(proxy.calls)
            for name in api.names("pods"):
                api.remove("pods", name)
            api.remove("msjobs", "job")
            later = job(workers=1) | {"status": {}}
            later["metadata"]["uid"] = "later"
            api.put("msjobs", later)
            pods = {}
            for name in ("job-worker-0", "job-scheduler-0"):
                owner = {
                    "apiVersion": "mindspore.gitee.com/v1",
                    "kind": "MSJob",
                    "name": "job",
                    "uid": "later",
                    "controller": True,
                }
                labels = {"mindspore.gitee.com/job-name": "job"}
                body = {
                    "metadata": {"name": name, "ownerReferences": [owner], "labels": labels},
                    "status": {"phase": "Running"},
                }
                pods[name] = api.put("pods", body)["metadata"]["uid"]
            # The old job's end comes, for the operator.
            deletes = lambda: [path for method, path in proxy.calls[before:] if method in ("DELETE", "PATCH")]
            await playground.until(deletes)
            await asyncio.sleep(0.2)
            assert api.get("msjobs", "job")["metadata"]["uid"] == "later"
            assert {name: (api.get("pods", name) or later)["metadata"]["uid"] for name in pods} == pods
            assert not playground.status().is_finished
            await serving.kill()

    asyncio.run(story())
