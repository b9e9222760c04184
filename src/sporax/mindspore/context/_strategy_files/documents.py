"""One operator's strategy in a JSON file, with MindSpore's field names.

Layouts are written where numbers of slices do not determine the slice of each device.

Names of operators in strategy files, and their strategies by these names.

An operator has two names. One says where it is in the program, ``"Net.fc1.matmul/MatMul-op0"``; its number
distinguishes several calls at one path. The other says which weight it reads, ``"MatMul_fc1.weight"``; only the first
operator that reads a weight directly has it.
"""

from __future__ import annotations

import reprlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from msgspec import Meta, Struct

from sporax import ir
from sporax.base import MalformedError, convert
from sporax.base.errors import SporaxRuntimeError, SporaxValueError
from sporax.planner import on_devices, placements_for

_MOST_DEVICES = 2**31 - 1
"""Devices of a job; a larger number in a file is a mistake."""


class LayoutDocument(Struct, frozen=True):
    """A Layout in a file."""

    device_matrix: tuple[int, ...]
    tensor_map: tuple[int | tuple[int, ...], ...]
    rank_list: tuple[int, ...]


class StrategyDocument(Struct, frozen=True):
    """The strategy of one operator in a file, with MindSpore's names."""

    parallel_strategy: tuple[tuple[Annotated[int, Meta(ge=1, le=_MOST_DEVICES)], ...], ...]
    stage: int = 0
    parallel_layouts: tuple[LayoutDocument | None, ...] | None = None
    """Where numbers of slices do not determine the slice of each device."""


def strategy_to_json(strategy: ir.Shardings) -> dict[str, Any]:
    """One operator's entry."""
    numbers = [list(one.split if isinstance(one, ir.Layout) else one or ()) for one in strategy]
    entry: dict[str, Any] = {"parallel_strategy": numbers, "stage": 0}
    if any(isinstance(one, ir.Layout) for one in strategy):
        entry["parallel_layouts"] = [_layout_to_json(one) if isinstance(one, ir.Layout) else None for one in strategy]
    return entry


def strategy_from_json(entry: Any, where: str) -> ir.Shardings:
    """What `strategy_to_json` wrote.

    Args:
        entry: one operator's entry.
        where: what messages call the file.

    Raises:
        SporaxValueError: it is none.
    """
    try:
        document = convert(entry, StrategyDocument)
        layouts = document.parallel_layouts or (None,) * len(document.parallel_strategy)
        return tuple(
            numbers if layout is None else _layout(layout)
            for numbers, layout in zip(document.parallel_strategy, layouts, strict=True)
        )
    except (MalformedError, ValueError) as error:
        raise SporaxValueError(
            f"For '{where}', an operator must have an entry like {{'parallel_strategy': [[2, 4], [4, 1]]}}, but got "
            f"{reprlib.repr(entry)}: {error}."
        ) from None


def _layout_to_json(layout: ir.Layout) -> dict[str, Any]:
    layout = on_devices(layout)
    matrix = layout.device_matrix
    return {"device_matrix": list(matrix.shape), "tensor_map": layout.tensor_map, "rank_list": list(matrix.ranks)}


def _layout(document: LayoutDocument) -> ir.Layout:
    matrix = ir.DeviceMatrix(document.device_matrix, (), document.rank_list)
    return ir.Layout.from_tensor_map(matrix, document.tensor_map)


Items = Mapping[str, ir.Shardings]
"""Strategies by name."""


@dataclass(frozen=True, slots=True)
class Entrance:
    """The entrance of an operator of the forward pass.

    Attributes:
        name: where it is.
        weight_name: which weight it reads; "" for none, and for all but the first that read it.
        mark: what the program says of it, with its path.
        specs: its inputs.
        placements: where a plan has its inputs when they are read.
    """

    name: str
    weight_name: str
    mark: ir.OperatorMark
    specs: tuple[ir.TensorSpec, ...]
    placements: tuple[ir.Placement, ...] = ()


def entrances(graph: ir.OperatorGraph, plan: ir.Plan | None = None) -> list[Entrance]:
    """The operators of the forward pass in order, those inside of loops and branches included."""
    parameters = {argument.tensor: argument.name for argument in graph.inputs if argument.role is ir.Role.PARAMETER}
    occurrences: Counter[str] = Counter()
    taken: set[str] = set()
    marks = []
    for operator, mark, placements, outside in _walk(graph, plan):
        place = f"{operator.path}/{mark.operator}"
        read = [parameters[tensor] for tensor in operator.operands if outside and tensor in parameters]
        weight_name = f"{mark.operator}_{read[0]}" if read else ""
        marks.append(
            Entrance(
                f"{place}-op{occurrences[place]}",
                "" if weight_name in taken else weight_name,
                replace(mark, path=operator.path),
                operator.operation.operands,
                placements,
            )
        )
        occurrences[place] += 1
        taken.add(weight_name)
    return marks


def _walk(
    graph: ir.OperatorGraph, plan: ir.Plan | None, outside: bool = True
) -> Iterator[tuple[Any, ir.OperatorMark, tuple[ir.Placement, ...], bool]]:
    readers = {} if plan is None else graph.consumers()
    for number, operator in enumerate(graph.operators):
        planned = None if plan is None else plan.operators[number]
        mark = operator.mark
        if isinstance(mark, ir.OperatorMark) and mark.side is ir.Side.IN and not operator.backward:
            inputs = (
                () if plan is None else tuple(_read_at(tensor, graph, plan, readers) for tensor in operator.results)
            )
            yield operator, mark, inputs, outside
        for position, body in enumerate(operator.bodies):
            yield from _walk(body, None if planned is None else planned.bodies[position], False)


def _read_at(tensor: int, graph: ir.OperatorGraph, plan: ir.Plan, readers: Mapping[int, Sequence[int]]) -> ir.Placement:
    """Where a tensor is for its first reader; searches move tensors behind the entrance of an operator."""
    if tensor not in readers:
        return ir.Placement.replicated(graph.tensors[tensor].num_dims)
    first = readers[tensor][0]
    return plan.operators[first].operands[graph.operators[first].operands.index(tensor)]


def planned_strategy(
    entrance: Entrance, mesh: ir.DeviceMatrix, keeps: Callable[[ir.OperatorMark], bool]
) -> ir.Shardings | None:
    """The strategy that shards an operator as its plan does; None where no strategy does.

    Args:
        entrance: the operator, with its plan.
        mesh: the devices.
        keeps: whether the plan had to keep the user's strategy of an operator.
    """
    if entrance.mark.in_strategy is not None and keeps(entrance.mark):
        return entrance.mark.in_strategy
    required = [placement.complete() for placement in entrance.placements]
    numbers = tuple(placement.parts(mesh) for placement in required)
    layouts = tuple(placement.to_layout(mesh) for placement in required)
    for strategy in (numbers, layouts):
        try:
            if placements_for(replace(entrance.mark, in_strategy=strategy), entrance.specs, mesh) == required:
                return strategy
        except SporaxRuntimeError:
            continue  # no strategy describes it: what follows others, such as a reshape
    return None


def chosen(graph: ir.OperatorGraph, by_place: Items, by_weight: Items) -> dict[int, ir.Shardings]:
    """The strategies that files have for operators of a graph, by number of the call. Places come before weights."""
    strategies: dict[int, ir.Shardings] = {}
    for entrance in entrances(graph):
        strategy = by_place.get(entrance.name, by_weight.get(entrance.weight_name))
        if strategy is not None:
            strategies[entrance.mark.number] = strategy
    return strategies
