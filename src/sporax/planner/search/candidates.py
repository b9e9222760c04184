"""What every decision can choose, and what follows from each choice.

For each candidate of a bundle or heavy operator: the cut of all its operators, where its tensors lie, where it wants tensors of
others, and the time of its own work, moves inside the bundle included. Layers repeat, so decisions of one shape are worked
out once and shared.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import LITERAL, Operator
from sporax.ir.operation import TensorSpec
from sporax.ir.placement import Placement, num_parts
from sporax.planner.cost.model import CostModel
from sporax.planner.rules import Assignment, Rule, placements, propagate
from sporax.planner.rules.loops import CARRY, SUMMED
from sporax.planner.search.decisions import Bundles
from sporax.planner.search.operator_rules import Kinds, is_light, rule_of
from sporax.planner.search.resharding_cost import Floats, Mover
from sporax.planner.search.search_space import Units, cuts_of, in_parts, placements_of, restricted


class Step(NamedTuple):
    """How one operator is cut, where its operands must lie, where its results then lie, and its time."""

    assignment: Assignment
    operands: tuple[Placement, ...]
    results: tuple[Placement, ...]
    seconds: float


Base = Placement | Assignment | None
"""What was decided before: a bundle's placement or a heavy operator's cut."""


@dataclass(frozen=True, slots=True)
class Choices:
    """All candidates of one decision.

    Attributes:
        operators: numbers of its operators, followers before pulled ones.
        placements: for a bundle the placement of its root, per candidate; () for a heavy operator.
        seconds: [candidates] time of its operators and of moves among them.
        steps: per candidate, per operator.
        lies: for each tensor that its operators make (and its root), where it lies, per candidate.
        wants: tensors of others that it reads, and where it wants them, per candidate.
    """

    operators: tuple[int, ...]
    placements: tuple[Placement, ...]
    seconds: Floats
    steps: tuple[tuple[Step, ...], ...]
    lies: dict[int, tuple[Placement, ...]]
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
    """Of transfers of the tensors,"""
    sharing: tuple[int, ...]
    """and how many share their starts."""
    summed: bool
    """Rounds of a loop add to the root, which may be in parts meanwhile."""


class _Known(NamedTuple):
    """A bundle's structure by number, and what its tensors and those of others are in the graph."""

    structure: int
    tensors: tuple[int, ...]
    others: tuple[int, ...]


class _Task(NamedTuple):
    """A structure with all that its candidates depend on."""

    structure: int
    made: tuple[Placement, ...]
    given: Placement | None
    base: Base


@dataclass(slots=True)
class _Outcome:
    """One candidate of a bundle."""

    seconds: float = 0.0
    steps: list[Step] = field(default_factory=list)
    lies: dict[int, Placement] = field(default_factory=dict)
    wants: list[tuple[int, Placement]] = field(default_factory=list)


