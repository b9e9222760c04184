"""The graph of one micro batch, with what happens once per step around it, as data.

Problem: a pipeline runs the same operators for every micro batch, but not all of them need it. Method: every operator has a
phase. What depends on variables alone leaves the loop: it runs once per step, or wherever it is read. Terms of sums stay, also
where they are equal for all micro batches (the gradient of a bias under a linear loss): each micro batch adds its own. So does
all that is computed from the cotangent with which a backward pass begins: it is the work of one micro batch, in one stage.

Recognizes a value that a loop only adds to.

Problem: gradients and the loss are sums over micro batches, but in the loop they look like any other value that goes from one
round to the next. Method: walk back from what a round leaves to what it began with; if only additions are on the way, and nothing
else reads a running total, then the other operands of these additions are the terms of a sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import jax

from sporax.ir.graph import LITERAL, Operator
from sporax.ir.marks import DerivativeMark, GradientMark, LayoutMark, OperatorMark, WeightMark
from sporax.ir.operation import Operation
from sporax.lowering.ingest.ingest import Equation, Ingested

BARRIER = jax.lax.optimization_barrier_p
"""The one copy that XLA does not remove."""


class Phase(Enum):
    """When an operator runs."""

    INVARIANT = "invariant"
    """It depends on no micro batch: it may run anywhere, any number of times."""
    FORWARD = "forward"
    BACKWARD = "backward"
    UPDATE = "update"
    """Once per step, after the last micro batch."""


@dataclass(frozen=True, slots=True)
class Carry:
    """A value that goes from one micro batch to the next.

    Attributes:
        before: the tensor that a micro batch finds, an input of the graph.
        after: the tensor that it leaves.
        start: what the first micro batch finds.
    """

    before: int
    after: int
    start: int


@dataclass(frozen=True, slots=True)
class Sum:
    """A value that is added up over the micro batches.

    Attributes:
        total: the tensor that readers after the loop have.
        terms: the tensors of one micro batch that are added to it.
        adding: the operation that adds.
        equation: of one addition.
    """

    total: int
    terms: tuple[int, ...]
    adding: Operation
    equation: Equation


@dataclass(frozen=True, slots=True)
class MicroStep:
    """The graph of one micro batch, with what happens once per step around it.

    Attributes:
        step: the flat graph. Totals of sums have no producer.
        phases: per operator.
        num_micro: number of micro batches; 1 where there is no loop.
        micro_inputs: for inputs that hold one micro batch the position of the argument that they are slices of.
        sums, carries: see there.
        trains: whether there is a backward pass.
        looped: whether there is a loop at all.
        repeated: tensors that every micro batch makes for itself, also where all of them make the same.
        starts: cotangents with which the backward pass begins.
    """

    step: Ingested
    phases: tuple[Phase, ...]
    num_micro: int
    micro_inputs: Mapping[int, int]
    sums: tuple[Sum, ...] = ()
    carries: tuple[Carry, ...] = ()
    trains: bool = False
    looped: bool = True
    repeated: frozenset[int] = frozenset()
    starts: frozenset[int] = frozenset()


def with_invariants(micro: MicroStep) -> tuple[Phase, ...]:
    """Phases, where operators that depend on no micro batch are known as such."""
    invariant = invariant_tensors(micro)
    return tuple(
        Phase.INVARIANT if all(tensor in invariant for tensor in operator.results) else phase
        for operator, phase in zip(micro.step.graph.operators, micro.phases, strict=True)
    )


def invariant_tensors(micro: MicroStep) -> frozenset[int]:
    """Tensors that depend on no micro batch: variables, constants, and what is computed of these alone."""
    varies = (
        set(micro.micro_inputs)
        | {carry.before for carry in micro.carries}
        | {micro_sum.total for micro_sum in micro.sums}
    )
    graph = micro.step.graph
    return frozenset(computed_from(micro, {entry.tensor for entry in graph.inputs if entry.tensor not in varies}))


def computed_from(micro: MicroStep, start: Set[int]) -> set[int]:
    """These tensors and what is computed of them alone, outside of what every micro batch makes for itself."""
    reached = {LITERAL, *start}
    for operator in micro.step.graph.operators:
        if all(operand in reached for operand in operator.operands):
            results = set(operator.results)
        else:
            results = {result for result, operand in operator.sources.items() if operand in reached}
        reached |= results - micro.repeated
    return reached - {LITERAL}


def part_of_identity(operator: Operator, equation: Equation, positions: Sequence[int]) -> tuple[Operator, Equation]:
    """A mark or barrier for some of its tensors only; of an operator's mark, which speaks of all together, a barrier is left."""
    operation, mark = operator.operation, _part_of_mark(operator.mark, positions)
    says = {} if mark is None else {"mark": mark}
    changed = replace(
        operation,
        operands=tuple(operation.operands[place] for place in positions),
        results=tuple(operation.results[place] for place in positions),
        params={**operation.params, **says},
    )
    part = replace(
        operator,
        operation=changed,
        operands=tuple(operator.operands[place] for place in positions),
        results=tuple(operator.results[place] for place in positions),
    )
    literals = {number: equation.literals[at] for number, at in enumerate(positions) if at in equation.literals}
    if len(positions) < len(operator.results) and isinstance(mark, OperatorMark | WeightMark):
        barrier = Operation(str(BARRIER.name), changed.operands, changed.results)
        return replace(part, operation=barrier), Equation(BARRIER, {}, literals)
    return part, replace(equation, params={**equation.params, **says}, literals=literals)


