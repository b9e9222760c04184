"""How much memory one device needs for a plan, by the lives of tensors.

A tensor lives from the operator that makes it to the last one that reads it; arguments of the step live throughout, unless
a result takes their place. What compilers do not keep does not count: an elementwise operator whose readers are elementwise
too is melted into them, so that they read what it read; a reshape is its operand under another name. Cheap operators run as
soon as their operands are there, updates of variables above all. Slices that transfers make are tensors of their own.

What a compiler does beyond that (buffers of collectives, workspace of kernels, recomputation) is not known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from sporax.ir.graph import LITERAL, MARK, Operator, OperatorGraph, Role
from sporax.ir.placement import Placement
from sporax.ir.plan import Plan
from sporax.planner.cost.model import local_bytes
from sporax.planner.rules import entry_for

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
    """Everything else, gradients included."""


_ROLES = {Role.PARAMETER: Use.PARAMETERS, Role.STATE: Use.STATE, Role.DATA: Use.DATA, Role.CONSTANT: Use.DATA}


@dataclass(frozen=True, slots=True)
class Life:
    """One tensor that takes memory.

    Attributes:
        tensor: its number.
        begin, end: positions of the operators between which it is there, `end` included; -1 is before the first.
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
    return _Lives(graph).run()


def memory_of(graph: OperatorGraph, plan: Plan) -> MemoryUse:
    """Memory of one device that runs `plan`."""
    made = dict(zip((each.tensor for each in graph.inputs), plan.inputs, strict=True))
    for operator, planned in zip(graph.operators, plan.operators, strict=True):
        made.update(zip(operator.results, planned.results, strict=True))
    where = {
        tensor: plan.settled[tensor].placement if tensor in plan.settled else placement
        for tensor, placement in made.items()
    }
    blocks = [
        (each.begin, each.end, each.use, local_bytes(graph.tensors[each.tensor], where[each.tensor], plan.mesh))
        for each in lives(graph)
    ]
    blocks += _copies(graph, plan, where)
    return _peak(blocks, len(graph.operators))


_Block = tuple[int, int, Use, int]


def _copies(graph: OperatorGraph, plan: Plan, where: Mapping[int, Placement]) -> Iterable[_Block]:
    """Slices that are made because a reader wants a tensor elsewhere: there from the first such reader to the last."""
    spans: dict[tuple[int, Placement], tuple[int, int]] = {}
    for number, (operator, planned) in enumerate(zip(graph.operators, plan.operators, strict=True)):
        for tensor, wanted in zip(operator.operands, planned.operands, strict=True):
            if tensor != LITERAL and wanted != where[tensor]:
                first, _ = spans.get((tensor, wanted), (number, number))
                spans[tensor, wanted] = first, number
    for (tensor, wanted), (first, last) in spans.items():
        yield first, last, Use.TRANSIENTS, local_bytes(graph.tensors[tensor], wanted, plan.mesh)


def _peak(blocks: list[_Block], num_operators: int) -> MemoryUse:
    changes: dict[int, dict[Use, int]] = {}
    for begin, end, use, size in blocks:
        for time, change in ((begin, size), (end + 1, -size)):
            at = changes.setdefault(time, {})
            at[use] = at.get(use, 0) + change
    present = dict.fromkeys(Use, 0)
    best, best_time, best_uses, held = -1, -1, dict(present), 0
    for time in sorted(changes):
        for use, change in changes[time].items():
            present[use] += change
        if time < 0:
            held = sum(present.values())
        if sum(present.values()) > best:
            best, best_time, best_uses = sum(present.values()), min(time, num_operators - 1), dict(present)
    return MemoryUse(best, best_time, best_uses, held)


