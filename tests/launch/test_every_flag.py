"""Every flag of every command: a value that it cannot have, or that has no effect, is refused, before any work is done.

The flags come from the parsers of the commands, so a new one without an entry here fails. Those of `run` and `msrun` are walked in
`tests/mindspore/context/test_every_setting.py`.
"""

import argparse
import json
import os
import sys

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.k8s import k8s_command as k8s
from sporax.launch import cli
from sporax.launch.commands import ps_command
from sporax.runtime.session import SESSION

NUMBERS = ("-1", "some", "1.5", "nan")

REFUSED = {
    "plan": {
        "--devices": [["--devices", number, "script.py"] for number in ("1", "0", "99999999", *NUMBERS)],
        "--compare": [
            ["--compare", "h100,no_such_profile", "script.py"],
            ["--compare", "h100", "--hardware", "h100", "script.py"],
            ["--compare", "h100", "--json", "plan.json", "script.py"],
        ],
        "--hardware": [["--hardware", "no_such_profile", "script.py"], ["--hardware", "script.py", "script.py"]],
        "--mode": [["--mode", "no_such_mode", "script.py"], ["script.py", "--mode", "no_such_mode"]],
        "--schedule": [["--schedule", "no_such_schedule", "script.py"]],
        "--stages": [["--stages", "no_such_way", "script.py"], ["script.py", "--stages", "no_such_way"]],
        "--memory": [["--memory", size, "script.py"] for size in ("0GB", "nanGB", "infGB", "much")],
        "--steps": [["--steps", number, "script.py"] for number in ("0", *NUMBERS)],
        "--json": [["--json", "nowhere/plan.json", "script.py"], ["--json", ".", "script.py"]],
        "--html": [["--html", "nowhere/plan.html", "script.py"], ["--html", ".", "script.py"]],
        "--module": [["--module", "no_such_module_anywhere"]],
        "--out": [["--out", file, "script.py"] for file in ("plan.txt", "nowhere/plan.json", ".")],
    },
    "explain-sharding": {
        "--devices": [["--devices", number, "script.py:step"] for number in ("0", "99999999", *NUMBERS)],
        "--hardware": [["--hardware", "no_such_profile", "script.py:step"]],
        "--tries": [["--tries", number, "script.py:step"] for number in NUMBERS],
        "--json": [["--json", file, "script.py:step"] for file in ("nowhere/found.json", ".")],
    },
    "check": {},
    "completion": {},
    "stubs": {},
    "profile": {
        "--rank": [["nowhere", "--rank", number] for number in NUMBERS],
        "--top": [["nowhere", "--top", number] for number in ("0", *NUMBERS)],
        "--depth": [["nowhere", "--depth", number] for number in NUMBERS],
        "--out": [["nowhere", "--out", file] for file in ("times.png", "nowhere/times.svg", ".")],
    },
    "info": {},
    "calibrate": {
        "--devices": [["--devices", number] for number in ("0", "99999999", *NUMBERS)],
        "--name": [["--name", ""], ["--name", " "]],
        "--out": [["--out", "profile.txt"], ["--out", "nowhere/profile.json"], ["--out", "."]],
    },
    "logs": {
        "--rank": [["--rank", number] for number in NUMBERS],
        "--lines": [["--lines", number] for number in NUMBERS],
        "--rsh": [["--rsh", ""], ["--rsh", "it's"]],
    },
    "ps status": {
        "--scheduler": [["--scheduler", place] for place in ("here", ":", ":1", "127.0.0.1:0", "127.0.0.1:65536", "a:b")],
        "--json": [["--json", "--prometheus"]],
        "--prometheus": [["--prometheus", "--json"]],
        "--live": "shown once or again and again",
    },
    "ps scale": {
        "--workers": [["--scheduler", "127.0.0.1:1", "--workers", number] for number in ("0", *NUMBERS)],
        "--servers": [["--scheduler", "127.0.0.1:1", "--servers", number] for number in ("0", *NUMBERS)],
        "--scheduler": [["--scheduler", "here", "--workers", "2"], ["--scheduler", "127.0.0.1:1"]],
    },
    "ps checkpoint": {"--scheduler": [["--scheduler", "here"]]},
    "ps keys": {},
    "k8s submit": {
        "--name": [["--dry-run", "--image", "i", "--name", "Bad_Name", "script.py"], ["--dry-run", "--name", "n", "job.yaml"]],
        "--workers": [
            *(["--dry-run", "--image", "i", "--workers", number, "script.py"] for number in ("0", *NUMBERS)),
            ["--dry-run", "--workers", "0", "job.yaml"],
        ],
        "--servers": [
            *(["--dry-run", "--image", "i", "--servers", number, "script.py"] for number in NUMBERS),
            ["--dry-run", "--servers", "0", "job.yaml"],
        ],
        "--image": [["--dry-run", "script.py"], ["--dry-run", "--image", "i", "job.yaml"]],
        "--dry-run": [["--dry-run", "--output", "out.yaml", "--image", "i", "script.py"]],
        "--replace": [["--replace", *flags, "--image", "i", "script.py"] for flags in (["--dry-run"], ["--output", "o.yaml"])],
        "--follow": [["--follow", *flags, "--image", "i", "script.py"] for flags in (["--dry-run"], ["--output", "o.yaml"])],
        "--output": [["--output", path, "--image", "i", "script.py"] for path in (".", "nowhere/out.yaml")],
        "--namespace": [
            ["--dry-run", "--image", "i", "--namespace", "Bad_Name", "script.py"],
            ["--dry-run", "--namespace", "other", "placed.yaml"],
        ],
    },
    "k8s status": {
        "--all_namespaces": [["--all_namespaces", "job"], ["--all_namespaces", "--namespace", "team"]],
        "--namespace": [["--namespace", "Bad_Name"]],
    },
    "k8s logs": {
        "--role": [["job", "--role", "no_such_role"]],
        "--index": [["job", "--index", number] for number in ("7", *NUMBERS)],
        "--tail": [["job", "--tail", number] for number in NUMBERS],
        "--follow": "ends or goes on",
        "--namespace": [["job", "--namespace", "-"]],
    },
    "k8s delete": {"--namespace": [["job", "--namespace", "a b"]]},
    "k8s manifests": {
        "--output": [["--output", "script.py"]],
        "--image": [["--image", ""]],
        "--no-expressions": [["--packages", "--no-expressions"]],
        "--replicas": [["--replicas", number] for number in ("0", "10", *NUMBERS)],
        "--namespaces": [["--namespaces", "team", "Bad_Name"], ["--packages", "--namespaces", "team"]],
        "--packages": [["--packages", "--replicas", "2"], ["--packages", "--image", "i"]],
    },
    "k8s operator": {
        "--namespaces": [["--namespaces", "team", "Bad_Name"]],
        "--lease": [["--lease", name] for name in ("lease", "team/", "Bad_Name/lease", "a/b/c")],
        "--metrics_port": [["--metrics_port", number] for number in ("65536", *NUMBERS)],
        "--liveness_port": [["--liveness_port", number] for number in ("65536", *NUMBERS)] + [["--liveness_port", "8080"]],
        "--verbose": "how much is logged",
    },
    "checkpoint convert": {
        "--src_strategy": [["left", "to", "--src_strategy", "nothing.ckpt"]],
        "--dst_strategy": [
            ["left", "to", "--dst_strategy", "nothing.ckpt"],
            ["left", "to", "--unified", "--dst_strategy", "nothing.ckpt"],
        ],
        "--prefix": [["left", "to", "--unified", "--prefix", "net_"]],
        "--format": [["left", "to", "--format", "text"], ["left", "to", "--unified", "--format", "ckpt"]],
        "--jobs": [["left", "to", "--jobs", number] for number in ("0", *NUMBERS)],
        "--unified": [["script.py", "to", "--unified"]],
        "--quiet": "with or without progress",
    },
    "checkpoint inspect": {
        "--strategy": [["left", "--strategy", "nothing.ckpt"]],
        "--verify": "with or without checksums",
    },
    "checkpoint diff": {
        "--left_strategy": [["left", "right", "--left_strategy", "nothing.ckpt"]],
        "--right_strategy": [["left", "right", "--right_strategy", "nothing.ckpt"]],
        "--tolerance": [["left", "right", "--tolerance", number] for number in ("-1", "nan", "inf", "some")],
    },
}  # fmt: skip
"""Command lines that are refused, by flag; a text instead says why every value of the flag is right."""


