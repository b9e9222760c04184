"""What is read of a pod, as kubelets and node controllers write it."""

import pytest

from sporax.k8s.decide.observed import read_pod
from sporax.k8s.resource import names


def pod(**status):
    labels = names.job_selector("job", "Worker") | {names.LABEL_INDEX: "0"}
    body = {"metadata": {"name": "job-worker-0", "uid": "u", "labels": labels}, "spec": {"nodeName": "n"}}
    return read_pod(body | {"status": status})


def container(name: str, code: int | None = None, restarts: int = 0):
    state = (
        {"running": {}}
        if code is None
        else {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed"}}
    )
    return {"name": name, "restartCount": restarts, "state": state}


def conditions(**values: str):
    return [{"type": name, "status": value} for name, value in values.items()]


def test_a_container_that_prepares_the_pod_and_fails_is_no_lost_node():
    waiting = {"name": "mindspore", "restartCount": 0, "state": {"waiting": {"reason": "PodInitializing"}}}
    actual = pod(phase="Failed", initContainerStatuses=[container("setup", 3)], containerStatuses=[waiting])
    assert (actual.failed_container, actual.exit_code, actual.reason) == ("setup", 3, "Error")
    assert not actual.is_lost


def test_a_sidecar_that_fails_is_named_and_a_trainer_that_fails_comes_first():
    both = [container("mindspore", 0), container("logger", 9)]
    actual = pod(phase="Failed", containerStatuses=both)
    assert (actual.failed_container, actual.exit_code) == ("logger", 9)
    actual = pod(phase="Failed", containerStatuses=[container("logger", 9), container("mindspore", 5)])
    assert (actual.failed_container, actual.exit_code) == ("", 5)
    assert pod(phase="Running", containerStatuses=[container("logger", 9), container("mindspore")]).exit_code is None


def test_restarts_of_containers_that_prepare_the_pod_count():
    trainer = container("mindspore", restarts=2)
    assert (
        pod(phase="Running", initContainerStatuses=[container("setup", 0, 3)], containerStatuses=[trainer]).restarts
        == 5
    )


@pytest.mark.parametrize(
    ("status", "is_unreachable"),
    [
        ({"phase": "Running", "conditions": conditions(Ready="True", ContainersReady="True")}, False),
        ({"phase": "Running", "conditions": conditions(Ready="False", ContainersReady="False")}, False),
        ({"phase": "Running", "conditions": conditions(Ready="False", ContainersReady="True")}, True),
        ({"phase": "Unknown", "reason": "NodeLost"}, True),
        ({"phase": "Failed", "reason": "NodeLost"}, False),
    ],
)
def test_a_node_that_does_not_answer_is_seen_by_what_its_controller_writes(status, is_unreachable):
    assert pod(**status).is_unreachable == is_unreachable


@pytest.mark.parametrize(
    ("status", "waits_for"),
    [
        (
            {"containerStatuses": [{"name": "mindspore", "state": {"waiting": {"reason": "ErrImagePull"}}}]},
            "mindspore: ErrImagePull",
        ),
        ({"containerStatuses": [{"name": "mindspore", "state": {"waiting": {"reason": "ContainerCreating"}}}]}, ""),
        (
            {
                "conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
                ]
            },
            "Unschedulable, 0/3 nodes",
        ),
        ({"conditions": [{"type": "PodScheduled", "status": "True"}]}, ""),
    ],
)
def test_what_a_pod_waits_for_is_seen_unless_it_is_a_usual_start(status, waits_for):
    assert pod(phase="Pending", **status).waits_for == waits_for
