"""What is read from a job, and what is refused."""

import pytest
from support_k8s.jobs import INVALID, changed, job, role

from sporax.k8s.resource import names
from sporax.k8s.resource.spec import (
    CleanPodPolicy,
    InvalidSpecError,
    PodRole,
    RestartPolicy,
    SuccessPolicy,
    managed_elsewhere,
    read_job,
    scheduler_port,
)


def test_the_original_fields_have_the_original_defaults():
    body = job(servers=1)
    for part in body["spec"]["msReplicaSpecs"].values():
        del part["replicas"]
    spec = read_job(body).spec
    assert [spec.replicas(item) for item in PodRole] == [1, 1, 1]
    assert {spec.replica_spec(item).restart_policy for item in PodRole} == {RestartPolicy.NEVER}
    assert spec.success_policy is SuccessPolicy.DEFAULT
    assert spec.run_policy.clean_pod_policy is CleanPodPolicy.RUNNING
    assert spec.run_policy.backoff_limit is None
    assert not spec.enable_dynamic_worker
    assert scheduler_port(spec) == names.DEFAULT_PORT == 2222


def test_role_names_may_be_written_in_any_case():
    body = job()
    roles = body["spec"]["msReplicaSpecs"]
    body["spec"]["msReplicaSpecs"] = {"worker": roles["Worker"], "SCHEDULER": roles["Scheduler"], "ps": role(3)}
    spec = read_job(body).spec
    assert [spec.replicas(item) for item in PodRole] == [1, 3, 2]


def test_fields_left_empty_in_yaml_take_their_defaults():
    body = job(runPolicy=None, successPolicy=None)
    body["spec"]["msReplicaSpecs"]["Worker"]["restartPolicy"] = None
    assert read_job(body).spec.replica_spec(PodRole.WORKER).restart_policy is RestartPolicy.NEVER


def test_the_scheduler_listens_where_its_port_of_that_name_says():
    body = job()
    container = body["spec"]["msReplicaSpecs"]["Scheduler"]["template"]["spec"]["containers"][0]
    container["ports"] = [{"name": "other", "containerPort": 80}, {"name": "msjob-port", "containerPort": 3333}]
    assert scheduler_port(read_job(body).spec) == 3333


@pytest.mark.parametrize(("body", "field"), [case[1:] for case in INVALID], ids=[case[0] for case in INVALID])
def test_a_spec_that_cannot_run_is_refused_and_the_field_named(body, field):
    with pytest.raises(InvalidSpecError) as refusal:
        read_job(body)
    assert field in str(refusal.value).split(": ")[0]


def test_a_field_that_does_not_exist_is_refused():
    with pytest.raises(InvalidSpecError, match="spec.runPolicy.deadline: there is no such field"):
        read_job(job(runPolicy={"deadline": 3}))


@pytest.mark.parametrize(
    ("path", "value"),
    [("spec/containers/0/env", "A=1"), ("spec/containers/0/volumeMounts", ["data"]), ("spec/volumes", {"data": {}})],
)
def test_what_the_operator_adds_to_must_be_a_list_of_tables(path, value):
    body = changed(f"spec/msReplicaSpecs/Worker/template/{path}", value)
    with pytest.raises(InvalidSpecError, match=f"{path.rpartition('/')[2]}: must be a list of tables, but is"):
        read_job(body)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("Worker/template/metadata/labels", ["team"]),
        ("Worker/template/metadata/annotations", "a"),
        ("Worker/template/metadata", [1]),
        ("PS/persistentVolumeClaimTemplate", {"spec": {}, "metadata": {"labels": ["team"]}}),
    ],
)
def test_labels_and_annotations_are_tables(path, value):
    with pytest.raises(InvalidSpecError, match="etadata[.a-z]*: must be a table of names and values, but is"):
        read_job(changed(f"spec/msReplicaSpecs/{path}", value))


def test_the_last_port_leaves_none_for_the_scheduler_of_servers():
    ports = (
        "spec/msReplicaSpecs/Scheduler/template/spec/containers/0/ports",
        [{"name": "msjob-port", "containerPort": 65535}],
    )
    with pytest.raises(InvalidSpecError, match="Scheduler: the port 'msjob-port' must be less than 65535"):
        read_job(changed(*ports))
    alone = changed(*ports)
    del alone["spec"]["msReplicaSpecs"]["PS"]
    assert scheduler_port(read_job(alone).spec) == 65535


def test_thirty_kinds_of_wrong_specs_are_listed():
    assert len({name for name, *_ in INVALID}) >= 30


def test_jobs_of_another_controller_are_recognised():
    assert not managed_elsewhere(job())
    assert not managed_elsewhere(job(runPolicy={"managedBy": names.OPERATOR_NAME}))
    assert managed_elsewhere(job(runPolicy={"managedBy": "kueue.x-k8s.io/multikueue"}))
