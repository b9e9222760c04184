"""Dimensions of an operator's tensors, as the operator states them for plans (`ir.operator_dims`).

An operator whose tensors always have the same dimensions states them as text, one word for each dimension and a comma
between inputs: ``dims="n h! w! c, b four!, b"``. Others state a function of the call and the shapes. Those that several
families of operators share are here, all others stand next to their operator. An operator that states nothing works element by
element.
"""

from __future__ import annotations

from collections.abc import Hashable

from sporax.base.lazy_members import dataclass
from sporax.ir import Shape
from sporax.ir.operator_dims import (
    UNSTATED,
    Call,
    Dims,
    NamedDims,
    Names,
    OperatorDims,
    Shapes,
    StrategyEntry,
    numbered,
)

Stated = str | NamedDims | OperatorDims | None
"""What may be stated of an operator."""


_WITHOUT_RULE = frozenset(
    "_mint_l1_loss _mint_mse_loss BCEWithLogitsLoss BinaryCrossEntropy Cross Fmax Fmin Heaviside Lcm LogicalXor "
    "MultilabelMarginLoss SmoothL1Loss SoftMarginLoss".split()
)
"""Operators of equally large inputs whose strategies MindSpore ignores."""


def stated(name: str, dims: Stated) -> OperatorDims:
    """What an operator states, in its only form."""
    if dims is None:
        return OperatorDims(lenient=True) if name in _WITHOUT_RULE else UNSTATED
    if isinstance(dims, str):
        return OperatorDims(Written(tuple(tuple(text.split()) for text in dims.split(","))))
    return dims if isinstance(dims, OperatorDims) else OperatorDims(dims)


def along(call: Call, attribute: str, default: Hashable, rank: int) -> set[int]:
    """The dimensions that an attribute names, counted from the left; None names all."""
    value = call.get(attribute, default)
    axes = range(rank) if value is None else value if isinstance(value, tuple) else (value,)
    # Modulo, because axes may be counted from the right.
    return {axis % rank for axis in axes if isinstance(axis, int) and rank}


@dataclass(frozen=True, slots=True)
class Written:
    """Dimensions written down; none for inputs that have others."""

    inputs: tuple[Names, ...]

    def __call__(self, call: Call, shapes: Shapes) -> Dims | None:
        """The names, where each input has as many dimensions."""
        return Dims(self.inputs) if tuple(map(len, shapes)) == tuple(map(len, self.inputs)) else None


@dataclass(frozen=True, slots=True)
class Along:
    """All inputs have the same dimensions; those that the attribute names are never sharded."""

    attribute: str
    default: Hashable

    def __call__(self, call: Call, shapes: Shapes) -> Dims:
        """The names of this call."""
        rank = max(map(len, shapes))
        names = numbered(rank, along(call, self.attribute, self.default, rank))
        return Dims(tuple(names if len(shape) == rank else numbered(len(shape)) for shape in shapes))


FOLLOWS = OperatorDims(follows=True)
"""Of operators that only rearrange elements: without a strategy they take their input as it comes."""

LAST = Along("last", -1)
"""As `Along`, for operators that work along the last dimension and have no attribute for it."""


def position_by_position(call: Call, shapes: Shapes) -> Dims:
    """All inputs have the same dimensions."""
    return Dims(tuple(numbered(len(shape)) for shape in shapes))


def with_constants(names: Names, shape: Shape, *sizes: Shape) -> Dims:
    """The dims of an operator's tensor; a strategy may have entries for what else MindSpore counts as inputs, of these sizes."""
    others = (StrategyEntry(numbered(len(size), range(len(size)), f"c{at}"), size) for at, size in enumerate(sizes))
    return Dims((names,), (StrategyEntry(names, shape), *others))


def never_sharded(call: Call, shapes: Shapes) -> Dims:
    """Every input is whole on every device."""
    return Dims(tuple(numbered(len(shape), range(len(shape))) for shape in shapes))


@dataclass(frozen=True, slots=True)
class Product:
    """Matrices ``i k`` and ``k j`` behind batch dimensions, and a bias ``j``.

    Attributes:
        transpose_b: whether the second matrix is ``j k`` where no attribute says so.
        attributes: names of the attributes that say so of the first and of the second.
    """

    transpose_b: bool = False
    attributes: tuple[str, str] = ("transpose_a", "transpose_b")

    def __call__(self, call: Call, shapes: Shapes) -> Dims | None:
        """The names of this call; none for vectors."""
        if len(shapes) < 2 or min(len(shapes[0]), len(shapes[1])) < 2:
            return None
        rank = max(len(shapes[0]), len(shapes[1]))
        of_a, of_b = self.attributes
        last_a = ("k", "i") if call.get(of_a, False) else ("i", "k")
        last_b = ("j", "k") if call.get(of_b, self.transpose_b) else ("k", "j")
        batch = tuple(f"b{dim}" for dim in range(rank - 2))
        first, second = (batch[rank - len(shape) :] for shape in shapes[:2])
        # A bias has the columns of the result.
        rest = [("j",)] * (len(shapes) - 2)
        # Without batch dimensions the rows are the batch.
        rows = "" if batch else "i"
        return Dims(((*first, *last_a), (*second, *last_b), *rest), order=(*batch, "i", "k", "j"), batch=rows)


def channels(call: Call, shapes: Shapes) -> Dims:
    """An input with channels, and vectors with one element per channel, or with one for all."""
    rank = len(shapes[0])
    last = "NHWC" in str(call.get("data_format", "NCHW"))
    # A vector of channels has the second dimension in "NCHW", and the only one in a vector.
    channel = call.get("channel", rank - 1 if last else min(1, rank - 1))
    first = tuple("c" if dim == channel else f"d{dim}" for dim in range(rank))
    return Dims((first, *(tuple("c" if size > 1 else "one!" for size in shape) for shape in shapes[1:])), leader=0)


def labels(call: Call, shapes: Shapes) -> Dims:
    """Scores ``n c …``, labels ``n …`` or shaped as the scores, weights ``c``."""
    rank = len(shapes[0])
    first = ("n", "c!", *numbered(rank)[2:])[:rank]
    targets = [first if len(shape) == rank else ("n", *first[2:])[: len(shape)] for shape in shapes[1:2]]
    return Dims((first, *targets, *(("c!",)[: len(shape)] for shape in shapes[2:])), leader=0)


def segments(call: Call, shapes: Shapes) -> Dims:
    """Rows, and the number of each row's segment."""
    names = numbered(len(shapes[0]))
    return Dims((names, *(names[: len(shape)] for shape in shapes[1:])), leader=0)


def elements_along(call: Call, shapes: Shapes) -> Dims:
    """A tensor and indices of as many dimensions; the one that is pointed into is never sharded."""
    rank = len(shapes[0])
    unsharded = along(call, "dim", 0, rank) | along(call, "axis", call.get("dim", 0), rank)
    return Dims(tuple(numbered(len(shape), unsharded) for shape in shapes), leader=0)
