"""The search problem of a graph: decisions with candidates, costs of candidates, and costs of pairs of candidates.

Problem: the searches differ, but all of them need the same decisions and costs, some of them several times.

Method: a `Problem` is a frozen value with arrays: per decision the cost of each candidate, per edge a table. Costs are
nanoseconds (or weighted bytes), because the tolerance of the solver is absolute. `ProblemBuilder` makes problems of one
graph with more or fewer mesh axes handed out, and remembers what they have in common.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from sporax.base.errors import SporaxValueError
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import LITERAL, OperatorGraph
from sporax.ir.placement import Placement
from sporax.ir.plan import Plan
from sporax.planner.cost.model import CostModel
from sporax.planner.cost.symbolic import SECONDS, unit_of
from sporax.planner.request import PlanRequest
from sporax.planner.rules import Assignment, Rule
from sporax.planner.search.space import operator_rules
from sporax.planner.search.space.candidates import Base, Catalogue, Choices
from sporax.planner.search.space.decisions import Decisions, find_decisions
from sporax.planner.search.space.resharding_cost import Floats, ReshardingCosts
from sporax.planner.solver.graph.cost_graph import CostGraph

Made = TypeVar("Made")

NANOSECONDS = 1e9
"""Per second. The solver's tolerance is absolute, and 10**17 and more means forbidden there; weighted bytes stay as they are."""
_MANY_AXES = 4
"""Mesh axes up to which moves are costed by the search for the route of least cost; its time grows exponentially with them."""


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """What a search may do.

    Attributes:
        units: runs of mesh axes that are handed out together; () for two, within nodes and between nodes.
        fully_use_devices: operators of arithmetic are sharded by all units wherever that is possible.
        alltoall: whether tensors may be moved by all-to-all and permute.
        fixed: placements that are given, by number of the tensor.
        free: their dimensions that are left open, where there are some.
        assignments: given assignments of heavy operators, by number of the operator.
        memory_bytes: what a plan may need on one device; None for no limit.
        platform: JAX's name of the devices, which decides how much a plan is predicted to need.
        is_quick: a search that finds no plan within the memory soon is an error, without a word on what would fit.
        follow: light operators take the sharding that their bundle's producer makes; nothing but combining parts comes between.
        align: in products, a sharding of one of the last two dimensions of an operand or result must leave a multiple of this.
        epsilon: share of its cost by which the plan of dynamic programming may be more expensive than the best.
    """

    units: operator_rules.Units = ()
    fully_use_devices: bool = False
    alltoall: bool = True
    fixed: Mapping[int, Placement] = field(default_factory=dict, hash=False)
    free: Mapping[int, tuple[int, ...]] = field(default_factory=dict, hash=False)
    assignments: Mapping[int, Assignment] = field(default_factory=dict, hash=False)
    memory_bytes: int | None = None
    platform: str = "cpu"
    is_quick: bool = False
    follow: bool = False
    align: int = 1
    epsilon: float = 0.0


@dataclass(frozen=True, slots=True)
class Problem:
    """A graph, its decisions, and their costs.

    Attributes:
        graph, mesh, options: what it was made from.
        decisions: the decisions.
        choices: per decision.
        costs: per decision [candidates], nanoseconds (or weighted bytes).
        edges: pairs of decisions with a table [candidates, candidates], in the same.
        catalogue: where the candidates come from.
        scale: what a second, or a weighted byte, counts in `costs` and `edges`.
        cache, plans: results of other modules that do not depend on the costs, and that do.
    """

    graph: OperatorGraph
    mesh: DeviceMatrix
    options: SearchOptions
    decisions: Decisions
    choices: tuple[Choices, ...]
    costs: tuple[Floats, ...]
    edges: tuple[tuple[int, int, Floats], ...]
    catalogue: Catalogue
    scale: float = NANOSECONDS
    cache: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    plans: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def __str__(self) -> str:
        count = sum(len(costs_of) for costs_of in self.costs)
        return f"Problem({len(self.costs)} decisions, {count} candidates, {len(self.edges)} edges)"

    def seconds(self, chosen: Sequence[int]) -> float:
        """Cost of one candidate per decision."""
        # Python sums of single entries: a plan is evaluated thousands of times, with few edges at a time.
        total = sum(float(costs[entry]) for costs, entry in zip(self.costs, chosen, strict=True))
        total += sum(float(table[chosen[first], chosen[second]]) for first, second, table in self.edges)
        return total / self.scale

    def statistics(self) -> dict[str, int | float | str]:
        """Sizes."""
        return {"decisions": len(self.costs), "candidates": sum(map(len, self.costs)), "edges": len(self.edges)}

    def cost_graph(self) -> CostGraph:
        """The problem for the solver, without memory."""
        return CostGraph.unlimited(self.costs, self.edges, "plan")

    def with_costs(self, costs: Sequence[Floats]) -> Problem:
        """The same decisions at other costs; what does not depend on these is still known."""
        # `cache` is kept: it says nothing of costs.
        return replace(self, costs=tuple(costs), plans={})

    def cached(self, name: str, make: Callable[[], Made], of_costs: bool = False) -> Made:
        """What is made once of the decisions, or `of_costs` once of these costs."""
        known = self.plans if of_costs else self.cache
        if name not in known:
            known[name] = make()
        made: Made = known[name]
        return made

    def rule(self, number: int) -> Rule:
        """The rule of an operator."""
        return self.catalogue.rule(number)

    def bases(self, chosen: Sequence[int]) -> list[Base]:
        """The decisions of a choice, as the base of a later round."""
        return [choice.base(candidate) for choice, candidate in zip(self.choices, chosen, strict=True)]


