"""Recognizes a value that a loop only adds to.

Problem: gradients and the loss are sums over micro batches, but in the loop they look like any other value that goes from one
round to the next. Method: walk back from what a round leaves to what it began with; if only additions are on the way, and nothing
else reads a running total, then the other operands of these additions are the terms of a sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sporax.ir.graph import LITERAL, Operator
from sporax.lowering.ingest.ingest import Equation

_ADDS = ("add", "add_any")
"""Names of JAX's additions; ``add_any`` is the one of cotangents."""


def additions(
    after: int,
    before: int,
    entries: Sequence[tuple[Operator, Equation]],
    producers: Mapping[int, int],
    readers: Mapping[int, int],
) -> tuple[list[int], list[int]] | None:
    """The numbers of the additions and the terms, if `after` is `before` plus terms; else None.

    Args:
        after: what a round leaves.
        before: what it found.
        entries: the operators of the round.
        producers: number of the operator that makes a tensor.
        readers: how often a tensor is read.
    """
    numbers: list[int] = []
    terms: list[int] = []
    tensor = after
    while tensor != before:
        number = producers.get(tensor)
        # A running total that something else reads is no mere sum: its reader wants the value of this round.
        if number is None or entries[number][0].name not in _ADDS or readers[tensor] > 1:
            return None
        operands = entries[number][0].operands
        if LITERAL in operands:
            return None
        numbers.append(number)
        on_way = [place for place, operand in enumerate(operands) if _leads_to(operand, before, entries, producers)]
        if len(on_way) != 1:
            return None
        terms.append(operands[1 - on_way[0]])
        tensor = operands[on_way[0]]
    # Terms in the order of their additions, so that floating-point sums agree with the loop's.
    return (numbers, terms[::-1]) if readers[before] == 1 else None


def _leads_to(
    tensor: int, before: int, entries: Sequence[tuple[Operator, Equation]], producers: Mapping[int, int]
) -> bool:
    left, seen = [tensor], set()
    while left:
        tensor = left.pop()
        if tensor == before:
            return True
        number = producers.get(tensor)
        if number is not None and number not in seen and entries[number][0].name in _ADDS:
            seen.add(number)
            left.extend(entries[number][0].operands)
    return False
