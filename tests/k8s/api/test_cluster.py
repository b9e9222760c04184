"""The operator on a real control plane, with pods that are local processes running real training scripts.

`make test-cluster` builds the control plane and runs these. The operator is a process of its own and has nothing but the
token of the account that `deploy/` installs, so a right that is missing there fails these tests.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support_k8s.control_plane import on_control_plane
from support_k8s.jobs import INVALID, job, named_by_rules
from support_k8s.site import example, sleeping

pytestmark = on_control_plane()

DEPLOY = Path(__file__).parents[3] / "deploy"
EXAMPLES = Path(__file__).parents[3] / "examples" / "08-kubernetes"


def test_a_job_runs_soon_after_it_is_applied_and_leaves_nothing_behind(site, record_property):
    site.apply(sleeping(job("quick", servers=2)))
    record_property("applied_to_running_seconds", site.until(lambda: site.status("quick").is_true("Running")))
    assert len(site.pods("quick")) == 5
    columns = site.plane.kubectl("get", "msj", "quick")
    assert [word in columns for word in ("STATE", "WORKERS", "SERVERS", "RESTARTS", "Running")] == [True] * 5
    site.delete("quick")


@pytest.mark.parametrize("body", [case[1] for case in INVALID], ids=[case[0] for case in INVALID])
def test_a_spec_that_cannot_run_is_refused_or_failed_and_the_field_named(site, body):
    field = next(case[2] for case in INVALID if case[1] is body)
    answer = site.apply(body)
    if "created" not in answer and "configured" not in answer:
        assert (named_by_rules(field) if site.plane.has_rules else field.split(".")[-1]) in answer, answer
        return
    name = body["metadata"]["name"]
    site.until(lambda: site.status(name).is_true("Failed"), 20)
    condition = site.status(name).condition("Failed")
    assert condition.reason == "InvalidSpec"
    assert field in condition.message
    assert site.pods(name) == []
    site.delete(name)


def test_kubectl_scale_brings_workers_to_an_elastic_job_and_takes_them_away(site):
    site.apply(sleeping(job("elastic", enableDynamicWorker=True)))
    site.until_in("elastic", "Running")
    before = {name: site.kubelet.pid(name) for name in ("elastic-worker-0", "elastic-worker-1")}
    for count in (4, 1, 2):
        site.plane.kubectl("scale", "msjob", "elastic", f"--replicas={count}")
        site.until(lambda count=count: len([p for p in site.kubelet.alive() if "elastic-worker" in p]) == count)
    assert site.kubelet.pid("elastic-worker-0") == before["elastic-worker-0"]
    scale = site.plane.kubectl("get", "--raw", "/apis/mindspore.gitee.com/v1/namespaces/default/msjobs/elastic/scale")
    assert json.loads(scale)["spec"]["replicas"] == 2
    site.delete("elastic")


def test_suspend_deadline_and_time_to_live(site):
    site.apply(sleeping(job("paused", runPolicy={"suspend": True})))
    site.until_in("paused", "Suspended")
    assert site.pods("paused") == []
    patch = {"spec": {"runPolicy": {"suspend": False, "activeDeadlineSeconds": 8, "ttlSecondsAfterFinished": 2}}}
    site.plane.kubectl("patch", "msjob", "paused", "--type=merge", "-p", json.dumps(patch))
    site.until_in("paused", "Running")
    site.until(lambda: site.status("paused").is_true("Failed"), 20)
    assert site.status("paused").condition("Failed").reason == "DeadlineExceeded"
    site.until(lambda: "NotFound" in site.plane.kubectl("get", "msjob", "paused", check=False), 20)


def test_a_killed_server_is_replaced_and_the_others_go_on(site, record_property):
    site.apply(sleeping(job("servers", servers=2)))
    site.until_in("servers", "Running")
    workers = [site.kubelet.pid(f"servers-worker-{index}") for index in range(2)]
    old = site.kubelet.pid("servers-ps-1")
    site.kubelet.kill("servers-ps-1")
    seconds = site.until(lambda: site.kubelet.pid("servers-ps-1") not in (None, old))
    record_property("server_replaced_seconds", seconds)
    site.until(lambda: not site.status("servers").is_true("Restarting"))
    assert [site.kubelet.pid(f"servers-worker-{index}") for index in range(2)] == workers
    site.delete("servers")


def test_what_happened_while_the_operator_was_dead_is_repaired(site):
    site.apply(sleeping(job("orphan", servers=1)))
    site.until_in("orphan", "Running")
    site.kill_operator()
    site.plane.kubectl("delete", "pod", "orphan-worker-1", "--wait=false")
    site.kubelet.kill("orphan-ps-0")
    site.until(lambda: "orphan-ps-0" not in site.kubelet.alive())
    kept = {name: site.kubelet.pid(name) for name in ("orphan-scheduler-0", "orphan-worker-0")}
    site.start_operator()
    site.until(lambda: {"orphan-worker-1", "orphan-ps-0"} <= set(site.kubelet.alive()))
    site.until(lambda: site.status("orphan").is_true("Running") and not site.status("orphan").is_true("Restarting"))
    status = site.status("orphan")
    assert (status.restarts, status.failures) == (2, 1)  # a pod that was deleted has not failed
    assert {name: record.restarts for name, record in status.pods.items() if record.restarts} == {
        "orphan-worker-1": 1,
        "orphan-ps-0": 1,
    }
    assert {name: site.kubelet.pid(name) for name in kept} == kept
    site.delete("orphan")


def test_an_api_server_that_dies_interrupts_nothing(site):
    site.apply(sleeping(job("steady", servers=1)))
    site.until_in("steady", "Running")
    pids = {name: site.kubelet.pid(name) for name in site.kubelet.alive()}
    site.plane.kill("kube-apiserver")
    site.kubelet.kill("steady-ps-0")
    site.plane.start_api_server()
    site.until(lambda: site.kubelet.pid("steady-ps-0") not in (None, pids["steady-ps-0"]))
    others = set(pids) - {"steady-ps-0"}
    assert {name: site.kubelet.pid(name) for name in others} == {name: pids[name] for name in others}
    site.until(lambda: site.status("steady").restarts == 1)
    site.delete("steady")


def test_the_operator_may_not_read_secrets_nor_change_jobs(site):
    who = "--as=system:serviceaccount:sporax-system:sporax-operator"
    for verb, thing in (
        ("get", "secrets"),
        ("update", "msjobs"),
        ("patch", "pods"),
        ("get", "nodes"),
        ("list", "crds"),
    ):
        assert site.plane.kubectl("auth", "can-i", verb, thing, who, check=False).strip().startswith("no")


@pytest.mark.parametrize("name", ["1-single-worker.yaml", "2-data-parallel.yaml"])
def test_an_example_of_the_original_shape_trains_and_succeeds_unchanged(site, name):
    body = example(name)
    site.apply(body)
    job_name = body["metadata"]["name"]
    site.until_in(job_name, "Succeeded", 400)
    assert "accuracy" in site.kubelet.output(f"{job_name}-worker-0")
    site.delete(job_name)
