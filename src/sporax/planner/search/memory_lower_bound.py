"""What a plan surely needs: a lower model of memory, for bounds that hold for every plan of the menu.

Measured memory (`planner.memory.peak`) depends on the whole plan: on what is moved where, what is melted, and what
runs when. Here
only that is counted which is there whatever the rest of the plan is. Arguments and results are always there. When a kernel runs,
there are what it reads and writes, and at least one array of every tensor that has been made before (`partial_order`) and is read
later: where its reader wants it, if it has surely been brought there by then, and otherwise at the smallest of the
places that it may be at. Loops may read something else than they say (`written`), and no array is counted twice.

So every moment has a sum of tables, each over one decision or two, that is never more than what is measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sporax.ir.graph import LITERAL
from sporax.ir.operation import TensorSpec
from sporax.ir.placement import Placement
from sporax.planner.communication.moves import Move, MoveKind
from sporax.planner.communication.resharding import redistribute
from sporax.planner.cost.model import local_bytes
from sporax.planner.memory.peak import lives
from sporax.planner.search.materialization import Written
from sporax.planner.search.partial_order import Before, Order, Sort
from sporax.planner.search.problem import MANY_AXES, Problem
from sporax.planner.solver.graph import Booleans, Ints

_FEWEST_MOMENTS, _MOST_MOMENTS = 4, 80
"""Operators at which memory is looked at, at least and at most: those at which the graph's tensors take the most."""
_LOOKS = 200_000
"""Operators that are gone through for these, all together: a count and no clock, so that all processes say the same."""
_KERNELS_PER_MOVE = 3
"""At most: rearranging, sending, and bringing in order."""
_NEVER = 1 << 62


class Table(NamedTuple):
    """Bytes by the candidates of two decisions [first, second]; equal decisions count their diagonal."""

    first: int
    second: int
    sizes: Ints


@dataclass(frozen=True, slots=True)
class Needs:
    """What a plan surely needs.

    Attributes:
        always: per decision what arguments and results take, per candidate.
        moments: for every operator that is looked at, in order, what else is there when it runs.
    """

    always: Mapping[int, Ints]
    moments: Mapping[int, Sequence[Table]]

    def bytes_of(self, chosen: Sequence[int]) -> int:
        """What a choice surely needs on one device."""
        held = sum(int(sizes[chosen[node]]) for node, sizes in self.always.items())
        return held + max((_total(tables, chosen) for tables in self.moments.values()), default=0)


def _total(tables: Sequence[Table], chosen: Sequence[int]) -> int:
    return sum(int(sizes[chosen[first], chosen[second]]) for first, second, sizes in tables)


def needs(problem: Problem) -> Needs:
    """What a plan of the problem surely needs."""
    if "needs" not in problem.remembered:
        problem.remembered["needs"] = _Counter(problem).run()
    known: Needs = problem.remembered["needs"]
    return known


class _Way(NamedTuple):
    """From one place to another: how many kernels at most, the least bytes on the way, and whether devices send."""

    kernels: int
    least: int
    sends: bool


class _Ends(NamedTuple):
    """All that the way of a tensor to a reader depends on. Layers repeat, so many tensors have the same.

    Attributes:
        spec: the tensor.
        made: where another decision than its bundle may make it.
        lies: where its bundle has it, per candidate.
        relayed: where its relay has it, per candidate; () where there is none, or the reader is none of its readers.
        from_relay: whether the reader's source is the relay.
        wanted: where the reader wants it, per candidate.
        detour: what may come between, since others have it brought elsewhere.
    """

    spec: TensorSpec
    made: tuple[Placement, ...]
    lies: tuple[Placement, ...]
    relayed: tuple[Placement, ...]
    from_relay: bool
    wanted: tuple[Placement, ...]
    detour: _Way


_Tables = tuple[Ints, Ints, Ints, Ints, Booleans, Booleans]
"""All but the decisions of an `_Arrival`."""


@dataclass(frozen=True, slots=True)
class _Arrival:
    """How a tensor comes to a reader, by candidates [source, reader].

    Attributes:
        first, second: the decisions.
        kernels: how many kernels bring it there at most, from where it is made.
        moving: and from where its bundle has it.
        there: bytes where the reader wants it.
        least: bytes of the smallest place that it may be at meanwhile.
        sends: whether devices send for it.
        same: whether it is read where it lies.
    """

    first: int
    second: int
    kernels: Ints
    moving: Ints
    there: Ints
    least: Ints
    sends: Booleans
    same: Booleans


