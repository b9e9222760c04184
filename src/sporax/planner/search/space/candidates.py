"""The candidates of every decision, and the consequences of each candidate.

Problem: for each candidate of a bundle or of a heavy operator, find the sharding of all its operators, the placements
of its tensors, the placements it requires of other tensors, and the time of its own work, resharding inside the bundle
included.

Method: propagate the candidate through the operators of the decision. Layers repeat, so decisions with the same
structure are computed once and shared.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from sporax.base.identity import ByIdentity
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import LITERAL, Operator
from sporax.ir.operation import TensorSpec
from sporax.ir.placement import Placement, num_parts
from sporax.planner.cost.model import CostModel
from sporax.planner.rules import Assignment, Rule, placements, propagate
from sporax.planner.rules.loop_rules import CARRY, SUMMED
from sporax.planner.search.space import operator_rules
from sporax.planner.search.space.decisions import Decisions
from sporax.planner.search.space.resharding_cost import Floats, ReshardingCosts


class Step(NamedTuple):
    """How one operator is sharded, where its operands must be, where its results then are, and its time."""

    assignment: Assignment
    operands: tuple[Placement, ...]
    results: tuple[Placement, ...]
    seconds: float


Base = Placement | Assignment | None
"""What was decided before: a bundle's placement or a heavy operator's sharding."""


@dataclass(frozen=True, slots=True)
class Choices:
    """All candidates of one decision.

    Attributes:
        operators: numbers of its operators, followers before pulled ones.
        placements: for a bundle the placement of its root, per candidate; () for a heavy operator.
        seconds: [candidates] time of its operators and of moves among them.
        steps: per candidate, per operator.
        tensor_placements: for each tensor that its operators make (and its root), its placement, per candidate.
        wants: tensors of others that it reads, and the placement that it needs, per candidate.
    """

    operators: tuple[int, ...]
    placements: tuple[Placement, ...]
    seconds: Floats
    steps: tuple[tuple[Step, ...], ...]
    tensor_placements: dict[int, tuple[Placement, ...]]
    wants: tuple[tuple[int, tuple[Placement, ...]], ...]

    @property
    def count(self) -> int:
        """Number of candidates."""
        return len(self.seconds)

    def base(self, candidate: int) -> Base:
        """What the choice of a candidate decides, for a search that goes on from there."""
        return self.placements[candidate] if self.placements else self.steps[candidate][0].assignment


class _Member(NamedTuple):
    """An operator of a bundle with tensors numbered within the bundle; those of others are negative."""

    kind: int
    operands: tuple[int | None, ...]
    results: tuple[int, ...]


class _Structure(NamedTuple):
    """All of a bundle that its candidates depend on, but for where its root is made and what was decided before."""

    specs: tuple[TensorSpec, ...]
    followers: tuple[_Member, ...]
    pulled: tuple[_Member, ...]
    inside: frozenset[int]
    weights: tuple[float, ...]
    """Per tensor, how often it is made times what its direction counts: the factor on the time of its resharding."""
    sharing: tuple[int, ...]
    """Per tensor, how many share the starts of its collectives."""
    summed: bool
    """Rounds of a loop add to the root, which may be partial meanwhile."""


class _BundleInstance(NamedTuple):
    """A bundle's structure by number, and what its tensors and those of others are in the graph."""

    structure: int
    tensors: tuple[int, ...]
    others: tuple[int, ...]


class _BundleQuery(NamedTuple):
    """A structure with all that its candidates depend on."""

    structure: int
    root_placements: tuple[Placement, ...]
    fixed: Placement | None
    base: Base
    free: tuple[int, ...]


@dataclass(slots=True)
class _CandidateOutcome:
    """One candidate of a bundle."""

    seconds: float = 0.0
    steps: list[Step] = field(default_factory=list)
    tensor_placements: dict[int, Placement] = field(default_factory=dict)
    wants: list[tuple[int, Placement]] = field(default_factory=list)