class ProblemBuilder:
    """Builds problems of one graph; intermediate results of one are used for the next.

    Args:
        approximate: cost moves by direct routes, an upper bound on the least cost; the default on meshes of many axes,
            where the search for the least cost takes too long.

    Raises:
        SporaxValueError: the units do not fit the mesh, or a given placement does not fit its tensor.
    """

    def __init__(
        self,
        graph: OperatorGraph,
        mesh: DeviceMatrix,
        model: CostModel,
        options: SearchOptions,
        approximate: bool | None = None,
    ) -> None:
        operator_rules.check_units(options.units, mesh)
        check_fixed(graph, mesh, options.fixed)
        self.graph, self.mesh, self.options = graph, mesh, options
        self.decisions = find_decisions(graph, options.fixed)
        # Other units than seconds are of the size that the solver expects already.
        self.scale = NANOSECONDS if unit_of(model) == SECONDS else 1.0
        strategies = itertools.chain(*options.assignments.values(), *(where.dims for where in options.fixed.values()))
        self.units = options.units or operator_rules.refined(
            operator_rules.natural_units(mesh, model.links), strategies
        )
        approximate = len(mesh.device_axes) > _MANY_AXES if approximate is None else approximate
        # Both kinds of costs are kept, since `costed` needs exact ones even in a hurry.
        careful = ReshardingCosts(mesh, model.links, options.alltoall)
        self._careful, self._mover = (
            careful,
            ReshardingCosts(mesh, model.links, options.alltoall, True) if approximate else careful,
        )
        self._sources = [self._source(number) for number in range(len(self.decisions.nodes))]
        self._weights, self._costed_equally = self._costs_of_tensors(model.late_communication)
        self._tables: dict[tuple[int, int, int], tuple[Sequence[Placement], Sequence[Placement], Floats]] = {}
        self.catalogue = Catalogue(
            self.decisions.kinds,
            mesh,
            model,
            self._mover,
            self.units,
            options.fully_use_devices,
            options.align,
            options.follow,
        )

    def costed(self, bases: Sequence[Base] | None) -> Problem:
        """The problem in which everything is decided, every move costed by its route of least cost."""
        return self._build((), self._careful, bases)

    def build(self, units: operator_rules.Units | None = None, bases: Sequence[Base] | None = None) -> Problem:
        """The problem that hands out `units` (all, unless said) on top of what was decided before."""
        return self._build(self.units if units is None else units, self._mover, bases)

    def _build(
        self, units: operator_rules.Units, resharding_costs: ReshardingCosts, bases: Sequence[Base] | None
    ) -> Problem:
        self.catalogue.use_units(units, resharding_costs)
        # The tables of a former build have other candidates.
        self._tables.clear()
        choices: list[Choices] = []
        for number, node in enumerate(self.decisions.nodes):
            base = bases[number] if bases is not None else None
            if node.is_bundle:
                # A bundle's candidates depend on where its root is made, which an earlier decision says.
                source = self._sources[number]
                root_placements = () if source is None else choices[source[0]].tensor_placements[source[1]]
                pinned = None if node.is_relay else self._fixed(node.root, units, base)
                free = () if pinned is None else self.options.free.get(node.root, ())
                choices.append(self.catalogue.bundle(self.decisions, number, root_placements, pinned, base, free))
            else:
                fixed_assignment = self.options.assignments.get(node.producer)
                choices.append(self.catalogue.heavy(self.decisions, node.producer, base, fixed_assignment))
        costs = [choice.seconds * self.scale for choice in choices]
        edges = [*self._arrivals(choices), *self._reads(choices), *self._results(choices, costs)]
        return Problem(
            self.graph,
            self.mesh,
            self.options,
            self.decisions,
            tuple(choices),
            tuple(costs),
            tuple(edges),
            self.catalogue,
            self.scale,
        )

    def _fixed(self, tensor: int, units: operator_rules.Units, base: Base) -> Placement | None:
        """Where a tensor must be, along all axes but those that are handed out later."""
        where = self.options.fixed.get(tensor)
        if where is None:
            return None
        handed_out = {*itertools.chain(*units), *(base.used if isinstance(base, Placement) else ())}
        # A given placement is met axis by axis: those of later rounds must not be handed out now.
        later = {*itertools.chain(*self.units)} - handed_out
        return operator_rules.restricted(where, frozenset(self.mesh.device_axes) - later)

    def _source(self, number: int) -> tuple[int, int] | None:
        """The decision that says where a bundle's root is when it is made, and the tensor by its number there."""
        node = self.decisions.nodes[number]
        if not node.is_bundle:
            return None
        if node.is_relay:
            return self.decisions.node_of[node.root], node.root
        if node.producer < 0:
            return None
        operator = self.graph.operators[node.producer]
        if operator_rules.is_identity(operator):
            # A barrier's result comes from its operand, which may be a constant without any placement.
            operand = operator.sources[node.root]
            origin = LITERAL if operand == LITERAL else self.decisions.origin[operand]
            return None if origin == LITERAL else (self.decisions.node_of[origin], origin)
        # The producer's own decision says where a result is made; the bundle then says where it is kept.
        return self.decisions.decision_of(node.producer), node.root

    def _arrivals(self, choices: list[Choices]) -> list[tuple[int, int, Floats]]:
        """From where tensors are made to where their bundles have them."""
        edges = []
        for number, node in enumerate(self.decisions.nodes):
            source = self._sources[number]
            if source is not None:
                where = choices[source[0]].tensor_placements[source[1]]
                table = self._table(node.root, where, choices[number].placements)
                if self.options.follow and node.followers:
                    # With `follow`, nothing but the reduction of partial sums may come between producer and followers.
                    same = [[a.dims == b.dims for b in choices[number].placements] for a in where]
                    table = np.where(same, table, np.inf)
                edges.append((source[0], number, table))
        return edges

    def _reads(self, choices: list[Choices]) -> list[tuple[int, int, Floats]]:
        """From where tensors lie to where other decisions want them."""
        edges = []
        for number, choice in enumerate(choices):
            for tensor, required in choice.wants:
                source = self.decisions.node_of[tensor]
                if not self.decisions.nodes[number].is_bundle:
                    # Heavy operators read from the relay where there is one; bundles read the tensor itself.
                    source = self.decisions.relays.get(tensor, source)
                edges.append((source, number, self._table(tensor, choices[source].tensor_placements[tensor], required)))
        return edges

    def _results(self, choices: list[Choices], costs: list[Floats]) -> list[tuple[int, int, Floats]]:
        """From where results lie to where the step has them: complete, or in the place of the argument they replace."""
        edges = []
        replaced = dict(self.graph.aliases)
        for position, tensor in enumerate(self.graph.outputs):
            if tensor == LITERAL:
                continue
            origin = self.decisions.origin[tensor]
            source = self.decisions.node_of[origin]
            where = choices[source].tensor_placements[origin]
            if position in replaced:
                target = self.decisions.node_of[self.graph.inputs[replaced[position]].tensor]
                table = self._table(origin, where, choices[target].placements)
                # One decision at both ends: its candidate is the row and the column, so only the diagonal can occur.
                if source == target:
                    costs[source] = costs[source] + table.diagonal()
                else:
                    edges.append((source, target, table))
            else:
                spec = self.graph.tensors[origin]
                sharing = self.decisions.sharing[origin]
                moves = [
                    # A result without an argument to replace must be complete at the end, whatever its placement.
                    self.catalogue.resharding_costs.seconds(spec, placement, placement.complete(), sharing)
                    for placement in where
                ]
                costs[source] = costs[source] + np.array(moves) * self._weights[origin]
        return edges

    def _table(self, tensor: int, sources: Sequence[Placement], targets: Sequence[Placement]) -> Floats:
        """Costs [sources, targets]. Layers that repeat come with the same objects, and get the same table."""
        # Placements by identity: equal layers share the tuples, and hashing a tuple of placements for each edge takes
        # longer. The entry holds both, so that their addresses stay theirs.
        key = self._costed_equally[tensor], id(sources), id(targets)
        found = self._tables.get(key)
        if found is None:
            spec, sharing = self.graph.tensors[tensor], self.decisions.sharing[tensor]
            table = self.catalogue.resharding_costs.table(spec, sources, targets, sharing) * self._weights[tensor]
            found = self._tables[key] = sources, targets, table
        return found[2]

    def _costs_of_tensors(self, late_communication: float) -> tuple[list[float], list[int]]:
        """For every tensor the weight of its transfers, with the unit, and a number: equal where transfers cost the same."""
        decisions, numbers = self.decisions, dict[Hashable, int]()
        weights = [
            self.scale * rounds * (late_communication if tensor in decisions.late_tensors else 1.0)
            for tensor, rounds in enumerate(decisions.rounds)
        ]
        tensors = zip(self.graph.tensors, weights, decisions.sharing, strict=True)
        return weights, [numbers.setdefault(entry, len(numbers)) for entry in tensors]


