"""One equation on one rank's slices.

The planner's rules say how a primitive is cut; here it is bound on the slices. Most primitives just run, with the
parameters that depend on shapes adjusted. The rest have a *recipe*: counting from the slice's place, looking up what the
rank owns, fetching borders from neighbours. What a rank knows of its place is a `Position`, so the same code runs inside
`shard_map` and, rank by rank, in tests.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import JaxprEqn, Literal, Primitive
from jax.extend.random import threefry2x32_p

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.placement import Axes, Placement, num_parts
from sporax.planner.rules import Assignment, Kind, Operation, Rule, TensorSpec, local_operation, placements

Array = Any
"""A jax.Array or a tracer."""


class Position(Protocol):
    """What a rank knows of its place on the mesh, and how it reaches others."""

    def index(self, axes: Axes) -> Any:
        """Where it stands along `axes`, as one row-major number (an int or a traced scalar)."""
        ...

    def permute(self, x: Array, axes: Axes, pairs: Sequence[tuple[int, int]]) -> Array:
        """Send `x` from each pair's first place along `axes` to its second; zeros where nothing arrives."""
        ...


@dataclass(frozen=True, slots=True)
class DevicePosition:
    """The place of a device inside `shard_map`.

    Attributes:
        names: the name of each mesh axis.
    """

    names: tuple[str, ...]

    def index(self, axes: Axes) -> Any:
        """Row-major number along `axes`, traced."""
        return jax.lax.axis_index(self._names(axes)) if axes else 0

    def permute(self, x: Array, axes: Axes, pairs: Sequence[tuple[int, int]]) -> Array:
        """One collective-permute."""
        return jax.lax.ppermute(x, self._names(axes), pairs)

    def _names(self, axes: Axes) -> tuple[str, ...]:
        return tuple(self.names[axis] for axis in axes)


@dataclass(frozen=True, slots=True)
class Task:
    """One equation to run on slices.

    Attributes:
        primitive: what is bound.
        operation: the whole operation, with global shapes.
        rule: its rule.
        assignment: how it is cut.
        mesh: by what.
    """

    primitive: Primitive
    operation: Operation
    rule: Rule
    assignment: Assignment
    mesh: DeviceMatrix

    def run(self, position: Position, slices: Sequence[Array]) -> list[Array]:
        """Compute the slices (or parts) of the results from the slices of the operands.

        Raises:
            SporaxValueError: the assignment is not legal.
        """
        local = local_operation(self.operation, self.rule, self.assignment, self.mesh)
        recipe = _RECIPES[self.rule.recipe] if any(self.assignment) else _plain
        return recipe(self, local, position, list(slices))

    def bind(self, operands: Sequence[Array], params: Any) -> list[Array]:
        """The primitive itself, always with a list of results."""
        outputs = self.primitive.bind(*operands, **params)
        return list(outputs) if self.primitive.multiple_results else [outputs]

    def operand_placement(self, number: int) -> Placement:
        """Where an operand lies."""
        return placements(self.rule, self.assignment)[0][number]

    def result_placement(self, number: int) -> Placement:
        """Where a result lies."""
        return placements(self.rule, self.assignment)[1][number]

    def axes_of(self, kind: Kind) -> Axes:
        """All axes that are assigned to factors of one kind."""
        factors = zip(self.rule.factors, self.assignment, strict=True)
        return tuple(axis for factor, axes in factors if factor.kind is kind for axis in axes)


def describe(eqn: JaxprEqn) -> Operation:
    """What the planner is told of an equation."""
    return Operation(
        operation_name(eqn),
        tuple(_spec(var) for var in eqn.invars),
        tuple(_spec(var) for var in eqn.outvars),
        eqn.params,
    )


def operation_name(eqn: JaxprEqn) -> str:
    """The primitive's name; foreign code adds what it calls, so that rules can be registered for one target."""
    name = str(eqn.primitive.name)
    target = eqn.params.get("target_name") if name == "ffi_call" else None
    if name == "pallas_call":
        target = getattr(eqn.params.get("name_and_src_info"), "name", None) or eqn.params.get("name")
    return f"{name}:{target}" if target else name


