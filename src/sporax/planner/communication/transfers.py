"""Which tensors move, when, and how: what follows from a graph and its plan.

A `Schedule` is the plan's communication as plain data. The lowering executes it move by move and the summaries count it, so
a compiled program has the collectives of its plan by construction.

Every tensor is kept at all the placements it has been brought to. A reader that wants another one gets it from the cheapest
of these. Tensors with a settlement are brought to it as soon as they are there; gradients or weights of one fusion number
wait for each other and travel together, right before the first of them is read there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sporax.ir.graph import LITERAL, OperatorGraph
from sporax.ir.placement import Placement
from sporax.ir.plan import Plan, Settlement
from sporax.planner.communication.moves import Move, MoveKind, Redistribution
from sporax.planner.communication.resharding import redistribute


@dataclass(frozen=True, slots=True)
class Transfer:
    """One tensor that is brought from one placement to another.

    Attributes:
        tensor: its number.
        redistribution: the way.
        operator: position of the operator that asks for it; -1 for a result of the step.
        settlement: what else happens on the way; None for a plain move.
    """

    tensor: int
    redistribution: Redistribution
    operator: int = -1
    settlement: Settlement | None = None


Together = tuple[Transfer, ...]
"""Transfers that travel as one: gradients or weights in one buffer. Most often there is one."""

IN_BUFFERS = (MoveKind.ALL_REDUCE, MoveKind.REDUCE_SCATTER, MoveKind.ALL_GATHER)
"""Moves that several tensors make in one buffer."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """All transfers of one graph; those of bodies are in schedules of their own.

    Attributes:
        at_start: of the arguments, before the first operator.
        before, after: per operator, what happens before and after it runs.
        at_end: of the results.
    """

    at_start: tuple[Together, ...]
    before: tuple[tuple[Together, ...], ...]
    after: tuple[tuple[Together, ...], ...]
    at_end: tuple[Together, ...]

    def __iter__(self) -> Iterator[Together]:
        yield from self.at_start
        for before, after in zip(self.before, self.after, strict=True):
            yield from before
            yield from after
        yield from self.at_end


def schedule(graph: OperatorGraph, plan: Plan) -> Schedule:
    """The transfers that `plan` implies for `graph`."""
    return _Scheduler(graph, plan).run()


class _Scheduler:
    def __init__(self, graph: OperatorGraph, plan: Plan) -> None:
        self.graph = graph
        self.plan = plan
        self.available: dict[int, list[Placement]] = {}
        self.waiting: dict[tuple[object, ...], list[Transfer]] = {}

    def run(self) -> Schedule:
        at_start: list[Together] = []
        for each, placement in zip(self.graph.inputs, self.plan.inputs, strict=True):
            at_start += self._arrive(each.tensor, placement, -1)
        before: list[tuple[Together, ...]] = []
        after: list[tuple[Together, ...]] = []
        for number, (operator, planned) in enumerate(zip(self.graph.operators, self.plan.operators, strict=True)):
            fetched: list[Together] = []
            for tensor, wanted in zip(operator.operands, planned.operands, strict=True):
                fetched += self._fetch(tensor, wanted, number)
            before.append(tuple(fetched))
            settled: list[Together] = []
            for tensor, placement in zip(operator.results, planned.results, strict=True):
                settled += self._arrive(tensor, placement, number)
            after.append(tuple(settled))
        at_end: list[Together] = []
        for tensor, wanted in zip(self.graph.outputs, self.plan.outputs, strict=True):
            at_end += self._fetch(tensor, wanted, -1)
        return Schedule(tuple(at_start), tuple(before), tuple(after), tuple(at_end))

    def _arrive(self, tensor: int, placement: Placement, operator: int) -> list[Together]:
        """A tensor is there; bring it where it shall settle, or let it wait for those it travels with."""
        self.available[tensor] = [placement]
        settlement = self.plan.settled.get(tensor)
        if settlement is None:
            return []
        transfer = Transfer(tensor, self._way(tensor, placement, settlement.placement), operator, settlement)
        key = _travels_with(transfer, self.graph.tensors[tensor].dtype)
        if key is not None:
            self.waiting.setdefault(key, []).append(transfer)
            return []
        self._settle(transfer)
        return [(transfer,)]

    def _settle(self, transfer: Transfer) -> None:
        """Note where a tensor is to be had when its transfer is done: parts are gone then, a smaller slice is not."""
        source, target = transfer.redistribution.source, transfer.redistribution.target
        self.available[transfer.tensor] = [target] if source.partial else [source, target]

    def _fetch(self, tensor: int, wanted: Placement, operator: int) -> list[Together]:
        if tensor == LITERAL:
            return []
        if wanted in self.available[tensor] and not wanted.partial:
            return []  # a weight that waits to be gathered is read at home by the optimizer
        before = self._depart(tensor)
        there = self.available[tensor]
        if wanted in there:
            return before
        way = min((self._way(tensor, source, wanted) for source in there), key=lambda each: each.seconds)
        there.append(wanted)
        return [*before, (Transfer(tensor, way, operator),)]

    def _depart(self, tensor: int) -> list[Together]:
        """If `tensor` is among those that wait for each other, they go now."""
        for key, members in self.waiting.items():
            if any(member.tensor == tensor for member in members):
                del self.waiting[key]
                for member in members:
                    self._settle(member)
                return [tuple(members)]
        return []

    def _way(self, tensor: int, source: Placement, target: Placement) -> Redistribution:
        spec = self.graph.tensors[tensor]
        return redistribute(spec.shape, spec.itemsize, source, target, self.plan.mesh, self.plan.alltoall)


def _travels_with(transfer: Transfer, dtype: str) -> tuple[object, ...] | None:
    """Transfers with equal keys are combined in one collective; None for one that goes alone."""
    settlement = transfer.settlement
    moves = transfer.redistribution.moves
    if settlement is None or not settlement.fusion:
        return None
    if not any(move.collective for move in moves) or not all(_goes_in_a_buffer(move) for move in moves):
        return None
    return settlement.fusion, tuple((move.kind, move.axes) for move in moves), dtype, settlement.in_float32


def _goes_in_a_buffer(move: Move) -> bool:
    """Whether several tensors may make the move as one; one without communication each makes by itself."""
    return not move.collective or (move.kind in IN_BUFFERS and move.reduction in ("", "sum"))


def collective_bytes(transfers: Sequence[Together]) -> dict[str, int]:
    """Bytes that one rank holds when it enters the collectives of each kind."""
    total: dict[str, int] = {}
    for together in transfers:
        for transfer in together:
            for move in transfer.redistribution.moves:
                if move.collective:
                    total[move.collective] = total.get(move.collective, 0) + move.local_bytes
    return total
