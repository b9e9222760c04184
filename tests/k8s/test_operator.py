"""The operator against an API server that fails: conflicts, expired and cut watches, throttling, errors, lost notices."""

import asyncio
import copy
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from support_k8s.fake_api import FakeApi
from support_k8s.jobs import changed, job
from support_k8s.playground import Playground, point_at

from sporax.k8s import operator
from sporax.k8s.operator import OperatorOptions, serve

Story = Callable[[FakeApi, Playground], Awaitable[None]]


@pytest.fixture
def play(tmp_path, monkeypatch):
    """Run a story in a fake cluster with an operator."""
    monkeypatch.setattr(operator, "_FIRST_RETRY_SECONDS", 0.02)

    async def run(story: Story, resync_seconds: float, is_stopped: bool) -> None:
        async with FakeApi() as api:
            point_at(api, tmp_path, monkeypatch)
            stop, ready, playground = asyncio.Event(), asyncio.Event(), Playground(api)
            options = OperatorOptions(resync_seconds=resync_seconds)
            serving = asyncio.create_task(serve(options, metrics=playground.metrics, stop=stop, ready=ready))
            kubelet = asyncio.create_task(playground.play_kubelet())
            await ready.wait()
            try:
                await story(api, playground)
            finally:
                kubelet.cancel()
                if is_stopped:  # kopf gives tasks that are left, the fake server's among them, five seconds to end
                    stop.set()
                    await asyncio.wait_for(serving, 20)
                else:
                    serving.cancel()
                    with suppress(asyncio.CancelledError):
                        await asyncio.wait_for(serving, 20)

    return lambda story, resync_seconds=60.0, is_stopped=False: asyncio.run(run(story, resync_seconds, is_stopped))


def test_a_job_runs_and_succeeds(play):
    async def story(api, playground):
        api.put("msjobs", job(servers=1))
        await playground.until(playground.is_in("Running"))
        assert api.names("pods") == ["job-ps-0", "job-scheduler-0", "job-worker-0", "job-worker-1"]
        assert api.get("msjobs", "job")["status"]["restarts"] == 0
        assert api.names("services") == ["job"]
        assert api.names("poddisruptionbudgets") == ["job-ps"]
        playground.end("job-worker-0", 0)
        await playground.until(lambda: api.names("pods") == ["job-worker-0"])
        assert playground.status().is_true("Succeeded")

    play(story, is_stopped=True)


def test_an_invalid_job_fails_with_the_field_in_a_condition(play):
    async def story(api, playground):
        api.put("msjobs", changed("spec/msReplicaSpecs/Worker/restartPolicy", "Sometimes"))
        await playground.until(playground.is_in("Failed"))
        assert "spec.msReplicaSpecs.Worker.restartPolicy" in playground.status().condition("Failed").message
        assert api.names("pods") == []

    play(story)


def test_a_job_of_another_controller_is_left_alone(play):
    async def story(api, playground):
        api.put("msjobs", job("other", runPolicy={"managedBy": "somebody.else/controller"}))
        api.put("msjobs", job())
        await playground.until(playground.is_in("Running"))
        assert "status" not in api.get("msjobs", "other")

    play(story)


@pytest.mark.parametrize(
    ("place", "code"),
    [
        (("PATCH", "msjobs"), 409),
        (("PATCH", "msjobs"), 500),
        (("POST", "pods"), 429),
        (("POST", "events"), 500),
        (("GET", "pods"), 500),
        (("GET", "msjobs"), 429),
    ],
)
def test_calls_that_fail_are_made_again(play, place, code):
    async def story(api, playground):
        api.faults.answers[place] = [code] * 2
        api.put("msjobs", job())
        await playground.until(playground.is_in("Running"))
        assert api.names("pods") == ["job-scheduler-0", "job-worker-0", "job-worker-1"]

    play(story, resync_seconds=1.0)


def test_a_status_that_somebody_else_changed_is_planned_afresh(play):
    async def story(api, playground):
        api.put("msjobs", job())
        for number in range(30):  # edits while the operator works
            body = api.get("msjobs", "job")
            body["metadata"].setdefault("annotations", {})["edit"] = str(number)
            api.put("msjobs", body)
            await asyncio.sleep(0.01)
        await playground.until(playground.is_in("Running"))
        assert playground.status().restarts == 0

    play(story)


