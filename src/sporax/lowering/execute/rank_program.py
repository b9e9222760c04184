"""A plan as the program of one rank: every operator on its slices, every transfer explicit.

`rank_program` returns a function from one rank's slices of the arguments to its slices of the results, to be run inside
`shard_map`. It walks through the graph once. The value of a tensor depends on its placement, so the environment has one
array per placement of every tensor.

The body of an island (`jax.shard_map`) on one device of a plan: its collectives along the plan's axes.

Problem: a body names axes of its own mesh; around it is one `shard_map` over the plan's axes, which have prime sizes. Method:
each name stands for a run of the plan's axes, and collectives are called along these; all else runs as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import Primitive

from sporax.ir.graph import IDENTITIES, LITERAL, Operator
from sporax.ir.marks import GradientMark, WeightMark
from sporax.ir.operation import Operation
from sporax.ir.placement import Axes, Placement, num_parts
from sporax.ir.plan import OperatorPlan, Plan
from sporax.lowering.execute import local_equations, local_task
from sporax.lowering.execute.local_norms import LocalNorms
from sporax.lowering.execute.redistribute import apply_redistributions, permute
from sporax.lowering.ingest.constraints import NAMING, SHARD_MAP
from sporax.lowering.ingest.ingest import Equation, Ingested
from sporax.lowering.ingest.regather import late_copy
from sporax.lowering.jax_versions import scan_numbers
from sporax.lowering.marks.host_transfer import place_of_work
from sporax.lowering.marks.mark_primitive import mark_p
from sporax.lowering.marks.tags import communication_scope
from sporax.planner import plan_of_body
from sporax.planner.communication.gradient_fusion import Delay, term_order
from sporax.planner.communication.moves import named_axes
from sporax.planner.communication.transfers import Schedule, Transfer, TransferGroup, schedule
from sporax.planner.rules import rule_for
from sporax.planner.rules.elementwise import CASTS

Params: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class IslandAxes:
    """The axes of islands around an equation.

    Attributes:
        runs: the plan's axes by name, in the order of the island's mesh.
        names: of the plan's axes in the surrounding `shard_map`.
    """

    runs: Mapping[str, Axes]
    names: tuple[str, ...]

    def run(self, primitive: Primitive, params: Params, operands: Sequence[Array], shapes: Any) -> list[Array]:
        """An equation that names axes.

        Args:
            shapes: of its results.
        """
        name, axes = str(primitive.name), self._axes(params)
        along = tuple(self.names[axis] for axis in axes)
        dims = _dims(params)
        if name == "axis_index":
            return [jnp.asarray(jax.lax.axis_index(along) if along else 0, jnp.int32)]
        if name in CASTS or not (along or dims):
            # Along axes of one device nothing is sent, either.
            return [jnp.reshape(x, shape) for x, shape in zip(operands, shapes, strict=True)]
        if name == "ppermute":
            return [permute(x, self._in_order(axes), self.names, params["perm"]) for x in operands]
        if name == "pbroadcast_dynamic":
            operands, params = operands[:1], {**params, "source": operands[1]}
        if name in _PLAIN:
            return [_PLAIN[name](along, params, x) for x in operands]
        named = {"axes": (*along, *dims)} if "axes" in params else {"axis_name": along}
        results = primitive.bind(*operands, **{**params, **named})
        return list(results) if primitive.multiple_results else [results]

    def _axes(self, params: Params) -> Axes:
        """Axes of this program that an equation names."""
        return tuple(axis for name in named_axes(params) for axis in self.runs.get(name, ()))

    def _in_order(self, axes: Axes) -> Axes:
        """The same axes in the order of the island's mesh, in which JAX counts places."""
        return tuple(axis for run in self.runs.values() for axis in run if axis in axes)


def _dims(params: Params) -> tuple[int, ...]:
    """Dimensions next to axes, which `jax.vmap` makes of names."""
    return tuple(entry for entry in params.get("axes", ()) if isinstance(entry, int))