def parsers():
    """The parser of each command, or of each of its words."""
    for name in cli.COMMANDS:
        if name in ("run", "msrun"):
            continue
        parser = cli.command_parser(name, cli.load_command(name))
        words = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
        if words:
            yield from ((f"{name} {word}", inner) for word, inner in words[0].choices.items())
        else:
            yield name, parser


def test_every_flag_has_an_entry():
    flags = {
        name: {
            action.option_strings[-1] for action in parser._actions if action.option_strings and action.dest != "help"
        }
        for name, parser in parsers()
    }
    assert {name: set(table) for name, table in REFUSED.items()} == flags


class Nothing:
    """A cluster or a scheduler that is queried although the command line is wrong."""

    namespace = "default"

    def __init__(self, *arguments):
        pass

    def job(self, name):
        return {}

    def pod_bodies(self, name):
        return [{"metadata": {"name": "job-worker-0"}}]

    def close(self):
        pass

    def __getattr__(self, name):
        raise AssertionError(f"{name} was reached")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("flags")
    (folder / "script.py").write_text("raise AssertionError('the script was run')\n")
    nodes = {"intervals": [[0, 1]], "costs": [[1, 2]], "usages": [[1, 1]]}
    problem = {"name": "small", "nodes": nodes, "edges": {"nodes": [], "costs": []}, "usage_limit": 5}
    (folder / "graph.json").write_text(json.dumps({"problem": problem}))
    (folder / "choices.json").write_text("[0]")
    for side in ("left", "right"):
        (folder / side / "rank_0").mkdir(parents=True)
        weights = [{"name": "w", "data": ms.Tensor(np.ones(3, np.float32))}]
        for suffix in ("ckpt", "safetensors"):
            ms.save_checkpoint(weights, str(folder / side / "rank_0" / f"ckpt_1.{suffix}"), format=suffix)
    return folder


