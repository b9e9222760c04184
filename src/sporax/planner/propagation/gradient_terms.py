"""What gradients are sums of: one addend for every micro batch, and for every operator that reads a parameter."""

from __future__ import annotations

from collections.abc import Mapping

from sporax.ir.graph import LITERAL, OperatorGraph, Role
from sporax.ir.marks import GradientMark


def addends_of(graph: OperatorGraph) -> dict[int, int]:
    """For every tensor that is added up to a gradient, the parameter; nothing of gradients that are no sums."""
    parameters = {each.name: each.tensor for each in graph.inputs if each.role is Role.PARAMETER}
    producers, consumers = graph.producers(), graph.consumers()
    found: dict[int, int] = {}
    for operator in graph.operators:
        mark = operator.mark
        if not isinstance(mark, GradientMark):
            continue
        for gradient, name in zip(operator.operands, mark.parameters, strict=True):
            terms = _terms(gradient, graph, producers, consumers)
            if len(terms) > 1 and name in parameters:
                found.update(dict.fromkeys(terms, parameters[name]))
    return found


def _terms(
    tensor: int, graph: OperatorGraph, producers: Mapping[int, int], consumers: Mapping[int, list[int]]
) -> list[int]:
    """The tensors that a tensor is the sum of; the tensor itself where it is no sum, or has other readers."""
    found, left = [], [tensor]
    while left:
        tensor = left.pop()
        operator = graph.operators[producers[tensor]] if tensor in producers else None
        if operator is None or operator.name != "add_any" or LITERAL in operator.operands or len(consumers[tensor]) > 1:
            found.append(tensor)
        else:
            left.extend(operator.operands)
    return found
