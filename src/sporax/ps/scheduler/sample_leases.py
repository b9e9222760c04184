"""Ranges of samples that the scheduler lends to workers, so that each sample counts exactly once.

Problem: a worker that dies has applied some of its samples and not others. Method: samples go out in *leases*, ranges of equal
size. A lease is done when its push is acknowledged, and the journal keeps which are; one whose worker starts again without
having finished it is leased once more, before new ones.
"""

from __future__ import annotations

from sporax.ps.protocol.messages import LeaseSamples
from sporax.ps.scheduler.journal import Journal
from sporax.ps.slots.slot import has_lease, with_lease


class SampleLeases:
    """The leases of one job.

    Args:
        journal: keeps the size of a lease, the number of samples, and what is done.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._open: dict[int, tuple[int, int]] = {}  # by lease the worker's rank and incarnation
        self._returned: list[int] = []
        self._next = 0

    @property
    def has_open_leases(self) -> bool:
        """Whether a worker still has one: it may come back."""
        return bool(self._open)

    def lend(self, message: LeaseSamples) -> int | None:
        """A lease for a worker, the one it has if it has one; None if there is no other."""
        journal = self._journal
        # The first question fixes sizes for the job.
        if journal.lease_size == 0:
            journal.lease_size, journal.lease_total = message.size, message.total
        done = journal.leases_done
        # The last lease may be shorter.
        count = -(-journal.lease_total // journal.lease_size) if journal.lease_size else 0
        lease = next((lease for lease, (rank, _) in self._open.items() if rank == message.rank), None)
        # Returned ones first, so that the set of finished leases has few gaps.
        while lease is None and self._returned:
            returned = self._returned.pop(0)
            lease = None if has_lease(done, returned) else returned
        while lease is None and self._next < count:
            lease = None if has_lease(done, self._next) else self._next
            self._next += 1
        if lease is not None:
            self._open[lease] = (message.rank, message.incarnation)
        return lease

    def samples_of(self, lease: int) -> tuple[int, int]:
        """First sample, and one past the last."""
        # The samples of the last lease end with the job's.
        size = self._journal.lease_size
        return lease * size, min((lease + 1) * size, self._journal.lease_total)

    def finish(self, lease: int) -> bool:
        """Note that a lease's push is acknowledged; gives whether that was news."""
        self._open.pop(lease, None)
        # A worker that continues another one may report a second time.
        if has_lease(self._journal.leases_done, lease):
            return False
        self._journal.leases_done = with_lease(self._journal.leases_done, lease)
        return True

    def take_back(self, rank: int, incarnation: int) -> None:
        """Take back what earlier incarnations of a worker have not finished."""
        for lease, (holder, holder_incarnation) in list(self._open.items()):
            if holder == rank and holder_incarnation < incarnation:
                del self._open[lease]
                self._returned.append(lease)