def check_fixed(graph: OperatorGraph, mesh: DeviceMatrix, fixed: Mapping[int, Placement]) -> None:
    """Raise unless every given placement fits its tensor and agrees with what the step itself demands.

    Raises:
        SporaxValueError: no such tensor, a sharding that does not divide it, parts, or an argument and the result that takes
            its place are given different placements.
    """
    for tensor, placement in fixed.items():
        if not 0 <= tensor < len(graph.tensors):
            raise SporaxValueError(
                f"For 'fixed', the tensor must be one of the {len(graph.tensors)} of the graph, but got {tensor}."
            )
        shape = graph.tensors[tensor].shape
        axes = placement.used
        if not axes <= set(mesh.device_axes) or not placement.fits(shape, mesh) or placement.partial:
            raise SporaxValueError(
                f"For 'fixed', the placement of tensor {tensor} must be complete and divide its shape {shape} on {mesh}, but "
                f"got {placement}."
            )
    for output, argument in graph.aliases:
        pair = fixed.get(graph.outputs[output]), fixed.get(graph.inputs[argument].tensor)
        if None not in pair and pair[0] != pair[1]:
            raise SporaxValueError(
                f"For 'fixed', result {output} replaces {graph.inputs[argument].name or f'input {argument}'} and must "
                f"have its placement, but got {pair[0]} and {pair[1]}."
            )


