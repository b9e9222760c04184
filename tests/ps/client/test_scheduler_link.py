"""What a worker sends the scheduler through its connection."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from sporax.ps.client.scheduler_link import SchedulerLink
from sporax.ps.protocol.messages import (
    Heartbeat,
    HeartbeatReply,
    Holders,
    Initialised,
    Options,
    ProcessAccepted,
    RegisterProcess,
    View,
    ViewReply,
)
from sporax.ps.protocol.wire import decode
from sporax.ps.sockets.transport import Transport, receive, send


class ForgetfulScheduler:
    """Answers as a scheduler that is killed and started again just before its journal has the first `lost` messages."""

    def __init__(self, lost: int) -> None:
        self.reported = 0
        self._lost = lost
        self._transport = Transport(None)
        self._router = self._transport.listen("tcp://127.0.0.1:*")
        self.address = self._router.last_endpoint.decode().removeprefix("tcp://")
        self._closing = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        self._closing = True
        self._thread.join()

    def _run(self) -> None:
        while not self._closing:
            self._router.poll(20)
            while (parts := receive(self._router)) is not None:
                sender, *rest = parts
                message, _ = decode(rest)
                for answer in self._answers(message):
                    send(self._router, answer, to=bytes(sender))
        self._transport.close()

    def _answers(self, message: object) -> Iterator[object]:
        match message:
            case RegisterProcess():
                yield ProcessAccepted(message.node, 0, 1, "job", Options(0, "memory", 1, heartbeat_seconds=0.1))
                yield ViewReply(View(1, [], [Holders(0)], []))
            case Heartbeat():
                yield HeartbeatReply(message.sent, 1)
            case Initialised():
                self.reported += 1
                if self.reported > self._lost:
                    yield message


@pytest.fixture(params=[0, 1, 2])
def scheduler(request: pytest.FixtureRequest) -> Iterator[ForgetfulScheduler]:
    scheduler = ForgetfulScheduler(request.param)
    yield scheduler
    scheduler.close()


def test_that_values_exist_is_reported_until_the_scheduler_has_noted_it(
    scheduler: ForgetfulScheduler, request: pytest.FixtureRequest
) -> None:
    link = SchedulerLink(scheduler.address, node="w", rank=0, keys=None, timeout=30)
    link.initialised()
    link.close()
    assert scheduler.reported == request.node.callspec.params["scheduler"] + 1
