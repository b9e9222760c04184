"""Moving data between the ranks of a group, and the derivatives of that.

Each collective is a small frozen description (`AllReduce(group, op)`) with two methods on this rank's arrays: what it does
going forward, and what its derivative does with the cotangents. `run` carries it out wherever it is called:

* in a function that is being compiled it becomes part of that program, which thereby becomes a joint one;
* otherwise it is a program of its own, compiled once per description and shapes, over the devices of the group only.

What they are made of is in `sporax.runtime.ranks.exchanges`. Only the members of a group take part: the programs of other ranks
need not contain the collective at all. Programs of different ranks may differ (``x[rank]``);
`sporax.runtime.ranks.collective_order` sees to it that they exchange data in one order.

Derivatives are MindSpore's: an all-reduced sum has an all-reduced sum as derivative, so a loss that is summed over ranks
and not divided counts once for each of them. Forward mode is their transpose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import ClassVar, Generic, NamedTuple, TypeAlias, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.tree_util import PyTreeDef

from sporax.base.errors import For, SporaxRuntimeError, SporaxValueError
from sporax.base.lazy_members import dataclass
from sporax.runtime import world as distributed
from sporax.runtime.ranks import groups, joint_arrays, local_ranks
from sporax.runtime.ranks.collective_order import Tree, ordered
from sporax.runtime.ranks.exchanges import Axis, check_mode, from_root, gather, reduce, reduce_scatter, swap
from sporax.runtime.ranks.groups import Group
from sporax.runtime.session import World
from sporax.runtime.state import frames

REDUCTIONS = ("sum", "prod", "max", "min")

Arrays: TypeAlias = "jax.Array | tuple[jax.Array, ...]"
"""One array, or several: what a collective gives."""
Cotangents: TypeAlias = "tuple[jax.Array | None, ...]"
"""One for each argument; None where there is none."""
ResultT = TypeVar("ResultT", bound=Arrays)


class Saved(NamedTuple):
    """What the way forward leaves for derivatives: what a collective took, and what it gave."""

    arrays: tuple[jax.Array, ...]
    results: Tree


@dataclass(frozen=True)
class Collective(Generic[ResultT]):
    """Base of all descriptions.

    Attributes:
        group: who takes part.
    """

    group: Group

    is_symmetric: ClassVar[bool] = False
    """Whether all members do the same, so that one program can be that of several ranks."""
    is_linear: ClassVar[bool] = True
    """Whether derivatives of `backward` with respect to the arrays are zero, so that there are derivatives of any order."""

    def forward(self, axis: Axis, *arrays: jax.Array) -> ResultT:
        """The results on this rank."""
        raise NotImplementedError

    def backward(self, axis: Axis, saved: Saved, cotangents: ResultT) -> tuple[jax.Array, ...]:
        """Cotangents of the arrays, given those of the results. Linear in these."""
        raise NotImplementedError

    def push(self, axis: Axis, saved: Saved, tangents: tuple[jax.Array, ...]) -> ResultT:
        """Tangents of the results, given those of the arrays: the transpose of `backward`."""
        return self.forward(axis, *tangents)


def meet() -> World:
    """Join the job (`distributed.start`), and let all ranks exchange a first word.

    The transport connects ranks at their first exchange, all that the program's devices belong to. After this, messages
    between some of them need not wait for the others.
    """
    joined = distributed.world()
    if joined is not None:
        return joined
    world = distributed.start()
    run(Barrier(groups.find(None)))
    return world


def run(collective: Collective[ResultT], *arrays: jax.Array) -> ResultT:
    """Carry out a collective on this rank's arrays; differentiable.

    Raises:
        SporaxRuntimeError: this rank is not a member of the group.
        SporaxTypeError, SporaxValueError: the arrays do not fit the collective.
        ReverseModeNeeded: inside `forward_mode_refused`.
    """
    # Checked before anything is traced, so that the error appears at the user's line.
    check_mode()
    collective.group.position(type(collective).__name__)
    if not collective.is_symmetric or collective.group.size not in (1, groups.find(None).size):
        local_ranks.refuse(type(collective).__name__)
    # Dividing the product by one's own factor would fail at zeros: gathered, JAX knows the derivative of a product.
    if isinstance(collective, AllReduce) and collective.op == "prod" and jnp.issubdtype(arrays[0].dtype, jnp.inexact):
        product = jnp.prod(run(AllGather(collective.group), arrays[0][None]), 0, dtype=arrays[0].dtype)
        return cast("ResultT", product)
    return cast("ResultT", ordered(_Part(collective), *arrays))


def own_position(group: Group, what: str) -> int:
    """Group rank of this process, for `what` is done by it alone.

    Raises:
        SporaxRuntimeError: it is not a member, or acts for several ranks.
    """
    if group.size > 1:
        local_ranks.refuse(what)
    return group.position(what)


@dataclass(frozen=True)
class _Part(Generic[ResultT]):
    """A collective, or a linear map of its derivatives.

    The derivative is a linear map, "backward", whose own derivative is its transpose, "push", whose derivative is "backward":
    so derivatives of any order, and in forward mode, are exchanges again. (Masks of extrema have the derivative zero.)
    """

    collective: Collective[ResultT]
    method: str = "forward"

    def carry_out(self, *arguments: Tree) -> Arrays:
        """The results of the method."""
        return _execute(self.collective, self.method, *arguments)

    def pull_back(self, arguments: Tree, results: Arrays, cotangents: Tree) -> Cotangents:
        """Of "forward" by "backward"; of a linear map, whose first argument is what "forward" saved, by its transpose."""
        values = jax.tree.map(_number, cotangents)
        if self.method != "forward":
            if not self.collective.is_linear:
                raise For(type(self.collective).__name__).state_error(
                    "the order of a derivative must be 1, but that of a derivative is requested"
                )
            transpose = "push" if self.method == "backward" else "backward"
            return None, ordered(_Part(self.collective, transpose), arguments[0], values)
        # Without a float there is no cotangent. All ranks see the same dtypes, so none of them waits here.
        is_float = [jnp.issubdtype(array.dtype, jnp.inexact) for array in arguments]
        if not any(is_float):
            return (None,) * len(arguments)
        pulled_back = ordered(_Part(self.collective, "backward"), Saved(arguments, results), values)
        return tuple(array if known else None for known, array in zip(is_float, pulled_back, strict=True))


def _number(cotangent: jax.Array | np.ndarray) -> jax.Array | np.ndarray:
    """Integers have no tangent space in JAX; the derivative of a collective takes zeros instead."""
    return jnp.zeros(cotangent.shape, jnp.float32) if cotangent.dtype == jax.dtypes.float0 else cotangent


def _execute(collective: Collective[ResultT], method: str, *arguments: Arrays) -> Arrays:
    """Run a method of a collective inside the program that is being compiled, or as a program of its own."""
    group = collective.group
    compute: Callable[..., Arrays] = getattr(collective, method)
    # Nothing to exchange, and no program that others would have to join.
    if group.size == 1:
        return compute(Axis(1, (0,), 0), *arguments)
    # Inside a joint program positions count over all devices; in a program of its own, over the group's.
    local_ranks.need(exchange=True)
    if frames.compiling():
        frames.note_communication(group.ranks)
        everywhere = Axis(len(joint_arrays.all_devices()), group.ranks, group.position())
        return compute(everywhere, *arguments)
    leaves, tree = jax.tree.flatten(arguments)
    check_known(type(collective).__name__, leaves)
    # Only the members' devices: ranks outside of the group compile and run nothing.
    devices = tuple(joint_arrays.all_devices()[rank] for rank in group.ranks)
    program = _own_program(collective, method, tree, devices)
    inputs = [joint_arrays.to_joint(leaf, devices) for leaf in leaves]
    results = joint_arrays.run(program, type(collective).__name__, devices, inputs)
    local: Arrays = jax.tree.map(joint_arrays.to_local, results)
    return local


def check_known(name: str, arrays: Sequence[object]) -> None:
    """Check that arrays have values, as those of a collective that is a program of its own must.

    Raises:
        SporaxRuntimeError: they belong to a function that JAX compiles by itself.
    """
    if any(isinstance(array, jax.core.Tracer) for array in arrays):
        raise SporaxRuntimeError(
            f"For '{name}', a collective must be run step by step or in a program compiled by Sporax (GRAPH_MODE, @jit), "
            "but it is inside a transformation that JAX compiles by itself."
        )


@cache
def _own_program(
    collective: Collective[ResultT], method: str, tree: PyTreeDef, devices: joint_arrays.Devices
) -> Callable[..., tuple[Arrays, jax.Array]]:
    """One collective as a program over the devices of its group."""
    group = collective.group
    axis = Axis(group.size, tuple(range(group.size)), group.position())
    compute: Callable[..., Arrays] = getattr(collective, method)

    def program(leaves: list[jax.Array]) -> Arrays:
        return compute(axis, *jax.tree.unflatten(tree, leaves))

    # The name that profiles and XLA's messages show.
    program.__name__ = program.__qualname__ = type(collective).__name__
    compiled: Callable[..., tuple[Arrays, jax.Array]] = joint_arrays.compile_jointly(program, devices)
    return compiled


# ----------------------------------------------------------------------------------------------------- the collectives


@dataclass(frozen=True)
class AllReduce(Collective[jax.Array]):
    """Element-wise combination, everywhere."""

    is_symmetric = True

    op: str = "sum"

    def forward(self, axis: Axis, *arrays: jax.Array) -> jax.Array:
        """One array in, one array out, of the same shape."""
        return reduce(axis, arrays[0], self.op)

    def backward(self, axis: Axis, saved: Saved, cotangents: jax.Array) -> tuple[jax.Array, ...]:
        """Sum: the sum of the cotangents. Max, min: that sum where this rank had the extremum. (Prod: see `run`.)"""
        total = reduce(axis, cotangents, "sum")
        return (total if self.op == "sum" else total * (saved.arrays[0] == saved.results).astype(cotangents.dtype),)

    def push(self, axis: Axis, saved: Saved, tangents: tuple[jax.Array, ...]) -> jax.Array:
        """The sum of the tangents; of max, min: of ranks that had the extremum."""
        (tangent,) = tangents
        return reduce(
            axis,
            tangent if self.op == "sum" else tangent * (saved.arrays[0] == saved.results).astype(tangent.dtype),
            "sum",
        )


@dataclass(frozen=True)
class AllGather(Collective[jax.Array]):
    """Concatenation along dim 0, everywhere."""

    is_symmetric = True

    def forward(self, axis: Axis, *arrays: jax.Array) -> jax.Array:
        """(d0, …) in, (n·d0, …) out."""
        return gather(axis, arrays[0])

    def backward(self, axis: Axis, saved: Saved, cotangents: jax.Array) -> tuple[jax.Array, ...]:
        """Each member gets the sum of what all have for its piece."""
        return (reduce_scatter(axis, cotangents, "sum"),)


@dataclass(frozen=True)
class ReduceScatter(Collective[jax.Array]):
    """Element-wise combination, of which each member gets a piece of dim 0."""

    is_symmetric = True

    op: str = "sum"

    def forward(self, axis: Axis, *arrays: jax.Array) -> jax.Array:
        """(d0, …) in, (d0/n, …) out."""
        check_divisible("ReduceScatter", arrays[0], 0, axis.count)
        return reduce_scatter(axis, arrays[0], self.op)

    def backward(self, axis: Axis, saved: Saved, cotangents: jax.Array) -> tuple[jax.Array, ...]:
        """The cotangents of all pieces.

        Raises:
            SporaxTypeError: of another combination than the sum, for which MindSpore has no derivative either.
        """
        For("ReduceScatter").refuse_type(self.op != "sum", f"only 'sum' has a derivative, but 'op' is '{self.op}'")
        return (gather(axis, cotangents),)


@dataclass(frozen=True)
class Broadcast(Collective[tuple[jax.Array, ...]]):
    """The arrays of one member, everywhere.

    Attributes:
        root: its world rank.
    """

    is_symmetric = True

    root: int = 0

    def forward(self, axis: Axis, *arrays: jax.Array) -> tuple[jax.Array, ...]:
        """Any number of arrays."""
        return tuple(from_root(axis, array, self.group.ranks.index(self.root)) for array in arrays)

    def backward(self, axis: Axis, saved: Saved, cotangents: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        """The cotangents as they are, as in MindSpore."""
        return tuple(cotangents)

    def push(self, axis: Axis, saved: Saved, tangents: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        """The tangents as they are: MindSpore's forward mode is the transpose of its reverse mode."""
        return tuple(tangents)


