"""Everything one slot keeps. It changes only by applying records, in order, so that every copy of a slot that applied the
same records is the same to the last bit: primary, backup, and what a log gives back.

A dense variable keeps its value of one clock ago as well: after a worker died in the middle of a step, some slots have
made the step and some have not, and its successor must see all of them as they were.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import final

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from sporax.base.errors import For
from sporax.ps.protocol import wire
from sporax.ps.protocol.messages import Members, Record, SlotImage, VariableSpec, VariableValues
from sporax.ps.slots import update
from sporax.ps.slots.row_table import RowTable

_NO_VALUES = np.empty(0, np.float32)


@final
class Segment:
    """A flat dense piece of one or more parameters, with the optimizer's state."""

    def __init__(self, spec: VariableSpec, value: wire.Floats) -> None:
        self.spec = spec
        self.value = value
        # The value of one clock ago, once there is one.
        self.before: wire.Floats | None = None
        self.changed = 0
        self.state = tuple(np.full(spec.size, first, np.float32) for first in update.first_state(spec.optimizer))
        self.scalars = dict(update.rule_of(spec.optimizer).scalars)

    def update(self, gradient: wire.Floats, rate: float, *, keep_before: bool = True) -> None:
        """Move; no array is changed in place, as answers on their way have the old one, and the next clock if it is kept."""
        optimizer, scalars = self.spec.optimizer, self.scalars
        if scalars:
            self.scalars = update.advanced(optimizer, scalars)
        moved = update.move(optimizer, gradient, self.value, self.state, rate, self.scalars)
        # Freed memory is the first that the next message gets, and still in the cache.
        self.before = self.value if keep_before else None
        self.value, self.state = moved[0], moved[1:]

    @property
    def num_bytes(self) -> int:
        """Memory of value and state."""
        return self.spec.size * 4 * (1 + len(self.state))


Leases = list[tuple[int, int]]
"""A set of lease numbers, as ranges: it stays small while they are finished roughly in order."""


def has_lease(leases: Leases, lease: int) -> bool:
    """Whether a number is in a set."""
    return any(start <= lease < stop for start, stop in leases)


def with_lease(leases: Leases, lease: int) -> Leases:
    """The set with one more number."""
    merged: Leases = []
    # Neighbouring ranges merge, so that finishing in order keeps one range.
    for start, stop in sorted([*leases, (lease, lease + 1)]):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((start, stop))
    return merged


def ranks_at(members: Iterable[Members], clock: int) -> list[int]:
    """Members whose gradients make the update of a clock."""
    ranks: list[int] = []
    for entry in members:
        # The last entry that has begun.
        ranks = entry.ranks if entry.clock <= clock else ranks
    return ranks


