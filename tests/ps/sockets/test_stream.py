"""Connections without encryption: whole messages in order, whatever pieces the kernel makes of them."""

from __future__ import annotations

import random
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from background_cluster import background
from sporax.ps.client.store import Dense, ServerStore
from sporax.ps.protocol import wire
from sporax.ps.protocol.messages import Acked, OptimizerSpec, PeerHello, Pulled, Push, Source, VariableValues
from sporax.ps.sockets import polling
from sporax.ps.sockets.polling import SpinPolicy
from sporax.ps.sockets.stream import Stream, Streams


def push(number: int, size: int) -> tuple[Push, list[wire.Frame]]:
    values = np.full(size, number, np.float32)
    return Push(number, 0, 1, Source(0, 1, number, 0), 1.0, [VariableValues(0, 0.1, -1, size)]), wire.chunks(values)


def together(parts: list[wire.Frame]) -> bytes:
    return b"".join(bytes(part) for part in parts)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, Stream]]:
    raw, other = socket.socketpair()
    stream = Stream(other)
    yield raw, stream
    stream.close()
    raw.close()


@pytest.fixture(params=["Unix", "Unix without epoll", "TCP", "TCP over IPv6"])
def hubs(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Streams, Streams, str]]:
    """One that listens, one that connects, and where."""
    if request.param == "Unix without epoll":
        monkeypatch.setattr(polling, "Poll", polling.SelectorPoll)
    path = str(tmp_path / "s")
    host = {"TCP": "127.0.0.1", "TCP over IPv6": "::1"}.get(request.param, "")
    server, client = Streams("" if host else path, host=host), Streams()
    yield server, client, server.address or path
    client.close()
    server.close()


def connected(where: str) -> socket.socket:
    """A stranger's connection."""
    if where.startswith("/"):
        stranger = socket.socket(socket.AF_UNIX)
        stranger.connect(where)
        return stranger
    host, _, port = where.rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)))


def test_messages_split_anywhere_arrive_complete(pair: tuple[socket.socket, Stream]) -> None:
    raw, stream = pair
    rng = random.Random(0)
    messages = [push(number, rng.choice([0, 1, 7, 3000, 30000])) for number in range(30)]
    data = b"".join(together(wire.encode(*message)) for message in messages)

    def feed() -> None:
        position = 0
        while position < len(data):
            count = rng.choice([1, 5, 23, 24, 25, 200, 5000, 70000])
            raw.sendall(data[position : position + count])
            position += count

    thread = threading.Thread(target=feed)
    thread.start()
    for message, frames in messages:
        incoming = None
        while incoming is None:
            incoming = stream.receive(wait=True)
        assert incoming[0] == message
        assert together(list(incoming[1])) == together(frames)
    thread.join()


def test_structs_longer_than_the_scratch_memory_arrive(pair: tuple[socket.socket, Stream]) -> None:
    raw, stream = pair
    message = Pulled(1, 0, 0, list(range(100_000)), [])
    thread = threading.Thread(target=raw.sendall, args=(together(wire.encode(Acked(1, 2, 3)) + wire.encode(message)),))
    thread.start()
    received = []
    while len(received) < 2:
        incoming = stream.receive(wait=True)
        received += [incoming[0]] if incoming is not None else []
    thread.join()
    assert received == [Acked(1, 2, 3), message]


def test_two_processes_that_both_send_much_do_not_wait_for_each_other(hubs: tuple[Streams, Streams, str]) -> None:
    server, client, path = hubs
    connection = client.connect(path, b"me")
    assert connection is not None
    count, size = 12, 1 << 20
    for number in range(count):
        client.send(connection, *push(number, size))
    assert connection.has_unsent
    back: list[int] = []
    until = time.monotonic() + 60
    while len(back) < count and time.monotonic() < until:
        for stream, message, frames in server.receive():
            assert stream.identity == b"me"
            assert server.reply(b"me", message, frames)
        for _, message, frames in client.receive():
            assert isinstance(message, Push)
            assert np.all(np.frombuffer(frames[0], np.float32) == message.request)
            back.append(message.request)
    assert back == list(range(count))
    assert not connection.has_unsent


