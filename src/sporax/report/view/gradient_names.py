"""Which products of a plain JAX step compute the gradient of which variable.

Problem: JAX gives the products of a backward pass no names; dozens of rows would be called ``dot_general``.

Method: a gradient has the shape of its variable and reaches it through light operators alone: those of the optimizer, and edges
of loops, which stack the gradients of layers or add them up.
"""

from __future__ import annotations

import math

from sporax.ir.graph import Operator, OperatorGraph, Role
from sporax.planner.rules.loop_rules import RULES as EDGES
from sporax.planner.rules.loop_rules import STACK
from sporax.planner.search.space.operator_rules import is_identity, is_light

_MOST_TENSORS = 64
"""Tensors that are followed from one product: Adam with clipping and weight decay needs about 20."""

PREFIX = "gradient of "


def gradient_names(graph: OperatorGraph) -> dict[int, str]:
    """Names of variables by the numbers of the heavy operators that compute their gradients."""
    variables = {argument.tensor: argument.name for argument in graph.inputs if argument.role is Role.PARAMETER}
    if not variables:
        return {}
    readers = graph.consumers()
    names = {}
    for number, operator in enumerate(graph.operators):
        if operator.backward and not is_light(operator) and not is_identity(operator):
            name = _updated(graph, readers, variables, operator.results)
            if name:
                names[number] = name
    return names


def _updated(
    graph: OperatorGraph, readers: dict[int, list[int]], variables: dict[int, str], results: tuple[int, ...]
) -> str:
    """The variable that light operators change by a tensor; "" for none."""
    # The list grows while it is walked.
    waiting = list(results)
    for tensor in waiting:
        shape = graph.tensors[tensor].shape
        for operator in filter(_passes, (graph.operators[number] for number in readers.get(tensor, ()))):
            changed = (operand for operand in operator.operands if operand in variables)
            if (found := next((entry for entry in changed if graph.tensors[entry].shape == shape), None)) is not None:
                return variables[found]
            if len(waiting) < _MOST_TENSORS:
                waiting += [
                    other
                    for other in operator.results
                    if other not in waiting
                    and (operator.name == STACK or math.prod(graph.tensors[other].shape) == math.prod(shape))
                ]
    return ""


def _passes(operator: Operator) -> bool:
    """Whether what it makes of a gradient is still one."""
    return operator.name in EDGES or (not operator.bodies and (is_light(operator) or is_identity(operator)))
