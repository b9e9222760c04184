"""Collectives that XLA has put into a program of the user's, for people: what `sporax.explain_resharding` gives."""

from __future__ import annotations

import linecache
import os
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from sporax.base.text_tables import Section, page_width, size_text, table_lines, time_text

_ROWS = 20
"""Collectives in the text; all are in the fields."""


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of the user's files; no line where nothing is known.

    Attributes:
        file: path.
        line: its number, from 1.
    """

    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file.removeprefix(os.getcwd() + os.sep)}:{self.line}" if self.file else ""

    @property
    def code(self) -> str:
        """What stands there."""
        return linecache.getline(self.file, self.line).strip() if self.file else ""


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change of the program, with which it was compiled again.

    Attributes:
        change: what to write: a constraint, or a sharding of an argument or result.
        value: of which array.
        place: where it is made.
        sent_bytes, seconds: of all collectives with this change.
    """

    change: str
    value: str
    place: SourceLine
    sent_bytes: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.change} {self.value}{f' at {self.place}' if self.place.file else ''}"


@dataclass(frozen=True, slots=True)
class FoundCollective:
    """Equal collectives of one operator of the user's.

    Attributes:
        operator: ``"all-gather"``, ``"all-reduce"``, ``"reduce-scatter"``, ``"all-to-all"`` or ``"collective-permute"``.
        primitive: the operator of JAX that needs it.
        place: its line.
        scope: name scopes around it.
        axes: of the mesh, along which devices communicate.
        num_members: devices in one group.
        count: in one run of the program, loops counted.
        has_known_count: whether the length of all loops around it is known; others count once.
        local_bytes: that one device has when each begins.
        sent_bytes: that one device sends in a ring, all runs together.
        seconds: predicted time of all runs.
        is_rematerialized: whether it makes the array on every device, only for each to take another slice of it ("involuntary
            full rematerialization").
        is_written: whether the user has written it, in a `jax.shard_map`.
        remedy: the change that leaves the fewest bytes of those that were tried because of it; None where none helps.
    """

    operator: str
    primitive: str
    place: SourceLine
    scope: str
    axes: tuple[str, ...]
    num_members: int
    count: int
    has_known_count: bool
    local_bytes: int
    sent_bytes: int
    seconds: float
    is_rematerialized: bool = False
    is_written: bool = False
    remedy: Remedy | None = None


@dataclass(frozen=True, slots=True)
class ReshardingReport:
    """What `sporax.explain_resharding` found. ``str`` of it is a table.

    Attributes:
        program: name of the function.
        mesh: devices along each axis, by its name.
        hardware: the profile that times are predicted for.
        collectives: those of most bytes first.
        tried: how many changed programs were compiled.
        together: all remedies at once; None where there are not several, or they do not add up.
        notes: what was not done, and why.
    """

    program: str
    mesh: dict[str, int]
    hardware: str
    collectives: tuple[FoundCollective, ...]
    tried: int = 0
    together: Remedy | None = None
    notes: tuple[str, ...] = ()

    @property
    def sent_bytes(self) -> int:
        """Bytes that one device sends in one run."""
        return sum(one.sent_bytes for one in self.collectives)

    @property
    def seconds(self) -> float:
        """Predicted time of all collectives, one after another."""
        return sum(one.seconds for one in self.collectives)

    def to_json(self) -> str:
        """All of it as a JSON object, keys as the attributes here."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1).decode()

    def __str__(self) -> str:
        return "\n".join(self._lines(page_width()))

    def _lines(self, width: int) -> Iterator[str]:
        axes = ", ".join(f"{name}={size}" for name, size in self.mesh.items())
        count = sum(one.count for one in self.collectives)
        amount = f"{size_text(self.sent_bytes)} sent by each device in {time_text(self.seconds)}" if count else "none"
        yield f"Collectives of '{self.program}' on {axes}, {self.hardware}: {count}, {amount}".replace(
            "0, none", "none"
        )
        if self.collectives:
            yield ""
            yield from table_lines(self._table(), width)
        if len(self.collectives) > _ROWS:
            yield f"… and {len(self.collectives) - _ROWS} more"
        yield from self._remedies(width)
        yield from (f"Note: {note}" for note in self.notes)

    def _table(self) -> Section:
        rows = [(str(number), *_cells(one)) for number, one in enumerate(self.collectives[:_ROWS], 1)]
        return Section("", ("", "sent", "time", "collective", "over", "because of", "at", ""), tuple(rows), (0, 1, 2))

    def _remedies(self, width: int) -> Iterator[str]:
        found: dict[Remedy, list[str]] = {}
        for number, one in enumerate(self.collectives, 1):
            if one.remedy is not None:
                found.setdefault(one.remedy, []).append(str(number))
        if self.tried:
            yield ""
            ends = "each of these alone lowers the bytes:" if found else "none lowers the bytes."
            yield f"{self.tried} changes were compiled; {ends}"
        for remedy, numbers in found.items():
            yield from _wrapped(f"{', '.join(numbers)}: {remedy}: {self._change(remedy)}", width)
        if self.together is not None:
            yield from _wrapped(f"{self.together.change}: {self._change(self.together)}", width)

    def _change(self, remedy: Remedy) -> str:
        sizes = f"{size_text(self.sent_bytes)} → {size_text(remedy.sent_bytes)}"
        return f"{sizes}, {time_text(self.seconds)} → {time_text(remedy.seconds)}"


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, initial_indent="  ", subsequent_indent="     ")


def _cells(one: FoundCollective) -> tuple[str, ...]:
    times = (
        f" × {one.count}{'' if one.has_known_count else ' or more'}" if one.count > 1 or not one.has_known_count else ""
    )
    remark = (
        "(in your shard_map) "
        if one.is_written
        else "(replicated, then sharded again) "
        if one.is_rematerialized
        else ""
    )
    return (
        size_text(one.sent_bytes),
        time_text(one.seconds),
        one.operator + times,
        ", ".join(one.axes),
        one.primitive,
        f"{os.path.basename(one.place.file)}:{one.place.line}" if one.place.file else "",
        remark + one.place.code,
    )
