"""Communication operators as primitives: `ops.AllReduce` and its relatives.

What they do is in `sporax.runtime.ranks.collectives`; here are MindSpore's names, arguments and checks.
Inside a compiled step they are part of it; in PYNATIVE_MODE each is a small program of its own. All take part in
differentiation with MindSpore's rules. Without `init`, or with one rank, a group is this process alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import jax
import numpy as np

from sporax.base.errors import For, SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.ir import RankSumMark
from sporax.lowering import marks as trace_marks
from sporax.lowering.passes import pass_tags
from sporax.mindspore import context
from sporax.mindspore.common import DType, Tensor, wrap
from sporax.mindspore.ops._core.marking import MARKS, warn_unread
from sporax.mindspore.ops._core.operator import PRIMITIVES, Primitive
from sporax.runtime import ranks as between_ranks
from sporax.runtime.ranks import Group, groups
from sporax.runtime.state import frames

WORLD = groups.WORLD_GROUPS[0]
_RUNS_AS_WRITTEN = "communication operators run where and as they are written"


class ReduceOp:
    """Names of the reductions."""

    SUM = "sum"
    MAX = "max"
    MIN = "min"
    PROD = "prod"


_WITHOUT_SIZE = ("Barrier", "Broadcast")
"""Results that do not depend on the number of ranks, where all have the same values."""


class CommunicationPrimitive(Primitive):
    """Base of the communication operators: checks the arguments they share."""

    attribute_names: tuple[str, ...] = ("group",)
    defaults = {"group": WORLD, "op": ReduceOp.SUM}
    ints: tuple[str, ...] = ()
    """Arguments that must be ints."""
    int_lists: tuple[str, ...] = ()
    """Arguments that must be tuples or lists of ints: ranks, or a shape."""
    shape_lists: tuple[str, ...] = ()
    """Arguments that must be tuples or lists of shapes."""
    dtype_names: tuple[str, ...] = ()
    """Arguments that must be dtypes."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # None is the group of all, as in MindSpore's functions.
        if self._attributes["group"] is None:
            self._attributes["group"] = WORLD
        # Only checked here: a group may be made of other ranks later, so it is looked up at each call.
        groups.find(self.group, self.name)

    def _check(self, name: str, value: Any) -> None:
        if name in self.ints:
            check_int(self.name, name, value)
        if name in self.int_lists:
            check_ints(self.name, name, value)
        if name in self.shape_lists:
            for place, shape in enumerate(check_list(self.name, name, value)):
                if any(size < 0 for size in check_ints(self.name, f"{name}[{place}]", shape)):
                    raise SporaxValueError(f"For '{self.name}', the sizes in '{name}' must be >= 0, but got {shape}.")
        if name in self.dtype_names and not isinstance(value, DType):  # to numpy None and "float" are float64
            raise SporaxTypeError(f"For '{self.name}', '{name}' must be a dtype, but got {value!r}.")
        if name == "op" and not isinstance(value, str):
            raise SporaxTypeError(f"For '{self.name}', 'op' must be a string, but got {type(value).__name__}.")

    def shard(self, in_strategy: Any = None, out_strategy: Any = None) -> Self:
        """Kept with a warning: the ranks of the group say what is exchanged.

        Raises:
            SporaxTypeError, SporaxValueError: as for other operators.
        """
        if in_strategy is not None:
            warn_unread(self.name, "in_strategy", _RUNS_AS_WRITTEN)
        return super().shard(in_strategy, out_strategy)

    def add_prim_attr(self, name: str, value: Any) -> Self:
        """Attach a named mark, with a warning unless it is a note.

        Raises:
            SporaxTypeError, SporaxValueError, SporaxRuntimeError: as for other operators.
        """
        super().add_prim_attr(name, value)
        if name in MARKS and name not in ("input_names", "output_names", "place"):
            warn_unread(self.name, name, _RUNS_AS_WRITTEN)
        return self

    @property
    def members(self) -> Group:
        """The group, as it is now."""
        find = groups.find if self.name in _WITHOUT_SIZE else groups.find_counted
        return find(self.group, self.name)

    def world_rank(self, group_rank: int) -> int:
        """The world rank of a member.

        Raises:
            SporaxValueError: the group has no such member.
        """
        members = self.members
        if not 0 <= group_rank < members.size:
            raise For(self.name).error(
                f"a rank must be in [0, {members.size}), the members of '{members.name}'", group_rank
            )
        return members.ranks[group_rank]