def _part_of_mark(mark: Any, positions: Sequence[int]) -> Any:
    """What a mark says of some of its tensors."""

    def some(values: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(values[place] for place in positions)

    if isinstance(mark, GradientMark):
        return GradientMark(some(mark.parameters), some(mark.fusion))
    if isinstance(mark, DerivativeMark):
        return replace(mark, positions=some(mark.positions))
    if isinstance(mark, LayoutMark):
        return replace(mark, layouts=some(mark.layouts))
    return mark


_ADDS = ("add", "add_any")
"""Names of JAX's additions; ``add_any`` is the one of cotangents."""


def additions(
    after: int,
    before: int,
    entries: Sequence[tuple[Operator, Equation]],
    producers: Mapping[int, int],
    readers: Mapping[int, int],
) -> tuple[list[int], list[int]] | None:
    """The numbers of the additions and the terms, if `after` is `before` plus terms; else None.

    Args:
        after: what a round leaves.
        before: what it found.
        producers: number of the operator that makes a tensor.
        readers: how often a tensor is read.
    """
    numbers: list[int] = []
    terms: list[int] = []
    tensor = after
    while tensor != before:
        number = producers.get(tensor)
        # A running total that something else reads is no mere sum: its reader wants the value of this round.
        if number is None or entries[number][0].name not in _ADDS or readers[tensor] > 1:
            return None
        operands = entries[number][0].operands
        if LITERAL in operands:
            return None
        numbers.append(number)
        on_way = [place for place, operand in enumerate(operands) if _leads_to(operand, before, entries, producers)]
        if len(on_way) != 1:
            return None
        terms.append(operands[1 - on_way[0]])
        tensor = operands[on_way[0]]
    # Terms in the order of their additions, so that floating-point sums agree with the loop's.
    return (numbers, terms[::-1]) if readers[before] == 1 else None


def _leads_to(
    tensor: int, before: int, entries: Sequence[tuple[Operator, Equation]], producers: Mapping[int, int]
) -> bool:
    left, seen = [tensor], set()
    while left:
        tensor = left.pop()
        if tensor == before:
            return True
        number = producers.get(tensor)
        if number is not None and number not in seen and entries[number][0].name in _ADDS:
            seen.add(number)
            left.extend(entries[number][0].operands)
    return False
