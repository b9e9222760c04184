"""Recomputation: the backward pass computes again what the forward pass need not keep.

Problem. A value of the forward pass that the backward pass reads is kept in between. Which values are kept decides most of
the memory of a step.

Method. Tags (`tags`) say which equations of the forward pass may run again. The pass goes through the equations of the
backward pass in order. Where one reads a value that a tagged equation made, the equations that lead to this value from
values that are kept are written again before it, and it reads the copy. All that one call of a Cell owes to the backward pass
is written at once. What enters the copies, copies of other calls included, goes through one `optimization_barrier` together
with a cotangent: so the compiler neither finds out that it has the values already, nor computes them before the cotangent is
there. The rest of the backward pass reads the cotangent as it left the barrier: XLA takes what is not read out of barriers.

In the forward pass, random words wait for what enters their call (`draws`).

With a plan, what enters may be kept in smaller slices: a mark shards it before it is kept, and another one brings it back before
the copies read it.

Kept are: what comes from outside of tagged equations, what `SavedMark`s pass (results of recomputed Cells), results of
equations with effects, and what the caller names.

Reference: Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal, Var

from sporax.ir.graph import MARK
from sporax.ir.layout import Layout
from sporax.ir.marks import LayoutMark, SavedMark, WeightMark, next_number
from sporax.lowering.marks.mark_primitive import mark_p
from sporax.lowering.marks.tags import RecomputeTag, innermost_tag
from sporax.lowering.passes.recompute.draws import draws_that_wait
from sporax.lowering.passes.recompute.loop_pairs import Entering, with_pairs_rewritten
from sporax.lowering.passes.recompute.recompute_blocks import Chosen
from sporax.lowering.rewriter import (
    Atom,
    JaxprRewriter,
    aval_of,
    flat,
    in_backward,
    renamed,
    runs_backward,
    stack_of,
    variables,
    with_bodies,
)

CONTROL = ("scan", "while", "cond")
"""Operations whose bodies may hold a forward and a backward pass."""


@dataclass(frozen=True, slots=True)
class Recomputed:
    """What one recomputed call saves and costs.

    Attributes:
        stack: name stack of one of its equations.
        released: values that the backward pass would have read and now computes again.
        saved: values that are kept for that.
        again: the equations that run twice.
        path: of the Cell, where the planner chose it; None where the user's tag is in `stack`.
    """

    stack: str
    released: tuple[Var, ...]
    saved: tuple[Var, ...]
    again: tuple[JaxprEqn, ...]
    path: str | None = None


@dataclass(frozen=True, slots=True)
class PlanFacts:
    """What a plan of the program without recomputation says.

    Attributes:
        saved: values whose collectives should not be repeated.
        weights: names of the arguments that are kept in smaller shards than operators use.
        slices: for values that may be kept in smaller slices, these, and where they are otherwise.
        of_loop: gives the facts of a joined body of loops, given what enters it; None where they are not known.
    """

    saved: Collection[Var] = ()
    weights: Mapping[Var, str] = field(default_factory=dict)
    slices: Mapping[Var, tuple[Layout, Layout]] = field(default_factory=dict)
    of_loop: Callable[[ClosedJaxpr, list[Entering]], PlanFacts] | None = None


def recompute(
    program: ClosedJaxpr, facts: PlanFacts | None = None, chosen: Chosen | None = None
) -> tuple[ClosedJaxpr, tuple[Recomputed, ...]]:
    """The same program, whose backward pass computes again what tags allow, and what it computes again.

    Args:
        program: flat (`rewriter.flat`).
        facts: what is known of its plan; None without plans.
        chosen: what is computed again next to what tags in name stacks say.
    """
    of_loops: list[Recomputed] = []

    def in_loop(joined: ClosedJaxpr, entering: list[Entering]) -> ClosedJaxpr:
        known = None if facts is None or facts.of_loop is None else facts.of_loop(joined, entering)
        inside, calls = recompute(joined, known)
        of_loops.extend(calls)
        return inside

    tagged = _Tagged(with_pairs_rewritten(program, in_loop), facts or PlanFacts(), chosen or Chosen())
    recomputer = _Recomputer(tagged)
    return recomputer.run(), (*recomputer.calls, *of_loops)


def without_saved_marks(program: ClosedJaxpr) -> ClosedJaxpr:
    """The same program, not recomputed, nor inside of loops: for a first plan. Its variables are those of `program`."""
    return _Plain(program).run()


def _is_saved_mark(eqn: JaxprEqn) -> bool:
    return eqn.primitive is mark_p and isinstance(eqn.params["mark"], SavedMark)


class _WithoutSavedMarks(JaxprRewriter):
    def visit(self, eqn: JaxprEqn) -> None:
        if _is_saved_mark(eqn):
            self.rename(eqn.outvars, map(self.read, eqn.invars))
        else:
            self.keep(eqn)


class _Plain(_WithoutSavedMarks):
    def visit(self, eqn: JaxprEqn) -> None:
        super().visit(with_bodies(eqn, without_saved_marks) if eqn.primitive.name in CONTROL else eqn)


class _Tagged(_WithoutSavedMarks):
    """The program without the marks of values that are stored, and what may be computed again in it.

    Attributes:
        tags: of each equation that may run again; None for the others.
        producer: position of the equation that makes a value.
        stored: values that are not computed again.
        requested: by number of a call the values that the backward pass wants of it.
        last_reader: position of the last equation that reads a value.
    """

    def __init__(self, program: ClosedJaxpr, facts: PlanFacts, chosen: Chosen) -> None:
        super().__init__(program)
        self.facts, self.chosen = facts, chosen
        self.tags: list[RecomputeTag | None] = []
        self.producer: dict[Var, int] = {}
        self.stored: set[Var] = set(facts.saved)
        self.requested: dict[int, dict[Var, None]] = {}
        self.last_reader: dict[Var, int] = {}
        self._position = 0
        self.walk()
        self._store(map(self.read, chosen.saved))
        self._note_readers()

    def visit(self, eqn: JaxprEqn) -> None:
        super().visit(eqn)
        if _is_saved_mark(eqn):
            self._store(map(self.read, eqn.invars))
        else:
            tag = innermost_tag(stack_of(eqn)) or self.chosen.tags.get(self._position)
            # Equations with effects must run once; those of the backward pass are no candidates.
            once = tag is None or tag.keep or bool(eqn.effects) or runs_backward(eqn)
            self.producer.update(dict.fromkeys(eqn.outvars, len(self.tags)))
            self.tags.append(None if once else tag)
            self.eqns[-1] = _recomputed_inside(self.eqns[-1])
        self._position += 1

    def _store(self, atoms: Iterable[Atom]) -> None:
        """Store values, and what they are called before marks that they passed."""
        for var in variables(atoms):
            # Under all names: a mark in between would otherwise run again.
            self.stored.add(var)
            maker = self.producer.get(var)
            if maker is not None and self.eqns[maker].primitive.name == MARK:
                eqn = self.eqns[maker]
                self._store([eqn.invars[eqn.outvars.index(var)]])

    def _note_readers(self) -> None:
        for position, eqn in enumerate(self.eqns):
            read = variables(eqn.invars)
            self.last_reader.update(dict.fromkeys(read, position))
            # Noted for each call, so that all it owes is written at once.
            for var in read if runs_backward(eqn) else ():
                if self.may_run_again(var):
                    self.requested.setdefault(self.tag(var).number, {})[var] = None

    def may_run_again(self, var: Atom) -> bool:
        """Whether a value may be computed again."""
        if isinstance(var, Literal) or var in self.stored:
            return False
        maker = self.producer.get(var)
        return maker is not None and self.tags[maker] is not None

    def tag(self, var: Var) -> RecomputeTag:
        """The tag of what makes a value that may be computed again."""
        tag = self.tags[self.producer[var]]
        assert tag is not None
        return tag


class _Recomputer(JaxprRewriter):
    """Writes the program with its copies.

    Attributes:
        calls: what was written again.
        copies: values of the forward pass, computed again.
        passed: cotangents, as they left a barrier.
        sliced: values of the forward pass, in the slices in which they are stored.
        returned: by call and value what slices became again.
        depths: how many equations of the backward pass lead to a value.
    """

    def __init__(self, tagged: _Tagged) -> None:
        super().__init__(tagged.finish())
        self.tagged, self.facts = tagged, tagged.facts
        self.calls: list[Recomputed] = []
        self.copies: dict[Var, Var] = {}
        self.passed: dict[Var, Var] = {}
        self.sliced: dict[Var, Var] = {}
        self.returned: dict[tuple[int, Var], Var] = {}
        self.depths: dict[Var, int] = {}
        # By call, since a stretch of one call is treated as a unit.
        calls = [None if tag is None else tag.number for tag in tagged.tags]
        waits = draws_that_wait(self.program.jaxpr.eqns, calls, tagged.may_run_again)
        self._waits = {wait.begin: wait for wait in waits}
        self._wait_end = 0
        self._position = 0

    def run(self) -> ClosedJaxpr:
        self.walk()
        # Results are values of the forward pass, or of the backward pass under their own names.
        return self.finish(self.program.jaxpr.outvars)

    def visit(self, eqn: JaxprEqn) -> None:
        if self._position in self._waits:
            wait = self._waits[self._position]
            waiting = [*wait.states, wait.late]
            self.names = dict(zip(waiting, self.barrier(waiting, eqn), strict=True))
            self._wait_end = wait.end
        # Only equations inside of the stretch read what passed the barrier.
        elif self._position >= self._wait_end:
            self.names = {}
        if runs_backward(eqn):
            self._backward(eqn)
        else:
            self.keep(eqn)
            self._slice(eqn)
        self._position += 1

    # ------------------------------------------------------------------------------------------------ forward pass

    def _slice(self, eqn: JaxprEqn) -> None:
        """Shard further those results of an equation that are stored in smaller slices."""
        for var in eqn.outvars:
            # The slice is stored; the whole value is freed after its last reader in the forward pass.
            if var in self.facts.slices:
                self.sliced[var] = self._placed(var, self.facts.slices[var][0], eqn)

    def _placed(self, var: Var, layout: Layout, like: JaxprEqn) -> Var:
        """The same value, with the sharding that `layout` gives."""
        mark = LayoutMark("recompute_slice_activation", next_number(), (layout,))
        (result,) = self.identity(mark_p, [var], like, mark=mark)
        return result

    # ----------------------------------------------------------------------------------------------- backward pass

    def _backward(self, eqn: JaxprEqn) -> None:
        tag = innermost_tag(stack_of(eqn))
        number = 0 if tag is None else tag.number
        # Slices are gathered once, before the call's first equation, and not at its first missing value.
        wanted: Iterable[Var] = variables(eqn.invars)
        if tag is not None and tag.recompute_slice_activation:
            wanted = chain(self.tagged.requested.get(number, ()), wanted)
        for var in wanted:
            if self.tagged.may_run_again(var) and var not in self.copies:
                self._write_again(self.tagged.tag(var), eqn)
        self.keep(eqn, invars=[self._read_in(number, var) for var in eqn.invars])
        self._note_depth(eqn)

    def _read_in(self, number: int, var: Atom) -> Atom:
        """What an equation of the backward pass of a call reads in place of `var`."""
        if isinstance(var, Literal):
            return var
        if var in self.passed:
            return self.passed[var]
        return self.copies.get(var, self.returned.get((number, var), var))

    def _write_again(self, tag: RecomputeTag, reader: JaxprEqn) -> None:
        """Write what leads to all values that the backward pass wants of one call."""
        tagged, eqns = self.tagged, self.program.jaxpr.eqns
        requested = [item for item in tagged.requested[tag.number] if item not in self.copies]
        positions = self._leading_to(requested)
        entering = list(
            dict.fromkeys(var for position in positions for var in eqns[position].invars if self._enters(var))
        )
        again = self._gathered_again(tag, entering, reader)
        again.update(self._delayed(tag, [item for item in entering if item not in again], reader))
        # Values of this call first, then copies that other calls have made.
        names = ChainMap(again, self.copies)
        for position in positions:
            eqn = eqns[position]
            copies = self.write(eqn, [renamed(names, var) for var in eqn.invars], source_info=in_backward(eqn))
            # Values that are stored need no copy: their readers have them.
            pairs = zip(eqn.outvars, copies, strict=True)
            self.copies.update((item, copy) for item, copy in pairs if tagged.may_run_again(item))
        self._note_call(tag, requested, entering, [eqns[position] for position in positions])

    def _note_call(
        self, tag: RecomputeTag, requested: Sequence[Var], entering: Sequence[Var], again: Sequence[JaxprEqn]
    ) -> None:
        stack = stack_of(self.program.jaxpr.eqns[self.tagged.producer[requested[0]]])
        inputs = {*self.program.jaxpr.invars, *self.program.jaxpr.constvars}
        stored = tuple(item for item in entering if item not in inputs and not self.tagged.may_run_again(item))
        path = self.tagged.chosen.paths.get(tag.number)
        self.calls.append(Recomputed(stack, tuple(requested), stored, tuple(again), path))

    def _enters(self, var: Atom) -> bool:
        """Whether a value is there when a call is computed again."""
        return isinstance(var, Var) and (var in self.copies or not self.tagged.may_run_again(var))

    def _leading_to(self, targets: list[Var]) -> list[int]:
        """Positions of the equations from what is there to these values, in order."""
        positions: set[int] = set()
        open_ = list(targets)
        while open_:
            position = self.tagged.producer[open_.pop()]
            if position not in positions:
                positions.add(position)
                read = variables(self.program.jaxpr.eqns[position].invars)
                open_ += [var for var in read if not self._enters(var)]
        return sorted(positions)

    def _delayed(self, tag: RecomputeTag, entering: Sequence[Var], reader: JaxprEqn) -> dict[Var, Var]:
        """What enters a call, behind a barrier that waits for a cotangent."""
        if not entering:
            return {}
        slices = self.sliced if tag.recompute_slice_activation else {}
        operands = [slices.get(item, self.copies.get(item, item)) for item in entering]
        late = self._cotangent(reader)
        results = self.barrier([*operands, *(self.passed.get(item, item) for item in late)], reader)
        self.passed.update(zip(late, results[len(entering) :], strict=True))
        delayed = dict(zip(entering, results, strict=False))
        for item in entering:
            if item in slices:
                delayed[item] = self._placed(delayed[item], self.facts.slices[item][1], reader)
                self.returned[tag.number, item] = delayed[item]
        return delayed

    def _gathered_again(self, tag: RecomputeTag, entering: Sequence[Var], reader: JaxprEqn) -> dict[Var, Var]:
        """Copies of weights, from where optimizer parallelism stores them."""
        late = self._cotangent(reader)
        if not tag.parallel_optimizer_comm_recompute or not late:
            return {}
        copies: dict[Var, Var] = {}
        for var in entering:
            if var in self.facts.weights:
                cotangent = self.passed.get(late[0], late[0])
                mark = WeightMark(self.facts.weights[var])
                copies[var], _ = self.identity(mark_p, [var, cotangent], reader, mark=mark)
        return copies

    def _cotangent(self, reader: JaxprEqn) -> list[Var]:
        """A value of the backward pass that is there before `reader` runs and is read from then on, if there is one."""
        # Preferably what the reader itself reads: that is there when the reader runs.
        own = [var for var in variables(reader.invars) if self.depths.get(var)]
        last_reader = self.tagged.last_reader
        read = own or [var for var in self.depths if last_reader.get(var, -1) >= self._position]
        late = max(read, key=lambda candidate: self.depths[candidate], default=None)
        return [] if late is None else [late]

    def _note_depth(self, eqn: JaxprEqn) -> None:
        """Note how many equations of the backward pass lead to the results of one; zeros and other constants have none."""
        depth = max((self.depths[var] + 1 for var in variables(eqn.invars) if var in self.depths), default=0)
        for var in eqn.outvars:
            aval = aval_of(var)
            # Only floats can be cotangents.
            if getattr(aval, "size", 0) and aval.dtype.kind in "fV":
                self.depths[var] = depth


def _recomputed_inside(eqn: JaxprEqn) -> JaxprEqn:
    """The same equation; loops and branches that hold both passes are rewritten inside."""
    if runs_backward(eqn) or str(eqn.primitive.name) not in CONTROL:
        return eqn
    condition = eqn.params.get("cond_jaxpr")
    return with_bodies(eqn, lambda body: body if body is condition else recompute(flat(body))[0])
