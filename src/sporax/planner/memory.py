"""How much memory one device needs for a plan, by the lives of tensors.

A tensor lives from the operator that makes it to the last one that reads it; arguments of the step live throughout, unless
a result takes their place. What compilers do not keep does not count: an elementwise operator whose readers are elementwise
too is melted into them, so that they read what it read; a reshape is its operand under another name. Cheap operators run as
soon as their operands are there, updates of variables above all. A tensor is there once for every placement it is brought to;
cutting without communication is melted like an elementwise operator (`transfer_memory` says what collectives need).

What a compiler does beyond that (rearranged operands of convolutions, workspace of kernels, recomputation) is not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from sporax.ir.graph import LITERAL, MARK, OperatorGraph, Role
from sporax.ir.plan import Plan
from sporax.planner.cost.model import local_bytes
from sporax.planner.rules import entry_for
from sporax.planner.transfer_memory import Event, Timeline, Value

_VIEWS = frozenset(["reshape", "squeeze", "expand_dims", "optimization_barrier", "stop_gradient", "name", MARK])
_MELTS = frozenset(["1 elementwise", "2 dimensions", "9 creation"])
_COSTLY = frozenset(
    [
        "acos",
        "acosh",
        "asin",
        "asinh",
        "atan",
        "atan2",
        "atanh",
        "cbrt",
        "cos",
        "cosh",
        "div",
        "erf",
        "erf_inv",
        "erfc",
        "exp",
        "exp2",
        "expm1",
        "log",
        "log1p",
        "logistic",
        "pow",
        "rsqrt",
        "sin",
        "sinh",
        "sqrt",
        "tan",
        "tanh",
    ]
)
"""What compilers do not compute twice, once for each reader."""


class Use(Enum):
    """What memory is used for."""

    PARAMETERS = "parameters"
    STATE = "state"
    DATA = "data"
    ACTIVATIONS = "activations"
    """Made in the forward pass, read in the backward pass."""
    TRANSIENTS = "transients"
    """Everything else, gradients included; what takes an argument's place at the next step counts as that argument."""


_ROLES = {Role.PARAMETER: Use.PARAMETERS, Role.STATE: Use.STATE, Role.DATA: Use.DATA, Role.CONSTANT: Use.DATA}