class SlotState(Struct):
    """The state of one slot.

    Attributes:
        slot: its number.
        staleness: of the job; 0 makes `clock` count combined updates.
        lsn: records applied.
        epoch: of the last record or image.
        clock: combined updates applied (synchronous mode).
        clocks: pushes applied per rank (other modes).
        last: per rank the incarnation and number of its last push.
        leases: sample leases applied.
        members: membership schedule, by clock.
        variables: by key.
    """

    slot: int
    staleness: int
    lsn: int = 0
    epoch: int = 0
    clock: int = 0
    clocks: dict[int, int] = field(default_factory=dict)
    last: dict[int, tuple[int, int]] = field(default_factory=dict)
    leases: Leases = field(default_factory=list)
    members: list[Members] = field(default_factory=list)
    variables: dict[int, Segment | RowTable] = field(default_factory=dict)

    def counts_at(self, rank: int, clock: int) -> bool:
        """Whether a rank is a member at a clock; also where that is so long ago that it is forgotten."""
        return rank in ranks_at(self.members, clock) or (bool(self.members) and clock < self.members[0].clock)

    def conflict(self, specs: Sequence[VariableSpec]) -> str:
        """Why variables of these names and sizes cannot be created here; "" if they can."""
        for spec in specs:
            there = self.variables[spec.key].spec if spec.key in self.variables else spec
            if (there.name, there.size, there.width) != (spec.name, spec.size, spec.width):
                return f"variable {spec.key} is '{there.name}' on the server, but '{spec.name}' in this worker"
        return ""

    def check(self, entries: list[VariableValues], gradients: Sequence[wire.Frame] | None = None) -> None:
        """Raise unless the entries fit the variables, and frames of gradients fit the entries.

        Raises:
            WireError: an unknown key or a wrong size.
        """
        expected = 0
        for entry in entries:
            variable = self.variables.get(entry.key)
            if variable is None:
                raise wire.WireError(f"For 'sporax.ps', slot {self.slot} has no variable {entry.key}.")
            spec, rows = variable.spec, -1
            values = spec.size
            if spec.width:
                rows = max(entry.rows, 0)
                values = rows * spec.width
            if gradients is None:
                values = 0
            if entry.rows != rows or entry.values != values:
                raise wire.WireError(
                    f"For 'sporax.ps', the entry of '{spec.name}' must have {values} values in {rows} rows, "
                    f"but got {entry.values} in {entry.rows}."
                )
            expected += 4 * values if rows < 0 else 4 * values + 8 * rows
        if gradients is not None:
            wire.check_total(expected, gradients)

    def read(
        self, entries: list[VariableValues], frames: list[wire.Frame], clock: int
    ) -> tuple[list[VariableValues], list[wire.Frame]]:
        """Values for a pull as of `clock` (-1: the newest), as entries and frames."""
        # Only the clock before is kept.
        before = self.staleness == 0 and 0 <= clock == self.clock - 1
        reader = wire.EntryReader(frames)
        out_entries: list[VariableValues] = []
        out_frames: list[wire.Frame] = []
        for entry in entries:
            ids, _ = reader.take(entry)
            variable = self.variables[entry.key]
            before_it = before and variable.changed == self.clock  # else it is now as it was a clock ago
            if isinstance(variable, RowTable):
                values = variable.read(ids if ids is not None else np.empty(0, np.int64), before=before_it)
            else:
                values = variable.before if before_it and variable.before is not None else variable.value
            out_entries.append(VariableValues(entry.key, 0.0, -1, values.size))
            out_frames += wire.chunks(values)
        reader.finish()
        return out_entries, out_frames

    @property
    def num_bytes(self) -> int:
        """Memory of all variables."""
        return sum(variable.num_bytes for variable in self.variables.values())

    def apply(self, record: Record, frames: Sequence[wire.Frame]) -> None:
        """Apply the next record.

        Raises:
            SporaxRuntimeError: it is not the next one.
        """
        if record.lsn != self.lsn + 1:
            raise For("sporax.ps").state_error(f"slot {self.slot} must apply record {self.lsn + 1}", record.lsn)
        if record.variables:
            self._create(record, wire.EntryReader(frames))
        else:
            keep_before, clock = self.staleness == 0, self.clock + 1
            for entry, ids, gradient in wire.entry_arrays(record.entries, frames):
                variable = self.variables[entry.key]
                variable.changed = clock
                if type(variable) is Segment:
                    variable.update(_NO_VALUES if gradient is None else gradient, entry.rate, keep_before=keep_before)
                elif ids is not None and len(ids) and gradient is not None:
                    # Several workers may have pushed the same row.
                    ids, rows = summed_rows(ids, gradient.reshape(-1, variable.spec.width))
                    variable.update(ids, rows, entry.rate, keep_before=keep_before)
        # Which pushes are in the values, so that a repeated one is recognised by every copy.
        for source in record.sources:
            rank, clock = source.rank, source.clock
            self.last[rank] = (source.incarnation, source.seq)
            # Rows may come later than the clock of their push.
            if clock >= self.clocks.get(rank, 0):
                self.clocks[rank] = clock + 1
            if source.lease >= 0:
                self.leases = with_lease(self.leases, source.lease)
        if record.members is not None:
            self.members = record.members
        if self.staleness == 0:
            if record.sources:
                self.clock += 1
            self._pass_over_deserted()
        self.lsn, self.epoch = record.lsn, record.epoch

    def _pass_over_deserted(self) -> None:
        """Go to the clock of the next members where those of the present clock have all left: no worker makes its update."""
        if not ranks_at(self.members, self.clock):
            self.clock = min(
                (entry.clock for entry in self.members if entry.ranks and entry.clock > self.clock), default=self.clock
            )

    def _create(self, record: Record, reader: wire.EntryReader) -> None:
        first = {entry.key: reader.take(entry)[1] for entry in record.entries}
        for spec in record.variables:
            if spec.key in self.variables:
                continue
            if spec.width:
                self.variables[spec.key] = RowTable(spec)
            else:
                value = first.get(spec.key)
                self.variables[spec.key] = Segment(spec, np.zeros(spec.size, np.float32) if value is None else value)
        reader.finish()

    def image(self) -> tuple[SlotImage, list[wire.Frame]]:
        """The whole state as a message."""
        frames: list[wire.Frame] = []
        lengths: list[int] = []
        scalars: list[dict[str, float]] = []
        for variable in self.variables.values():
            if isinstance(variable, RowTable):
                arrays = [array.copy() for array in variable.arrays()]  # slabs change in place
                scalars.append(variable.saved_scalars())
            else:
                before = np.empty(0, np.float32) if variable.before is None else variable.before
                arrays = [variable.value, before, *variable.state]
                scalars.append({**variable.scalars, "changed": variable.changed})
            lengths += [array.nbytes for array in arrays]
            for array in arrays:
                frames += wire.chunks(array)
        image = SlotImage(
            self.slot,
            self.lsn,
            self.epoch,
            self.clock,
            dict(self.clocks),
            dict(self.last),
            self.leases,
            list(self.members),
            [variable.spec for variable in self.variables.values()],
            lengths,
            scalars,
        )
        return image, frames

    @classmethod
    def from_image(cls, image: SlotImage, frames: list[wire.Frame], staleness: int) -> SlotState:
        """The state an image was made of.

        Raises:
            WireError: frames that do not fit.
        """
        reader, lengths = wire.EntryReader(frames), iter(image.frames_of)
        variables: dict[int, Segment | RowTable] = {}
        for spec, scalars in zip(image.variables, image.scalars, strict=True):
            num_state = len(update.first_state(spec.optimizer))
            # A table has seven arrays of its own before its state (`RowTable.arrays`), a segment two.
            count = 7 + num_state if spec.width else 2 + num_state
            arrays: list[npt.NDArray[np.uint8]] = [reader.array(next(lengths)) for _ in range(count)]
            if spec.width:
                variables[spec.key] = RowTable.restored(spec, scalars, arrays)
                continue
            value, before, *state = [array.view(np.float32) for array in arrays]
            segment = Segment(spec, value)
            segment.before = before if len(before) else None
            segment.changed = int(scalars["changed"])
            segment.state = tuple(state)
            segment.scalars = {name: number for name, number in scalars.items() if name != "changed"}
            variables[spec.key] = segment
        reader.finish()
        return cls(
            image.slot,
            staleness,
            image.lsn,
            image.epoch,
            image.clock,
            dict(image.clocks),
            dict(image.last),
            image.leases,
            image.members,
            variables,
        )


