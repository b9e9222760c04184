"""A plan as one rank's program: every operator on its slices, every transfer written out.

`rank_program` gives a function from one rank's slices of the arguments to its slices of the results, to be run inside
`shard_map`. It walks through the graph once. What a tensor's value is depends on where it is wanted, so the environment has
for every tensor one array per placement.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from sporax.ir.graph import IDENTITIES, LITERAL
from sporax.ir.marks import WeightMark
from sporax.ir.placement import Placement, num_parts
from sporax.ir.plan import OperatorPlan, Plan
from sporax.lowering.again import late_copy
from sporax.lowering.ingest import Equation, Ingested
from sporax.lowering.local import DevicePosition, Task
from sporax.lowering.marks import mark_p
from sporax.lowering.redistribute import apply_redistribution
from sporax.planner.moves import MoveKind
from sporax.planner.rules import rule_for
from sporax.planner.transfers import Schedule, Together, Transfer, schedule

Array = Any
"""A jax.Array or a tracer."""

Values = dict[int, dict[Placement, Array]]
"""For each tensor its slices at every placement it has been brought to."""


def rank_program(step: Ingested, plan: Plan, axis_names: tuple[str, ...]) -> Callable[..., list[Array]]:
    """One rank's program.

    Args:
        step: the program, as ingested.
        plan: how it is cut.
        axis_names: the names that the surrounding `shard_map` gives to the axes of the plan's mesh.

    Returns:
        A function of the slices of all inputs of the graph but its constants, which gives the slices of the outputs.
    """
    runner = _Runner(step, plan, axis_names, schedule(step.graph, plan))

    def program(*arguments: Array) -> list[Array]:
        num_constants = len(step.constants)
        constants = [
            runner.cut(jnp.asarray(value) if not hasattr(value, "dtype") else value, placement)
            for value, placement in zip(step.constants, plan.inputs[:num_constants], strict=True)
        ]
        return runner.run([*constants, *arguments])

    return program


@dataclass(frozen=True, slots=True)
class _Runner:
    """Runs one graph, of a step or of a body."""

    step: Ingested
    plan: Plan
    axis_names: tuple[str, ...]
    transfers: Schedule

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        graph, plan = self.step.graph, self.plan
        values: Values = {}
        for each, placement, array in zip(graph.inputs, plan.inputs, inputs, strict=True):
            values[each.tensor] = {placement: array}
        self._transfer(self.transfers.at_start, values)
        for number, (equation, planned) in enumerate(zip(self.step.equations, plan.operators, strict=True)):
            self._transfer(self.transfers.before[number], values)
            operator = graph.operators[number]
            operands = [
                equation.literals[position] if tensor == LITERAL else values[tensor][placement]
                for position, (tensor, placement) in enumerate(zip(operator.operands, planned.operands, strict=True))
            ]
            with jax.named_scope(operator.path) if operator.path else _NOWHERE:
                results = self._operator(number, equation, planned, operands)
            for tensor, placement, array in zip(operator.results, planned.results, results, strict=True):
                values[tensor] = {placement: array}
            self._transfer(self.transfers.after[number], values)
        self._transfer(self.transfers.at_end, values)
        return [
            jnp.asarray(self.step.literal_outputs[position]) if tensor == LITERAL else values[tensor][placement]
            for position, (tensor, placement) in enumerate(zip(graph.outputs, plan.outputs, strict=True))
        ]

    def cut(self, array: Array, placement: Placement) -> Array:
        """This rank's slice of an array that every rank has whole."""
        for dim, axes in enumerate(placement.dims):
            if axes:
                names = tuple(self.axis_names[axis] for axis in axes)
                size = array.shape[dim] // num_parts(self.plan.mesh, axes)
                array = jax.lax.dynamic_slice_in_dim(array, jax.lax.axis_index(names) * size, size, axis=dim)
        return array

    # ---------------------------------------------------------------------------------------------------- operators

    def _operator(
        self, number: int, equation: Equation, planned: OperatorPlan, operands: Sequence[Array]
    ) -> Sequence[Array]:
        if equation.primitive is mark_p:
            copies = isinstance(equation.params["mark"], WeightMark)
            return (late_copy(operands[0], operands[1]), operands[1]) if copies else operands
        if self.step.graph.operators[number].name in IDENTITIES:
            handed: Sequence[Array] = equation.primitive.bind(*operands, **equation.params)
            return handed
        if equation.bodies:
            return _CONTROL[str(equation.primitive.name)](self, equation, planned, operands)
        operation = self.step.graph.operators[number].operation
        task = Task(equation.primitive, operation, rule_for(operation), planned.assignment, self.plan.mesh)
        return task.run(DevicePosition(self.axis_names), operands)

    def _body(self, body: Ingested, plan: Plan) -> Callable[..., list[Array]]:
        return rank_program(body, plan, self.axis_names)

    def _scan(self, equation: Equation, planned: OperatorPlan, operands: Sequence[Array]) -> Sequence[Array]:
        params = equation.params
        num_consts, num_carry = params["num_consts"], params["num_carry"]
        first_x = num_consts + num_carry
        consts, init, xs = operands[:num_consts], operands[num_consts:first_x], operands[first_x:]
        body = self._body(equation.bodies[0], planned.bodies[0])

        def step(carry: Sequence[Array], x: Sequence[Array]) -> tuple[list[Array], list[Array]]:
            results = body(*consts, *carry, *x)
            return results[:num_carry], results[num_carry:]

        carry, ys = jax.lax.scan(
            step,
            list(init),
            list(xs),
            length=params["length"],
            reverse=params["reverse"],
            unroll=params["unroll"],
        )
        return [*carry, *ys]

    def _while(self, equation: Equation, planned: OperatorPlan, operands: Sequence[Array]) -> Sequence[Array]:
        num_cond, num_body = equation.params["cond_nconsts"], equation.params["body_nconsts"]
        cond_consts, body_consts = operands[:num_cond], operands[num_cond : num_cond + num_body]
        cond, body = (self._body(each, plan) for each, plan in zip(equation.bodies, planned.bodies, strict=True))
        results: Sequence[Array] = jax.lax.while_loop(
            lambda carry: cond(*cond_consts, *carry)[0],
            lambda carry: body(*body_consts, *carry),
            list(operands[num_cond + num_body :]),
        )
        return results

    def _cond(self, equation: Equation, planned: OperatorPlan, operands: Sequence[Array]) -> Sequence[Array]:
        branches = [self._body(each, plan) for each, plan in zip(equation.bodies, planned.bodies, strict=True)]
        results: Sequence[Array] = jax.lax.switch(operands[0], branches, *operands[1:])
        return results

    # ---------------------------------------------------------------------------------------------------- transfers

    def _transfer(self, transfers: Sequence[Together], values: Values) -> None:
        for together in transfers:
            arrays = [values[each.tensor][each.redistribution.source] for each in together]
            moved = self._move(together[0], arrays[0]) if len(together) == 1 else self._move_together(together, arrays)
            for each, array in zip(together, moved, strict=True):
                values[each.tensor][each.redistribution.target] = array

    def _move(self, transfer: Transfer, array: Array) -> list[Array]:
        settlement = transfer.settlement
        dtype = array.dtype
        if settlement is not None and settlement.in_float32 and _is_short_float(dtype):
            array = array.astype(jnp.float32)
        moved = apply_redistribution(array, transfer.redistribution, self.axis_names)
        return [_scaled(moved, transfer).astype(dtype) if moved.dtype != dtype else _scaled(moved, transfer)]

    def _move_together(self, together: Together, arrays: Sequence[Array]) -> list[Array]:
        """Send tensors in one buffer with one row per rank: rows that each rank keeps, gets, or shares with all others."""
        (move,) = together[0].redistribution.moves
        names = tuple(self.axis_names[axis] for axis in move.axes)
        rows = num_parts(self.plan.mesh, move.axes) if move.kind is MoveKind.REDUCE_SCATTER else 1
        dtype = arrays[0].dtype
        flat = [_as_rows(array, each, rows) for array, each in zip(arrays, together, strict=True)]
        buffer = jnp.concatenate(flat, axis=1)
        settlement = together[0].settlement
        if settlement is not None and settlement.in_float32 and _is_short_float(dtype):
            buffer = buffer.astype(jnp.float32)
        if move.kind is MoveKind.REDUCE_SCATTER:
            buffer = jax.lax.psum_scatter(buffer, names, scatter_dimension=0, tiled=True)
        elif move.kind is MoveKind.ALL_GATHER:
            buffer = jax.lax.all_gather(buffer, names, axis=0, tiled=True)
        else:
            buffer = jax.lax.psum(buffer, names)
        pieces, start = [], 0
        for each, row in zip(together, flat, strict=True):
            piece = jax.lax.slice_in_dim(buffer, start, start + row.shape[1], axis=1)
            pieces.append(_scaled(_from_rows(piece, each), each).astype(dtype))
            start += row.shape[1]
        return pieces


