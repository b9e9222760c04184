"""The differences between two plans of one step."""

from __future__ import annotations

from collections.abc import Iterator

from sporax.base.errors import For
from sporax.base.text_tables import Section, page_width, table_lines
from sporax.ir.graph import OperatorGraph, Role
from sporax.ir.plan import OperatorPlan, Plan, Resharding
from sporax.planner.loops.inline import inline_loops
from sporax.planner.search.space.operator_rules import is_identity, is_light
from sporax.report.view.axis_names import AxisNames, names_of, placements_of
from sporax.report.view.folding import folded
from sporax.report.view.operator_names import common_prefix


def diff(graph: OperatorGraph, first: Plan, second: Plan, every: bool = False) -> str:
    """Where two plans of one graph differ: variables, results, operators. "" when they do not.

    No line is longer than 120 columns; equal layers are one row. Axes have the letters of the first plan's summary.

    Args:
        graph: the graph of both.
        first, second: the plans.
        every: also report operators that follow others.

    Raises:
        SporaxValueError: the plans are of different meshes.
    """
    For("diff").refuse(first.mesh != second.mesh, "the plans must be of one mesh", first.mesh, second.mesh)
    axes = names_of(first, placements_of(second))
    out = inline_loops(graph)
    graph, first, second = out.graph, out.unfolded(first), out.unfolded(second)
    numbers = [*_sharded_otherwise(graph, first, second, every)]
    prefix = common_prefix([path for number in numbers if (path := graph.operators[number].path)])
    rows = [*_tensors(graph, first, second, axes)]
    for number in numbers:
        operator, a, b = graph.operators[number], first.operators[number], second.operators[number]
        path = operator.path.removeprefix(prefix).lstrip(".") or f"#{number}"
        rows.append((f"{path} {operator.name}", _sharding(a, axes), _sharding(b, axes)))
    if not rows:
        return ""
    within = f"; paths within {prefix}" if prefix else ""
    section = Section("", ("", "this plan", "the other plan"), folded(rows))
    return "\n".join([f"axes {axes.legend()}{within}", *table_lines(section, page_width())])


def _sharded_otherwise(graph: OperatorGraph, first: Plan, second: Plan, every: bool) -> Iterator[int]:
    """Operators that are sharded in two ways; those that follow others only with `every`."""
    for number, (operator, a, b) in enumerate(zip(graph.operators, first.operators, second.operators, strict=True)):
        listed = every or not (is_light(operator) or is_identity(operator))
        if listed and (a.operands, a.results) != (b.operands, b.results):
            yield number


def _tensors(graph: OperatorGraph, first: Plan, second: Plan, axes: AxisNames) -> Iterator[tuple[str, str, str]]:
    """Variables, results that take no variable's place, and what is brought somewhere for all readers."""
    for argument, one, other in zip(graph.inputs, first.inputs, second.inputs, strict=True):
        if one != other and (argument.name or argument.role is not Role.CONSTANT):
            yield f"variable {argument.name or argument.tensor}", axes.layout(one), axes.layout(other)
    carried = {output for output, _ in graph.aliases}
    for position, (one, other) in enumerate(zip(first.outputs, second.outputs, strict=True)):
        if one != other and position not in carried:
            yield f"result {position}", axes.layout(one), axes.layout(other)
    for tensor in sorted({*first.reshardings, *second.reshardings}):
        pair = first.reshardings.get(tensor), second.reshardings.get(tensor)
        if pair[0] != pair[1]:
            reason = next(entry.reason for entry in pair if entry is not None)
            yield reason or f"tensor {tensor}", _resharding_text(pair[0], axes), _resharding_text(pair[1], axes)


def _resharding_text(resharding: Resharding | None, axes: AxisNames) -> str:
    """Where a tensor is brought for all readers, and how its parts are combined."""
    if resharding is None:
        return "resharded at each reader"
    words = {
        "in float32": resharding.in_float32,
        f"together as {resharding.fusion}": resharding.fusion is not None and resharding.fusion > 0,
        f"times {resharding.scale:g}": resharding.scale != 1.0,
    }
    return " ".join([axes.layout(resharding.placement), *(word for word, holds in words.items() if holds)])


def _sharding(planned: OperatorPlan, axes: AxisNames) -> str:
    return f"{axes.layouts(planned.operands)} → {axes.layouts(planned.results)}"