@dataclass(frozen=True)
class Reduce(Collective[jax.Array]):
    """Element-wise combination, for one member; the others get one 0.

    Attributes:
        dest: its position in the group.
    """

    op: str = "sum"
    dest: int = 0

    def forward(self, axis: Axis, *arrays: jax.Array) -> jax.Array:
        """One array in; an array of the same shape, or of shape (1,), out."""
        # Shapes may differ between ranks, since every rank compiles its own program.
        return _only_at(axis, self.dest, reduce(axis, arrays[0], self.op))

    def backward(self, axis: Axis, saved: Saved, cotangents: jax.Array) -> tuple[jax.Array, ...]:
        """The destination's cotangent, everywhere."""
        own = cotangents if axis.position == self.dest else jnp.zeros_like(saved.arrays[0])
        return (from_root(axis, own, self.dest),)

    def push(self, axis: Axis, saved: Saved, tangents: tuple[jax.Array, ...]) -> jax.Array:
        """The sum of the tangents, at the destination."""
        return _only_at(axis, self.dest, reduce(axis, tangents[0], "sum"))


@dataclass(frozen=True)
class AllToAll(Collective[jax.Array]):
    """Divide along one dim, exchange the pieces, put together along another."""

    is_symmetric = True

    split_dim: int = 0
    concat_dim: int = 0

    def forward(self, axis: Axis, *arrays: jax.Array) -> jax.Array:
        """The split dim shrinks by the number of members, the other grows by it."""
        check_divisible("AlltoAll", arrays[0], self.split_dim, axis.count)
        return swap(axis, arrays[0], self.split_dim, self.concat_dim)

    def backward(self, axis: Axis, saved: Saved, cotangents: jax.Array) -> tuple[jax.Array, ...]:
        """The way back."""
        return (swap(axis, cotangents, self.concat_dim, self.split_dim),)


