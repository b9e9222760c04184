"""Arrays in shared memory: the bytes that were sent, whoever holds them for how long, and whoever ends."""

from __future__ import annotations

import fcntl
import gc
import os
import random
import socket
import time
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest

from sporax.ps.protocol import wire
from sporax.ps.protocol.messages import Acked, PeerHello, Pulled, Push, Source, VariableValues
from sporax.ps.sockets import shared_area
from sporax.ps.sockets.shared_area import BANK_BYTES, SharedArea
from sporax.ps.sockets.stream import Place, Stream, Streams

Received = tuple[object, tuple[wire.Frame, ...]]


def push(number: int, size: int) -> tuple[Push, list[wire.Frame]]:
    values = np.random.default_rng(number).standard_normal(size).astype(np.float32)
    return Push(number, 0, 1, Source(0, 1, number, 0), 1.0, [VariableValues(0, 0.1, -1, size)]), wire.chunks(values)


def together(frames: Iterable[wire.Frame]) -> bytes:
    return b"".join(bytes(frame) for frame in frames)


def has_areas() -> bool:
    made = SharedArea.make()
    if made is not None:
        os.close(made[1])
    return made is not None


needs_areas = pytest.mark.skipif(not has_areas(), reason="memory that is shared without a name needs Linux on x86")


class Hubs:
    """One that listens and one that has connected, each with its end of the connection."""

    def __init__(self, path: str, place: Place | None = None) -> None:
        self.server, self.client = Streams(path), Streams(place=place)
        out = self.client.connect(path, b"me")
        assert out is not None
        self.out: Stream = out
        assert self.receive(self.server, 0) == []
        self.back = self.server._senders[b"me"]

    def receive(self, hub: Streams, count: int) -> list[Received]:
        """So many messages; with 0 what comes in a moment."""
        received: list[Received] = []
        until = time.monotonic() + (20 if count else 0.3)
        while (len(received) < count or not count) and time.monotonic() < until:
            received += [(message, frames) for _, message, frames in hub.receive(0.01)]
            self.client.receive()
            self.out.flush()
        return received

    def close(self) -> None:
        self.client.close()
        self.server.close()


@pytest.fixture
def hubs(tmp_path: Path) -> Iterator[Hubs]:
    both = Hubs(str(tmp_path / "s"))
    yield both
    both.close()


def lies_in(frame: wire.Frame, area: SharedArea | None) -> bool:
    assert area is not None
    return np.shares_memory(np.frombuffer(frame, np.uint8), np.frombuffer(area._in, np.uint8))


@needs_areas
def test_a_gradient_is_used_where_it_lies_and_nothing_but_its_header_goes_through_the_socket(hubs: Hubs) -> None:
    message, frames = push(1, 16384)
    hubs.client.send(hubs.out, message, frames)
    data = hubs.back._socket.recv(1 << 20, socket.MSG_PEEK)
    assert len(data) < 200
    ((received, arrays),) = hubs.receive(hubs.server, 1)
    assert received == message
    assert together(arrays) == together(frames)
    assert lies_in(arrays[0], hubs.back._area)


