"""Making the `Summary` of a plan: shardings, communication, and the memory of each device.

Mesh axes have letters (`sporax.report.view.axis_names`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import OperatorGraph, Role
from sporax.ir.marks import GradientMark
from sporax.ir.placement import Placement, num_parts
from sporax.ir.plan import Plan
from sporax.planner.communication.transfers import TransferGroup
from sporax.planner.cost.model import CostModel
from sporax.planner.memory.peak import MemoryUse, Use, memory_of
from sporax.planner.search.space.result import SearchResult
from sporax.report.plan_warnings import plan_warnings
from sporax.report.view.axis_names import names_of
from sporax.report.view.operator_groups import OperatorGroup, operator_groups
from sporax.report.view.summary import Collective, OperatorRow, SearchRow, Summary, TensorRow, Totals, Traffic


def summarize(
    graph: OperatorGraph,
    plan: Plan,
    search: SearchResult | None = None,
    model: CostModel | None = None,
    remarks: tuple[str, ...] = (),
) -> Summary:
    """The summary of a plan for `graph`, with what its search says of it, and warnings: remarks, and what a model prices."""
    return dataclasses.replace(
        Summarizer(graph, plan).summary(),
        search=None if search is None else _search_row(search),
        warnings=(*remarks, *(() if model is None else plan_warnings(graph, plan, model))),
    )


def _search_row(result: SearchResult) -> SearchRow:
    return SearchRow(
        result.method, result.cost_seconds, result.bound_seconds, result.optimal, result.seconds, result.unit
    )


class Summarizer:
    """Puts a plan in words, with its axes as they are shown.

    Args:
        graph: the step.
        plan: its plan.
    """

    def __init__(self, graph: OperatorGraph, plan: Plan) -> None:
        self.graph = graph
        self.plan = plan
        self.axes = names_of(plan)

    def summary(self) -> Summary:
        """All of it."""
        groups = operator_groups(self.graph, self.plan)
        flops = sum(group.flops for group in groups)
        rows = self.rows(groups)
        tensors = self._tensors()
        return Summary(
            self.plan.mesh.num_devices,
            self.axes.sizes,
            rows,
            tensors,
            self._totals(rows, tensors, flops),
            (*self.plan.notes, *self._loops()),
        )

    def rows(self, groups: Sequence[OperatorGroup]) -> tuple[OperatorRow, ...]:
        """What there is to say of groups of operators, one row for each."""
        flops = sum(group.flops for group in groups)
        return tuple(self._operator(group, flops) for group in groups)

    def layout(self, placement: Placement) -> str:
        """A placement in terms of the axes as shown."""
        return self.axes.layout(placement)

    def _operator(self, group: OperatorGroup, flops: float) -> OperatorRow:
        return OperatorRow(
            group.path,
            group.name,
            group.phase.value,
            tuple(argument.parts(self.plan.mesh) for argument in group.inputs),
            group.given,
            tuple(map(self.layout, group.inputs)),
            tuple(map(self.layout, group.results)),
            _collectives(group.transfers, self.plan.mesh),
            group.flops,
            group.flops / flops if flops else 0.0,
        )

    def _tensors(self) -> tuple[TensorRow, ...]:
        trained = _trained(self.graph)
        rows = []
        for argument, kept in zip(self.graph.inputs, self.plan.inputs, strict=True):
            if argument.role is Role.CONSTANT:
                continue
            spec = self.graph.tensors[argument.tensor]
            reshardings = self.plan.reshardings.get(argument.tensor)
            shape = kept.local_shape(spec.shape, self.plan.mesh)
            # Without gradients nothing says which Parameters are state, so all are called parameters.
            is_state = argument.role is Role.PARAMETER and bool(trained) and argument.name not in trained
            rows.append(
                TensorRow(
                    argument.name,
                    Role.STATE.value if is_state else argument.role.value,
                    spec.dtype,
                    spec.shape,
                    shape,
                    self.layout(kept if reshardings is None else reshardings.placement),
                    self.layout(kept),
                    math.prod(shape) * spec.itemsize,
                )
            )
        return tuple(rows)

    def _totals(self, rows: Sequence[OperatorRow], tensors: Sequence[TensorRow], flops: float) -> Totals:
        whole = {argument.name: self.graph.tensors[argument.tensor].num_bytes for argument in self.graph.inputs}

        def held(role: str) -> int:
            return sum(row.num_bytes for row in tensors if row.role == role)

        def uncut(role: str) -> int:
            return sum(whole[row.name] for row in tensors if row.role == role)

        memory = memory_of(self.graph, self.plan)
        return Totals(
            held("parameter"),
            held("state"),
            held("data"),
            uncut("parameter"),
            uncut("state"),
            memory.peak_bytes,
            _uses(memory),
            flops,
            _traffic(collective for row in rows for collective in row.collectives),
        )

    def _loops(self) -> Iterable[str]:
        names = {operator.name for operator in self.graph.walk()}
        if "while" in names:
            yield "loops of unknown length are counted once"
        if "cond" in names:
            yield "all branches of a condition are counted"


def _uses(memory: MemoryUse) -> tuple[tuple[str, int], ...]:
    """What the peak is made of. Optimizers keep their state in Parameters, so all variables are one entry."""
    variables = memory.by_use.get(Use.PARAMETERS, 0) + memory.by_use.get(Use.STATE, 0)
    others = ((use.value, memory.by_use.get(use, 0)) for use in (Use.DATA, Use.ACTIVATIONS, Use.TRANSIENTS))
    return tuple(pair for pair in (("variables", variables), *others) if pair[1])


def _trained(graph: OperatorGraph) -> frozenset[str]:
    """Names of the parameters whose gradients are computed."""
    marks = (operator.mark for operator in graph.walk())
    return frozenset(name for mark in marks if isinstance(mark, GradientMark) for name in mark.parameters)


def _collectives(transfers: Iterable[tuple[TransferGroup, int]], mesh: DeviceMatrix) -> tuple[Collective, ...]:
    """What a rank takes part in; fused transfers are one collective."""
    counts: dict[tuple[str, int, int], int] = {}
    for transfer_group, times in transfers:
        for moves in zip(*(entry.redistribution.moves for entry in transfer_group), strict=True):
            if moves[0].collective:
                # Fused transfers agree in kind and axes; their bytes travel in one collective.
                key = moves[0].collective, num_parts(mesh, moves[0].axes), sum(move.local_bytes for move in moves)
                counts[key] = counts.get(key, 0) + times
    return tuple(Collective(*key, count) for key, count in counts.items())


def _traffic(collectives: Iterable[Collective]) -> tuple[Traffic, ...]:
    totals: dict[str, tuple[int, int]] = {}
    for collective in collectives:
        count, num_bytes = totals.get(collective.kind, (0, 0))
        totals[collective.kind] = count + collective.count, num_bytes + collective.count * collective.num_bytes
    return tuple(Traffic(kind, *total) for kind, total in sorted(totals.items()))
