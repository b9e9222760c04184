"""What a worker sees of the servers: parameters and tables to initialise, push gradients to, and pull values from.

One push per slot and step carries the gradients of everything the slot keeps, dense and rows together; the steps of one
worker have clocks 0, 1, 2 ... A worker that starts again continues at the clock of the slots.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from sporax.base.errors import For, SporaxRuntimeError
from sporax.ps.client.client import Client
from sporax.ps.client.scheduler_link import SchedulerLink
from sporax.ps.protocol.messages import (
    Init,
    LeaseSamples,
    Members,
    NotAMember,
    OptimizerSpec,
    Pull,
    Pulled,
    Push,
    SamplesDone,
    Source,
    VariableSpec,
    VariableValues,
    WorkerLeave,
)
from sporax.ps.protocol.wire import EntryReader, Floats, Frame, Ids, chunks
from sporax.ps.slots.row_table import slots_of
from sporax.ps.slots.slot import summed_rows
from sporax.ps.slots.slot_placement import SegmentPlan, dense_layout
from sporax.ps.sockets.security import Keys

# Room for dense groups and tables of one optimizer among the keys of the job.
KEYS_PER_PART = 64
_JOIN_SECONDS = 0.05  # between two looks at whether this worker has become a member
_NO_VALUES = np.empty((0, 1), np.float32)
_FLOAT32 = np.dtype(np.float32)  # compared with each gradient's, which is quicker than with its type


class Dense(Struct, frozen=True):
    """One dense parameter.

    Attributes:
        name: for messages.
        size: number of values.
        group: number of its optimizer in `ServerStore.declare`.
    """

    name: str
    size: int
    group: int


class Ticket(msgspec.Struct, frozen=True):
    """Requests on their way."""

    requests: tuple[int, ...]
    lease: int = -1


class _Part(Struct, frozen=True):
    """What was declared together: the parameters of one optimizer."""

    dense: tuple[Dense, ...]
    groups: tuple[OptimizerSpec, ...]
    first_key: int
    segments: dict[int, list[SegmentPlan]]  # by slot


class _DenseValues:
    """Dense parameters, put together from segments. A segment that is one piece is received where it belongs."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes = sizes
        self._arrays: dict[int, Floats] = {}
        self._buffers: dict[int, memoryview] = {}
        self._is_copy = False

    def place(self, plans: Sequence[SegmentPlan]) -> memoryview | None:
        """Memory for all values of a slot, None if they do not belong together."""
        # Only an answer that is one piece can be received where it belongs.
        if len(plans) != 1 or len(plans[0].pieces) != 1 or not plans[0].size:
            return None
        piece = plans[0].pieces[0]
        view = self._array(piece.index)[piece.start : piece.stop].data.cast("B")
        self._buffers[plans[0].slot] = view
        return view

    def has_taken(self, slot: int, frames: Sequence[Frame]) -> bool:
        """Whether the values of a slot are in their place already."""
        place = self._buffers.pop(slot, None)
        if place is None:
            return False
        # The very memory that was given: the values are there already.
        if len(frames) == 1 and frames[0] is place and not self._is_copy:
            return True
        if not self._is_copy:  # an earlier answer may still be on its way into this memory, so it is not given away
            self._arrays = {index: array.copy() for index, array in self._arrays.items()}
            self._is_copy = True
        return False

    def take(self, plan: SegmentPlan, reader: EntryReader, entry: VariableValues) -> None:
        """Take the values of a segment."""
        _, values = reader.take(entry)
        if values is None:
            return
        for piece in plan.pieces:
            self._array(piece.index)[piece.start : piece.stop] = values[
                piece.offset : piece.offset + piece.stop - piece.start
            ]

    def arrays(self) -> list[Floats]:
        """All of them."""
        return [self._array(index) for index in range(len(self._sizes))]

    def _array(self, index: int) -> Floats:
        if index not in self._arrays:
            self._arrays[index] = np.empty(self._sizes[index], np.float32)
        return self._arrays[index]