def test_expired_and_closed_watches_are_opened_again(play):
    async def story(api, playground):
        api.put("msjobs", job())
        await playground.until(playground.is_in("Running"))
        for number in range(4):
            api.faults.expire_watches = number % 2 == 0
            api.cut_watches()
            api.put("msjobs", job(f"job-{number}"))
            await playground.until(playground.is_in("Running", f"job-{number}"))
        assert api.calls["GET", "pods"] > 4  # each watch was opened again
        assert len(api.names("pods")) == 5 * 3
        assert playground.status().restarts == 0

    play(story)


def test_notices_that_come_late_do_no_harm(play):
    async def story(api, playground):
        api.faults.watch_delay = 0.1
        api.put("msjobs", job(servers=2))
        await playground.until(playground.is_in("Running"))
        assert playground.status().restarts == 0
        assert len(api.names("pods")) == 5

    play(story)


def test_a_deletion_that_no_watch_reported_is_noticed_by_the_regular_look(play):
    async def story(api, playground):
        api.put("msjobs", job())
        await playground.until(playground.is_in("Running"))
        api.remove("pods", "job-worker-1", silently=True)
        await playground.until(lambda: "job-worker-1" in api.names("pods"))
        assert playground.status().restarts == 1
        api.remove("msjobs", "job", silently=True)
        state = {"state": "Running"}
        await playground.until(lambda: playground.metrics.registry.get_sample_value("sporax_operator_jobs", state) == 0)

    play(story, resync_seconds=0.3)


def test_a_server_is_replaced_and_counted_once_while_deleting_it_fails(play):
    async def story(api, playground):
        api.put("msjobs", job(servers=2))
        await playground.until(playground.is_in("Running"))
        old = api.get("pods", "job-ps-1")["metadata"]["uid"]
        api.faults.answers["DELETE", "pods"] = [500, 429, 500]
        playground.end("job-ps-1", 137)
        await playground.until(
            lambda: (api.get("pods", "job-ps-1") or {"metadata": {"uid": old}})["metadata"]["uid"] != old
        )
        await playground.until(lambda: not playground.status().is_true("Restarting"))
        assert (playground.status().restarts, playground.status().failures) == (1, 1)

    play(story)


def test_a_look_lists_nothing_however_many_jobs_there_are(play):
    """The API server walks over all pods to list those of one job; the operator's cache has them by job."""

    async def story(api, playground):
        for number in range(20):
            api.put("msjobs", job(f"job-{number}"))
        await playground.until(lambda: all(playground.is_in("Running", f"job-{number}")() for number in range(20)))
        looks = playground.metrics.registry.get_sample_value("sporax_operator_reconcile_seconds_count")
        assert looks >= 60
        assert api.calls["GET", "pods"] <= 3  # kopf's first list and watch
        assert api.calls["GET", "msjobs"] <= 20  # the same, and one after each conflict

    play(story)


def test_a_job_costs_few_calls_and_no_object_is_created_twice(play):
    async def story(api, playground):
        api.put("msjobs", job("first"))
        await playground.until(playground.is_in("Running", "first"))
        api.calls.clear()
        for number in range(20):
            api.put("msjobs", job(f"job-{number}"))
        await playground.until(lambda: all(playground.is_in("Running", f"job-{number}")() for number in range(20)), 60)
        # 3 pods, 1 dry run, 1 service, 2 events, the status when it is created and when it runs, and counts once a second.
        assert api.calls["POST", "pods"] == 20 * (3 + 1)
        assert api.calls["POST", "services"] == 20
        writes = sum(count for (method, _), count in api.calls.items() if method != "GET")
        assert writes <= 20 * 12

    play(story)


def test_the_budget_of_servers_is_made_once_and_changed_once(play):
    async def story(api, playground):
        api.put("msjobs", job("first"))
        await playground.until(playground.is_in("Running", "first"))
        api.calls.clear()
        api.put("msjobs", job(servers=2))
        await playground.until(playground.is_in("Running"), 60)
        await playground.until(lambda: api.get("poddisruptionbudgets", "job-ps")["spec"]["maxUnavailable"] == 1)
        budgets = {method: count for (method, plural), count in api.calls.items() if plural == "poddisruptionbudgets"}
        assert budgets == {"POST": 1, "PATCH": 1}

    play(story)


