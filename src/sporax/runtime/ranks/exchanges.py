"""Exchanges inside one program: the building blocks of every collective, on this rank's arrays.

Problem: the members of a group are some of the places along the program's mesh axis, and XLA's collectives want all places
divided into groups of equal size.
Method: `Axis` holds the axis, the members and this rank's position. Where the group divides the axis, an exchange is XLA's
collective with replica groups; where it does not fit that (3 of 8), it goes round the members in rotations of `lax.ppermute`.
Each exchange follows the one before it (`sporax.runtime.ranks.collective_order`), so that programs of different ranks exchange
data in one order. In a dry run there are no other members; each is taken to hold what this one holds.
Reference: https://openxla.org/xla/operation_semantics (AllReduce, AllGather, AllToAll, CollectivePermute: replica groups).

Where data may be exchanged between ranks: contexts that forbid it, and checks of them.

A module of its own, since what is differentiated needs it also where no rank exchanges anything.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import jax
import jax.numpy as jnp
from jax import lax

from sporax.base.errors import For, SporaxTypeError
from sporax.base.lazy_members import dataclass
from sporax.lowering.execute.reductions import ALL_REDUCES, FOLDS
from sporax.runtime import world
from sporax.runtime.process import dry_run
from sporax.runtime.ranks import joint_arrays
from sporax.runtime.ranks.collective_order import AXIS, follow, record_collective
from sporax.runtime.session import SESSION, assigned

_LARGEST_IN_PAIRS_BYTES = 2**22
"""Largest message that four members combine in pairs."""
_UNSIGNED = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32, 8: jnp.uint64}


@dataclass(frozen=True, slots=True)
class Axis:
    """Where a collective happens: a mesh axis, and which of its places take part.

    Attributes:
        size: number of places along the axis.
        members: places that take part, in the order of the group.
        position: this rank's among the members.
    """

    size: int
    members: tuple[int, ...]
    position: int

    @property
    def count(self) -> int:
        """Number of members."""
        return len(self.members)

    @property
    def divides(self) -> bool:
        """Whether the places can be divided into groups of this one's size."""
        return self.size % self.count == 0

    @property
    def cover(self) -> list[list[int]] | None:
        """The places divided into groups, of which this is one; None: all places take part, in order."""
        if self.members == tuple(range(self.size)):
            return None
        others = [place for place in range(self.size) if place not in self.members]
        # XLA's reductions take groups of unequal sizes; its other collectives need equal ones.
        step = self.count if self.divides else max(len(others), 1)
        rest = [others[start : start + step] for start in range(0, len(others), step)]
        return [list(self.members), *rest]

    def rotation(self, distance: int) -> list[tuple[int, int]]:
        """Pairs (from, to) in which every member sends to the one `distance` further."""
        return [(place, self.members[(k + distance) % self.count]) for k, place in enumerate(self.members)]


def permute(array: jax.Array, pairs: list[tuple[int, int]]) -> jax.Array:
    """What came along one of the pairs (from, to) of places; zeros where nothing came."""
    if dry_run.simulating():
        return array
    return _noted(lax.ppermute(follow(array), AXIS, pairs))


def _noted(result: jax.Array) -> jax.Array:
    record_collective(result)
    return result


def gather(axis: Axis, array: jax.Array) -> jax.Array:
    """The members' arrays, one after another along dim 0."""
    if axis.count == 1:
        return array
    if dry_run.simulating():
        return jnp.concatenate([array] * axis.count)
    if axis.divides:
        return _noted(lax.all_gather(follow(array), AXIS, axis_index_groups=axis.cover, tiled=True))
    # Round k brings the array of the member that is k places behind; negative indices wrap around.
    pieces = [array] * axis.count
    for distance in range(1, axis.count):
        pieces[axis.position - distance] = permute(array, axis.rotation(distance))
    return jnp.concatenate(pieces)


def swap(axis: Axis, array: jax.Array, split_dim: int = 0, concat_dim: int = 0) -> jax.Array:
    """Divide the array along `split_dim`, give each member a piece, put what comes together along `concat_dim`."""
    if axis.count == 1:
        return array
    if dry_run.simulating():
        return jnp.concatenate([jnp.split(array, axis.count, split_dim)[axis.position]] * axis.count, concat_dim)
    if axis.divides:
        return _noted(
            lax.all_to_all(follow(array), AXIS, split_dim, concat_dim, axis_index_groups=axis.cover, tiled=True)
        )
    # As in `gather`, but every member gets another piece.
    own = jnp.split(array, axis.count, split_dim)
    pieces = [own[axis.position]] * axis.count
    for distance in range(1, axis.count):
        outgoing = own[(axis.position + distance) % axis.count]
        pieces[axis.position - distance] = permute(outgoing, axis.rotation(distance))
    return jnp.concatenate(pieces, concat_dim)