class _PullPlan(Struct):
    """Requests of one pull and where their answers go; `rows`: by slot and table which of the requested rows come from there."""

    requests: list[tuple[int, int]] = field(default_factory=list)
    rows: dict[tuple[int, int], npt.NDArray[np.int64]] = field(default_factory=dict)
    widths: dict[int, tuple[int, int]] = field(default_factory=dict)
    part: _Part | None = None
    clock: int = -1
    dense: _DenseValues = field(default_factory=lambda: _DenseValues([]))


class ServerStore:
    """The servers' values as one worker uses them.

    Args:
        scheduler: ``host:port``.
        node: name of this process over restarts.
        rank: requested rank, -1 for any.
        keys: of the job.
        timeout: seconds to wait for the cluster, and for any answer.
    """

    def __init__(
        self, scheduler: str, *, node: str = "", rank: int = -1, keys: Keys | None = None, timeout: float = 600.0
    ) -> None:
        self.link = SchedulerLink(scheduler, node=node, rank=rank, keys=keys, timeout=timeout)
        self._client = Client(self.link, keys, timeout)
        assert self.link.welcome is not None
        self.options = self.link.welcome.options
        self.first_workers = self.link.welcome.first_workers
        self.rank = self.link.rank
        self.clock = 0
        self.members: tuple[int, ...] = ()
        self._parts: list[_Part] = []
        self._tables: dict[int, VariableSpec] = {}
        self._seq = [0] * self.options.num_slots

    def declare(
        self, dense: Sequence[Dense], groups: Sequence[OptimizerSpec], tables: Sequence[VariableSpec] = ()
    ) -> int:
        """Register what one optimizer moves; gives the number of that part. All workers must register the same in one order.

        Args:
            dense: dense parameters.
            groups: optimizers of the dense parameters; their keys are ``part * KEYS_PER_PART + group``.
            tables: embedding tables, with other keys of the same range.
        """
        first_key = len(self._parts) * KEYS_PER_PART
        keys = [first_key + entry.group for entry in dense]
        # Looked up per slot at every step.
        segments: dict[int, list[SegmentPlan]] = {}
        for segment in dense_layout([entry.size for entry in dense], keys, self.options.num_slots):
            segments.setdefault(segment.slot, []).append(segment)
        self._parts.append(_Part(tuple(dense), tuple(groups), first_key, segments))
        self._tables |= {table.key: table for table in tables}
        return len(self._parts) - 1

    def initialise(self, values: Sequence[Floats] | None, *, part: int = 0) -> None:
        """Create a part on the servers if it is not there yet; the first part then continues at their clock.

        Args:
            values: first values of the dense parameters, from the first rank; None from others, who wait for it.
            part: number of the part.
        """
        if values is not None:
            flat = [_flat(value) for value in values]
            # Slots without values of this part get it, too: each must know that it is initialised.
            requests = [self._submit_init(slot, self._parts[part], flat) for slot in range(self.options.num_slots)]
            self._client.wait_all(requests)
            self.link.initialised()
        if part == 0:
            # The clock belongs to the worker, not to a part.
            self.rejoin()

    def _submit_init(self, slot: int, part: _Part, flat: Sequence[Floats]) -> int:
        plans = part.segments.get(slot, [])
        optimizers = {plan.key: part.groups[plan.key - part.first_key] for plan in plans}
        specs = [VariableSpec(plan.key, f"dense-{plan.key}", plan.size, 0, optimizers[plan.key]) for plan in plans]
        last_key = part.first_key + KEYS_PER_PART
        specs += [table for key, table in self._tables.items() if part.first_key <= key < last_key]
        entries = [VariableValues(plan.key, 0.0, -1, plan.size) for plan in plans]
        frames = [frame for plan in plans for frame in chunks(_gathered(plan, flat))]
        return self._client.submit(slot, lambda request, epoch: Init(request, slot, epoch, specs, entries), frames)

    def rejoin(self) -> bool:
        """Find the clock at which this worker goes on; False where the job goes on, or has ended, without it.

        It is the lowest of all slots (they differ by one at most). A worker whose place is at a later clock waits here until the
        slots are there: if the members before it die, its place may move to an earlier clock.
        """
        self.members = ()
        while not self.link.is_over:
            try:
                requests = [self._submit_pull(slot, -1, [], []) for slot in range(self.options.num_slots)]
                # The lowest clock: a slot that is ahead keeps its values of one clock ago.
                answers = [message for message, _ in self._client.wait_all(requests) if isinstance(message, Pulled)]
            except SporaxRuntimeError:
                if self.link.is_over:
                    break
                raise
            lowest = min((answer.clock for answer in answers), default=0)
            view = self.link.view
            if self.options.staleness != 0 or view is None:
                self.clock = lowest
                return True
            place = _place(view.members, self.rank, lowest)
            if place is not None and place.clock == lowest:
                self.clock, self.members = place.clock, tuple(place.ranks)
                return True
            # The slots will wait for a worker that has a place, also if it is dismissed after it.
            if place is None and self.leave_if_dismissed():
                break
            time.sleep(_JOIN_SECONDS)
        return False

    def push(
        self,
        gradients: Sequence[Floats],
        rates: Sequence[float],
        rows: Mapping[int, tuple[Ids, Floats, float]] | None = None,
        *,
        weight: float = 1.0,
        lease: int = -1,
        part: int = 0,
        dense: bool = True,
    ) -> Ticket:
        """Send the gradients of one step; it counts once `wait` has returned.

        Args:
            gradients: of the dense parameters, in the order declared.
            rates: learning rate of each group.
            rows: by table: row ids, their gradients of shape (rows, width), learning rate. Repeated ids are summed here.
            weight: share of this worker in the combined gradient, e.g. its number of samples.
            lease: of the samples, -1 for none.
            part: whose parameters these are.
            dense: whether `gradients` are there; False pushes rows alone, and no dense parameter moves.
        """
        owner = self._parts[part]
        flat = [_flat(gradient) for gradient in gradients]
        segments = owner.segments if dense else {}
        by_slot = self._rows_by_slot(rows) if rows else None
        requests = []
        for slot in range(self.options.num_slots):  # also those it has nothing for: every slot counts every step
            entries: list[VariableValues] = []
            frames: list[Frame] = []
            for plan in segments.get(slot, ()):
                key = plan.key
                entries.append(VariableValues(key, float(rates[key - owner.first_key]), -1, plan.size))
                frames += chunks(_gathered(plan, flat))
            for key, ids, values, rate in by_slot.get(slot, ()) if by_slot else ():
                entries.append(VariableValues(key, float(rate), len(ids), values.size))
                frames += [*chunks(ids), *chunks(values)]
            requests.append(self._submit_push(slot, entries, frames, weight, lease))
        self.clock += 1
        # The status page shows how far every worker is.
        self.link.gauges["clock"] = float(self.clock)
        return Ticket(tuple(requests), lease)

    def _submit_push(
        self, slot: int, entries: list[VariableValues], frames: list[Frame], weight: float, lease: int
    ) -> int:
        self._seq[slot] = seq = self._seq[slot] + 1
        source = Source(self.rank, self.link.incarnation, seq, self.clock, lease)
        return self._client.submit(
            slot, lambda request, epoch: Push(request, slot, epoch, source, weight, entries), frames, seq
        )

    def _rows_by_slot(
        self, rows: Mapping[int, tuple[Ids, Floats, float]]
    ) -> dict[int, list[tuple[int, Ids, Floats, float]]]:
        result: dict[int, list[tuple[int, Ids, Floats, float]]] = {}
        for key, (ids, values, rate) in rows.items():
            # Repeated ids are summed here, which saves bytes on the way.
            ids, values = summed_rows(np.ascontiguousarray(ids, np.int64), np.ascontiguousarray(values, np.float32))
            slots = slots_of(ids, self.options.num_slots)
            order = np.argsort(slots, kind="stable")
            # Sorted by slot, each slot's rows are one range.
            starts = np.searchsorted(slots[order], np.arange(self.options.num_slots + 1))
            for slot in range(self.options.num_slots):
                part = order[starts[slot] : starts[slot + 1]]
                if len(part):
                    result.setdefault(slot, []).append((key, ids[part], values[part], rate))
        return result

    def wait(self, ticket: Ticket) -> bool:
        """Return when every slot has acknowledged: from then on the push is not lost, whatever ends.

        False in synchronous mode where the others have made that step without this worker, which was silent for longer than
        its lease: its gradients do not count, and `rejoin` says where it goes on.
        """
        answers = self._client.wait_all(ticket.requests)
        if ticket.lease >= 0:
            # Only after all slots have acknowledged: the lease is then done whatever ends.
            self.link.notify(SamplesDone(self.rank, ticket.lease))
        # Only synchronous pushes have such answers.
        return self.options.staleness != 0 or NotAMember not in [type(message) for message, _ in answers]

    def start_pull(
        self,
        tables: Mapping[int, Ids] | None = None,
        *,
        dense: bool = True,
        newest: bool = False,
        part: int = 0,
        ahead: int = 0,
    ) -> _PullPlan:
        """Request values as of this worker's clock; `finish_pull` gives them.

        Args:
            tables: row ids by table.
            dense: request the dense parameters.
            newest: whatever the servers have now.
            part: whose dense parameters.
            ahead: request the values of so many clocks later; the servers answer once they are there.
        """
        owner = self._parts[part] if dense else None
        clock = -1 if newest else self.clock + ahead
        dense_values = _DenseValues([entry.size for entry in owner.dense] if owner else [])
        plan = _PullPlan(part=owner, dense=dense_values, clock=clock)
        requests = self._requested_rows(plan, tables or {})
        for slot in range(self.options.num_slots):
            segments, rows = owner.segments.get(slot, []) if owner else [], requests.get(slot, [])
            entries = [VariableValues(segment.key, 0.0, -1, 0) for segment in segments]
            entries += [VariableValues(key, 0.0, len(ids), 0) for key, ids in rows]
            frames = [frame for _, ids in rows for frame in chunks(ids)]
            # With rows in the same answer its parts do not belong together.
            into = None if rows else plan.dense.place(segments)
            if entries:
                plan.requests.append((slot, self._submit_pull(slot, clock, entries, frames, into)))
        return plan

    def _requested_rows(self, plan: _PullPlan, tables: Mapping[int, Ids]) -> dict[int, list[tuple[int, Ids]]]:
        """The rows to request from each slot, by table; notes in the plan where their values go."""
        requests: dict[int, list[tuple[int, Ids]]] = {}
        for key, ids in tables.items():
            ids = np.ascontiguousarray(ids, np.int64).reshape(-1)
            slots = slots_of(ids, self.options.num_slots)
            plan.widths[key] = (len(ids), self._tables[key].width)
            for slot in map(int, np.unique(slots)):
                plan.rows[(slot, key)] = positions = np.flatnonzero(slots == slot)
                requests.setdefault(slot, []).append((key, ids[positions]))
        return requests

    def _submit_pull(
        self, slot: int, clock: int, entries: list[VariableValues], frames: list[Frame], into: memoryview | None = None
    ) -> int:
        return self._client.submit(
            slot, lambda request, epoch: Pull(request, slot, epoch, self.rank, clock, entries), frames, into=into
        )

    def finish_pull(self, plan: _PullPlan) -> tuple[list[Floats], dict[int, Floats]]:
        """Values of the dense parameters (flat) and rows of the tables, in the order they were requested."""
        dense = plan.dense
        rows = {key: np.empty(shape, np.float32) for key, shape in plan.widths.items()}
        has_all = True
        for slot, request in plan.requests:
            message, frames = self._client.wait(request)
            if not isinstance(message, Pulled):
                raise For("sporax.ps").state_error("a pull must be answered by values", message)
            # A slot that is further than a member lets it come has gone on without this worker.
            has_gone_on = self.options.staleness == 0 and message.clock > plan.clock >= 0
            self.members = () if has_gone_on else tuple(message.ranks)
            has_all = has_all and not has_gone_on
            if dense.has_taken(slot, frames):
                continue
            reader = EntryReader(frames)
            segments = {segment.key: segment for segment in plan.part.segments.get(slot, [])} if plan.part else {}
            for entry in message.entries:
                if entry.key in segments:
                    dense.take(segments[entry.key], reader, entry)
                else:
                    positions, width = plan.rows[(slot, entry.key)], plan.widths[entry.key][1]
                    _, values = reader.take(entry)
                    rows[entry.key][positions] = _NO_VALUES if values is None else values.reshape(-1, width)
        self.members = self.members if has_all else ()
        return dense.arrays(), rows

    def give_up(self, plan: _PullPlan) -> None:
        """Want the values of a pull no more."""
        self._client.forget([request for _, request in plan.requests])

    def pull(
        self, tables: Mapping[int, Ids] | None = None, *, dense: bool = True, newest: bool = False, part: int = 0
    ) -> tuple[list[Floats], dict[int, Floats]]:
        """`start_pull` and `finish_pull`."""
        return self.finish_pull(self.start_pull(tables, dense=dense, newest=newest, part=part))

    @property
    def is_member(self) -> bool:
        """Whether this worker's gradients count at its clock, as its last pull has reported; else `rejoin` says what to do."""
        return self.options.staleness != 0 or self.rank in self.members

    @property
    def is_retired(self) -> bool:
        """Whether the job goes on without this worker, or has ended."""
        return self.link.has_left or self.link.is_over

    def leave_if_dismissed(self) -> bool:
        """Leave where the job became smaller, or has ended; gives whether that is so.

        Between two steps and with nothing on its way: what a worker pushes after it has left need not count.
        """
        # A member goes on to the clock from which it is none: the slots wait for its gradients until then.
        if self.is_retired or (self.options.staleness == 0 and self.is_member):
            return self.is_retired
        return self.link.leave_if_dismissed(WorkerLeave(self.rank, self.link.incarnation, self.clock, False))

    def samples(self, total: int, size: int) -> Iterator[tuple[int, range]]:
        """Leases of sample ranges until all samples are done; each is applied exactly once, whoever dies.

        Args:
            total: number of samples.
            size: samples of one lease.

        Yields:
            (lease, range of sample numbers); give the lease to `push` and wait for the ticket.
        """
        request = 0
        while not self.is_retired:
            if self.link.stopped:
                raise SporaxRuntimeError(f"For 'sporax.ps', the job must run, but it has ended: {self.link.stopped}")
            request += 1
            message = LeaseSamples(request, self.rank, self.link.incarnation, total, size)
            answer = self.link.request_samples(message, 1.0)
            if answer is None:
                # No answer in time: the scheduler is away, and the question is repeated.
                continue
            if answer.lease == -2:
                return
            if answer.lease == -1:
                self._pass_over(answer.start)
                continue
            yield answer.lease, range(answer.start, answer.stop)

    def _pass_over(self, newest: int) -> None:
        """Wait for samples, which others hold; with bounded staleness without holding up those that are at later clocks."""
        # An empty push: the clock advances, and no value changes.
        if self.options.staleness > 0 and self.clock < newest:
            self.wait(self.push([], [], dense=False))
        else:
            time.sleep(0.05)

    def close(self, *, finished: bool = True) -> None:
        """Leave the job; `finished` is False where another process continues as this rank."""
        if finished:
            self.link.leave(WorkerLeave(self.rank, self.link.incarnation, self.clock, True), 5.0)
        self.link.close()
        self._client.close()


def _place(members: Sequence[Members], rank: int, clock: int) -> Members | None:
    """The first clock, from `clock` on, at which a rank is a member, and all members of it; None if there is none yet."""
    present = [Members(clock, entry.ranks) for entry in members if entry.clock <= clock][-1:]
    coming = [entry for entry in members if entry.clock > clock]
    return next((entry for entry in (*present, *coming) if rank in entry.ranks), None)


def _flat(values: Floats) -> Floats:
    """Values in one row: the caller's array where it is one already, else a view of it where it is contiguous."""
    if values.ndim == 1 and values.dtype == _FLOAT32 and values.flags.c_contiguous:
        return values
    return np.ascontiguousarray(values, np.float32).reshape(-1)


def _gathered(plan: SegmentPlan, flat: Sequence[Floats]) -> Floats:
    """The values of a segment, out of flat parameters."""
    pieces = plan.pieces
    if len(pieces) == 1:
        piece = pieces[0]
        values = flat[piece.index]
        return values if plan.size == len(values) else values[piece.start : piece.stop]
    return np.concatenate([flat[piece.index][piece.start : piece.stop] for piece in pieces])
