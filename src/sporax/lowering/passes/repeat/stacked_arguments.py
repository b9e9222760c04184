"""Parameters of repeated blocks that a step takes and returns as one stack, with the updates of all blocks as one.

Problem. A loop over repeated blocks reads their Parameters from stacks. If a step takes each Parameter alone, it copies all of
them into stacks first, and its optimizer updates them one after another: the program grows with the number of blocks, and so
does the time to compile it.

Method. The variables that a loop stacks are a *group*: the program takes and returns their stack. The new values of a group are
looked at together, from the results back: `_Updates.together` takes one value per block and gives their stack. What is

    the same value for all blocks            is taken as it is
    rows of one stack, in order              is that stack
    variables of the step that stand alone   become a group of their own, as moments of an optimizer do
    results of equal pointwise operations    is the result of one operation on the stacks of the operands
    anything else                            is stacked

Values that no one reads any more are taken out. What else reads single variables of a group gets rows of its stack.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal, Var

from sporax.base.identity import ByIdentity
from sporax.ir.operation import with_newer
from sporax.lowering.passes.repeat.block_loops import MIN_BLOCKS, Key, Looped, Row, literal_key, stacked_aval, take_row
from sporax.lowering.passes.repeat.recomputed_values import Kind, comparable
from sporax.lowering.rewriter import Atom, JaxprRewriter, aval_of, needed, reading, variables

_POINTWISE = with_newer(
    [
        *("add", "sub", "mul", "div", "neg", "abs", "max", "min", "sign", "sqrt", "rsqrt", "cbrt", "square", "rem"),
        *("integer_pow", "pow", "exp", "exp2", "expm1", "log", "log1p", "tanh", "logistic", "sin", "cos", "erf"),
        *("eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not", "is_finite", "select_n", "clamp"),
        *("floor", "ceil", "round", "convert_element_type", "reduce_precision", "stop_gradient", "copy", "copy_p"),
        *("broadcast_in_dim", "reshape", "squeeze", "expand_dims", "transpose"),
        *("reduce_sum", "reduce_max", "reduce_min", "reduce_and", "reduce_or"),
    ]
)
"""Operations whose result for all blocks is one operation on stacks, at no other cost."""


@dataclass(frozen=True, slots=True)
class Stacked:
    """A program that takes groups of variables as stacks.

    Attributes:
        program: takes the stacks of the updated groups, the other updated variables, the stacks of the groups that are only
            read, the other variables that are read, data; returns stacks and variables in the order of the updated ones.
        updated: for each updated group the positions of its variables among the updated ones.
        read: for each other group the positions of its variables among those that are only read.
    """

    program: ClosedJaxpr
    updated: tuple[tuple[int, ...], ...]
    read: tuple[tuple[int, ...], ...]


def with_stacked_arguments(
    looped: Looped, num_updated: int, num_read: int, may_be_stacked: Callable[[int], bool]
) -> Stacked:
    """The program of groups.

    Args:
        looped: a step whose blocks have become loops; its first results are the new values of its first arguments.
        num_updated: how many variables it updates.
        num_read: how many variables it only reads; they come next.
        may_be_stacked: whether a variable, by its position, may be in a group.
    """
    return _Grouping(looped, num_updated, num_updated + num_read, may_be_stacked).run()


class _Grouping:
    """Makes groups, and writes what becomes of the program.

    Attributes:
        position: of each variable of the step.
        groups: the stacks that the program takes, by their variables.
        rows: values that are rows of stacks.
        before: written in front of the program's equations: what they read of groups.
        after: written behind them: updates of all blocks at once.
        stacked: by values their stack, as far as it is written.
        taken: variables of groups, taken from their stacks.
    """

    def __init__(
        self, looped: Looped, num_updated: int, num_variables: int, may_be_stacked: Callable[[int], bool]
    ) -> None:
        self.looped, self.may_be_stacked = looped, may_be_stacked
        self.num_updated, self.num_variables = num_updated, num_variables
        jaxpr = looped.program.jaxpr
        self.position: dict[Atom, int] = {var: number for number, var in enumerate(jaxpr.invars[:num_variables])}
        self.groups: dict[tuple[Atom, ...], Var] = {}
        self.rows: dict[Atom, Row] = dict(looped.rows)
        self.before, self.after = JaxprRewriter(looped.program), JaxprRewriter(looped.program)
        self.stacked: dict[tuple[Key, ...], Atom] = {}
        self.taken: dict[Var, Atom] = {}
        self.maker = {var: eqn for eqn in jaxpr.eqns for var in eqn.outvars}
        self.kinds: dict[ByIdentity, Kind] = {}

    def run(self) -> Stacked:
        # Large groups first: a variable can be in one stack only.
        for atoms in sorted(self.looped.stacks, key=lambda atoms: -len(atoms)):
            self.group(atoms)
        results = self.new_stacks()
        updated = [group for group in self.groups if self.is_updated(group)]
        read = [group for group in self.groups if not self.is_updated(group)]
        return Stacked(
            self.written(updated, read, results),
            tuple(tuple(self.position[var] for var in group) for group in updated),
            tuple(tuple(self.position[var] - self.num_updated for var in group) for group in read),
        )

    def new_stacks(self) -> dict[tuple[Atom, ...], Atom | None]:
        """The new value of each group that is updated."""
        outvars, results = self.looped.program.jaxpr.outvars, dict[tuple[Atom, ...], Atom | None]()
        # Moments of an optimizer become groups while the updates are looked at.
        while waiting := [group for group in self.groups if group not in results]:
            for group in waiting:  # looking at the results of one group may bring another one
                new_values = tuple(outvars[self.position[var]] for var in group) if self.is_updated(group) else ()
                results[group] = self.together(new_values) if new_values else None
        return results

    def written(
        self,
        updated: Sequence[tuple[Atom, ...]],
        read: Sequence[tuple[Atom, ...]],
        results: Mapping[tuple[Atom, ...], Atom | None],
    ) -> ClosedJaxpr:
        """The program of groups."""
        jaxpr = self.looped.program.jaxpr
        body = JaxprRewriter(self.looped.program)
        body.names = {stack: self.gathered(self.before, atoms) for atoms, stack in self.looped.stacks.items()}
        body.walk()
        first, second = jaxpr.invars[: self.num_updated], jaxpr.invars[self.num_updated : self.num_variables]
        outvars = [
            *(results[group] for group in updated),
            *(out for var, out in zip(first, jaxpr.outvars, strict=False) if not self.is_row(var)),
            *jaxpr.outvars[self.num_updated :],
        ]
        # Equations whose results are now part of an operation on stacks are no longer read.
        eqns = [reading(eqn, self.row_of) for eqn in needed([*body.eqns, *self.after.eqns], outvars)]
        outvars = list(map(self.row_of, outvars))
        # Rows are taken first, so that every equation can read them.
        body.eqns = needed([*self.before.eqns, *eqns], outvars)
        body.constants |= self.before.constants | self.after.constants
        invars = [
            *(self.groups[group] for group in updated),
            *(var for var in first if not self.is_row(var)),
            *(self.groups[group] for group in read),
            *(var for var in second if not self.is_row(var)),
            *jaxpr.invars[self.num_variables :],
        ]
        return body.finish(outvars, invars)

    def group(self, atoms: Sequence[Atom]) -> bool:
        """Make a group of variables, if these can be one."""
        if not self.may_be_group(atoms):
            return False
        stack = Var(stacked_aval(atoms))
        self.groups[tuple(atoms)] = stack
        self.rows.update((atom, Row(stack, number)) for number, atom in enumerate(atoms))
        return True

    def may_be_group(self, atoms: Sequence[Atom]) -> bool:
        """Whether these are variables of one type that no other group has, and that may be stacked."""
        if len(atoms) < MIN_BLOCKS or len({(aval.shape, aval.dtype) for aval in map(aval_of, atoms)}) > 1:
            return False
        found = variables(atoms)
        positions = [self.position[atom] for atom in found if atom in self.position and atom not in self.rows]
        return (
            len(set(positions)) == len(atoms)
            and all(map(self.may_be_stacked, positions))
            # A group is updated as a whole or not at all.
            and len({number < self.num_updated for number in positions}) == 1
        )

    def is_updated(self, group: tuple[Atom, ...]) -> bool:
        return self.position[group[0]] < self.num_updated

    def is_row(self, atom: Atom) -> bool:
        """Whether it is a variable of a group."""
        return isinstance(atom, Var) and atom in self.position and atom in self.rows

    def row_of(self, atom: Atom) -> Atom:
        """A variable of a group, taken from its stack; any other value as it is."""
        if isinstance(atom, Literal) or not self.is_row(atom):
            return atom
        if atom not in self.taken:
            self.taken[atom] = take_row(self.before, self.rows[atom])
        return self.taken[atom]

    def gathered(self, where: JaxprRewriter, atoms: tuple[Atom, ...]) -> Atom:
        """The values as a stack; rows that follow each other in a stack are taken together."""
        pieces = self.pieces(atoms)
        first = pieces[0]
        # The whole stack in its own order is the stack.
        if len(pieces) == 1 and first[2] == aval_of(first[0]).shape[0] and first[1] == 0:
            return first[0]
        # A backward pass takes the rows in reverse.
        if pieces == [(first[0], len(atoms) - 1 - number, 1) for number in range(len(atoms))]:
            return where.emit(lambda stack: [jax.lax.rev(jax.lax.slice_in_dim(stack, 0, len(atoms)), (0,))], first[0])[
                0
            ]

        def joined(*values: jax.Array) -> jax.Array:
            taken = [
                jnp.expand_dims(value, 0) if first < 0 else jax.lax.slice_in_dim(value, first, first + count)
                for value, (_, first, count) in zip(values, pieces, strict=True)
            ]
            return jax.lax.concatenate(taken, 0) if len(taken) > 1 else taken[0]

        return where.emit(joined, *(piece[0] for piece in pieces))[0]

    def pieces(self, atoms: Sequence[Atom]) -> list[tuple[Atom, int, int]]:
        """What a stack is made of: stack, first row, number of rows; or a value, -1, 1."""
        pieces: list[tuple[Atom, int, int]] = []
        for atom in atoms:
            row = self.rows.get(atom) if isinstance(atom, Var) else None
            if row is None:
                pieces.append((atom, -1, 1))
            elif pieces and pieces[-1][0] is row.stack and sum(pieces[-1][1:]) == row.index:
                pieces[-1] = (row.stack, pieces[-1][1], pieces[-1][2] + 1)
            else:
                pieces.append((row.stack, row.index, 1))
        return pieces

    def together(self, atoms: tuple[Atom, ...]) -> Atom:
        """The stack of these values, one per block."""
        key = tuple(map(literal_key, atoms))
        if key not in self.stacked:
            self.stacked[key] = self.stacked_together(atoms)
        return self.stacked[key]

    def stacked_together(self, atoms: tuple[Atom, ...]) -> Atom:
        # A group of its own, as the moments of all layers are.
        if self.group(atoms):
            return self.groups[atoms]
        makers = [self.maker[atom] for atom in variables(atoms) if atom in self.maker and atom not in self.rows]
        if len(makers) == len(atoms) and self.are_equal(makers):
            operands = list(zip(*(eqn.invars for eqn in makers), strict=True))
            axes = [None if len(set(map(literal_key, values))) == 1 else 0 for values in operands]
            # Where all operands are the same for all blocks, the results are equal, and stacking is all that is left.
            if 0 in axes:
                stacks = [
                    values[0] if axis is None else self.together(values)
                    for values, axis in zip(operands, axes, strict=True)
                ]
                return self.after.emit(_batched(makers[0], axes), *stacks)[0]
        return self.gathered(self.after, atoms)

    def are_equal(self, makers: Sequence[JaxprEqn]) -> bool:
        """Whether these equations are the same pointwise operation on the same shapes."""
        return str(makers[0].primitive.name) in _POINTWISE and len({self.kind_of(eqn) for eqn in makers}) == 1

    def kind_of(self, eqn: JaxprEqn) -> Kind:
        key = ByIdentity(eqn)
        kind = self.kinds.get(key)
        if kind is None:
            avals = tuple((aval.shape, aval.dtype) for aval in map(aval_of, (*eqn.invars, *eqn.outvars)))
            params = tuple((name, comparable(eqn.params[name])) for name in sorted(eqn.params))
            # Equations with effects equal none but themselves.
            place = eqn.ctx.compute_type or (key if eqn.effects else None)
            kind = self.kinds[key] = (str(eqn.primitive.name), avals, params, place)
        return kind


def _batched(eqn: JaxprEqn, axes: Sequence[int | None]) -> Callable[..., jax.Array]:
    """The operation of an equation on stacks, as a function with one result."""

    def operation(*values: jax.Array) -> jax.Array:
        return eqn.primitive.bind(*values, **eqn.params)

    return jax.vmap(operation, in_axes=tuple(axes))
