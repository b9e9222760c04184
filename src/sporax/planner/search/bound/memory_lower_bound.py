"""A lower bound on the peak memory of every plan of the search space.

Problem: the measured memory (`planner.memory.peak`) depends on the whole plan: on resharding, fusion and the order of
kernels. A proof needs a quantity that no plan can go below, as a function of single decisions and pairs of decisions.

Method: count only arrays that exist in every plan. Arguments always exist; results that replace no argument exist at the end,
and before that their buffers may serve others, so they are counted in one last moment only. When a kernel runs, its operands
and results exist, and so does at least one array of every tensor that was produced before (`partial_order`) and is read
later. Such an array has the reader's placement if the resharding must be finished by then, and otherwise the smallest
placement it can have. Fused loops may read other arrays than their operands (`materialization`), and no array is
counted twice. Every moment is a sum of tables over one or two decisions that never exceeds the measured memory.
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
from sporax.planner.communication.resharding import default_costs, redistribute
from sporax.planner.cost.model import local_bytes
from sporax.planner.memory.peak import backend_of, live_ranges
from sporax.planner.search.bound.materialization import Materialization
from sporax.planner.search.bound.partial_order import CompiledForm, Order, Predecessors
from sporax.planner.search.space.problem import MANY_AXES, Problem
from sporax.planner.solver.graph.cost_graph import Booleans, Ints

_FEWEST_MOMENTS, _MOST_MOMENTS = 4, 80
"""Operators at which memory is bounded, at least and at most: those at which the graph's tensors take the most."""
_LOOKS = 200_000
"""Operators that are visited for all moments together: a count and no clock, so that all processes get the same bound."""
_KERNELS_PER_MOVE = 3
"""Most kernels of one move: rearranging, sending, and bringing in order."""
_NEVER = 1 << 62
"""Bytes that no array has: it disappears in every minimum, and one addition to it stays within int64."""


class BoundTable(NamedTuple):
    """Bytes by the candidates of two decisions [first, second]; equal decisions count their diagonal."""

    first: int
    second: int
    sizes: Ints


@dataclass(frozen=True, slots=True)
class MemoryLowerBound:
    """A lower bound on the memory of every plan.

    Attributes:
        always: per decision what arguments take, per candidate.
        moments: for every operator that is looked at, in order, what else is there when it runs; last, for the number of
            operators, the results.
    """

    always: Mapping[int, Ints]
    moments: Mapping[int, Sequence[BoundTable]]

    def bytes_of(self, chosen: Sequence[int]) -> int:
        """The lower bound of one choice, in bytes per device."""
        held = sum(int(sizes[chosen[node]]) for node, sizes in self.always.items())
        return held + max((_total(tables, chosen) for tables in self.moments.values()), default=0)


def _total(tables: Sequence[BoundTable], chosen: Sequence[int]) -> int:
    return sum(int(sizes[chosen[first], chosen[second]]) for first, second, sizes in tables)


def memory_lower_bound(problem: Problem) -> MemoryLowerBound:
    """The lower bound on memory of a problem's plans; cached."""
    if "memory lower bound" not in problem.cache:
        problem.cache["memory lower bound"] = _LowerBoundBuilder(problem).run()
    cached: MemoryLowerBound = problem.cache["memory lower bound"]
    return cached


class _Route(NamedTuple):
    """From one place to another: how many kernels at most, the least bytes on the way, and whether devices send."""

    kernels: int
    least: int
    sends: bool


