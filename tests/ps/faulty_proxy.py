"""A proxy between clients and a server that drops, repeats, delays and so reorders messages, in both directions."""

from __future__ import annotations

import heapq
import random
import threading
import time
from collections import Counter
from typing import Any

import msgspec
import zmq

from sporax.ps.protocol.messages import ServerAddress
from sporax.ps.sockets.transport import Peers

DROPPED, REPEATED, DELAYED = 0.01, 0.08, 0.15
"""Shares of messages. Clients repeat requests after a second at first, so many lost messages make a test long."""
LONGEST_DELAY = 0.05
"""Seconds: many messages are sent in that time, so a delayed one arrives behind others."""


class FaultyProxy:
    """Stands before one server; clients connect to `address` instead.

    Args:
        server: the server's TCP address.
        seed: of the faults.
    """

    def __init__(self, server: str, seed: int) -> None:
        self.faults: Counter[str] = Counter()
        self._server = server
        self._dice = random.Random(seed)
        self._context = zmq.Context()
        self._front = self._context.socket(zmq.ROUTER)
        self._front.linger = 0
        self.address = f"127.0.0.1:{self._front.bind_to_random_port('tcp://127.0.0.1')}"
        self._backs: dict[bytes, Any] = {}
        self._later: list[tuple[float, int, bytes, bool, list[bytes]]] = []
        self._count = 0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        self._ending.set()
        self._thread.join()
        for back in self._backs.values():
            back.close(0)
        self._front.close(0)
        self._context.term()

    def _run(self) -> None:
        poller = zmq.Poller()
        poller.register(self._front, zmq.POLLIN)
        while not self._ending.is_set():
            for ready, _ in poller.poll(2):
                if ready is self._front:
                    client, *parts = ready.recv_multipart()
                    if client not in self._backs:
                        back = self._context.socket(zmq.DEALER)
                        back.identity, back.linger = client, 0
                        back.connect(f"tcp://{self._server}")
                        poller.register(back, zmq.POLLIN)
                        self._backs[client] = back
                    self._take(client, True, parts)
                else:
                    client = next(name for name, back in self._backs.items() if back is ready)
                    self._take(client, False, ready.recv_multipart())
            while self._later and self._later[0][0] <= time.monotonic():
                _, _, client, up, parts = heapq.heappop(self._later)
                (self._backs[client] if up else self._front).send_multipart(parts if up else [client, *parts])

    def _take(self, client: bytes, up: bool, parts: list[bytes]) -> None:
        """Pass a message on: never, once or twice, now or later."""
        if self._dice.random() < DROPPED:
            self.faults["dropped"] += 1
            return
        copies = 1 + (self._dice.random() < REPEATED)
        self.faults["repeated"] += copies - 1
        for _ in range(copies):
            is_late = self._dice.random() < DELAYED
            self.faults["delayed"] += is_late
            self._count += 1
            when = time.monotonic() + (self._dice.uniform(0, LONGEST_DELAY) if is_late else 0)
            heapq.heappush(self._later, (when, self._count, client, up, parts))


class FaultyNetwork:
    """All clients of this process reach servers through faulty proxies, one for each server."""

    def __init__(self, monkeypatch: Any, seed: int) -> None:
        self.proxies: dict[str, FaultyProxy] = {}
        lock, connect = threading.Lock(), Peers._connect

        def through_proxy(peers: Peers, key: tuple[int, int], server: ServerAddress) -> None:
            with lock:
                if server.tcp not in self.proxies:
                    self.proxies[server.tcp] = FaultyProxy(server.tcp, seed + len(self.proxies))
            connect(peers, key, msgspec.structs.replace(server, tcp=self.proxies[server.tcp].address, ipc=""))

        monkeypatch.setattr(Peers, "_connect", through_proxy)

    @property
    def faults(self) -> Counter[str]:
        return sum((proxy.faults for proxy in self.proxies.values()), Counter())

    def close(self) -> None:
        for proxy in self.proxies.values():
            proxy.close()
