"""Measuring devices: a profile that planners can use."""

import pytest

from sporax.ir.hardware import HardwareProfile, load_profile
from sporax.launch.cli import main
from sporax.runtime import calibrate


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(calibrate, "_ROUNDS", 2)
    monkeypatch.setattr(calibrate, "_MATRIX", {"cpu": 128})
    monkeypatch.setattr(calibrate, "_VECTOR", {"cpu": 1 << 16})
    monkeypatch.setattr(calibrate, "_CHAIN", 8)
    monkeypatch.setattr(calibrate, "_SLICES", {"cpu": (1 << 8, 1 << 12)})


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
    assert HardwareProfile.from_json(profile.to_json()) == profile
    said = capsys.readouterr().out
    assert "GFLOP/s per device" in said
    assert "starting a program" in said


def test_the_line_through_measurements_counts_small_sizes_as_much_as_large_ones():
    assert calibrate._line([1000, 10_000, 1_000_000], [11e-6, 20e-6, 1010e-6]) == pytest.approx((10e-6, 1e-9))
    first, slope = calibrate._line([1000, 10_000, 1_000_000], [11e-6, 20e-6, 2000e-6])
    assert 5e-6 < first < 15e-6  # by absolute errors it would be below zero
    assert slope > 0


@pytest.mark.parametrize("words", [["--out", "profile.txt"], ["--out", "/nowhere/p.json"], ["--devices", "0"]])
def test_wrong_arguments_are_refused(words, capsys):
    assert main(["calibrate", *words]) == 2
    assert "For 'sporax calibrate'" in capsys.readouterr().err
