"""`sporax k8s`: what is submitted, shown and written."""

import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
import yaml
from rich.console import Console
from support_k8s.invalid import MISSPELLED, PAGE, SPECS, rows_of
from support_k8s.jobs import changed, job
from support_k8s.simulation import Simulation

from sporax.k8s import k8s_command, view
from sporax.k8s.api import manifests
from sporax.k8s.resource.job_status import write_status
from sporax.k8s.resource.spec import read_job
from sporax.launch import cli

FLAGS = {
    "submit": {
        "name": "", "workers": None, "servers": None, "image": "", "replace": False, "follow": False, "dry_run": False, "output": "", "namespace": "",
        "target": None, "target_arguments": None,
    },
    "status": {"name": None, "all_namespaces": False, "namespace": ""},
    "logs": {"name": None, "role": "worker", "index": 0, "follow": False, "tail": None, "namespace": ""},
    "delete": {"name": None, "namespace": ""},
    "manifests": {"output": "deploy", "image": "sporax-operator:latest", "expressions": True, "replicas": 1, "namespaces": [], "packages": False},
    "operator": {"namespaces": [], "lease": "", "metrics_port": 8080, "liveness_port": 8081, "verbose": False},
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


@pytest.mark.sampled(1)
@pytest.mark.parametrize("missing", ["httpx2", "kopf", "lightkube", "yaml"])
def test_without_the_packages_of_the_extra_each_command_is_one_line(missing):
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from sporax.launch import cli\n"
        "print(*[cli.main(['k8s', *words.split()]) for words in ('manifests', 'submit --dry-run --image a b.py')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    line = f"sporax k8s: For 'sporax k8s', the package '{missing}' must be installed: pip install 'sporax[k8s]'.\n"
    assert (done.stdout, done.stderr) == ("2 2\n", 2 * line)


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


def test_flags_may_come_after_the_script_and_what_follows_two_dashes_is_the_scripts(script, capsys):
    after = ["--workers", "4", "--epochs", "3", "--image", "i", "--", "--workers", "9"]
    assert cli.main(["k8s", "submit", "--dry-run", "--name", "mine", str(script), *after]) == 0
    _, body = yaml.safe_load_all(capsys.readouterr().out)
    workers = body["spec"]["msReplicaSpecs"]["Worker"]
    container = workers["template"]["spec"]["containers"][0]
    assert (body["metadata"]["name"], workers["replicas"], container["image"]) == ("mine", 4, "i")
    assert container["command"][3:] == ["--epochs", "3", "--workers", "9"]


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


def pod_with(**status):
    return {"metadata": {"name": "job-worker-0"}, "spec": {"nodeName": "n7"}, "status": status}


@pytest.mark.parametrize(
    ("pod", "row"),
    [
        (
            pod_with(
                phase="Pending",
                conditions=[
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": "0/3 nodes\nhave GPUs",
                    }
                ],
            ),
            ["Pending", "no", "-", "0", "n7", "Unschedulable, 0/3 nodes have GPUs"],
        ),
        (
            pod_with(
                phase="Pending",
                containerStatuses=[
                    {
                        "name": "mindspore",
                        "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}},
                    }
                ],
            ),
            ["Pending", "no", "-", "0", "n7", "mindspore: ImagePullBackOff, no such image"],
        ),
        (
            pod_with(
                phase="Failed",
                initContainerStatuses=[{"name": "fetch", "state": {"terminated": {"exitCode": 7, "reason": "Error"}}}],
            ),
            ["Failed", "no", "-", "0", "n7", "fetch: exit code 7, Error"],
        ),
        (pod_with(phase="Failed", reason="Evicted", message="disk"), ["Failed", "no", "-", "0", "n7", "Evicted, disk"]),
        (
            pod_with(phase="Running", conditions=[{"type": "Ready", "status": "True"}]),
            ["Running", "yes", "-", "0", "n7"],
        ),
    ],
)
def test_one_jobs_page_shows_what_its_pods_wait_for(pod, row):
    lines = shown(view.job_page(job(), datetime.now(UTC), [pod])).splitlines()
    (line,) = [line for line in lines if line.startswith("job-worker-0")]
    assert re.split(r"\s{2,}", line.strip())[1:] == row


class UsersCluster:
    """The calls of `submit` and `delete`, and what they find."""

    def __init__(self, state: str, spec: dict | None = None) -> None:
        self.calls: list[str] = []
        self.conditions = [{"type": state, "status": "True"}] if state else []
        self.body = {**job("train-me"), "status": {"conditions": self.conditions}} if state else None
        if spec:
            self.body["spec"]["msReplicaSpecs"] |= spec

    def __call__(self, namespace):
        return self

    def job(self, name):
        return self.body

    def find_job(self, name, namespace=""):
        return self.body

    def remove(self, objects):
        self.calls += [f"remove {item['kind']}" for item in objects]
        self.body = None

    def apply(self, item):
        self.calls.append(f"apply {item['kind']}")
        return ""

    def own_config_maps(self, objects, body):
        self.calls.append("own")

    def delete(self, name):
        self.calls.append("delete")


SENT = ["apply ConfigMap", "apply MSJob", "own"]


@pytest.mark.parametrize(
    ("state", "flags", "calls"),
    [
        ("Succeeded", [], []),
        ("Failed", [], []),
        ("Running", [], SENT),
        ("", [], SENT),
        ("Succeeded", ["--replace"], ["remove ConfigMap", "remove MSJob", *SENT]),
    ],
)
def test_a_job_that_has_ended_is_replaced_only_on_request(state, flags, calls, script, monkeypatch, capsys):
    cluster = UsersCluster(state)
    monkeypatch.setattr(k8s_command, "JobClient", cluster)
    code = cli.main(["k8s", "submit", str(script), "--image", "i", *flags])
    assert cluster.calls == calls
    error = capsys.readouterr().err
    assert (code, "--replace" in error, f"has ended ({state})" in error) == (
        (0, False, False) if calls else (2, True, True)
    )


@pytest.mark.parametrize("claim", [{}, {"persistentVolumeClaimTemplate": {"spec": {}}}])
def test_a_deletion_says_that_the_servers_volumes_go_with_it(claim, monkeypatch, capsys):
    monkeypatch.setattr(k8s_command, "JobClient", UsersCluster("Running", {"PS": {"replicas": 1, **claim}}))
    assert cli.main(["k8s", "delete", "train-me"]) == 0
    assert ("volumes of its servers" in capsys.readouterr().out) == bool(claim)


def test_a_job_that_nobody_has_seen_yet_is_pending():
    assert "Pending" in shown(view.job_table([job()], datetime.now(UTC), with_namespace=True))


@pytest.mark.parametrize(("seconds", "text"), [(3, "3s"), (90, "1m"), (7300, "2h"), (200000, "2d")])
def test_ages_have_one_unit(seconds, text):
    now = datetime.now(UTC)
    assert view.age((now - timedelta(seconds=seconds)).isoformat(), now) == text


def test_the_page_of_invalid_specs_has_each_of_them():
    stated = [[row.what for row in rows_of(PAGE.read_text(), has_rules)] for has_rules in (False, True)]
    assert stated == [[what for what, _ in SPECS], [what for what, _ in [*SPECS, *MISSPELLED]]]
    assert len(SPECS) >= 60
