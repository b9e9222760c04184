"""Loops that hold a forward pass, and the loops that hold its backward pass, as one program and as two again.

Problem. A loop over micro batches becomes two loops by differentiation, and what is kept in between is stacked. A pass that
sees the body of one loop alone does not see what the other one reads.

Method. Both bodies are joined to one program of one round: where the backward body reads what the forward body stacked, it
reads the value itself. After the pass, equations of the backward pass become the second body again. It reads what it needs of
the first: constants and rows of inputs as they are, everything else stacked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, JaxprEqn, Var

from sporax.lowering.jax_versions import scan_numbers, scan_params
from sporax.lowering.marks.tags import innermost_tag
from sporax.lowering.rewriter import Atom, JaxprRewriter, aval_of, flat, in_backward, runs_backward, stack_of, variables


class Entering(NamedTuple):
    """What an input of a joined body stands for.

    Attributes:
        atom: what the loop gets for it.
        is_row: whether the body gets one row of that, in the loop of the forward pass.
    """

    atom: Atom
    is_row: bool = False


AtomT = TypeVar("AtomT", Var, Atom)
Pass = Callable[[ClosedJaxpr, list[Entering]], ClosedJaxpr]


def with_pairs_rewritten(program: ClosedJaxpr, rewrite: Pass) -> ClosedJaxpr:
    """The same program, where `rewrite` has been applied to the joined body of every pair with a tag inside.

    Args:
        program: flat.
        rewrite: a pass over programs of a forward and a backward pass; it also gets what enters the loops, input by input.
    """
    writer = JaxprRewriter(program)
    writer.walk()
    for first, second in list(_pairs(writer.eqns)):
        pair = _Pair(writer.eqns[first], writer.eqns[second], _read_elsewhere(program, writer.eqns, second))
        writer.eqns[first], writer.eqns[second] = pair.split(rewrite(pair.joined(), pair.entering()))
    return writer.finish()


def _pairs(eqns: list[JaxprEqn]) -> Iterator[tuple[int, int]]:
    stacked: dict[Var, int] = {}
    readers: dict[int, set[int]] = {}
    for number, eqn in enumerate(eqns):
        if eqn.primitive.name != "scan":
            continue
        if runs_backward(eqn):
            for var in variables(_inputs(eqn)[2]):
                if var in stacked:
                    readers.setdefault(stacked[var], set()).add(number)
        elif any(innermost_tag(stack_of(inner)) is not None for inner in flat(eqn.params["jaxpr"]).jaxpr.eqns):
            # Only loops with a tag inside are worth the work.
            stacked.update(dict.fromkeys(eqn.outvars[scan_numbers(eqn.params)[1] :], number))
    for first, seconds in readers.items():
        # With two backward loops it is not clear which one computes a value again.
        if len(seconds) == 1 and eqns[min(seconds)].params["length"] == eqns[first].params["length"]:
            yield first, min(seconds)


def _inputs(eqn: JaxprEqn) -> tuple[list[Atom], list[Atom], list[Atom]]:
    """Constants, first carries, and what is read row by row."""
    return _three(eqn, eqn.invars)


def _three(eqn: JaxprEqn, values: Sequence[AtomT]) -> tuple[list[AtomT], list[AtomT], list[AtomT]]:
    consts, num_carry = scan_numbers(eqn.params)
    carries = consts + num_carry
    return list(values[:consts]), list(values[consts:carries]), list(values[carries:])


class _Pair:
    """A loop that holds a forward pass and the one that holds its backward pass.

    Args:
        forward, backward: the loops.
        elsewhere: what others than the second loop read: such stacks must still be made.
    """

    def __init__(self, forward: JaxprEqn, backward: JaxprEqn, elsewhere: Collection[Var]) -> None:
        self.forward, self.backward = forward, backward
        self.front, self.back = flat(forward.params["jaxpr"]), flat(backward.params["jaxpr"])
        self.num_consts, self.num_carry = scan_numbers(forward.params)
        outer = forward.outvars[self.num_carry :]
        # What the forward loop stacks, and the value of one round that goes into the stack.
        self.rows = dict(zip(outer, self.front.jaxpr.outvars[self.num_carry :], strict=True))
        self.stacks = [var for var in outer if var in elsewhere]
        pairs = zip(_inputs(backward)[2], _three(backward, self.back.jaxpr.invars)[2], strict=True)
        # Where the backward body reads such a row, it reads the value itself.
        self.names = {row: self.rows[var] for var, row in pairs if isinstance(var, Var) and var in self.rows}

    def entering(self) -> list[Entering]:
        """What enters the joined body."""
        first_row = self.num_consts + self.num_carry
        entering = [Entering(atom, position >= first_row) for position, atom in enumerate(self.forward.invars)]
        pairs = zip(self.backward.invars, self.back.jaxpr.invars, strict=True)
        return entering + [Entering(atom) for atom, var in pairs if var not in self.names]

    def joined(self) -> ClosedJaxpr:
        """One program of one round: forward equations, then backward ones that read values in place of rows."""
        writer = JaxprRewriter(self.front)
        writer.walk()
        writer.constants.update(zip(self.back.jaxpr.constvars, self.back.consts, strict=True))
        writer.names.update(self.names)
        for eqn in self.back.jaxpr.eqns:
            # Equations of a backward loop do not always say so themselves, since JAX names the loop.
            writer.keep(eqn, source_info=eqn.source_info if runs_backward(eqn) else in_backward(eqn))
        outvars = [
            *self.front.jaxpr.outvars[: self.num_carry],
            *(self.rows[var] for var in self.stacks),
            *map(writer.read, self.back.jaxpr.outvars),
        ]
        return writer.finish(
            outvars, [*self.front.jaxpr.invars, *(var for var in self.back.jaxpr.invars if var not in self.names)]
        )

    def split(self, after: ClosedJaxpr) -> tuple[JaxprEqn, JaxprEqn]:
        """Both loops again, of the joined body after a pass."""
        ours = [eqn for eqn in after.jaxpr.eqns if not runs_backward(eqn)]
        theirs = [eqn for eqn in after.jaxpr.eqns if runs_backward(eqn)]
        num_ours = self.num_carry + len(self.stacks)
        made, results = after.jaxpr.outvars[:num_ours], after.jaxpr.outvars[num_ours:]
        crossing = _crossing(self.front.jaxpr.invars, ours, theirs, results)
        consts, _, rows = (set(part) for part in _three(self.forward, self.front.jaxpr.invars))
        # What is neither a constant nor a row of an input has to be stacked.
        length = self.forward.params["length"]
        stacks = {var: _stack(var, length) for var in crossing if var not in consts and var not in rows}
        front = _program(self.front, self.front.jaxpr.invars, [*made, *stacks], ours)
        forward = self.forward.replace(
            outvars=[*self.forward.outvars[: self.num_carry], *self.stacks, *stacks.values()],
            params=scan_params(self.forward, front, self.num_consts, self.num_carry),
        )
        as_const = [var for var in crossing if var in consts]
        as_row = [var for var in crossing if var in rows]
        return forward, self._backward(as_const, as_row, stacks, results, theirs)

    def _backward(
        self,
        as_const: Sequence[Var],
        as_row: Sequence[Var],
        stacks: Mapping[Var, Var],
        results: Sequence[Atom],
        eqns: list[JaxprEqn],
    ) -> JaxprEqn:
        """The backward loop, which reads constants, rows and stacks of the forward loop."""
        outer_of = dict(zip(self.front.jaxpr.invars, self.forward.invars, strict=True))
        consts, carries, rows = _three(self.backward, self.back.jaxpr.invars)
        outer_consts, outer_carries, outer_rows = _inputs(self.backward)
        still = [number for number, var in enumerate(rows) if var not in self.names]
        inside = [*consts, *as_const, *carries, *(rows[number] for number in still), *as_row, *stacks]
        outside = [
            *outer_consts,
            *(outer_of[var] for var in as_const),
            *outer_carries,
            *(outer_rows[number] for number in still),
            *(outer_of[var] for var in as_row),
            *stacks.values(),
        ]
        back = _program(self.back, inside, results, eqns)
        num_consts = len(outer_consts) + len(as_const)
        return self.backward.replace(
            invars=outside, params=scan_params(self.backward, back, num_consts, len(outer_carries))
        )


def _program(body: ClosedJaxpr, invars: Sequence[Var], outvars: Sequence[Atom], eqns: list[JaxprEqn]) -> ClosedJaxpr:
    """A program with the constants of a body."""
    writer = JaxprRewriter(body)
    writer.eqns = eqns
    return writer.finish(outvars, invars)


def _crossing(inputs: list[Var], ours: list[JaxprEqn], theirs: list[JaxprEqn], results: Sequence[Atom]) -> list[Var]:
    """What the backward part reads of the forward part."""
    there = {*inputs, *(var for eqn in ours for var in eqn.outvars)}
    read = variables([*(var for eqn in theirs for var in eqn.invars), *results])
    return [var for var in dict.fromkeys(read) if var in there]


def _read_elsewhere(program: ClosedJaxpr, eqns: list[JaxprEqn], second: int) -> set[Var]:
    """What is read by others than the loop at `second`, or by that one not as rows."""
    consts, carries, _ = _inputs(eqns[second])
    read = [var for number, eqn in enumerate(eqns) if number != second for var in eqn.invars]
    return set(variables([*read, *program.jaxpr.outvars, *consts, *carries]))


def _stack(var: Var, length: int) -> Var:
    aval = aval_of(var)
    return Var(ShapedArray((length, *aval.shape), aval.dtype))
