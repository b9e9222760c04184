"""No acknowledged update is lost and none applied twice while every part of a training job and its cluster is killed.

Run by `make test-cluster`, as `test_cluster`. The script is `support_k8s/counting.py`: each push moves one number on the
servers by one, so the number at the end must be that of the acknowledged pushes. A worker that is killed has at most two
pushes on their way, of which nobody can say whether they arrived; that is the only uncertainty.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support_k8s.control_plane import on_control_plane
from support_k8s.jobs import job
from support_k8s.site import Site

pytestmark = on_control_plane(900)

PUSHES_ON_THEIR_WAY = 2
SCRIPT = Path(__file__).parent / "support_k8s" / "counting.py"


def counting(name: str, folder: Path, *, workers: int, steps: int, pause: float, quiet: float) -> dict[str, Any]:
    """A job whose pods may all be killed: each is replaced, and what must survive is on a volume that all share."""
    body = job(name, workers=workers, servers=2, successPolicy="AllWorkers")
    arguments = ["--steps", str(steps), "--pause", str(pause), "--quiet_seconds", str(quiet)]
    variables = {"MS_PS_STALENESS": -1, "MS_PS_LEASE": 2, "MS_ENABLE_RECOVERY": 1, "MS_RECOVERY_PATH": folder}
    for part in body["spec"]["msReplicaSpecs"].values():
        part["restartPolicy"] = "ExitCode"
        container = part["template"]["spec"]["containers"][0]
        container["command"] = ["sporax", "run", str(SCRIPT), *arguments]
        container["env"] = [{"name": name, "value": str(value)} for name, value in variables.items()]
    return body


class Counts:
    """What a counting job's workers have written."""

    def __init__(self, site: Site, name: str, workers: int) -> None:
        self._site, self._pods = site, [f"{name}-worker-{index}" for index in range(workers)]

    def _count(self, word: str) -> int:
        return sum(len(re.findall(rf"^{word} \d+$", self._site.kubelet.output(pod), re.M)) for pod in self._pods)

    @property
    def begun(self) -> int:
        return self._count("begun")

    @property
    def done(self) -> int:
        return self._count("done")

    @property
    def total(self) -> int:
        return int(re.findall(r"^total (\d+)$", self._site.kubelet.output(self._pods[0]), re.M)[-1])


def all_pods(name: str, workers: int) -> list[str]:
    return [f"{name}-scheduler-0", f"{name}-ps-0", f"{name}-ps-1", *(f"{name}-worker-{n}" for n in range(workers))]


def is_whole(site: Site, name: str, workers: int) -> bool:
    """Whether every pod runs and every slot has its copies: the servers' promise is for one loss at a time."""
    return running(site, name) == set(all_pods(name, workers)) and site.is_replicated(name)


def running(site: Site, name: str) -> set[str]:
    return {pod for pod in site.kubelet.alive() if pod.startswith(f"{name}-")}


@pytest.mark.parametrize("role", ["scheduler", "ps", "worker"])
def test_a_killed_process_of_each_role_is_replaced_and_no_update_lost(site, role, tmp_path, record_property):
    name = f"count-{role}"
    counts = Counts(site, name, 2)
    site.apply(counting(name, tmp_path, workers=2, steps=40, pause=0.2, quiet=4))
    site.until(lambda: counts.done >= 10, 120)
    site.until(lambda: is_whole(site, name, 2), 60)
    others = {pod: site.kubelet.pid(pod) for pod in all_pods(name, 2) if pod != f"{name}-{role}-0"}
    before, start = counts.done, time.monotonic()
    assert site.kubelet.kill(f"{name}-{role}-0")
    site.until(lambda: counts.done >= before + 4, 60, "training goes on")
    record_property(f"{role}_killed_to_four_more_updates_seconds", time.monotonic() - start)
    site.until(lambda: site.kubelet.pid(f"{name}-{role}-0"), 30)
    site.until_in(name, "Succeeded", 200)
    assert {pod: site.kubelet.runs(pod) for pod in others} == dict.fromkeys(others, 1)
    assert counts.done <= counts.total <= counts.begun
    assert counts.begun - counts.done <= (PUSHES_ON_THEIR_WAY if role == "worker" else 0)
    assert site.status(name).restarts == 1
    site.delete(name)


