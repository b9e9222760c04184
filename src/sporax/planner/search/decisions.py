"""The decisions of a graph: which operators and which tensors have a choice of their own.

Cheap operators lie as their operand lies, so one decision holds for many of them. A *bundle* is a tensor that somebody made
(an input, the result of a heavy operator or of a reduction), together with the light operators that follow it and their
results. A heavy operator decides by itself how it is cut, and its result's bundle decides where the result is brought.

Operators whose result is larger than their operands (broadcasts, what is made from nothing) follow the other way: they make
what their reader wants. Marks take no part: their results are their operands under another number. What comes out of a barrier is
a tensor of its own: what is computed anew brings its operands anew.

What several heavy operators read, and others as well, may be wanted by all of them at the same place. A *relay* decides where:
the tensor is brought there once, and the heavy operators read it there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sporax.ir.graph import LITERAL, MARK, Operator, OperatorGraph
from sporax.ir.operation import Shape
from sporax.planner.cost.combined_collectives import num_sharing
from sporax.planner.cost.repetition import late_operators, late_tensors, rounds
from sporax.planner.rules.loops import CARRY
from sporax.planner.search.operator_rules import Kinds, is_identity, is_light, is_linear, is_reduction

_ADDITIONS = frozenset(["add", "add_any", "sub"])
"""Sums of parts are parts of the sum."""


@dataclass(slots=True)
class Node:
    """One decision.

    Attributes:
        root: the tensor of a bundle or a relay; -1 for a heavy operator.
        producer: the operator that makes the root, -1 for an input; or the heavy operator itself.
        followers: light operators of a bundle, in order.
        pulled: those operators that make what a follower wants, in order.
        is_relay: it decides where heavy operators read the root; the root itself belongs to another node.
    """

    root: int
    producer: int
    followers: list[int] = field(default_factory=list)
    pulled: list[int] = field(default_factory=list)
    is_relay: bool = False

    @property
    def is_bundle(self) -> bool:
        """Whether it decides on a tensor."""
        return self.root >= 0


@dataclass(frozen=True, slots=True)
class Bundles:
    """All decisions of a graph.

    Attributes:
        graph: the graph.
        nodes: in an order in which their roots are made.
        origin: for every tensor the one that it is under another number.
        node_of: for every tensor (an origin) its bundle.
        heavy: for every heavy operator its node.
        home: for every other operator but identities the bundle that it belongs to.
        readers: for every tensor (an origin) the operators that read it, in order, identities left out.
        relays: for tensors that have one, the relay.
        kinds: of the operators.
        late_tensors: what operators of the backward pass, or that depend on it, make.
        rounds: for every tensor how often it is made per step.
        sharing: for every tensor how many share the starts of its collectives.
    """

    graph: OperatorGraph
    nodes: tuple[Node, ...]
    origin: tuple[int, ...]
    node_of: Mapping[int, int]
    heavy: Mapping[int, int]
    home: Mapping[int, int]
    readers: Mapping[int, Sequence[int]]
    relays: Mapping[int, int]
    kinds: Kinds
    late_tensors: frozenset[int]
    rounds: Sequence[int]
    sharing: Sequence[int]

    def home_of(self, operator: int) -> int:
        """The decision that an operator belongs to."""
        return self.heavy[operator] if operator in self.heavy else self.home[operator]

    def operands(self, number: int) -> list[int]:
        """What an operator reads, by origin; `LITERAL` for constants."""
        return [LITERAL if each == LITERAL else self.origin[each] for each in self.graph.operators[number].operands]


def find_bundles(graph: OperatorGraph, fixed: Iterable[int] = ()) -> Bundles:
    """The decisions of a graph.

    Args:
        graph: the graph.
        fixed: tensors that shall have a decision of their own because their placement is given.
    """
    return _Finder(graph, frozenset(fixed)).run()


class _Finder:
    def __init__(self, graph: OperatorGraph, fixed: frozenset[int]) -> None:
        self.graph, self.fixed = graph, fixed
        self.kinds = Kinds(graph, late_operators(graph))
        self.identity, self.light = self.kinds.each(is_identity), self.kinds.each(is_light)
        self.reduction, self.linear = self.kinds.each(is_reduction), self.kinds.each(is_linear)
        self.sizes = self._sizes()
        self.origin = self._origins()
        self.reads = self._reads()
        self.readers = self._readers()
        self.sums = self._sums()
        self.expanding = self._expanding()
        self.pulled_by = self._pulled_by()
        self.nodes: list[Node] = []
        self.node_of: dict[int, int] = {}
        self.heavy: dict[int, int] = {}
        self.home: dict[int, int] = {}
        inputs = [each.tensor for each in graph.inputs]
        self.replaced = {
            self.origin[graph.outputs[output]]: inputs[argument]
            for output, argument in graph.aliases
            if graph.outputs[output] != LITERAL
        }

    def run(self) -> Bundles:
        for each in self.graph.inputs:
            self._new_bundle(each.tensor, -1)
        for number, operator in enumerate(self.graph.operators):
            if self.identity[number]:
                for tensor in operator.results:
                    if self.origin[tensor] == tensor:
                        self._new_bundle(tensor, number)
            elif number not in self.pulled_by:
                self._place(number, operator)
        for number in sorted(self.pulled_by, reverse=True):
            self._pull(number)
        relays = self._relays()
        return Bundles(
            self.graph,
            tuple(self.nodes),
            self.origin,
            self.node_of,
            self.heavy,
            self.home,
            self.readers,
            relays,
            self.kinds,
            late_tensors(self.graph),
            rounds(self.graph),
            num_sharing(self.graph),
        )

    # ------------------------------------------------------------------------------------------------- what is known

    def _origins(self) -> tuple[int, ...]:
        origin = list(range(len(self.graph.tensors)))
        for operator in self.graph.operators:
            if operator.name == MARK:
                for operand, result in zip(operator.operands, operator.results, strict=True):
                    if operand != LITERAL and result not in self.fixed:
                        origin[result] = origin[operand]
        return tuple(origin)

    def _sizes(self) -> list[int]:
        """For every tensor how many elements it has."""
        known: dict[Shape, int] = {}
        for each in self.graph.tensors:
            if each.shape not in known:
                known[each.shape] = math.prod(each.shape)
        return [known[each.shape] for each in self.graph.tensors]

    def _reads(self) -> list[list[int]]:
        """For every operator the tensors that it reads, by origin, constants left out."""
        origin = self.origin
        return [[origin[each] for each in operator.operands if each != LITERAL] for operator in self.graph.operators]

    def _readers(self) -> dict[int, list[int]]:
        readers: dict[int, list[int]] = {}
        for number, tensors in enumerate(self.reads):
            if not self.identity[number]:
                for tensor in dict.fromkeys(tensors):
                    readers.setdefault(tensor, []).append(number)
        return readers

    def _sums(self) -> frozenset[int]:
        """Additions whose results are decided on: the last ones of sums of several products or reductions.

        All of these may be made in parts, which are then combined once, in their sum.
        """
        terms: dict[int, int] = {}
        last: dict[int, int] = {}
        for number, operator in enumerate(self.graph.operators):
            count = self._num_terms(number, operator.name, terms)
            adds = operator.name in _ADDITIONS
            for tensor in operator.results if count else ():
                alone = len(self.readers.get(tensor, ())) < 2
                terms[tensor] = count if alone or not adds else 0
            if adds and count > 1:
                for tensor in self.reads[number]:
                    if tensor in last and len(self.readers[tensor]) == 1:
                        del last[tensor]
                last[operator.results[0]] = number
        return frozenset(last.values())

    def _num_terms(self, number: int, name: str, terms: Mapping[int, int]) -> int:
        """How many products and reductions an operator's result is the sum of."""
        if self.identity[number]:
            return 0
        tensors = self.reads[number]
        if name in _ADDITIONS:
            return sum(terms.get(tensor, 0) for tensor in tensors)
        if not self.light[number] or self.reduction[number]:
            return 1
        return terms.get(tensors[0], 0) if len(tensors) == 1 and self.linear[number] else 0

    def _expanding(self) -> frozenset[int]:
        """Light operators that make more than they are given, all operands together, or are made of such operators' results.

        What joins tensors of its result's size in all, a concatenation, follows them: it is where they are.
        """
        found: set[int] = set()
        made: set[int] = set()
        for number, operator in enumerate(self.graph.operators):
            if not self.light[number] or self.identity[number] or self.reduction[number] or len(operator.results) != 1:
                continue
            (result,) = operator.results
            given = [self.sizes[tensor] for tensor in self.reads[number] if tensor not in made]
            if sum(given) < self.sizes[result] or not given:
                found.add(number)
                made.add(result)
        return frozenset(found)

    def _pulled_by(self) -> dict[int, int]:
        """For operators that follow their reader: that reader."""
        kept = {self.origin[each] for each in self.graph.outputs if each != LITERAL} | self.fixed
        made = frozenset(self.graph.operators[number].results[0] for number in self.expanding)
        pulled: dict[int, int] = {}
        for number in sorted(self.expanding, reverse=True):
            result = self.graph.operators[number].results[0]
            if result in kept:
                continue
            for reader in self.readers.get(result, ()):
                if reader in pulled or self._belongs(reader, made):
                    pulled[number] = reader
                    break
        return pulled

    def _belongs(self, number: int, made: frozenset[int]) -> bool:
        """Whether an operator follows something that is there already, and not only what was `made` for it."""
        return self.light[number] and number not in self.expanding and not made.issuperset(self.reads[number])

    # ---------------------------------------------------------------------------------------------------- decisions

    def _new_bundle(self, tensor: int, producer: int) -> None:
        self.node_of[tensor] = len(self.nodes)
        self.nodes.append(Node(tensor, producer))

    def _place(self, number: int, operator: Operator) -> None:
        """Give an operator to a bundle, or a decision of its own."""
        followed = self._followed(number, operator) if self.light[number] else None
        if followed is None:
            self.heavy[number] = len(self.nodes)
            self.nodes.append(Node(-1, number))
        else:
            self.home[number] = followed
            self.nodes[followed].followers.append(number)
        for tensor in operator.results:
            if followed is None or self.reduction[number] or number in self.sums or tensor in self.fixed:
                self._new_bundle(tensor, number)
            else:
                self.node_of[tensor] = followed

    def _followed(self, number: int, operator: Operator) -> int | None:
        """The bundle that an operator follows: that of the variable it updates, else of its largest, newest operand."""
        tensors = self.reads[number]
        known = [tensor for tensor in tensors if tensor in self.node_of]
        if operator.name == CARRY:
            return self.node_of[tensors[0]]  # the end of a round follows its start
        for result in operator.results:
            updated = self.replaced.get(result)
            if updated is not None and any(self.node_of[tensor] == self.node_of[updated] for tensor in known):
                return self.node_of[updated]
        best = max(known, key=lambda tensor: (self.sizes[tensor], self.node_of[tensor]), default=None)
        return None if best is None else self.node_of[best]

    def _pull(self, number: int) -> None:
        """Give an operator to the bundle of its reader, which comes later and so has one."""
        home = self.home[self.pulled_by[number]]
        self.home[number] = home
        self.nodes[home].pulled.insert(0, number)
        self.node_of[self.graph.operators[number].results[0]] = home

    def _relays(self) -> dict[int, int]:
        """Relays for what several heavy operators read; a bundle that nobody else belongs to or reads needs none."""
        found: dict[int, int] = {}
        for tensor, readers in self.readers.items():
            home = self.nodes[self.node_of[tensor]]
            heavy = sum(reader in self.heavy for reader in readers)
            shared = heavy < len(readers) or home.root != tensor or home.followers or home.pulled
            if heavy > 1 and shared and self.graph.tensors[tensor].shape:
                found[tensor] = len(self.nodes)
                self.nodes.append(Node(tensor, -1, is_relay=True))
        return found
