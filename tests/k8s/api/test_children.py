"""The objects that a job consists of."""

import os
import subprocess
import time

import pytest
from support_k8s.jobs import job, role

from sporax.k8s.api import children
from sporax.k8s.decide.observed import Gang
from sporax.k8s.resource import names
from sporax.k8s.resource.spec import PodRole, read_job

SIZES = {PodRole.SCHEDULER: 1, PodRole.SERVER: 2, PodRole.WORKER: 4}


PROGRESS = {"SPORAX_PROGRESS_HOST": {"fieldRef": {"fieldPath": "status.podIP"}}, "SPORAX_PROGRESS_PORT": "2281"}


def variables(body, kind=PodRole.WORKER, index=0):
    pod = children.pod(read_job(body), kind, index, SIZES, None)
    return {
        item["name"]: item.get("value", item.get("valueFrom")) for item in pod["spec"]["containers"][0].get("env", [])
    }


def test_a_process_learns_its_place_from_the_original_variables():
    assert variables(job(servers=2)) == {
        "MS_ROLE": "MS_WORKER",
        "MS_SCHED_HOST": "job-scheduler-0.job.default.svc",
        "MS_SCHED_PORT": "2222",
        "MS_SERVER_NUM": "2",
        "MS_WORKER_NUM": "4",
        "MS_NODE_ID": {"fieldRef": {"fieldPath": "metadata.name"}},
        "RANK_ID": "0",
        "MS_PS_INSECURE": "1",
        **PROGRESS,
    }
    assert variables(job(servers=2), PodRole.SERVER)["MS_ROLE"] == "MS_PSERVER"
    assert variables(job(servers=2), PodRole.SERVER, 1)["MS_PS_INDEX"] == "1"


def test_the_scheduler_listens_on_its_own_address():
    actual = variables(job(), PodRole.SCHEDULER)
    assert actual["MS_ROLE"] == "MS_SCHED"
    assert actual["MS_SCHED_HOST"] == {"fieldRef": {"fieldPath": "status.podIP"}}


def test_one_worker_on_its_own_gets_no_place_in_a_job():
    assert variables(job(workers=1, scheduler=False)) == PROGRESS


