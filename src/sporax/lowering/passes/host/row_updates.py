"""Gradients of tables as ids and rows.

Problem. The gradient of a lookup is zero but for the rows that were looked up. JAX makes a dense array of it, as large as the
table: for a table in host memory, all of it would be transferred and all of it would be updated.

Method. An optimizer that changes only such rows (`LazyAdam`, `FTRL`) writes its update as one equation, `row_update`, with the
rule as a Python function. Where the gradient comes from additions of rows to zeros (through sums of several lookups and
products with scalars), the update is written again for the rows alone: rows of equal ids are summed on the device, ids and sums
go to the host, and the host gathers the rows of table and state, applies the rule, and writes the rows back. An id that
is there several times has the whole sum each time, so all writes to one row are equal.

A lookup in a table on the host sends the ids and fetches the rows. Positions out of range are handled on the device.

Where gradients of micro batches are added up by programs of their own (pipelines), the sum is an array in host memory, as large
as the table: ids and rows are sent, and the host adds the rows to it.

Reference: MindSpore's `RowTensor` gradients of `EmbeddingLookup` with ``sparse=True``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal, Primitive, Var
from jax.interpreters import mlir

from sporax.ir.graph import MARK
from sporax.ir.marks import GradientMark, OperatorMark, Side, next_number
from sporax.lowering.marks.host_transfer import HOST, moves, place_of_work, runs_on_host, space_of
from sporax.lowering.marks.mark_primitive import apply_mark
from sporax.lowering.rewriter import Atom, JaxprRewriter, aval_of, flat, needed, variables

if TYPE_CHECKING:
    from jax.extend.source_info_util import SourceInfo

Rule = Callable[..., Sequence[jax.Array]]
"""Gradient, values and scalars to new values; no row depends on another one."""

row_update_p = Primitive("row_update")
row_update_p.multiple_results = True


def row_update(
    rule: Rule, gradient: jax.Array, values: Sequence[jax.Array], scalars: Sequence[jax.Array]
) -> list[jax.Array]:
    """``rule(gradient, values, scalars)``; rows without gradient may be left out when it is computed.

    Args:
        rule: leaves a row as it is that has no gradient.
        gradient, values: of one shape.
        scalars: arrays without dimensions.
    """
    operands = (gradient, *values, *scalars)
    count = len(values)

    def flat_rule(gradient: jax.Array, *rest: jax.Array) -> list[jax.Array]:
        return list(rule(gradient, rest[:count], rest[count:]))

    shapes = [jax.ShapeDtypeStruct(operand.shape, operand.dtype) for operand in operands]
    body = jax.make_jaxpr(flat_rule)(*shapes)
    # The body is for passes that look inside; the rule itself is run.
    return list(row_update_p.bind(*operands, jaxpr=body, rule=flat_rule, count=count))


def _run(*operands: jax.Array, jaxpr: ClosedJaxpr, rule: Rule, count: int) -> list[jax.Array]:
    return list(rule(*operands))


# Called and not written as decorators, which have no types.
row_update_p.def_impl(_run)
row_update_p.def_abstract_eval(lambda *avals, jaxpr, rule, count: list(jaxpr.out_avals))


mlir.register_lowering(row_update_p, mlir.lower_fun(_run, multiple_results=True))


def by_rows(program: ClosedJaxpr) -> ClosedJaxpr:
    """The same flat program, in which tables are looked up and updated by rows where the host holds or updates them."""
    # What could not be written by rows becomes ordinary equations.
    return without_row_updates(_ByRows(program).run())


def by_rows_for_plan(program: ClosedJaxpr) -> ClosedJaxpr:
    """The same step before it is planned, in which the hosts update tables by rows that every device holds whole.

    Ids and rows of the whole batch take the place of the dense gradient: so they are what devices send each other as well. Tables
    that a strategy shards keep dense gradients, which each device makes for its part alone.
    """
    return without_row_updates(_ByRowsForPlan(program).run())


def without_row_updates(program: ClosedJaxpr) -> ClosedJaxpr:
    """The same program, in which what is left of them is dense."""
    return flat(program, lambda eqn: eqn.params["jaxpr"] if eqn.primitive is row_update_p else None)


@dataclass(frozen=True, slots=True)
class _Rows:
    """A gradient that is zero but for some rows.

    Attributes:
        positions: of the rows, (…, 1), with the mode that says what is done with those out of range.
        rows: (…, width): what is added there.
    """

    positions: Atom
    rows: Atom


class _ByRows(JaxprRewriter):
    """Writes lookups, sums and updates by rows.

    Attributes:
        makers: the equation that makes a value of the old program.
        limited: positions in range, and whether they were, by positions and number of rows.
        there: values that the host computes.
        source: of the equation that is visited.
        device_context: of equations of the device.
    """

    def __init__(self, program: ClosedJaxpr) -> None:
        super().__init__(program)
        self.makers: dict[Atom, JaxprEqn] = {var: eqn for eqn in program.jaxpr.eqns for var in eqn.outvars}
        self.limited: dict[tuple[Atom, int], tuple[Atom, Atom]] = {}
        self.there: set[Atom] = set()
        self.source: SourceInfo | None = None
        # Equations of the device need its context, which only a traced equation has.
        self.device_context = jax.make_jaxpr(jnp.sin)(0.0).jaxpr.eqns[0].ctx

    def run(self) -> ClosedJaxpr:
        self.walk()
        results = list(map(self.read, self.program.jaxpr.outvars))
        self.eqns = needed(self.eqns, results)
        return self.finish(results)

    def visit(self, eqn: JaxprEqn) -> None:
        self.source = eqn.source_info
        if eqn.primitive is row_update_p and self._update(eqn):
            return
        if self._adds_there(eqn) and self._add(eqn):
            return
        if self._looks_up(eqn):
            self._look_up(eqn)
        else:
            self._write_unchanged(eqn)

    def _write_unchanged(self, eqn: JaxprEqn) -> None:
        from_there = not self.there.isdisjoint(variables(eqn.invars))
        # Ids are made ready where they are; what is found out about values of the host stays there, too.
        if runs_on_host(eqn) and not from_there and all(map(_is_integer, (*eqn.invars, *eqn.outvars))):
            self.keep(eqn, ctx=self.device_context)
            return
        if runs_on_host(eqn):
            self.there.update(eqn.outvars)
        self.keep(eqn)

    def _compute(self, function: Callable[..., object], *atoms: Atom, on_host: bool = False) -> list[Atom]:
        first = len(self.eqns)
        with place_of_work(on_host):
            results = self.emit(function, *map(self.read, atoms))
        self.eqns[first:] = [eqn.replace(source_info=self.source) for eqn in self.eqns[first:]]
        return results

    # ------------------------------------------------------------------------------------------------------- lookups

    def _looks_up(self, eqn: JaxprEqn) -> bool:
        return _picks_rows(eqn) and (runs_on_host(eqn) or self._is_stored_there(eqn.invars[0]))

    def _look_up(self, eqn: JaxprEqn) -> None:
        table, positions = eqn.invars
        shape = aval_of(table)
        num_rows, fill = shape.shape[0], eqn.params["fill_value"]
        # As JAX's "fill" mode: NaN for floats, 0 for others.
        fill = jnp.nan if fill is None and jnp.issubdtype(shape.dtype, jnp.inexact) else fill or 0
        within, inside = self._limited(positions, num_rows)
        (rows,) = self._compute(lambda array, positions: [_gathered(array, positions)], table, within, on_host=True)
        if eqn.params["mode"] == jax.lax.GatherScatterMode.FILL_OR_DROP:
            (rows,) = self._compute(
                lambda rows, inside: [jnp.where(inside, rows, jnp.asarray(fill, rows.dtype))], rows, inside
            )
        self.names[eqn.outvars[0]] = rows

    # ---------------------------------------------------------------------------------------------------------- sums

    def _adds_there(self, eqn: JaxprEqn) -> bool:
        return eqn.primitive.name == "add" and runs_on_host(eqn) and self._is_stored_there(eqn.invars[0])

    def _add(self, eqn: JaxprEqn) -> bool:
        """Add the rows of a gradient to a sum in host memory; False where the gradient is dense."""
        total, gradient = eqn.invars
        terms = self._terms(gradient)
        for term in terms or ():
            within, inside = self._limited(term.positions, aval_of(total).shape[0])
            (rows,) = self._compute(lambda rows, inside: [jnp.where(inside, rows, 0)], term.rows, inside)
            (total,) = self._compute(lambda *parts: [_with_added(*parts)], total, within, rows, on_host=True)
        if terms is not None:
            self.names[eqn.outvars[0]] = total
        return terms is not None

    # ------------------------------------------------------------------------------------------------------- updates

    def _update(self, eqn: JaxprEqn) -> bool:
        """Write an update for the rows of its gradient; False where that gains nothing, or the gradient is dense."""
        gradient, count, on_host = eqn.invars[0], eqn.params["count"], runs_on_host(eqn)
        values, scalars = eqn.invars[1 : 1 + count], eqn.invars[1 + count :]
        there = [on_host or self._is_stored_there(value) for value in values]
        # On the device a dense update costs no transfer, so nothing is gained.
        terms = self._terms(gradient) if any(there) else None
        if terms is None:
            return False
        num_rows = aval_of(gradient).shape[0]
        limited = [self._limited(term.positions, num_rows) for term in terms]
        within, inside = ([parts[part] for parts in limited] for part in (0, 1))
        # Summed first: an optimizer must see a row's whole gradient once.
        (sums,) = self._compute(
            lambda *parts: [_summed(parts, len(terms))], *within, *inside, *(term.rows for term in terms)
        )
        *within, sums = self._complete([*within, sums])
        # Ids are copied once to each memory in which values are.
        ids = {place: self._compute(lambda *parts: [_column(parts)], *within, on_host=place)[0] for place in set(there)}
        old = [
            self._compute(lambda *both: [_gathered(*both)], value, ids[place], on_host=place)[0]
            for value, place in zip(values, there, strict=True)
        ]
        new = self._compute(eqn.params["rule"], sums, *old, *scalars, on_host=on_host)
        for value, rows, place, result in zip(values, new, there, eqn.outvars, strict=True):
            (self.names[result],) = self._compute(
                lambda *all_of: [_written(*all_of)], value, ids[place], rows, on_host=place
            )
        return True

    def _limited(self, positions: Atom, num_rows: int) -> tuple[Atom, Atom]:
        """Positions (…, 1) in range, and whether they were; the same ones for lookup and update, so they are sent once."""
        key = self.read(positions), num_rows
        if key not in self.limited:
            within, inside = self._compute(lambda positions: _limited(positions, num_rows), positions)
            self.limited[key] = within, inside
        return self.limited[key]

    def _complete(self, atoms: Sequence[Atom]) -> list[Atom]:
        """Ids and sums of rows, all of them on every device."""
        return list(atoms)

    def _is_stored_there(self, var: Atom) -> bool:
        """Whether a value was brought to the device from host memory."""
        eqn = self.makers.get(var) if isinstance(var, Var) else None
        return eqn is not None and moves(eqn) and space_of(eqn.invars[0]) == HOST

    def _terms(self, var: Atom) -> list[_Rows] | None:
        """The rows of a gradient; None where it is dense."""
        eqn = self.makers.get(var) if isinstance(var, Var) else None
        if eqn is None:
            return None
        name = str(eqn.primitive.name)
        if name == "scatter-add":
            # Rows are added to something else than zeros: the gradient is dense.
            zeros, positions, rows = eqn.invars
            return [_Rows(positions, rows)] if _adds_rows(eqn) and self._is_zero(zeros) else None
        if name in ("add_any", "add"):
            both = [self._terms(operand) for operand in eqn.invars]
            return None if None in both else [term for terms in both for term in terms or ()]
        if name in ("mul", "div", "neg", "convert_element_type", "copy"):
            return self._scaled(eqn)
        return None

    def _scaled(self, eqn: JaxprEqn) -> list[_Rows] | None:
        """The terms of a product of a gradient and a scalar, or of another form of it."""
        # Scalars may stand on either side of a product, but only below a quotient.
        sides = eqn.invars[:1] if eqn.primitive.name == "div" else eqn.invars
        for place, operand in enumerate(sides):
            others = [invar for number, invar in enumerate(eqn.invars) if number != place]
            terms = None if any(aval_of(invar).ndim for invar in others) else self._terms(operand)
            if terms is not None:
                return [_Rows(term.positions, self._on_rows(eqn, place, term.rows)) for term in terms]
        return None

    def _on_rows(self, eqn: JaxprEqn, place: int, rows: Atom) -> Atom:
        operands = [rows if number == place else atoms for number, atoms in enumerate(eqn.invars)]
        (result,) = self._compute(lambda *atoms: [eqn.primitive.bind(*atoms, **eqn.params)], *operands)
        return result

    def _is_zero(self, var: Atom) -> bool:
        eqn = self.makers.get(var)
        # A plan chooses between values for the one device that has the sum, and zeros for the others.
        if eqn is not None and eqn.primitive.name == "select_n":
            return all(map(self._is_zero, eqn.invars[1:]))
        if eqn is None or eqn.primitive.name != "broadcast_in_dim" or not isinstance(eqn.invars[0], Literal):
            return False
        return bool(eqn.invars[0].val == 0)


class _ByRowsForPlan(_ByRows):
    """Rewrites updates in a step that is going to be planned: marks are in the way, and lookups stay as they are marked."""

    def __init__(self, program: ClosedJaxpr) -> None:
        super().__init__(program)
        self.readers: dict[Atom, list[JaxprEqn]] = {}
        self.sharded: set[Atom] = set()
        for eqn in program.jaxpr.eqns:
            for place, var in enumerate(eqn.invars):
                if isinstance(var, Var):
                    self.readers.setdefault(var, []).append(eqn)
                    if shards(eqn.params.get("mark"), place):
                        self.sharded.add(var)
        self.as_rows = {
            eqn.invars[0]
            for eqn in program.jaxpr.eqns
            if eqn.primitive is row_update_p and self._may_be_rows(eqn) and self._terms(eqn.invars[0]) is not None
        }
        # `_terms` may have written equations while it looked; what stays begins from here.
        self.eqns.clear()  # of what was tried
        self.constants = dict(zip(program.jaxpr.constvars, program.consts, strict=True))

    def _may_be_rows(self, eqn: JaxprEqn) -> bool:
        """Whether the host updates a table that every device has whole, with a gradient that nothing else reads."""
        gradient, table = eqn.invars[:2]
        return runs_on_host(eqn) and table not in self.sharded and self.readers[gradient] == [eqn]

    def _looks_up(self, eqn: JaxprEqn) -> bool:
        return False

    def _update(self, eqn: JaxprEqn) -> bool:
        return eqn.invars[0] in self.as_rows and super()._update(eqn)

    def _complete(self, atoms: Sequence[Atom]) -> list[Atom]:
        replicated = tuple((1,) * aval_of(atom).ndim for atom in atoms)
        mark = OperatorMark("RowUpdate", next_number(), Side.IN, in_strategy=replicated)
        return self._compute(lambda *arrays: apply_mark(arrays, mark), *atoms)

    def _terms(self, var: Atom) -> list[_Rows] | None:
        eqn = self.makers.get(var) if isinstance(var, Var) else None
        if eqn is not None and isinstance(var, Var) and eqn.primitive.name == MARK:
            return self._terms(eqn.invars[eqn.outvars.index(var)])
        return super()._terms(var)

    def _write_unchanged(self, eqn: JaxprEqn) -> None:
        """Gradients that are rows are not waited for: they are no longer among those that devices add up."""
        mark = eqn.params.get("mark")
        if not isinstance(mark, GradientMark) or self.as_rows.isdisjoint(eqn.outvars):
            super()._write_unchanged(eqn)
            return
        dense = [place for place, var in enumerate(eqn.outvars) if var not in self.as_rows]
        names = tuple(mark.parameters[place] for place in dense)
        # The mark must list just those gradients that devices still add up.
        rest = replace(mark, parameters=names, fusion=tuple(mark.fusion[place] for place in dense))
        if dense:
            invars, outvars = [eqn.invars[place] for place in dense], [eqn.outvars[place] for place in dense]
            super()._write_unchanged(eqn.replace(invars=invars, outvars=outvars, params={"mark": rest}))


def shards(mark: object, place: int) -> bool:
    """Whether the strategy of a mark, if it is one, shards one of its tensors."""
    if not isinstance(mark, OperatorMark) or mark.in_strategy is None or place >= len(mark.in_strategy):
        return False
    slices = mark.in_strategy[place]
    return not isinstance(slices, tuple) or any(count != 1 for count in slices)


def _limited(positions: jax.Array, num_rows: int) -> tuple[jax.Array, jax.Array]:
    """Positions (…, 1) in range, and (…, 1) whether they were."""
    inside = (positions >= 0) & (positions < num_rows)
    return jnp.where(inside, positions, 0), inside


def _summed(terms: Sequence[jax.Array], count: int) -> jax.Array:
    """With each position of all terms, (n, width): the sum of all rows at that position."""
    positions = _column(terms[:count])[:, 0]
    rows = jnp.concatenate(
        [
            jnp.where(inside, rows, 0).reshape(-1, rows.shape[-1])
            for inside, rows in zip(terms[count : 2 * count], terms[2 * count :], strict=True)
        ]
    )
    # Equal ids share a group; `size` keeps the shape static, as XLA needs.
    _, group = jnp.unique(positions, size=len(rows), return_inverse=True)
    # Every position gets the whole sum of its id, so repeated writes agree.
    return jnp.zeros_like(rows).at[group].add(rows)[group]


def _column(positions: Sequence[jax.Array]) -> jax.Array:
    """Positions (…, 1) of all terms as (n, 1)."""
    return jnp.concatenate([position.reshape(-1, 1) for position in positions])


def _gathered(table: jax.Array, positions: jax.Array) -> jax.Array:
    dims = jax.lax.GatherDimensionNumbers(
        offset_dims=(positions.ndim - 1,), collapsed_slice_dims=(0,), start_index_map=(0,)
    )
    # Positions were brought into range before.
    return jax.lax.gather(table, positions, dims, (1, table.shape[1]), mode=jax.lax.GatherScatterMode.PROMISE_IN_BOUNDS)


def _written(table: jax.Array, positions: jax.Array, rows: jax.Array) -> jax.Array:
    dims = jax.lax.ScatterDimensionNumbers(
        update_window_dims=(1,), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,)
    )
    return jax.lax.scatter(
        table, positions, rows.astype(table.dtype), dims, mode=jax.lax.GatherScatterMode.PROMISE_IN_BOUNDS
    )


def _with_added(table: jax.Array, positions: jax.Array, rows: jax.Array) -> jax.Array:
    dims = jax.lax.ScatterDimensionNumbers(
        update_window_dims=(rows.ndim - 1,), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,)
    )
    return jax.lax.scatter_add(table, positions, rows, dims, mode=jax.lax.GatherScatterMode.PROMISE_IN_BOUNDS)


def _picks_rows(eqn: JaxprEqn) -> bool:
    """Whether an equation gathers whole rows of a table."""
    if eqn.primitive.name != "gather":
        return False
    table, positions = map(aval_of, eqn.invars)
    dims = eqn.params["dimension_numbers"]
    return (
        table.ndim == 2
        and tuple(eqn.params["slice_sizes"]) == (1, table.shape[1])
        and (tuple(dims.collapsed_slice_dims), tuple(dims.start_index_map)) == ((0,), (0,))
        and tuple(dims.offset_dims) == (positions.ndim - 1,)
        and not dims.operand_batching_dims
    )


def _adds_rows(eqn: JaxprEqn) -> bool:
    """Whether an equation adds whole rows to a table; those out of range are dropped."""
    table, positions, rows = map(aval_of, eqn.invars)
    dims = eqn.params["dimension_numbers"]
    return (
        table.ndim == 2
        and rows.shape[-1] == table.shape[1]
        and (tuple(dims.inserted_window_dims), tuple(dims.scatter_dims_to_operand_dims)) == ((0,), (0,))
        and tuple(dims.update_window_dims) == (positions.ndim - 1,)
        and not dims.operand_batching_dims
        and eqn.params["mode"] != jax.lax.GatherScatterMode.CLIP
    )


def _is_integer(var: Atom) -> bool:
    dtype = aval_of(var).dtype
    return bool(jnp.issubdtype(dtype, jnp.integer) or dtype == jnp.bool_)