def test_counts_are_written_soon_although_not_at_once(play):
    async def story(api, playground):
        api.put("msjobs", job("job", workers=3))
        await playground.until(playground.is_in("Running"))
        playground.end("job-worker-2", 0)
        await playground.until(lambda: playground.status().replica_statuses["Worker"].succeeded == 1)
        body = api.get("pods", "job-worker-1")
        body["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
        api.put("pods", body)
        await playground.until(lambda: playground.status().replica_statuses["Worker"].ready == 1, 5)

    play(story)


@pytest.mark.parametrize("wrong", ["Scheduler", "Worker", "PS"])
def test_the_template_of_each_role_is_sent_to_the_server(play, wrong):
    async def story(api, playground):
        body = job("job", servers=1)
        body["spec"]["msReplicaSpecs"][wrong]["template"]["spec"]["nodeName"] = "NO NAME"
        refusal = lambda plural, body: (422, "not a name") if body.get("spec", {}).get("nodeName") else None
        api.faults.refuse = refusal
        api.put("msjobs", body)
        await playground.until(playground.is_in("Failed"))
        assert f"spec.msReplicaSpecs.{wrong}.template" in playground.status().condition("Failed").message

    play(story)


def test_a_definition_that_is_deleted_and_applied_again_is_served_again(play, caplog):
    async def story(api, playground):
        api.put("msjobs", job("before"))
        await playground.until(playground.is_in("Running", "before"))
        with caplog.at_level("WARNING"):
            api.hide("msjobs")
            await playground.until(lambda: "apply deploy/1-crd.yaml" in caplog.text, 20)
            api.hidden.clear()
            api.put("msjobs", job("after"))
            await playground.until(playground.is_in("Running", "after"), 20)
        assert "Traceback" not in caplog.text
        assert [record for record in caplog.records if record.exc_info] == []
        assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []

    play(story)


def test_figures_report_what_the_operator_did(play):
    async def story(api, playground):
        api.faults.answers["POST", "services"] = [500]
        api.put("msjobs", job())
        await playground.until(playground.is_in("Running"))
        value = playground.metrics.registry.get_sample_value
        await playground.until(lambda: value("sporax_operator_jobs", {"state": "Running"}) == 1)
        assert value("sporax_operator_actions_total", {"action": "CreatePod"}) == 3
        assert value("sporax_operator_reconcile_errors_total") == 1
        assert value("sporax_operator_reconcile_seconds_count") >= 3

    play(story)


def owned_by(uid: str, name: str = "job") -> list[dict[str, Any]]:
    kind = {"apiVersion": "mindspore.gitee.com/v1", "kind": "MSJob", "controller": True}
    return [{"kind": "Team", "name": "x", "uid": "x"}, {**kind, "name": name, "uid": uid}]


@pytest.mark.full
@pytest.mark.parametrize("kind", ["pods", "services", "poddisruptionbudgets"])
def test_an_object_of_somebody_else_is_reported_and_never_used(play, kind):
    async def story(api, playground):
        name = {"pods": "job-scheduler-0", "services": "job", "poddisruptionbudgets": "job-ps"}[kind]
        theirs = api.put(kind, {"metadata": {"name": name}, "spec": {"theirs": True}})
        api.put("msjobs", job(servers=1))
        await playground.until(lambda: playground.status().condition("Admitted"))
        condition = playground.status().condition("Admitted")
        assert (condition.status, condition.reason) == ("False", "NameTaken")
        assert f"'{name}' is there already and does not belong to this job" in condition.message
        await asyncio.sleep(1.5)  # it is tried again
        actual = api.get(kind, name)
        assert (actual["spec"], actual["metadata"]["uid"]) == (theirs["spec"], theirs["metadata"]["uid"])
        events = [body for (plural, _, _), body in api.objects.items() if plural == "events"]
        assert [event["reason"] for event in events].count("NameTaken") == 1
        api.remove(kind, name)
        await playground.until(playground.is_in("Running"))
        assert playground.status().condition("Admitted").status == "True"

    play(story)


def test_what_an_earlier_job_of_the_name_has_left_is_waited_for_without_an_event(play):
    async def story(api, playground):
        api.put("services", {"metadata": {"name": "job", "ownerReferences": owned_by("uid-before")}})
        api.put("msjobs", job())
        await playground.until(lambda: playground.status().condition("Admitted"))
        assert playground.status().condition("Admitted").reason == "Leaving"
        api.remove("services", "job")
        await playground.until(playground.is_in("Running"))
        reasons = [body["reason"] for (plural, _, _), body in api.objects.items() if plural == "events"]
        assert "Leaving" not in reasons

    play(story)


def test_a_pod_that_the_api_server_never_takes_fails_the_job_with_its_words(play):
    async def story(api, playground):
        words = "Pod is invalid: spec.containers[0].resources: quantity '1 GB' is wrong"
        wrong = lambda body: "wrong" in str(body["spec"].get("nodeName"))
        api.faults.refuse = lambda plural, body: (422, words) if plural == "pods" and wrong(body) else None
        body = job()
        body["spec"]["msReplicaSpecs"]["Worker"]["template"]["spec"]["nodeName"] = "wrong"
        api.put("msjobs", body)
        await playground.until(playground.is_in("Failed"))
        condition = playground.status().condition("Failed")
        assert condition.reason == "InvalidSpec"
        assert condition.message.startswith("spec.msReplicaSpecs.Worker.template: ")
        assert words in condition.message
        assert api.names("pods") == []
        again = api.get("msjobs", "job")
        again["metadata"]["generation"] = 2
        again["spec"]["msReplicaSpecs"]["Worker"]["template"]["spec"]["nodeName"] = "right"
        api.put("msjobs", again)
        await playground.until(playground.is_in("Running"))

    play(story)


def test_a_running_job_that_is_edited_into_a_pod_that_is_not_taken_keeps_running_and_says_so(play):
    async def story(api, playground):
        api.faults.refuse = lambda plural, body: (
            (400, 'unknown field "spec.imagez"') if plural == "pods" and "imagez" in body["spec"] else None
        )
        api.put("msjobs", job())
        await playground.until(playground.is_in("Running"))
        body = api.get("msjobs", "job")
        body["metadata"]["generation"] = 2
        body["spec"]["msReplicaSpecs"]["Worker"]["template"]["spec"]["imagez"] = 1
        api.put("msjobs", body)
        await playground.until(lambda: playground.status().condition("SpecAccepted"))
        assert 'unknown field "spec.imagez"' in playground.status().condition("SpecAccepted").message
        assert playground.status().is_true("Running")

    play(story)


@pytest.mark.full
def test_a_job_without_room_says_so_once_and_starts_when_there_is_room(play):
    async def story(api, playground):
        room = [2]
        full = lambda: len(api.names("pods")) >= room[0]
        words = "exceeded quota: pods=1, limited: pods=2"
        api.faults.refuse = lambda plural, body: (403, words) if plural == "pods" and full() else None
        api.put("msjobs", job())
        await playground.until(lambda: playground.status().condition("Admitted"))
        condition = playground.status().condition("Admitted")
        assert (condition.status, condition.reason) == ("False", "Forbidden")
        assert words in condition.message
        await asyncio.sleep(1.5)
        reasons = [body["reason"] for (plural, _, _), body in api.objects.items() if plural == "events"]
        assert reasons.count("Forbidden") == 1
        room[0] = 3
        await playground.until(playground.is_in("Running"))

    play(story)


@pytest.mark.full
def test_late_watches_delete_no_later_job_and_no_later_pod_of_the_name(play):
    async def story(api, playground):
        api.put("msjobs", job(runPolicy={"ttlSecondsAfterFinished": 1}))
        await playground.until(playground.is_in("Running"))
        playground.end("job-worker-0", 0)
        await playground.until(playground.is_in("Succeeded"))
        api.faults.watch_delay = 3600.0  # what follows is not reported
        api.remove("msjobs", "job")
        later = job()
        later["metadata"]["uid"] = "uid-of-the-later-job"
        api.put("msjobs", later)
        await asyncio.sleep(2.5)  # the time to live of the first job ends meanwhile
        assert api.get("msjobs", "job")["metadata"]["uid"] == "uid-of-the-later-job"

    play(story)


def test_each_deletion_names_the_uid_that_it_means(play):
    async def story(api, playground):
        api.put("msjobs", job())
        await playground.until(playground.is_in("Running"))
        api.faults.watch_delay = 3600.0
        api.remove("pods", "job-worker-1")
        metadata = {"name": "job-worker-1", "labels": {"theirs": "yes"}}
        theirs = api.put("pods", {"metadata": metadata, "status": {"phase": "Running"}})
        body = api.get("msjobs", "job")
        api.faults.watch_delay = 0.0
        body["metadata"]["generation"] = 2
        body["spec"]["runPolicy"] = {"suspend": True}
        api.put("msjobs", body)
        await playground.until(playground.is_in("Suspended"))
        await playground.until(lambda: api.names("pods") == ["job-worker-1"])
        assert api.get("pods", "job-worker-1")["metadata"]["uid"] == theirs["metadata"]["uid"]

    play(story)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["services", "poddisruptionbudgets", "networkpolicies"])