@dataclass(frozen=True, slots=True, repr=False)
class SearchResult:
    """A plan and what is known of it.

    Attributes:
        plan: what it has decided, as a plan of its own; propagation finishes it (`planner.planning`).
        method: which search found it.
        cost_seconds: predicted time of one step, by the finished plan where there is one.
        bound_seconds: no plan of the same search space is faster than this; None when nothing was proven.
        optimal: `cost_seconds` is the least of the search space.
        seconds: what the search took.
        statistics: sizes and counts.
        unit: of costs: seconds, or what another cost model counts in their place.
        options: the options of the search.
        request: what was requested from the planner; None for a search by itself, whose plan needs no finish.
    """

    plan: Plan
    method: str
    cost_seconds: float
    bound_seconds: float | None
    optimal: bool
    seconds: float
    statistics: Mapping[str, int | float | str] = field(default_factory=dict, hash=False)
    unit: str = "s"
    options: SearchOptions | None = field(default=None, repr=False, compare=False)
    request: PlanRequest | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        bound = "no bound" if self.bound_seconds is None else f"bound {self.bound_seconds:.6g} {self.unit}"
        return (
            f"SearchResult({self.method}: {self.cost_seconds:.6g} {self.unit}, {'optimal' if self.optimal else bound}, "
            f"searched {self.seconds:.3f} s)"
        )

    __repr__ = __str__
