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

With a plan, what enters may be kept in smaller slices: a mark cuts it before it is kept, and another one brings it back before
the copies read it.

Kept are: what comes from outside of tagged equations, what `KeptMark`s pass (results of recomputed Cells), results of
equations with effects, and what the caller names.

Reference: Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal, Var, new_jaxpr_eqn

from sporax.ir.graph import MARK
from sporax.ir.layout import Layout
from sporax.ir.marks import KeptMark, LayoutMark, WeightMark
from sporax.lowering.flat_program import barrier, closed_jaxpr, flat, is_backward, stack_of
from sporax.lowering.marks.mark_primitive import mark_p, next_number
from sporax.lowering.marks.tags import RecomputeTag, innermost_tag
from sporax.lowering.passes.recompute.draws import draws_that_wait
from sporax.lowering.passes.recompute.loop_pairs import Entering, with_pairs_rewritten
from sporax.lowering.passes.recompute.recompute_blocks import Chosen

_BODIES = ("jaxpr", "body_jaxpr", "branches")
"""Parameters of control flow whose bodies may hold a forward and a backward pass."""


@dataclass(frozen=True, slots=True)
class Recomputed:
    """What one recomputed call saves and costs.

    Attributes:
        stack: name stack of one of its equations.
        released: values that the backward pass would have read and now computes again.
        kept: values that are kept for that.
        again: the equations that run twice.
        path: of the Cell, where the planner chose it; None where the user's tag is in `stack`.
    """

    stack: str
    released: tuple[Var, ...]
    kept: tuple[Var, ...]
    again: tuple[JaxprEqn, ...]
    path: str | None = None


@dataclass(frozen=True, slots=True)
class Recomputation:
    """A program after the pass, and what the pass did."""

    program: ClosedJaxpr
    calls: tuple[Recomputed, ...] = ()


@dataclass(frozen=True, slots=True)
class PlanFacts:
    """What a plan of the program without recomputation says.

    Attributes:
        kept: values whose collectives should not be repeated.
        weights: names of the arguments that are kept in smaller shards than operators use.
        slices: for values that may be kept in smaller slices, these, and where they are otherwise.
        of_loop: gives the facts of a joined body of loops, given what enters it; None where they are not known.
    """

    kept: Collection[Var] = ()
    weights: Mapping[Var, str] = field(default_factory=dict)
    slices: Mapping[Var, tuple[Layout, Layout]] = field(default_factory=dict)
    of_loop: Callable[[ClosedJaxpr, list[Entering]], PlanFacts] | None = None


def recompute(program: ClosedJaxpr, facts: PlanFacts | None = None, chosen: Chosen | None = None) -> Recomputation:
    """The same program, whose backward pass computes again what tags allow.

    Args:
        program: flat (`flat.flat`).
        facts: what is known of its plan; None without plans.
        chosen: what is computed again next to what tags in name stacks say.
    """
    of_loops: list[Recomputed] = []

    def in_loop(joined: ClosedJaxpr, entering: list[Entering]) -> ClosedJaxpr:
        known = None if facts is None or facts.of_loop is None else facts.of_loop(joined, entering)
        inside = recompute(joined, known)
        of_loops.extend(inside.calls)
        return inside.program

    rewriter = _Rewriter(with_pairs_rewritten(program, in_loop), facts or PlanFacts(), chosen or Chosen())
    return Recomputation(rewriter.run(), (*rewriter.calls, *of_loops))


def without_kept_marks(program: ClosedJaxpr) -> ClosedJaxpr:
    """The same program, not recomputed: for a first plan. Its variables are those of `program`."""
    same: dict[Any, Any] = {}
    eqns: list[JaxprEqn] = []
    for eqn in program.jaxpr.eqns:
        invars = [same.get(var, var) if isinstance(var, Var) else var for var in eqn.invars]
        if eqn.primitive is mark_p and isinstance(eqn.params["mark"], KeptMark):
            same.update(zip(eqn.outvars, invars, strict=True))
        else:
            eqns.append(eqn.replace(invars=invars))
    jaxpr = program.jaxpr
    outvars = [same.get(var, var) if isinstance(var, Var) else var for var in jaxpr.outvars]
    return closed_jaxpr(jaxpr.constvars, program.consts, jaxpr.invars, outvars, eqns)