def test_what_the_pods_share_comes_back_as_it_was(play, kind):
    async def story(api, playground):
        api.put("msjobs", job(servers=1, securityPolicy={"networkPolicy": True}))
        await playground.until(playground.is_in("Running"))
        await playground.until(lambda: api.get("poddisruptionbudgets", "job-ps")["spec"]["maxUnavailable"] == 1)
        name = {"poddisruptionbudgets": "job-ps"}.get(kind, "job")
        made = copy.deepcopy(api.get(kind, name))
        is_back = lambda: (api.get(kind, name) or {"spec": None})["spec"] == made["spec"]
        api.remove(kind, name)
        await playground.until(is_back)
        changed = copy.deepcopy(api.get(kind, name))
        selector = {"matchLabels": {"else": "where"}}
        changed["spec"] |= {"selector": {"else": "where"}} if kind == "services" else {"podSelector": selector}
        changed["spec"] |= {"maxUnavailable": 7} if kind == "poddisruptionbudgets" else {}
        api.put(kind, changed)
        ours = lambda: {key: api.get(kind, name)["spec"][key] for key in made["spec"]}
        drifted = lambda: ours() != made["spec"] and "else" in str(ours())
        await playground.until(lambda: not drifted())
        await asyncio.sleep(0.5)
        calls = sum(api.calls.values())
        await asyncio.sleep(1)
        assert sum(api.calls.values()) == calls  # nothing is left to do

    play(story)


