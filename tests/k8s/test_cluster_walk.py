"""A newcomer's walk: the lines of docs/kubernetes.md from an empty cluster to a finished job, on a real control plane.

Run by `make test-cluster`, as `test_cluster_training`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from support_k8s.control_plane import assets, on_control_plane

pytestmark = on_control_plane()

ROOT = Path(__file__).parents[2]
HEADING = "## From an empty cluster to a finished job"
OLD_KUBECTL = "apply --validate=false"  # kubectl before 1.25 does not know rules of a CRD, as the page says


def lines() -> list[str]:
    section = (ROOT / "docs" / "kubernetes.md").read_text().partition(HEADING)[2]
    return section.split("```")[1].strip().splitlines()


def test_the_lines_of_the_page_lead_to_a_finished_job(site, tmp_path):
    """The lines of the page, in a checkout; the operator of the site is the one that the Deployment describes."""
    assert len(lines()) <= 10
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    tools = f"{assets()}:{Path(sys.executable).parent}"
    environment = os.environ | {"KUBECONFIG": str(site.plane.kubeconfig()), "PATH": f"{tools}:{os.environ['PATH']}"}
    answers = {}
    for line in lines():
        command = line.replace("kubectl apply", f"kubectl {OLD_KUBECTL}")
        done = subprocess.run(
            command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
        )
        answers[line] = done.stdout + done.stderr
        assert done.returncode == 0, (line, answers[line])
    submitted = next(text for line, text in answers.items() if " submit " in line)
    assert "rank 0 of 2 is done" in submitted
    assert "msjob/first Succeeded" in submitted
    assert "loss is" in submitted
    status = next(text for line, text in answers.items() if " status " in line)
    assert "Succeeded" in status
    explained = next(text for line, text in answers.items() if " explain " in line)
    assert "What the user requests." in explained
    assert "What the operator says of the job, and remembers of it." in explained
    assert (
        site.plane.kubectl("get", "deployment", "-n", "sporax-system", "-o", "name").strip()
        == "deployment.apps/sporax-operator"
    )
    site.until(lambda: not site.pods("first"), 60, "nothing is left")
