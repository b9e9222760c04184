"""The summary of a plan: shardings, communication, and the memory of each device.

`summarize` turns a graph and its plan into a `Summary`, a value with one row per operator that the user wrote, one row
per tensor that enters the step, and totals. `sporax.planner.report.summary_text` makes its text. Mesh axes have letters
(`sporax.planner.report.axis_names`).
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import OperatorGraph, Role
from sporax.ir.marks import GradientMark
from sporax.ir.placement import Placement, num_parts
from sporax.ir.plan import Plan
from sporax.planner.communication.transfers import TransferGroup
from sporax.planner.memory.peak import MemoryUse, Use, memory_of
from sporax.planner.operators.groups import OperatorGroup, operator_groups
from sporax.planner.report.axis_names import names_of
from sporax.planner.report.summary_text import plain_text
from sporax.planner.search.result import SearchResult

VERSION = 1
"""Of the JSON form."""


@dataclass(frozen=True, slots=True)
class Collective:
    """Equal collectives of one operator.

    Attributes:
        kind: ``"all_reduce"``, ``"all_gather"``, ``"reduce_scatter"``, ``"all_to_all"`` or ``"permute"``.
        ranks: how many take part in one.
        num_bytes: what one rank brings into one.
        count: how many there are per step.
    """

    kind: str
    ranks: int
    num_bytes: int
    count: int = 1


@dataclass(frozen=True, slots=True)
class OperatorRow:
    """One call of one operator that the user wrote, in one phase of the step.

    Attributes:
        path, name: where it stands and what it is; the name is "" for what stands outside of such operators.
        phase: ``"forward"``, ``"backward"`` or ``"update"``.
        strategy: numbers of slices per dimension of each input.
        given: whether the user said so.
        inputs, results: layouts at its entrance and exit; in the backward phase, those of the cotangents.
        collectives: what is communicated for it.
        flops: floating-point operations of one device.
        flops_share: their share of the step's.
    """

    path: str
    name: str
    phase: str
    strategy: tuple[tuple[int, ...], ...]
    given: bool
    inputs: tuple[str, ...]
    results: tuple[str, ...]
    collectives: tuple[Collective, ...]
    flops: float
    flops_share: float


@dataclass(frozen=True, slots=True)
class TensorRow:
    """One input of the step.

    Attributes:
        name: the Parameter's, or ``"input 0"``.
        role: ``"parameter"`` for what is trained (in steps that train nothing, every Parameter), ``"state"`` for other
            variables (moments, counters, running statistics), ``"data"``.
        dtype: of its elements.
        shape, slice_shape: of the whole, and of what a device keeps.
        layout: how operators have it.
        kept_as: how it lies between steps; differs from `layout` with optimizer parallelism.
        num_bytes: of one device.
    """

    name: str
    role: str
    dtype: str
    shape: tuple[int, ...]
    slice_shape: tuple[int, ...]
    layout: str
    kept_as: str
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Traffic:
    """All collectives of one kind in a step.

    Attributes:
        kind: as in `Collective`.
        count: how many one rank takes part in.
        num_bytes: what it brings into them.
    """

    kind: str
    count: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over a step, of one device.

    Attributes:
        parameter_bytes, state_bytes, data_bytes: of the inputs by role.
        whole_parameter_bytes, whole_state_bytes: the same whole: what a single device would hold.
        peak_bytes: predicted most memory in use, by the lives of tensors.
        peak_uses: what it is made of, as pairs of a use and bytes.
        flops: floating-point operations.
        traffic: communication by kind.
    """

    parameter_bytes: int
    state_bytes: int
    data_bytes: int
    whole_parameter_bytes: int
    whole_state_bytes: int
    peak_bytes: int
    peak_uses: tuple[tuple[str, int], ...]
    flops: float
    traffic: tuple[Traffic, ...]


@dataclass(frozen=True, slots=True)
class SearchRow:
    """How the plan was found.

    Attributes:
        method: the search.
        predicted_seconds: of one step as the search left it; optimizer parallelism and fusion come after it.
        bound_seconds: no plan of the same search space is faster than this; None when nothing was proven.
        optimal: the prediction is the least of the search space.
        search_seconds: what the search took.
        unit: of the prediction and the bound; another one than seconds where a model without hardware priced the plan.
    """

    method: str
    predicted_seconds: float
    bound_seconds: float | None
    optimal: bool
    search_seconds: float
    unit: str = "s"


@dataclass(frozen=True, slots=True)
class Summary:
    """A plan for people. ``str(summary)`` is a table of at most 120 columns.

    Attributes:
        num_devices: how many there are.
        axes: name and size of each axis as shown, outermost first.
        operators: in the order in which they run.
        tensors: inputs of the step.
        totals: sums.
        notes: what one should know: operators that could not be sharded, and why.
        search: how the plan was found; None where the user's shardings decided.
    """

    num_devices: int
    axes: tuple[tuple[str, int], ...]
    operators: tuple[OperatorRow, ...]
    tensors: tuple[TensorRow, ...]
    totals: Totals
    notes: tuple[str, ...]
    search: SearchRow | None = None

    def __str__(self) -> str:
        return plain_text(self)

    def to_json(self) -> str:
        """All of it as a JSON object, keys as the attributes here."""
        return json.dumps({"version": VERSION, **dataclasses.asdict(self)}, indent=1)


def summarize(graph: OperatorGraph, plan: Plan, search: SearchResult | None = None) -> Summary:
    """The summary of a plan for `graph`, with what the search that found it says of it."""
    summary = Summarizer(graph, plan).summary()
    return summary if search is None else dataclasses.replace(summary, search=_search_row(search))


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
                key = moves[0].collective, num_parts(mesh, moves[0].axes), sum(move.local_bytes for move in moves)
                counts[key] = counts.get(key, 0) + times
    return tuple(Collective(*key, count) for key, count in counts.items())


def _traffic(collectives: Iterable[Collective]) -> tuple[Traffic, ...]:
    totals: dict[str, tuple[int, int]] = {}
    for collective in collectives:
        count, num_bytes = totals.get(collective.kind, (0, 0))
        totals[collective.kind] = count + collective.count, num_bytes + collective.count * collective.num_bytes
    return tuple(Traffic(kind, *total) for kind, total in sorted(totals.items()))
