"""The events of a step, operators and transfers, in the order of the graph.

The body of an island (`jax.shard_map`) is in its place: compilers see both together.

A tensor exists once per placement that it is resharded to. In steps of the facade the settings decide which transfers
are fused, and the compiler is set to leave them so; in other programs the compiler combines reductions (`merging`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from sporax.ir.graph import LITERAL, Operator, OperatorGraph
from sporax.ir.island import Island
from sporax.ir.placement import Placement
from sporax.ir.plan import Plan
from sporax.planner.communication.gradient_fusion import term_order
from sporax.planner.communication.transfers import TransferGroup, schedule
from sporax.planner.loops.inline import inline_loops, loops_around
from sporax.planner.rules.loop_rules import CARRY, STACK

BORDER = "pvary"
"""The identity of JAX that stands for the border of an island."""
Value = tuple[int, Placement | None]
"""A tensor at one placement; None for wherever it may be."""


@dataclass(frozen=True, slots=True)
class Event:
    """An operator runs, a tensor is moved, or results are handed out.

    Attributes:
        position: of the operator at which this happens.
        reads, writes: values.
        operator: what runs; None for a move and for the end.
        transfers: what is moved, one for every value; () for an operator.
        loops: those that it is in, outermost first (`planner.loops.inline.loops_around`); an operator behind a loop that takes
            its results is in it.
        island: the one that it is in.
    """

    position: int
    reads: tuple[Value, ...]
    writes: tuple[Value, ...]
    operator: Operator | None = None
    transfers: TransferGroup = ()
    loops: tuple[object, ...] = ()
    island: Island | None = None


class Timeline:
    """The events of one step in order, and what follows from them.

    Args:
        plan: how it is sharded; without one nothing is moved, and every tensor is there once.

    Attributes:
        inputs, outputs: the arguments as values, and the results.
        events: in the order of the graph; the last one hands out the results.
        tensors: what each tensor is, by number; those inside of islands come last.
        mesh: the devices; None without a plan.
        merging: whether reductions that do not need each other become one.
        order: by position the operators that wait for a term of a gradient.
    """

    def __init__(self, graph: OperatorGraph, plan: Plan | None = None) -> None:
        self.graph = graph
        self.mesh = plan.mesh if plan else None
        placements: Sequence[Placement | None] = plan.inputs if plan else [None] * len(graph.inputs)
        self.inputs = [(argument.tensor, place) for argument, place in zip(graph.inputs, placements, strict=True)]
        placements = plan.outputs if plan else [None] * len(graph.outputs)
        self.outputs: list[Value] = list(zip(graph.outputs, placements, strict=True))
        self.tensors = [*graph.tensors]
        events = _events(graph, plan) if plan else _bare_events(graph)
        self.events = [part for event in events for part in self._parts(event)]
        # Results are handed out at the end, so they are live until then.
        self.events.append(
            Event(len(graph.operators), tuple(output for output in self.outputs if output[0] != LITERAL), ())
        )
        self.order = term_order(graph, plan) if plan else {}
        self.merging = plan is None or plan.fusion_is_free

    def _parts(self, event: Event) -> Iterator[Event]:
        """The event, or those of the body of an island, between what brings its slices in and out."""
        island = event.operator.operation.params.get("island") if event.operator is not None else None
        if event.operator is None or island is None:
            yield event
            return
        body, first = inline_loops(island.body).graph, len(self.tensors)
        self.tensors += body.tensors

        def values(tensors: Iterable[int]) -> tuple[Value, ...]:
            return tuple((first + tensor, None) for tensor in tensors if tensor != LITERAL)

        border = replace(event.operator, operation=replace(event.operator.operation, name=BORDER, params={}))
        inside = replace(event, island=island)
        yield replace(inside, operator=border, writes=values(argument.tensor for argument in body.inputs))
        for operator, loops in zip(body.operators, loops_around(body), strict=True):
            within = replace(
                inside,
                reads=values(operator.operands),
                writes=values(operator.results),
                operator=replace(operator, backward=event.operator.backward),
                loops=(*event.loops, *((first, loop) for loop in loops)),
            )
            yield from self._parts(within)
        yield replace(event, operator=replace(border, operands=body.outputs), reads=values(body.outputs))


def _bare_events(graph: OperatorGraph) -> Iterator[Event]:
    around = loops_around(graph)
    for number, operator in enumerate(graph.operators):
        reads = tuple((tensor, None) for tensor in operator.operands if tensor != LITERAL)
        writes = tuple((tensor, None) for tensor in operator.results)
        yield Event(number, reads, writes, operator, loops=around[number])


def _events(graph: OperatorGraph, plan: Plan) -> Iterator[Event]:
    communication, around = schedule(graph, plan), loops_around(graph)
    # Arguments are moved before operator 0, results after the last one.
    yield from _moved(0, communication.at_start, ())
    for number, (operator, planned) in enumerate(zip(graph.operators, plan.operators, strict=True)):
        yield from _moved(number, communication.before[number], around[number])
        operands = zip(operator.operands, planned.operands, strict=True)
        reads = tuple(value for value in operands if value[0] != LITERAL)
        writes = tuple(zip(operator.results, planned.results, strict=True))
        yield Event(number, reads, writes, operator, loops=around[number])
        # What has left a loop is moved behind it.
        behind = around[number][:-1] if operator.name in (CARRY, STACK) else around[number]
        yield from _moved(number, communication.after[number], behind)
    yield from _moved(len(graph.operators), communication.at_end, ())


def _moved(position: int, transfers: tuple[TransferGroup, ...], loops: tuple[object, ...]) -> Iterator[Event]:
    for group in transfers:
        ways = [(transfer.tensor, transfer.redistribution) for transfer in group]
        yield Event(
            position,
            tuple((tensor, way.source) for tensor, way in ways),
            tuple((tensor, way.target) for tensor, way in ways),
            None,
            group,
            loops,
        )
