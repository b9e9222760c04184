"""`sporax k8s`: what is submitted, shown and written."""

from datetime import UTC, datetime, timedelta

import pytest
import yaml
from rich.console import Console
from support_k8s.jobs import changed, job
from support_k8s.simulation import Simulation

from sporax.k8s import view
from sporax.k8s.api import manifests
from sporax.k8s.resource.job_status import write_status
from sporax.k8s.resource.spec import read_job
from sporax.launch import cli

FLAGS = {
    "submit": {
        "name": "", "workers": None, "servers": None, "image": "", "dry_run": False, "output": "", "namespace": "",
        "target": None, "target_arguments": None,
    },
    "status": {"name": None, "all_namespaces": False, "namespace": ""},
    "logs": {"name": None, "role": "worker", "index": 0, "follow": False, "tail": None, "namespace": ""},
    "delete": {"name": None, "namespace": ""},
    "manifests": {"output": "deploy", "image": "sporax-operator:latest", "expressions": False},
    "operator": {"namespaces": [], "metrics_port": 8080, "liveness_port": 8081, "verbose": False},
}  # fmt: skip


def commands():
    (subparsers,) = cli.command_parser("k8s", cli.load_command("k8s"))._subparsers._group_actions
    return subparsers.choices


def test_the_command_line_is_frozen():
    """A changed name or default breaks scripts of users: change it here only on purpose."""
    actual = {
        name: {action.dest: action.default for action in parser._actions if action.dest != "help"}
        for name, parser in commands().items()
    }
    assert actual == FLAGS


def test_every_flag_has_a_help_text():
    assert [a.dest for parser in commands().values() for a in parser._actions if not a.help] == []


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train_me.py"
    path.write_text("print('training')\n")
    return path


def test_a_script_becomes_a_job_and_a_config_map_that_carries_it(script, capsys):
    flags = ["--dry-run", "--workers", "4", "--servers", "2", "--image", "sporax:1", "-n", "team"]
    assert cli.main(["k8s", "submit", *flags, str(script), "--epochs", "3"]) == 0
    config, body = yaml.safe_load_all(capsys.readouterr().out)
    assert config["data"] == {"train_me.py": "print('training')\n"}
    assert body["metadata"] == {"name": "train-me", "namespace": "team"}
    roles = body["spec"]["msReplicaSpecs"]
    assert {name: part["replicas"] for name, part in roles.items()} == {"Scheduler": 1, "PS": 2, "Worker": 4}
    container = roles["Worker"]["template"]["spec"]["containers"][0]
    assert container["command"] == ["sporax", "run", "/opt/sporax/script/train_me.py", "--epochs", "3"]
    assert read_job(body).name == "train-me"


def test_one_worker_needs_no_scheduler(script, tmp_path):
    file = tmp_path / "job.yaml"
    assert cli.main(["k8s", "submit", "--output", str(file), "--image", "i", str(script)]) == 0
    assert set(list(yaml.safe_load_all(file.read_text()))[1]["spec"]["msReplicaSpecs"]) == {"Worker"}


def test_a_job_file_is_sent_as_it_is(tmp_path, capsys):
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(job()))
    assert cli.main(["k8s", "submit", "--dry-run", str(file)]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == job()


@pytest.mark.parametrize(
    ("arguments", "body", "message"),
    [
        (["--workers", "3"], job(), "--workers belongs to a script's job"),
        ([], changed("spec/successPolicy", "Nope"), "spec.successPolicy"),
        ([], {"kind": "Pod"}, "must hold a job of kind MSJob"),
    ],
)
def test_what_cannot_run_is_refused_before_it_is_sent(arguments, body, message, tmp_path, capsys):
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(body))
    assert cli.main(["k8s", "submit", "--dry-run", *arguments, str(file)]) == 2
    assert message in capsys.readouterr().err


def test_a_script_needs_an_image_and_must_exist(script, capsys):
    assert cli.main(["k8s", "submit", "--dry-run", str(script)]) == 2
    assert "--image" in capsys.readouterr().err
    assert cli.main(["k8s", "submit", "--dry-run", "--image", "i", str(script.parent / "other.py")]) == 2
    assert "must be a file" in capsys.readouterr().err


def test_manifests_are_written(tmp_path):
    assert cli.main(["k8s", "manifests", "--output", str(tmp_path), "--image", "registry/op:2"]) == 0
    assert {path.name for path in tmp_path.iterdir()} == set(manifests.files())
    assert "registry/op:2" in (tmp_path / "3-operator.yaml").read_text()


def shown(renderable) -> str:
    console = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: SIM115 - closed with the process
    with console.file:
        console.print(renderable)
    return console.export_text()


def test_jobs_are_shown_with_state_shares_restarts_and_age():
    simulation = Simulation(job(servers=2))
    simulation.settle()
    simulation.end("job-ps-1", 137)
    simulation.settle()
    created = (simulation.now - timedelta(minutes=5)).isoformat()
    body = job(servers=2) | {"status": write_status(simulation.status)}
    body["metadata"] |= {"creationTimestamp": created}
    row = shown(view.job_table([body], simulation.now, with_namespace=False)).splitlines()[1].split()
    assert row[:7] == ["job", "Running", "1/1", "2/2", "2/2", "1", "5m"]
    page = shown(view.job_page(body, simulation.now))
    assert "MSJobRunning" in page
    assert "job-ps-1" in page


def test_a_job_that_nobody_has_seen_yet_is_pending():
    assert "Pending" in shown(view.job_table([job()], datetime.now(UTC), with_namespace=True))


@pytest.mark.parametrize(("seconds", "text"), [(3, "3s"), (90, "1m"), (7300, "2h"), (200000, "2d")])
def test_ages_have_one_unit(seconds, text):
    now = datetime.now(UTC)
    assert view.age((now - timedelta(seconds=seconds)).isoformat(), now) == text