@needs_areas
@pytest.mark.parametrize("held", [0, 1, 3, 100])
def test_what_somebody_holds_is_not_written_over(hubs: Hubs, held: int) -> None:
    """Whether all messages are held or the last few, and whatever their sizes: each has its bytes, and they come in their order."""
    dice = random.Random(held)
    sizes = [dice.choice([0, 10, 2000, 16384, 40000, BANK_BYTES // 4, BANK_BYTES // 4 + 1]) for _ in range(60)]
    sent = [push(number, size) for number, size in enumerate(sizes)]
    holding: list[Received] = []
    places = set()
    for message, frames in sent:
        hubs.client.send(hubs.out, message, frames)
        if dice.random() < 0.7 or message is sent[-1][0]:
            until = time.monotonic() + 20
            while (not holding or holding[-1][0] != message) and time.monotonic() < until:
                for received, arrays in hubs.receive(hubs.server, 1):
                    assert isinstance(received, Push)
                    assert received == sent[received.request][0]
                    assert together(arrays) == together(sent[received.request][1])
                    holding.append((received, arrays))
                    places.add(bool(arrays) and lies_in(arrays[0], hubs.back._area))
                    del arrays
        for received, arrays in holding:
            assert isinstance(received, Push)
            assert together(arrays) == together(sent[received.request][1])
            del arrays
        holding = holding[-max(held, 1) :]
    assert holding[-1][0] == sent[-1][0]
    assert places == {True, False}, "some must have gone each way"


@needs_areas
def test_a_worker_that_waits_for_its_pushes_uses_the_same_bytes_again(hubs: Hubs) -> None:
    """Also where the server applies a push after the next one has come, as it acknowledges first."""
    before: list[Received] = []
    places = set()
    for number in range(20):
        hubs.client.send(hubs.out, *push(number, 16384))
        now = hubs.receive(hubs.server, 1)
        places.add(np.frombuffer(now[0][1][0], np.uint8).ctypes.data)
        before = now
    assert len(before) == 1
    assert len(places) == 2


@needs_areas
def test_answers_go_through_it_to_the_memory_that_waits_for_them(tmp_path: Path) -> None:
    target = memoryview(bytearray(80000))
    hubs = Hubs(str(tmp_path / "s"), lambda message, size: target if size == len(target) else None)
    for size in (20000, 10000):
        _, frames = push(size, size)
        assert hubs.server.reply(b"me", Pulled(1, 0, 0, [], []), frames)
        ((_, arrays),) = hubs.receive(hubs.client, 1)
        assert together(arrays) == together(frames)
        assert (arrays[0] is target) == (size == 20000)
        assert not lies_in(arrays[0], hubs.out._area), "values may stay with the caller for long"
    hubs.close()


@needs_areas
def test_arrays_outlive_their_connection_and_the_memory_goes_with_the_last(hubs: Hubs) -> None:
    message, frames = push(1, 16384)
    hubs.client.send(hubs.out, message, frames)
    ((_, arrays),) = hubs.receive(hubs.server, 1)
    area = weakref.ref(hubs.back._area)
    gc.collect()
    gc.disable()
    try:
        hubs.client.close()
        assert hubs.receive(hubs.server, 0) == []
        del hubs.back, hubs.out
        assert area() is None, "an area must not need the garbage collector"
        assert together(arrays) == together(frames)
        del arrays
    finally:
        gc.enable()
    assert hubs.server.bad_messages == 0


@needs_areas
def test_what_was_written_without_a_header_is_never_read(hubs: Hubs, tmp_path: Path) -> None:
    """As by a process that is killed in between."""
    assert hubs.out._area is not None
    assert hubs.out._area.put(push(1, 16384)[1]) is not None
    hubs.client.close()
    assert hubs.receive(hubs.server, 0) == []
    hubs.client = Streams()
    again = hubs.client.connect(str(tmp_path / "s"), b"me")
    assert again is not None
    hubs.out = again
    message, frames = push(2, 16384)
    hubs.client.send(again, message, frames)
    ((received, arrays),) = hubs.receive(hubs.server, 1)
    assert received == message
    assert together(arrays) == together(frames)
    assert hubs.server.bad_messages == 0


@needs_areas
@pytest.mark.parametrize(
    ("place", "size"),
    [
        (0, BANK_BYTES + 4),
        (BANK_BYTES // shared_area.UNIT_BYTES - 1, 128),
        (2 * BANK_BYTES // shared_area.UNIT_BYTES, 4),
        (0xFFFF, 1 << 20),
    ],
)
@pytest.mark.parametrize("in_use", [True, False])
def test_a_place_outside_of_a_bank_ends_the_connection(hubs: Hubs, place: int, size: int, in_use: bool) -> None:
    message = push(1, 1)[0] if in_use else Pulled(1, 0, 0, [], [])
    hubs.out._socket.sendall(wire.head_apart(message, place, size))
    assert hubs.receive(hubs.server, 0) == []
    assert hubs.server.bad_messages == 1
    assert not hubs.back.is_open


def unsealed() -> int:
    return os.memfd_create("x", os.MFD_ALLOW_SEALING)


def sealed(size: int) -> int:
    descriptor = unsealed()
    os.ftruncate(descriptor, size)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    return descriptor


@needs_areas
@pytest.mark.parametrize("kind", ["none", "too small", "not sealed", "a pipe"])
def test_without_an_area_everything_goes_through_the_socket(tmp_path: Path, kind: str) -> None:
    server, stranger = Streams(str(tmp_path / "s")), socket.socket(socket.AF_UNIX)
    stranger.connect(str(tmp_path / "s"))
    hello = together(wire.encode(PeerHello(b"me")))
    if kind == "none":
        stranger.sendall(hello)
    else:
        descriptor = {"too small": lambda: sealed(4096), "not sealed": unsealed, "a pipe": lambda: os.pipe()[0]}[kind]()
        socket.send_fds(stranger, [hello], [descriptor])
    until = time.monotonic() + 20
    while not server.reply(b"me", *push(1, 16384)) and time.monotonic() < until:
        list(server.receive(0.01))
    message, frames = push(1, 16384)
    data = b""
    while len(data) < len(together(wire.encode(message, frames))):
        data += stranger.recv(1 << 20)
    assert data == together(wire.encode(message, frames))
    # A header for an area that is not there.
    stranger.sendall(wire.head_apart(Acked(1, 2, 3), 0, 8192))
    while not server.bad_messages and time.monotonic() < until:
        list(server.receive(0.01))
    assert server.bad_messages == 1
    stranger.close()
    server.close()


def test_systems_without_such_memory_go_on_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> int:
        raise OSError

    monkeypatch.setattr(os, "memfd_create", missing, raising=False)
    hubs = Hubs(str(tmp_path / "s"))
    message, frames = push(1, 16384)
    hubs.client.send(hubs.out, message, frames)
    ((received, arrays),) = hubs.receive(hubs.server, 1)
    assert received == message
    assert together(arrays) == together(frames)
    hubs.close()
