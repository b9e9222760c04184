"""What the operator says to a job's scheduler process, and receives from it.

Who takes part in a job is known to its scheduler alone; environment variables are only first sizes. The operator queries it
three things: are all copies of the servers' slots in place (so that one more server may go), has a server handed over all
it held (so that it may be deleted), and sends it a new size. A job whose scheduler does not answer, because it runs
another image or is being replaced, is handled without: nothing is ever deleted on a guess.
"""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import closing

from sporax.k8s.decide.observed import ReportedMembership
from sporax.k8s.resource.spec import Job, scheduler_port
from sporax.ps.client.scheduler_link import Requester
from sporax.ps.protocol.messages import GetStatus, GetWanted, Scale, StatusReply, Wanted

_FIRST_PEACE_SECONDS, _LONGEST_PEACE_SECONDS = 1.0, 30.0
_ANSWER_SECONDS = 0.5  # a scheduler that is up answers in milliseconds; others must not hold up the job


class ParameterServerMembership:
    """Queries the scheduler of Sporax's own parameter server, which listens on the port after the job's.

    A job whose connections are encrypted does not answer: the operator may not read its keys. Who was silent is left in
    peace for a while, twice as long each time, so that jobs with other schedulers cost next to nothing.
    """

    def __init__(self) -> None:
        self._silent: dict[str, tuple[float, float]] = {}  # place: until when, for how long

    async def read(self, job: Job, address: str) -> ReportedMembership | None:
        """What the scheduler of a job, at the pod address `address`, says; None if it does not answer."""
        place, now = _place(job, address), time.monotonic()
        until, wait = self._silent.get(place, (0.0, _FIRST_PEACE_SECONDS / 2))
        if now < until:
            return None
        # ZeroMQ blocks, so it runs in a thread and other jobs go on.
        answer = await asyncio.to_thread(read_membership, place)
        if answer is None:
            wait = min(2 * wait, _LONGEST_PEACE_SECONDS)
            # Who has not been queried for so long is gone.
            self._silent = {
                key: peace for key, peace in self._silent.items() if now < peace[0] + _LONGEST_PEACE_SECONDS
            }
            self._silent[place] = (now + wait, wait)
        else:
            self._silent.pop(place, None)
        return answer

    async def resize(self, job: Job, address: str, workers: int, servers: int) -> None:
        """Send a new size; servers beyond it hand over what they hold."""
        await asyncio.to_thread(_resize, _place(job, address), workers, servers)


def _place(job: Job, address: str) -> str:
    """Where the parameter server's scheduler listens."""
    return f"{address}:{scheduler_port(job.spec) + 1}"


def read_membership(place: str) -> ReportedMembership | None:
    """What the scheduler at `host:port` says; None if it does not answer."""
    with closing(Requester(place)) as requester:
        state = requester.request(GetStatus(), StatusReply, _ANSWER_SECONDS)
        target = requester.request(GetWanted(), Wanted, _ANSWER_SECONDS) if state is not None else None
    if state is None or target is None:
        return None
    facts = json.loads(state.text)
    # With one server, or without replicas, there are no copies to wait for.
    needs_copies = facts["durability"] == "replica" and target.servers > 1
    slots = facts["slots"]  # none before the first server has come
    # A server that was killed a moment ago still holds its slots for the scheduler; one that has left does not count.
    are_there = sum(bool(server["live"]) for server in facts["servers"]) >= target.servers
    is_replicated = not needs_copies or (
        are_there and bool(slots) and all(backup >= 0 and synced for _, backup, synced in slots)
    )
    return ReportedMembership(is_replicated, target.workers, target.servers, frozenset(target.retired))


def _resize(place: str, workers: int, servers: int) -> None:
    """Send the sizes. If this is lost, the next look finds the old sizes and sends again."""
    with closing(Requester(place)) as requester:
        requester.request(Scale(workers, servers), Wanted, _ANSWER_SECONDS)
