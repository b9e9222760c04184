"""What surely runs before what, whatever the plan: the ground on which memory is counted that every plan needs (`surely`).

Kernels run in the order of their depths (`planner.memory.kernel_fusion`): a kernel that waits for a longer chain of
others runs later. What
an operator is computed from has run before it. Something else has, too, if it is surely less deep; and the depth of a chain is
at least the number of its operators that are kernels of their own in every plan.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from sporax.ir.graph import LITERAL, Operator
from sporax.planner.memory.instructions import LOOPS, MAYBE_VIEWS, VIEWS
from sporax.planner.rules import entry_for
from sporax.planner.rules.loops import RULES
from sporax.planner.search.operator_rules import is_identity
from sporax.planner.search.problem import Problem


class Sort(Enum):
    """What an operator becomes in every plan."""

    KERNEL = "kernel"
    """A kernel of its own."""
    REDUCTION = "reduction"
    """A reduction of more elements than there are devices: a kernel, with an elementwise operator before it."""
    LOOP = "loop"
    """Melted into the loops that read it, or written out."""
    VIEW = "view"
    """A view, or a loop."""
    OTHER = "other"
    """Nothing that is sure."""


@dataclass(frozen=True, slots=True)
class Before:
    """What has surely happened when an operator runs.

    Attributes:
        operator: which one.
        slack: for every tensor that it is computed from, and every argument, by how much the operator is surely deeper.
        reach: for every operator that it waits for, and itself, how many kernels there surely are from there on.
    """

    operator: int
    slack: Mapping[int, int]
    reach: Mapping[int, int]


class Order:
    """The operators of a problem, and what they wait for.

    Args:
        problem: the problem.

    Attributes:
        sorts: per operator; None for marks and barriers.
        operands: per operator what it reads, by origin.
        producer: for every tensor (an origin) that somebody makes, that operator.
        alive: per operator whether a result of the step depends on it.
        same: for every tensor one that it may share an array with, the same for all of these.
    """

    def __init__(self, problem: Problem) -> None:
        self.graph, self.bundles = problem.graph, problem.bundles
        self.devices = problem.mesh.num_devices
        operators = self.graph.operators
        self.sorts = [None if is_identity(each) else self._sort(each) for each in operators]
        self.operands = [self.bundles.operands(number) for number in range(len(operators))]
        self.producer = {
            tensor: number
            for number, each in enumerate(operators)
            for tensor in each.results
            if self.bundles.origin[tensor] == tensor
        }
        self.outputs = frozenset(self.bundles.origin[each] for each in self.graph.outputs if each != LITERAL)
        self.alive = self._alive()
        self.same = self._same()
        self._waits, self._depths = self._waits_for()

    def _sort(self, operator: Operator) -> Sort:
        name = operator.name
        if operator.bodies or name in RULES:
            return Sort.OTHER
        if name in ("dot_general", "conv_general_dilated"):
            return Sort.OTHER if LITERAL in operator.operands else Sort.KERNEL
        if name.startswith("reduce_") and "window" not in name:
            return Sort.REDUCTION if self._ratio(operator) > self.devices else Sort.OTHER
        if name in VIEWS or name in MAYBE_VIEWS or name == "transpose":
            return Sort.VIEW
        if name in ("concatenate", "stack"):
            return Sort.OTHER
        return Sort.LOOP if entry_for(name).family in LOOPS or name == "gather" else Sort.KERNEL

    @staticmethod
    def _ratio(operator: Operator) -> int:
        """How many times larger the larger one of operand and result is."""
        sizes = [math.prod(each.shape) for each in (operator.operation.operands[0], operator.operation.results[0])]
        return max(sizes) // max(min(sizes), 1)

    def _alive(self) -> list[bool]:
        needed = {*self.outputs}
        alive = [False] * len(self.graph.operators)
        for number in reversed(range(len(alive))):
            origins = {self.bundles.origin[tensor] for tensor in self.graph.operators[number].results}
            alive[number] = not needed.isdisjoint(origins)
            if alive[number]:
                needed.update(self.operands[number])
        return alive

    def _same(self) -> list[int]:
        found = list(range(len(self.graph.tensors)))

        def first(tensor: int) -> int:
            while found[tensor] != tensor:
                tensor = found[tensor]
            return tensor

        for operator, sort in zip(self.graph.operators, self.sorts, strict=True):
            grows = operator.name in MAYBE_VIEWS and operator.operands and self._ratio(operator) > self.devices
            reduces = operator.name.startswith("reduce_") and sort is Sort.OTHER
            if sort in (None, Sort.VIEW) or reduces:
                for operand, result in zip(operator.operands, operator.results, strict=False):
                    if operand != LITERAL and not grows:
                        found[first(result)] = first(operand)
        return [first(tensor) for tensor in found]

    def _waits_for(self) -> tuple[list[int], list[int]]:
        """Per operator those that it waits for, as bits, and the number of kernels of the longest chain up to it."""
        made: dict[int, tuple[int, int]] = {}
        waits: list[int] = []
        depths: list[int] = []
        for number, operator in enumerate(self.graph.operators):
            known = [made.get(tensor, (0, 0)) for tensor in operator.operands if tensor != LITERAL]
            bits, depth = 0, max((each for _, each in known), default=0)
            for each, _ in known:
                bits |= each
            depth += self.sorts[number] in (Sort.KERNEL, Sort.REDUCTION)
            waits.append(bits)
            depths.append(depth)
            if self.sorts[number] is None:  # every tensor by itself
                pairs = zip(operator.operands, operator.results, strict=True)
                made.update((result, made.get(operand, (0, 0))) for operand, result in pairs)
            else:
                made.update(dict.fromkeys(operator.results, (bits | 1 << number, depth)))
        return waits, depths

    def depends(self, operator: int, on: int) -> bool:
        """Whether an operator is computed from what another one makes."""
        return bool(self._waits[operator] >> on & 1)

    def before(self, operator: int, copies: Callable[[int, int], int]) -> Before:
        """What has surely happened when an operator runs.

        Args:
            operator: which one.
            copies: how many kernels surely bring an operand (operator, place) in order before its operator runs.
        """
        slack: dict[int, int] = {}
        reach: dict[int, int] = {}
        for number in range(operator, -1, -1):
            if self.sorts[number] is None:
                pairs = zip(self.operands[number], self.graph.operators[number].results, strict=True)
                for tensor, result in pairs:
                    if result in slack and tensor != LITERAL:
                        slack[tensor] = max(slack.get(tensor, 0), slack[result])
            elif number == operator or self.depends(operator, number):
                kernels = self.sorts[number] in (Sort.KERNEL, Sort.REDUCTION)
                results = self.graph.operators[number].results
                reach[number] = kernels + max((slack.get(tensor, 0) for tensor in results), default=0)
                for place, tensor in enumerate(self.operands[number]):
                    if tensor != LITERAL:
                        slack[tensor] = max(slack.get(tensor, 0), reach[number] + copies(number, place))
        slack.update((each.tensor, self._depths[operator]) for each in self.graph.inputs)
        return Before(operator, slack, reach)

    def depth(self, operator: int) -> int:
        """The number of kernels of the longest chain that ends with an operator."""
        return self._depths[operator]
