"""The operator's Dockerfile, as far as it can be checked without building an image."""

from __future__ import annotations

import fnmatch
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from sporax.k8s.api import manifests

ROOT = Path(__file__).parents[2]
INSTRUCTIONS = [
    line.split(maxsplit=1)
    for line in (ROOT / "deploy" / "Dockerfile").read_text().splitlines()
    if line and not line.startswith("#")
]
STAGES = [index for index, (word, _) in enumerate(INSTRUCTIONS) if word == "FROM"]


def values(word: str, stage: int) -> list[str]:
    start, *rest = STAGES[stage:]
    return [value for name, value in INSTRUCTIONS[start : rest[0] if rest else None] if name == word]


def test_the_image_runs_as_the_user_of_the_deployment_which_is_not_root():
    user = values("USER", -1)[-1]
    pod = manifests.deployment("")["spec"]["template"]["spec"]
    assert user.split(":")[0] == str(pod["securityContext"]["runAsUser"])
    assert user.split(":")[0].isdigit()  # runAsNonRoot can be checked only for a number
    assert user.split(":")[0] != "0"


def test_the_last_stage_only_takes_what_the_first_has_installed():
    """No RUN, no ADD, no VOLUME: nothing in it writes, neither while it is built nor while it runs."""
    last = INSTRUCTIONS[STAGES[-1] :]
    assert [word for word, _ in last if word in ("RUN", "ADD", "VOLUME", "WORKDIR")] == []
    assert values("COPY", -1) == ["--from=build /install /usr/local"]
    assert "PYTHONDONTWRITEBYTECODE=1" in values("ENV", -1)[0]


def test_both_stages_have_the_python_that_the_package_needs():
    version = re.search(r'requires-python = ">=(\d+)\.(\d+)"', (ROOT / "pyproject.toml").read_text())
    assert version is not None
    images = {value.split(" AS ")[0] for word, value in INSTRUCTIONS if word == "FROM"}
    assert len(images) == 1  # what is installed with one Python is run with the same
    actual = re.fullmatch(r"python:(\d+)\.(\d+)-slim", images.pop())
    assert actual is not None
    assert tuple(map(int, actual.groups())) >= tuple(map(int, version.groups()))


def test_what_is_copied_is_there():
    for line in values("COPY", 0):
        *sources, _ = line.split()
        assert [source for source in sources if not (ROOT / source).exists()] == []


def test_the_command_and_the_ports_are_those_of_the_deployment():
    container = manifests.deployment("")["spec"]["template"]["spec"]["containers"][0]
    assert values("ENTRYPOINT", -1) == ['["sporax"]']
    assert values("CMD", -1) == [str(container["args"]).replace("'", '"')]
    assert values("EXPOSE", -1)[0].split() == [str(port["containerPort"]) for port in container["ports"]]


def test_the_package_builds_from_the_copied_files_alone_and_has_the_operator(tmp_path):
    pytest.importorskip("hatchling", reason="the package's build backend is not installed")
    (install,) = values("RUN", 0)
    assert re.fullmatch(r"pip install --no-cache-dir --prefix=/install '\.\[k8s\]'", install)
    source = tmp_path / "source"
    source.mkdir()
    for line in values("COPY", 0):
        *sources, target = line.split()
        (source / target).parent.mkdir(exist_ok=True)
        for name in sources:
            subprocess.run(["cp", "-r", ROOT / name, source / (target if target != "./" else name)], check=True)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "wheel")]
    subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=120)
    (wheel,) = (tmp_path / "wheel").glob("sporax-*.whl")
    with zipfile.ZipFile(wheel) as package:
        names = package.namelist()
        metadata = package.read(next(name for name in names if name.endswith("METADATA"))).decode()
        scripts = package.read(next(name for name in names if name.endswith("entry_points.txt"))).decode()
    assert fnmatch.filter(names, "sporax/k8s/operator.py")
    assert "sporax = sporax.launch.cli:main" in scripts
    for needed in ("kopf", "lightkube", "prometheus-client", "pyyaml", "pyzmq"):
        assert re.search(rf"^Requires-Dist: {re.escape(needed)}.*extra == 'k8s'", metadata, re.M | re.I), needed
