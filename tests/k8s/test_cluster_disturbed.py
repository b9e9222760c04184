"""The operator of a real control plane killed again and again, and behind a proxy that holds watches back and loses calls.

Run by `make test-cluster`, as `test_cluster_training`.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support_k8s.control_plane import on_control_plane
from support_k8s.jobs import job
from support_k8s.proxy import CHANGES, Fate, FaultyProxy, running_proxy
from support_k8s.site import Site, sleeping

pytestmark = on_control_plane()

KILLS = int(os.environ.get("SPORAX_OPERATOR_KILLS", "50"))
STEPS = 40
SCRIPT = "/opt/sporax/examples/08-kubernetes/train.py"


@contextmanager
def behind_a_proxy(site: Site) -> Iterator[FaultyProxy]:
    """The operator of the site, started again, reaches the API server through a proxy only."""
    with running_proxy(site.plane.url) as proxy:
        site.kill_operator()
        site.start_operator(proxy.url)
        try:
            yield proxy
        finally:
            site.kill_operator()
    site.start_operator()


def uids(site: Site, name: str) -> dict[str, str]:
    """The pods of a job, by name."""
    selector = f"mindspore.gitee.com/job-name={name}"
    items = site.client.get("/api/v1/namespaces/default/pods", params={"labelSelector": selector}).json()["items"]
    return {item["metadata"]["name"]: item["metadata"]["uid"] for item in items}


@pytest.mark.parametrize("fate", [Fate.LOST, Fate.SWALLOWED])
def test_a_job_lives_as_ever_when_one_of_four_changes_is_lost(site, fate):
    name, dice, fates = f"calls-{fate.name.lower()}", random.Random(3), []

    def judge(method: str, path: str) -> Fate:
        if method not in CHANGES:
            return Fate.ANSWERED
        fates.append(dice.choices([fate, Fate.ANSWERED], [1, 3])[0])
        return fates[-1]

    with behind_a_proxy(site) as proxy:
        proxy.judge = judge
        site.create(sleeping(job(name, servers=2, workers=1)))
        site.until_in(name, "Running", 200)
        before = uids(site, name)
        assert site.kubelet.kill(f"{name}-ps-1")
        site.until(lambda: uids(site, name).get(f"{name}-ps-1", "") not in ("", before[f"{name}-ps-1"]), 200)
        is_whole = lambda: site.status(name).is_true("Running") and not site.status(name).is_true("Restarting")
        site.until(is_whole, 200, "it runs again")
        status, after = site.status(name), uids(site, name)
        assert (status.restarts, status.failures) == (1, 1)
        assert {pod for pod in after if after[pod] != before[pod]} == {f"{name}-ps-1"}
        assert fates.count(fate) > 3
        proxy.judge = lambda method, path: Fate.ANSWERED
        site.delete(name)


def test_a_job_that_comes_while_watches_are_held_back_loses_nothing_to_the_one_before(site):
    """The end of a job that is gone, its time to live, must not reach the next one of its name."""
    with behind_a_proxy(site) as proxy:
        policy = {"ttlSecondsAfterFinished": 3}
        site.create(sleeping(job("twice", workers=1, scheduler=False, runPolicy=policy), seconds=2))
        site.until_in("twice", "Running")
        site.until_in("twice", "Succeeded")
        before = len(proxy.calls)
        proxy.watches_pass.clear()
        site.plane.kubectl("delete", "msjob", "twice", "--wait=true")
        site.until(lambda: not uids(site, "twice"), 60, "pods are gone")
        site.create(sleeping(job("twice", workers=1, scheduler=False)))
        deletes = lambda: [path for method, path in proxy.calls[before:] if method == "DELETE" and "/msjobs/" in path]
        site.until(deletes, 30, "the end of the old job's time")
        time.sleep(1)
        assert site.client.get("/apis/mindspore.gitee.com/v1/namespaces/default/msjobs/twice").status_code == 200
        proxy.release_watches()
        site.until_in("twice", "Running")
        site.delete("twice")


def training(name: str, pause: float) -> dict[str, Any]:
    """A job with parameter servers that loses no update when one of them is killed."""
    body = job(name, workers=2, servers=2, successPolicy="AllWorkers")
    command = ["sporax", "run", SCRIPT, "--steps", str(STEPS), "--pause", str(pause), "--workers", "2"]
    for part in body["spec"]["msReplicaSpecs"].values():
        part["template"]["spec"]["containers"][0] |= {
            "command": command,
            "env": [{"name": "MS_PS_LEASE", "value": "2"}],
        }
    return body


def losses(site: Site, name: str) -> list[list[str]]:
    """Steps and losses as each worker wrote them."""
    return [re.findall(r"step \d+ loss \S+", site.kubelet.output(f"{name}-worker-{index}")) for index in range(2)]


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_an_operator_that_is_killed_at_fifty_random_moments_changes_no_loss(site, record_property):
    """Jobs train one after another, and one server of each is killed, until the operator has died often enough."""
    site.create(training("undisturbed", 0.0))
    site.until_in("undisturbed", "Succeeded", 400)
    expected = losses(site, "undisturbed")
    assert [len(lines) for lines in expected] == [STEPS, STEPS]
    site.delete("undisturbed")
    chance, kills, servers, number = random.Random(23), 0, 0, 0
    while kills < KILLS:
        name, number, killed = f"orphan-{number}", number + 1, 0
        site.create(training(name, 0.5))
        while not site.status(name).is_finished:
            site.figures()  # it is up
            time.sleep(chance.uniform(0, 3))
            site.kill_operator()
            site.start_operator()
            kills += 1
            if not killed and len(losses(site, name)[0]) > 5 and site.is_replicated(name):
                killed += site.kubelet.kill(f"{name}-ps-{chance.randrange(2)}")
        assert losses(site, name) == expected
        status = site.until_in(name, "Succeeded")
        assert (status.restarts, status.failures) == (killed, killed)
        servers += killed
        site.delete(name)
    record_property("jobs, operators and servers killed", (number, kills, servers))
    assert servers
