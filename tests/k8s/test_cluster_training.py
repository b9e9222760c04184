"""Real training on a real control plane while processes, nodes, the operator and the API server are killed.

Run by `make test-cluster`, as `test_cluster`. Losses of synchronous training with parameter servers do not depend on
restarts, so that the losses of a run with kills must be those of a run without, to the last bit, and every step there once.
"""

from __future__ import annotations

import json
import random
import re
import time
from typing import Any

import pytest
from support_k8s.control_plane import on_control_plane
from support_k8s.jobs import job
from support_k8s.site import Site, example, sleeping

pytestmark = on_control_plane()


def served_training(
    name: str, *, steps: int, pause: float, workers: int = 2, servers: int = 2, **spec: Any
) -> dict[str, Any]:
    """A job with parameter servers: the example's script, some steps."""
    body = job(name, workers=workers, servers=servers, successPolicy="AllWorkers", **spec)
    script = "/opt/sporax/examples/08-kubernetes/train.py"
    for part in body["spec"]["msReplicaSpecs"].values():
        container = part["template"]["spec"]["containers"][0]
        container["command"] = [
            "sporax",
            "run",
            script,
            "--steps",
            str(steps),
            "--pause",
            str(pause),
            "--workers",
            str(workers),
        ]
        container["env"] = [{"name": "MS_PS_LEASE", "value": "2"}]
    return body


def losses(site: Site, pod: str) -> list[tuple[int, str]]:
    """The steps that a worker wrote, in order, with the digits of their losses."""
    return [(int(step), loss) for step, loss in re.findall(r"step (\d+) loss (\S+)", site.kubelet.output(pod))]


def steps_done(site: Site, name: str) -> int:
    return max((step for step, _ in losses(site, f"{name}-worker-0")), default=0)


@pytest.mark.parametrize("name", ["3-parameter-server-standalone.yaml", "4-parameter-server.yaml"])
def test_an_example_with_servers_trains_and_succeeds_unchanged(site, name):
    body = example(name)
    site.apply(body)
    job_name = body["metadata"]["name"]
    site.until_in(job_name, "Succeeded", 400)
    assert len(losses(site, f"{job_name}-worker-0")) == 60
    site.delete(job_name)


def test_killed_servers_change_no_loss_and_lose_no_update(site, record_property):
    steps, pause = 60, 0.8  # long enough for four kills with their copies, on a busy machine too
    site.apply(served_training("unshaken", steps=steps, pause=0.0))
    site.until_in("unshaken", "Succeeded", 200)
    expected = {pod: losses(site, f"unshaken-{pod}") for pod in ("worker-0", "worker-1")}
    site.delete("unshaken")
    site.apply(served_training("shaken", steps=steps, pause=pause))
    site.until(lambda: steps_done(site, "shaken") >= 3, 120)
    pauses = []
    for kill in range(4):
        victim, before = f"shaken-ps-{kill % 2}", steps_done(site, "shaken")
        start = time.monotonic()
        assert site.kubelet.kill(victim)
        site.until(lambda before=before: steps_done(site, "shaken") >= before + 3, 60, "training goes on")
        pauses.append(time.monotonic() - start - 3 * pause)
        site.until(lambda: site.is_replicated("shaken"), 60, "copies are made")
    record_property("training_resumes_seconds", max(pauses))
    status = site.until_in("shaken", "Succeeded", 200)
    assert status.restarts == 4
    assert {pod: losses(site, f"shaken-{pod}") for pod in ("worker-0", "worker-1")} == expected
    site.delete("shaken")


def test_scaled_workers_join_a_running_job_without_a_restart(site):
    site.apply(served_training("grown", steps=80, pause=0.2, workers=1, enableDynamicWorker=True))
    site.until(lambda: steps_done(site, "grown") >= 3, 120)
    before = site.kubelet.pid("grown-worker-0")
    site.plane.kubectl("scale", "msjob", "grown", "--replicas=2")
    site.until(lambda: losses(site, "grown-worker-1"), 60, "the new worker trains")
    assert site.kubelet.pid("grown-worker-0") == before
    site.until_in("grown", "Succeeded", 200)
    site.delete("grown")


@pytest.mark.soak
def test_forty_random_kills_end_in_the_right_state(site, record_property):
    chance = random.Random(7)
    site.apply(sleeping(job("endless", workers=3, servers=2, successPolicy="AllWorkers")))
    site.until_in("endless", "Running")
    policy = {
        "spec": {
            "msReplicaSpecs": {"Worker": {"restartPolicy": "ExitCode"}, "Scheduler": {"restartPolicy": "ExitCode"}}
        }
    }
    site.plane.kubectl("patch", "msjob", "endless", "--type=merge", "-p", json.dumps(policy))
    kills = dict.fromkeys(("operator", "api server", "process", "pod", "node"), 0)
    expected_restarts = 0
    for _ in range(40):
        kind = chance.choices(list(kills), weights=[2, 1, 4, 3, 1])[0]
        pods = [pod for pod in site.kubelet.alive() if pod.startswith("endless-")]
        kills[kind] += 1
        match kind:
            case "operator":
                site.kill_operator()
                site.start_operator()
            case "api server":
                site.plane.kill("kube-apiserver")
                site.plane.start_api_server()
            case "process" if pods:
                expected_restarts += site.kubelet.kill(chance.choice(pods))
            case "pod" if pods:
                site.plane.kubectl("delete", "pod", chance.choice(pods), "--wait=false", "--grace-period=1")
            case "node":
                site.kubelet.kill_node(chance.choice(site.kubelet.nodes))
        time.sleep(chance.uniform(0.1, 1.0))
    record_property("kills", json.dumps(kills))
    all_pods = [
        "endless-scheduler-0",
        *(f"endless-ps-{n}" for n in range(2)),
        *(f"endless-worker-{n}" for n in range(3)),
    ]
    seconds = site.until(
        lambda: sorted(p for p in site.kubelet.alive() if p.startswith("endless-")) == sorted(all_pods), 200
    )
    record_property("last_repair_seconds", seconds)
    site.until(
        lambda: site.status("endless").is_true("Running") and not site.status("endless").is_true("Restarting"), 60
    )
    assert not site.status("endless").is_finished
    assert site.status("endless").restarts >= expected_restarts
    site.delete("endless")