def _spec(var: Any) -> TensorSpec:
    aval = var.aval
    constant = None
    if isinstance(var, Literal) and np.ndim(var.val) == 0 and not hasattr(var.val, "_prng_key"):
        constant = complex(var.val)
    shape, dtype = getattr(aval, "shape", ()), getattr(aval, "dtype", "token")
    return TensorSpec(tuple(shape), str(dtype), int(getattr(dtype, "itemsize", 0)), constant)


# ----------------------------------------------------------------------------------------------------------- recipes

Recipe = Callable[[Task, Operation, Position, list[Array]], list[Array]]
"""From the task, the local operation, the position and the slices to the results."""


def _plain(task: Task, local: Operation, position: Position, slices: list[Array]) -> list[Array]:
    return task.bind(slices, local.params)


def _iota(task: Task, local: Operation, position: Position, slices: list[Array]) -> list[Array]:
    """Count from the slice's place."""
    dim = local.params["dimension"]
    counts = task.bind(slices, local.params)[0]
    start = position.index(task.result_placement(0).dims[dim]) * local.results[0].shape[dim]
    return [counts + jnp.asarray(start, counts.dtype)]


def _place_numbers(task: Task, local: Operation, position: Position, dims: range) -> tuple[Array, Array]:
    """High and low words of the row-major number that each element of the slice has in the whole result.

    Only dimensions in `dims` count.
    """
    whole, shape = task.operation.results[0].shape, local.results[0].shape
    placement = task.result_placement(0)
    number = jnp.zeros([shape[dim] for dim in dims], jnp.uint64)
    for place, dim in enumerate(dims):
        counts = jax.lax.broadcasted_iota(jnp.uint64, number.shape, place)
        start = jnp.asarray(position.index(placement.dims[dim]), jnp.uint64) * np.uint64(shape[dim])
        number = number + (counts + start) * np.uint64(math.prod(whole[dim + 1 : dims.stop]))
    return (number >> np.uint64(32)).astype(jnp.uint32), number.astype(jnp.uint32)


def _iota_2x32(task: Task, local: Operation, position: Position, slices: list[Array]) -> list[Array]:
    return list(_place_numbers(task, local, position, range(local.results[0].num_dims)))


def _random_bits(task: Task, local: Operation, position: Position, slices: list[Array]) -> list[Array]:
    """Threefry: the bits of an element are a hash of the key and of the element's number in the whole tensor."""
    num_batch = local.operands[0].num_dims
    high, low = _place_numbers(task, local, position, range(num_batch, local.results[0].num_dims))
    words = jax.random.key_data(slices[0])
    words = words.reshape(*words.shape[:-1], *(1,) * high.ndim, 2)
    shape = local.results[0].shape
    keys = (jnp.broadcast_to(words[..., word], shape) for word in (0, 1))
    first, second = threefry2x32_p.bind(*keys, jnp.broadcast_to(high, shape), jnp.broadcast_to(low, shape))
    width = local.params["bit_width"]
    if width == 64:
        return [(first.astype(jnp.uint64) << np.uint64(32)) | second.astype(jnp.uint64)]
    return [(first ^ second).astype(f"uint{width}")]


def _reverse(task: Task, local: Operation, position: Position, slices: list[Array]) -> list[Array]:
    """Reverse the slice, and send it to the opposite place along every reversed dimension that is cut."""
    x = task.bind(slices, local.params)[0]
    for dim in local.params["dimensions"]:
        axes = task.operand_placement(0).dims[dim]
        if axes:
            parts = num_parts(task.mesh, axes)
            x = position.permute(x, axes, [(place, parts - 1 - place) for place in range(parts)])
    return [x]


