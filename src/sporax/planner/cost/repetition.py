"""Weights of operators and transfers: how often they run in loops, and whether they are *late*.

An operator is late if it belongs to the backward pass or depends on it, as the optimizer does. Some cost models give
late operators and transfers another weight.
"""

from __future__ import annotations

from sporax.ir.graph import OperatorGraph


def late_operators(graph: OperatorGraph) -> list[bool]:
    """For every operator whether it is of a derivative or depends on one, as the optimizer does."""
    produced: set[int] = set()
    flags = []
    for operator in graph.operators:
        # Lateness spreads: whatever depends on a derivative runs after the forward pass.
        late = operator.backward or not produced.isdisjoint(operator.operands)
        flags.append(late)
        if late:
            produced.update(operator.results)
    return flags


def rounds(graph: OperatorGraph) -> list[int]:
    """For every tensor how often it is made per step; arguments count once."""
    counts = [1] * len(graph.tensors)
    for operator in graph.operators:
        # Tensors outside all loops, arguments among them, are made once.
        if operator.times > 1:
            for tensor in operator.results:
                counts[tensor] = operator.times
    return counts


def late_tensors(graph: OperatorGraph) -> frozenset[int]:
    """The results of late operators."""
    pairs = zip(graph.operators, late_operators(graph), strict=True)
    return frozenset(tensor for operator, late in pairs if late for tensor in operator.results)
