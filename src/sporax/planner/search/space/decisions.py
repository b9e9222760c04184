"""The decisions of a graph: which operators and which tensors have candidates of their own.

Problem: one decision per operator would make the search space too large, and small operators gain nothing from it.

Method: a light operator (elementwise, reshaping, …) takes the placement of its operand, so one decision is enough for
many operators. There are three kinds of decisions:

* A *bundle* decides the placement of a tensor (an input, or the result of a heavy operator or of a reduction) together
  with the light operators that follow it.
* A *heavy operator* decides its own sharding. The bundle of its result decides where the result is resharded to.
* A *relay* decides one common placement for several heavy operators that read the same tensor. The tensor is resharded
  once.

Operators whose result is larger than their operands (broadcasts, constants) follow their reader instead: they are
computed at the placement that the reader needs. Marks are not decided: their results are their operands under other
numbers. The result of a barrier is a tensor of its own, because a recomputation reshards its operands a second time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sporax.ir.graph import LITERAL, MARK, Operator, OperatorGraph
from sporax.ir.operation import Shape
from sporax.planner.cost.combined_collectives import late_operators, late_tensors, num_sharing, rounds
from sporax.planner.rules.loop_rules import CARRY
from sporax.planner.search.space.operator_rules import Kinds, is_identity, is_light, is_linear, is_reduction

_ADDITIONS = frozenset(["add", "add_any", "sub"])
"""Sums of partial sums are partial sums."""


@dataclass(slots=True)
class Decision:
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
class Decisions:
    """All decisions of a graph.

    Attributes:
        graph: the graph.
        nodes: in an order in which their roots are made.
        origin: for every tensor the one that it is under another number.
        node_of: for every tensor (an origin) its bundle.
        heavy: for every heavy operator its node.
        bundle_of: for every other operator but identities the bundle that it belongs to.
        readers: for every tensor (an origin) the operators that read it, in order, identities left out.
        relays: for tensors that have one, the relay.
        kinds: of the operators.
        late_tensors: what operators of the backward pass, or that depend on it, make.
        rounds: for every tensor how often it is made per step.
        sharing: for every tensor how many share the starts of its collectives.
    """

    graph: OperatorGraph
    nodes: tuple[Decision, ...]
    origin: tuple[int, ...]
    node_of: Mapping[int, int]
    heavy: Mapping[int, int]
    bundle_of: Mapping[int, int]
    readers: Mapping[int, Sequence[int]]
    relays: Mapping[int, int]
    kinds: Kinds
    late_tensors: frozenset[int]
    rounds: Sequence[int]
    sharing: Sequence[int]

    def decision_of(self, operator: int) -> int:
        """The decision that an operator belongs to."""
        return self.heavy[operator] if operator in self.heavy else self.bundle_of[operator]

    def operands(self, number: int) -> list[int]:
        """What an operator reads, by origin; `LITERAL` for constants."""
        return [
            LITERAL if operand == LITERAL else self.origin[operand] for operand in self.graph.operators[number].operands
        ]


def find_decisions(graph: OperatorGraph, fixed: Iterable[int] = ()) -> Decisions:
    """The decisions of a graph.

    Args:
        fixed: tensors that should have a decision of their own because their placement is given.
    """
    return _DecisionFinder(graph, frozenset(fixed)).run()


class _DecisionFinder:
    def __init__(self, graph: OperatorGraph, fixed: frozenset[int]) -> None:
        self.graph, self.fixed = graph, fixed
        self.kinds = Kinds(graph, late_operators(graph))
        self.identity, self.light = self.kinds.per_operator(is_identity), self.kinds.per_operator(is_light)
        self.reduction, self.linear = self.kinds.per_operator(is_reduction), self.kinds.per_operator(is_linear)
        # The tables below are made in this order because each one reads the ones before it.
        self.sizes = self._sizes()
        self.origin = self._origins()
        self.reads = self._reads()
        self.readers = self._readers()
        self.sums = self._sums()
        self.expanding = self._expanding()
        self.pulled_by = self._pulled_by()
        self.nodes: list[Decision] = []
        self.node_of: dict[int, int] = {}
        self.heavy: dict[int, int] = {}
        self.bundle_of: dict[int, int] = {}
        inputs = [argument.tensor for argument in graph.inputs]
        # Results that replace an argument (updated variables): the argument's placement is the one that must be met at the end.
        self.replaced = {
            self.origin[graph.outputs[output]]: inputs[argument]
            for output, argument in graph.aliases
            if graph.outputs[output] != LITERAL
        }

    def run(self) -> Decisions:
        for argument in self.graph.inputs:
            self._new_bundle(argument.tensor, -1)
        for number, operator in enumerate(self.graph.operators):
            if self.identity[number]:
                for tensor in operator.results:
                    if self.origin[tensor] == tensor:
                        self._new_bundle(tensor, number)
            elif number not in self.pulled_by:
                self._place(number, operator)
        # From the last to the first: a chain of pulled operators hangs on a reader that is in a bundle already.
        for number in sorted(self.pulled_by, reverse=True):
            self._pull(number)
        relays = self._relays()
        return Decisions(
            self.graph,
            tuple(self.nodes),
            self.origin,
            self.node_of,
            self.heavy,
            self.bundle_of,
            self.readers,
            relays,
            self.kinds,
            late_tensors(self.graph),
            rounds(self.graph),
            num_sharing(self.graph),
        )

    def _origins(self) -> tuple[int, ...]:
        origin = list(range(len(self.graph.tensors)))
        for operator in self.graph.operators:
            if operator.name == MARK:
                # A mark's result is its operand; where its placement is given, it is a tensor of its own.
                for operand, result in zip(operator.operands, operator.results, strict=True):
                    if operand != LITERAL and result not in self.fixed:
                        origin[result] = origin[operand]
        return tuple(origin)

    def _sizes(self) -> list[int]:
        """For every tensor how many elements it has."""
        size_of: dict[Shape, int] = {}
        for tensor in self.graph.tensors:
            if tensor.shape not in size_of:
                size_of[tensor.shape] = math.prod(tensor.shape)
        return [size_of[tensor.shape] for tensor in self.graph.tensors]

    def _reads(self) -> list[list[int]]:
        """For every operator the tensors that it reads, by origin, constants left out."""
        origin = self.origin
        return [
            [origin[operand] for operand in operator.operands if operand != LITERAL]
            for operator in self.graph.operators
        ]

    def _readers(self) -> dict[int, list[int]]:
        readers: dict[int, list[int]] = {}
        for number, tensors in enumerate(self.reads):
            if not self.identity[number]:
                for tensor in dict.fromkeys(tensors):
                    readers.setdefault(tensor, []).append(number)
        return readers

    def _sums(self) -> frozenset[int]:
        """Additions whose results are decided on: the last ones of sums of several products or reductions.

        All of these may be partial sums, which are then reduced once, in their sum.
        """
        terms: dict[int, int] = {}
        last: dict[int, int] = {}
        for number, operator in enumerate(self.graph.operators):
            count = self._num_terms(number, operator.name, terms)
            adds = operator.name in _ADDITIONS
            for tensor in operator.results if count else ():
                # A sum that is read twice ends there: each of its readers would reduce the parts once more.
                alone = len(self.readers.get(tensor, ())) < 2
                terms[tensor] = count if alone or not adds else 0
            if adds and count > 1:
                # Longer sums swallow the shorter ones that only they read.
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
        expanding: set[int] = set()
        produced: set[int] = set()
        for number, operator in enumerate(self.graph.operators):
            if not self.light[number] or self.identity[number] or self.reduction[number] or len(operator.results) != 1:
                continue
            (result,) = operator.results
            # Tensors made by expanding operators count as nothing: they are made wherever their reader is.
            read_bytes = [self.sizes[tensor] for tensor in self.reads[number] if tensor not in produced]
            if sum(read_bytes) < self.sizes[result] or not read_bytes:
                expanding.add(number)
                produced.add(result)
        return frozenset(expanding)

    def _pulled_by(self) -> dict[int, int]:
        """For operators that follow their reader: that reader."""
        # Results of the step, given placements and what barriers read must exist somewhere of their own.
        separate = (
            {self.origin[output] for output in self.graph.outputs if output != LITERAL}
            | self.fixed
            | self._behind_barriers()
        )
        produced = frozenset(self.graph.operators[number].results[0] for number in self.expanding)
        pulled: dict[int, int] = {}
        for number in sorted(self.expanding, reverse=True):
            result = self.graph.operators[number].results[0]
            if result in separate:
                continue
            for reader in self.readers.get(result, ()):
                # It follows something that is there already, and not only what was made for it.
                follows = self.light[reader] and reader not in self.expanding
                if reader in pulled or (follows and not produced.issuperset(self.reads[reader])):
                    pulled[number] = reader
                    break
        return pulled

    def _behind_barriers(self) -> frozenset[int]:
        """What barriers read: their results are decided when the barrier is reached, so it must be decided before."""
        return frozenset(
            tensor
            for number, operator in enumerate(self.graph.operators)
            if self.identity[number] and any(self.origin[result] == result for result in operator.results)
            for tensor in self.reads[number]
        )

    def _new_bundle(self, tensor: int, producer: int) -> None:
        self.node_of[tensor] = len(self.nodes)
        self.nodes.append(Decision(tensor, producer))

    def _place(self, number: int, operator: Operator) -> None:
        """Give an operator to a bundle, or a decision of its own."""
        followed = self._followed(number, operator) if self.light[number] else None
        if followed is None:
            self.heavy[number] = len(self.nodes)
            self.nodes.append(Decision(-1, number))
        else:
            self.bundle_of[number] = followed
            self.nodes[followed].followers.append(number)
        for tensor in operator.results:
            # New bundle: its result is smaller than its operands, partial, or given, so it may be worth another placement.
            if followed is None or self.reduction[number] or number in self.sums or tensor in self.fixed:
                self._new_bundle(tensor, number)
            else:
                self.node_of[tensor] = followed

    def _followed(self, number: int, operator: Operator) -> int | None:
        """The bundle that an operator follows: that of the variable it updates, else of its largest, newest operand."""
        tensors = self.reads[number]
        decided = [tensor for tensor in tensors if tensor in self.node_of]
        if operator.name == CARRY:
            return self.node_of[tensors[0]]  # the end of a round follows its start
        for result in operator.results:
            updated = self.replaced.get(result)
            if updated is not None and any(self.node_of[tensor] == self.node_of[updated] for tensor in decided):
                return self.node_of[updated]
        # The largest operand costs most to reshard; of equal ones the newest is nearest in the program.
        best = max(decided, key=lambda tensor: (self.sizes[tensor], self.node_of[tensor]), default=None)
        return None if best is None else self.node_of[best]

    def _pull(self, number: int) -> None:
        """Give an operator to the bundle of its reader, which comes later and so has one."""
        bundle = self.bundle_of[self.pulled_by[number]]
        self.bundle_of[number] = bundle
        # At the front: members are pulled last to first, and their order must be that of the program.
        self.nodes[bundle].pulled.insert(0, number)
        self.node_of[self.graph.operators[number].results[0]] = bundle

    def _relays(self) -> dict[int, int]:
        """Relays for what several heavy operators read; a bundle without other members and readers needs none."""
        relays: dict[int, int] = {}
        for tensor, readers in self.readers.items():
            bundle = self.nodes[self.node_of[tensor]]
            heavy = sum(reader in self.heavy for reader in readers)
            # Without other members, the bundle of the tensor itself can be where the heavy operators read it.
            shared = heavy < len(readers) or bundle.root != tensor or bundle.followers or bundle.pulled
            if heavy > 1 and shared and self.graph.tensors[tensor].shape:
                relays[tensor] = len(self.nodes)
                self.nodes.append(Decision(tensor, -1, is_relay=True))
        return relays
