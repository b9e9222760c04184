"""Which operators run before others in every plan.

Problem: the lower bound on peak memory must know which tensors exist when an operator runs, whatever the plan.

Method: kernels run in the order of their depth in the graph (`planner.memory.xla_cpu.kernel_fusion`). The operators that an
operator depends on have run before it. Other operators have run before it if their depth is smaller in every plan. The
depth of a chain is at least the number of its operators that are kernels of their own in every plan.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from sporax.ir.graph import LITERAL, Operator
from sporax.planner.memory.backend import VIEWS
from sporax.planner.memory.xla_cpu.instructions import LOOPS, MAYBE_VIEWS
from sporax.planner.rules import entry_for
from sporax.planner.rules.loop_rules import RULES
from sporax.planner.search.space.operator_rules import is_identity
from sporax.planner.search.space.problem import Problem


class CompiledForm(Enum):
    """What an operator becomes in every plan."""

    KERNEL = "kernel"
    """A kernel of its own."""
    REDUCTION = "reduction"
    """A reduction of more elements than there are devices: a kernel, with an elementwise operator before it."""
    LOOP = "loop"
    """Fused into the loops that read it, or written out."""
    VIEW = "view"
    """A view, or a loop."""
    OTHER = "other"
    """It differs from plan to plan."""


@dataclass(frozen=True, slots=True)
class Predecessors:
    """What has run before an operator in every plan.

    Attributes:
        operator: which one.
        slack: for every tensor that it is computed from, and every argument, by how much deeper the operator is, at least.
        reach: for every operator that it waits for, and itself, how many kernels there are, at least, from there on.
    """

    operator: int
    slack: Mapping[int, int]
    reach: Mapping[int, int]


class Order:
    """The operators of a problem, and what they wait for.

    Args:
        problem: the problem.

    Attributes:
        forms: per operator; None for marks and barriers.
        operands: per operator what it reads, by origin.
        producer: for every tensor (an origin) that an operator makes, that operator.
        alive: per operator whether a result of the step depends on it.
        same: for every tensor one that it may share an array with, the same for all of these.
    """

    def __init__(self, problem: Problem) -> None:
        self.graph, self.decisions = problem.graph, problem.decisions
        self.devices = problem.mesh.num_devices
        operators = self.graph.operators
        self.forms = [None if is_identity(operator) else self._form(operator) for operator in operators]
        self.operands = [self.decisions.operands(number) for number in range(len(operators))]
        self.producer = {
            tensor: number
            for number, operator in enumerate(operators)
            for tensor in operator.results
            if self.decisions.origin[tensor] == tensor
        }
        self.outputs = frozenset(self.decisions.origin[output] for output in self.graph.outputs if output != LITERAL)
        self.alive = self._alive()
        self.same = self._same()
        # Computed once: `depends` is asked for every pair of a moment and a reader.
        self._waits, self._depths = self._waits_for()

    def _form(self, operator: Operator) -> CompiledForm:
        name = operator.name
        if operator.bodies or name in RULES:
            return CompiledForm.OTHER
        if name in ("dot_general", "conv_general_dilated"):
            return CompiledForm.OTHER if LITERAL in operator.operands else CompiledForm.KERNEL
        if name.startswith("reduce_") and "window" not in name:
            # Sharded by all devices, the larger one may be as small as the other, and the reduction would be a view.
            # A reduction over few elements may be a copy on each device, and the compiler drops copies.
            return CompiledForm.REDUCTION if self._ratio(operator) > self.devices else CompiledForm.OTHER
        if name in VIEWS or name in MAYBE_VIEWS or name == "transpose":
            return CompiledForm.VIEW
        if name in ("concatenate", "stack"):
            return CompiledForm.OTHER
        return CompiledForm.LOOP if entry_for(name).family in LOOPS or name == "gather" else CompiledForm.KERNEL

    @staticmethod
    def _ratio(operator: Operator) -> int:
        """How many times larger the larger one of operand and result is."""
        sizes = [math.prod(spec.shape) for spec in (operator.operation.operands[0], operator.operation.results[0])]
        # The larger of both, since broadcasts grow and reductions shrink.
        return max(sizes) // max(min(sizes), 1)

    def _alive(self) -> list[bool]:
        # Backward: an operator is needed if one of its results is an output or is read by a needed operator.
        needed = {*self.outputs}
        alive = [False] * len(self.graph.operators)
        for number in reversed(range(len(alive))):
            origins = {self.decisions.origin[tensor] for tensor in self.graph.operators[number].results}
            alive[number] = not needed.isdisjoint(origins)
            if alive[number]:
                needed.update(self.operands[number])
        return alive

    def _same(self) -> list[int]:
        # Union-find without ranks: chains of views are short.
        parent = list(range(len(self.graph.tensors)))

        def first(tensor: int) -> int:
            while parent[tensor] != tensor:
                tensor = parent[tensor]
            return tensor

        for operator, sort in zip(self.graph.operators, self.forms, strict=True):
            # A broadcast to more than all devices' parts cannot be a view of its operand on any of them.
            grows = operator.name in MAYBE_VIEWS and operator.operands and self._ratio(operator) > self.devices
            reduces = operator.name.startswith("reduce_") and sort is CompiledForm.OTHER
            # For views and marks, operand and result may be one array; so may they for a reduction that is none on a
            # device.
            if sort in (None, CompiledForm.VIEW) or reduces:
                for operand, result in zip(operator.operands, operator.results, strict=False):
                    if operand != LITERAL and not grows:
                        parent[first(result)] = first(operand)
        return [first(tensor) for tensor in parent]

    def _waits_for(self) -> tuple[list[int], list[int]]:
        """Per operator those that it waits for, as bits, and the number of kernels of the longest chain up to it."""
        state_of: dict[int, tuple[int, int]] = {}
        waits: list[int] = []
        depths: list[int] = []
        for number, operator in enumerate(self.graph.operators):
            # Integers as bit sets: dependence is then one shift, and the union of many sets is fast.
            states = [state_of.get(tensor, (0, 0)) for tensor in operator.operands if tensor != LITERAL]
            bits, depth = 0, max((chain for _, chain in states), default=0)
            for ancestors, _ in states:
                bits |= ancestors
            depth += self.forms[number] in (CompiledForm.KERNEL, CompiledForm.REDUCTION)
            waits.append(bits)
            depths.append(depth)
            if self.forms[number] is None:  # every tensor by itself
                pairs = zip(operator.operands, operator.results, strict=True)
                state_of.update((result, state_of.get(operand, (0, 0))) for operand, result in pairs)
            else:
                state_of.update(dict.fromkeys(operator.results, (bits | 1 << number, depth)))
        return waits, depths

    def depends(self, operator: int, on: int) -> bool:
        """Whether an operator is computed from what another one makes."""
        return bool(self._waits[operator] >> on & 1)

    def before(self, operator: int, copies: Callable[[int, int], int]) -> Predecessors:
        """What has run before an operator in every plan.

        Args:
            operator: which one.
            copies: how many kernels transpose an operand (operator, place), at least, before its operator runs.
        """
        # From the operator backwards: a producer comes before its readers, so each operator is final when it is
        # visited.
        slack: dict[int, int] = {}
        reach: dict[int, int] = {}
        for number in range(operator, -1, -1):
            if self.forms[number] is None:
                pairs = zip(self.operands[number], self.graph.operators[number].results, strict=True)
                for tensor, result in pairs:
                    if result in slack and tensor != LITERAL:
                        # A mark is no kernel: what comes after it is as far away as before it.
                        slack[tensor] = max(slack.get(tensor, 0), slack[result])
            elif number == operator or self.depends(operator, number):
                kernels = self.forms[number] in (CompiledForm.KERNEL, CompiledForm.REDUCTION)
                results = self.graph.operators[number].results
                reach[number] = kernels + max((slack.get(tensor, 0) for tensor in results), default=0)
                for place, tensor in enumerate(self.operands[number]):
                    if tensor != LITERAL:
                        slack[tensor] = max(slack.get(tensor, 0), reach[number] + copies(number, place))
        # Arguments are there from the start, so the operator's whole depth lies between.
        slack.update((argument.tensor, self._depths[operator]) for argument in self.graph.inputs)
        return Predecessors(operator, slack, reach)

    def depth(self, operator: int) -> int:
        """The number of kernels of the longest chain that ends with an operator."""
        return self._depths[operator]
