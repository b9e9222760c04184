"""The operator against an API server that fails: conflicts, expired and cut watches, throttling, errors, lost notices."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
import yaml
from support_k8s.fake_api import FakeApi
from support_k8s.jobs import changed, job

from sporax.k8s import operator
from sporax.k8s.metrics import Metrics
from sporax.k8s.operator import OperatorOptions, serve
from sporax.k8s.resource.job_status import read_status

Story = Callable[[FakeApi, "Playground"], Awaitable[None]]


class Playground:
    """A fake cluster with an operator at work, and a kubelet that lets every pod run."""

    def __init__(self, api: FakeApi) -> None:
        self.api = api
        self.metrics = Metrics()

    async def until(self, holds: Callable[[], Any], seconds: float = 10.0) -> None:
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end, f"did not come true: {self.api.objects}"
            await asyncio.sleep(0.02)

    def status(self, name: str = "job"):
        body = self.api.get("msjobs", name)
        return read_status(body.get("status") if body else None)

    def is_in(self, state: str, name: str = "job") -> Callable[[], bool]:
        return lambda: self.status(name).is_true(state)

    async def play_kubelet(self) -> None:
        while True:
            for name in self.api.names("pods"):
                body = self.api.get("pods", name)
                if body is not None and "status" not in body:
                    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
                    self.api.put("pods", body | {"status": {"phase": "Running", **ready}})
            await asyncio.sleep(0.02)

    def end(self, pod: str, code: int) -> None:
        body = self.api.get("pods", pod)
        state = {"name": "mindspore", "restartCount": 0, "state": {"terminated": {"exitCode": code}}}
        phase = "Failed" if code else "Succeeded"
        self.api.put("pods", body | {"status": {"phase": phase, "containerStatuses": [state]}})


@pytest.fixture
def play(tmp_path, monkeypatch):
    """Run a story in a fake cluster with an operator."""
    monkeypatch.setattr(operator, "_FIRST_RETRY_SECONDS", 0.02)

    async def run(story: Story, resync_seconds: float, is_told_to_stop: bool) -> None:
        async with FakeApi() as api:
            config = {
                "apiVersion": "v1", "kind": "Config", "current-context": "c",
                "clusters": [{"name": "c", "cluster": {"server": api.url}}],
                "users": [{"name": "u", "user": {"token": "t"}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "default"}}],
            }  # fmt: skip
            (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
            monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
            stop, ready, playground = asyncio.Event(), asyncio.Event(), Playground(api)
            options = OperatorOptions(resync_seconds=resync_seconds)
            serving = asyncio.create_task(serve(options, metrics=playground.metrics, stop=stop, ready=ready))
            kubelet = asyncio.create_task(playground.play_kubelet())
            await ready.wait()
            try:
                await story(api, playground)
            finally:
                kubelet.cancel()
                if is_told_to_stop:  # kopf gives tasks that are left, the fake server's among them, five seconds to end
                    stop.set()
                    await asyncio.wait_for(serving, 20)
                else:
                    serving.cancel()
                    with suppress(asyncio.CancelledError):
                        await asyncio.wait_for(serving, 20)

    return lambda story, resync_seconds=60.0, is_told_to_stop=False: asyncio.run(
        run(story, resync_seconds, is_told_to_stop)
    )


def test_a_job_runs_and_succeeds(play):
    async def story(api, playground):
        api.put("msjobs", job(servers=1))
        await playground.until(playground.is_in("Running"))
        assert api.names("pods") == ["job-ps-0", "job-scheduler-0", "job-worker-0", "job-worker-1"]
        assert api.names("services") == ["job"]
        assert api.names("poddisruptionbudgets") == ["job-ps"]
        playground.end("job-worker-0", 0)
        await playground.until(lambda: api.names("pods") == ["job-worker-0"])
        assert playground.status().is_true("Succeeded")

    play(story, is_told_to_stop=True)


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


def test_expired_and_cut_watches_are_opened_again(play):
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


def test_a_deletion_that_no_watch_heard_of_is_noticed_by_the_regular_look(play):
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


def test_figures_tell_what_the_operator_did(play):
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
