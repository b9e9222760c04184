"""Measuring devices: a profile that planners can use."""

import json
import os
import sys

import jax
import pytest

from compiler_flags import COMPILER
from forked_commands import run_forked
from sporax.ir.hardware import HardwareProfile, load_profile
from sporax.launch.cli import main
from sporax.runtime.devices import calibrate


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(calibrate, "_ROUNDS", 2)
    monkeypatch.setattr(calibrate, "_SECONDS", 0.0)
    monkeypatch.setattr(calibrate, "_MATRIX", {"cpu": 128})
    monkeypatch.setattr(calibrate, "_VECTOR", {"cpu": 1 << 16})
    monkeypatch.setattr(calibrate, "_CHAIN", 8)
    monkeypatch.setattr(calibrate, "_FEW", 3)
    monkeypatch.setattr(calibrate, "_LARGE", {"cpu": 1 << 12})


def test_a_profile_is_measured_written_and_read(quick, tmp_path, capsys):
    path = tmp_path / "mine.json"
    assert main(["calibrate", "--name", "mine", "--out", str(path)]) == 0
    profile = load_profile(str(path))
    assert profile.name == "mine"
    assert "measured on 8 x cpu" in profile.source
    assert profile.flops["float32"] > 1e6
    assert profile.memory_bandwidth > 1e6
    assert 0 < profile.launch_seconds < 1
    assert profile.links[0].bandwidth > 1e3
    assert profile.merged_bytes == load_profile("cpu").merged_bytes
    assert HardwareProfile.from_json(profile.to_json()) == profile
    assert "GFLOP/s per device" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("here", "levels"),
    [
        (8, [("network", 1 << 20)]),
        (1, [("network", 1 << 20)]),
        (3, [("network", 1 << 20)]),
        (4, [("node", 4), ("network", 1 << 20)]),
    ],
)
def test_nodes_of_equal_size_have_a_link_inside_and_one_between(quick, monkeypatch, here, levels):
    groups = set()

    def gather(x, axis, axis_index_groups, tiled, gathered=jax.lax.all_gather):
        groups.add(str(axis_index_groups))
        return gathered(x, axis, axis_index_groups=axis_index_groups, tiled=tiled)

    monkeypatch.setattr(calibrate, "_num_here", lambda: here)
    monkeypatch.setattr(jax.lax, "all_gather", gather)
    profile = calibrate.calibrate()
    assert [(link.name, link.group) for link in profile.links] == levels
    assert all(link.bandwidth > 1e3 and link.alpha_seconds > 0 for link in profile.links)
    if here == 4:
        assert {"[[0, 1, 2, 3], [4, 5, 6, 7]]", "[[0, 4], [1, 5], [2, 6], [3, 7]]"} < groups
        assert HardwareProfile.from_json(profile.to_json()).link_between((0, 4)).name == "network"


@pytest.mark.full
def test_a_job_measures_between_its_processes(tmp_path):
    program = tmp_path / "measured.py"
    program.write_text(
        "import json, sporax\nfrom sporax.runtime import world\nfrom sporax.runtime.devices import calibrate\n"
        "calibrate._MATRIX, calibrate._VECTOR, calibrate._CHAIN, calibrate._FEW = {'cpu': 128}, {'cpu': 1 << 16}, 8, 3\n"
        "rank = world.start().rank\nalone, calibrate._num_here = calibrate._num_here(), lambda: 1\n"
        "profile = json.loads(sporax.calibrate('job').to_json())\nprofile.pop('memory_bytes')\n"
        "open(f'{rank}.json', 'w').write(json.dumps([alone, profile]))\n"
    )
    command = [sys.executable, "-m", "sporax", "run", "--worker_num", "2", "--local_devices", "1", str(program)]
    job = run_forked(
        command, cwd=tmp_path, timeout=200, env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": COMPILER}
    )
    assert job.returncode == 0, job.stdout + job.stderr
    (here, first), (_, second) = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    assert here == 2
    assert first == second
    assert [link["name"] for link in first["links"]] == ["network"]
    assert "measured on 2 x" in first["source"]


@pytest.mark.parametrize("words", [["--out", "profile.txt"], ["--out", "/nowhere/p.json"], ["--devices", "0"]])
def test_wrong_arguments_are_refused(words, capsys):
    assert main(["calibrate", *words]) == 2
    assert "For 'sporax calibrate'" in capsys.readouterr().err
