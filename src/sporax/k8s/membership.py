"""What the operator says to a job's scheduler process, and hears from it.

Who takes part in a job is known to its scheduler alone; environment variables are only first sizes. The operator asks it
three things: are all copies of the servers' slots in place (so that one more server may go), has a server handed over all
it held (so that it may be deleted), and it tells it a new size. A job whose scheduler does not answer, because it runs
another image or is being replaced, is handled without: nothing is ever deleted on a guess.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sporax.k8s.observed import Membership
from sporax.k8s.spec import Job


class MembershipClient(Protocol):
    """A way to talk to jobs' schedulers."""

    async def read(self, job: Job, address: str) -> Membership | None:
        """What the scheduler of a job, at the pod address `address`, says; None if it does not answer."""

    async def drain(self, job: Job, address: str, servers: Sequence[str]) -> None:
        """Ask that these servers, named as their pods, hand over all they hold."""

    async def resize(self, job: Job, address: str, workers: int, servers: int) -> None:
        """Tell a new size."""
