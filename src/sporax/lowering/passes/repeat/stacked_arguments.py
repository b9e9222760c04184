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
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal, Var

from sporax.base.identity import ByIdentity
from sporax.ir.newer_primitives import with_newer
from sporax.lowering.flat_program import closed_jaxpr, equations_of
from sporax.lowering.passes.repeat.block_loops import MIN_BLOCKS, Looped, Row, literal_key, row_equations, stacked_aval
from sporax.lowering.passes.repeat.isomorphism import comparable

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
    return _Writer(looped, num_updated, num_updated + num_read, may_be_stacked).run()


@dataclass(slots=True)
class _Writer:
    looped: Looped
    num_updated: int
    num_variables: int
    may_be_stacked: Callable[[int], bool]
    position: dict[Any, int] = field(default_factory=dict)  # of each variable of the step
    groups: dict[tuple[Var, ...], Var] = field(default_factory=dict)  # stacks that the program takes
    rows: dict[Var, Row] = field(default_factory=dict)
    constants: dict[Var, Any] = field(default_factory=dict)
    before: list[JaxprEqn] = field(default_factory=list)
    after: list[JaxprEqn] = field(default_factory=list)
    memo: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    maker: dict[Var, JaxprEqn] = field(default_factory=dict)
    likeness: dict[ByIdentity, Any] = field(default_factory=dict)

    def run(self) -> Stacked:
        program = self.looped.program
        jaxpr = program.jaxpr
        self.position = {var: number for number, var in enumerate(jaxpr.invars[: self.num_variables])}
        self.maker = {var: eqn for eqn in jaxpr.eqns for var in eqn.outvars}
        self.rows.update(self.looped.rows)
        # Large groups first: a variable can be in one stack only.
        for atoms in sorted(self.looped.stacks, key=lambda atoms: -len(atoms)):
            self.group(atoms)
        outvars = list(jaxpr.outvars)
        results: dict[tuple[Var, ...], Any] = {}
        # Moments of an optimizer become groups while the updates are looked at.
        while waiting := [group for group in self.groups if group not in results]:
            for group in waiting:  # looking at the results of one group may bring another one
                new_values = tuple(outvars[self.position[var]] for var in group) if self.is_updated(group) else ()
                results[group] = self.together(new_values) if new_values else None
        replaced = {stack: self.stack_before(atoms) for atoms, stack in self.looped.stacks.items()}
        updated = [group for group in self.groups if self.is_updated(group)]
        read = [group for group in self.groups if not self.is_updated(group)]
        grouped = {var for group in self.groups for var in group}
        first, second = jaxpr.invars[: self.num_updated], jaxpr.invars[self.num_updated : self.num_variables]
        invars = [
            *(self.groups[group] for group in updated),
            *(var for var in first if var not in grouped),
            *(self.groups[group] for group in read),
            *(var for var in second if var not in grouped),
            *jaxpr.invars[self.num_variables :],
        ]
        outvars = [
            *(results[group] for group in updated),
            *(out for var, out in zip(first, outvars, strict=False) if var not in grouped),
            *outvars[self.num_updated :],
        ]
        body = [_with(eqn, replaced) for eqn in jaxpr.eqns]
        # Equations whose results are now part of an operation on stacks are no longer read.
        eqns = _needed([*body, *self.after], outvars)
        eqns = [
            _with(eqn, {var: self.row_of(var) for var in eqn.invars if isinstance(var, Var) and self.is_row(var)})
            for eqn in eqns
        ]
        # Rows are taken first, so that every equation can read them.
        outvars = [self.row_of(var) if self.is_row(var) else var for var in outvars]
        eqns = _needed([*self.before, *eqns], outvars)
        consts = dict(zip(jaxpr.constvars, program.consts, strict=True)) | self.constants
        final = closed_jaxpr(list(consts), list(consts.values()), invars, outvars, eqns)
        return Stacked(
            final,
            tuple(tuple(self.position[var] for var in group) for group in updated),
            tuple(tuple(self.position[var] - self.num_updated for var in group) for group in read),
        )

    # ---------------------------------------------------------------------------------------------------- groups

    def group(self, atoms: Sequence[Any]) -> bool:
        """Make a group of variables, if these can be one."""
        positions = [self.position.get(atom) if isinstance(atom, Var) else None for atom in atoms]
        # A group is updated as a whole or not at all.
        kinds = {number is not None and number < self.num_updated for number in positions}
        if (
            len(atoms) < MIN_BLOCKS
            or len(kinds) > 1
            or len(set(positions)) < len(positions)
            or any(number is None or not self.may_be_stacked(number) for number in positions)
            or any(atom in self.rows for atom in atoms)
            or len({(atom.aval.shape, atom.aval.dtype) for atom in atoms}) > 1
        ):
            return False
        stack = Var(stacked_aval(atoms))
        self.groups[tuple(atoms)] = stack
        self.rows.update((atom, Row(stack, number)) for number, atom in enumerate(atoms))
        return True

    def is_updated(self, group: tuple[Var, ...]) -> bool:
        return self.position[group[0]] < self.num_updated

    def is_row(self, atom: Any) -> bool:
        """Whether it is a variable of a group."""
        return isinstance(atom, Var) and atom in self.position and atom in self.rows

    def row_of(self, var: Var) -> Var:
        """A variable of a group, taken from its stack."""
        if (var,) not in self.memo:
            eqns, self.memo[(var,)] = row_equations(self.rows[var])
            self.before += eqns
        taken: Var = self.memo[(var,)]
        return taken

    def stack_before(self, atoms: tuple[Any, ...]) -> Any:
        """The stack of variables, for loops."""
        return self.gathered(self.before, atoms)

    def write(self, where: list[JaxprEqn], function: Callable[..., Any], *atoms: Any) -> Any:
        """Write the equations of a JAX function of these values; gives its result."""
        eqns, (result,), constants = equations_of(function, *atoms)
        where += eqns
        self.constants.update(constants)
        return result

    def gathered(self, where: list[JaxprEqn], atoms: tuple[Any, ...]) -> Any:
        """The values as a stack; rows that follow each other in a stack are taken together."""
        pieces: list[tuple[Any, int, int]] = []  # stack, first row, number of rows; or a value, -1, 1
        for atom in atoms:
            row = self.rows.get(atom) if isinstance(atom, Var) else None
            if row is None:
                pieces.append((atom, -1, 1))
            elif pieces and pieces[-1][0] is row.stack and sum(pieces[-1][1:]) == row.index:
                pieces[-1] = (row.stack, pieces[-1][1], pieces[-1][2] + 1)
            else:
                pieces.append((row.stack, row.index, 1))
        # The whole stack in its own order is the stack.
        if len(pieces) == 1 and pieces[0][2] == pieces[0][0].aval.shape[0] and pieces[0][1] == 0:
            return pieces[0][0]
        whole = pieces[0][0]
        # A backward pass takes the rows in reverse.
        if len(pieces) == len(atoms) and all(
            piece[0] is whole and piece[1] == len(atoms) - 1 - number for number, piece in enumerate(pieces)
        ):
            return self.write(where, lambda stack: jax.lax.rev(jax.lax.slice_in_dim(stack, 0, len(atoms)), (0,)), whole)

        def joined(*values: Any) -> Any:
            taken = [
                jnp.expand_dims(value, 0) if first < 0 else jax.lax.slice_in_dim(value, first, first + count)
                for value, (_, first, count) in zip(values, pieces, strict=True)
            ]
            return jax.lax.concatenate(taken, 0) if len(taken) > 1 else taken[0]

        return self.write(where, joined, *(piece[0] for piece in pieces))

    # --------------------------------------------------------------------------------------------------- updates

    def together(self, atoms: tuple[Any, ...]) -> Any:
        """The stack of these values, one per block."""
        key = tuple(map(literal_key, atoms))
        if key not in self.memo:
            self.memo[key] = self.stacked_together(atoms)
        return self.memo[key]

    def stacked_together(self, atoms: tuple[Any, ...]) -> Any:
        # A group of its own, as the moments of all layers are.
        if all(isinstance(atom, Var) and atom in self.position for atom in atoms) and self.group(atoms):
            return self.groups[atoms]
        if any(isinstance(atom, Literal) or atom in self.rows for atom in atoms):
            return self.gathered(self.after, atoms)
        makers = [self.maker.get(atom) for atom in atoms]
        if None in makers or not self.are_alike(makers):
            return self.gathered(self.after, atoms)
        operands: list[Any] = []
        axes: list[int | None] = []
        for values in zip(*(eqn.invars for eqn in makers if eqn is not None), strict=True):
            same = len(set(map(literal_key, values))) == 1
            axes.append(None if same else 0)
            operands.append(values[0] if same else self.together(values))
        first = makers[0]
        assert first is not None
        # All operands are the same for all blocks: the results are equal, and stacking is all that is left.
        if 0 not in axes:
            return self.gathered(self.after, atoms)
        return self.write(self.after, _batched(first, axes), *operands)

    def are_alike(self, makers: Sequence[Any]) -> bool:
        """Whether these equations are the same pointwise operation on the same shapes."""
        return str(makers[0].primitive.name) in _POINTWISE and len({self.kind_of(eqn) for eqn in makers}) == 1

    def kind_of(self, eqn: JaxprEqn) -> Any:
        key = ByIdentity(eqn)
        kind = self.likeness.get(key)
        if kind is None:
            avals = tuple((atom.aval.shape, atom.aval.dtype) for atom in (*eqn.invars, *eqn.outvars))  # type: ignore[attr-defined]
            params = tuple((name, comparable(eqn.params[name])) for name in sorted(eqn.params))
            # Equations with effects equal none but themselves.
            place = eqn.ctx.compute_type or (key if eqn.effects else None)
            kind = self.likeness[key] = (str(eqn.primitive.name), avals, params, place)
        return kind


def _batched(eqn: JaxprEqn, axes: Sequence[int | None]) -> Callable[..., Any]:
    def operation(*values: Any) -> Any:
        return eqn.primitive.bind(*values, **eqn.params)

    return jax.vmap(operation, in_axes=tuple(axes))


def _with(eqn: JaxprEqn, replaced: Mapping[Any, Any]) -> JaxprEqn:
    """The equation, reading other values in place of some."""
    if not any(isinstance(atom, Var) and atom in replaced for atom in eqn.invars):
        return eqn
    invars = [replaced.get(atom, atom) if isinstance(atom, Var) else atom for atom in eqn.invars]
    return eqn.replace(invars=invars)


def _needed(eqns: Sequence[JaxprEqn], outvars: Sequence[Any]) -> list[JaxprEqn]:
    """The equations whose results are read."""
    read = {var for var in outvars if isinstance(var, Var)}
    kept: list[JaxprEqn] = []
    for eqn in reversed(eqns):
        if eqn.effects or not read.isdisjoint(eqn.outvars):
            read.update(var for var in eqn.invars if isinstance(var, Var))
            kept.append(eqn)
    return kept[::-1]
