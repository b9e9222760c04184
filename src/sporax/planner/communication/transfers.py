"""The communication schedule: which tensors are redistributed, when and how. It follows from a graph and its plan.

A `Schedule` is plain data. The lowering executes it move by move and the summaries count it, so a compiled program has
the collectives of its plan by construction.

A tensor is available at every placement that it was resharded to. A reader that needs another placement gets it from
the one of least cost. A tensor with a planned resharding gets it as soon as it is produced. Gradients or weights with
one fusion number wait for each other and are transferred together, just before the first of them is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sporax.ir.graph import LITERAL, OperatorGraph
from sporax.ir.placement import Placement
from sporax.ir.plan import Plan, Resharding
from sporax.planner.communication.moves import Move, MoveKind, Redistribution, default_costs
from sporax.planner.communication.resharding import redistribute


@dataclass(frozen=True, slots=True)
class Transfer:
    """One tensor that is brought from one placement to another.

    Attributes:
        tensor: its number.
        redistribution: the way.
        operator: position of the operator that needs it; -1 for a result of the step.
        resharding: the planned resharding that it carries out; None for a plain move.
    """

    tensor: int
    redistribution: Redistribution
    operator: int = -1
    resharding: Resharding | None = None


TransferGroup = tuple[Transfer, ...]
"""Transfers that are sent as one: gradients or weights in one buffer. Most often there is one."""

FUSIBLE_MOVES = (MoveKind.ALL_REDUCE, MoveKind.REDUCE_SCATTER, MoveKind.ALL_GATHER)
"""Moves that several tensors can make in one buffer: they treat every element equally, whatever tensor it belongs to."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """All transfers of one graph; those of bodies are in schedules of their own.

    Attributes:
        at_start: of the arguments, before the first operator.
        before, after: per operator, what happens before and after it runs.
        at_end: of the results.
    """

    at_start: tuple[TransferGroup, ...]
    before: tuple[tuple[TransferGroup, ...], ...]
    after: tuple[tuple[TransferGroup, ...], ...]
    at_end: tuple[TransferGroup, ...]

    def __iter__(self) -> Iterator[TransferGroup]:
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
        at_start: list[TransferGroup] = []
        for argument, placement in zip(self.graph.inputs, self.plan.inputs, strict=True):
            at_start += self._produce(argument.tensor, placement, -1)
        before: list[tuple[TransferGroup, ...]] = []
        after: list[tuple[TransferGroup, ...]] = []
        for number, (operator, planned) in enumerate(zip(self.graph.operators, self.plan.operators, strict=True)):
            arrivals: list[TransferGroup] = []
            for tensor, required in zip(operator.operands, planned.operands, strict=True):
                arrivals += self._consume(tensor, required, number)
            before.append(tuple(arrivals))
            reshardings: list[TransferGroup] = []
            for tensor, placement in zip(operator.results, planned.results, strict=True):
                reshardings += self._produce(tensor, placement, number)
            after.append(tuple(reshardings))
        at_end: list[TransferGroup] = []
        for tensor, required in zip(self.graph.outputs, self.plan.outputs, strict=True):
            at_end += self._consume(tensor, required, -1)
        return Schedule(tuple(at_start), tuple(before), tuple(after), tuple(at_end))

    def _produce(self, tensor: int, placement: Placement, operator: int) -> list[TransferGroup]:
        """A tensor is produced; reshard it, or let it wait for those that share its collective."""
        self.available[tensor] = [placement]
        resharding = self.plan.reshardings.get(tensor)
        if resharding is None:
            return []
        transfer = Transfer(tensor, self._redistribution(tensor, placement, resharding.placement), operator, resharding)
        key = _fusion_key(transfer, self.graph.tensors[tensor].dtype)
        if key is not None:
            self.waiting.setdefault(key, []).append(transfer)
            return []
        self._record(transfer)
        return [(transfer,)]

    def _record(self, transfer: Transfer) -> None:
        """Note where a tensor is available when its transfer is done: partial sums are gone then, a smaller slice is not."""
        source, target = transfer.redistribution.source, transfer.redistribution.target
        # A partial sum must not be read once it is reduced elsewhere: another reader would reduce it again.
        self.available[transfer.tensor] = [target] if source.partial else [source, target]

    def _consume(self, tensor: int, required: Placement, operator: int) -> list[TransferGroup]:
        if tensor == LITERAL:
            return []
        if required in self.available[tensor] and not required.partial:
            return []  # a weight that waits to be gathered is read in its storage sharding by the optimizer
        before = self._release(tensor)
        sources = self.available[tensor]
        if required in sources:
            return before
        # Every placement that exists is a possible source; that of least cost may be one that an earlier reader needed.
        redistribution = min(
            (self._redistribution(tensor, source, required) for source in sources), key=lambda entry: entry.seconds
        )
        # Later readers find the tensor here as well, and need no move of their own.
        sources.append(required)
        return [*before, (Transfer(tensor, redistribution, operator),)]

    def _release(self, tensor: int) -> list[TransferGroup]:
        """If `tensor` is among those that wait for each other, they go now."""
        for key, members in self.waiting.items():
            if any(member.tensor == tensor for member in members):
                del self.waiting[key]
                # A buffer is sent whole, so its first reader brings all members along.
                for member in members:
                    self._record(member)
                return [tuple(members)]
        return []

    def _redistribution(self, tensor: int, source: Placement, target: Placement) -> Redistribution:
        spec = self.graph.tensors[tensor]
        plan, costs = self.plan, default_costs(self.plan.has_reduce_scatter)
        return redistribute(spec.shape, spec.itemsize, source, target, plan.mesh, plan.alltoall, costs)


def _fusion_key(transfer: Transfer, dtype: str) -> tuple[object, ...] | None:
    """Transfers with equal keys are combined in one collective; None for one that goes alone."""
    resharding = transfer.resharding
    moves = transfer.redistribution.moves
    if resharding is None or not resharding.fusion:
        return None
    if not any(move.collective for move in moves) or not all(_is_fusible(move) for move in moves):
        return None
    # Every member must make the same moves, or the buffer could not be sent at once.
    return resharding.fusion, tuple((move.kind, move.axes) for move in moves), dtype, resharding.in_float32


def _is_fusible(move: Move) -> bool:
    """Whether several tensors may make the move as one; one without communication each makes by itself."""
    # Reductions other than sums would need a buffer of their own kind.
    return not move.collective or (move.kind in FUSIBLE_MOVES and move.reduction in ("", "sum"))


def collective_bytes(transfers: Sequence[TransferGroup]) -> dict[str, int]:
    """Bytes that one rank holds when it enters the collectives of each kind."""
    moves = [move for group in transfers for transfer in group for move in transfer.redistribution.moves]
    kinds = {move.collective for move in moves if move.collective}
    return {kind: sum(move.local_bytes for move in moves if move.collective == kind) for kind in kinds}
