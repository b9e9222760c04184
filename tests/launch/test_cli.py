import argparse
import subprocess
import sys

import pytest

import sporax
from sporax.launch import cli

WITHOUT_EXTRA = """
import sys
sys.modules["kopf"] = None
from sporax.launch import cli
sys.exit(cli.main(["k8s", *sys.argv[1:]]))
"""


@pytest.mark.parametrize("arguments", [["manifests"], ["submit", "train.py", "--image", "i", "--dry-run"]])
def test_a_command_without_its_extra_says_so_in_one_line(arguments):
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRA, *arguments], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "sporax k8s: For 'sporax k8s', the package 'kopf' must be installed: pip install 'sporax[k8s]'.\n"
    )


RUN_FLAGS = {
    "module": False,
    "config": None,
    "local_devices": None,
    "resume": False,
    "worker_num": None,
    "local_worker_num": None,
    "server_num": 0,
    "staleness": None,
    "durability": "",
    "max_restarts": None,
    "master_addr": "127.0.0.1",
    "master_port": None,
    "node_rank": -1,
    "log_dir": "",
    "join": True,
    "cluster_time_out": 600,
    "bind_core": None,
    "bind_numa": False,
    "sim_level": -1,
    "sim_rank_id": -1,
    "rank_table_file": "",
    "token_file": None,
    "worker_log_name": "",
    "tail_worker_log": "-1",
    "no_cache": False,
    "verbose": False,
    "verify_plan": False,
    "verify_steps": 0,
    "profile": "",
    "profile_steps": "",
    "target": None,
    "target_arguments": None,
}
MSRUN_FLAGS = RUN_FLAGS | {"worker_num": 8, "join": False}
PLAN_FLAGS = {
    "module": False,
    "devices": None,
    "json": None,
    "html": None,
    "compare": None,
    "out": None,
    "hardware": None,
    "mode": None,
    "memory": None,
    "steps": None,
    "stages": None,
    "schedule": None,
    "target": None,
    "target_arguments": None,
}


def flags(command: str) -> dict[str, object]:
    parser = cli.command_parser(command, cli.load_command(command))
    return {action.dest: action.default for action in parser._actions if action.dest != "help"}


@pytest.mark.parametrize(
    ("command", "frozen"), [("run", RUN_FLAGS), ("msrun", MSRUN_FLAGS), ("plan", PLAN_FLAGS), ("info", {})]
)
def test_the_command_line_is_frozen(command: str, frozen: dict[str, object]):
    """A changed name or default breaks scripts of users: change it here only on purpose."""
    assert flags(command) == frozen


def test_every_flag_has_a_help_text():
    for command in ("run", "msrun", "plan"):
        for action in cli.command_parser(command, cli.load_command(command))._actions:
            assert action.help, action.dest


def test_version_and_python_dash_m(run):
    assert run("--version").stdout == f"sporax {sporax.__version__}\n"


def test_help_lists_every_command(run):
    text = run("--help").stdout
    assert all(f"  {name}" in text for name in cli.COMMANDS)


def test_unknown_command_is_a_usage_error(run):
    done = run("rum", "x.py")
    assert done.returncode == 2
    assert "'rum'" in done.stderr


def test_a_users_mistake_is_one_message_and_exit_code_2(run):
    done = run("run", "missing.py")
    assert done.returncode == 2
    assert done.stderr.startswith("sporax run: For 'target', it must be a script")
    assert "'missing.py'" in done.stderr
    assert done.stderr.count("\n") == 1


def test_only_the_chosen_command_is_imported(monkeypatch: pytest.MonkeyPatch):
    """A command is found by name when it is called, so a heavy one costs the others nothing."""

    class Heavy:
        @staticmethod
        def add_arguments(parser: argparse.ArgumentParser) -> None:
            parser.add_argument("--x", type=int)

        @staticmethod
        def run(arguments: argparse.Namespace) -> int:
            return arguments.x

    monkeypatch.setitem(cli.COMMANDS, "heavy", ("not.imported.yet", "a test"))
    assert "not.imported.yet" not in sys.modules
    monkeypatch.setitem(sys.modules, "not.imported.yet", Heavy)
    assert cli.main(["heavy", "--x", "3"]) == 3


def test_the_launching_process_stays_light():
    """It must not import JAX: it would cost every launch, and read variables that the launcher still sets."""
    code = "import sys, sporax.launch.cli, sporax.launch.commands.run; sys.exit('jax' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["rn", "x.py"], "run"),
        (["run", "--wrker_num", "2", "x.py"], "--worker_num"),
        (["plan", "--device", "8", "x.py"], "--devices"),
        (["plan", "--mode", "dynamik", "x.py"], "dynamic"),
        (["plan", "--hardware", "h1000", "x.py"], "h100"),
        (["k8s", "submitt"], "submit"),
    ],
)
def test_a_wrong_word_is_one_message_with_the_one_that_was_meant(run, write, words, meant):
    write("x.py", "")
    done = run(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"Did you mean '{meant}'?" in done.stderr
    assert done.stderr.count("\n") == 1


def test_dashes_and_underscores_stand_for_each_other_in_flags_of_the_command_alone():
    parser = cli.command_parser("run", cli.load_command("run"))
    words = ["--worker-num", "2", "--log-dir=logs", "--token_file", "f", "--join", "True", "x.py", "--worker-num", "9"]
    chosen = parser.parsed(words)
    assert (chosen.worker_num, chosen.log_dir, chosen.token_file) == (2, "logs", "f")
    assert (chosen.target, chosen.target_arguments) == ("x.py", ["--worker-num", "9"])


def test_the_short_flag_of_the_version(run):
    assert run("-V").stdout == f"sporax {sporax.__version__}\n"
