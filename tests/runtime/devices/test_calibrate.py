"""Measuring devices: a profile that planners can use."""

import pytest

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


@pytest.mark.parametrize("words", [["--out", "profile.txt"], ["--out", "/nowhere/p.json"], ["--devices", "0"]])
def test_wrong_arguments_are_refused(words, capsys):
    assert main(["calibrate", *words]) == 2
    assert "For 'sporax calibrate'" in capsys.readouterr().err