@dataclass(slots=True)
class _Rewriter:
    program: ClosedJaxpr
    facts: PlanFacts
    chosen: Chosen
    eqns: list[JaxprEqn] = field(default_factory=list)
    tags: list[RecomputeTag | None] = field(default_factory=list)
    producer: dict[Var, int] = field(default_factory=dict)
    same: dict[Var, Any] = field(default_factory=dict)
    kept: set[Var] = field(default_factory=set)
    requested: dict[int, dict[Var, None]] = field(default_factory=dict)
    copies: dict[Var, Var] = field(default_factory=dict)
    passed: dict[Var, Var] = field(default_factory=dict)
    last_reader: dict[Var, int] = field(default_factory=dict)
    returned: dict[tuple[int, Var], Var] = field(default_factory=dict)
    sliced: dict[Var, Var] = field(default_factory=dict)
    depths: dict[Var, int] = field(default_factory=dict)
    position: int = 0
    result: list[JaxprEqn] = field(default_factory=list)
    calls: list[Recomputed] = field(default_factory=list)

    def run(self) -> ClosedJaxpr:
        self._read()
        # By call, since a stretch of one call is treated as a unit.
        calls = [None if tag is None else tag.number for tag in self.tags]
        waits = {wait.begin: wait for wait in draws_that_wait(self.eqns, calls, self._may_run_again)}
        entered: dict[Var, Var] = {}
        end = 0
        for position, eqn in enumerate(self.eqns):
            self.position = position
            if position in waits:
                wait = waits[position]
                results, through = barrier([*wait.states, wait.late], eqn)
                self.result.append(through)
                entered, end = dict(zip([*wait.states, wait.late], results, strict=True)), wait.end
            if not is_backward(stack_of(eqn)):
                within = entered if position < end else {}
                # Only equations inside of the stretch read what passed the barrier.
                self.result.append(eqn.replace(invars=[_renamed(within, var) for var in eqn.invars]))
                self._cut(eqn)
                continue
            tag = innermost_tag(stack_of(eqn))
            number = 0 if tag is None else tag.number
            # Slices are gathered once, before the call's first equation, and not at its first missing value.
            if tag is not None and tag.recompute_slice_activation:
                self._start(number, eqn)
            for var in eqn.invars:
                if isinstance(var, Var) and self._may_run_again(var) and var not in self.copies:
                    self._write_again(self._tag(var), eqn)
            self.result.append(eqn.replace(invars=[self._read_in(number, var) for var in eqn.invars]))
            self._note_depth(eqn)
        jaxpr = self.program.jaxpr
        outvars = [self._same(var) for var in jaxpr.outvars]
        return closed_jaxpr(jaxpr.constvars, self.program.consts, jaxpr.invars, outvars, self.result)

    # ---------------------------------------------------------------------------------------------------- reading

    def _read(self) -> None:
        """Note producers, tags, and what is kept; leave out the marks that say so."""
        self.kept.update(self.facts.kept)
        for position, eqn in enumerate(self.program.jaxpr.eqns):
            eqn = eqn.replace(invars=[self._same(var) for var in eqn.invars])
            if eqn.primitive is mark_p and isinstance(eqn.params["mark"], KeptMark):
                self.same.update(zip(eqn.outvars, eqn.invars, strict=True))
                self._keep(var for var in eqn.invars if isinstance(var, Var))
                continue
            tag = innermost_tag(stack_of(eqn)) or self.chosen.tags.get(position)
            # Equations with effects must run once; those of the backward pass are no candidates.
            free = tag is None or tag.keep or bool(eqn.effects) or is_backward(stack_of(eqn))
            self.producer.update(dict.fromkeys(eqn.outvars, len(self.eqns)))
            self.eqns.append(_with_bodies(eqn))
            self.tags.append(None if free else tag)
        self._keep(map(self._same, self.chosen.kept))
        for position, eqn in enumerate(self.eqns):
            self.last_reader.update((var, position) for var in eqn.invars if isinstance(var, Var))
            if is_backward(stack_of(eqn)):
                # Noted for each call, so that all it owes is written at once.
                for var in eqn.invars:
                    if isinstance(var, Var) and self._may_run_again(var):
                        self.requested.setdefault(self._tag(var).number, {})[var] = None

    def _keep(self, variables: Any) -> None:
        """Keep values, and what they are called before marks that they passed."""
        for var in variables:
            if isinstance(var, Literal):
                continue
            # A kept value is kept under all names: a mark in between would otherwise run again.
            self.kept.add(var)
            maker = self.producer.get(var)
            if maker is not None and self.eqns[maker].primitive.name == MARK:
                eqn = self.eqns[maker]
                self._keep([eqn.invars[eqn.outvars.index(var)]])

    def _same(self, var: Any) -> Any:
        return _renamed(self.same, var)

    def _may_run_again(self, var: Any) -> bool:
        if isinstance(var, Literal) or var in self.kept:
            return False
        maker = self.producer.get(var)
        return maker is not None and self.tags[maker] is not None

    def _tag(self, var: Var) -> RecomputeTag:
        tag = self.tags[self.producer[var]]
        assert tag is not None
        return tag

    # ---------------------------------------------------------------------------------------------------- writing

    def _cut(self, eqn: JaxprEqn) -> None:
        """Cut results of an equation that are kept in smaller slices."""
        for var in eqn.outvars:
            # The slice is kept; the whole value is freed after its last reader in the forward pass.
            if var in self.facts.slices:
                self.sliced[var] = self._placed(var, self.facts.slices[var][0], eqn)

    def _placed(self, var: Var, layout: Layout, like: JaxprEqn) -> Var:
        """The same value, with the sharding that `layout` gives."""
        result = Var(var.aval)
        mark = {"mark": LayoutMark("recompute_slice_activation", next_number(), (layout,))}
        self.result.append(new_jaxpr_eqn([var], [result], mark_p, mark, frozenset(), like.source_info, like.ctx))
        return result

    def _start(self, number: int, reader: JaxprEqn) -> None:
        """Write all that a call owes to the backward pass before its first equation there."""
        missing = next((needed for needed in self.requested.get(number, {}) if needed not in self.copies), None)
        if missing is not None:
            self._write_again(self._tag(missing), reader)

    def _read_in(self, number: int, var: Any) -> Any:
        """What an equation of the backward pass of a call reads in place of `var`."""
        if isinstance(var, Literal):
            return var
        if var in self.passed:
            return self.passed[var]
        return self.copies.get(var, self.returned.get((number, var), var))

    def _write_again(self, tag: RecomputeTag, reader: JaxprEqn) -> None:
        """Write what leads to all values that the backward pass wants of one call."""
        requested = [item for item in self.requested[tag.number] if item not in self.copies]
        positions = self._leading_to(requested)
        entering: dict[Var, None] = {}
        for position in positions:
            for var in self.eqns[position].invars:
                if isinstance(var, Var) and (var in self.copies or not self._may_run_again(var)):
                    entering[var] = None
        again = self._gathered_again(tag, entering, reader)
        rest = [item for item in entering if item not in again]
        late = self._cotangent(reader)
        if rest:
            slices = self.sliced if tag.recompute_slice_activation else {}
            operands = [slices.get(item, self.copies.get(item, item)) for item in rest]
            results, through = barrier([*operands, *(self.passed.get(item, item) for item in late)], reader)
            self.result.append(through)
            again.update(zip(rest, results, strict=False))
            self.passed.update(zip(late, results[len(rest) :], strict=True))
            for item in rest:
                if item in slices:
                    again[item] = self._placed(again[item], self.facts.slices[item][1], reader)
                    self.returned[tag.number, item] = again[item]
        # Values of this call first, then copies that other calls have made.
        names = ChainMap(again, self.copies)
        for position in positions:
            eqn = self.eqns[position]
            invars = [_renamed(names, var) for var in eqn.invars]
            outvars = [Var(var.aval) for var in eqn.outvars]
            info = eqn.source_info.replace(name_stack=eqn.source_info.name_stack.transform("transpose"))
            self.result.append(eqn.replace(invars=invars, outvars=outvars, source_info=info))
            pairs = zip(eqn.outvars, outvars, strict=True)
            # Values that are kept need no copy: their readers have them.
            self.copies.update((item, copy) for item, copy in pairs if self._may_run_again(item))
        inputs = {*self.program.jaxpr.invars, *self.program.jaxpr.constvars}
        kept = tuple(item for item in entering if item not in inputs and not self._may_run_again(item))
        self.calls.append(
            Recomputed(
                stack_of(self.eqns[self.producer[requested[0]]]),
                tuple(requested),
                kept,
                tuple(self.eqns[item] for item in positions),
                self.chosen.paths.get(tag.number),
            )
        )

    def _leading_to(self, targets: list[Var]) -> list[int]:
        """Positions of the equations from kept values to these, in order."""
        # Stops at kept values and at copies that exist.
        positions: set[int] = set()
        open_ = list(targets)
        while open_:
            position = self.producer[open_.pop()]
            if position not in positions:
                positions.add(position)
                open_ += [
                    var
                    for var in self.eqns[position].invars
                    if isinstance(var, Var) and self._may_run_again(var) and var not in self.copies
                ]
        return sorted(positions)

    def _gathered_again(self, tag: RecomputeTag, entering: dict[Var, None], reader: JaxprEqn) -> dict[Var, Var]:
        """Copies of weights, from where optimizer parallelism keeps them."""
        late = self._cotangent(reader)
        if not tag.parallel_optimizer_comm_recompute or not late:
            return {}
        copies: dict[Var, Var] = {}
        for var in entering:
            if var in self.facts.weights:
                cotangent = self.passed.get(late[0], late[0])
                results = [Var(var.aval), Var(cotangent.aval)]
                mark = {"mark": WeightMark(self.facts.weights[var])}
                self.result.append(
                    new_jaxpr_eqn([var, cotangent], results, mark_p, mark, frozenset(), reader.source_info, reader.ctx)
                )
                copies[var] = results[0]
        return copies

    def _cotangent(self, reader: JaxprEqn) -> list[Var]:
        """A value of the backward pass that is there before `reader` runs and is read from then on, if there is one."""
        # Preferably what the reader itself reads: that is there when the reader runs.
        own = [var for var in reader.invars if isinstance(var, Var) and self.depths.get(var)]
        read = own or [var for var in self.depths if self.last_reader.get(var, -1) >= self.position]
        late = max(read, key=lambda candidate: self.depths[candidate], default=None)
        return [] if late is None else [late]

    def _note_depth(self, eqn: JaxprEqn) -> None:
        """Note how many equations of the backward pass lead to the results of one; zeros and other constants have none."""
        depth = max(
            (self.depths[invar] + 1 for invar in eqn.invars if isinstance(invar, Var) and invar in self.depths),
            default=0,
        )
        for var in eqn.outvars:
            aval: Any = var.aval
            # Only floats can be cotangents.
            if getattr(aval, "size", 0) and aval.dtype.kind in "fV":
                self.depths[var] = depth


def _renamed(names: Mapping[Var, Var], atom: Any) -> Any:
    return names.get(atom, atom) if isinstance(atom, Var) else atom


def _with_bodies(eqn: JaxprEqn) -> JaxprEqn:
    """The same equation; loops and branches that hold both passes are rewritten inside."""
    if is_backward(stack_of(eqn)):
        return eqn
    changed: dict[str, Any] = {}
    for name in _BODIES:
        body = eqn.params.get(name)
        bodies = body if isinstance(body, tuple | list) else (body,)
        if eqn.primitive.name in ("scan", "while", "cond") and all(isinstance(inner, ClosedJaxpr) for inner in bodies):
            rewritten = tuple(recompute(flat(inner)).program for inner in bodies)
            changed[name] = rewritten if isinstance(body, tuple | list) else rewritten[0]
    return eqn.replace(params={**eqn.params, **changed}) if changed else eqn