@pytest.mark.parametrize(
    "data",
    [b"x" * 40, wire.HEADER.pack(b"SPXP\2\0\0\0", 1 << 30, 0, 0), together(wire.encode(PeerHello(b"a")))[:-1] + b"?"],
)
def test_what_is_no_message_ends_the_connection_and_is_counted(hubs: tuple[Streams, Streams, str], data: bytes) -> None:
    server, client, path = hubs
    good = client.connect(path, b"good")
    bad = connected(path)
    bad.sendall(data)
    received = []
    until = time.monotonic() + 20
    while server.bad_messages == 0 and time.monotonic() < until:
        received += list(server.receive(0.01))
    assert server.bad_messages == 1
    bad.settimeout(10)
    assert bad.recv(1) == b""
    bad.close()
    assert good is not None
    client.send(good, Acked(1, 2, 3))
    while not received and time.monotonic() < until:
        received += list(server.receive(0.01))
    assert [message for _, message, _ in received] == [Acked(1, 2, 3)]


def test_a_name_belongs_to_its_newest_connection(hubs: tuple[Streams, Streams, str]) -> None:
    server, client, path = hubs
    first = client.connect(path, b"me")
    list(server.receive(1.0))
    list(server.receive(1.0))
    second = client.connect(path, b"me")
    until = time.monotonic() + 20
    answers: list[object] = []
    while not answers and time.monotonic() < until:
        list(server.receive(0.01))
        server.reply(b"me", Acked(1, 2, 3))
        answers += [stream for stream, _, _ in client.receive(0.01) if stream is second]
    assert answers
    list(client.receive(0.1))
    assert first is not None
    assert not first.is_open
    assert not server.reply(b"somebody else", Acked(1, 2, 3))


def test_a_connection_that_ends_while_its_message_is_about_to_be_read_is_passed_over(
    hubs: tuple[Streams, Streams, str],
) -> None:
    """One look at the kernel gives both: the name of a newer connection first, then bytes of the one that this ends."""
    server, client, path = hubs
    first = client.connect(path, b"me")
    assert first is not None
    until = time.monotonic() + 20
    while not server.reply(b"me", Acked(1, 2, 3)) and time.monotonic() < until:
        list(server.receive(0.01))
    assert client.connect(path, b"me") is not None
    # Takes the newer connection, and does not read from it yet.
    assert not list(server.receive(1.0))
    client.send(first, Acked(4, 5, 6))
    time.sleep(0.1)
    assert not list(server.receive(1.0))
    assert server.bad_messages == 0
    assert server.reply(b"me", Acked(7, 8, 9))


def test_what_nobody_listens_to_any_more_ends_without_an_error(hubs: tuple[Streams, Streams, str]) -> None:
    """Over TCP it is known only after the first message was queued."""
    server, client, path = hubs
    server.close()
    connection = client.connect(path, b"me")
    if connection is not None:
        client.send(connection, *push(1, 10))
    until = time.monotonic() + 20
    while connection is not None and connection.is_open and time.monotonic() < until:
        assert not list(client.receive(0.01))
    assert connection is None or not connection.is_open
    assert not client.unsent


def test_arrays_go_to_the_memory_that_waits_for_them(tmp_path: Path) -> None:
    target = memoryview(bytearray(400))
    server = Streams(str(tmp_path / "s"))
    client = Streams(place=lambda message, size: target if size == 400 else None)
    connection = client.connect(str(tmp_path / "s"), b"me")
    assert connection is not None
    until = time.monotonic() + 20
    sent = [push(3, 100), push(4, 50)]
    while not all(server.reply(b"me", *message) for message in sent) and time.monotonic() < until:
        list(server.receive(0.01))
    received = []
    while len(received) < 2 and time.monotonic() < until:
        received += [frames for _, _, frames in client.receive(0.01)]
    assert received[0][0] is target
    assert np.all(np.frombuffer(target, np.float32) == 3)
    assert np.all(np.frombuffer(received[1][0], np.float32) == 4)
    client.close()
    server.close()


