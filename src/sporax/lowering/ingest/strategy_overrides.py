"""Strategies from a file in place of those in the program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sporax.ir.graph import Operator
from sporax.ir.marks import FIXED, DerivativeMark, OperatorMark, Shardings
from sporax.lowering.ingest.ingest import Ingested


def with_strategies(step: Ingested, strategies: Mapping[int, Shardings]) -> Ingested:
    """The same step, its operators sharded as `strategies` say, by number of the call."""
    bodies = [tuple(with_strategies(body, strategies) for body in equation.bodies) for equation in step.equations]
    operators = [
        replace(_overridden(operator, strategies), bodies=tuple(body.graph for body in inner))
        for operator, inner in zip(step.graph.operators, bodies, strict=True)
    ]
    equations = [replace(equation, bodies=inner) for equation, inner in zip(step.equations, bodies, strict=True)]
    return replace(step, graph=replace(step.graph, operators=tuple(operators)), equations=tuple(equations))


def _overridden(operator: Operator, strategies: Mapping[int, Shardings]) -> Operator:
    """An operator; a mark with its new strategy."""
    mark: Any = operator.mark
    if isinstance(mark, OperatorMark):
        # The derivative follows its operator, so both get the new strategy.
        mark = _sharded(mark, strategies)
    elif isinstance(mark, DerivativeMark) and isinstance(mark.of, OperatorMark):
        mark = replace(mark, of=_sharded(mark.of, strategies))
    else:
        return operator
    return replace(operator, operation=replace(operator.operation, params={**operator.operation.params, "mark": mark}))


def _sharded(mark: OperatorMark, strategies: Mapping[int, Shardings]) -> OperatorMark:
    if mark.number not in strategies:
        return mark
    # Noted, so that reports can say where the strategy is from.
    attributes = tuple(sorted({**dict(mark.attributes), FIXED: True}.items()))
    return replace(mark, in_strategy=strategies[mark.number], attributes=attributes)
