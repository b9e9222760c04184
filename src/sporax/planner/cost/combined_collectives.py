"""Whose collectives the compiler makes one of, so that they share a start.

XLA merges collectives of one kind over the same devices that do not need each other, up to a size
(`HardwareProfile.merged_bytes`). Those of gradients, of updated variables and of a loss do not, since no product waits for
them, nor do those of variables, since they wait for no product. What travels between one product and the next goes alone.

Searches price tensor by tensor and cannot know which of a step's tensors will travel. So each pays one share of a start, and
there are as many shares as tensors that may need a collective: one start in all where all of them do, less where some do not.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence

from sporax.ir.graph import IDENTITIES, LITERAL, MARK, Operator, OperatorGraph, Role
from sporax.planner.cost.repetition import rounds
from sporax.planner.rules import Kind, entry_for, rule_for

_ELEMENTWISE = "1 elementwise"
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
    fetched = {each.tensor for each in graph.inputs if each.role is not Role.CONSTANT} & awaited
    times = rounds(graph)
    members = Counter(behind[tensor] for tensor in ends if times[tensor] == 1)
    num_fetched = sum(1 for tensor in fetched if graph.tensors[tensor].num_dims)
    found = []
    for tensor in range(len(graph.tensors)):
        if times[tensor] > 1 or (tensor in awaited and tensor in waiting):
            found.append(1)
        else:
            found.append(max(1, num_fetched if tensor in awaited else members[behind.get(tensor, 0)]))
    return found


def _products(graph: OperatorGraph) -> list[bool]:
    """For every operator whether it is a product."""
    names = {operator.name for operator in graph.operators}
    heavy = {name for name in names if name not in IDENTITIES and entry_for(name).family not in _FOLLOWING}
    return [operator.name in heavy or bool(operator.bodies) for operator in graph.operators]


def _awaited(graph: OperatorGraph, products: Sequence[bool]) -> set[int]:
    """Tensors that a product waits for."""
    found: set[int] = set()
    for operator, is_product in zip(reversed(graph.operators), reversed(products), strict=True):
        if operator.name == MARK:
            found.update(operand for operand, result in _pairs(operator) if result in found)
        elif is_product or not found.isdisjoint(operator.results):
            found.update(operator.operands)
    found.discard(LITERAL)
    return found


def _waiting(graph: OperatorGraph, products: Sequence[bool]) -> set[int]:
    """Tensors that wait for a product."""
    found: set[int] = set()
    for operator, is_product in zip(graph.operators, products, strict=True):
        if operator.name == MARK:
            found.update(result for operand, result in _pairs(operator) if operand in found)
        elif is_product or not found.isdisjoint(operator.operands):
            found.update(operator.results)
    return found


def _behind(graph: OperatorGraph, awaited: set[int]) -> tuple[dict[int, int], set[int]]:
    """Of tensors that no product waits for: behind how many combinations they are reduced again, and which may be in parts.

    A reduction of what is combined itself, such as the norm of all gradients, has to wait for that. Of the tensors that parts
    pass through on their way to one reader, and of those that are added up, the last one counts.
    """
    num_readers = Counter(itertools.chain(graph.outputs, *(set(operator.operands) for operator in graph.operators)))
    behind: dict[int, int] = {}
    parts: set[int] = set()
    for operator in graph.operators:
        if awaited.issuperset(operator.results):
            continue
        reduces = _reduces(operator)
        for operands, results in _ways(operator):
            depths = [behind[tensor] for tensor in operands if tensor in behind]
            if not depths and not reduces:
                continue
            passing = _passing(operator, operands, parts)
            deeper = reduces and any(tensor in behind and tensor not in passing for tensor in operands)
            made = [tensor for tensor in results if tensor not in awaited]
            behind.update(dict.fromkeys(made, max(depths, default=0) + deeper))
            moves_on = bool(passing) and all(num_readers[tensor] == 1 for tensor in passing)
            parts -= passing if moves_on else set()
            parts.update(made if reduces or moves_on else ())
    return behind, parts


def _pairs(operator: Operator) -> Iterator[tuple[int, int]]:
    return zip(operator.operands, operator.results, strict=True)


def _ways(operator: Operator) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Which results depend on which operands: in marks each on its own, behind a barrier all on all."""
    if operator.name == MARK:
        return [((operand,), (result,)) for operand, result in _pairs(operator)]
    return [(operator.operands, operator.results)]


def _reduces(operator: Operator) -> bool:
    """Whether its results may be parts of sums of its own."""
    if operator.name in IDENTITIES or operator.bodies or entry_for(operator.name).family == _ELEMENTWISE:
        return False
    return any(factor.kind is Kind.REDUCE for factor in rule_for(operator.operation).factors)


def _passing(operator: Operator, operands: tuple[int, ...], parts: set[int]) -> set[int]:
    """Operands in parts that the operator lets through."""
    there = {place for place, tensor in enumerate(operands) if tensor in parts}
    if not there or operator.bodies:
        return set()
    whole = operator.name in IDENTITIES or any(
        factor.kind is Kind.PARTIAL and set(factor.operands) == there for factor in rule_for(operator.operation).factors
    )
    return {operands[place] for place in there} if whole else set()
