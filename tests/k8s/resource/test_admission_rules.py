"""The API server's rules refuse what the operator refuses, as far as rules across fields go, and nothing else."""

import copy

import pytest
from hypothesis import given, settings, strategies as st
from support_k8s.expressions import NO_CHECKER, checked_by_server, checker, refusals
from support_k8s.jobs import INVALID, job, named_by_rules, role

from sporax.k8s.resource.schema import custom_resource_definition
from sporax.k8s.resource.spec import InvalidSpecError, read_job

DEFINITION = custom_resource_definition(with_expressions=True)
SCHEMA = DEFINITION["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
# Those that types and bounds of the schema do not refuse already; of the others the rules may say anything.
BY_RULES = [
    "unknown role", "role twice", "no worker", "no worker wanted", "two schedulers", "servers without a scheduler",
    "gang larger than the job", "wrong container name", "no image", "limits without elasticity", "least above most",
    "a volume for workers", "a failure rule that is never applied", "name is no host name", "name too long",
]  # fmt: skip


@pytest.mark.parametrize("what", BY_RULES)
def test_what_no_type_or_bound_refuses_a_rule_does(what):
    body, field = next((body, field) for name, body, field in INVALID if name == what)
    broken = refusals(SCHEMA, copy.deepcopy(body))
    assert any(named_by_rules(field) in message for message in broken), broken


def test_a_rule_is_never_the_only_one_of_its_kind_to_speak_of_a_valid_job():
    elastic = job("e", servers=2, enableDynamicWorker=True, enableDynamicServer=True)
    elastic["spec"]["msReplicaSpecs"]["Worker"] |= {"minReplicas": 1, "maxReplicas": 9}
    elastic["spec"]["msReplicaSpecs"]["PS"]["persistentVolumeClaimTemplate"] = {"spec": {}}
    elastic["spec"]["runPolicy"] = {"schedulingPolicy": {"minAvailable": 900}}
    elastic["spec"]["failurePolicy"] = {"rules": [{"action": "Restart", "roles": ["PS"]}]}
    for body in (job(), elastic):
        assert read_job(body)
        assert refusals(SCHEMA, body) == []


NAMES = st.sampled_from(["Scheduler", "PS", "Worker", "worker", "ps", "SCHEDULER", "Helper"])
SIZES = st.integers(0, 3)


@st.composite
def roles(draw):
    part = role(draw(SIZES))
    for name in ("minReplicas", "maxReplicas"):
        if draw(st.integers(0, 3)) == 0:
            part[name] = draw(SIZES)
    if draw(st.integers(0, 2)) == 0:
        part["restartPolicy"] = draw(st.sampled_from(["Always", "OnFailure", "Never", "ExitCode"]))
    if draw(st.integers(0, 5)) == 0:
        part["persistentVolumeClaimTemplate"] = {"spec": {}}
    containers = part["template"]["spec"]["containers"]
    if draw(st.integers(0, 7)) == 0:
        containers.append({"name": draw(st.sampled_from(["mindspore", "sidecar"])), "image": "i"})
    if draw(st.integers(0, 15)) == 0:
        del containers[0]["image"]
    return part


@st.composite
def jobs(draw):
    body = job(draw(st.sampled_from(["job", "j", "a-b", "9", "A", "a.b", "n" * 50, "n" * 53, "n" * 54, "n" * 60])))
    body["spec"]["msReplicaSpecs"] = draw(st.dictionaries(NAMES, roles(), min_size=1, max_size=4))
    for switch in ("enableDynamicWorker", "enableDynamicServer"):
        if draw(st.booleans()):
            body["spec"][switch] = draw(st.booleans())
    if draw(st.booleans()):
        body["spec"]["runPolicy"] = {"schedulingPolicy": {"minAvailable": draw(st.integers(1, 8))}}
    if draw(st.integers(0, 2)) == 0:
        chosen = draw(st.lists(st.sampled_from(["Scheduler", "PS", "Worker"]), max_size=2))
        body["spec"]["failurePolicy"] = {"rules": [{"action": "Restart"} | ({"roles": chosen} if chosen else {})]}
    return body


@given(jobs())
def test_rules_and_operator_agree_on_every_job(body):
    try:
        read_job(body)
        is_refused = ""
    except InvalidSpecError as error:
        is_refused = str(error)
    broken = refusals(SCHEMA, copy.deepcopy(body))
    assert bool(broken) == bool(is_refused), (is_refused, broken)


with_a_server = pytest.mark.skipif(checker() is None, reason=NO_CHECKER)


@pytest.mark.cluster
@with_a_server
def test_a_new_api_server_takes_the_definition_and_refuses_with_our_words():
    said, answers = checked_by_server(DEFINITION, [copy.deepcopy(body) for _, body, _ in INVALID])
    assert said == []
    for (what, body, _), errors in zip(INVALID, answers, strict=True):
        assert errors, what
        if what in BY_RULES:
            assert any(message in error for error in errors for message in refusals(SCHEMA, copy.deepcopy(body))), what


@pytest.mark.cluster
@with_a_server
@settings(max_examples=5, deadline=None)
@given(st.lists(jobs(), min_size=40, max_size=40))
def test_a_new_api_server_and_the_operator_agree_on_every_job(bodies):
    _, answers = checked_by_server(DEFINITION, [copy.deepcopy(body) for body in bodies])
    for body, errors in zip(bodies, answers, strict=True):
        try:
            read_job(body)
            refused = ""
        except InvalidSpecError as error:
            refused = str(error)
        assert bool(errors) == bool(refused), (refused, errors)
