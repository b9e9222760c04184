"""What the operator says to a job's scheduler process, and hears from it.

Who takes part in a job is known to its scheduler alone; environment variables are only first sizes. The operator asks it
three things: are all copies of the servers' slots in place (so that one more server may go), has a server handed over all
it held (so that it may be deleted), and it tells it a new size. A job whose scheduler does not answer, because it runs
another image or is being replaced, is handled without: nothing is ever deleted on a guess.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from typing import Protocol, TypeVar

from sporax.k8s.observed import Membership
from sporax.k8s.spec import Job, scheduler_port
from sporax.ps.messages import GetStatus, GetWanted, Message, Scale, StatusIs, Wanted
from sporax.ps.transport import Transport, receive, send
from sporax.ps.wire import WireError, decode

_FIRST_PEACE_SECONDS, _LONGEST_PEACE_SECONDS = 1.0, 30.0
_ANSWER_SECONDS = 0.5  # a scheduler that is up answers in milliseconds; others must not hold up the job


class MembershipClient(Protocol):
    """A way to talk to jobs' schedulers."""

    async def read(self, job: Job, address: str) -> Membership | None:
        """What the scheduler of a job, at the pod address `address`, says; None if it does not answer."""

    async def resize(self, job: Job, address: str, workers: int, servers: int) -> None:
        """Tell a new size; servers beyond it hand over what they hold."""


class ParameterServerMembership:
    """Asks the scheduler of Sporax's own parameter server, which listens on the port after the job's.

    A job whose connections are encrypted does not answer: the operator may not read its keys. Who was silent is left in
    peace for a while, twice as long each time, so that jobs with other schedulers cost next to nothing.
    """

    def __init__(self) -> None:
        self._silent: dict[str, tuple[float, float]] = {}  # place: until when, for how long

    async def read(self, job: Job, address: str) -> Membership | None:
        """What the scheduler says; None if it does not answer."""
        place, now = _place(job, address), time.monotonic()
        until, wait = self._silent.get(place, (0.0, _FIRST_PEACE_SECONDS / 2))
        if now < until:
            return None
        answer = await asyncio.to_thread(_read, place)
        if answer is None:
            wait = min(2 * wait, _LONGEST_PEACE_SECONDS)
            self._silent[place] = (now + wait, wait)
        else:
            self._silent.pop(place, None)
        return answer

    async def resize(self, job: Job, address: str, workers: int, servers: int) -> None:
        """Tell a new size."""
        await asyncio.to_thread(_resize, _place(job, address), workers, servers)


def _place(job: Job, address: str) -> str:
    """Where the parameter server's scheduler listens."""
    return f"{address}:{scheduler_port(job.spec) + 1}"


def _read(place: str) -> Membership | None:
    """Ask for the state and the sizes."""
    answer = _ask(place, GetStatus(), StatusIs)
    wanted = _ask(place, GetWanted(), Wanted) if answer is not None else None
    if answer is None or wanted is None:
        return None
    state = json.loads(answer.text)
    needs_copies = state["durability"] == "replica" and wanted.servers > 1
    is_replicated = not needs_copies or all(backup >= 0 and synced for _, backup, synced in state["slots"])
    return Membership(is_replicated, wanted.workers, wanted.servers, frozenset(wanted.retired))


def _resize(place: str, workers: int, servers: int) -> None:
    """Tell the sizes. If this is lost, the next look finds the old sizes and tells again."""
    _ask(place, Scale(workers, servers), Wanted)


Answer = TypeVar("Answer", bound=Message)


def _ask(place: str, question: Message, kind: type[Answer]) -> Answer | None:
    """One question over a connection of its own; None when no answer came in time."""
    transport, end = Transport(None), time.monotonic() + _ANSWER_SECONDS
    try:
        socket = transport.connect(f"tcp://{place}", b"operator-" + uuid.uuid4().bytes)
        send(socket, question)
        while (left := end - time.monotonic()) > 0:
            socket.poll(left * 1000)
            while (parts := receive(socket)) is not None:
                try:
                    message = decode(parts)[0]
                except WireError:
                    continue
                if isinstance(message, kind):
                    return message
    finally:
        transport.close()
    return None