def test_answers_are_received_while_the_caller_does_something_else() -> None:
    size = 1 << 21  # more than the buffers of a socket hold
    with background(1, 1, MS_PS_STALENESS="-1", MS_PS_DURABILITY="memory", MS_PS_SLOTS="2") as cluster:
        store = ServerStore(cluster.cluster.address, timeout=60.0)
        store.declare([Dense("w", size, 0)], [OptimizerSpec("sgd")])
        store.initialise([np.arange(size, dtype=np.float32)])
        plan = store.start_pull()
        until = time.monotonic() + 30
        while store._client.state.open and time.monotonic() < until:
            time.sleep(0.01)
        assert not store._client.state.open
        np.testing.assert_array_equal(store.finish_pull(plan)[0][0], np.arange(size, dtype=np.float32))
        store.close()


def test_messages_that_came_with_others_are_not_left_until_more_come(hubs: tuple[Streams, Streams, str]) -> None:
    """One read brings many small messages, of which a turn takes only some: the kernel does not report the rest again."""
    server, client, path = hubs
    connection = client.connect(path, b"me")
    assert connection is not None
    sent = [Acked(number, 0, 0) for number in range(50)]
    for message in sent:
        client.send(connection, message)
    received: list[object] = []
    until = time.monotonic() + 20
    while len(received) < len(sent) and time.monotonic() < until:
        received += [message for _, message, _ in server.receive(0.01)]
    assert received == sent


@pytest.mark.parametrize("pieces", [[1 << 20], [24, 30, 1000, 70000], [1, 60, 4096]], ids=str)
def test_messages_of_the_sizes_of_the_one_before_and_others_between_them_arrive_whole(
    pair: tuple[socket.socket, Stream], pieces: list[int]
) -> None:
    """Pushes of one size arrive by one system call each; what comes instead of one loses nothing."""
    raw, stream = pair
    sent: list[tuple[object, list[wire.Frame]]] = []
    for number in range(1, 40):
        sent.append(push(number, 20000 if number % 7 else 19999))
        if number % 5 == 0:
            sent.append((Pulled(number, 0, 0, list(range(number * 300)), []), []))
        if number % 3 == 0:
            sent += [(Acked(number, 2, 3), []), push(number, 10)]
    data = b"".join(together(wire.encode(*message)) for message in sent)

    def feed() -> None:
        position, turn = 0, 0
        while position < len(data):
            count = pieces[turn % len(pieces)]
            raw.sendall(data[position : position + count])
            position, turn = position + count, turn + 1

    thread = threading.Thread(target=feed)
    thread.start()
    received = []
    until = time.monotonic() + 60
    while len(received) < len(sent) and time.monotonic() < until:
        incoming = stream.receive()
        received += [] if incoming is None else [(incoming[0], together(list(incoming[1])))]
    thread.join()
    assert received == [(message, together(frames)) for message, frames in sent]


def test_a_push_of_the_size_of_the_one_before_is_one_system_call(
    pair: tuple[socket.socket, Stream], monkeypatch: pytest.MonkeyPatch
) -> None:
    raw, stream = pair
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    reads: list[str] = []

    class Counted:
        def __init__(self, inner: socket.socket) -> None:
            self._inner = inner

        def __getattr__(self, name: str) -> object:
            if name.startswith("recv"):
                reads.append(name)
            return getattr(self._inner, name)

    monkeypatch.setattr(stream, "_socket", Counted(stream._socket))
    counts = []
    for number in range(1, 5):
        reads.clear()
        message, frames = push(number, 16384)
        raw.sendall(together(wire.encode(message, frames)))
        incoming = stream.receive()
        assert incoming is not None
        assert together(list(incoming[1])) == together(frames)
        counts.append(len(reads))
    assert counts == [2, 1, 1, 1]


def test_a_damaged_struct_in_a_push_of_the_expected_size_ends_the_connection(
    pair: tuple[socket.socket, Stream],
) -> None:
    raw, stream = pair
    raw.sendall(together(wire.encode(*push(1, 100))))
    assert stream.receive() is not None
    damaged = bytearray(together(wire.encode(*push(2, 100))))
    damaged[30] ^= 1
    raw.sendall(damaged)
    with pytest.raises(wire.WireError, match="does not fit its header"):
        stream.receive()
    assert not stream.is_open