def test_servers_join_and_leave_a_running_job_and_no_update_is_lost(site, tmp_path, record_property):
    name, places = "resized", "{.items[*].reason}"
    counts = Counts(site, name, 2)
    body = counting(name, tmp_path, workers=2, steps=120, pause=0.2, quiet=4)
    body["spec"]["enableDynamicServer"] = True
    site.apply(body)
    site.until(lambda: counts.done >= 10, 120)
    before = {pod: site.kubelet.pid(pod) for pod in all_pods(name, 2)}
    for servers in (3, 2):
        patch = {"spec": {"msReplicaSpecs": {"PS": {"replicas": servers}}}}
        site.plane.kubectl("patch", "msjob", name, "--type=merge", "-p", json.dumps(patch))
        expected = {*all_pods(name, 2), *(f"{name}-ps-{index}" for index in range(servers))}
        seconds = site.until(lambda expected=expected: running(site, name) == expected and site.is_replicated(name), 60)
        record_property(f"seconds_to_{servers}_servers", seconds)
        membership = site.read_membership(name)
        assert membership.servers == servers
        done = counts.done
        site.until(lambda done=done: counts.done >= done + 6, 60, "training goes on")
    assert {pod: site.kubelet.pid(pod) for pod in before} == before
    assert "ServerDrained" in site.plane.kubectl("get", "events", "-o", f"jsonpath={places}")
    site.until_in(name, "Succeeded", 200)
    assert counts.done == counts.total == counts.begun == 240
    site.delete(name)


@pytest.mark.soak
def test_forty_random_kills_lose_no_acknowledged_update(site, tmp_path, record_property):
    """A server, or a node with one, is killed only while every slot has two copies: more is not promised."""
    chance, workers, name = random.Random(11), 3, "storm"
    counts = Counts(site, name, workers)
    site.apply(counting(name, tmp_path, workers=workers, steps=400, pause=0.2, quiet=8))
    site.until(lambda: counts.done >= 10, 120)
    kinds = {"operator": 5, "api server": 3, "process": 18, "pod": 11, "node": 3}
    order = chance.sample([kind for kind, count in kinds.items() for _ in range(count)], 40)
    victims: Counter[str] = Counter()
    for kind in order:
        if kind in ("process", "pod", "node"):
            site.until(lambda: is_whole(site, name, workers), 120, "the job is whole")
        pods = [chance.choice(all_pods(name, workers))]
        match kind:
            case "operator":
                site.kill_operator()
                site.start_operator()
                pods = ["operator"]
            case "api server":
                site.plane.kill("kube-apiserver")
                site.plane.start_api_server()
                pods = ["api server"]
            case "process":
                assert site.kubelet.kill(pods[0])
            case "pod":
                site.plane.kubectl("delete", "pod", pods[0], "--wait=false", "--grace-period=1")
            case "node":
                nodes = [node for node in site.kubelet.nodes if len(servers_on(site, node, name)) < 2]
                pods = site.kubelet.kill_node(chance.choice(nodes)) if nodes else []
        victims.update(re.sub(r"-\d+$", "", pod.removeprefix(f"{name}-")) for pod in pods)
        time.sleep(chance.uniform(0.1, 1.0))
    record_property("kills", json.dumps(dict(Counter(order))))
    record_property("victims", json.dumps(victims))
    site.until_in(name, "Succeeded", 400)
    record_property("updates", json.dumps({"begun": counts.begun, "done": counts.done, "total": counts.total}))
    assert counts.done <= counts.total <= counts.begun
    assert counts.begun - counts.done <= PUSHES_ON_THEIR_WAY * victims["worker"]
    site.delete(name)


def servers_on(site: Site, node: str, name: str) -> list[str]:
    return [pod for pod in site.kubelet.pods_on(node) if pod.startswith(f"{name}-ps-")]
