"""`sporax k8s submit`, `status`, `logs` and `delete` as a user runs them, against a real control plane.

Run by `make test-cluster`, as `test_cluster`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support_k8s.control_plane import on_control_plane
from support_k8s.jobs import job
from support_k8s.site import sleeping

from sporax.launch import cli

pytestmark = on_control_plane()

SCRIPT = Path(__file__).parent / "support_k8s" / "counting.py"


@pytest.fixture
def sporax(site, monkeypatch, capsys):
    """Run `sporax k8s ...` with a user's kubeconfig; gives the exit code and what was printed."""
    monkeypatch.setenv("KUBECONFIG", str(site.plane.kubeconfig()))

    def run(*arguments: object) -> tuple[int, str]:
        capsys.readouterr()
        code = cli.main(["k8s", *map(str, arguments)])
        printed = capsys.readouterr()
        return code, printed.out + printed.err

    return run


def test_a_script_is_submitted_watched_and_deleted(site, sporax):
    script = ["--workers", 2, "--servers", 1, "--image", "sporax:latest", "--name", "mine", SCRIPT]
    script += ["--steps", 20, "--pause", 0.1, "--quiet_seconds", 1]
    assert sporax("submit", *script) == (0, "configmap/mine applied\nmsjob/mine applied\n")
    site.until_in("mine", "Running")
    row = sporax("status")[1].splitlines()[1].split()
    assert row[:6] == ["mine", "Running", "1/1", "1/1", "2/2", "0"]
    command = [sys.executable, "-m", "sporax", "k8s", "logs", "mine", "--index", "1", "--follow"]
    followed = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=site.plane.folder)
    assert [line for line in followed.stdout.splitlines() if line.startswith("done ")] == [
        f"done {n}" for n in range(20)
    ]
    site.until_in("mine", "Succeeded", 120)
    code, text = sporax("logs", "mine", "--tail", 1)
    assert (code, text) == (0, "total 20\n")  # a synchronous step of two workers is one update
    code, page = sporax("status", "mine")
    assert code == 0
    assert [word in page for word in ("Succeeded", "MSJobSucceeded", "mine-worker-1", "mine-ps-0")] == [True] * 4
    assert sporax("delete", "mine") == (0, "msjob/mine deleted\n")
    left = lambda: site.plane.kubectl("get", "configmaps,pods", "-o", "name")
    site.until(lambda: "/mine" not in left(), 30, "the script and the pods are gone")
    assert sporax("status") == (0, "No jobs in namespace 'default'.\n")


def test_a_job_file_goes_to_its_namespace(site, sporax, tmp_path):
    site.plane.kubectl("create", "namespace", "team")
    body = sleeping(job("filed"))
    body["metadata"] = {"name": "filed"}
    policy = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "theirs"},
        "spec": {"podSelector": {}},
    }
    priority = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "theirs"},
        "value": 5,
    }
    (tmp_path / "job.yaml").write_text(yaml.safe_dump_all([policy, priority, body]))
    lines = "networkpolicy/theirs applied\npriorityclass/theirs applied\nmsjob/filed applied\n"
    assert sporax("submit", "-n", "team", tmp_path / "job.yaml") == (0, lines)
    assert "theirs" in site.plane.kubectl("get", "networkpolicies", "-n", "team")
    running = lambda: "Running" in sporax("status", "-n", "team", "filed")[1]
    site.until(running, 60)
    assert sporax("status")[1] == "No jobs in namespace 'default'.\n"
    assert "team" in sporax("status", "--all_namespaces")[1]
    assert sporax("submit", "-n", "team", tmp_path / "job.yaml") == (0, lines)  # again: nothing changes
    assert (
        json.loads(site.plane.kubectl("get", "msjob", "filed", "-n", "team", "-o", "json"))["metadata"]["generation"]
        == 1
    )
    assert sporax("delete", "-n", "team", "filed")[0] == 0
    site.until(lambda: not site.plane.kubectl("get", "pods", "-n", "team", "-o", "name").split(), 60)


def test_a_dry_run_sends_nothing_and_prints_what_kubectl_applies(site, sporax):
    code, text = sporax("submit", "--dry-run", "--workers", 2, "--image", "i", "--name", "dry", SCRIPT)
    assert code == 0
    assert "NotFound" in site.plane.kubectl("get", "msjob", "dry", check=False)
    answer = site.plane.kubectl("apply", "--dry-run=server", "-f", "-", text=text)
    assert "msjob.mindspore.gitee.com/dry created" in answer


def test_what_the_cluster_refuses_is_said_in_one_line(site, sporax, monkeypatch):
    code, text = sporax("status", "nobody")
    assert (code, text.count("\n")) == (2, 1)
    assert "there is no job 'nobody' in namespace 'default'" in text
    assert sporax("delete", "nobody")[0] == 2
    site.apply(sleeping(job("here", workers=1, scheduler=False)))
    site.until_in("here", "Running")
    code, text = sporax("logs", "here", "--index", 7)
    assert code == 2
    assert "must have pod 'here-worker-7', but it has here-worker-0" in text
    site.delete("here")
    monkeypatch.setenv("KUBECONFIG", str(site.plane.kubeconfig(token="wrong", name="stranger")))
    code, text = sporax("status")
    assert code != 0
    assert "Unauthorized" in text