def check_list(name: str, what: str, value: Any) -> Sequence[Any]:
    """`value`, a tuple or list, else SporaxTypeError."""
    return For(name).typed(what, value, "a tuple or list", tuple | list)


def check_ints(name: str, what: str, value: Any) -> Sequence[int]:
    """`value`, a tuple or list of ints, else SporaxTypeError."""
    for place, element in enumerate(check_list(name, what, value)):
        if not isinstance(element, np.integer):
            check_int(name, f"{what}[{place}]", element)
    return value


def check_int(name: str, what: str, value: Any) -> int:
    """`value`, an int, else SporaxTypeError."""
    return For(name).typed(what, value, "an int", int, takes_bool=False)


def check_tensor(name: str, value: Any, what: str = "input") -> Tensor:
    """`value`, a Tensor, else SporaxTypeError."""
    return For(name).typed(what, value, "a Tensor", Tensor)


def check_member(name: str, group: Group, rank: int) -> int:
    """`rank`, a world rank of a member of the group, else SporaxTypeError or SporaxValueError."""
    if check_int(name, "rank", rank) not in group.ranks:
        raise SporaxValueError(
            f"For '{name}', rank {rank} must be a member of group '{group.name}', which has the ranks {list(group.ranks)}."
        )
    return rank


def check_reduction(name: str, op: str) -> str:
    """`op`, the name of a reduction, else SporaxRuntimeError."""
    For(name).one_of("op", op, between_ranks.collectives.REDUCTIONS, kind=SporaxRuntimeError)
    return op


def at_least_1d(name: str, tensor: Tensor) -> Tensor:
    """`tensor`, which has a dim 0, else SporaxValueError."""
    For(name).refuse(not tensor.ndim, "the input must have at least one dimension, but its shape is ()")
    return tensor


class AllReduce(CommunicationPrimitive):
    """Combine the tensors of all members element by element; every member gets the result.

    Args:
        op: ``"sum"``, ``"max"``, ``"min"`` or ``"prod"``.
        group: name of the group.
    """

    attribute_names = ("op", "group")

    def __call__(self, x: Tensor) -> Tensor:
        """Any shape, the same on all members; one number in a step that a plan shards."""
        check_tensor(self.name, x)
        op = check_reduction(self.name, self.op)
        if frames.planning() and not context.plans_only():
            ranks = groups.find_planned(self.group, self.name)
            frames.note_tag(pass_tags.RANK_SUMS)
            return wrap(trace_marks.apply_mark([x.array], RankSumMark(op, tuple(rank - ranks[0] for rank in ranks)))[0])
        return wrap(between_ranks.collectives.run(between_ranks.collectives.AllReduce(self.members, op), x.array))


class Reduce(CommunicationPrimitive):
    """Combine the tensors of all members for one of them; the others get a tensor of shape (1,) without meaning.

    Args:
        dest_rank: group rank that gets the result.
        op, group: as `AllReduce`.
    """

    attribute_names = ("dest_rank", "op", "group")
    ints = ("dest_rank",)

    def __call__(self, x: Tensor) -> Tensor:
        """Any shape, the same on all members."""
        check_tensor(self.name, x)
        # The rank is checked on all members, so that all fail together.
        self.world_rank(self.dest_rank)
        op = check_reduction(self.name, self.op)
        return wrap(
            between_ranks.collectives.run(between_ranks.collectives.Reduce(self.members, op, self.dest_rank), x.array)
        )


class AllGather(CommunicationPrimitive):
    """Put the tensors of all members together along dim 0; every member gets the result."""

    def __call__(self, x: Tensor) -> Tensor:
        """(d0, …) in, (n·d0, …) out."""
        at_least_1d(self.name, check_tensor(self.name, x))
        return wrap(between_ranks.collectives.run(between_ranks.collectives.AllGather(self.members), x.array))


