"""How many tensors share the start-up time of one combined collective.

Problem: XLA combines collectives of one kind over the same devices that do not depend on each other, up to a size
(`HardwareProfile.merged_bytes`). A search computes costs tensor by tensor and cannot know which of them will be
combined.

Method: collectives of gradients, updated variables and the loss can be combined, because no matrix product waits for
them; so can collectives of variables, because they wait for no product. A collective between two products stays alone.
Each tensor of such a group pays one share of a start-up time. There are as many shares as tensors that may need a
collective: together they pay one start-up time if all of them do, and less if some do not.

Weights of operators and transfers: how often they run in loops, and whether they are *late*.

An operator is late if it belongs to the backward pass or depends on it, as the optimizer does. Some cost models give
late operators and transfers another weight.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence

from sporax.ir.graph import IDENTITIES, LITERAL, MARK, Operator, OperatorGraph, Role
from sporax.planner.rules import FactorKind, entry_for, rule_for


def late_operators(graph: OperatorGraph) -> list[bool]:
    """For every operator whether it is of a derivative or depends on one, as the optimizer does."""
    produced: set[int] = set()
    flags = []
    for operator in graph.operators:
        # Lateness spreads: whatever depends on a derivative runs after the forward pass.
        late = operator.backward or not produced.isdisjoint(operator.operands)
        flags.append(late)
        if late:
            produced.update(operator.results)
    return flags


def rounds(graph: OperatorGraph) -> list[int]:
    """For every tensor how often it is made per step; arguments count once."""
    counts = [1] * len(graph.tensors)
    for operator in graph.operators:
        # Tensors outside all loops, arguments among them, are made once.
        if operator.times > 1:
            for tensor in operator.results:
                counts[tensor] = operator.times
    return counts


def late_tensors(graph: OperatorGraph) -> frozenset[int]:
    """The results of late operators."""
    pairs = zip(graph.operators, late_operators(graph), strict=True)
    return frozenset(tensor for operator, late in pairs if late for tensor in operator.results)


_ELEMENTWISE = "1 elementwise"
"""Family of rules (`planner.rules.rule_table`)."""
_FOLLOWING = frozenset([_ELEMENTWISE, "2 dimensions", "4 reduction", "9 creation"])
"""Families of operators between products; all others are called products here."""


def num_sharing(graph: OperatorGraph) -> list[int]:
    """For every tensor how many share the start of its collectives, itself included; 1 for those that go alone.

    Args:
        graph: the step, its loops written out. What is made in every round of a loop goes alone.
    """
    products = _products(graph)
    awaited, waiting = _awaited(graph, products), _waiting(graph, products)
    behind, ends = _behind(graph, awaited)
    fetched = {argument.tensor for argument in graph.inputs if argument.role is not Role.CONSTANT} & awaited
    times = rounds(graph)
    # Gradients at the same depth can be combined with each other; a deeper one waits for the combined ones.
    members = Counter(behind[tensor] for tensor in ends if times[tensor] == 1)
    num_fetched = sum(1 for tensor in fetched if graph.tensors[tensor].num_dims)
    counts = []
    for tensor in range(len(graph.tensors)):
        # In a loop, each round waits for the one before; between two products, both sides wait.
        if times[tensor] > 1 or (tensor in awaited and tensor in waiting):
            counts.append(1)
        else:
            # A tensor may be in no group at all, and still counts itself.
            counts.append(max(1, num_fetched if tensor in awaited else members[behind.get(tensor, 0)]))
    return counts


def overlaps(graph: OperatorGraph) -> list[str]:
    """For every tensor what its transfers may hide behind: ``"weights"`` wait for no product, for ``"gradients"`` none waits, and
    those of ``"tensor"`` parallelism stand between products.

    Args:
        graph: the step, its loops written out.
    """
    products = _products(graph)
    awaited, waiting = _awaited(graph, products), _waiting(graph, products)
    return [
        "weights" if tensor not in waiting else "tensor" if tensor in awaited else "gradients"
        for tensor in range(len(graph.tensors))
    ]


def _products(graph: OperatorGraph) -> list[bool]:
    """For every operator whether it is a product."""
    names = {operator.name for operator in graph.operators}
    heavy = {name for name in names if name not in IDENTITIES and entry_for(name).family not in _FOLLOWING}
    return [operator.name in heavy or bool(operator.bodies) for operator in graph.operators]


def _awaited(graph: OperatorGraph, products: Sequence[bool]) -> set[int]:
    """Tensors that a product waits for."""
    tensors: set[int] = set()
    # Backwards: a product waits for all that its operands are made of.
    for operator, is_product in zip(reversed(graph.operators), reversed(products), strict=True):
        if operator.name == MARK:
            tensors.update(operand for operand, result in _pairs(operator) if result in tensors)
        elif is_product or not tensors.isdisjoint(operator.results):
            tensors.update(operator.operands)
    tensors.discard(LITERAL)
    return tensors


def _waiting(graph: OperatorGraph, products: Sequence[bool]) -> set[int]:
    """Tensors that wait for a product."""
    tensors: set[int] = set()
    for operator, is_product in zip(graph.operators, products, strict=True):
        if operator.name == MARK:
            tensors.update(result for operand, result in _pairs(operator) if operand in tensors)
        elif is_product or not tensors.isdisjoint(operator.operands):
            tensors.update(operator.results)
    return tensors


def _behind(graph: OperatorGraph, awaited: set[int]) -> tuple[dict[int, int], set[int]]:
    """Of tensors that no product waits for: behind how many combinations they are reduced again, and which may be partial.

    A reduction of what is combined itself, such as the norm of all gradients, has to wait for that. Of the tensors that parts
    pass through on their way to one reader, and of those that are added up, the last one counts.
    """
    walk = _Reductions(graph, awaited)
    for operator in graph.operators:
        # What a product waits for goes alone in any case.
        if awaited.issuperset(operator.results):
            continue
        reduces = _reduces(operator)
        for operands, results in _ways(operator):
            walk.visit(operator, reduces, operands, results)
    return walk.behind, walk.partial


class _Reductions:
    """Follows tensors from reduction to reduction, in the order of the program."""

    def __init__(self, graph: OperatorGraph, awaited: set[int]) -> None:
        self.awaited = awaited
        self.num_readers = Counter(
            itertools.chain(graph.outputs, *(set(operator.operands) for operator in graph.operators))
        )
        self.behind: dict[int, int] = {}
        self.partial: set[int] = set()

    def visit(self, operator: Operator, reduces: bool, operands: tuple[int, ...], results: tuple[int, ...]) -> None:
        """Results follow from the operands that they depend on."""
        depths = [self.behind[tensor] for tensor in operands if tensor in self.behind]
        if not depths and not reduces:
            return
        passing = _passing(operator, operands, self.partial)
        # It reduces something that is reduced already and does not let it through: one more combination later.
        deeper = reduces and any(tensor in self.behind and tensor not in passing for tensor in operands)
        unread = [tensor for tensor in results if tensor not in self.awaited]
        self.behind.update(dict.fromkeys(unread, max(depths, default=0) + deeper))
        # With a second reader the partial sum has to be combined here.
        moves_on = bool(passing) and all(self.num_readers[tensor] == 1 for tensor in passing)
        if moves_on:
            self.partial -= passing
        if reduces or moves_on:
            self.partial.update(unread)


def _pairs(operator: Operator) -> Iterator[tuple[int, int]]:
    return zip(operator.operands, operator.results, strict=True)


def _ways(operator: Operator) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Which results depend on which operands: in marks each on its own, behind a barrier all on all."""
    if operator.name == MARK:
        return [((operand,), (result,)) for operand, result in _pairs(operator)]
    return [(operator.operands, operator.results)]


def _reduces(operator: Operator) -> bool:
    """Whether its results may be partial sums of its own."""
    if operator.name in IDENTITIES or operator.bodies or entry_for(operator.name).family == _ELEMENTWISE:
        return False
    return any(factor.kind is FactorKind.REDUCE for factor in rule_for(operator.operation).factors)


def _passing(operator: Operator, operands: tuple[int, ...], partial: set[int]) -> set[int]:
    """Partial operands that the operator passes on."""
    # By place and not by tensor: one tensor may be read twice, once as a partial sum.
    there = {place for place, tensor in enumerate(operands) if tensor in partial}
    if not there or operator.bodies:
        return set()
    passes = operator.name in IDENTITIES or any(
        factor.kind is FactorKind.PARTIAL and set(factor.operands) == there
        for factor in rule_for(operator.operation).factors
    )
    return {operands[place] for place in there} if passes else set()