def _gather(along: tuple[str, ...], params: Params, x: Array) -> Array:
    return jax.lax.all_gather(x, along, axis=params["all_gather_dimension"], tiled=params["tiled"])


def _scatter(along: tuple[str, ...], params: Params, x: Array) -> Array:
    return jax.lax.psum_scatter(x, along, scatter_dimension=params["scatter_dimension"], tiled=params["tiled"])


def _broadcast(along: tuple[str, ...], params: Params, x: Array) -> Array:
    """As a sum: XLA broadcasts on GPUs and TPUs alone."""
    is_source = jax.lax.axis_index(along) == params["source"]
    parts = x.astype(jnp.int8) if x.dtype == bool else x
    return jax.lax.psum(jnp.where(is_source, parts, jnp.zeros_like(parts)), along).astype(x.dtype)


_PLAIN: Mapping[str, Callable[..., Array]] = {
    **dict.fromkeys(("psum_invariant", "unreduced_psum"), lambda along, params, x: jax.lax.psum(x, along)),
    "unreduced_pmax": lambda along, params, x: jax.lax.pmax(x, along),
    "unreduced_pmin": lambda along, params, x: jax.lax.pmin(x, along),
    **dict.fromkeys(("all_gather_invariant", "all_gather_reduced"), _gather),
    "unreduced_reduce_scatter": _scatter,
    "pbroadcast": _broadcast,
    "pbroadcast_dynamic": _broadcast,
}
"""Collectives whose types JAX checks in islands alone, or that not every device has, by what computes the same."""


# A tensor with two readers may be moved to two placements, while a third reads it as it was made.
Values = dict[int, dict[Placement, Array]]
"""For each tensor its slices at every placement it has been resharded to."""


