"""A worker's connection to parameter servers: its optimizers' parts of the store, and the exchange of a step.

In synchronous mode an exchange waits for the values of the next clock. With staleness it takes the values that were requested
one step before and leaves its own push and pull on their way, so that both overlap with the device's next step.

`StepLeases` says which samples a step is for, such that each counts exactly once, whatever is killed.

*Synchronous*: the clock says it. The update of clock c belongs to the c-th range of all samples, shared out among the members
of that clock; the successor of a killed worker finds its clock on the servers and repeats the same samples, whose push has
the same name (rank, clock).

*With staleness*: the scheduler leases ranges. A step's push carries its lease, which every slot writes down in the record of
that push: a range that is leased again because its worker died is passed over by the slots that have it already. A lease is
reported as done once its push was acknowledged, and the gradients of its rows are never held back in a cache.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from sporax.base.errors import For, SporaxRuntimeError
from sporax.ps.client.store import KEYS_PER_PART, Dense, ServerStore, Ticket
from sporax.ps.protocol.messages import OptimizerSpec, VariableSpec
from sporax.ps.worker.row_cache import NextBatches, RowCache, lifetime

Floats = npt.NDArray[np.float32]
FIRST_TABLE_KEY = 32
"""Keys of a part from here on are tables'; before it, dense groups'."""
_ROWS_PER_FETCH = 1 << 16
"""Rows of one pull when a whole table is read: 16 MiB at width 64."""


class ServedPart(Struct):
    """The served parameters of one optimizer.

    Attributes:
        number: of the part in the store.
        shapes: of the dense parameters.
        tables: caches of its tables.
        table_groups: the number of each table's learning rate.
    """

    number: int
    shapes: list[tuple[int, ...]]
    tables: list[RowCache]
    table_groups: list[int] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    tickets: list[Ticket] = field(default_factory=list)
    pull: Any = None
    values: list[Floats] = field(default_factory=list)


class ServerConnection:
    """A worker's place in the job.

    Args:
        store: the servers' values.
        first_workers: number of workers at the start of the job.
        step_seconds: how long a step may take.
    """

    def __init__(self, store: ServerStore, *, first_workers: int = 1, step_seconds: float = 600.0) -> None:
        self.store = store
        self.first_workers = first_workers
        self.step_seconds = step_seconds
        self.parts: list[ServedPart] = []
        # Reentrant: an exchange reads values, and both take the lock.
        self.lock = threading.RLock()
        self.next_batches = NextBatches()
        self.leases = StepLeases(self)
        self._steps_done = 0
        self._has_rejoined = self._is_in_turn = False
        self._closed = False

    @property
    def clocks_per_step(self) -> int:
        """By how much the clock advances from one step's lookup to the next one's."""
        return max(1, len(self.parts))

    @staticmethod
    def optimizer_spec(rule: str, constants: dict[str, float], decay: float, scale: float) -> OptimizerSpec:
        """How servers move values: a rule with its constants, weight decay, and a factor of the gradients."""
        return OptimizerSpec(rule, constants, decay, scale)

    def attach(
        self,
        names: Sequence[str],
        values: Sequence[Floats],
        groups: Sequence[int],
        optimizers: Sequence[OptimizerSpec],
        tables: Sequence[tuple[RowCache, int]],
    ) -> ServedPart:
        """Declare the served parameters of one optimizer; rank 0's values become everyone's.

        Args:
            names, values, groups: of the dense parameters: name, first value, number of the optimizer.
            optimizers: by group.
            tables: with the numbers of their optimizers.
        """
        number = len(self.parts)
        specs: list[VariableSpec] = []
        for position, (table, group) in enumerate(tables):
            # Keys are unique in the job: each part has a range, dense groups first, then tables.
            table.key = number * KEYS_PER_PART + FIRST_TABLE_KEY + position
            settings = table.settings | {"max_rows": table.rows_per_slot(self.store.options.num_slots)}
            specs.append(VariableSpec(table.key, table.name, 0, table.width, optimizers[group], **settings))
        dense = [Dense(name, value.size, group) for name, value, group in zip(names, values, groups, strict=True)]
        self.store.declare(dense, optimizers, specs)
        self.store.initialise(values if self.store.rank == 0 else None, part=number)
        self._end_retired()  # while it waited to become a member
        caches, table_groups = [table for table, _ in tables], [group for _, group in tables]
        part = ServedPart(number, [value.shape for value in values], caches, table_groups)
        self.parts.append(part)
        # A process that continues a killed one, or joins, starts at the clock that the servers have.
        if self._joins:
            self._steps_done = self.store.clock // len(self.parts)
        return part

    def take_steps_done(self) -> int:
        """Steps of this rank that the servers have already, made by a process that this one continues; 0 the second time."""
        # Cleared when it is read: only the first loop after the start skips steps.
        done, self._steps_done = self._steps_done, 0
        return done

    def values(self, part: ServedPart) -> list[Floats]:
        """The dense parameters of a part at this worker's clock."""
        with self.lock:
            return self._values_as_member(part)

    def fetch(self, rows: Mapping[int, npt.NDArray[np.int64]]) -> Any:
        """Rows of tables at this worker's clock."""
        with self.lock:
            return self.store.pull(rows, dense=False)

    def exchange(self, part: ServedPart, rates: Floats, gradients: Sequence[Floats]) -> list[Floats]:
        """Push one step's gradients and give the values for the next one.

        Args:
            part: whose step it is.
            rates: learning rate of each group.
            gradients: of the dense parameters, then of the tables' caches.
        """
        with self.lock:
            if self._is_done_already(part):
                return self.values(part)
            count, part.rates = len(part.shapes), [float(rate) for rate in rates]
            # A lease counts once as a whole, so nothing of its samples may stay behind in a cache.
            steps = 0 if self.leases.has_lease else lifetime(self.store.options.staleness)
            rows = {}
            for table, group, gradient in zip(part.tables, part.table_groups, gradients[count:], strict=True):
                ids, values = table.take_gradient(gradient, self.store.clock, steps)
                rows[table.key] = (ids, values, part.rates[group])
            lease, weight = self.leases.of_push()
            ticket = self.store.push(
                list(gradients[:count]), part.rates, rows, part=part.number, lease=lease, weight=weight
            )
            # The first exchange of a part has no earlier values, so it waits as in synchronous mode.
            if self.store.options.staleness == 0 or not part.values:
                part.values = self._values_as_member(part, ticket)
            else:
                part.values = self._earlier_values(part, ticket)
            # Nothing may be on its way when it leaves.
            if self.store.link.dismissed and self.store.options.staleness != 0:
                self.write_back()
                self.store.leave_if_dismissed()
            self._end_retired()
            self.leases.pushed()
            return part.values

    def write_back(self) -> None:
        """Push the gradients of rows that are only in this worker's caches, and wait until they are acknowledged.

        In synchronous mode there are none: every step writes back its own.
        """
        with self.lock:
            for part in self.parts:
                # Without this a checkpoint would miss rows that only this cache has.
                rows = {}
                for table, group in zip(part.tables, part.table_groups, strict=True):
                    ids, values = table.take_dirty()
                    if len(ids):
                        rows[table.key] = (ids, values, part.rates[group])
                if rows:
                    part.tickets.append(self.store.push([], [], rows, part=part.number, dense=False))
                for ticket in part.tickets:
                    self.store.wait(ticket)
                part.tickets = []

    def full_table(self, table: RowCache) -> Floats:
        """All rows of a table as the servers have them, for a checkpoint; what is only in the cache is written back first."""
        with self.lock:
            self.write_back()
            parts = [
                self.fetch({table.key: np.arange(first, min(first + _ROWS_PER_FETCH, table.num_rows))})[1][table.key]
                for first in range(0, table.num_rows, _ROWS_PER_FETCH)
            ]
            return np.concatenate(parts)

    def _values_as_member(self, part: ServedPart, ticket: Ticket | None = None) -> list[Floats]:
        """The values of this worker's clock, after its push is acknowledged; where it is no member, of its next clock.

        Every answer of the servers may say that the job goes on without this worker, or has gone on while it was silent.
        """
        flat: list[Floats] = []
        try:
            plan = self.store.start_pull(part=part.number)
            counted = ticket is None or self.store.wait(ticket)
            if counted:
                flat, _ = self.store.finish_pull(plan)
            else:
                # The slots may wait for this worker at the very clock of its push, so the next one may never come.
                self.store.give_up(plan)
        except SporaxRuntimeError:
            self._end_retired()  # it was away for so long that the job has ended meanwhile
            raise
        while not (counted and self.store.is_member):
            self.store.rejoin()
            self._end_retired()
            self._has_rejoined, self._is_in_turn = True, False
            (flat, _), counted = self.store.pull(part=part.number), True
        return self._shaped(part, flat)

    def _earlier_values(self, part: ServedPart, ticket: Ticket) -> list[Floats]:
        """Values requested a step ago; this step's push and pull stay on their way."""
        values = part.values
        if part.pull is not None:
            values = self._shaped(part, self.store.finish_pull(part.pull)[0])
        # At most one push of a part is on its way, which bounds how stale the servers can be.
        for earlier in part.tickets:
            self.store.wait(earlier)
        part.tickets = [ticket]
        if self.leases.has_lease:  # the next range is given out when this one is done
            self.store.wait(part.tickets.pop())
        part.pull = self.store.start_pull(part=part.number)
        return values

    @property
    def _joins(self) -> bool:
        """Whether others have made steps of the job before this process's first one, or meanwhile."""
        return self.store.link.incarnation > 1 or self.store.rank >= self.first_workers or self._has_rejoined

    def _is_done_already(self, part: ServedPart) -> bool:
        """Whether this step of this part was made by a process that this one continues, or before this one joined.

        With several optimizers the steps of a clock go round: clock c is a step of part c modulo their number. So a process
        that comes in the middle of a round passes over parts until it is the turn of the one that it is at.
        """
        if self.store.options.staleness != 0 or self._is_in_turn or not self._joins:
            return False
        self._is_in_turn = part.number == self.store.clock % len(self.parts)
        return not self._is_in_turn

    def _shaped(self, part: ServedPart, flat: Sequence[Floats]) -> list[Floats]:
        return [value.reshape(shape) for value, shape in zip(flat, part.shapes, strict=True)]

    def _end_retired(self) -> None:
        """End this process well if the job goes on without it."""
        if self.store.is_retired:
            print(f"sporax: rank {self.store.rank} leaves the job, which needs fewer workers", flush=True)
            self.close()
            sys.stdout.flush()
            os._exit(0)  # the device waits inside a program, which nothing else ends

    def close(self) -> None:
        """Finish what is on its way and leave the job."""
        if self._closed:
            return
        self._closed = True
        # After an exception, rows that were not acknowledged are lost, as they are when a worker is killed.
        failed = getattr(sys, "last_type", None) is not None
        if not failed:
            self.write_back()
        self.store.close(finished=not failed)


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
            raise For("sample_ranges").state_error(
                f"the job must have one optimizer with parameters on servers, but has {len(self._connection.parts)}"
            )
        if self._connection.store.options.staleness == 0:
            yield from self._by_clock(total, size, seconds)
            return
        for lease, samples in self._connection.store.samples(total, size):
            self._lease, self._weight = lease, float(len(samples))
            yield samples
            # The range ends when its gradients are on the servers, not when user code requests the next one.
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
