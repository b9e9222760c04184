"""Two operators with a Lease, and an operator of one namespace, on a real control plane.

Run by `make test-cluster`, as `test_cluster_training`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml
from support_k8s.chart import needs_helm, objects_in, rendered
from support_k8s.control_plane import on_control_plane
from support_k8s.jobs import job
from support_k8s.site import DEPLOY, sleeping

from sporax.k8s.api import manifests

pytestmark = on_control_plane()


def apply(site, objects):
    site.plane.kubectl("apply", "-f", "-", text=yaml.safe_dump_all(objects))


def start(site, name: str, *flags: str, token: str):
    """An operator with a token of its own."""
    environment = os.environ | {"KUBECONFIG": str(site.plane.kubeconfig(token, name)), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "sporax", "k8s", "operator", "--metrics_port", "0", "--liveness_port", "0", *flags]
    with open(Path(tempfile.gettempdir()) / f"{name}.log", "wb") as log:
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log)


def test_of_two_operators_the_second_takes_over_when_the_first_is_killed(site):
    apply(site, manifests.lease_rights())
    token = site.plane.account_token(manifests.NAMESPACE, manifests.OPERATOR)
    site.kill_operator()
    flags = ("--lease", f"{manifests.NAMESPACE}/{manifests.OPERATOR}")
    lease = lambda: json.loads(
        site.plane.kubectl("get", "lease", manifests.OPERATOR, "-n", manifests.NAMESPACE, "-o", "json")
    )
    holder = lambda: lease()["spec"]["holderIdentity"]
    first = start(site, "first", *flags, token=token)
    second = None
    try:
        is_held = lambda: (
            manifests.OPERATOR in site.plane.kubectl("get", "leases", "-n", manifests.NAMESPACE, "-o", "name")
        )
        site.until(is_held, 60, "a lease")
        leader = holder()
        second = start(site, "second", *flags, token=token)
        site.create(sleeping(job("led")))
        site.until_in("led", "Running")
        first.kill()
        first.wait()
        site.create(sleeping(job("taken-over")))
        site.until_in("taken-over", "Running", 90)
        assert holder() != leader
        assert lease()["spec"]["leaseTransitions"] == 1
        assert site.status("led").restarts == 0
        second.terminate()
        assert second.wait(timeout=60) == 0
        assert holder() == ""
    finally:
        for process in (first, second):
            if process is not None:
                process.kill()
        site.start_operator()
    for name in ("led", "taken-over"):
        site.delete(name)


@needs_helm
def test_an_api_server_takes_all_that_the_packages_install(site, tmp_path):
    """The chart as Helm fills it in, and with a kubectl that knows components the kustomization of two operators."""
    chart = rendered(manifests.NAMESPACE)
    flags = [] if site.plane.has_rules else ["--validate=false"]
    answers = site.plane.kubectl("apply", "--dry-run=server", *flags, "-f", "-", text=chart)
    assert answers.count("(server dry run)") == len(objects_in(chart))
    if not site.plane.has_rules:
        return
    (tmp_path / "deploy").symlink_to(DEPLOY)
    two = {"resources": ["deploy"], "components": ["deploy/two-operators"]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(two))
    answers = site.plane.kubectl("apply", "--dry-run=server", "-k", str(tmp_path))
    assert answers.count("(server dry run)") == len(objects_in(*manifests.files(replicas=2).values()))


def test_an_operator_of_one_namespace_needs_rights_in_no_other(site):
    for name in ("crew", "crew-operator"):
        site.plane.kubectl("create", "namespace", name)
    apply(site, [manifests.account("crew-operator"), *manifests.namespaced_rights("crew", "crew-operator")])
    token = site.plane.account_token("crew-operator", manifests.OPERATOR)
    site.kill_operator()
    process = start(site, "of-crew", "--namespaces", "crew", token=token)
    try:
        for namespace in ("default", "crew"):
            body = sleeping(job("placed", workers=1, scheduler=False))
            body["metadata"] = {"name": "placed", "namespace": namespace}
            site.plane.kubectl("apply", "--validate=false", "-f", "-", text=json.dumps(body))
        state = lambda: site.plane.kubectl(
            "get", "msjob", "placed", "-n", "crew", "-o", "jsonpath={.status.conditions[-1:].type}"
        )
        site.until(lambda: state() == "Running", 60, "the job of the namespace")
        assert site.status("placed").conditions == []  # that of the other namespace
        site.plane.kubectl("delete", "msjob", "placed", "-n", "crew")
    finally:
        process.kill()
        site.start_operator()
    site.until_in("placed", "Running")
    site.delete("placed")