@dataclass(frozen=True)
class Scatter(Collective[jax.Array]):
    """Pieces of one member's array, one to each.

    Attributes:
        src: the member's world rank; the others bring an array of the same shape, whose values do not matter.
    """

    src: int = 0

    def forward(self, axis: Axis, *arrays: jax.Array) -> jax.Array:
        """(d0, …) in, (d0/n, …) out."""
        check_divisible("CollectiveScatter", arrays[0], 0, axis.count)
        rows = arrays[0].shape[0] // axis.count
        # XLA has no scatter among devices: of an all-to-all each rank keeps the piece of the source.
        return lax.slice_in_dim(swap(axis, arrays[0]), *_span(self.group.ranks.index(self.src), rows))

    def backward(self, axis: Axis, saved: Saved, cotangents: jax.Array) -> tuple[jax.Array, ...]:
        """The source gets all cotangents, the others zeros."""
        # Every rank takes part in the exchange, also those that do not use its result.
        gathered = gather(axis, cotangents)
        return (gathered if axis.position == self.group.ranks.index(self.src) else jnp.zeros_like(gathered),)


@dataclass(frozen=True)
class Gather(Collective[jax.Array]):
    """Concatenation along dim 0, for one member; the others get one 0.

    Attributes:
        dest: its world rank.
    """

    dest: int = 0

    def forward(self, axis: Axis, *arrays: jax.Array) -> jax.Array:
        """(d0, …) in; (n·d0, …), or (1,), out."""
        return _only_at(axis, self.group.ranks.index(self.dest), gather(axis, arrays[0]))

    def backward(self, axis: Axis, saved: Saved, cotangents: jax.Array) -> tuple[jax.Array, ...]:
        """Each member gets its piece of the destination's cotangent."""
        (array,), dest = saved.arrays, self.group.ranks.index(self.dest)
        rows, shape = array.shape[0], (array.shape[0] * axis.count, *array.shape[1:])
        own = cotangents if axis.position == dest else jnp.zeros(shape, array.dtype)
        # The transpose of a gather is a scatter, again as a piece of an all-to-all.
        return (lax.slice_in_dim(swap(axis, own), *_span(dest, rows)),)


