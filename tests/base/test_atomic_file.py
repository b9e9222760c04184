"""Writers of one name that run at the same time, and leftovers of those that were killed."""

import os
import signal
import subprocess
import sys

import pytest

from sporax.base.atomic_file import atomic_write

KILLED = """
import os, signal, sys
from sporax.base.atomic_file import atomic_write

with atomic_write(sys.argv[1]) as file:
    file.write(b"half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def leave_a_leftover(path) -> None:
    """What a killed writer of `path` leaves."""
    assert subprocess.run([sys.executable, "-c", KILLED, str(path)]).returncode == -signal.SIGKILL


def test_leftovers_of_killed_writers_are_removed_by_the_next_one(tmp_path):
    leave_a_leftover(tmp_path / "x.ckpt")
    leave_a_leftover(tmp_path / "x.ckpt.more")
    with atomic_write(tmp_path / "x.ckpt") as file:
        file.write(b"whole")
    left = sorted(os.listdir(tmp_path))
    assert len(left) == 2
    assert left[0].startswith(".x.ckpt.more.")  # of another name, so another writer's business
    assert (tmp_path / "x.ckpt").read_bytes() == b"whole"


def test_names_with_wildcards_are_names(tmp_path):
    leave_a_leftover(tmp_path / "xy")
    with atomic_write(tmp_path / "[xy]*") as file:
        file.write(b"whole")
    assert len(os.listdir(tmp_path)) == 2


def test_a_writer_at_work_is_left_alone(tmp_path):
    with atomic_write(tmp_path / "x") as first:
        first.write(b"first")
        with atomic_write(tmp_path / "x") as second:
            second.write(b"second")
        assert (tmp_path / "x").read_bytes() == b"second"
    assert (tmp_path / "x").read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["x"]


def test_a_file_taken_for_a_leftover_before_it_is_locked_is_made_again(tmp_path, monkeypatch):
    taken = []

    def exists(path):
        if not taken:
            taken.append(path)
            path.unlink()
        return os.path.exists(path)

    monkeypatch.setattr("pathlib.Path.exists", exists)
    with atomic_write(tmp_path / "x") as file:
        file.write(b"whole")
    assert taken
    assert os.listdir(tmp_path) == ["x"]


def test_a_full_disk_is_named_with_the_file(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with (
        pytest.raises(OSError, match=r"No space left on device, while it was written: '.*/x'"),
        atomic_write(tmp_path / "x"),
    ):
        pass
    assert os.listdir(tmp_path) == []