def bytes_of(spec: VariableSpec) -> int:
    """Bytes that a disk surely needs for a variable: a snapshot (value, value before, state), one update. Tables begin empty."""
    return 4 * spec.size * (3 + len(update.first_state(spec.optimizer)))


def check_first_values(
    variables: Sequence[VariableSpec], entries: Sequence[VariableValues], frames: Sequence[wire.Frame]
) -> None:
    """Raise unless first values have the sizes of their variables.

    Raises:
        WireError: they have not.
    """
    sizes = {spec.key: spec.size for spec in variables}
    if any(entry.rows != -1 or sizes.get(entry.key) != entry.values for entry in entries):
        raise wire.WireError("For 'sporax.ps', first values must have the sizes of their variables.")
    wire.check_sizes(entries, frames)


def combined(
    slot: SlotState, pushes: list[tuple[float, list[VariableValues], list[wire.Frame]]]
) -> tuple[list[VariableValues], list[wire.Frame]]:
    """The mean of several workers' gradients, as entries and frames; the order of `pushes` (by rank) fixes every bit.

    Args:
        slot: whose variables these are.
        pushes: of each rank, in order: weight, entries and frames. Equal weights give (sum of gradients) / (their number).
    """
    sums, rates, divisor = _summed(pushes)
    out_entries: list[VariableValues] = []
    out_frames: list[wire.Frame] = []
    # In the order of the slot's variables, whatever the order of the pushes.
    for key in filter(sums.__contains__, slot.variables):
        ids, total = sums[key]
        total = total if divisor is None else total / divisor
        rows, id_frames = (-1, []) if ids is None else (len(ids), wire.chunks(ids))
        out_entries.append(VariableValues(key, rates[key], rows, total.size))
        out_frames += [*id_frames, *wire.chunks(total)]
    return out_entries, out_frames