def test_nothing_is_created_twice(play):
    async def story(api, playground):
        before = Counter(api.calls)
        api.put("msjobs", job(workers=1))
        await playground.until(playground.is_in("Running"))
        playground.end("job-worker-0", 0)
        await playground.until(playground.is_in("Succeeded"))
        # The event of a state follows the state.
        await playground.until(lambda: api.calls["POST", "events"] - before["POST", "events"] >= 3)
        calls = Counter(api.calls) - before
        creates = {plural: count for (method, plural), count in calls.items() if method == "POST"}
        assert creates == {
            "services": 1,
            "pods": 2 + 1,
            "events": 3,
        }  # of the pods one is a dry run: templates are equal

    play(story)


def test_a_queue_starts_stops_and_places_a_job_as_kueue_does(play):
    """Kueue's contract: a suspended job has no pods; it writes node selectors into the template, resumes, suspends, restores."""

    async def story(api, playground):
        def edited(suspend, selector):
            body = api.get("msjobs", "job")
            body["metadata"]["generation"] += 1
            body["spec"]["runPolicy"] = {"suspend": suspend}
            for part in body["spec"]["msReplicaSpecs"].values():
                part["template"]["spec"]["nodeSelector"] = selector
                part["template"]["metadata"] = {"labels": {"kueue.x-k8s.io/podset": "all"}}
            api.put("msjobs", body)

        api.put("msjobs", job(runPolicy={"suspend": True}))
        await playground.until(playground.is_in("Suspended"))
        assert api.names("pods") == []
        edited(False, {"pool": "a"})
        await playground.until(playground.is_in("Running"))
        pods = [api.get("pods", name) for name in api.names("pods")]
        assert [pod["spec"]["nodeSelector"] for pod in pods] == [{"pool": "a"}] * 3
        assert {pod["metadata"]["labels"]["kueue.x-k8s.io/podset"] for pod in pods} == {"all"}
        edited(True, {})
        await playground.until(lambda: playground.is_in("Suspended")() and api.names("pods") == [])
        assert not playground.status().is_true("Running")
        assert playground.status().start_time is None
        edited(False, {"pool": "b"})
        await playground.until(playground.is_in("Running"))
        assert {api.get("pods", name)["spec"]["nodeSelector"]["pool"] for name in api.names("pods")} == {"b"}
        assert (playground.status().restarts, playground.status().failures) == (0, 0)
        playground.end("job-worker-0", 0)
        await playground.until(playground.is_in("Succeeded"))

    play(story)
