"""Scheduler and members over real sockets, in threads."""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from sporax.base.errors import SporaxRuntimeError
from sporax.cluster import ports
from sporax.cluster.environment import ProcessRole, RankEnvironment
from sporax.cluster.membership import Membership, join
from sporax.cluster.rendezvous import Cluster, ClusterPhase
from sporax.cluster.scheduler import Scheduler, serve_cluster


def place(port: int, size: int, name: str, rank: int | None = None, timeout_seconds: float = 30) -> RankEnvironment:
    return RankEnvironment(
        rank=rank, size=size, scheduler_address=("127.0.0.1", port), node_id=name, timeout_seconds=timeout_seconds
    )


@contextlib.contextmanager
def scheduler(size: int, timeout_seconds: float = 30) -> Iterator[tuple[int, Cluster]]:
    """A scheduler that serves until the block ends."""
    cluster = Cluster(size, 0, timeout_seconds)
    listener = ports.listen("127.0.0.1", None)
    server = Scheduler(cluster, listener, starts_at_first=True, log=lambda _: None)
    stop = threading.Event()

    def serve() -> None:
        while not stop.is_set():
            server.step(0.02)
        server.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1], cluster
    finally:
        stop.set()
        thread.join()


def join_all(*places: RankEnvironment) -> list[Membership]:
    with ThreadPoolExecutor(len(places)) as pool:
        return list(pool.map(join, places))


def leave_all(members: list[Membership]) -> None:
    for one in members:
        one.leave()


def test_members_learn_their_place(wait_until):
    with scheduler(3) as (port, cluster):
        members = join_all(*(place(port, 3, name) for name in ("w10", "w9", "w8")))
        assert [one.environment.rank for one in members] == [2, 1, 0]
        assert [one.environment.local_rank for one in members] == [2, 1, 0]
        assert {one.environment.local_size for one in members} == {3}
        (coordinator,) = {one.environment.coordinator_address for one in members}
        host, number = coordinator.split(":")
        assert host == "127.0.0.1"
        with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
            stranger.bind((host, int(number)))  # held for rank 0's service
        leave_all(members)
        wait_until(lambda: cluster.phase is ClusterPhase.DONE)


def test_a_member_that_vanishes_is_reported_to_the_others(wait_until):
    with scheduler(2) as (port, cluster):
        members = join_all(place(port, 2, "a", 0), place(port, 2, "b", 1))
        lost: list[str] = []
        members[0].watch(lost.append)
        members[1]._stream.close()
        wait_until(lambda: lost)
        assert "rank 1 (worker 'b') on 127.0.0.1 ended without saying goodbye" in lost[0]
        assert cluster.phase is ClusterPhase.FAILED
        leave_all(members)


def test_a_member_that_leaves_is_not_lost(wait_until):
    with scheduler(2) as (port, cluster):
        members = join_all(place(port, 2, "a"), place(port, 2, "b"))
        lost: list[str] = []
        for one in members:
            one.watch(lost.append)
        leave_all(members)
        leave_all(members)
        wait_until(lambda: cluster.phase is ClusterPhase.DONE)
        assert lost == []


def test_members_that_wait_in_vain_learn_who_is_missing():
    with scheduler(3, timeout_seconds=0.2) as (port, _):
        places = [place(port, 3, "a", 0, 0.2), place(port, 3, "b", 2, 0.2)]
        with ThreadPoolExecutor(2) as pool:
            for waiting in [pool.submit(join, one) for one in places]:
                with pytest.raises(SporaxRuntimeError, match=r"2 of 3 workers joined .*; ranks \[1\] never did"):
                    waiting.result()


def test_a_wrong_count_is_refused():
    with scheduler(3) as (port, _), pytest.raises(SporaxRuntimeError, match="scheduler's, 3, but got 4"):
        join(place(port, 4, "a"))


def test_a_scheduler_that_is_not_there():
    holder = ports.reserve_port("127.0.0.1")
    with holder, pytest.raises(SporaxRuntimeError, match=r"must be reachable at 127.0.0.1:\d+ within 0.3 s"):
        join(place(holder.getsockname()[1], 2, "a", timeout_seconds=0.3))


def test_a_single_rank_needs_nobody():
    assert join(RankEnvironment()).environment == RankEnvironment()


@pytest.mark.parametrize("line", [b"GET / HTTP/1.1\r\n", b"[]\n", b'{"say": "sing"}\n', b'{"say": "register"}\n'])
def test_nonsense_is_refused_and_does_not_disturb(line: bytes):
    with scheduler(1) as (port, _):
        with socket.create_connection(("127.0.0.1", port)) as stranger:
            stranger.sendall(line)
            assert [json.loads(said)["say"] for said in stranger.makefile()] == ["challenge", "refused"]
        join(place(port, 1, "a")).leave()


def test_a_member_that_breaks_the_protocol_is_out():
    """Its place is free again: nothing of it stays behind."""
    words = {"say": "register", "role": "MS_WORKER", "node_id": "a", "rank": 0, "size": 1, "host": "h", "port": 1}
    with scheduler(2) as (port, cluster):
        with socket.create_connection(("127.0.0.1", port)) as bad:
            hello = {"say": "hello", "proof": ""}
            bad.sendall(json.dumps(hello).encode() + b"\n" + json.dumps(words | {"size": 2}).encode() + b"\nnonsense\n")
            assert [json.loads(said)["say"] for said in bad.makefile()] == ["challenge", "refused"]
        members = join_all(place(port, 2, "a", 0), place(port, 2, "b", 1))
        assert len(cluster.members) == 2
        leave_all(members)


def test_a_scheduler_process_serves_until_all_have_left():
    with ports.listen("127.0.0.1", None) as probe:
        port = probe.getsockname()[1]
    me = replace(place(port, 2, "s", 0), role=ProcessRole.SCHEDULER)
    server = threading.Thread(target=serve_cluster, args=(me, lambda _: None))
    server.start()
    members = join_all(place(port, 2, "a"), place(port, 2, "b"))
    leave_all(members)
    server.join(timeout=30)
    assert not server.is_alive()


def test_a_scheduler_process_ends_at_its_timeout():
    with ports.listen("127.0.0.1", None) as probe:
        port = probe.getsockname()[1]
    me = replace(place(port, 2, "s", 0, timeout_seconds=0.1), role=ProcessRole.SCHEDULER)
    began = time.monotonic()
    with pytest.raises(SporaxRuntimeError, match=r"0 of 2 workers joined \(none\)"):
        serve_cluster(me, lambda _: None)
    assert time.monotonic() - began < 30