@pytest.fixture
def _own_process(monkeypatch):
    """What `sporax plan` sets for the rest of its process is set back."""
    for name, value in (("plan_listeners", []), ("plan_only", False), ("plans_all", False), ("remarks", ())):
        monkeypatch.setattr(SESSION, name, value)
    for name in ("argv", "path", "meta_path"):
        monkeypatch.setattr(sys, name, list(getattr(sys, name)))
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    environ = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(environ)


@pytest.fixture
def command(files, monkeypatch, capsys, _own_process):
    """Calls a command in the folder; returns its exit code and what it wrote to standard error."""
    monkeypatch.chdir(files)
    monkeypatch.setattr(k8s, "JobClient", Nothing)
    monkeypatch.setattr(k8s.operator, "serve", Nothing().__getattr__)
    monkeypatch.setattr(ps_command, "Requester", Nothing)

    def call(*words):
        try:
            code = cli.main(words)
        except SystemExit as end:
            code = end.code
        return code, capsys.readouterr()

    if not (files / "job.yaml").exists():
        for name, flags in (("job.yaml", []), ("placed.yaml", ["--namespace", "team"])):
            assert call("k8s", "submit", "--image", "i", "--output", name, *flags, "script.py")[0] == 0
    return call


@pytest.mark.parametrize(
    ("name", "flag", "words"),
    [
        (name, flag, words)
        for name, table in REFUSED.items()
        for flag, lines in table.items()
        if not isinstance(lines, str)
        for words in lines
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_what_a_flag_cannot_be_is_refused_in_our_words(command, name, flag, words):
    code, written = command(*name.split(), *words)
    assert code == 2
    last = written.err.strip().splitlines()[-1]
    assert last.startswith(f"sporax {name.split()[0]}")
    assert "For '" in last or "error: argument" in last or "error: one of" in last


def test_the_process_of_the_tests_is_no_process_of_plans():
    assert not SESSION.plan_listeners
    assert not (SESSION.plan_only or SESSION.plans_all)


@pytest.mark.parametrize("words", [["keys", "script.py"], ["keys", "/proc/nowhere"]])
def test_keys_are_written_to_directories(command, words):
    code, written = command("ps", *words)
    assert code == 2
    assert f"For 'sporax ps keys', the directory must be one that can be written, but got '{words[1]}'" in written.err


def test_a_namespace_is_given_to_what_names_none(command):
    code, written = command("k8s", "submit", "--dry-run", "--namespace", "team", "job.yaml")
    assert (code, written.out.count("namespace: team")) == (0, 2)
    assert command("k8s", "submit", "--dry-run", "--namespace", "team", "placed.yaml")[0] == 0
