"""What an operator states of the dimensions of its tensors, for those who shard them.

Every operator has names for the dimensions of its inputs, like the factors of a rule but taken from MindSpore's
documentation: the inputs of MatMul are ``i k`` and ``k j``. Dimensions with one name are sharded equally. A name that
ends in ``!`` marks a dimension that is never sharded, because the operator works along it.

The strategy of a few operators describes their result or an attribute: the first entry of OneHot's strategy is for its
result, that of Tile for the numbers of copies. For these a `Dims` has separate entries.

The statement stands where the operator is defined; marks (`ir.marks`) carry it to the planner.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Any, Protocol

from sporax.base.lazy_members import dataclass
from sporax.ir.operation import Shape

Names = tuple[str, ...]
"""One tensor's dimensions."""

Shapes = Sequence[Shape]

NumSlices = Sequence[tuple[int, ...]]
"""Per input the number of slices of each dimension."""


class Call(Protocol):
    """One call of an operator, as its mark describes it."""

    def get(self, name: str, default: Hashable = None) -> Hashable:
        """One of the attributes."""

    @property
    def where(self) -> str:
        """What messages call the operator."""

    @property
    def in_strategy(self) -> tuple[Any, ...] | None:
        """The user's strategy: an entry for each input, a tuple of ints or a Layout."""


@dataclass(frozen=True, slots=True)
class StrategyEntry:
    """What one tuple of a strategy shards.

    Attributes:
        names: of its dimensions. One that no input has is stored as the strategy says and whole where the operator uses it.
        sizes: their sizes.
    """

    names: Names
    sizes: Shape


@dataclass(frozen=True, slots=True)
class Dims:
    """The named dimensions of one call of an operator.

    Attributes:
        inputs: names of each input.
        entries: what a strategy's tuples shard; None: the inputs, one after another.
        result: names of the first result where a strategy shards what no input has; None: it stays as it comes.
        order: names in the order of the device matrix, as far as that is not the order in which they appear.
        leader: the input whose first dimension is the batch; None: the one with most dimensions.
        batch: name of the leader's dimension that is the batch, where it is not the first one.
    """

    inputs: tuple[Names, ...]
    entries: tuple[StrategyEntry, ...] | None = None
    result: Names | None = None
    order: Names = ()
    leader: int | None = None
    batch: str = ""


NamedDims = Callable[[Call, Shapes], Dims | None]
"""The named dimensions of a call on inputs of these shapes; None where the operator cannot name them."""

Limits = Callable[[Call, Shapes, NumSlices, int], None]
"""Raises a SporaxRuntimeError where a call with inputs of these shapes cannot have these slices on that many devices.

For what names cannot express: limits that depend on attributes and sizes.
"""


@dataclass(frozen=True, slots=True)
class OperatorDims:
    """What an operator states of the dimensions of its tensors.

    Attributes:
        names: of its dimensions; None: it works element by element.
        limits: of its shardings beyond those of the names.
        table: number of the input that is a table, for an operator that looks rows up; `lookup_axis` is where indices point.
        takes_out_strategy: whether a strategy may shard its result too, as ``out_strategy``.
        follows: without a strategy it takes its inputs as they come.
        unsharded: without a strategy every rank runs it on whole tensors.
        lenient: so it does with unequal shardings of its inputs.
    """

    names: NamedDims | None = None
    limits: Limits | None = None
    table: int | None = None
    takes_out_strategy: bool = False
    follows: bool = False
    unsharded: bool = False
    lenient: bool = False


UNSTATED = OperatorDims()
"""That of an operator that states nothing."""


def numbered(rank: int, undivided: Collection[int] = (), letter: str = "d") -> Names:
    """Names for all dimensions of a tensor, ``d0 d1``; those of `undivided` are never sharded."""
    return tuple(f"{letter}{dim}{'!' if dim in undivided else ''}" for dim in range(rank))


PART = "<"
"""Ends the name of a dimension that numbers shard along the first of the axes of another one, whose name is before it."""


def is_undivided(name: str) -> bool:
    """Whether a dimension of this name is never sharded."""
    return name.endswith("!")


def lookup_axis(call: Call, rank: int) -> int:
    """The dimension of a table of this rank that indices point into."""
    axis = call.get("axis", 0)
    return axis % rank if isinstance(axis, int) and rank else 0