class Catalogue:
    """Works out choices, and remembers them by shape.

    Args:
        kinds: of the operators that may be requested.
        units: the axes to hand out.
        busy: heavy operators must use all units where they can, unless they do no arithmetic.
        align: a sharding of one of the last two dimensions of a product's tensors must leave a multiple of this.
        follow: bundles may also keep the placement in which their root is made, whatever the units.
    """

    def __init__(
        self,
        kinds: operator_rules.Kinds,
        mesh: DeviceMatrix,
        model: CostModel,
        resharding_costs: ReshardingCosts,
        units: operator_rules.Units,
        busy: bool = False,
        align: int = 1,
        follow: bool = False,
    ) -> None:
        self.mesh, self.model, self.resharding_costs, self.units = mesh, model, resharding_costs, units
        self.busy, self.align, self.follow = busy, align, follow
        self.kinds = kinds
        self._rules = [operator_rules.rule_of(example) for example in kinds.examples]
        # Cost models may weigh the work of the backward pass differently.
        late = model.late_computing
        self._weights = [
            example.times * (late if is_late else 1.0)
            for example, is_late in zip(kinds.examples, kinds.late, strict=True)
        ]
        self._followed: dict[tuple[int, tuple[Placement | None, ...]], Step] = {}
        self._pulled: dict[tuple[int, Placement], Step] = {}
        self._steps: dict[tuple[int, Assignment], Step] = {}
        self._structures: dict[_Structure, int] = {}
        self._structure_list: list[_Structure] = []
        self._instances: dict[int, _BundleInstance] = {}
        self._bundles: dict[_BundleQuery, Choices] = {}
        self._seen: dict[tuple[int, ByIdentity, bool, Placement | None, Base, tuple[int, ...]], Choices] = {}
        """The same by the object that says where the root is made, which equal layers share: quick to look up."""
        self._operands: dict[int, list[int]] = {}
        self._heavy: dict[tuple[int, Base, Assignment | None], Choices] = {}

    def use_units(self, units: operator_rules.Units, resharding_costs: ReshardingCosts) -> None:
        """Continue with other units and costs of moves."""
        self.units, self.resharding_costs = units, resharding_costs
        # Candidates depend on the units, but rules and single steps do not, so only the former are forgotten.
        self._bundles.clear()
        self._seen.clear()
        self._heavy.clear()

    def rule(self, number: int) -> Rule:
        """The rule of an operator, by its number."""
        return self._rules[self.kinds.of[number]]

    # ----------------------------------------------------------------------------------------------- heavy operators

    def heavy(self, decisions: Decisions, number: int, base: Base = None, fixed: Assignment | None = None) -> Choices:
        """Choices of a heavy operator; the one that is given."""
        operator = decisions.graph.operators[number]
        kind = self.kinds.of[number]
        key = (kind, base, fixed)
        if key not in self._heavy:
            self._heavy[key] = self._enumerate_heavy(kind, base, fixed)
        shared = self._heavy[key]
        operands = self._operands.get(number)
        if operands is None:
            operands = self._operands[number] = decisions.operands(number)
        # A tensor that is read twice at the same place is required once; a dict keeps the order.
        wants = {(operands[position], where): None for position, where in shared.wants if operands[position] != LITERAL}
        tensor_placements = {operator.results[position]: where for position, where in shared.tensor_placements.items()}
        return Choices((number,), (), shared.seconds, shared.steps, tensor_placements, tuple(wants))

    def _enumerate_heavy(self, kind: int, base: Base, fixed: Assignment | None) -> Choices:
        operator, rule = self.kinds.examples[kind], self._rules[kind]
        assert not isinstance(base, Placement)
        # Two assignments with the same placements differ in nothing that others see: the faster one stays.
        best: dict[tuple[object, object], Step] = {}
        assignments = (
            self._possible_assignments(operator, rule, base)
            if fixed is None
            else [self._restricted_assignment(fixed, base)]
        )
        for assignment in assignments:
            step = self._step(kind, assignment)
            key = (step.operands, step.results)
            if key not in best or step.seconds < best[key].seconds:
                best[key] = step
        steps = list(best.values())
        return Choices(
            (-1,),
            (),
            np.array([step.seconds for step in steps]),
            tuple((step,) for step in steps),
            {position: tuple(step.results[position] for step in steps) for position in range(len(rule.results))},
            tuple(
                (position, tuple(step.operands[position] for step in steps)) for position in range(len(rule.operands))
            ),
        )

    def _restricted_assignment(self, fixed: Assignment, base: Assignment | None) -> Assignment:
        """What is given, along axes that have been handed out."""
        out = {*itertools.chain(*self.units), *itertools.chain(*base or ())}
        return tuple(tuple(axis for axis in axes if axis in out) for axes in fixed)

    def _possible_assignments(self, operator: Operator, rule: Rule, base: Assignment | None) -> list[Assignment]:
        """Shardings that leave aligned slices; with `busy` only those of most axes, for operators that do arithmetic."""
        # Slices that are no multiple of the tile waste most of a matrix unit; without any aligned sharding, the first one
        # must do.
        assignments = [*operator_rules.assignments_of(rule, self.mesh, self.units, base)]
        if operator.name == "dot_general" and self.align > 1:
            assignments = [
                sharding for sharding in assignments if self._is_aligned(rule, sharding, operator)
            ] or assignments[:1]
        if not self.busy or operator_rules.is_light(operator):
            return assignments
        # The most that any sharding uses is the measure: dimensions may not be divisible by all units.
        used = [sum(map(len, sharding)) for sharding in assignments]
        return [sharding for sharding, count in zip(assignments, used, strict=True) if count == max(used)]

    # Only the last two dimensions of a tensor are tiled by matrix units.
    def _is_aligned(self, rule: Rule, sharding: Assignment, operator: Operator) -> bool:
        """Whether every sharding of one of the last two dimensions of a tensor leaves a multiple of `align`."""
        specs = (*operator.operation.operands, *operator.operation.results)
        return all(
            not axes or size // num_parts(self.mesh, axes) % self.align == 0
            for spec, where in zip(specs, itertools.chain(*placements(rule, sharding)), strict=True)
            for size, axes in zip(spec.shape[-2:], where.dims[-2:], strict=True)
        )

    def _step(self, kind: int, assignment: Assignment) -> Step:
        step = self._steps.get((kind, assignment))
        if step is None:
            rule = self._rules[kind]
            operands, results = placements(rule, assignment)
            seconds = self.model.seconds(self.kinds.examples[kind].operation, rule, assignment, self.mesh)
            step = Step(assignment, operands, results, seconds * self._weights[kind])
            self._steps[kind, assignment] = step
        return step

    # ------------------------------------------------------------------------------------------------------- bundles

    def bundle(
        self,
        decisions: Decisions,
        number: int,
        root_placements: Sequence[Placement] = (),
        fixed: Placement | None = None,
        base: Base = None,
        free: tuple[int, ...] = (),
    ) -> Choices:
        """Choices of a bundle.

        Args:
            root_placements: where its root may be when it is made; partial sums and relays may stay there.
            fixed: the placement that its root must have.
            free: dimensions of the root that `fixed` leaves open.
        """
        node = decisions.nodes[number]
        instance = self._instances.get(number)
        if instance is None:
            instance = self._instances[number] = self._instance(decisions, number)
        key = instance.structure, ByIdentity(root_placements), node.is_relay, fixed, base, free
        shared = self._seen.get(key)
        if shared is None:
            # Partial results may stay partial: the reduction is then left to the readers.
            remaining = [entry for entry in root_placements if entry.partial or node.is_relay]
            remaining += [entry.complete() for entry in root_placements] if self.follow else []
            task = _BundleQuery(instance.structure, tuple(dict.fromkeys(remaining)), fixed, base, free)
            if task not in self._bundles:
                self._bundles[task] = self._enumerate_bundle(task)
            shared = self._seen[key] = self._bundles[task]
        return Choices(
            (*node.followers, *node.pulled),
            shared.placements,
            shared.seconds,
            shared.steps,
            {instance.tensors[place]: where for place, where in shared.tensor_placements.items()},
            tuple((instance.others[-1 - place], where) for place, where in shared.wants),
        )

    def _instance(self, decisions: Decisions, number: int) -> _BundleInstance:
        """The structure of a bundle, with tensors numbered within it, so that bundles that repeat are seen to."""
        node = decisions.nodes[number]
        local: dict[int, int] = {node.root: 0}
        outer: dict[int, int] = {}
        for entry in (*node.followers, *node.pulled):
            for tensor in decisions.graph.operators[entry].results:
                local[tensor] = len(local)
        structure = _Structure(
            tuple(decisions.graph.tensors[tensor] for tensor in local),
            tuple(self._member(decisions, number, follower, local, outer) for follower in node.followers),
            tuple(self._member(decisions, number, entry, local, outer) for entry in node.pulled),
            frozenset(place for tensor, place in local.items() if decisions.node_of[tensor] == number),
            tuple(
                decisions.rounds[tensor] * (self.model.late_communication if tensor in decisions.late_tensors else 1.0)
                for tensor in local
            ),
            tuple(decisions.sharing[tensor] for tensor in local),
            node.producer >= 0 and SUMMED in decisions.graph.operators[node.producer].operation.params,
        )
        number_of = self._structures.get(structure)
        if number_of is None:
            number_of = self._structures[structure] = len(self._structure_list)
            self._structure_list.append(structure)
        return _BundleInstance(number_of, tuple(local), tuple(outer))

    def _member(
        self, decisions: Decisions, number: int, follower: int, local: dict[int, int], outer: dict[int, int]
    ) -> _Member:
        operands: list[int | None] = []
        for tensor in decisions.operands(follower):
            if tensor == LITERAL:
                operands.append(None)
            elif decisions.node_of[tensor] == number:
                operands.append(local[tensor])
            else:
                # Numbers of others are negative, so that they cannot be mistaken for tensors of the bundle.
                operands.append(outer.setdefault(tensor, -1 - len(outer)))
        operator = decisions.graph.operators[follower]
        return _Member(self.kinds.of[follower], tuple(operands), tuple(local[result] for result in operator.results))

    def _enumerate_bundle(self, task: _BundleQuery) -> Choices:
        structure = self._structure_list[task.structure]
        candidates = self._candidates(task)
        outcomes = [self._outcome(structure, candidate) for candidate in candidates]
        wants: dict[tuple[int, tuple[Placement, ...]], None] = {}
        for rows in zip(*(outcome.wants for outcome in outcomes), strict=True):
            wants[rows[0][0], tuple(where for _, where in rows)] = None
        return Choices(
            (),
            tuple(candidates),
            np.array([outcome.seconds for outcome in outcomes]),
            tuple(tuple(outcome.steps) for outcome in outcomes),
            {
                place: tuple(outcome.tensor_placements[place] for outcome in outcomes)
                for place in outcomes[0].tensor_placements
            },
            tuple(wants),
        )

    def _candidates(self, task: _BundleQuery) -> list[Placement]:
        structure = self._structure_list[task.structure]
        assert task.base is None or isinstance(task.base, Placement)
        if task.fixed is not None:
            return self._opened(task.fixed, task.free, task.base, structure.specs[0])
        extended = operator_rules.placements_of(structure.specs[0].shape, self.mesh, self.units, task.base)
        extended = operator_rules.with_partial_sums(extended, self.units) if structure.summed else extended
        # As made, as long as that agrees with what earlier rounds decided.
        # Axes that are not handed out now were decided by earlier rounds and must stay as they were.
        decided = frozenset(self.mesh.device_axes).difference(*self.units)
        as_made = (
            entry
            for entry in task.root_placements
            if task.base is None or operator_rules.restricted(entry, decided) == task.base
        )
        return [*dict.fromkeys([*extended, *as_made])]

    def _opened(
        self, fixed: Placement, free: Sequence[int], base: Placement | None, spec: TensorSpec
    ) -> list[Placement]:
        """The given placement; with dimensions that it leaves open sharded in every way."""
        if not free:
            return [fixed]
        closed = Placement(tuple(() if dim in free else axes for dim, axes in enumerate(fixed.dims)))
        units = tuple(tuple(axis for axis in unit if axis not in closed.used) for unit in self.units)
        extended = operator_rules.placements_of(
            spec.shape, self.mesh, tuple(filter(None, units)), closed.opened(free, base)
        )
        closed_dims = [dim for dim in range(spec.num_dims) if dim not in free]
        return [entry for entry in extended if all(entry.dims[dim] == closed.dims[dim] for dim in closed_dims)]

    def _outcome(self, shape: _Structure, root: Placement) -> _CandidateOutcome:
        """Everything that follows when the root is at `root`."""
        outcome = _CandidateOutcome(tensor_placements={0: root})
        # One resharding serves all reads of a tensor at one placement, hence a dict and not a list.
        reads: dict[tuple[int, Placement], None] = {}
        required: dict[int, Placement] = {}

        def note(member: _Member, step: Step) -> None:
            outcome.seconds += step.seconds
            outcome.tensor_placements.update(zip(member.results, step.results, strict=True))
            for place, where in zip(member.operands, step.operands, strict=True):
                if place is not None and place in shape.inside:
                    reads[place, where] = None
                    # The first reader decides what a pulled operator makes; others pay a resharding from there.
                    required.setdefault(place, where)
                elif place is not None:
                    outcome.wants.append((place, where))

        for member in shape.followers:
            operands = tuple(
                # Operands from outside are not known here: they come from other decisions.
                outcome.tensor_placements.get(place) if place is not None and place in shape.inside else None
                for place in member.operands
            )
            step = self._follow(member.kind, operands)
            note(member, step)
            outcome.steps.append(step)
        upwards = []
        # In reverse: what an operator must make is known once its reader has been placed.
        for member in reversed(shape.pulled):
            step = self._pull(member.kind, required[member.results[0]])
            note(member, step)
            upwards.append(step)
        outcome.steps += reversed(upwards)
        # Reads inside the bundle cost what brings the tensor from its placement there to the one that is read.
        outcome.seconds += sum(
            shape.weights[place]
            * self.resharding_costs.seconds(
                shape.specs[place], outcome.tensor_placements[place], where, shape.sharing[place]
            )
            for place, where in reads
        )
        return outcome

    def _follow(self, kind: int, operands: tuple[Placement | None, ...]) -> Step:
        """The largest sharding that agrees with the operands that are known."""
        key = (kind, operands)
        step = self._followed.get(key)
        if step is None:
            ends_round = (
                self.kinds.examples[kind].name == CARRY
            )  # which has the placement of the round's start, wherever its end is made
            step = self._step(kind, propagate(self._rules[kind], self.mesh, operands[:1] if ends_round else operands))
            # A partial operand that the rule would complete: perhaps the operator may add the parts as they are.
            if any(where is not None and where.partial for where in operands) and not _agrees(step, operands):
                together = self._follow_partial(kind, operands)
                step = together if _agrees(together, operands) else step
            self._followed[key] = step
        return step

    def _follow_partial(self, kind: int, decided: tuple[Placement | None, ...]) -> Step:
        """As `_follow`, when the other operands of the same shape are partial, too: sums of parts."""
        operands = self.kinds.examples[kind].operation.operands
        partial = next(where for where in decided if where is not None and where.partial)
        filled = [
            partial if where is None and spec.num_dims == len(partial.dims) else where
            for spec, where in zip(operands, decided, strict=True)
        ]
        return self._step(kind, propagate(self._rules[kind], self.mesh, filled))

    def _pull(self, kind: int, required: Placement) -> Step:
        """The sharding that makes what is requested."""
        key = (kind, required)
        if key not in self._pulled:
            # Broadcasts and constants are recomputed on each device, so a partial sum is never requested from them.
            complete = required.complete()
            self._pulled[key] = self._step(kind, propagate(self._rules[kind], self.mesh, (), [complete]))
        return self._pulled[key]


def _agrees(step: Step, operands: Sequence[Placement | None]) -> bool:
    return all(where is None or where == there for where, there in zip(operands, step.operands, strict=True))
