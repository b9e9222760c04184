"""`sporax logs`: logs of several places, the rank that failed first at the head."""

import os
import re
import stat
from pathlib import Path

import pytest

from sporax.launch import cli
from sporax.launch.commands.logs_command import first_to_fail, headline

FIRST = """12:00:00 rank 0 is process 10, log logs/worker_0.log
12:00:05 sporax run: rank 1 (ValueError) on 10.77.0.11 ended with an exception: the data is spoiled
12:00:05 sporax run: rank 0 (process 10) was killed by SIGTERM (signal 15)
12:00:06 the launcher ends with exit code 1
"""
SECOND = """12:00:00 rank 1 is process 11, log logs/worker_1.log
12:00:04 sporax run: rank 1 (process 11) ended with exit code 1 after 4.0 s
12:00:05 the launcher ends with exit code 1
"""


def write_job(folder: Path, number: int, launcher: str, text: str) -> Path:
    """The logs of a machine."""
    place = folder / f"node{number}"
    place.mkdir()
    (place / f"worker_{number}.log").write_text(text)
    (place / ("scheduler.log" if number == 0 else f"launcher_node{number}.log")).write_text(launcher)
    return place


@pytest.fixture
def places(tmp_path):
    lines = "".join(f"step {number}\n" for number in range(60))
    one = write_job(tmp_path, 0, FIRST, lines)
    return [one, write_job(tmp_path, 1, SECOND, f"{lines}ValueError: the data is spoiled\n")]


def shown(capsys, *words: object) -> tuple[int, str, str]:
    code = cli.main(["logs", *map(str, words)])
    written = capsys.readouterr()
    return code, written.out, written.err


def heads(text: str) -> list[str]:
    return re.findall(r"== (.*?)(?:: .*)? ==", text)


def test_the_rank_that_failed_comes_first_with_what_every_launcher_says(places, capsys):
    code, out, err = shown(capsys, *places)
    assert (code, err) == (0, "")
    said = out.splitlines()[:2]
    assert said[0] == f"{places[1]}/launcher_node1.log: 12:00:04 rank 1 (process 11) ended with exit code 1 after 4.0 s"
    assert said[1].startswith(f"{places[0]}/scheduler.log: 12:00:05 rank 1 (ValueError) on 10.77.0.11")
    assert heads(out) == ["rank 1, the first to fail", "rank 0"]
    assert f"{places[1]}/worker_1.log, 40 lines ==" in out
    assert "step 21\n" in out.partition("== rank 0")[0]
    assert "ValueError: the data is spoiled\n" in out
    assert out.endswith("".join(f"step {number}\n" for number in range(50, 60)))


def test_flags_choose_ranks_and_lines(places, capsys):
    _, out, _ = shown(capsys, *places, "--rank", "0", "--lines", "2")
    assert heads(out) == ["rank 0"]
    assert out.endswith("2 lines ==\nstep 58\nstep 59\n")
    _, out, _ = shown(capsys, *places, "--lines", "0")
    assert out.count("step 0\n") == 2


def test_a_folder_that_all_machines_share_is_one_place(tmp_path, capsys, monkeypatch):
    for name, text in (
        ("scheduler.log", FIRST), ("launcher_node1.log", SECOND), ("train_0.log", "zero\n"), ("train_1.log", "one\n"),
        ("server_0.log", "rows\n"), ("worker_node2-0.log", "early\n"), ("other.txt", "not a log\n"),
    ):  # fmt: skip
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    code, out, _ = shown(capsys)
    assert code == 0
    assert heads(out) == ["rank 1, the first to fail", "rank 0", "server 0", "a rank without a number"]
    assert "not a log" not in out


def test_a_log_of_an_earlier_job_is_left_out(places, capsys):
    old = places[0] / "worker_1.log"
    old.write_text("of yesterday\n")
    os.utime(old, (1e9, 1e9))
    _, out, _ = shown(capsys, *places)
    assert heads(out) == ["rank 1, the first to fail", "rank 0"]
    assert "of yesterday" not in out
    assert f"left out: {old}, of 2001-09-" in out