class ReduceScatter(CommunicationPrimitive):
    """Combine the tensors of all members element by element; each gets its piece of dim 0.

    Args:
        op, group: as `AllReduce`.
    """

    attribute_names = ("op", "group")

    def __call__(self, x: Tensor) -> Tensor:
        """(d0, …) in, (d0/n, …) out."""
        at_least_1d(self.name, check_tensor(self.name, x))
        op = check_reduction(self.name, self.op)
        return wrap(between_ranks.collectives.run(between_ranks.collectives.ReduceScatter(self.members, op), x.array))


class Broadcast(CommunicationPrimitive):
    """Give the tensors of one member to all.

    Args:
        root_rank: world rank of that member.
        group: name of the group.
    """

    attribute_names = ("root_rank", "group")
    ints = ("root_rank",)

    def __call__(self, x: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """A tuple of tensors in, a tuple of the same shapes out."""
        if not isinstance(x, tuple | list):
            raise For(self.name).type_error("the input must be a tuple of Tensors", type(x).__name__)
        arrays = [check_tensor(self.name, element).array for element in x]
        root = check_member(self.name, self.members, self.root_rank)
        return tuple(
            map(wrap, between_ranks.collectives.run(between_ranks.collectives.Broadcast(self.members, root), *arrays))
        )


class AlltoAll(CommunicationPrimitive):
    """Divide along one dim into as many pieces as there are members, exchange, put together along another dim.

    Args:
        split_count: number of members.
        split_dim, concat_dim: the dims.
        group: name of the group.
    """

    attribute_names = ("split_count", "split_dim", "concat_dim", "group")
    ints = ("split_count", "split_dim", "concat_dim")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.split_count != self.members.size:
            raise For(self.name).error(
                f"'split_count' must be the size of the group, {self.members.size}", self.split_count
            )

    def __call__(self, x: Tensor) -> Tensor:
        """The split dim shrinks by the number of members, the other grows by it."""
        array = check_tensor(self.name, x).array
        between_ranks.collectives.check_divisible(self.name, array, self.split_dim, self.split_count)
        between_ranks.collectives.check_divisible(self.name, array, self.concat_dim, 1)
        dims = self.split_dim % array.ndim, self.concat_dim % array.ndim
        return wrap(between_ranks.collectives.run(between_ranks.collectives.AllToAll(self.members, *dims), array))


class CollectiveScatter(CommunicationPrimitive):
    """Divide the tensor of one member along dim 0, a piece for each.

    Args:
        src_rank: world rank of that member; the others bring a tensor of the same shape.
        group: name of the group.
    """

    attribute_names = ("src_rank", "group")
    defaults = {**CommunicationPrimitive.defaults, "src_rank": 0}
    ints = ("src_rank",)

    def __call__(self, x: Tensor) -> Tensor:
        """(d0, …) in, (d0/n, …) out."""
        at_least_1d(self.name, check_tensor(self.name, x))
        src = check_member(self.name, self.members, self.src_rank)
        return wrap(between_ranks.collectives.run(between_ranks.collectives.Scatter(self.members, src), x.array))


class CollectiveGather(CommunicationPrimitive):
    """Put the tensors of all members together along dim 0 for one of them; the others get shape (1,), without meaning.

    Args:
        dest_rank: world rank of the member that gets the result.
        group: name of the group.
    """

    attribute_names = ("dest_rank", "group")
    ints = ("dest_rank",)

    def __call__(self, x: Tensor) -> Tensor:
        """(d0, …) in, (n·d0, …) or (1,) out."""
        at_least_1d(self.name, check_tensor(self.name, x))
        dest = check_member(self.name, self.members, self.dest_rank)
        return wrap(between_ranks.collectives.run(between_ranks.collectives.Gather(self.members, dest), x.array))


class Barrier(CommunicationPrimitive):
    """Wait until all members have come here."""

    def __call__(self) -> None:
        """Returns when all are there; in a compiled step, at that place of the step."""
        total = between_ranks.collectives.run(between_ranks.collectives.Barrier(self.members))
        # Outside of a step the call itself must wait.
        if not isinstance(total, jax.core.Tracer):
            total.block_until_ready()


def register(*primitives: type[Any]) -> None:
    """Give primitives their names in `sporax.mindspore.ops`."""
    PRIMITIVES.update({primitive.__name__: primitive for primitive in primitives})


register(AllReduce, Reduce, AllGather, ReduceScatter, Broadcast, AlltoAll, CollectiveScatter, CollectiveGather, Barrier)
register(ReduceOp)