class _Claim(NamedTuple):
    """An array of one of `tensors` (those that may share arrays under one number) is there for a reader.

    `copy` is what is there in any case as a copy for this reader alone.
    """

    table: Table
    tensors: frozenset[int]
    copy: Table | None
    reader: tuple[int, int]


class _Counter:
    def __init__(self, problem: Problem) -> None:
        self.problem, self.graph, self.bundles = problem, problem.graph, problem.bundles
        self.order = Order(problem)
        self.written = Written(problem, self.order)
        self.constant = [number for number in self._alive() if not self._read(number)]
        """Operators that read nothing but constants,"""
        self.light = [
            (number, read)
            for number in self._alive()
            if self.order.sorts[number] in (Sort.LOOP, Sort.VIEW) and (read := self._read(number))
        ]
        """and loops and views, with what they read."""
        self._sizes: dict[object, int] = {}
        self._ways: dict[object, _Way] = {}
        self._tables: dict[_Ends, _Tables] = {}
        self._arrivals: dict[tuple[int, int], _Arrival] = {}
        self._rests: dict[int, tuple[Ints, Ints, Ints]] = {}
        self._placements: dict[int, tuple[Placement, ...]] = {}
        self._farthest: dict[object, _Way] = {}
        axes = len(problem.mesh.device_axes)
        self._many_axes = axes > MANY_AXES
        self._most_kernels = 2 * axes * _KERNELS_PER_MOVE

    def run(self) -> Needs:
        return Needs(self._always(), {number: self._at(number) for number in self._moments()})

    def _alive(self) -> list[int]:
        return [number for number, sort in enumerate(self.order.sorts) if sort is not None and self.order.alive[number]]

    def _read(self, number: int) -> list[int]:
        return [tensor for tensor in self.order.operands[number] if tensor != LITERAL]

    # ------------------------------------------------------------------------------------------------- what is held

    def _always(self) -> dict[int, Ints]:
        replaced = dict(self.graph.aliases)
        tensors = [each.tensor for each in self.graph.inputs]
        kept = [each for place, each in enumerate(self.graph.outputs) if place not in replaced and each != LITERAL]
        seen = {self.order.same[tensor] for tensor in tensors}
        for tensor in (self.bundles.origin[each] for each in kept):
            if self.order.same[tensor] not in seen:
                seen.add(self.order.same[tensor])
                tensors.append(tensor)
        found: dict[int, Ints] = {}
        for tensor in tensors:
            node = self.bundles.node_of[tensor]
            spec = self.graph.tensors[tensor]
            sizes = np.array([self._bytes(spec, where) for where in self._lies(tensor)])
            found[node] = found.get(node, 0) + sizes
        return found

    def _moments(self) -> list[int]:
        """Heavy operators that are kernels, those where the most is there if nothing is cut."""
        kernels = [
            number
            for number in self.bundles.heavy
            if self.order.alive[number] and self.order.sorts[number] is Sort.KERNEL
        ]
        most = min(max(_LOOKS // max(len(self.graph.operators), 1), _FEWEST_MOMENTS), _MOST_MOMENTS)
        if len(kernels) <= most:
            return kernels
        taken = np.zeros(2 * len(self.graph.operators) + 4, np.int64)
        for life in lives(self.graph):
            size = self.graph.tensors[life.tensor].num_bytes
            taken[life.begin + 1] += size
            taken[life.end + 2] -= size
        taken = np.cumsum(taken)
        return sorted(sorted(kernels, key=lambda number: -taken[2 * number + 1])[:most])

    # ------------------------------------------------------------------------------------------------------ moments

    def _at(self, operator: int) -> list[Table]:
        """What is there when an operator runs, beside arguments and results."""
        before = self.order.before(operator, self.written.sure_copies)
        found = [*self._writes(operator)]
        taken = {self.order.same[tensor]: (tensor, -1) for tensor in self.graph.operators[operator].results}
        claims = sorted(self._claims(operator, before), key=lambda each: (-each.table.sizes.mean(), len(each.tensors)))
        served = set()
        for claim in claims:
            if taken.keys().isdisjoint(claim.tensors):
                if claim.table.sizes.any():
                    found.append(claim.table)
                    taken.update(dict.fromkeys(claim.tensors, claim.reader))
                    served.add(claim.reader)
            elif claim.copy is not None and claim.copy.sizes.any() and claim.reader not in served:
                found.append(claim.copy)
                served.add(claim.reader)
        return found

    def _writes(self, operator: int) -> Iterator[Table]:
        """Results of a kernel, if they are not written over an operand."""
        each = self.graph.operators[operator]
        if each.name.startswith(("scatter", "select_and_scatter")) or each.name == "dynamic_update_slice":
            return
        node = self.bundles.home_of(operator)
        for tensor in each.results:
            if self.order.same[tensor] not in self.written.own and self.written.readers(tensor):
                spec, places = self.graph.tensors[tensor], self.problem.choices[node].lies[tensor]
                sizes = [self._bytes(spec, where) for where in places]
                yield Table(node, node, np.diag(sizes))

    def _claims(self, operator: int, before: Before) -> Iterator[_Claim]:
        """Arrays of tensors that are there before an operator and read by it or after it."""
        slack, steady = {**before.slack}, self._steady(before)
        slack.update(self._from_nothing(operator, slack))
        slack.update(self._beside(operator, before, slack, steady))
        for tensor, depth in slack.items():
            for reader in self.written.readers(tensor):
                if reader == operator or self.order.depends(reader, operator):
                    yield from self._claim(tensor, reader, operator, before, depth, steady.get(tensor, 0))

    def _steady(self, before: Before) -> dict[int, int]:
        """By how much an operator is deeper than tensors that lie where their bundles have them."""
        found: dict[int, int] = {}
        for number, reach in before.reach.items():
            for tensor in self.order.operands[number]:
                if tensor != LITERAL and self.written.is_inside(tensor, number):
                    found[tensor] = max(found.get(tensor, 0), reach)
        return found

    def _from_nothing(self, operator: int, slack: Mapping[int, int]) -> Iterator[tuple[int, int]]:
        """Tensors that are made of constants, which waits for nobody."""
        for number in self.constant:
            results = self.graph.operators[number].results if number != operator else ()
            yield from ((tensor, self.order.depth(operator) - 1) for tensor in results if tensor not in slack)

    def _beside(
        self, operator: int, before: Before, slack: Mapping[int, int], steady: Mapping[int, int]
    ) -> dict[int, int]:
        """Results of loops that the operator does not wait for, made of what is there where it is."""
        found: dict[int, int] = {}
        known = {**slack}
        for number, operands in self.light:
            if number in before.reach or self.order.depends(number, operator):
                continue
            if all(tensor in known and self.written.is_inside(tensor, number) for tensor in operands):
                depths = [max(steady.get(tensor, 0), 0 if self._made(tensor) else known[tensor]) for tensor in operands]
                found.update(made := dict.fromkeys(self.graph.operators[number].results, min(depths) - 1))
                known.update(made)
        return found

    def _claim(
        self, tensor: int, reader: int, operator: int, before: Before, depth: int, steady: int
    ) -> Iterator[_Claim]:
        """The array that a reader needs, for an operator that runs before or is this reader."""
        way = self._arrival(tensor, reader)
        from_bundle = way.first == self.bundles.node_of[tensor]
        sure = (way.kernels < depth) | ((way.moving < steady) if from_bundle else False) | (reader == operator)
        sizes = np.where(reader == operator, way.there, np.where(sure, way.there, way.least))
        name, own = self.order.same[tensor], self.order.same[tensor] in self.written.own
        key = (tensor, reader)
        if reader in self.bundles.heavy and self.order.sorts[reader] is Sort.KERNEL:
            place = self.order.operands[reader].index(tensor)
            copied = sizes * sure * np.array(self.written.copies(reader, place))
            copy = Table(way.first, way.second, copied)
            if own:
                sizes = np.where(way.same, copied, sizes * sure)
                yield _Claim(Table(way.first, way.second, sizes), frozenset(), None, key)
                return
            yield _Claim(Table(way.first, way.second, sizes), frozenset([name]), copy, key)
            if reader != operator and not sure.all():
                yield from self._shared(tensor, reader, operator, before)
        elif not own and reader not in self.bundles.heavy:
            if self.written.is_read_itself(tensor, reader):
                yield _Claim(Table(way.first, way.second, sizes), frozenset([name]), None, key)
            elif kept := self.written.kept_for(tensor, before.reach):
                lying = np.min([self._lying(each, before.slack, steady) for each in kept], axis=0)[:, None]
                names = {self.order.same[each] for each in kept} | ({name} if way.sends.any() else set())
                sizes = np.where(way.sends, sizes, lying)
                yield _Claim(Table(way.first, way.second, sizes), frozenset(names), None, key)

    def _lying(self, tensor: int, slack: Mapping[int, int], steady: int) -> Ints:
        """[candidates of its bundle] bytes of an array of a tensor where it lies, or on the way to there."""
        kernels, there, least = self._resting(tensor)
        return np.where((kernels + 1 < slack.get(tensor, 0)) | (steady > 1), there, least)

    def _resting(self, tensor: int) -> tuple[Ints, Ints, Ints]:
        """[candidates of its bundle] kernels at most until a tensor lies there, bytes when it does, and least bytes before."""
        if tensor not in self._rests:
            spec, made, places = self.graph.tensors[tensor], self._made(tensor), self._lies(tensor)
            ways = [self._from_maker(spec, made, where) for where in places]
            sizes = np.array([self._bytes(spec, where) for where in places])
            self._rests[tensor] = np.array([way.kernels for way in ways]), sizes, np.array([way.least for way in ways])
        return self._rests[tensor]

    def _shared(self, tensor: int, reader: int, operator: int, before: Before) -> Iterator[_Claim]:
        """What a reader finds where another one has had it brought, one that runs before the operator or is it."""
        for other in self.written.readers(tensor):
            heavy = other in self.bundles.heavy and self.order.sorts[other] is Sort.KERNEL
            if heavy and other != reader and other in before.reach:
                here, there = self._wanted(tensor, other), self._wanted(tensor, reader)
                spec, least = self.graph.tensors[tensor], self._any(tensor).least
                sizes = [[self._bytes(spec, b) if a == b else least for b in there] for a in here]
                table = Table(self.bundles.home_of(other), self.bundles.home_of(reader), np.array(sizes))
                yield _Claim(table, frozenset([self.order.same[tensor]]), None, (tensor, reader))
                return

    # ------------------------------------------------------------------------------------------------------ arrivals

    def _arrival(self, tensor: int, reader: int) -> _Arrival:
        key = (tensor, reader)
        if key not in self._arrivals:
            self._arrivals[key] = self._work_out(tensor, reader)
        return self._arrivals[key]

    def _work_out(self, tensor: int, reader: int) -> _Arrival:
        home, second = self.bundles.node_of[tensor], self.bundles.home_of(reader)
        relay = self.bundles.relays.get(tensor) if reader in self.bundles.heavy else None
        first = home if relay is None or self.order.same[tensor] in self.written.own else relay
        others = {self.bundles.home_of(each) for each in self.written.readers(tensor)} - {home}
        ends = _Ends(
            self.graph.tensors[tensor],
            self._made(tensor),
            self._lies(tensor),
            () if relay is None else self.problem.choices[relay].lies[tensor],
            first != home,
            self._wanted(tensor, reader),
            self._any(tensor) if len(others) > 1 else _Way(0, _NEVER, False),
        )
        if ends not in self._tables:
            self._tables[ends] = self._between(ends)
        return _Arrival(first, second, *self._tables[ends])

    def _between(self, ends: _Ends) -> _Tables:
        """By candidates of source and reader: from where a tensor is made to its bundle's place, to a relay's, and from there."""
        spec, sources = ends.spec, ends.relayed if ends.from_relay else ends.lies
        from_maker = {source: self._from_maker(spec, ends.made, source) for source in ends.lies}
        parts = min((self._bytes(spec, where) for where in ends.made if where.partial), default=_NEVER)
        ways: list[tuple[int, int, int, int, bool, bool]] = []
        for source in sources:
            up = (
                from_maker[source]
                if not ends.from_relay
                else self._longest([_joined(from_maker[lying], self._way(spec, lying, source)) for lying in from_maker])
            )
            for target in ends.wanted:
                way = self._way(spec, source, target)
                if source != target and ends.relayed and not ends.from_relay:
                    way = self._longest(
                        [
                            _joined(self._way(spec, source, each), self._way(spec, each, target))
                            for each in dict.fromkeys(ends.relayed)
                        ]
                    )
                way = _joined(way, ends.detour) if source != target else way
                size = self._bytes(spec, target)
                ways.append(
                    (
                        up.kernels + way.kernels + 1,
                        way.kernels + 1,
                        min(size, parts) if up.kernels else size,
                        min(up.least, way.least),
                        way.sends,
                        source == target,
                    )
                )
        shape = len(sources), len(ends.wanted)
        kernels, moving, there, least, sends, same = (np.array(each).reshape(shape) for each in zip(*ways, strict=True))
        return kernels, moving, there, least, sends, same

    def _from_maker(self, spec: TensorSpec, made: Sequence[Placement], where: Placement) -> _Way:
        """From wherever a tensor may be made to where its bundle has it."""
        return self._longest([self._way(spec, each, where) for each in made or [where]])

    def _any(self, tensor: int) -> _Way:
        """Any way of a tensor: readers find it where others have had it brought."""
        places, spec = self._places(tensor), self.graph.tensors[tensor]
        key = spec, places
        if key not in self._farthest:
            kernels, least = self._most_kernels, min(self._bytes(spec, each) for each in places)
            if len(self.problem.mesh.device_axes) == 1:
                kernels = max(self._way(spec, a, b).kernels for a in places for b in places if not b.partial)
            self._farthest[key] = _Way(kernels, self._slice(spec) if self._many_axes else least, False)
        return self._farthest[key]

    @staticmethod
    def _longest(ways: Sequence[_Way]) -> _Way:
        return _Way(
            max(each.kernels for each in ways), min(each.least for each in ways), all(each.sends for each in ways)
        )

    def _way(self, spec: TensorSpec, source: Placement, target: Placement) -> _Way:
        """From one place to another; on meshes of many axes only what holds for all ways, as finding the way takes too long."""
        key = (spec.shape, spec.itemsize, source, target)
        if key not in self._ways:
            size = self._bytes(spec, source)
            if source == target:
                self._ways[key] = _Way(0, size, False)
            elif self._many_axes:
                self._ways[key] = _Way(self._most_kernels, self._slice(spec), _sends(source, target))
            else:
                moves = self._moves(*key)
                sizes = (size, self._bytes(spec, target), *(move.local_bytes for move in moves))
                sends = any(move.kind not in (MoveKind.SLICE, MoveKind.MASK) for move in moves)
                self._ways[key] = _Way(_KERNELS_PER_MOVE * len(moves), min(sizes), sends)
        return self._ways[key]

    def _moves(self, shape: tuple[int, ...], itemsize: int, source: Placement, target: Placement) -> Sequence[Move]:
        mesh, alltoall = self.problem.mesh, self.problem.options.alltoall
        return redistribute(shape, itemsize, source, target, mesh, alltoall).moves

    # -------------------------------------------------------------------------------------------------------- places

    def _bytes(self, spec: TensorSpec, where: Placement) -> int:
        key = (spec.shape, spec.itemsize, where)
        if key not in self._sizes:
            self._sizes[key] = local_bytes(spec, where, self.problem.mesh)
        return self._sizes[key]

    def _slice(self, spec: TensorSpec) -> int:
        """Bytes that every device has at least, wherever a tensor is."""
        return spec.num_bytes // self.order.devices

    def _lies(self, tensor: int) -> tuple[Placement, ...]:
        """Per candidate of its bundle."""
        return self.problem.choices[self.bundles.node_of[tensor]].lies[tensor]

    def _made(self, tensor: int) -> tuple[Placement, ...]:
        """Where another decision than its bundle may make a tensor."""
        maker = self.order.producer.get(tensor)
        if maker is None or self.order.sorts[maker] is None:
            return ()
        home = self.bundles.home_of(maker)
        if home == self.bundles.node_of[tensor]:
            return ()
        return tuple(dict.fromkeys(self.problem.choices[home].lies[tensor]))

    def _wanted(self, tensor: int, reader: int) -> tuple[Placement, ...]:
        """Where an operator reads a tensor, per candidate of its decision."""
        choices = self.problem.choices[self.bundles.home_of(reader)]
        member, place = choices.operators.index(reader), self.order.operands[reader].index(tensor)
        return tuple(steps[member].operands[place] for steps in choices.steps)

    def _places(self, tensor: int) -> tuple[Placement, ...]:
        """All places that a tensor may be at."""
        if tensor not in self._placements:
            relay = self.bundles.relays.get(tensor)
            found = [*self._lies(tensor), *self._made(tensor)]
            found += () if relay is None else self.problem.choices[relay].lies[tensor]
            for reader in self.written.readers(tensor):
                found += self._wanted(tensor, reader)
            self._placements[tensor] = tuple(dict.fromkeys(found))
        return self._placements[tensor]


def _sends(source: Placement, target: Placement) -> bool:
    """Whether devices lack something of a tensor; otherwise they slice, and leave the sum to some of them."""
    cut_on = all(new[: len(old)] == old for old, new in zip(source.dims, target.dims, strict=True))
    return not cut_on or not set(source.partial) <= set(target.partial) or source.reduction != target.reduction


def _joined(first: _Way, second: _Way) -> _Way:
    """One way after another."""
    return _Way(first.kernels + second.kernels, min(first.least, second.least), first.sends or second.sends)
