"""What the operator queries of a real scheduler of the parameter server, and what it makes of silence."""

import asyncio
import socket
import threading
import time

import pytest
from support_k8s.jobs import job

from sporax.k8s import scheduler_calls
from sporax.k8s.decide.observed import ReportedMembership
from sporax.k8s.resource.spec import Job, read_job
from sporax.k8s.scheduler_calls import ParameterServerMembership
from sporax.ps.protocol.messages import Options
from sporax.ps.scheduler.scheduler import ServerScheduler
from sporax.ps.server.server import Server


def job_at(port: int) -> Job:
    """A job whose parameter server's scheduler listens on a port."""
    body = job(servers=2)
    container = body["spec"]["msReplicaSpecs"]["Scheduler"]["template"]["spec"]["containers"][0]
    container["ports"] = [{"name": "msjob-port", "containerPort": port - 1}]
    return read_job(body)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def scheduler():
    """The port of a scheduler that waits for two workers and two servers."""
    port, stop = free_port(), threading.Event()
    served = ServerScheduler(f"127.0.0.1:{port}", Options(durability="replica"), 2, 2)
    thread = threading.Thread(target=served.run, args=(stop.is_set,))
    thread.start()
    yield port
    stop.set()
    thread.join()


def test_sizes_are_read_and_changed_at_the_scheduler(scheduler):
    client, served = ParameterServerMembership(), job_at(scheduler)

    async def story() -> list[ReportedMembership | None]:
        before = await client.read(served, "127.0.0.1")
        await client.resize(served, "127.0.0.1", 5, 3)
        return [before, await client.read(served, "127.0.0.1")]

    before, after = asyncio.run(story())
    assert (before.workers, before.servers, before.drained) == (2, 2, frozenset())
    assert (after.workers, after.servers) == (5, 3)
    assert not after.is_replicated  # no server has come yet, so no slot has a copy


def test_a_silent_scheduler_is_left_in_peace_for_longer_each_time(monkeypatch):
    queried, now = [], [0.0]
    monkeypatch.setattr(scheduler_calls, "read_membership", queried.append)  # gives None: no answer
    monkeypatch.setattr(scheduler_calls.time, "monotonic", lambda: now[0])
    client, served = ParameterServerMembership(), job_at(4000)
    for second in range(60):
        now[0] = float(second)
        assert asyncio.run(client.read(served, "10.0.0.1")) is None
        if second in (0, 1, 3, 7, 15, 31):
            assert queried.pop() == "10.0.0.1:4000"
        assert queried == []


def test_nobody_there_is_no_answer():
    assert scheduler_calls.read_membership(f"127.0.0.1:{free_port()}") is None


def test_a_server_says_that_it_serves_once_the_scheduler_knows_it(scheduler, tmp_path):
    file, stop = tmp_path / "serving", threading.Event()
    server = Server(f"127.0.0.1:{scheduler}", tmp_path / "logs", serving_file=file)
    assert not file.exists()
    thread = threading.Thread(target=server.run, args=(stop.is_set,))
    thread.start()
    try:
        end = time.monotonic() + 20
        while not file.exists():
            assert time.monotonic() < end
            time.sleep(0.05)
        # One of two servers is there: whatever the slots say, not all copies are.
        assert not scheduler_calls.read_membership(f"127.0.0.1:{scheduler}").is_replicated
    finally:
        stop.set()
        thread.join()


def test_jobs_that_are_gone_are_forgotten(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(scheduler_calls, "read_membership", lambda place: None)
    monkeypatch.setattr(scheduler_calls.time, "monotonic", lambda: clock[0])
    client = ParameterServerMembership()

    async def story() -> None:
        await client.read(job_at(2001), "10.0.0.1")
        for _ in range(50):  # queried again and again, it stays
            clock[0] += 25
            await client.read(job_at(2001), "10.0.0.2")

    asyncio.run(story())
    assert {place: wait for place, (_, wait) in client._silent.items()} == {"10.0.0.2:2001": 30.0}
