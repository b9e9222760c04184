"""`sporax run --config`: a file gives flags, environment and target; the command line wins."""

import json
import os
import subprocess
import sys

import pytest

from sporax.base.errors import SporaxValueError
from sporax.launch import cli, job_file, options

TOML = """
worker_num = 4
local_devices = 2
server_num = 1
join = false
verbose = true
verify-steps = 5
tail_worker_log = [0, 1]
bind_core = {device0 = ["0-3"]}
target = "sh"
arguments = ["-c", "true", 3]
[environment]
JOB_FILE_TEST = 7
"""


def parsed(*words, command="run"):
    return cli.command_parser(command, cli.load_command(command)).parsed(words)


def checked(*words):
    return options.checked(parsed(*words), options.RUN_DEFAULTS)


@pytest.fixture
def job(tmp_path, monkeypatch):
    monkeypatch.delenv("JOB_FILE_TEST", raising=False)
    path = tmp_path / "job.toml"
    path.write_text(TOML)
    yield str(path)
    os.environ.pop("JOB_FILE_TEST", None)


def test_a_file_gives_flags_environment_and_target(job):
    chosen = checked("--config", job)
    assert (chosen.worker_num, chosen.local_devices, chosen.server_num) == (4, 2, 1)
    assert (chosen.join, chosen.verbose, chosen.verify_steps) == (False, True, 5)
    assert (chosen.tail_worker_log, chosen.bind_core) == ((0, 1), {0: (0, 1, 2, 3)})
    assert chosen.target.arguments == ("-c", "true", "3")
    assert os.environ["JOB_FILE_TEST"] == "7"


def test_flags_and_variables_win_wherever_they_stand(job, monkeypatch):
    monkeypatch.setenv("JOB_FILE_TEST", "mine")
    for words in (
        ["--worker_num", "2", "--join", "True", "--config", job],
        ["--config", job, "--worker-num=2", "--join=True"],
    ):
        chosen = checked(*words, "sh", "-c", "false")
        assert (chosen.worker_num, chosen.join, chosen.local_devices) == (2, True, 2)
        assert chosen.target.arguments == ("-c", "false")
    assert os.environ["JOB_FILE_TEST"] == "mine"


def test_a_target_of_the_command_line_has_no_arguments_of_the_file(job):
    assert checked("--config", job, "sh").target.arguments == ()


@pytest.mark.parametrize("suffix", [".json", ".yaml"])
def test_json_and_yaml_say_the_same(tmp_path, suffix):
    if suffix == ".yaml":
        pytest.importorskip("yaml", reason="PyYAML is not installed")
    path = tmp_path / f"job{suffix}"
    path.write_text(
        json.dumps({"worker_num": 3, "target": "sh", "arguments": ["-c", "true"]})
        if suffix == ".json"
        else "worker_num: 3\ntarget: sh\narguments: [-c, 'true']\n"
    )
    chosen = checked("--config", str(path))
    assert (chosen.worker_num, chosen.target.arguments) == (3, ("-c", "true"))
    assert parsed("--config", str(path), command="msrun").worker_num == 3


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("job.ini", "", r"--config must be a file \.toml, \.json, \.yaml, \.yml, but got"),
        ("job.toml", "worker_num = ", r"must be TOML, but"),
        ("job.json", "[1]", r"must have names of flags with their values, but got \[1\]"),
        ("job.yaml", "a: [", r"must be YAML, but"),
        ("job.toml", "worker_mum = 4", r"'worker_mum' of '.*' must be a flag .* Did you mean 'worker_num'\?"),
        ("job.toml", "worker_num = 'many'", r"'worker_num' of '.*' must be a number, but got 'many'"),
        ("job.toml", "worker_num = true", r"'worker_num' of '.*' must be a number, but got True"),
        ("job.toml", "verbose = 'yes'", r"'verbose' of '.*' must be true or false, but got 'yes'"),
        ("job.toml", "join = 'maybe'", r"'join' of '.*' must be True or False, but got 'maybe'\.$"),
        ("job.toml", "sim_level = 9", r"'sim_level' of '.*' must be one of -1, 0, 1, 2, 3, but got 9"),
        ("job.toml", "config = 'other.toml'", r"'config' of '.*' must be a flag"),
        ("job.toml", "environment = ['A']", r"'environment' of '.*' must be names of variables"),
        ("job.toml", "environment = {A = [1]}", r"'environment.A' of '.*' must be a text or a number"),
        ("job.toml", "target = 3", r"'target' of '.*' must be a text"),
        ("job.toml", "arguments = '--epochs 3'", r"'arguments' of '.*' must be a list of texts"),
        ("job.toml", "worker_num = 2", "there must be a target"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path, name, text, words):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(SporaxValueError, match=words):
        checked("--config", str(path))


def test_yaml_without_its_package_says_what_to_do(tmp_path, monkeypatch):
    path = tmp_path / "job.yaml"
    path.write_text("worker_num: 2\n")
    monkeypatch.setattr(job_file, "find_spec", lambda name: None)
    with pytest.raises(
        SporaxValueError, match=r"^For 'sporax run', '.*' needs PyYAML, .* or write the file as TOML or JSON\.$"
    ):
        checked("--config", str(path))


def test_a_missing_file_is_one_line(tmp_path):
    command = [sys.executable, "-m", "sporax", "run", "--config", str(tmp_path / "job.toml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "No such file or directory" in done.stderr


def test_a_job_of_a_file_runs(tmp_path):
    script = tmp_path / "show.py"
    script.write_text("import os, sys\nprint(os.environ['RANK_ID'], os.environ['COLOUR'], sys.argv[1:])\n")
    (tmp_path / "job.toml").write_text(
        f"worker_num = 2\nlog_dir = '{tmp_path}'\ntarget = '{script}'\narguments = ['--epochs', 2]\n[environment]\nCOLOUR = 'red'\n"
    )
    command = [sys.executable, "-m", "sporax", "run", "--config", str(tmp_path / "job.toml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    for rank in range(2):
        assert f"{rank} red ['--epochs', '2']" in done.stdout