@dataclass(frozen=True, slots=True)
class Life:
    """One tensor that takes memory.

    Attributes:
        tensor: its number.
        begin, end: ticks of events between which it is there, `end` included; -1 is before the first.
        use: what for.
    """

    tensor: int
    begin: int
    end: int
    use: Use


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Predicted memory of one device.

    Attributes:
        peak_bytes: the most that is in use at a time.
        operator: position of the operator at which that is; -1 for the start.
        by_use: what it is used for at that time.
        held_bytes: the arguments alone.
    """

    peak_bytes: int
    operator: int
    by_use: Mapping[Use, int]
    held_bytes: int

    def __str__(self) -> str:
        parts = ", ".join(f"{use.value} {size / 1e6:.1f}" for use, size in self.by_use.items() if size)
        return f"{self.peak_bytes / 1e6:.1f} MB at operator {self.operator} ({parts})"


def lives(graph: OperatorGraph) -> tuple[Life, ...]:
    """The tensors of a graph that take memory, whatever the plan."""
    return tuple(_Lives(Timeline(graph), _whole_bytes(graph)).run().values())


def memory_of(graph: OperatorGraph, plan: Plan) -> MemoryUse:
    """Memory of one device that runs `plan`."""
    timeline = Timeline(graph, plan)
    best, best_time, best_uses, held = -1, -1, dict.fromkeys(Use, 0), 0
    for time, present in _over_time(_blocks(timeline, plan)):
        size = sum(present.values())
        if time < 0:
            held = size
        if size > best:
            best, best_time, best_uses = size, time, present
    return MemoryUse(best, min(_position(timeline, best_time), len(graph.operators) - 1), best_uses, held)


def memory_over_time(graph: OperatorGraph, plan: Plan) -> tuple[tuple[int, Mapping[Use, int]], ...]:
    """Memory of one device that runs `plan`: positions of operators from which on it is so much, by use.

    The first is -1, the start; the last one past the last operator, where all is given back but for what nobody counts. Of
    all that happens at an operator, the most is told.
    """
    timeline = Timeline(graph, plan)
    most: dict[int, Mapping[Use, int]] = {}
    for time, present in _over_time(_blocks(timeline, plan)):
        position = _position(timeline, time)
        if position not in most or sum(present.values()) > sum(most[position].values()):
            most[position] = present
    return tuple(most.items())


_TICKS = 2
"""Of every event: it happens, and then the cheap operators run that waited for it."""

_Block = tuple[int, int, Use, int]
"""First and last tick, use, bytes."""


def _position(timeline: Timeline, tick: int) -> int:
    """Which operator runs at a tick."""
    if tick < 0:
        return -1
    events = timeline.events
    return events[tick // _TICKS].position if tick < _TICKS * len(events) else events[-1].position + 1


def _whole_bytes(graph: OperatorGraph) -> Callable[[Value], int]:
    return lambda value: graph.tensors[value[0]].num_bytes


def _slice_bytes(graph: OperatorGraph, plan: Plan) -> Callable[[Value], int]:
    def size(value: Value) -> int:
        tensor, placement = value
        assert placement is not None
        return local_bytes(graph.tensors[tensor], placement, plan.mesh)

    return size


def _blocks(timeline: Timeline, plan: Plan) -> Iterator[_Block]:
    """What takes memory: tensors at every placement, and copies of arguments that are replaced."""
    size = _slice_bytes(timeline.graph, plan)
    alive = _Lives(timeline, size)
    found = alive.run()
    received = {value for event in timeline.events if event.sends for value in event.writes}
    copied = timeline.copied_arguments()
    housed = {
        gradient
        for argument, result in copied.items()
        for gradient in alive.melted.get(result, frozenset()) - received
        if size(gradient) == size(argument) and alive.begin[gradient] >= 0
    }
    freed = {result: found[argument].end + 1 for argument, result in copied.items()}
    for value, life in found.items():
        if value not in housed:  # gradients and results of copied arguments lie where the arguments lay
            yield max(life.begin, min(freed.get(value, -1), life.end)), life.end, life.use, size(value)
    if copied:
        yield 0, max(found[value].end for value in copied), Use.TRANSIENTS, max(map(size, copied))


def _over_time(blocks: Iterable[_Block]) -> Iterator[tuple[int, dict[Use, int]]]:
    """Every time at which something changes, with what is there from then on."""
    changes: dict[int, dict[Use, int]] = {}
    for begin, end, use, size in blocks:
        for time, change in ((begin, size), (end + 1, -size)):
            at = changes.setdefault(time, {})
            at[use] = at.get(use, 0) + change
    present = dict.fromkeys(Use, 0)
    for time in sorted(changes):
        for use, change in changes[time].items():
            present[use] += change
        yield time, dict(present)


class _Lives:
    """When values are there, in ticks of the timeline's events."""

    def __init__(self, timeline: Timeline, size: Callable[[Value], int]) -> None:
        self.timeline, self.size = timeline, size
        self.readers: dict[Value, list[Event]] = {}
        for event in timeline.events[:-1]:
            for value in event.reads:
                self.readers.setdefault(value, []).append(event)
        self.outputs = {value for value in timeline.outputs if value[0] != LITERAL}
        self.behind: dict[Value, frozenset[Value]] = {}
        """For every value the kept values that a reader of it reads."""
        self.begin: dict[Value, int] = {}
        self.end: dict[Value, int] = {}
        self.melted: dict[Value, frozenset[Value]] = {}
        """For results of cheap operators what they are computed from."""

    def run(self) -> dict[Value, Life]:
        for value in self.timeline.inputs:
            self._keep(value, -1)
        for event, number in zip(self.timeline.events[:-1], self.timeline.times, strict=False):
            sources = frozenset[Value]().union(*(self.behind[value] for value in event.reads))
            kept = [value for value in event.writes if self._is_kept(event, value)]
            time = _TICKS * number
            if _melts(event) and sources:
                time = max(0, *(self.begin[source] | 1 for source in sources))
                self.melted.update(dict.fromkeys(kept, sources))
            for value in event.writes:
                if value in kept:
                    self._keep(value, time)
                    self._read(sources, time)
                else:
                    self.behind[value] = sources
        for value in self.outputs:
            self._read(self.behind[value], self._last)
        self._reuse()
        return dict(self._lives())

    @property
    def _last(self) -> int:
        return _TICKS * (len(self.timeline.events) - 1)

    def _reuse(self) -> None:
        """A cheap operator writes over an operand of the same size that nobody else reads later.

        Not over one that was gathered or traded: collectives leave it in another shape than it is read in.
        """
        events = self.timeline.events
        taken = {value for event in events if event.sends and not event.combines for value in event.writes}
        given = {*self.timeline.inputs}
        given -= {self.timeline.inputs[argument] for _, argument in self.timeline.graph.aliases}
        for value, sources in self.melted.items():
            for source in sorted(sources - taken - given, key=lambda each: each[0]):
                if self.end[source] == self.begin[value] and self.size(source) == self.size(value):
                    taken.add(source)
                    self.begin[value] = min(self.begin[value] + 1, self.end[value])
                    break

    def _keep(self, value: Value, time: int) -> None:
        self.behind[value] = frozenset([value])
        self.begin[value] = self.end[value] = time

    def _read(self, values: Iterable[Value], time: int) -> None:
        for value in values:
            self.end[value] = max(self.end[value], time)

    def _is_kept(self, event: Event, value: Value) -> bool:
        """Whether a result takes memory of its own."""
        if _is_view(event):
            return False
        if value in self.outputs or not _melts(event):
            return True
        readers = [*self._real_readers(value)]
        if event.operator is not None and event.operator.name in _COSTLY and len({id(each) for each in readers}) > 1:
            return True
        return any(not _melts(reader) for reader in readers)

    def _real_readers(self, value: Value) -> Iterable[Event]:
        """Readers, those of views of the value in the views' place."""
        for event in self.readers.get(value, ()):
            if _is_view(event):
                for operand, result in zip(event.reads, event.writes, strict=False):
                    if operand == value:
                        yield from self._real_readers(result)
            else:
                yield event

    def _lives(self) -> Iterable[tuple[Value, Life]]:
        timeline = self.timeline
        replaced = {timeline.inputs[argument] for _, argument in timeline.graph.aliases}
        roles = {value: _ROLES[each.role] for value, each in zip(timeline.inputs, timeline.graph.inputs, strict=True)}
        first_backward = self._first_backward()
        for value, begin in self.begin.items():
            if value in roles:
                end = self.end[value] if value in replaced else self._last
                yield value, Life(value[0], begin, end, roles[value])
            else:
                across = begin < first_backward <= self.end[value]
                use = Use.ACTIVATIONS if across else Use.TRANSIENTS
                yield value, Life(value[0], begin, max(begin, self.end[value]), use)

    def _first_backward(self) -> int:
        events = enumerate(self.timeline.events)
        found = (number for number, each in events if each.operator is not None and each.operator.backward)
        return _TICKS * next(found, len(self.timeline.events))


def _is_view(event: Event) -> bool:
    return event.operator is not None and event.operator.name in _VIEWS


def _melts(event: Event) -> bool:
    """Whether compilers compute something along with its readers: elementwise operators, and cutting without sending."""
    if event.operator is None:
        return not event.sends
    return not event.operator.bodies and entry_for(event.operator.name).family in _MELTS
