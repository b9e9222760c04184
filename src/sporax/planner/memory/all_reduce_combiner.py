"""Which reductions become one all-reduce, as XLA's combiner does it.

Reductions over the same devices that do not wait for each other become one. It runs when the last operand is there, so all
operands, and then all results, are there together: twice the gradients of whole parameters in data parallel training. A
reduction that is one of several moves of a tensor counts like any other: gathers that follow it can all start at the same time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sporax.planner.memory.instructions import Piece

_MOST_TOGETHER = 256
"""Arrays in one all-reduce."""


@dataclass(slots=True)
class _Group:
    """Reductions that become one.

    Attributes:
        members: numbers of their pieces.
        mask: the same as bits.
        waits: what any of them waits for, as bits.
    """

    members: list[int] = field(default_factory=list)
    mask: int = 0
    waits: int = 0


def merged(pieces: Sequence[Piece]) -> list[list[int]]:
    """Numbers of the pieces that become one all-reduce; those that stay alone are groups of one.

    Args:
        pieces: in an order in which they can run.
    """
    groups: list[_Group] = []
    known: dict[tuple[object, ...], list[_Group]] = {}
    for bit, (number, before) in enumerate(_waits(pieces).items()):
        waits = _with_groups(before, groups)
        alike = known.setdefault(pieces[number].combines, [])
        group = next((each for each in alike if not waits & each.mask and len(each.members) < _MOST_TOGETHER), None)
        if group is None:
            group = _Group()
            groups.append(group)
            alike.append(group)
        group.members.append(number)
        group.mask |= 1 << bit
        group.waits |= before
    return [group.members for group in groups]


def _waits(pieces: Sequence[Piece]) -> dict[int, int]:
    """What every reduction waits for: other reductions, as bits in the order of this list."""
    found: dict[int, int] = {}
    behind: dict[int, int] = {}
    for number, piece in enumerate(pieces):
        waits = 0
        for array in piece.reads:
            waits |= behind.get(array, 0)
        own = 0
        if piece.combines:
            own = 1 << len(found)
            found[number] = waits
        behind.update(dict.fromkeys(piece.writes, waits | own))
    return found


def _with_groups(waits: int, groups: Iterable[_Group]) -> int:
    """What somebody waits for who waits for `waits`: one of a group is there when all of it is."""
    left = [each for each in groups if len(each.members) > 1]
    while True:
        ready = [each for each in left if waits & each.mask]
        if not ready:
            return waits
        left = [each for each in left if not waits & each.mask]
        for each in ready:
            waits |= each.mask | each.waits