def test_a_reader_that_looks_in_vain_looks_more_and_more_rarely() -> None:
    """To look keeps the process that would send from running, where both share a core."""
    patience, looks = SpinPolicy(), []
    attempts = []
    for _ in range(1000):
        attempts.clear()
        assert patience.look(lambda: attempts.append("in vain")) is None
        looks.append(bool(attempts))
    assert looks[0]
    assert 5 <= sum(looks) <= 15
    while not patience.look(lambda: "found"):
        pass
    assert all(patience.look(lambda: "found") for _ in range(10)), "answers that come soon are looked for again"


class CountedPoll:
    """Counts the looks at the kernel that find something."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.found = 0

    def poll(self, seconds: float, most: int) -> list[tuple[int, int]]:
        ready: list[tuple[int, int]] = self._inner.poll(seconds, most)
        self.found += bool(ready)
        return ready

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)


def test_a_message_that_has_come_while_another_was_served_needs_no_look_at_the_kernel(
    hubs: tuple[Streams, Streams, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, client, path = hubs
    connection = client.connect(path, b"me")
    assert connection is not None
    assert list(server.receive(0.2)) == list(server.receive(0.2)) == []
    counted = CountedPoll(server._poll)
    monkeypatch.setattr(server, "_poll", counted)
    client.send(connection, Acked(0, 0, 0))
    received: list[object] = []
    until = time.monotonic() + 20
    while len(received) < 64 and time.monotonic() < until:
        for _, message, _ in server.receive(0.01):
            received.append(message)
            client.send(connection, Acked(len(received), 0, 0))
            connection.flush()
    assert received == [Acked(number, 0, 0) for number in range(len(received))]
    assert counted.found <= 10, "sixteen are taken in a turn"


def test_a_connection_is_polled_in_vain_more_and_more_rarely(tmp_path: Path) -> None:
    server, client = Streams(str(tmp_path / "s")), Streams()
    connection = client.connect(str(tmp_path / "s"), b"me")
    assert connection is not None
    for number in range(300):
        client.send(connection, Acked(number, 0, 0))
        until = time.monotonic() + 20
        received: list[object] = []
        while not received and time.monotonic() < until:
            received += [message for _, message, _ in server.receive(0.01)]
        assert received == [Acked(number, 0, 0)]
    assert server._senders[b"me"].haste.waits_without > 16
    client.close()
    server.close()


_TAKES_AND_ANSWERS = """
import socket, sys, time
connection = socket.socket(fileno=int(sys.argv[1]))
for _ in range(int(sys.argv[2])):
    connection.recv(int(sys.argv[3]), socket.MSG_WAITALL)
    time.sleep(0.002)
connection.sendall(bytes.fromhex(sys.argv[4]))
"""


@pytest.mark.skipif(not hasattr(resource, "RUSAGE_THREAD"), reason="counts of threads are Linux's")
def test_who_waits_for_an_answer_is_not_woken_when_a_message_is_taken(pair: tuple[socket.socket, Stream]) -> None:
    """The kernel wakes a read that waits on a Unix socket whenever the other end has made room."""
    raw, stream = pair
    count, size = 60, len(together(wire.encode(*push(1, 1000))))
    for _ in range(count):
        assert stream.send(*push(1, 1000))
    answer = together(wire.encode(Acked(1, 2, 3)))
    numbers = [str(number) for number in (raw.fileno(), count, size)]
    # A process of its own, as threads of one process wait for each other.
    other = subprocess.Popen(
        [sys.executable, "-c", _TAKES_AND_ANSWERS, *numbers, answer.hex()], pass_fds=[raw.fileno()]
    )
    before, waits, incoming = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw, 0, None
    until = time.monotonic() + 20
    while incoming is None and time.monotonic() < until:
        incoming = stream.receive(wait=True)
        waits += 1
    woken = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - before
    assert other.wait(20) == 0
    assert incoming == (Acked(1, 2, 3), ())
    assert woken <= waits + count // 3