def _summed(
    pushes: list[tuple[float, list[VariableValues], list[wire.Frame]]],
) -> tuple[dict[int, tuple[wire.Ids | None, wire.Floats]], dict[int, float], np.float32 | None]:
    """Per variable the sum of the (weighted) gradients with the ids of its rows; its rate; what the sums are divided by."""
    weights = [weight for weight, _, _ in pushes]
    # Without weights a plain mean has the rounding that one would expect.
    scale = None if len(set(weights)) == 1 else [np.float32(weight / sum(weights)) for weight in weights]
    dense: dict[int, wire.Floats] = {}
    rows: dict[int, list[tuple[wire.Ids, wire.Floats]]] = {}
    rates: dict[int, float] = {}
    for position, (_, entries, frames) in enumerate(pushes):
        for entry, ids, gradient in wire.entry_arrays(entries, frames):
            gradient = np.empty(0, np.float32) if gradient is None else gradient
            gradient = gradient if scale is None else gradient * scale[position]
            rates.setdefault(entry.key, entry.rate)
            if ids is not None:
                rows.setdefault(entry.key, []).append((ids, gradient))
            else:
                dense[entry.key] = gradient if entry.key not in dense else dense[entry.key] + gradient
    divisor = np.float32(len(pushes)) if scale is None and len(pushes) > 1 else None
    sums: dict[int, tuple[wire.Ids | None, wire.Floats]] = {key: (None, total) for key, total in dense.items()}
    sums |= {key: _summed_parts(rows[key]) for key in rows.keys() - dense.keys()}
    return sums, rates, divisor


def _summed_parts(parts: list[tuple[wire.Ids, wire.Floats]]) -> tuple[wire.Ids, wire.Floats]:
    """Distinct row ids of several workers, and the sums of their gradients."""
    ids = np.concatenate([part for part, _ in parts])
    gradients = np.concatenate([part for _, part in parts]).reshape(len(ids), -1)
    return summed_rows(ids, gradients)


def summed_rows(ids: wire.Ids, gradients: wire.Floats) -> tuple[wire.Ids, wire.Floats]:
    """Sorted distinct ids, and the sums of their gradients; equal ids are added in the order they come."""
    # The usual case: ids are distinct and sorted already.
    if len(ids) < 2 or bool(np.all(ids[1:] > ids[:-1])):
        return ids, gradients
    order = np.argsort(ids, kind="stable")
    ids, gradients = ids[order], gradients[order]
    starts = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]]))
    return ids[starts], np.add.reduceat(gradients, starts, axis=0)
