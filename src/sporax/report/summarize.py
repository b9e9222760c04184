"""Making the view of a plan: shardings, communication, and the memory of each device.

Mesh axes have letters (`sporax.report.view.axis_names`).
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import OperatorGraph, Role
from sporax.ir.marks import GradientMark
from sporax.ir.placement import num_parts
from sporax.ir.plan import Plan
from sporax.planner import SearchResult
from sporax.planner.cost.evaluate import PlanCost, cost_of, exposed_shares
from sporax.planner.cost.model import CostModel, Roofline, is_product, multiplied
from sporax.planner.loops.inline import inline_loops
from sporax.planner.memory.backend import Backend
from sporax.planner.memory.peak import MemoryProfile, Use, backend_of
from sporax.report.plan_warnings import plan_warnings
from sporax.report.summary import Summary
from sporax.report.view.axis_names import names_of
from sporax.report.view.headline import Costs, headline
from sporax.report.view.operator_groups import OperatorGroup, operator_groups
from sporax.report.view.plan_view import (
    EqualCollectives,
    MemoryCurve,
    OperatorRow,
    SearchRow,
    TensorRow,
    TimePart,
    Totals,
    Traffic,
)
from sporax.report.view.step_graph import arrows_of

_MOMENTS = 400
"""Steps of the curve of memory at most: more cannot be distinguished on a page, and the file grows with them."""


def summarize(
    graph: OperatorGraph,
    plan: Plan,
    search: SearchResult | None = None,
    model: CostModel | None = None,
    remarks: tuple[str, ...] = (),
) -> Summary:
    """The view of a plan for `graph`: the only place where one is made.

    Args:
        graph: the step.
        plan: its plan.
        search: how it was found; None where the user's strategies decided.
        model: the costs of operators and transfers; without it there is no predicted time.
        remarks: warnings that the plan's maker has; those of the plan itself follow.
    """
    return _Summarizer(graph, plan, search, model).summary(remarks)


class _Summarizer:
    """Puts a plan in words, with its axes as they are shown."""

    def __init__(self, graph: OperatorGraph, plan: Plan, search: SearchResult | None, model: CostModel | None) -> None:
        self.graph, self.plan, self.search, self.model = graph, plan, search, model
        self.axes = names_of(plan)
        self.cost = None if model is None else cost_of(graph, plan, model)
        self.seconds = [] if self.cost is None else self.cost.seconds_by_operator

    def summary(self, remarks: tuple[str, ...]) -> Summary:
        """All of it."""
        graph, plan, search, model = self.graph, self.plan, self.search, self.model
        groups = operator_groups(graph, plan)
        arrows, loose = arrows_of(graph, plan, groups)
        flops = sum(group.flops for group in groups)
        rows = tuple(self._operator(group, flops, moved) for group, moved in zip(groups, loose, strict=True))
        tensors = self._tensors()
        memory = _memory(graph, plan, backend_of("cpu" if model is None else model.platform), self.cost)
        totals = self._totals(rows, tensors, flops, memory)
        predicted = None if self.cost is None else self.cost.seconds
        parts = () if self.cost is None else _time_parts(self.cost, model)
        seconds = predicted if search is None else search.cost_seconds
        found = None
        if search is not None:
            bound = search.bound_seconds
            found = SearchRow(search.method, search.cost_seconds, bound, search.optimal, search.seconds, search.unit)
        return Summary(
            plan.mesh.num_devices,
            self.axes.sizes,
            replace(
                headline(graph, plan.mesh.num_devices, Costs(seconds, totals.peak_bytes, model, search)),
                gathered="" if search is None else self._gathered(),
                hidden=sum(part.hidden_seconds for part in parts),
            ),
            rows,
            arrows,
            tensors,
            totals,
            memory,
            (*plan.notes, *self._loops(), *self._rates()),
            found,
            (*remarks, *(() if model is None else plan_warnings(graph, plan, model))),
            parts,
        )

    def _operator(self, group: OperatorGroup, flops: float, moved_bytes: int) -> OperatorRow:
        return OperatorRow(
            group.path,
            group.name,
            group.phase.value,
            tuple(argument.parts(self.plan.mesh) for argument in group.inputs),
            group.requested,
            tuple(map(self.axes.layout, group.inputs)),
            tuple(map(self.axes.layout, group.results)),
            _collectives(group, self.plan.mesh),
            group.flops,
            group.flops / flops if flops else 0.0,
            sum(self.seconds[number] for number in group.inner) if self.seconds else 0.0,
            moved_bytes,
        )

    def _tensors(self) -> tuple[TensorRow, ...]:
        marks = (operator.mark for operator in self.graph.walk())
        trained = {name for mark in marks if isinstance(mark, GradientMark) for name in mark.parameters}
        rows = []
        for argument, placement in zip(self.graph.inputs, self.plan.inputs, strict=True):
            if argument.role is Role.CONSTANT:
                continue
            spec = self.graph.tensors[argument.tensor]
            reshardings = self.plan.reshardings.get(argument.tensor)
            shape = placement.local_shape(spec.shape, self.plan.mesh)
            # Without gradients nothing says which Parameters are state, so all are called parameters.
            is_state = argument.role is Role.PARAMETER and bool(trained) and argument.name not in trained
            rows.append(
                TensorRow(
                    argument.name,
                    Role.STATE.value if is_state else argument.role.value,
                    spec.dtype,
                    spec.shape,
                    shape,
                    self.axes.layout(placement if reshardings is None else reshardings.placement),
                    self.axes.layout(placement),
                    math.prod(shape) * spec.itemsize,
                )
            )
        return tuple(rows)

    def _totals(
        self, rows: Sequence[OperatorRow], tensors: Sequence[TensorRow], flops: float, memory: MemoryCurve
    ) -> Totals:
        full = {argument.name: self.graph.tensors[argument.tensor].num_bytes for argument in self.graph.inputs}

        def held(role: str) -> int:
            return sum(row.num_bytes for row in tensors if row.role == role)

        def uncut(role: str) -> int:
            return sum(full[row.name] for row in tensors if row.role == role)

        peak = max((uses for _, uses in memory.steps), key=lambda uses: sum(uses.values()))
        return Totals(
            held("parameter"),
            held("state"),
            held("data"),
            uncut("parameter"),
            uncut("state"),
            sum(peak.values()),
            _uses(peak),
            flops,
            _traffic(collective for row in rows for collective in row.collectives),
        )

    def _gathered(self) -> str:
        """Of data that is sharded, what every reader gathers."""
        pairs = zip(self.graph.operators, self.plan.operators, strict=True)
        reads = [read for entry, planned in pairs for read in zip(entry.operands, planned.operands, strict=True)]
        gathered = {tensor for tensor, _ in reads} - {tensor for tensor, place in reads if not place.is_replicated}
        inputs = zip(self.graph.inputs, self.plan.inputs, strict=True)
        data = ((entry, place) for entry, place in inputs if entry.role is Role.DATA and entry.tensor in gathered)
        names = [entry.name for entry, place in data if not place.is_replicated]
        why = "every device gathers it and computes all that reads it, which takes less time at these sizes"
        return f"{', '.join(names)}: {why}" if names else ""

    def _loops(self) -> Iterable[str]:
        names = {operator.name for operator in self.graph.walk()}
        if "while" in names:
            yield "loops of unknown length are counted once"
        if "cond" in names:
            yield "all branches of a condition are counted"

    def _rates(self) -> Iterable[str]:
        if isinstance(self.model, Roofline):
            products = (entry.operation for entry in self.graph.walk() if is_product(entry.operation))
            for dtype in sorted({dtype for product in products for dtype in multiplied(product)}):
                if name := self.model.profile.borrowed_rate(dtype):
                    yield f"products in {dtype} count at the rate of {name}: '{self.model.profile.name}' has none of its own"


def _uses(peak: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """What the peak is made of. Optimizers keep their state in Parameters, so all variables are one entry."""
    variables = peak.get(Use.PARAMETERS.value, 0) + peak.get(Use.STATE.value, 0)
    others = ((use.value, peak.get(use.value, 0)) for use in (Use.DATA, Use.ACTIVATIONS, Use.TRANSIENTS))
    return tuple(pair for pair in (("variables", variables), *others) if pair[1])


def _time_parts(cost: PlanCost, model: CostModel | None) -> tuple[TimePart, ...]:
    """Seconds by kind of work and of collective, with what of them programs on such hardware hide."""
    hidden = model.profile.hidden.items() if isinstance(model, Roofline) else ()
    shares = exposed_shares(cost.by_overlap, cost.compute_seconds, hidden)
    totals: dict[str, tuple[float, float]] = {}
    for (kind, name), seconds in cost.parts.items():
        before, hides = totals.get(name, (0.0, 0.0))
        totals[name] = before + seconds, hides + seconds * (1.0 - shares.get(kind, 1.0))
    parts = (TimePart(name, *seconds) for name, seconds in totals.items() if seconds[0])
    return tuple(sorted(parts, key=lambda part: -part.seconds))


def _memory(graph: OperatorGraph, plan: Plan, backend: Backend, cost: PlanCost | None) -> MemoryCurve:
    """Memory over time; of loops, while one round runs. At most `_MOMENTS` steps; of those that fall together the one with
    most memory, so that the peak is there.
    """
    out = inline_loops(graph)
    inner = out.graph
    number = max(len(inner.operators), 1)
    remaining: dict[int, tuple[int, Mapping[str, int]]] = {}
    for time, present in MemoryProfile(inner, out.unfolded(plan), backend).history:
        uses = {use.value: size for use, size in present.items() if size}
        at = max(time, 0) * _MOMENTS // max(number, _MOMENTS)
        if at not in remaining or sum(uses.values()) > sum(remaining[at][1].values()):
            remaining[at] = remaining[at][0] if at in remaining else time, uses
    backward = next((n for n, operator in enumerate(inner.operators) if operator.backward), None)
    moments = [] if cost is None else [*itertools.accumulate(cost.seconds_by_operator, initial=0.0)]
    times = tuple(moments[min(max(time, 0), len(moments) - 1)] for time, _ in remaining.values()) if moments else ()
    return MemoryCurve(number, backward, tuple(remaining.values()), (*times, *moments[-1:]))


def _collectives(group: OperatorGroup, mesh: DeviceMatrix) -> tuple[EqualCollectives, ...]:
    """What a rank takes part in; fused transfers are one collective."""
    counts: Counter[tuple[str, int, int]] = Counter()
    for island, times in group.islands:
        for inside in island.collectives:
            counts[inside.kind, island.num_devices(inside.axes), inside.num_bytes] += times * inside.times
    for transfer_group, times in group.transfers:
        for moves in zip(*(entry.redistribution.moves for entry in transfer_group), strict=True):
            if moves[0].collective:
                # Fused transfers agree in kind and axes; their bytes are sent in one collective.
                counts[moves[0].collective, num_parts(mesh, moves[0].axes), sum(m.local_bytes for m in moves)] += times
    return tuple(EqualCollectives(*key, count) for key, count in counts.items())


def _traffic(collectives: Iterable[EqualCollectives]) -> tuple[Traffic, ...]:
    totals: dict[str, tuple[int, int]] = {}
    for collective in collectives:
        count, num_bytes = totals.get(collective.kind, (0, 0))
        totals[collective.kind] = count + collective.count, num_bytes + collective.count * collective.num_bytes
    return tuple(Traffic(kind, *total) for kind, total in sorted(totals.items()))