class _Endpoints(NamedTuple):
    """All that the way of a tensor to a reader depends on. Layers repeat, so many tensors have the same.

    Attributes:
        spec: the tensor.
        produced: where another decision than its bundle may make it.
        tensor_placements: the tensor's placement within its bundle, per candidate.
        relayed: where its relay has it, per candidate; () where there is none, or the reader is none of its readers.
        from_relay: whether the reader's source is the relay.
        required: where the reader wants it, per candidate.
        detour: what may come between, since others have it brought elsewhere.
    """

    spec: TensorSpec
    produced: tuple[Placement, ...]
    tensor_placements: tuple[Placement, ...]
    relayed: tuple[Placement, ...]
    from_relay: bool
    required: tuple[Placement, ...]
    detour: _Route


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
        same: whether it is read where it is.
    """

    first: int
    second: int
    kernels: Ints
    moving: Ints
    arrived_bytes: Ints
    least: Ints
    sends: Booleans
    same: Booleans


class _RequiredArray(NamedTuple):
    """An array of one of `tensors` (those that may share arrays under one number) is there for a reader.

    `copy` is what is there in any case as a copy for this reader alone.
    """

    table: BoundTable
    tensors: frozenset[int]
    copy: BoundTable | None
    reader: tuple[int, int]


class _LowerBoundBuilder:
    def __init__(self, problem: Problem) -> None:
        self.problem, self.graph, self.decisions = problem, problem.graph, problem.decisions
        self.order = Order(problem)
        self.materialization = Materialization(problem, self.order)
        self.constant = [number for number in self._alive() if not self._read(number)]
        """Operators that read nothing but constants."""
        # Loops and views with what they read: they may be computed at any time after their operands.
        self.light = [
            (number, read)
            for number in self._alive()
            if self.order.forms[number] in (CompiledForm.LOOP, CompiledForm.VIEW) and (read := self._read(number))
        ]
        self._sizes: dict[object, int] = {}
        self._routes: dict[object, _Route] = {}
        self._tables: dict[_Endpoints, _Tables] = {}
        self._arrivals: dict[tuple[int, int], _Arrival] = {}
        self._rest_cache: dict[int, tuple[Ints, Ints, Ints]] = {}
        self._placements: dict[int, tuple[Placement, ...]] = {}
        self._farthest_cache: dict[object, _Route] = {}
        axes = len(problem.mesh.device_axes)
        self._many_axes = axes > MANY_AXES
        # A redistribution has at most two moves per axis: each axis leaves one dimension and comes to another.
        self._most_kernels = 2 * axes * _KERNELS_PER_MOVE

    def run(self) -> MemoryLowerBound:
        # What runs before what, and what is written, is known of one compiler; of all others, that arguments are held.
        known = self.problem.options.platform == "cpu"
        moments = {number: self._at(number) for number in self._moments()} if known else {}
        return MemoryLowerBound(self._always(), {**moments, len(self.graph.operators): self._at_the_end()})

    def _alive(self) -> list[int]:
        return [number for number, sort in enumerate(self.order.forms) if sort is not None and self.order.alive[number]]

    def _read(self, number: int) -> list[int]:
        return [tensor for tensor in self.order.operands[number] if tensor != LITERAL]

    # ------------------------------------------------------------------------------------------------- what is held

    def _always(self) -> dict[int, Ints]:
        always: dict[int, Ints] = {}
        for argument in self.graph.inputs:
            node = self.decisions.node_of[argument.tensor]
            always[node] = always.get(node, 0) + self._bytes_in_bundle(argument.tensor)
        return always

    def _at_the_end(self) -> list[BoundTable]:
        """Results that replace no argument, each array once."""
        replaced, tables = dict(self.graph.aliases), []
        seen = {self.order.same[argument.tensor] for argument in self.graph.inputs}
        for place, output in enumerate(self.graph.outputs):
            # What replaces an argument is written into its buffer, which is counted already.
            if place in replaced or output == LITERAL:
                continue
            tensor = self.decisions.origin[output]
            if self.order.same[tensor] not in seen:
                seen.add(self.order.same[tensor])
                node = self.decisions.node_of[tensor]
                tables.append(BoundTable(node, node, np.diag(self._bytes_in_bundle(tensor))))
        return tables

    def _bytes_in_bundle(self, tensor: int) -> Ints:
        """Bytes of a tensor where its bundle has it, per candidate."""
        spec = self.graph.tensors[tensor]
        return np.array([self._bytes(spec, where) for where in self._bundle_placements(tensor)])

    def _moments(self) -> list[int]:
        """Heavy operators that are kernels: those at which an unsharded step uses the most memory."""
        kernels = [
            number
            for number in self.decisions.heavy
            if self.order.alive[number] and self.order.forms[number] is CompiledForm.KERNEL
        ]
        # Fewer moments in larger graphs: each one costs a walk over the whole graph.
        most = min(max(_LOOKS // max(len(self.graph.operators), 1), _FEWEST_MOMENTS), _MOST_MOMENTS)
        if len(kernels) <= most:
            return kernels
        taken = np.zeros(2 * len(self.graph.operators) + 4, np.int64)
        for life in live_ranges(self.graph, backend_of(self.problem.options.platform)):
            size = self.graph.tensors[life.tensor].num_bytes
            # Ticks of live ranges begin at -1, and spans are half open.
            taken[life.begin + 1] += size
            taken[life.end + 2] -= size
        taken = np.cumsum(taken)
        # The fullest moments, in the order of the program again.
        return sorted(sorted(kernels, key=lambda number: -taken[2 * number + 1])[:most])

    # ------------------------------------------------------------------------------------------------------ moments

    def _at(self, operator: int) -> list[BoundTable]:
        """What is there when an operator runs, next to arguments."""
        before = self.order.before(operator, self.materialization.sure_copies)
        tables = [*self._writes(operator)]
        # Results of the operator itself may share arrays with operands; these are then counted once, as results.
        taken = {self.order.same[tensor]: (tensor, -1) for tensor in self.graph.operators[operator].results}
        candidates = sorted(
            # Large arrays first: of two requirements that one array could serve, the one that raises the bound more is
            # kept.
            self._required_arrays(operator, before),
            key=lambda array: (-array.table.sizes.mean(), len(array.tensors)),
        )
        served = set()
        for required in candidates:
            if taken.keys().isdisjoint(required.tensors):
                if required.table.sizes.any():
                    tables.append(required.table)
                    taken.update(dict.fromkeys(required.tensors, required.reader))
                    served.add(required.reader)
            # The array is counted already, but this reader has a copy of its own as well, if none was counted for it
            # yet.
            elif required.copy is not None and required.copy.sizes.any() and required.reader not in served:
                tables.append(required.copy)
                served.add(required.reader)
        return tables

    def _writes(self, operator: int) -> Iterator[BoundTable]:
        """Results of a kernel, if they are not written over an operand."""
        writer = self.graph.operators[operator]
        # XLA updates in place where it can; a bound must not count what may not exist.
        if writer.name.startswith(("scatter", "select_and_scatter")) or writer.name == "dynamic_update_slice":
            return
        node = self.decisions.decision_of(operator)
        for tensor in writer.results:
            if self.order.same[tensor] not in self.materialization.own and self.materialization.readers(tensor):
                spec, possible = self.graph.tensors[tensor], self.problem.choices[node].tensor_placements[tensor]
                sizes = [self._bytes(spec, where) for where in possible]
                yield BoundTable(node, node, np.diag(sizes))

    def _required_arrays(self, operator: int, before: Predecessors) -> Iterator[_RequiredArray]:
        """Arrays of tensors that are there before an operator and read by it or after it."""
        slack, steady = {**before.slack}, self._steady(before)
        slack.update(self._from_nothing(operator, slack))
        slack.update(self._independent_results(operator, before, slack, steady))
        for tensor, depth in slack.items():
            for reader in self.materialization.readers(tensor):
                if reader == operator or self.order.depends(reader, operator):
                    yield from self._required_array(tensor, reader, operator, before, depth, steady.get(tensor, 0))

    def _steady(self, before: Predecessors) -> dict[int, int]:
        """By how much an operator is deeper than tensors that are where their bundles have them."""
        depths: dict[int, int] = {}
        for number, reach in before.reach.items():
            for tensor in self.order.operands[number]:
                if tensor != LITERAL and self.materialization.is_inside(tensor, number):
                    depths[tensor] = max(depths.get(tensor, 0), reach)
        return depths

    def _from_nothing(self, operator: int, slack: Mapping[int, int]) -> Iterator[tuple[int, int]]:
        """Tensors that depend on constants only, and so can be computed at any time."""
        for number in self.constant:
            results = self.graph.operators[number].results if number != operator else ()
            # Constants can be computed just before they are read, so they are as deep as the operator at most.
            yield from ((tensor, self.order.depth(operator) - 1) for tensor in results if tensor not in slack)

    def _independent_results(
        self, operator: int, before: Predecessors, slack: Mapping[int, int], steady: Mapping[int, int]
    ) -> dict[int, int]:
        """Results of loops that the operator does not wait for, made of what is there where it is."""
        slack_of: dict[int, int] = {}
        available = {**slack}
        for number, operands in self.light:
            # What waits for the operator, or is waited for, has been counted from the operator's own chain.
            if number in before.reach or self.order.depends(number, operator):
                continue
            if all(tensor in available and self.materialization.is_inside(tensor, number) for tensor in operands):
                depths = [
                    # A tensor that is produced in its bundle's placement is there as soon as it exists; others must
                    # arrive first.
                    max(steady.get(tensor, 0), 0 if self._producer_placements(tensor) else available[tensor])
                    for tensor in operands
                ]
                slack_of.update(new := dict.fromkeys(self.graph.operators[number].results, min(depths) - 1))
                available.update(new)
        return slack_of

    def _required_array(
        self, tensor: int, reader: int, operator: int, before: Predecessors, depth: int, steady: int
    ) -> Iterator[_RequiredArray]:
        """The array that a reader needs, for an operator that runs before or is this reader."""
        route = self._arrival(tensor, reader)
        from_bundle = route.first == self.decisions.node_of[tensor]
        # Sure to have arrived: fewer kernels lie on its way than between its producer and this operator in every plan.
        sure = (route.kernels < depth) | ((route.moving < steady) if from_bundle else False) | (reader == operator)
        # Otherwise it may be anywhere on its way, so only the smallest of its placements counts.
        sizes = np.where(reader == operator, route.arrived_bytes, np.where(sure, route.arrived_bytes, route.least))
        name, own = self.order.same[tensor], self.order.same[tensor] in self.materialization.own
        key = (tensor, reader)
        if reader in self.decisions.heavy and self.order.forms[reader] is CompiledForm.KERNEL:
            place = self.order.operands[reader].index(tensor)
            copied = sizes * sure * np.array(self.materialization.copies(reader, place))
            copy = BoundTable(route.first, route.second, copied)
            # Arguments and results are counted elsewhere; only a copy or another placement of them is new.
            if own:
                sizes = np.where(route.same, copied, sizes * sure)
                yield _RequiredArray(BoundTable(route.first, route.second, sizes), frozenset(), None, key)
                return
            yield _RequiredArray(BoundTable(route.first, route.second, sizes), frozenset([name]), copy, key)
            if reader != operator and not sure.all():
                yield from self._shared(tensor, reader, operator, before)
        elif not own and reader not in self.decisions.heavy:
            if self.materialization.is_read_itself(tensor, reader):
                yield _RequiredArray(BoundTable(route.first, route.second, sizes), frozenset([name]), None, key)
            elif stored := self.materialization.stored_for(tensor, before.reach):
                lying = np.min([self._bytes_at_rest(tensor, before.slack, steady) for tensor in stored], axis=0)[
                    :, None
                ]
                names = {self.order.same[tensor] for tensor in stored} | ({name} if route.sends.any() else set())
                sizes = np.where(route.sends, sizes, lying)
                # If devices send, the array read is one of the tensor itself; otherwise one of the tensors it is
                # computed from.
                yield _RequiredArray(BoundTable(route.first, route.second, sizes), frozenset(names), None, key)

    def _bytes_at_rest(self, tensor: int, slack: Mapping[int, int], steady: int) -> Ints:
        """[candidates of its bundle] bytes of an array of a tensor where it is, or on the way to there."""
        kernels, arrived_bytes, least = self._at_rest(tensor)
        return np.where((kernels + 1 < slack.get(tensor, 0)) | (steady > 1), arrived_bytes, least)

    def _at_rest(self, tensor: int) -> tuple[Ints, Ints, Ints]:
        """[candidates of its bundle] kernels at most until a tensor is there, bytes when it is, and least bytes before."""
        if tensor not in self._rest_cache:
            spec, sources, possible = (
                self.graph.tensors[tensor],
                self._producer_placements(tensor),
                self._bundle_placements(tensor),
            )
            routes = [self._from_maker(spec, sources, where) for where in possible]
            sizes = np.array([self._bytes(spec, where) for where in possible])
            self._rest_cache[tensor] = (
                np.array([route.kernels for route in routes]),
                sizes,
                np.array([route.least for route in routes]),
            )
        return self._rest_cache[tensor]

    def _shared(self, tensor: int, reader: int, operator: int, before: Predecessors) -> Iterator[_RequiredArray]:
        """What a reader finds where another one has had it brought, one that runs before the operator or is it."""
        for other in self.materialization.readers(tensor):
            heavy = other in self.decisions.heavy and self.order.forms[other] is CompiledForm.KERNEL
            if heavy and other != reader and other in before.reach:
                here, arrived_bytes = self._reader_placements(tensor, other), self._reader_placements(tensor, reader)
                spec, least = self.graph.tensors[tensor], self._farthest_route(tensor).least
                sizes = [[self._bytes(spec, b) if a == b else least for b in arrived_bytes] for a in here]
                table = BoundTable(
                    self.decisions.decision_of(other), self.decisions.decision_of(reader), np.array(sizes)
                )
                yield _RequiredArray(table, frozenset([self.order.same[tensor]]), None, (tensor, reader))
                return

    # ------------------------------------------------------------------------------------------------------ arrivals

    def _arrival(self, tensor: int, reader: int) -> _Arrival:
        key = (tensor, reader)
        if key not in self._arrivals:
            self._arrivals[key] = self._work_out(tensor, reader)
        return self._arrivals[key]

    def _work_out(self, tensor: int, reader: int) -> _Arrival:
        decision, second = self.decisions.node_of[tensor], self.decisions.decision_of(reader)
        # Light operators never read from a relay, which serves heavy ones only.
        relay = self.decisions.relays.get(tensor) if reader in self.decisions.heavy else None
        first = decision if relay is None or self.order.same[tensor] in self.materialization.own else relay
        # Several decisions read it: one may read what another one had resharded, hence the detour.
        others = {self.decisions.decision_of(reader) for reader in self.materialization.readers(tensor)} - {decision}
        ends = _Endpoints(
            self.graph.tensors[tensor],
            self._producer_placements(tensor),
            self._bundle_placements(tensor),
            () if relay is None else self.problem.choices[relay].tensor_placements[tensor],
            first != decision,
            self._reader_placements(tensor, reader),
            self._farthest_route(tensor) if len(others) > 1 else _Route(0, _NEVER, False),
        )
        if ends not in self._tables:
            self._tables[ends] = self._between(ends)
        return _Arrival(first, second, *self._tables[ends])

    def _between(self, ends: _Endpoints) -> _Tables:
        """By candidates of source and reader: from where a tensor is made to its bundle's place, to a relay's, and from there."""
        spec, sources = ends.spec, ends.relayed if ends.from_relay else ends.tensor_placements
        from_maker = {source: self._from_maker(spec, ends.produced, source) for source in ends.tensor_placements}
        partial_bytes = min((self._bytes(spec, where) for where in ends.produced if where.partial), default=_NEVER)
        # A tensor may be resharded in several ways on its way; a bound takes the most kernels and the least bytes of
        # all.
        routes: list[tuple[int, int, int, int, bool, bool]] = []
        for source in sources:
            if ends.from_relay:
                up = self._longest([_joined(made, self._route(spec, at, source)) for at, made in from_maker.items()])
            else:
                up = from_maker[source]
            for target in ends.required:
                route = self._to_reader(ends, source, target)
                size = self._bytes(spec, target)
                routes.append(
                    (
                        up.kernels + route.kernels + 1,
                        route.kernels + 1,
                        # While it is not there for sure, it may still be the partial sum it was produced as.
                        min(size, partial_bytes) if up.kernels else size,
                        min(up.least, route.least),
                        route.sends,
                        source == target,
                    )
                )
        shape = len(sources), len(ends.required)
        kernels, moving, arrived_bytes, least, sends, same = (
            np.array(entry).reshape(shape) for entry in zip(*routes, strict=True)
        )
        return kernels, moving, arrived_bytes, least, sends, same

    def _to_reader(self, ends: _Endpoints, source: Placement, target: Placement) -> _Route:
        """From where its bundle, or a relay, has a tensor to where a reader needs it, by way of a relay if there is one."""
        spec = ends.spec
        if source == target:
            return self._route(spec, source, target)
        if not ends.relayed or ends.from_relay:
            return _joined(self._route(spec, source, target), ends.detour)
        relays = dict.fromkeys(ends.relayed)
        ways = [_joined(self._route(spec, source, relay), self._route(spec, relay, target)) for relay in relays]
        return _joined(self._longest(ways), ends.detour)

    def _from_maker(self, spec: TensorSpec, sources: Sequence[Placement], where: Placement) -> _Route:
        """From wherever a tensor may be made to where its bundle has it."""
        return self._longest([self._route(spec, entry, where) for entry in sources or [where]])

    def _farthest_route(self, tensor: int) -> _Route:
        """Any way of a tensor: readers find it where others have had it brought."""
        possible, spec = self._possible_placements(tensor), self.graph.tensors[tensor]
        key = spec, possible
        if key not in self._farthest_cache:
            kernels, least = self._most_kernels, min(self._bytes(spec, place) for place in possible)
            # With one axis all routes are few and short, so the longest of them is worth looking for.
            if len(self.problem.mesh.device_axes) == 1:
                kernels = max(self._route(spec, a, b).kernels for a in possible for b in possible if not b.partial)
            self._farthest_cache[key] = _Route(kernels, self._slice(spec) if self._many_axes else least, False)
        return self._farthest_cache[key]

    @staticmethod
    def _longest(routes: Sequence[_Route]) -> _Route:
        return _Route(
            max(route.kernels for route in routes),
            min(route.least for route in routes),
            all(route.sends for route in routes),
        )

    def _route(self, spec: TensorSpec, source: Placement, target: Placement) -> _Route:
        """From one place to another; on meshes of many axes only what holds for all ways, as finding the way takes too long."""
        key = (spec.shape, spec.itemsize, source, target)
        if key not in self._routes:
            size = self._bytes(spec, source)
            if source == target:
                self._routes[key] = _Route(0, size, False)
            # Where the mesh has many axes, searching each route would take longer than the bound is worth.
            elif self._many_axes:
                self._routes[key] = _Route(self._most_kernels, self._slice(spec), _sends(source, target))
            else:
                moves = self._moves(*key)
                # Between two moves the tensor is at an intermediate size, which may be less than at both ends.
                sizes = (size, self._bytes(spec, target), *(move.local_bytes for move in moves))
                sends = any(move.kind not in (MoveKind.SLICE, MoveKind.MASK) for move in moves)
                self._routes[key] = _Route(_KERNELS_PER_MOVE * len(moves), min(sizes), sends)
        return self._routes[key]

    def _moves(self, shape: tuple[int, ...], itemsize: int, source: Placement, target: Placement) -> Sequence[Move]:
        mesh, alltoall = self.problem.mesh, self.problem.options.alltoall
        costs = default_costs(self.problem.catalogue.model.links.has_reduce_scatter)
        return redistribute(shape, itemsize, source, target, mesh, alltoall, costs).moves

    # -------------------------------------------------------------------------------------------------------- places

    def _bytes(self, spec: TensorSpec, where: Placement) -> int:
        key = (spec.shape, spec.itemsize, where)
        if key not in self._sizes:
            self._sizes[key] = local_bytes(spec, where, self.problem.mesh)
        return self._sizes[key]

    def _slice(self, spec: TensorSpec) -> int:
        """Bytes that every device has at least, wherever a tensor is."""
        # All devices together hold the whole tensor at least once.
        return spec.num_bytes // self.order.devices

    def _bundle_placements(self, tensor: int) -> tuple[Placement, ...]:
        """Per candidate of its bundle."""
        return self.problem.choices[self.decisions.node_of[tensor]].tensor_placements[tensor]

    def _producer_placements(self, tensor: int) -> tuple[Placement, ...]:
        """Where another decision than its bundle may make a tensor."""
        maker = self.order.producer.get(tensor)
        if maker is None or self.order.forms[maker] is None:
            return ()
        decision = self.decisions.decision_of(maker)
        if decision == self.decisions.node_of[tensor]:
            return ()
        return tuple(dict.fromkeys(self.problem.choices[decision].tensor_placements[tensor]))

    def _reader_placements(self, tensor: int, reader: int) -> tuple[Placement, ...]:
        """Where an operator reads a tensor, per candidate of its decision."""
        choices = self.problem.choices[self.decisions.decision_of(reader)]
        member, place = choices.operators.index(reader), self.order.operands[reader].index(tensor)
        return tuple(steps[member].operands[place] for steps in choices.steps)

    def _possible_placements(self, tensor: int) -> tuple[Placement, ...]:
        """All places that a tensor may be at."""
        if tensor not in self._placements:
            relay = self.decisions.relays.get(tensor)
            placements = [*self._bundle_placements(tensor), *self._producer_placements(tensor)]
            placements += () if relay is None else self.problem.choices[relay].tensor_placements[tensor]
            for reader in self.materialization.readers(tensor):
                placements += self._reader_placements(tensor, reader)
            self._placements[tensor] = tuple(dict.fromkeys(placements))
        return self._placements[tensor]


def _sends(source: Placement, target: Placement) -> bool:
    """Whether devices lack something of a tensor; otherwise they slice, and leave the sum to some of them."""
    # Only slices are needed if each dimension is sharded further along the same axes.
    is_refined = all(new[: len(old)] == old for old, new in zip(source.dims, target.dims, strict=True))
    return not is_refined or not set(source.partial) <= set(target.partial) or source.reduction != target.reduction


def _joined(first: _Route, second: _Route) -> _Route:
    """One way after another."""
    return _Route(first.kernels + second.kernels, min(first.least, second.least), first.sends or second.sends)