@dataclass(frozen=True)
class Barrier(Collective[jax.Array]):
    """No one goes on before all have come."""

    is_symmetric = True

    def forward(self, axis: Axis, *arrays: jax.Array) -> jax.Array:
        """Takes nothing, gives one number."""
        return reduce(axis, jnp.zeros((), jnp.int32), "sum")

    def backward(self, axis: Axis, saved: Saved, cotangents: jax.Array) -> tuple[jax.Array, ...]:
        """Nothing to derive."""
        return ()


def _only_at(axis: Axis, position: int, array: jax.Array) -> jax.Array:
    # MindSpore gives the other ranks a single 0 as well.
    return array if axis.position == position else jnp.zeros((1,), array.dtype)


def _span(index: int, rows: int) -> tuple[int, int]:
    return index * rows, (index + 1) * rows


def check_divisible(name: str, array: jax.Array, dim: int, count: int) -> None:
    """Check that a dim can be sharded into equal pieces.

    Raises:
        SporaxValueError: it cannot, or there is no such dim.
    """
    if not -array.ndim <= dim < array.ndim:
        raise SporaxValueError(f"For '{name}', dim {dim} must exist, but the tensor has shape {array.shape}.")
    if array.shape[dim] % count:
        raise SporaxValueError(
            f"For '{name}', dim {dim} must be divisible by the {count} ranks of the group, but the shape is {array.shape}."
        )


PLACED = "placed"
"""What the trace of a program notes (`state.note_tag`) that has calls which one worker computes for all."""


def agree(variables: Iterable[frames.Variable]) -> None:
    """Give the variables of such a program the values that worker 0 has. All workers must request the same ones."""
    group = groups.find(None)
    if group.size > 1:
        for variable in variables:
            (variable.raw,) = run(Broadcast(group), variable.raw)


def of_first_worker(arrays: list[jax.Array]) -> list[jax.Array]:
    """The data of a step of such a program, as worker 0 has them."""
    group = groups.find(None)
    return list(run(Broadcast(group), *arrays)) if group.size > 1 and arrays else arrays