class Catalogue:
    """Works out choices, and remembers them by shape.

    Args:
        kinds: of the operators that may be asked for.
        mesh: the devices.
        model: prices operators.
        mover: prices moves.
        units: the axes to hand out.
        busy: heavy operators of arithmetic must use all units where they can.
        align: a cut of one of the last two dimensions of a product's tensors must leave a multiple of this.
        follow: bundles may also lie as whoever makes their root leaves it, whatever the units.
    """

    def __init__(
        self,
        kinds: Kinds,
        mesh: DeviceMatrix,
        model: CostModel,
        mover: Mover,
        units: Units,
        busy: bool = False,
        align: int = 1,
        follow: bool = False,
    ) -> None:
        self.mesh, self.model, self.mover, self.units = mesh, model, mover, units
        self.busy, self.align, self.follow = busy, align, follow
        self.kinds = kinds
        self._rules = [rule_of(each) for each in kinds.examples]
        late = model.late_computing
        self._weights = [
            each.times * (late if is_late else 1.0) for each, is_late in zip(kinds.examples, kinds.late, strict=True)
        ]
        self._followed: dict[tuple[int, tuple[Placement | None, ...]], Step] = {}
        self._pulled: dict[tuple[int, Placement], Step] = {}
        self._steps: dict[tuple[int, Assignment], Step] = {}
        self._structures: dict[_Structure, int] = {}
        self._structure_list: list[_Structure] = []
        self._bundles_seen: dict[int, _Known] = {}
        self._bundles: dict[_Task, Choices] = {}
        self._heavy: dict[tuple[int, Base, Assignment | None], Choices] = {}

    def hand_out(self, units: Units, mover: Mover) -> None:
        """Go on with other units and prices of moves."""
        self.units, self.mover = units, mover
        self._bundles.clear()
        self._heavy.clear()

    def rule(self, number: int) -> Rule:
        """The rule of an operator, by its number."""
        return self._rules[self.kinds.of[number]]

    # ----------------------------------------------------------------------------------------------- heavy operators

    def heavy(self, bundles: Bundles, number: int, base: Base = None, given: Assignment | None = None) -> Choices:
        """Choices of a heavy operator; the one that is given."""
        operator = bundles.graph.operators[number]
        kind = self.kinds.of[number]
        key = (kind, base, given)
        if key not in self._heavy:
            self._heavy[key] = self._work_out_heavy(kind, base, given)
        shared = self._heavy[key]
        operands = bundles.operands(number)
        wants = {(operands[position], where): None for position, where in shared.wants if operands[position] != LITERAL}
        lies = {operator.results[position]: where for position, where in shared.lies.items()}
        return Choices((number,), (), shared.seconds, shared.steps, lies, tuple(wants))

    def _work_out_heavy(self, kind: int, base: Base, given: Assignment | None) -> Choices:
        operator, rule = self.kinds.examples[kind], self._rules[kind]
        assert not isinstance(base, Placement)
        best: dict[tuple[object, object], Step] = {}
        cuts = self._possible_cuts(operator, rule, base) if given is None else [self._so_far(given, base)]
        for assignment in cuts:
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

    def _so_far(self, given: Assignment, base: Assignment | None) -> Assignment:
        """What is given, along axes that have been handed out."""
        out = {*itertools.chain(*self.units), *itertools.chain(*base or ())}
        return tuple(tuple(axis for axis in axes if axis in out) for axes in given)

    def _possible_cuts(self, operator: Operator, rule: Rule, base: Assignment | None) -> list[Assignment]:
        """Cuts that leave aligned slices; with `busy` only those of most axes, for operators that do arithmetic of their own."""
        cuts = [*cuts_of(rule, self.mesh, self.units, base)]
        if operator.name == "dot_general" and self.align > 1:
            cuts = [cut for cut in cuts if self._is_aligned(rule, cut, operator)] or cuts[:1]
        if not self.busy or is_light(operator):
            return cuts
        used = [sum(map(len, cut)) for cut in cuts]
        return [cut for cut, count in zip(cuts, used, strict=True) if count == max(used)]

    def _is_aligned(self, rule: Rule, cut: Assignment, operator: Operator) -> bool:
        """Whether every cut of one of the last two dimensions of a tensor leaves a multiple of `align`."""
        specs = (*operator.operation.operands, *operator.operation.results)
        return all(
            not axes or size // num_parts(self.mesh, axes) % self.align == 0
            for spec, where in zip(specs, itertools.chain(*placements(rule, cut)), strict=True)
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
        bundles: Bundles,
        number: int,
        made: Sequence[Placement] = (),
        given: Placement | None = None,
        base: Base = None,
    ) -> Choices:
        """Choices of a bundle.

        Args:
            bundles: all decisions.
            number: which of them.
            made: where its root may lie when it is made; parts may be left as they are, and a relay may leave it there.
            given: where its root must lie.
            base: what was decided before.
        """
        node = bundles.nodes[number]
        known = self._bundles_seen.get(number)
        if known is None:
            known = self._bundles_seen[number] = self._recognised(bundles, number)
        kept = [each for each in made if each.partial or node.is_relay]
        kept += [each.complete() for each in made] if self.follow else []
        task = _Task(known.structure, tuple(dict.fromkeys(kept)), given, base)
        shared = self._bundles.get(task)
        if shared is None:
            shared = self._bundles[task] = self._work_out_bundle(task)
        return Choices(
            (*node.followers, *node.pulled),
            shared.placements,
            shared.seconds,
            shared.steps,
            {known.tensors[place]: where for place, where in shared.lies.items()},
            tuple((known.others[-1 - place], where) for place, where in shared.wants),
        )

    def _recognised(self, bundles: Bundles, number: int) -> _Known:
        """The structure of a bundle, with tensors numbered within it, so that bundles that repeat are seen to."""
        node = bundles.nodes[number]
        local: dict[int, int] = {node.root: 0}
        outer: dict[int, int] = {}
        for each in (*node.followers, *node.pulled):
            for tensor in bundles.graph.operators[each].results:
                local[tensor] = len(local)
        structure = _Structure(
            tuple(bundles.graph.tensors[tensor] for tensor in local),
            tuple(self._member(bundles, number, each, local, outer) for each in node.followers),
            tuple(self._member(bundles, number, each, local, outer) for each in node.pulled),
            frozenset(place for tensor, place in local.items() if bundles.node_of[tensor] == number),
            tuple(
                bundles.rounds[tensor] * (self.model.late_communication if tensor in bundles.late_tensors else 1.0)
                for tensor in local
            ),
            tuple(bundles.sharing[tensor] for tensor in local),
            node.producer >= 0 and SUMMED in bundles.graph.operators[node.producer].operation.params,
        )
        found = self._structures.get(structure)
        if found is None:
            found = self._structures[structure] = len(self._structure_list)
            self._structure_list.append(structure)
        return _Known(found, tuple(local), tuple(outer))

    def _member(
        self, bundles: Bundles, number: int, follower: int, local: dict[int, int], outer: dict[int, int]
    ) -> _Member:
        operands: list[int | None] = []
        for tensor in bundles.operands(follower):
            if tensor == LITERAL:
                operands.append(None)
            elif bundles.node_of[tensor] == number:
                operands.append(local[tensor])
            else:
                operands.append(outer.setdefault(tensor, -1 - len(outer)))
        operator = bundles.graph.operators[follower]
        return _Member(
            self.kinds.of[follower],
            tuple(operands),
            tuple(local[each] for each in operator.results),
        )

    def _work_out_bundle(self, task: _Task) -> Choices:
        structure = self._structure_list[task.structure]
        candidates = self._candidates(task)
        outcomes = [self._outcome(structure, each) for each in candidates]
        wants: dict[tuple[int, tuple[Placement, ...]], None] = {}
        for rows in zip(*(outcome.wants for outcome in outcomes), strict=True):
            wants[rows[0][0], tuple(where for _, where in rows)] = None
        return Choices(
            (),
            tuple(candidates),
            np.array([outcome.seconds for outcome in outcomes]),
            tuple(tuple(outcome.steps) for outcome in outcomes),
            {place: tuple(outcome.lies[place] for outcome in outcomes) for place in outcomes[0].lies},
            tuple(wants),
        )

    def _candidates(self, task: _Task) -> list[Placement]:
        if task.given is not None:
            return [task.given]
        structure = self._structure_list[task.structure]
        assert task.base is None or isinstance(task.base, Placement)
        extended = placements_of(structure.specs[0].shape, self.mesh, self.units, task.base)
        extended = in_parts(extended, self.units) if structure.summed else extended
        decided = frozenset(self.mesh.device_axes).difference(*self.units)
        as_made = (each for each in task.made if task.base is None or restricted(each, decided) == task.base)
        return [*dict.fromkeys([*extended, *as_made])]

    def _outcome(self, shape: _Structure, root: Placement) -> _Outcome:
        """Everything that follows when the root lies at `root`."""
        found = _Outcome(lies={0: root})
        reads: dict[tuple[int, Placement], None] = {}
        wanted: dict[int, Placement] = {}

        def note(member: _Member, step: Step) -> None:
            found.seconds += step.seconds
            found.lies.update(zip(member.results, step.results, strict=True))
            for place, where in zip(member.operands, step.operands, strict=True):
                if place is not None and place in shape.inside:
                    reads[place, where] = None
                    wanted.setdefault(place, where)
                elif place is not None:
                    found.wants.append((place, where))

        for member in shape.followers:
            known = tuple(
                found.lies.get(place) if place is not None and place in shape.inside else None
                for place in member.operands
            )
            step = self._follow(member.kind, known)
            note(member, step)
            found.steps.append(step)
        upwards = []
        for member in reversed(shape.pulled):
            step = self._pull(member.kind, wanted[member.results[0]])
            note(member, step)
            upwards.append(step)
        found.steps += reversed(upwards)
        found.seconds += sum(
            shape.weights[place]
            * self.mover.seconds(shape.specs[place], found.lies[place], where, shape.sharing[place])
            for place, where in reads
        )
        return found

    def _follow(self, kind: int, known: tuple[Placement | None, ...]) -> Step:
        """The largest cut that agrees with the operands that are known."""
        key = (kind, known)
        step = self._followed.get(key)
        if step is None:
            ends_round = (
                self.kinds.examples[kind].name == CARRY
            )  # which lies as the round's start, wherever its end is made
            step = self._step(kind, propagate(self._rules[kind], self.mesh, known[:1] if ends_round else known))
            if any(where is not None and where.partial for where in known) and not _agrees(step, known):
                together = self._together(kind, known)
                step = together if _agrees(together, known) else step
            self._followed[key] = step
        return step

    def _together(self, kind: int, known: tuple[Placement | None, ...]) -> Step:
        """As `_follow`, when the other operands of the same shape are in parts, too: sums of parts."""
        operands = self.kinds.examples[kind].operation.operands
        parts = next(where for where in known if where is not None and where.partial)
        filled = [
            parts if where is None and spec.num_dims == len(parts.dims) else where
            for spec, where in zip(operands, known, strict=True)
        ]
        return self._step(kind, propagate(self._rules[kind], self.mesh, filled))

    def _pull(self, kind: int, wanted: Placement) -> Step:
        """The cut that makes what is wanted."""
        key = (kind, wanted)
        if key not in self._pulled:
            complete = wanted.complete()
            self._pulled[key] = self._step(kind, propagate(self._rules[kind], self.mesh, (), [complete]))
        return self._pulled[key]


def _agrees(step: Step, known: Sequence[Placement | None]) -> bool:
    return all(where is None or where == there for where, there in zip(known, step.operands, strict=True))