def _scaled(array: Array, transfer: Transfer) -> Array:
    scale = 1.0 if transfer.settlement is None else transfer.settlement.scale
    return array if scale == 1.0 else array * jnp.asarray(scale, array.dtype)


def _is_short_float(dtype: Any) -> bool:
    return bool(jnp.issubdtype(dtype, jnp.floating)) and dtype.itemsize < 4


def _as_rows(array: Array, transfer: Transfer, rows: int) -> Array:
    """A tensor as a matrix with one row per rank that keeps a part of it."""
    (move,) = transfer.redistribution.moves
    if rows == 1:
        return array.reshape(1, -1)
    stretched = array.reshape(transfer.redistribution.stretched)
    return jnp.moveaxis(stretched, move.target, 0).reshape(rows, -1)


def _from_rows(rows: Array, transfer: Transfer) -> Array:
    """The reverse of `_as_rows`, for the rows that this rank has then."""
    way = transfer.redistribution
    (move,) = way.moves
    if move.kind is MoveKind.ALL_REDUCE:
        return rows.reshape(way.local_target)
    shape = list(way.stretched)
    if move.kind is MoveKind.ALL_GATHER:
        return jnp.moveaxis(rows.reshape(-1, *shape), 0, move.source).reshape(way.local_target)
    size = shape.pop(move.target) // _rows_of(way.stretched, way.local_target)
    return jnp.moveaxis(rows.reshape(size, *shape), 0, move.target).reshape(way.local_target)


def _rows_of(stretched: Sequence[int], local: Sequence[int]) -> int:
    whole = part = 1
    for size in stretched:
        whole *= size
    for size in local:
        part *= size
    return whole // part


class _Nowhere:
    """No scope: for operators without a path."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


_NOWHERE = _Nowhere()

_CONTROL: Mapping[str, Callable[..., Sequence[Array]]] = {
    "scan": _Runner._scan,
    "while": _Runner._while,
    "cond": _Runner._cond,
}