def _gather(task: Task, local: Operation, position: Position, slices: list[Array]) -> list[Array]:
    """Look up what this rank owns; zeros (or what an outside index gives, once) elsewhere."""
    operand, indices = slices
    numbers, params = local.params["dimension_numbers"], dict(local.params)
    placement = task.operand_placement(0)
    columns = [
        (column, dim)
        for column, dim in enumerate(numbers.start_index_map)
        if placement.dims[dim] and local.params["slice_sizes"][dim] != local.operands[0].shape[dim]
    ]
    if not columns:
        return task.bind(slices, params)
    mode, fills = params["mode"], "FILL" in str(params["mode"])
    inside, owned = jnp.ones(indices.shape[:-1], bool), jnp.ones(indices.shape[:-1], bool)
    if fills:
        inside = _all_inside(indices, task.operation.operands[0].shape, params)
    for column, dim in columns:
        place, mine = _local_index(task, local, position, indices[..., column], dim)
        indices = indices.at[..., column].set(place)
        owned = owned & mine
    params["unique_indices"] = False
    values = task.bind([operand, indices], params)[0]
    values = jnp.where(_beside_window(owned & inside, numbers.offset_dims, values.ndim), values, jnp.zeros_like(values))
    if fills:
        outside = _beside_window(~inside & (position.index(task.axes_of(Kind.REDUCE)) == 0), numbers.offset_dims, values.ndim)
        values = jnp.where(outside, _fill_value(params["fill_value"], values.dtype), values)
    del mode
    return [values]


def _local_index(task: Task, local: Operation, position: Position, index: Array, dim: int) -> tuple[Array, Array]:
    """An index into a cut dimension, counted from the slice's start and kept inside it, and whether the slice has it."""
    whole, size = task.operation.operands[0].shape[dim], local.operands[0].shape[dim]
    index = jnp.clip(index.astype(jnp.int64), 0, whole - 1)
    place = index - position.index(task.operand_placement(0).dims[dim]) * size
    return jnp.clip(place, 0, size - 1), (place >= 0) & (place < size)


def _all_inside(indices: Array, shape: Sequence[int], params: Any) -> Array:
    """Whether each index keeps its window inside the tensor."""
    dims = params["dimension_numbers"].start_index_map
    limits = np.array([shape[dim] - params["slice_sizes"][dim] for dim in dims])
    wide = indices.astype(jnp.int64)
    return jnp.all((wide >= 0) & (wide <= limits), axis=-1)


def _beside_window(mask: Array, window_dims: Sequence[int], num_dims: int) -> Array:
    """A mask over index dimensions, with dimensions of size 1 where the window stands."""
    return jnp.expand_dims(mask, tuple(window_dims)) if num_dims > mask.ndim else mask


def _fill_value(fill: Any, dtype: Any) -> Array:
    """What gather answers outside: the value that was given, else NaN, the lowest integer, or the highest unsigned one."""
    if fill is not None:
        return jnp.asarray(fill, dtype)
    if jnp.issubdtype(dtype, jnp.inexact):
        return jnp.asarray(jnp.nan, dtype)
    if dtype == jnp.bool_:
        return jnp.asarray(True)
    limits = jnp.iinfo(dtype)
    return jnp.asarray(limits.min if jnp.issubdtype(dtype, jnp.signedinteger) else limits.max, dtype)


def _scatter(task: Task, local: Operation, position: Position, slices: list[Array]) -> list[Array]:
    """Write what falls into this rank's slice. Where ranks hold different updates, one of them holds the operand too."""
    operand, indices, updates = slices
    params = dict(local.params)
    reduced = task.axes_of(Kind.REDUCE)
    if reduced:
        neutral = _neutral(local.name, operand.dtype)
        if neutral is not None:
            operand = jnp.where(position.index(reduced) == 0, operand, jnp.full_like(operand, neutral))
    dims = params["dimension_numbers"].scatter_dims_to_operand_dims
    placement = task.operand_placement(0)
    clips = "CLIP" in str(params["mode"])
    for column, dim in enumerate(dims):
        if not placement.dims[dim] or not _is_pointed(params["dimension_numbers"], local, dim):
            if clips:
                indices = indices.at[..., column].set(_clip_window(task, indices[..., column], dim))
            continue
        index = indices[..., column].astype(jnp.int64)
        whole, size = task.operation.operands[0].shape[dim], local.operands[0].shape[dim]
        index = jnp.clip(index, 0, whole - 1) if clips else index
        place = index - position.index(placement.dims[dim]) * size
        place = jnp.where((place >= 0) & (place < size), place, -1)
        indices = indices.astype(jnp.int64).at[..., column].set(place)
    params["mode"] = jax.lax.GatherScatterMode.FILL_OR_DROP
    params["indices_are_sorted"] = params["unique_indices"] = False
    return task.bind([operand, indices, updates], params)