def reduce(axis: Axis, array: jax.Array, op: str) -> jax.Array:
    """The members' arrays combined element by element, the same on all of them."""
    if array.dtype == jnp.bool_:
        # XLA adds no bools: "or" is a maximum, "and" a minimum.
        return reduce(axis, array.astype(jnp.int32), {"sum": "max", "prod": "min"}.get(op, op)).astype(jnp.bool_)
    if axis.count == 1:
        return array
    if op == "prod":
        # JAX has no product over a mesh axis.
        return jnp.prod(gather(axis, array[None]), 0, dtype=array.dtype)
    if op != "sum" and jnp.issubdtype(array.dtype, jnp.complexfloating):
        raise SporaxTypeError(f"For 'AllReduce', complex numbers have no order, so 'op' must not be '{op}'.")
    if dry_run.simulating():
        return array * jnp.asarray(axis.count, array.dtype) if op == "sum" else array
    if _in_pairs(axis, array.nbytes):
        return _reduce_in_pairs(axis, array, {"sum": jnp.add, "max": jnp.maximum, "min": jnp.minimum}[op])
    return _noted(ALL_REDUCES[op](follow(array), AXIS, axis_index_groups=axis.cover))


def _in_pairs(axis: Axis, num_bytes: int) -> bool:
    """Whether exchanges between pairs of members are quicker than one all-reduce.

    They are on CPUs, where gloo sends an all-reduce round a ring: docs/data_parallel.md has figures. Two members send as much
    as in a ring, four send more, which pays as long as the number of messages counts more than their size.
    """
    few = axis.count == 2 or (axis.count == 4 and num_bytes <= _LARGEST_IN_PAIRS_BYTES)
    # Inside of one process nothing is sent.
    return few and joint_arrays.all_devices()[0].platform == "cpu" and world.num_ranks_here() == 1


def _reduce_in_pairs(axis: Axis, array: jax.Array, combine: Callable[[jax.Array, jax.Array], jax.Array]) -> jax.Array:
    """The combination of all members' arrays after log2(members) rounds, in each of which a pair combines what it has.

    Both of a pair compute the same of the same two operands, so all members get the same bits.
    """
    distance = 1
    while distance < axis.count:
        pairs = [(place, axis.members[position ^ distance]) for position, place in enumerate(axis.members)]
        array = follow(array)
        array = combine(array, _noted(lax.ppermute(array, AXIS, pairs)))
        distance *= 2
    return array


def reduce_scatter(axis: Axis, array: jax.Array, op: str) -> jax.Array:
    """The members' arrays combined element by element and sharded along dim 0, one piece to each."""
    if axis.count == 1:
        return array
    native = op == "sum" and axis.divides and array.dtype != jnp.bool_ and world.has_reduce_scatter()
    if native and not dry_run.simulating():
        return _noted(lax.psum_scatter(follow(array), AXIS, axis_index_groups=axis.cover, tiled=True))
    # The same bytes: members exchange their pieces and combine them locally.
    pieces = swap(axis, array).reshape(axis.count, array.shape[0] // axis.count, *array.shape[1:])
    if array.dtype == jnp.bool_:
        op = "or" if op in ("sum", "max") else "and"
    return FOLDS[op](pieces)


def from_root(axis: Axis, array: jax.Array, root: int) -> jax.Array:
    """The array of the member at position `root`, bit by bit: sums of integers change neither NaN nor -0."""
    if axis.count == 1 or dry_run.simulating():
        return array
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        return lax.complex(from_root(axis, array.real, root), from_root(axis, array.imag, root))
    # Bits are sent as unsigned integers: adding zeros to them changes nothing, also for NaN and -0.
    bits_of = _UNSIGNED[array.dtype.itemsize]
    bits = array.astype(bits_of) if array.dtype == jnp.bool_ else lax.bitcast_convert_type(array, bits_of)
    # One program of several ranks gets its position: `lax.axis_index`, which takes nothing, could be computed before it runs.
    if world.num_ranks_here() > 1:
        bits = jnp.where(swap(axis, jnp.arange(axis.count))[0] == root, bits, 0)
    elif axis.position != root:
        bits = jnp.zeros_like(bits)
    total = reduce(axis, bits, "sum")
    return total.astype(jnp.bool_) if array.dtype == jnp.bool_ else lax.bitcast_convert_type(total, array.dtype)


class ReverseModeNeeded(Exception):  # noqa: N818 - nothing is wrong
    """An exchange was met in a function that was to be differentiated in forward mode."""


def forward_mode_refused() -> AbstractContextManager[None]:
    """Context in which exchanges raise `ReverseModeNeeded`: JAX knows their derivatives in reverse mode alone."""
    return assigned(SESSION.tracing, forward_mode=True)


def refused(what: str) -> AbstractContextManager[None]:
    """Context in which exchanges are errors, because not all ranks run what is inside: `what` it is, for the message."""
    return assigned(SESSION.tracing, refused=what)


def check_mode() -> None:
    """Check that data may be exchanged here.

    Raises:
        ReverseModeNeeded: inside `forward_mode_refused`.
        SporaxRuntimeError: inside `refused`.
    """
    check_reverse()
    if what := SESSION.tracing.refused:
        raise For(what).state_error("communication operators must stand outside of it")


def check_reverse() -> None:
    """Check that what comes is not differentiated in forward mode.

    Raises:
        ReverseModeNeeded: inside `forward_mode_refused`.
    """
    if SESSION.tracing.forward_mode:
        raise ReverseModeNeeded
