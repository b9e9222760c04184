"""Attention as one operator: which operators of a graph one kernel computes, so that scores are never written.

Problem: attention is traced as two products with a softmax between them, and its gradient as four more. Libraries (cuDNN,
FlashAttention, splash attention) compute each direction in one kernel, block by block; the backward kernel computes scores again.
Costed operator by operator, scores are most of a step with long sequences, in time and in memory.

Method: from every exponential, tensors with as many elements are followed through elementwise operators, dimension maps and
reductions, up to products with batch dimensions. Where products make and read these *scores*, and nothing else reads them, the
operators on the way are `Fused`. Cost models and memory models read it where the hardware has such kernels.

Reference: T. Dao, "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning", 2023.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from math import prod

from sporax.ir.graph import IDENTITIES, LITERAL, Operator, OperatorGraph
from sporax.ir.operation import Fused
from sporax.planner.rules import entry_for

_LIGHT = frozenset(["1 elementwise", "2 dimensions", "4 reduction", "9 creation"])
_PRODUCT = "dot_general"
_ORDERED = frozenset(["ge", "gt", "le", "lt"])
_PRODUCTS_OF_KERNELS = {4: 5, 6: 7}
"""Products in the backward pass as traced, and in kernels, which compute scores again: of four gradients, or the result, too."""


def with_attention(graph: OperatorGraph) -> OperatorGraph:
    """The graph with `Fused` at the operators of attention; the same graph where there are none."""
    marks: dict[int, Fused] = {}
    regions = _Regions(graph)
    for number, operator in enumerate(graph.operators):
        if operator.name == "exp" and number not in marks and operator.operands[0] != LITERAL:
            marks |= regions.around(operator.operands[0])
    if not marks:
        return graph
    operators = [*graph.operators]
    for number, mark in marks.items():
        operators[number] = replace(operators[number], operation=replace(operators[number].operation, fused=mark))
    return replace(graph, operators=tuple(operators))


class _Regions:
    """Finds the operators around scores."""

    def __init__(self, graph: OperatorGraph) -> None:
        self.graph = graph
        self.makers, self.readers = graph.producers(), graph.consumers()
        self.sizes = [prod(spec.shape) for spec in graph.tensors]

    def around(self, scores: int) -> Mapping[int, Fused]:
        """The operators of the attention that `scores` belong to; none where it is not attention, or scores leave it."""
        seen, members, waiting = {scores}, set[int](), [scores]
        while waiting:
            tensor = waiting.pop()
            around = self._operators_at(tensor)
            if around is None:
                return {}
            members |= around
            new = {entry for number in around for entry in self._scores_at(number, tensor)} - seen
            waiting += new
            seen |= new
        operators = self.graph.operators
        products = [number for number in members if operators[number].name == _PRODUCT]
        made = any(not seen.isdisjoint(operators[number].results) for number in products)
        read = any(not seen.isdisjoint(operators[number].operands) for number in products)
        if not (made and read):
            return {}
        share = 0.5 if any(self._is_causal(number) for number in members) else 1.0
        late = [number for number in products if operators[number].backward]
        more = _PRODUCTS_OF_KERNELS.get(len(late), len(late)) / max(len(late), 1)
        marks = dict.fromkeys((*members, *self._masks(members)), Fused(share, self.sizes[scores]))
        return marks | dict.fromkeys(late, Fused(share * more, self.sizes[scores]))

    def _scores_at(self, number: int, tensor: int) -> list[int]:
        """Tensors that are scores because an operator has the scores `tensor` next to them; behind products are none."""
        operator = self.graph.operators[number]
        near = [] if operator.name == _PRODUCT else _neighbours(operator, tensor)
        return [entry for entry in near if self.sizes[entry] == self.sizes[tensor] and entry in self.makers]

    def _operators_at(self, tensor: int) -> set[int] | None:
        """Operators that make and read a tensor of scores, as far as a kernel computes them; None where another one reads it.

        Masks of dropout and the like are made elsewhere and read by the kernel.
        """
        if tensor in self.graph.outputs:
            return None
        found = {*self.readers.get(tensor, ())}
        if not all(map(self._can_be_fused, found)):
            return None
        maker = self.makers.get(tensor)
        return found | {maker} if maker is not None and self._can_be_fused(maker) else found

    def _can_be_fused(self, number: int) -> bool:
        """Whether a kernel of attention can compute it: light operators, and products of batches."""
        operator = self.graph.operators[number]
        if operator.name == _PRODUCT:
            return any(operator.operation.params["dimension_numbers"][1])
        return _passes(operator)

    def _masks(self, members: set[int]) -> set[int]:
        """Operators that make masks of positions for `members` alone: kernels know them."""
        masks: set[int] = set()
        for number in range(max(members), -1, -1):
            results = self.graph.operators[number].results
            readers = {reader for tensor in results for reader in self.readers.get(tensor, ())}
            if (
                number in self._constant
                and readers
                and readers <= members | masks
                and not {*results} & {*self.graph.outputs}
            ):
                masks.add(number)
        return masks - members

    @cached_property
    def _constant(self) -> set[int]:
        """Operators whose results do not depend on inputs."""
        made: set[int] = {LITERAL}
        constant = set()
        for number, operator in enumerate(self.graph.operators):
            if made.issuperset(operator.operands) and _passes(operator):
                made.update(operator.results)
                constant.add(number)
        return constant

    def _is_causal(self, number: int) -> bool:
        """Whether the operator masks by the order of positions."""
        operator = self.graph.operators[number]
        if operator.name not in ("select_n", "add", "mul"):
            return False
        found, waiting, seen = set[str](), [*operator.operands], set[int]()
        while waiting:
            tensor = waiting.pop()
            maker = self.makers.get(tensor)
            if maker is None or maker in seen or self.graph.tensors[tensor].dtype.startswith(("float", "bfloat")):
                continue
            seen.add(maker)
            found.add(self.graph.operators[maker].name)
            waiting += self.graph.operators[maker].operands
        return "iota" in found and not found.isdisjoint(_ORDERED)


def _passes(operator: Operator) -> bool:
    """Whether a kernel of attention can compute it with its scores."""
    return operator.name in IDENTITIES or (not operator.bodies and entry_for(operator.name).family in _LIGHT)


def _neighbours(operator: Operator, tensor: int) -> list[int]:
    """Tensors that belong to the scores if `tensor` does: of identities its partner alone."""
    if operator.name in IDENTITIES:
        return [other for pair in operator.sources.items() if tensor in pair for other in pair if other != LITERAL]
    return [other for other in (*operator.operands, *operator.results) if other != LITERAL]
