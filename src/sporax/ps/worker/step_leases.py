"""Which samples a training step is for, such that each sample counts exactly once, whatever is killed.

*Synchronous*: the clock says it. The update of clock c belongs to the c-th range of all samples, shared out among the members
of that clock; the successor of a killed worker finds its clock on the servers and repeats the same samples, whose push has
the same name (rank, clock).

*With staleness*: the scheduler leases ranges. A step's push carries its lease, which every slot writes down in the record of
that push: a range that is leased again because its worker died is passed over by the slots that have it already. A lease is
reported as done once its push was acknowledged, and the gradients of its rows are never held back in a cache.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sporax.base.errors import SporaxRuntimeError

if TYPE_CHECKING:
    from sporax.ps.worker.server_connection import ServerConnection


class StepLeases:
    """The samples of this worker's steps.

    Args:
        connection: this worker's.
    """

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection
        self._lease = -1
        self._weight = 1.0
        self._has_pushed = threading.Event()

    @property
    def has_lease(self) -> bool:
        """Whether the present step is for leased samples."""
        return self._lease >= 0

    def of_push(self) -> tuple[int, float]:
        """Lease of a push, -1 for none, and the weight of its gradients."""
        return self._lease, self._weight

    def pushed(self) -> None:
        """Note that a step was made: its push is acknowledged if it carries a lease, or the mode is synchronous."""
        self._has_pushed.set()

    def ranges(self, total: int, size: int, seconds: float) -> Iterator[range]:
        """Ranges of sample numbers, each for exactly one training step.

        Args:
            total: number of samples of the whole job.
            size: samples of one worker's step. In synchronous mode the workers of the start share out `size` times their
                number at every clock, however many members there are then.
            seconds: how long to wait for the step of a range.

        Raises:
            SporaxRuntimeError: several optimizers with served parameters, or no step was made with a range.
        """
        # The clock counts steps of all optimizers, so with two of them it names no single step.
        if len(self._connection.parts) != 1:
            raise SporaxRuntimeError(
                "For 'sample_ranges', the job must have one optimizer with parameters on servers, but has "
                f"{len(self._connection.parts)}."
            )
        if self._connection.store.options.staleness == 0:
            yield from self._by_clock(total, size, seconds)
            return
        for lease, samples in self._connection.store.samples(total, size):
            self._lease, self._weight = lease, float(len(samples))
            yield samples
            # The range ends when its gradients are on the servers, not when user code asks for the next one.
            self._wait_for_step(seconds)
            self._lease, self._weight = -1, 1.0

    def _by_clock(self, total: int, size: int, seconds: float) -> Iterator[range]:
        store = self._connection.store
        first_workers = self._connection.first_workers
        while (start := store.clock * size * first_workers) < total:
            stop = min(start + size * first_workers, total)
            # Members of a clock change when workers join or leave; before the first list all start workers count.
            members = store.members or tuple(range(first_workers))
            position, count = members.index(store.rank), len(members)
            # Bounds are computed from the whole, so the shares cover it without gaps or overlaps.
            share = range(start + position * (stop - start) // count, start + (position + 1) * (stop - start) // count)
            # Gradients are means over a share, so shares of unequal sizes need weights.
            self._weight = float(len(share))
            yield share
            self._wait_for_step(seconds)
        self._weight = 1.0

    def _wait_for_step(self, seconds: float) -> None:
        """The device works on its own time; wait until its step has exchanged gradients for values."""
        if not self._has_pushed.wait(seconds):
            raise SporaxRuntimeError(
                f"For 'sample_ranges', each range must be used for one training step, but none was made in {seconds:.0f} s."
            )
        self._has_pushed.clear()