def rank_program(
    step: Ingested,
    plan: Plan,
    axis_names: tuple[str, ...],
    norms: LocalNorms | None = None,
    island: IslandAxes | None = None,
) -> Callable[..., list[Array]]:
    """One rank's program.

    Args:
        axis_names: the names that the surrounding `shard_map` gives to the axes of the plan's mesh.
        norms: what is reported of gradients before they are combined, if anything.
        island: the axes of the island that it is the body of.

    Returns:
        A function of the slices of all inputs of the graph but its constants, which gives the slices of the outputs.
    """
    runner = _Runner(step, plan, axis_names, schedule(step.graph, plan), norms, term_order(step.graph, plan), island)

    def program(*arguments: Array) -> list[Array]:
        num_constants = len(step.constants)
        constants = [
            # Python numbers among the constants have no shape to slice.
            runner.slice_of(jnp.asarray(value) if not hasattr(value, "dtype") else value, placement)
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
    norms: LocalNorms | None
    order: Mapping[int, Delay]
    island: IslandAxes | None = None

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        graph, plan = self.step.graph, self.plan
        values: Values = {}
        called: dict[int, Array] = {}
        for argument, placement, array in zip(graph.inputs, plan.inputs, inputs, strict=True):
            values[argument.tensor] = {placement: array}
        self._transfer(self.transfers.at_start, values)
        for number, (equation, planned) in enumerate(zip(self.step.equations, plan.operators, strict=True)):
            self._transfer(self.transfers.before[number], values)
            operator = graph.operators[number]
            if self.norms is not None and isinstance(operator.mark, GradientMark):
                gradients = [
                    next(iter(values[tensor].values())) for tensor in operator.operands
                ]  # as they came, partial
                self.norms.watch(operator.mark.parameters, gradients, jax.lax.axis_index(self.axis_names))
            operands = [
                equation.literals[position] if tensor == LITERAL else values[tensor][placement]
                for position, (tensor, placement) in enumerate(zip(operator.operands, planned.operands, strict=True))
            ]
            if number in self.order:
                delay = self.order[number]
                late = values[delay.term][delay.placement]
                operands[delay.operand] = late_copy(operands[delay.operand], late)
            with jax.named_scope(operator.path) if operator.path else _NO_SCOPE:
                results = self._operator(number, equation, planned, operands, called)
            for tensor, placement, array in zip(operator.results, planned.results, results, strict=True):
                values[tensor] = {placement: array}
            self._transfer(self.transfers.after[number], values)
        self._transfer(self.transfers.at_end, values)
        return [
            # A constant result has no tensor, so no placement either.
            jnp.asarray(self.step.literal_outputs[position]) if tensor == LITERAL else values[tensor][placement]
            for position, (tensor, placement) in enumerate(zip(graph.outputs, plan.outputs, strict=True))
        ]

    def slice_of(self, array: Array, placement: Placement) -> Array:
        """This rank's slice of an array that every rank has whole."""
        for dim, axes in enumerate(placement.dims):
            if axes:
                # Even slices only: the planner pads or refuses dimensions that do not divide.
                names = tuple(self.axis_names[axis] for axis in axes)
                size = array.shape[dim] // num_parts(self.plan.mesh, axes)
                array = jax.lax.dynamic_slice_in_dim(array, jax.lax.axis_index(names) * size, size, axis=dim)
        return array

    def _operator(
        self,
        number: int,
        equation: Equation,
        planned: OperatorPlan,
        operands: Sequence[Array],
        called: dict[int, Array],
    ) -> Sequence[Array]:
        # A mark has done its work in the plan; only a weight's mark requires something to be run.
        if equation.primitive is mark_p:
            # In a pipeline the backward pass is a program of its own, which gathers weights anyway: no cotangent is left then.
            copies = isinstance(equation.params["mark"], WeightMark) and len(operands) > 1
            return (late_copy(operands[0], operands[1]), operands[1]) if copies else operands
        if self.step.graph.operators[number].name in IDENTITIES:
            return equation.primitive.bind(*operands, **equation.params)
        if self.step.graph.operators[number].name == SHARD_MAP:
            return self._island(self.step.graph.operators[number].operation, equation.bodies[0], operands)
        if equation.bodies:
            return _CONTROL[str(equation.primitive.name)](self, equation, planned, operands)
        operation = self.step.graph.operators[number].operation
        task = local_task.LocalTask(
            equation.primitive, operation, rule_for(operation), planned.assignment, self.plan.mesh
        )
        if self.island is not None and operation.name in NAMING:
            shapes = [spec.shape for spec in operation.results]
            return self.island.run(equation.primitive, equation.params, operands, shapes)
        if operation.name in local_task.HOST_CALLS and self.island is None and self.plan.mesh.num_devices > 1:
            return self._call_once(task, self.step.graph.operators[number], operands, called)
        # A host operator gets the same slices; only the place of its computation differs.
        with place_of_work(equation.on_host):
            return local_equations.run(task, local_task.DevicePosition(self.axis_names), operands)

    def _call_once(
        self, task: local_task.LocalTask, operator: Operator, operands: Sequence[Array], called: dict[int, Array]
    ) -> list[Array]:
        """A callback; it reads what others have `called` from the first device, to which nothing need be sent."""
        own = [called.get(tensor, array) for tensor, array in zip(operator.operands, operands, strict=True)]
        results = local_task.call_once(task, self.axis_names, own)
        if len(local_task.first_of_processes(task.mesh.ranks)) == 1:
            called.update(zip(operator.results, results, strict=True))
        return local_task.sent_from_first(results, self.axis_names)

    def _body(self, body: Ingested, plan: Plan) -> Callable[..., list[Array]]:
        return rank_program(body, plan, self.axis_names, self.norms, self.island)

    def _island(self, operation: Operation, body: Ingested, operands: Sequence[Array]) -> Sequence[Array]:
        """The body of an island, in which every device has what it has."""
        island, mesh = operation.params["island"], self.plan.mesh
        around = {} if self.island is None else self.island.runs
        runs = island.runs(mesh)
        axes = IslandAxes({**around, **{name: runs[name] for name in island.axes}}, self.axis_names)
        return rank_program(body, plan_of_body(body.graph, mesh), self.axis_names, None, axes)(*operands)

    def _scan(self, equation: Equation, planned: OperatorPlan, operands: Sequence[Array]) -> Sequence[Array]:
        params = equation.params
        num_consts, num_carry = scan_numbers(params)
        first_x = num_consts + num_carry
        consts, init, xs = operands[:num_consts], operands[num_consts:first_x], operands[first_x:]
        body = self._body(equation.bodies[0], planned.bodies[0])

        def step(carry: Sequence[Array], x: Sequence[Array]) -> tuple[list[Array], list[Array]]:
            # Carry first, as `lax.scan` hands them to the next round.
            results = body(*consts, *carry, *x)
            return results[:num_carry], results[num_carry:]

        carry, ys = jax.lax.scan(
            step, list(init), list(xs), length=params["length"], reverse=params["reverse"], unroll=params["unroll"]
        )
        return [*carry, *ys]

    def _while(self, equation: Equation, planned: OperatorPlan, operands: Sequence[Array]) -> Sequence[Array]:
        num_cond, num_body = equation.params["cond_nconsts"], equation.params["body_nconsts"]
        cond_consts, body_consts = operands[:num_cond], operands[num_cond : num_cond + num_body]
        cond, body = (self._body(body, plan) for body, plan in zip(equation.bodies, planned.bodies, strict=True))
        return jax.lax.while_loop(
            lambda carry: cond(*cond_consts, *carry)[0],
            lambda carry: body(*body_consts, *carry),
            list(operands[num_cond + num_body :]),
        )

    def _cond(self, equation: Equation, planned: OperatorPlan, operands: Sequence[Array]) -> Sequence[Array]:
        branches = [self._body(body, plan) for body, plan in zip(equation.bodies, planned.bodies, strict=True)]
        # A predicate is whole on every rank, so all ranks take the same branch and meet in its collectives.
        return jax.lax.switch(operands[0], branches, *operands[1:])

    def _transfer(self, transfers: Sequence[TransferGroup], values: Values) -> None:
        for group in transfers:
            arrays = [values[transfer.tensor][transfer.redistribution.source] for transfer in group]
            with self._named(group):
                moved = self._move(group, arrays)
            for transfer, array in zip(group, moved, strict=True):
                values[transfer.tensor][transfer.redistribution.target] = array

    def _named(self, group: TransferGroup) -> AbstractContextManager[None]:
        """A name scope that says in profiles for what a group is sent."""
        transfer = group[0]
        path = self.step.graph.operators[transfer.operator].path if transfer.operator >= 0 else ""
        reason = "" if transfer.resharding is None else transfer.resharding.reason
        more = f" and {len(group) - 1} more" if len(group) > 1 else ""
        return communication_scope(f"{reason or 'resharding'}{more}", path)

    def _move(self, group: TransferGroup, arrays: Sequence[Array]) -> list[Array]:
        """Send one tensor, or several in common buffers."""
        dtype, resharding = arrays[0].dtype, group[0].resharding
        is_short = jnp.issubdtype(dtype, jnp.floating) and dtype.itemsize < 4
        if resharding is not None and resharding.in_float32 and is_short:
            # Sums of short floats over many ranks lose digits, and XLA:CPU has no bfloat16 reductions of its own.
            arrays = [array.astype(jnp.float32) for array in arrays]
        moved = apply_redistributions(arrays, [transfer.redistribution for transfer in group], self.axis_names)
        # Scaled before the cast back, so that a mean is rounded once.
        scaled = map(_scaled, moved, group)
        return [array if array.dtype == dtype else array.astype(dtype) for array in scaled]


def _scaled(array: Array, transfer: Transfer) -> Array:
    scale = 1.0 if transfer.resharding is None else transfer.resharding.scale
    return array if scale == 1.0 else array * jnp.asarray(scale, array.dtype)


# One object: a new one would be built for every operator.
_NO_SCOPE = nullcontext()

_CONTROL: Mapping[str, Callable[..., Sequence[Array]]] = {
    "scan": _Runner._scan,
    "while": _Runner._while,
    "cond": _Runner._cond,
}
