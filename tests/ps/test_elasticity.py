"""Workers and servers come and go while training goes on; nothing is lost, nothing is rolled back."""

from __future__ import annotations

import functools
import json
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
import zmq

from background_cluster import BackgroundCluster, background
from sporax.ps.client.store import Dense, ServerStore
from sporax.ps.protocol.events import Received, Reply
from sporax.ps.protocol.messages import (
    Heartbeat,
    HeartbeatReply,
    OptimizerSpec,
    Options,
    ProcessAccepted,
    Ready,
    RegisterProcess,
    Scale,
    Stop,
    WorkerLeave,
)
from sporax.ps.protocol.wire import decode, encode
from sporax.ps.scheduler.journal import Journal
from sporax.ps.scheduler.scheduler_state import SchedulerState
from sporax.ps.server.server import Server

SIZE = 64


def wait_for(cluster: BackgroundCluster, servers: int, seconds: float = 40.0) -> None:
    """Until so many servers share the slots evenly and every slot has its backup."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        answer = cluster.cluster.status()
        status = json.loads(answer.text) if answer is not None else {"servers": [], "slots": []}
        holders = {slot[0] for slot in status["slots"]}
        counts = [server["primary"] for server in status["servers"] if server["live"]]
        synced = all(slot[2] for slot in status["slots"])
        if len(counts) == servers == len(holders) and max(counts) - min(counts) <= 1 and synced:
            return
        time.sleep(0.05)
    raise AssertionError(status)


def test_a_server_that_comes_back_is_no_longer_among_those_that_left() -> None:
    """Whoever deletes servers that have left (a launcher, an operator) must not take the new one for the old."""
    state = SchedulerState(Options(durability="memory"), Journal("job", 1, 2), 0.0)

    def join(index: int, incarnation: int) -> None:
        sender = b"server-%d-%d" % (index, incarnation)
        state.handle(Received(sender, RegisterProcess("server", f"s{index}", index, "h", "1"), ()), 0.0)
        state.handle(Received(sender, Ready(index, incarnation, {}), ()), 0.0)

    for index in range(3):
        join(index, 1)
    state.handle(Received(b"somebody", Scale(1, 2), ()), 0.0)
    assert state.journal.retired == ["s2"]
    join(2, 2)
    assert state.journal.retired == []


def drained(with_sender: bool) -> tuple[SchedulerState, list[object]]:
    """A job whose third server has just become empty, and the last actions of its scheduler."""
    state = SchedulerState(Options(durability="memory", num_slots=2), Journal("job", 1, 2), 0.0)
    for index in range(3):
        sender = b"server-%d" % index
        state.handle(Received(sender, RegisterProcess("server", f"s{index}", index, "h", "1"), ()), 0.0)
        state.handle(Received(sender, Ready(index, 1, {}), ()), 0.0)
    if not with_sender:
        state.servers[2].sender = b""  # the scheduler has begun again and has not seen it yet
    return state, state.handle(Received(b"somebody", Scale(1, 2), ()), 0.0)


@pytest.mark.parametrize("with_sender", [True, False])
def test_a_server_that_was_let_go_is_notified_at_every_request(with_sender: bool) -> None:
    """Not that it was replaced, for then it would end with the status that requests a new start."""
    state, actions = drained(with_sender)
    farewell = Reply(b"server-2", Stop("the job needs fewer servers", done=True))
    assert (farewell in actions) is with_sender
    assert state.handle(Received(b"server-2", Heartbeat("server", 2, 1, 5.0, 1), ()), 1.0) == [farewell]
    again = SchedulerState(
        state.options, msgspec.msgpack.decode(msgspec.msgpack.encode(state.journal), type=Journal), 2.0
    )
    assert again.handle(Received(b"server-2", Heartbeat("server", 2, 1, 6.0, 1), ()), 2.0) == [farewell]
    (unknown,) = state.handle(Received(b"server-2", Heartbeat("server", 2, 0, 5.0, 1), ()), 1.0)
    assert unknown.message.unknown


def test_a_server_ends_for_the_first_reason_it_receives(tmp_path: Path) -> None:
    """Its heartbeat may cross the farewell, and be answered by a scheduler that does not know it any more."""
    router = zmq.Context.instance().socket(zmq.ROUTER)
    port = router.bind_to_random_port("tcp://127.0.0.1")
    server = Server(f"127.0.0.1:{port}", tmp_path, node="s0")
    thread = threading.Thread(target=server.run)
    thread.start()
    sender, welcomed = b"", False
    while not welcomed:
        sender, *parts = router.recv_multipart()
        welcomed = isinstance(decode(parts)[0], Ready)
        for message in (
            [ProcessAccepted("s0", 0, 1, "job", Options(durability="process"))]
            if not welcomed
            else [Stop("the job needs fewer servers", done=True), HeartbeatReply(0.0, 9, unknown=True)]
        ):
            router.send_multipart([sender, *encode(message)])
    thread.join(30)
    router.close(0)
    assert not thread.is_alive()
    assert not server.ends_for_another
    assert list(tmp_path.iterdir()) == [], "it has removed its log, as the farewell allows"


def test_two_processes_with_the_same_numbers_are_not_taken_for_one() -> None:
    """A scheduler that ends before it has written down whom it gave a number gives it again, to another process."""
    state = SchedulerState(Options(durability="memory"), Journal("job", 1, 1), 0.0)
    state.handle(Received(b"new", RegisterProcess("server", "s0", 0, "h", "1"), ()), 0.0)
    unknown = Reply(b"old", HeartbeatReply(0.0, 0, unknown=True))
    assert state.handle(Received(b"old", Ready(0, 1, {3: 9}), ()), 0.0) == [unknown]
    assert state.handle(Received(b"old", Heartbeat("server", 0, 1, 0.0, 0), ()), 0.0) == [unknown]
    assert state.journal.servers == {}
    state.handle(Received(b"new", Ready(0, 1, {}), ()), 0.0)
    assert state.servers[0].sender == b"new"
    assert state.servers[0].inventory == {}
    assert state.handle(Received(b"old", Ready(0, 1, {3: 9}), ()), 0.0) == []
    (late,) = state.handle(Received(b"old", Heartbeat("server", 0, 1, 7.0, 1), ()), 0.0)
    assert late == Reply(b"old", HeartbeatReply(7.0, 1, unknown=True))
    assert state.servers[0].sender == b"new"
    (known,) = state.handle(Received(b"new", Heartbeat("server", 0, 1, 8.0, 1), ()), 0.0)
    assert not known.message.unknown


def test_a_drained_server_ends_with_status_zero() -> None:
    with background(3, 1, MS_PS_STALENESS="-1") as cluster:
        store = ServerStore(cluster.cluster.address, timeout=60.0)
        store.declare([Dense("w", SIZE, 0)], [OptimizerSpec("sgd")])
        store.initialise([np.zeros(SIZE)])
        process = cluster.cluster.process_of("server", 2)
        with cluster.lock:
            cluster.cluster.scale(servers=2)
        wait_for(cluster, 2)
        assert process is not None
        assert process.wait(30) == 0
        store.wait(store.push([np.ones(SIZE, np.float32)], [1.0]))
        store.close()


def test_servers_join_and_leave_while_pushes_go_on() -> None:
    with background(2, 1, MS_PS_STALENESS="-1") as cluster:
        store = ServerStore(cluster.cluster.address, timeout=60.0)
        store.declare([Dense("w", SIZE, 0)], [OptimizerSpec("sgd")])
        store.initialise([np.zeros(SIZE)])
        acknowledged, ending = [0], threading.Event()

        def work() -> None:
            while not ending.is_set():
                store.wait(store.push([np.full(SIZE, -1, np.float32)], [1.0]))
                acknowledged[0] += 1

        thread = threading.Thread(target=work)
        thread.start()
        for servers in (3, 2):
            with cluster.lock:
                cluster.cluster.scale(servers=servers)
            wait_for(cluster, servers)
            before = acknowledged[0]
            while acknowledged[0] < before + 5:
                time.sleep(0.01)
        ending.set()
        thread.join(60)
        np.testing.assert_array_equal(store.pull(newest=True)[0][0], acknowledged[0])
        store.close()


@pytest.mark.parametrize(
    ("staleness", "members", "leaves"),
    [
        (0, (0, 2), True),  # the members of this clock are without it
        (0, (0, 1), False),  # its last steps before the change
        (0, (), True),  # it was never a member
        (-1, (0, 1), True),  # without a common clock it may leave at once
        (3, (0,), True),
    ],
)
@pytest.mark.parametrize("agrees", [True, False])
def test_a_dismissed_worker_leaves_where_it_is_no_member_and_the_scheduler_agrees(
    staleness: int, members: tuple[int, ...], leaves: bool, agrees: bool
) -> None:
    store = object.__new__(ServerStore)
    store.options, store.rank, store.members, store.clock = Options(staleness), 1, members, 7
    sent: list[object] = []
    store.link = SimpleNamespace(
        incarnation=1, has_left=False, is_over=False, leave_if_dismissed=lambda message: sent.append(message) or agrees
    )
    assert store.leave_if_dismissed() is (leaves and agrees)
    assert sent == ([WorkerLeave(1, 1, 7, False)] if leaves else [])


def test_a_worker_that_is_wanted_again_cannot_leave() -> None:
    """The others may have read already that it is among them."""
    state = SchedulerState(Options(-1, "memory", 2), Journal("job", 2, 1), 0.0)

    def notify(sender: bytes, message: object) -> list[object]:
        return [
            action.message for action in state.handle(Received(sender, message, ()), 0.0) if isinstance(action, Reply)
        ]

    notify(b"s", RegisterProcess("server", "s", 0, "h", "1"))
    notify(b"s", Ready(0, 1, {}))
    for rank in (0, 1):
        notify(b"w%d" % rank, RegisterProcess("worker", f"w{rank}", rank))
    notify(b"somebody", Scale(1, -1))
    assert any(message.dismissed for message in notify(b"w1", Heartbeat("worker", 1, 1, 0.0, 1)))
    notify(b"somebody", Scale(2, -1))
    assert notify(b"w1", WorkerLeave(1, 1, 0, False)) == [HeartbeatReply(-1.0, state.journal.epoch)]
    assert state.journal.members[-1].ranks == [0, 1]
    notify(b"somebody", Scale(1, -1))
    assert Stop("left") in notify(b"w1", WorkerLeave(1, 1, 0, False))
    assert state.journal.retired == ["w1"]


def curve(plan: dict[int, int], steps: int = 24, servers: dict[int, int] | None = None) -> list[float]:
    """Synchronous training on global batches of 12 samples, shared out among whoever is a member; gives the losses.

    `plan`, `servers`: at which steps how many workers and servers are wanted.
    """
    losses: list[float] = [0.0] * (steps + 1)
    data = np.random.default_rng(0).standard_normal((steps + 1, 12, 5)).astype(np.float32)
    truth = np.arange(5, dtype=np.float32)
    # Short leases have frequent heartbeats, by which changes are agreed on.
    with background(2, 1, MS_PS_STALENESS="0", MS_PS_LEASE="1.0") as cluster:

        def work(rank: int) -> None:
            store = ServerStore(cluster.cluster.address, rank=rank, timeout=60.0)
            store.declare([Dense("w", 5, 0)], [OptimizerSpec("momentum", {"momentum": 0.9})])
            store.initialise([np.zeros(5)] if rank == 0 else None)
            while store.clock < steps:
                (value,), _ = store.pull()
                if not store.is_member:
                    if not store.rejoin():
                        break
                    continue
                position, count = store.members.index(rank), len(store.members)
                x = data[store.clock][position * 12 // count : (position + 1) * 12 // count]
                gradient = 2 * x.T @ (x @ (value - truth)) / len(x)
                losses[store.clock] = float(np.mean((data[store.clock] @ (value - truth)) ** 2))
                if rank == 0 and store.clock in plan:
                    with cluster.lock:
                        cluster.cluster.scale(workers=plan[store.clock])
                    for other in range(1, plan[store.clock]):
                        if other not in threads or not threads[other].is_alive():
                            threads[other] = threading.Thread(target=work, args=(other,))
                            threads[other].start()
                if servers and store.clock in servers:
                    with cluster.lock:
                        cluster.cluster.scale(servers=servers[store.clock])
                    if store.clock != min(servers):  # the first change is met in the middle, the last one is waited for
                        wait_for(cluster, servers[store.clock])
                store.wait(store.push([gradient], [0.05], weight=float(len(x))))
                if plan or servers:
                    time.sleep(0.05)  # long enough for the change to be agreed on before the run is over
            seen.add(len(store.members))
            store.close()

        seen: set[int] = set()
        threads = {0: threading.Thread(target=work, args=(0,))}
        threads[0].start()
        threads[0].join(100)
        for thread in list(threads.values()):
            thread.join(30)
            assert not thread.is_alive()
    counts.append(seen)
    return losses[:steps]


counts: list[set[int]] = []


@functools.cache
def calm_curve() -> list[float]:
    """The losses of one worker, without changes."""
    return curve({})


@pytest.mark.full
def test_workers_join_and_leave_and_the_losses_stay_the_same() -> None:
    alone = calm_curve()
    changing = curve({3: 4, 15: 2}, 24)
    np.testing.assert_allclose(changing, alone, rtol=2e-4)
    assert alone[-1] < alone[0] / 10
    assert counts[-1] - {1}, "nobody has joined"


@pytest.mark.full
def test_servers_join_and_leave_and_the_losses_have_the_same_bits() -> None:
    assert curve({}, servers={3: 3, 14: 2}) == calm_curve()
