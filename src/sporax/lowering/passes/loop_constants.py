"""What a loop could make itself is made inside of it.

Problem: differentiation takes out of a loop what is the same in every round. Masks of attention are then arrays as large as the
scores, which are kept during the whole step, and nothing in the body says any more that they mask by position.

Method: what a scan reads and equations make of literals alone, element by element, is written into its body. XLA, too, leaves
such equations in loops.
"""

from __future__ import annotations

from collections.abc import Sequence

from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal, Var

from sporax.lowering.jax_versions import scan_numbers, scan_params
from sporax.lowering.rewriter import Atom, JaxprRewriter, bodies_of, variables
from sporax.planner.rules import entry_for

_MAKERS = ("1 elementwise", "2 dimensions", "9 creation")
"""Families of rules whose equations are written once more rather than kept."""


def with_own_constants(program: ClosedJaxpr) -> ClosedJaxpr:
    """The program with loops that make their constants; itself where there are none of these."""
    rewriter = _OwnConstants(program)
    written = rewriter.run()
    return written if rewriter.changed else program


class _OwnConstants(JaxprRewriter):
    def __init__(self, program: ClosedJaxpr) -> None:
        super().__init__(program)
        self.makers: dict[Var, JaxprEqn] = {}
        self.changed = False

    def visit(self, eqn: JaxprEqn) -> None:
        if self.makers.keys() >= {*variables(eqn.invars)} and _is_light(eqn):
            self.makers.update(dict.fromkeys(eqn.outvars, eqn))
        self.keep(self._with_own(eqn) if str(eqn.primitive.name) == "scan" else eqn)

    def finish(self, outvars: Sequence[Atom] | None = None, invars: Sequence[Var] | None = None) -> ClosedJaxpr:
        """Without what only loops have read."""
        needed, eqns = {*variables(self.program.jaxpr.outvars)}, list[JaxprEqn]()
        for eqn in reversed(self.eqns):
            if self.makers.keys().isdisjoint(eqn.outvars) or not needed.isdisjoint(eqn.outvars):
                needed.update(variables(eqn.invars))
                eqns.append(eqn)
        self.eqns = eqns[::-1]
        return super().finish(outvars, invars)

    def _with_own(self, eqn: JaxprEqn) -> JaxprEqn:
        """The loop, which makes what it can of its constants."""
        body, (num_consts, num_carry) = eqn.params["jaxpr"], scan_numbers(eqn.params)
        own = [
            place for place, atom in enumerate(eqn.invars[:num_consts]) if isinstance(atom, Var) and atom in self.makers
        ]
        if not own:
            return eqn
        self.changed = True
        inside, done = JaxprRewriter(body), dict[Atom, Atom]()
        for place in own:
            inside.rename([body.jaxpr.invars[place]], [self._made(eqn.invars[place], inside, done)])
        inside.walk()
        others = [place for place in range(len(eqn.invars)) if place not in own]
        smaller = inside.finish(invars=[body.jaxpr.invars[place] for place in others])
        params = scan_params(eqn, smaller, num_consts - len(own), num_carry)
        return eqn.replace(invars=[eqn.invars[place] for place in others], params=params)

    def _made(self, atom: Atom, inside: JaxprRewriter, done: dict[Atom, Atom]) -> Atom:
        """What a value is called inside, after its equations have been written there."""
        if isinstance(atom, Literal):
            return atom
        if atom not in done:
            maker = self.makers[atom]
            operands = [self._made(operand, inside, done) for operand in maker.invars]
            done.update(zip(maker.outvars, inside.write(maker, operands), strict=True))
        return done[atom]


def _is_light(eqn: JaxprEqn) -> bool:
    """Whether an equation, or all of a call, makes its results element by element."""
    if bodies := [*bodies_of(eqn)]:
        return str(eqn.primitive.name) in ("jit", "pjit") and all(
            _is_light(inner) for body in bodies for inner in body.eqns
        )
    return entry_for(str(eqn.primitive.name)).family in _MAKERS
