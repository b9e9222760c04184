"""Which reductions the compiler combines into one all-reduce.

Problem: a combined all-reduce starts when its last operand exists, so all operands, and then all results, are live
together. In data-parallel training these are twice the gradients.

Method: as XLA's all-reduce combiner: reductions over the same devices that do not depend on each other become one. A
reduction that is one of several moves of a tensor is combined as well, so the gathers after it can all start at the
same time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sporax.planner.memory.backend import Instruction

_MOST_COMBINED = 256
"""Most arrays in one all-reduce, as in XLA's combiner."""


@dataclass(slots=True)
class _CombinedGroup:
    """Reductions that become one.

    Attributes:
        members: numbers of their instructions.
        mask: the same as bits.
        waits: what any of them waits for, as bits.
    """

    members: list[int] = field(default_factory=list)
    mask: int = 0
    waits: int = 0


def combined_all_reduces(instructions: Sequence[Instruction]) -> list[list[int]]:
    """Numbers of the instructions that become one all-reduce; those that stay alone are groups of one.

    Args:
        instructions: in an order in which they can run.
    """
    groups: list[_CombinedGroup] = []
    by_key: dict[tuple[object, ...], list[_CombinedGroup]] = {}
    for bit, (number, before) in enumerate(_waits(instructions).items()):
        # Integers as bit sets: a test for a circle is then one operation.
        waits = _with_groups(before, groups)
        # The rounds of a loop are a program of their own.
        key = (*instructions[number].combines, instructions[number].loops)
        candidates = by_key.setdefault(key, [])
        group = next(
            (
                candidate
                for candidate in candidates
                # If the new reduction waited for a member, and the members for all of the group, the group could never
                # start.
                if not waits & candidate.mask and len(candidate.members) < _MOST_COMBINED
            ),
            None,
        )
        if group is None:
            group = _CombinedGroup()
            groups.append(group)
            candidates.append(group)
        group.members.append(number)
        group.mask |= 1 << bit
        group.waits |= before
    return [group.members for group in groups]


def _waits(instructions: Sequence[Instruction]) -> dict[int, int]:
    """What every reduction waits for: other reductions, as bits in the order of this list."""
    waits_of: dict[int, int] = {}
    behind: dict[int, int] = {}
    # In an order in which they can run, what a reduction waits for has its bits already.
    for number, instruction in enumerate(instructions):
        waits = 0
        # What passed a barrier with an operand counts as well: the compiler's graph has the barrier between them.
        for array in (*instruction.reads, *instruction.after):
            waits |= behind.get(array, 0)
        own = 0
        if instruction.combines:
            own = 1 << len(waits_of)
            waits_of[number] = waits
        behind.update(dict.fromkeys(instruction.writes, waits | own))
    return waits_of


def _with_groups(waits: int, groups: Iterable[_CombinedGroup]) -> int:
    """All that a reduction waits for which waits for `waits`: one of a group exists only when all of it does."""
    # Groups of one add nothing: their only member's bits are in `waits` already.
    left = [group for group in groups if len(group.members) > 1]
    while True:
        ready = [entry for entry in left if waits & entry.mask]
        # One group may pull in another one that it waits for, hence until nothing is added.
        if not ready:
            return waits
        left = [entry for entry in left if not waits & entry.mask]
        for entry in ready:
            waits |= entry.mask | entry.waits