class _Lives:
    def __init__(self, graph: OperatorGraph) -> None:
        self.graph = graph
        self.readers: dict[int, list[int]] = graph.consumers()
        self.outputs = {tensor for tensor in graph.outputs if tensor != LITERAL}
        self.behind: dict[int, frozenset[int]] = {}
        """For every tensor the kept tensors that a reader of it reads."""
        self.begin: dict[int, int] = {}
        self.end: dict[int, int] = {}
        self.melted: dict[int, frozenset[int]] = {}
        """For results of cheap operators what they are computed from."""

    def run(self) -> tuple[Life, ...]:
        graph = self.graph
        for each in graph.inputs:
            self._keep(each.tensor, -1)
        for number, operator in enumerate(graph.operators):
            sources = frozenset[int]().union(*(self.behind[each] for each in operator.operands if each != LITERAL))
            kept = [self._is_kept(operator, tensor) for tensor in operator.results]
            time = number
            if self._melts(operator) and sources:
                time = max(self.begin[source] for source in sources)
                self.melted.update(
                    {tensor: sources for tensor, keep in zip(operator.results, kept, strict=True) if keep}
                )
            for tensor, keep in zip(operator.results, kept, strict=True):
                if keep:
                    self._keep(tensor, time)
                    self._read(sources, time)
                else:
                    self.behind[tensor] = sources
        last = len(graph.operators)
        for tensor in self.outputs:
            self._read(self.behind[tensor], last)
        self._reuse()
        return tuple(self._lives(last))

    def _reuse(self) -> None:
        """A cheap operator writes over an operand of the same size that nobody else reads later."""
        taken: set[int] = set()
        given = {each.tensor for each in self.graph.inputs}
        given -= {self.graph.inputs[argument].tensor for _, argument in self.graph.aliases}
        specs = self.graph.tensors
        for tensor, sources in self.melted.items():
            for source in sorted(sources - taken - given):
                if self.end[source] == self.begin[tensor] and specs[source].num_bytes == specs[tensor].num_bytes:
                    taken.add(source)
                    self.begin[tensor] = min(self.begin[tensor] + 1, self.end[tensor])
                    break

    def _keep(self, tensor: int, number: int) -> None:
        self.behind[tensor] = frozenset([tensor])
        self.begin[tensor] = self.end[tensor] = number

    def _read(self, tensors: Iterable[int], number: int) -> None:
        for tensor in tensors:
            self.end[tensor] = max(self.end[tensor], number)

    def _is_kept(self, operator: Operator, tensor: int) -> bool:
        """Whether a result takes memory of its own."""
        if operator.name in _VIEWS:
            return False
        if tensor in self.outputs or not self._melts(operator):
            return True
        readers = {*self._real_readers(tensor)}
        if operator.name in _COSTLY and len(readers) > 1:
            return True
        return any(not self._melts(self.graph.operators[reader]) for reader in readers)

    def _real_readers(self, tensor: int) -> Iterable[int]:
        """Readers, those of views of the tensor in the views' place."""
        for reader in self.readers.get(tensor, ()):
            operator = self.graph.operators[reader]
            if operator.name in _VIEWS:
                for operand, result in zip(operator.operands, operator.results, strict=False):
                    if operand == tensor:
                        yield from self._real_readers(result)
            else:
                yield reader

    def _melts(self, operator: Operator) -> bool:
        return not operator.bodies and entry_for(operator.name).family in _MELTS

    def _lives(self, last: int) -> Iterable[Life]:
        replaced = {self.graph.inputs[argument].tensor for _, argument in self.graph.aliases}
        roles = {each.tensor: _ROLES[each.role] for each in self.graph.inputs}
        first_backward = self._first_backward()
        for tensor, begin in self.begin.items():
            if tensor in roles:
                end = self.end[tensor] if tensor in replaced else last
                yield Life(tensor, begin, end, roles[tensor])
            else:
                across = begin < first_backward <= self.end[tensor]
                yield Life(tensor, begin, self.end[tensor], Use.ACTIVATIONS if across else Use.TRANSIENTS)

    def _first_backward(self) -> int:
        return next((n for n, each in enumerate(self.graph.operators) if each.backward), len(self.graph.operators))
