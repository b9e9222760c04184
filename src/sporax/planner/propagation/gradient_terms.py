"""The terms of gradients that are sums: one per micro batch, and one per operator that reads the parameter.

Problem: with ``gradient_accumulation_shard`` each term is reduced and scattered by itself, so that the sum is kept in slices.

Method: walk back from every finished gradient through the additions that differentiation inserted, as long as nobody else
reads the partial result.
"""

from __future__ import annotations

from collections.abc import Mapping

from sporax.ir.graph import LITERAL, OperatorGraph, Role
from sporax.ir.marks import GradientMark


def gradient_terms(graph: OperatorGraph) -> dict[int, int]:
    """For every tensor that is added up to a gradient, the parameter; nothing of gradients that are no sums."""
    parameters = {argument.name: argument.tensor for argument in graph.inputs if argument.role is Role.PARAMETER}
    producers, consumers = graph.producers(), graph.consumers()
    parameter_of: dict[int, int] = {}
    for operator in graph.operators:
        mark = operator.mark
        if not isinstance(mark, GradientMark):
            continue
        for gradient, name in zip(operator.operands, mark.parameters, strict=True):
            terms = _terms(gradient, graph, producers, consumers)
            # The gradient of one reader is no sum: its own resharding does all there is to do.
            if len(terms) > 1 and name in parameters:
                parameter_of.update(dict.fromkeys(terms, parameters[name]))
    return parameter_of


def _terms(
    tensor: int, graph: OperatorGraph, producers: Mapping[int, int], consumers: Mapping[int, list[int]]
) -> list[int]:
    """The tensors that a tensor is the sum of; the tensor itself where it is no sum, or has other readers."""
    terms, left = [], [tensor]
    while left:
        tensor = left.pop()
        operator = graph.operators[producers[tensor]] if tensor in producers else None
        # `add_any` is the addition that differentiation inserts; other additions are the user's.
        # A second reader needs the sum itself, so what comes before it must not be taken apart.
        if operator is None or operator.name != "add_any" or LITERAL in operator.operands or len(consumers[tensor]) > 1:
            terms.append(tensor)
        else:
            left.extend(operator.operands)
    return terms
