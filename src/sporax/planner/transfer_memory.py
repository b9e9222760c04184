"""What happens in a step, operators and transfers, in the order of the graph.

Every tensor is there once per placement that it is brought to. Reductions over the same devices that do not wait for each other
become one all-reduce (XLA's combiner): it runs when the last operand is there, so all operands, and then all results, are
there together: twice the gradients of whole parameters in data parallel training. In steps of the facade settings decide what
travels together, and the compiler is told to leave it so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sporax.ir.graph import LITERAL, Operator, OperatorGraph
from sporax.ir.placement import Placement
from sporax.ir.plan import Plan
from sporax.planner.moves import NATIVE_REDUCTIONS, MoveKind
from sporax.planner.transfers import Together, schedule

Value = tuple[int, Placement | None]
"""A tensor at one placement; None for wherever it may be."""

_MOST_TOGETHER = 256
"""Arrays in one combined all-reduce."""


@dataclass(frozen=True, slots=True)
class Event:
    """An operator runs, a tensor is moved, or results are handed out.

    Attributes:
        position: of the operator at which this happens.
        reads, writes: values.
        operator: what runs; None for a move and for the end.
        transfers: what is moved, one for every value; () for an operator.
        combines: equal for reductions that may become one all-reduce; () for everything else.
    """

    position: int
    reads: tuple[Value, ...]
    writes: tuple[Value, ...]
    operator: Operator | None = None
    transfers: Together = ()
    combines: tuple[object, ...] = ()


class Timeline:
    """The events of one step in order, and what follows from them.

    Args:
        graph: the step.
        plan: how it is cut; without one nothing is moved, and every tensor is there once.

    Attributes:
        inputs, outputs: the arguments as values, and the results.
        events: in the order of the graph; the last one hands out the results.
        mesh: the devices; None without a plan.
        groups: numbers of events whose reductions become one all-reduce.
    """

    def __init__(self, graph: OperatorGraph, plan: Plan | None = None) -> None:
        self.graph = graph
        self.mesh = plan.mesh if plan else None
        places: Sequence[Placement | None] = plan.inputs if plan else [None] * len(graph.inputs)
        self.inputs = [(each.tensor, place) for each, place in zip(graph.inputs, places, strict=True)]
        places = plan.outputs if plan else [None] * len(graph.outputs)
        self.outputs: list[Value] = list(zip(graph.outputs, places, strict=True))
        self.events = list(_events(graph, plan) if plan else _bare_events(graph))
        self.events.append(Event(len(graph.operators), tuple(each for each in self.outputs if each[0] != LITERAL), ()))
        self.groups = self._groups() if plan is None or plan.fusion_is_free else []

    def _behind(self, bits: Mapping[int, int]) -> dict[Value, int]:
        """For every value the events it waits for, as a sum of `bits`."""
        found: dict[Value, int] = dict.fromkeys(self.inputs, 0)
        for number, event in enumerate(self.events):
            mask = bits.get(number, 0)
            for value in event.reads:
                mask |= found[value]
            found.update(dict.fromkeys(event.writes, mask))
        return found

    def _groups(self) -> list[list[int]]:
        bits = {number: 1 << number for number, event in enumerate(self.events) if event.combines}
        before = self._behind(bits)
        groups: list[list[int]] = []
        waiting: list[tuple[int, int]] = []
        """Of every group its members, and what they wait for, as bits."""
        known: dict[tuple[object, ...], list[int]] = {}
        for number in bits:
            event = self.events[number]
            waits = _with_groups(before[event.writes[0]], waiting)
            for group in known.setdefault(event.combines, []):
                if not waits & waiting[group][0] and len(groups[group]) < _MOST_TOGETHER:
                    groups[group].append(number)
                    waiting[group] = waiting[group][0] | bits[number], waiting[group][1] | before[event.writes[0]]
                    break
            else:
                known[event.combines].append(len(groups))
                groups.append([number])
                waiting.append((bits[number], before[event.writes[0]]))
        return groups


def _with_groups(waits: int, groups: Sequence[tuple[int, int]]) -> int:
    """What somebody waits for who waits for `waits`: one of a group is there when all of it is."""
    left = [(members, others) for members, others in groups if members & (members - 1)]
    while True:
        ready = [each for each in left if waits & each[0]]
        if not ready:
            return waits
        left = [each for each in left if not waits & each[0]]
        for members, others in ready:
            waits |= members | others


def _bare_events(graph: OperatorGraph) -> Iterator[Event]:
    for number, operator in enumerate(graph.operators):
        reads = tuple((tensor, None) for tensor in operator.operands if tensor != LITERAL)
        yield Event(number, reads, tuple((tensor, None) for tensor in operator.results), operator)


def _events(graph: OperatorGraph, plan: Plan) -> Iterator[Event]:
    found = schedule(graph, plan)
    yield from _moved(graph, 0, found.at_start)
    for number, (operator, planned) in enumerate(zip(graph.operators, plan.operators, strict=True)):
        yield from _moved(graph, number, found.before[number])
        operands = zip(operator.operands, planned.operands, strict=True)
        reads = tuple(value for value in operands if value[0] != LITERAL)
        yield Event(number, reads, tuple(zip(operator.results, planned.results, strict=True)), operator)
        yield from _moved(graph, number, found.after[number])
    yield from _moved(graph, len(graph.operators), found.at_end)


def _moved(graph: OperatorGraph, position: int, transfers: tuple[Together, ...]) -> Iterator[Event]:
    for together in transfers:
        ways = [(each.tensor, each.redistribution) for each in together]
        combines: tuple[object, ...] = ()
        moves = ways[0][1].moves
        if len(moves) == 1 and moves[0].kind is MoveKind.ALL_REDUCE and moves[0].reduction in NATIVE_REDUCTIONS:
            combines = (*sorted(moves[0].axes), moves[0].reduction, graph.tensors[ways[0][0]].dtype)
        yield Event(
            position,
            tuple((tensor, way.source) for tensor, way in ways),
            tuple((tensor, way.target) for tensor, way in ways),
            None,
            together,
            combines,
        )