def test_worker_0_alone_is_queried_for_its_progress_and_not_where_the_job_has_keys():
    def progress_variables(body, kind, index):
        return {name for name in variables(body, kind, index) if name.startswith("SPORAX_PROGRESS")}

    assert progress_variables(job(), PodRole.WORKER, 0) == set(PROGRESS)
    assert progress_variables(job(), PodRole.WORKER, 1) == progress_variables(job(), PodRole.SCHEDULER, 0) == set()
    for kind in ("curve", "token"):
        keys = {kind: {"secretRef": {"name": "keys"}}}
        assert progress_variables(job(securityPolicy=keys), PodRole.WORKER, 0) == set()
    body = job()
    container = body["spec"]["msReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "SPORAX_PROGRESS_PORT", "value": "0"}]
    assert variables(body)["SPORAX_PROGRESS_PORT"] == "0"
    assert "SPORAX_PROGRESS_HOST" not in variables(body)


def test_a_place_that_the_user_set_is_replaced_and_other_variables_are_kept():
    body = job()
    container = body["spec"]["msReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "MS_WORKER_NUM", "value": "7"}, {"name": "GLOG_v", "value": "1"}]
    actual = variables(body)
    assert (actual["MS_WORKER_NUM"], actual["GLOG_v"]) == ("4", "1")


def test_a_variable_without_a_name_is_left_where_it_is_for_the_api_server_to_refuse():
    body = job(workers=1, scheduler=False)
    container = body["spec"]["msReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    container["env"] = [{"value": "x"}]
    made = children.pod(read_job(body), PodRole.WORKER, 0, {PodRole.WORKER: 1}, None)
    assert made["spec"]["containers"][0]["env"][0] == {"value": "x"}


RECOVERY = {"MS_ENABLE_RECOVERY": "1", "SPORAX_JOB_ID": "uid-job"}


def recovery(body, kind=PodRole.WORKER):
    return {name: value for name, value in variables(body, kind).items() if name in RECOVERY}


@pytest.mark.parametrize("policy", ["ExitCode", "OnFailure", "Always"])
def test_workers_that_are_started_again_go_on_from_what_their_job_has_saved(policy):
    body = job()
    body["spec"]["msReplicaSpecs"]["Worker"]["restartPolicy"] = policy
    assert recovery(body) == recovery(body, PodRole.SCHEDULER) == RECOVERY


@pytest.mark.parametrize(
    "spec",
    [
        {"runPolicy": {"maxRestarts": 1}},
        {"failurePolicy": {"rules": [{"action": "Restart", "roles": ["Worker"], "exitCodes": [7]}]}},
    ],
)
def test_so_they_do_where_a_rule_or_the_whole_jobs_restart_says_so(spec):
    assert recovery(job(**spec)) == recovery(job(workers=1, scheduler=False, **spec)) == RECOVERY


def test_workers_that_end_for_good_recover_nothing():
    rules = {"rules": [{"action": "Restart", "roles": ["Scheduler"]}, {"action": "FailJob"}]}
    assert recovery(job()) == recovery(job(failurePolicy=rules)) == {}


def test_servers_keep_the_state_of_their_workers():
    assert recovery(job(servers=1, runPolicy={"maxRestarts": 1})) == {}


def test_recovery_that_the_user_sets_is_as_it_was_and_within_the_job():
    body = job(servers=1)
    container = body["spec"]["msReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "MS_ENABLE_RECOVERY", "value": "1"}]
    assert recovery(body) == RECOVERY
    container["env"] = [{"name": "MS_ENABLE_RECOVERY", "value": "0"}]
    assert recovery(body)["MS_ENABLE_RECOVERY"] == "0"


def test_a_pod_has_a_fixed_name_labels_a_host_name_and_an_owner():
    pod = children.pod(read_job(job()), PodRole.WORKER, 3, SIZES, None)
    assert pod["metadata"]["name"] == pod["spec"]["hostname"] == "job-worker-3"
    assert pod["spec"]["subdomain"] == "job"
    assert pod["metadata"]["labels"] == names.job_selector("job", "Worker") | {names.LABEL_INDEX: "3"}
    owner = pod["metadata"]["ownerReferences"][0]
    assert (owner["uid"], owner["controller"], owner["blockOwnerDeletion"]) == ("uid-job", True, True)
    assert pod["spec"]["containers"][0]["ports"] == [{"name": "msjob-port", "containerPort": 2222}]


def test_the_users_template_is_kept_and_never_changed():
    body = job()
    template = body["spec"]["msReplicaSpecs"]["Worker"]["template"]
    template["metadata"] = {"labels": {"team": "vision"}, "annotations": {"note": "x"}}
    template["spec"]["nodeSelector"] = {"gpu": "yes"}
    parsed = read_job(body)
    pod = children.pod(parsed, PodRole.WORKER, 0, SIZES, None)
    assert pod["metadata"]["labels"]["team"] == "vision"
    assert pod["metadata"]["annotations"] == {"note": "x"}
    assert pod["spec"]["nodeSelector"] == {"gpu": "yes"}
    assert "restartPolicy" not in template["spec"]


def test_exit_codes_are_looked_at_by_the_operator_so_the_kubelet_restarts_nothing():
    for policy, report in (("ExitCode", "Never"), ("OnFailure", "OnFailure"), ("Never", "Never"), ("Always", "Always")):
        body = job()
        body["spec"]["msReplicaSpecs"]["Worker"]["restartPolicy"] = policy
        assert children.pod(read_job(body), PodRole.WORKER, 0, SIZES, None)["spec"]["restartPolicy"] == report


def test_servers_may_have_volumes_of_their_own():
    body = job(servers=2)
    claim = {"spec": {"resources": {"requests": {"storage": "1Gi"}}}, "mountPath": "/state"}
    body["spec"]["msReplicaSpecs"]["PS"]["persistentVolumeClaimTemplate"] = claim
    parsed = read_job(body)
    assert children.volume_claim(parsed, PodRole.SERVER, 1)["metadata"]["name"] == "job-ps-1"
    assert children.volume_claim(parsed, PodRole.WORKER, 1) is None
    pod = children.pod(parsed, PodRole.SERVER, 1, SIZES, None)
    assert pod["spec"]["volumes"][0]["persistentVolumeClaim"] == {"claimName": "job-ps-1"}
    assert pod["spec"]["containers"][0]["volumeMounts"][0]["mountPath"] == "/state"


def test_gangs_are_written_as_their_scheduler_wants_them():
    policy = {"minAvailable": 2, "queue": "q", "priorityClass": "high", "minResources": {"cpu": "4"}}
    parsed = read_job(job(runPolicy={"schedulingPolicy": policy}))
    volcano = children.pod_group(parsed, Gang.VOLCANO, 2)
    assert volcano["apiVersion"] == "scheduling.volcano.sh/v1beta1"
    assert volcano["spec"] == {"minMember": 2, "minResources": {"cpu": "4"}, "queue": "q", "priorityClassName": "high"}
    pod = children.pod(parsed, PodRole.WORKER, 0, SIZES, Gang.VOLCANO)
    assert pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "job"
    assert (pod["spec"]["schedulerName"], pod["spec"]["priorityClassName"]) == ("volcano", "high")
    other = children.pod(parsed, PodRole.WORKER, 0, SIZES, Gang.COSCHEDULING)
    assert other["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == "job"


def test_the_job_may_be_closed_to_others_and_its_secret_given_to_its_processes():
    policy = {"curve": {"secretRef": {"name": "keys"}}, "networkPolicy": True}
    parsed = read_job(job(servers=1, securityPolicy=policy))
    assert [item["kind"] for item in children.shared(parsed, "policy/v1")] == [
        "Service",
        "PodDisruptionBudget",
        "NetworkPolicy",
    ]
    pod = children.pod(parsed, PodRole.WORKER, 0, SIZES, None)
    assert pod["spec"]["volumes"][0]["secret"]["secretName"] == "keys"
    assert {"name": "MS_PS_KEYS", "value": "/etc/sporax/keys"} in pod["spec"]["containers"][0]["env"]


def test_a_token_reaches_every_process_without_the_operator_reading_it():
    body = job(servers=1, securityPolicy={"token": {"secretRef": {"name": "mine"}}})
    for kind in PodRole:
        actual = variables(body, kind)
        assert actual["SPORAX_TOKEN"] == {"secretKeyRef": {"name": "mine", "key": "token"}}
        assert not {"MS_PS_INSECURE", "MS_PS_KEYS"} & set(actual)


def test_every_pod_has_a_name_in_the_dns_before_it_is_ready():
    spec = children.service(read_job(job()))["spec"]
    assert (spec["clusterIP"], spec["publishNotReadyAddresses"]) == ("None", True)
    assert role(1)["replicas"] == 1


def test_a_server_is_ready_while_it_touches_its_file_and_a_probe_of_the_user_wins():
    body = job(servers=1)
    container = children.pod(read_job(body), PodRole.SERVER, 0, SIZES, None)["spec"]["containers"][0]
    script = container["readinessProbe"]["exec"]["command"][2]
    assert variables(body, PodRole.SERVER)["SPORAX_SERVING_FILE"] in script
    assert "readinessProbe" not in children.pod(read_job(body), PodRole.WORKER, 0, SIZES, None)["spec"]["containers"][0]
    theirs = {"tcpSocket": {"port": 1}}
    body["spec"]["msReplicaSpecs"]["PS"]["template"]["spec"]["containers"][0]["readinessProbe"] = theirs
    container = children.pod(read_job(body), PodRole.SERVER, 0, SIZES, None)["spec"]["containers"][0]
    assert container["readinessProbe"] == theirs
    assert "SPORAX_SERVING_FILE" not in variables(body, PodRole.SERVER)


def test_the_probe_of_a_server_holds_while_the_file_is_fresh(tmp_path):
    command = children.pod(read_job(job(servers=1)), PodRole.SERVER, 0, SIZES, None)["spec"]["containers"][0]
    script = command["readinessProbe"]["exec"]["command"][2].replace("/var/run/sporax", str(tmp_path))
    probe = lambda: subprocess.run(["sh", "-c", script], capture_output=True).returncode
    assert probe() != 0
    (tmp_path / "serving").touch()
    assert probe() == 0
    os.utime(tmp_path / "serving", (time.time() - 60, time.time() - 60))
    assert probe() != 0
