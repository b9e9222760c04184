"""What operators and transfers count beside their own time: those of loops as often as they happen, and some cost models weigh
those that belong to the backward pass or come after it otherwise.
"""

from __future__ import annotations

from sporax.ir.graph import OperatorGraph


def late_operators(graph: OperatorGraph) -> list[bool]:
    """For every operator whether it is of a derivative or depends on one, as the optimizer does."""
    made: set[int] = set()
    found = []
    for operator in graph.operators:
        late = operator.backward or not made.isdisjoint(operator.operands)
        found.append(late)
        if late:
            made.update(operator.results)
    return found


def rounds(graph: OperatorGraph) -> list[int]:
    """For every tensor how often it is made per step; arguments count once."""
    found = [1] * len(graph.tensors)
    for operator in graph.operators:
        if operator.times > 1:
            for tensor in operator.results:
                found[tensor] = operator.times
    return found


def late_tensors(graph: OperatorGraph) -> frozenset[int]:
    """What such operators make."""
    pairs = zip(graph.operators, late_operators(graph), strict=True)
    return frozenset(tensor for operator, late in pairs if late for tensor in operator.results)