def test_stack_traces_of_the_coordinator_are_not_shown(places, capsys):
    log = places[0] / "worker_0.log"
    trace = (
        "F1126 19:00:00.000 1 client.h:1] Terminating process because the JAX distributed service detected fatal errors"
    )
    log.write_text(f"step 0\n{trace}\n    @ 0x7f00 absl\n")
    _, out, _ = shown(capsys, *places)
    assert out.endswith("step 0\nsporax: JAX has ended this rank, since another one is lost\n")


@pytest.fixture
def remote_shell(tmp_path):
    """Stands for `ssh`: the host's name is a folder of this machine."""
    script = tmp_path / "shell"
    script.write_text(
        f'#!/bin/sh\ncd {tmp_path}/"$1" 2>&1 >/dev/null || {{ echo "no route to $1" >&2; exit 255; }}\nexec sh -c "$2"\n'
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return script


def test_logs_of_other_machines_are_read_over_a_remote_shell(places, tmp_path, capsys, remote_shell):
    folder = tmp_path / "node1" / "it's here $(touch made)"
    folder.mkdir()
    for path in places[1].glob("*.log"):
        path.rename(folder / path.name)
    (folder / "worker_7.log").write_bytes(b"no end\xff\x00")
    place = f"node1:{folder}"
    code, out, err = shown(capsys, places[0], place, "--rsh", remote_shell)
    assert (code, err) == (0, "")
    assert heads(out) == ["rank 1, the first to fail", "rank 0", "rank 7"]
    assert f"{place}/worker_1.log, 40 lines ==" in out
    assert out.endswith("no end\N{REPLACEMENT CHARACTER}\0\n")
    assert not (tmp_path / "node1" / "made").exists()
    # A shell may greet before it does what it is sent.
    greeting = remote_shell.read_text().replace("exec sh", "echo 'Welcome\tto node1'\nexec sh")
    remote_shell.write_text(greeting)
    assert shown(capsys, places[0], place, "--rsh", remote_shell) == (code, out, err)
    # Without a folder the one where the shell begins.
    code, out, _ = shown(capsys, "node0:", "--rsh", remote_shell)
    assert (code, heads(out)) == (0, ["rank 0"])


def test_what_cannot_be_read_is_said_and_the_rest_is_shown(places, capsys, remote_shell):
    code, out, err = shown(capsys, places[1], "node9:/logs", places[0] / "none", "--rsh", remote_shell)
    assert code == 1
    assert heads(out) == ["rank 1, the first to fail"]
    assert "sporax logs: 'node9:/logs' cannot be read: no route to node9\n" in err
    assert f"'{places[0]}/none' cannot be read: No such file or directory" in err
    code, _, err = shown(capsys, "node1:/logs", "--rsh", "/no/such/shell")
    assert code == 2
    assert "cannot be read: No such file or directory: '/no/such/shell'" in err
    assert "there must be logs of a job in 'node1:/logs', but there is none" in err


def test_a_job_that_went_on_after_a_failure_has_none(places, capsys):
    again = (
        f"{FIRST}12:01:00 rank 0 is process 20, log logs/worker_0.log\n12:02:00 the launcher ends with exit code 0\n"
    )
    assert headline(FIRST) == (
        "12:00:05",
        "rank 1 (ValueError) on 10.77.0.11 ended with an exception: the data is spoiled",
    )
    assert headline(again) is None
    assert headline(FIRST + SECOND) == ("12:00:04", "rank 1 (process 11) ended with exit code 1 after 4.0 s")


def test_the_rank_that_most_launchers_name_is_the_first_to_fail():
    assert first_to_fail(
        [("12:00:01", "rank 2 (process 5) was killed"), ("12:00:02", "rank 3 on 10.0.0.1"), ("12:00:03", "rank 3")]
    ) == ("rank", 3)
    assert first_to_fail([("12:00:02", "rank 3 on a"), ("12:00:01", "worker 2 ended with exit code 1")]) == ("rank", 2)
    assert first_to_fail([("12:00:02", "the launcher on node1 has not answered for 8 s")]) is None
