"""The named dimensions of the facade's operators.

Every operator has names for the dimensions of its inputs, like the factors of a rule but taken from MindSpore's
documentation: the inputs of MatMul are ``i k`` and ``k j``. Dimensions with one name are sharded equally. A name that
ends in ``!`` marks a dimension that must stay whole, because the operator works along it.

The strategy of a few operators describes their result or an attribute: the first entry of OneHot's strategy is for its
result, that of Tile for the numbers of copies. For these a `Dims` has separate entries.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sporax.ir.marks import OperatorMark
from sporax.ir.operation import Shape
from sporax.planner.pins.manual_split import LOOKUPS, is_split

Names = tuple[str, ...]
"""One tensor's dimensions."""

Shapes = Sequence[Shape]


@dataclass(frozen=True, slots=True)
class Entry:
    """What one tuple of a strategy shards.

    Attributes:
        names: of its dimensions.
        sizes: their sizes.
    """

    names: Names
    sizes: Shape


@dataclass(frozen=True, slots=True)
class Dims:
    """The named dimensions of one call of an operator.

    Attributes:
        inputs: names of each input.
        entries: what a strategy's tuples cut; None: the inputs, one after another.
        result: names of the first result where a strategy shards what no input has; None: it stays as it comes.
        order: names in the order of the device matrix, as far as that is not the order in which they appear.
        leader: the input whose first dimension is the batch; None: the one with most dimensions.
        batch: name of the leader's dimension that is the batch, where it is not the first one.
    """

    inputs: tuple[Names, ...]
    entries: tuple[Entry, ...] | None = None
    result: Names | None = None
    order: Names = ()
    leader: int | None = None
    batch: str = ""


def dims_of(mark: OperatorMark, shapes: Shapes) -> Dims:
    """The named dimensions of an operator on inputs of these shapes."""
    # An operator without an entry is taken for elementwise: custom operators mostly are.
    make = _DIMS.get(mark.operator, _aligned)
    return make(mark, shapes) or _separate(mark, shapes)


def is_whole(name: str) -> bool:
    """Whether a dimension of this name must stay whole."""
    return name.endswith("!")


def along(mark: OperatorMark, attribute: str, default: int, rank: int) -> set[int]:
    """The dimensions that an attribute names, counted from the left."""
    value = mark.get(attribute, default)
    axes = value if isinstance(value, tuple) else (value,)
    # Modulo, because axes may be counted from the right.
    return {axis % rank for axis in axes if isinstance(axis, int) and rank}


def _plain(rank: int, whole: Sequence[int] | set[int] = (), letter: str = "d") -> Names:
    return tuple(f"{letter}{dim}{'!' if dim in whole else ''}" for dim in range(rank))


# ------------------------------------------------------------------------------------------------------- element by element


def _aligned(mark: OperatorMark, shapes: Shapes) -> Dims | None:
    """Inputs that are stretched to one shape: dimensions are counted from the right."""
    if not _broadcasts(shapes):
        return None
    rank = max(map(len, shapes), default=0)
    names = _plain(rank)
    return Dims(tuple(names[rank - len(shape) :] for shape in shapes), order=names)


def _broadcasts(shapes: Shapes) -> bool:
    for sizes in itertools.zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1):
        # Dimensions of size one stretch, so they fit every other size.
        if len({size for size in sizes if size != 1}) > 1:
            return False
    return True


def _separate(mark: OperatorMark, shapes: Shapes) -> Dims:
    """Nothing is known but that inputs which start with the same size have the batch there."""
    # The input with most dimensions has the batch first; others share it if their first size is the same.
    batch = max(shapes, key=len, default=())[:1]
    # The input's number in the name keeps dimensions of different inputs apart.
    named = [_plain(len(shape), letter=f"{number}.") for number, shape in enumerate(shapes)]
    return Dims(
        tuple(
            ("batch", *names[1:]) if shape[:1] == batch and names else names
            for names, shape in zip(named, shapes, strict=True)
        )
    )


def _works_along(attribute: str, default: int) -> Callable[[OperatorMark, Shapes], Dims]:
    """All inputs have the same dimensions; those that the attribute names stay whole."""

    def make(mark: OperatorMark, shapes: Shapes) -> Dims:
        rank = max(map(len, shapes))
        names = _plain(rank, along(mark, attribute, default, rank))
        return Dims(tuple(names if len(shape) == rank else _plain(len(shape)) for shape in shapes))

    return make


def _alike(mark: OperatorMark, shapes: Shapes) -> Dims:
    """All inputs have the same dimensions."""
    return Dims(tuple(_plain(len(shape)) for shape in shapes))


def _channels(mark: OperatorMark, shapes: Shapes) -> Dims:
    """An input with channels, and vectors with one element per channel, or with one for all."""
    rank = len(shapes[0])
    last = "NHWC" in str(mark.get("data_format", "NCHW"))
    # A vector of channels has the second dimension in "NCHW", and the only one in a vector.
    channel = mark.get("channel", rank - 1 if last else min(1, rank - 1))
    first = tuple("c" if dim == channel else f"d{dim}" for dim in range(rank))
    return Dims((first, *(tuple("c" if size > 1 else "one!" for size in shape) for shape in shapes[1:])), leader=0)


def _batch_norm(mark: OperatorMark, shapes: Shapes) -> Dims:
    """Entries as of the primitive BatchNorm: the input, scale, shift, mean and variance."""
    dims = _channels(mark, shapes)
    vector = Entry(("c",), shapes[1])
    # The strategy of BatchNorm has five entries, though training needs only three inputs.
    return Dims(dims.inputs, (Entry(dims.inputs[0], shapes[0]), *[vector] * 4), leader=0)


def _layer_norm(mark: OperatorMark, shapes: Shapes) -> Dims:
    rank = len(shapes[0])
    begin = mark.get("begin_norm_axis", -1)
    start = begin % rank if isinstance(begin, int) else rank - 1
    first = _plain(rank, range(start, rank))
    # Scale and shift have the last dimensions of the input, those that are normalized.
    return Dims((first, *(first[rank - len(shape) :] for shape in shapes[1:])), leader=0)


def _labels(mark: OperatorMark, shapes: Shapes) -> Dims:
    """Scores ``n c …``, labels ``n …`` or like the scores, weights ``c``."""
    rank = len(shapes[0])
    first = ("n", "c!", *_plain(rank)[2:])[:rank]
    labels = [first if len(shape) == rank else ("n", *first[2:])[: len(shape)] for shape in shapes[1:2]]
    return Dims((first, *labels, *(("c!",)[: len(shape)] for shape in shapes[2:])), leader=0)


# --------------------------------------------------------------------------------------------------- products and windows


def _matmul(mark: OperatorMark, shapes: Shapes) -> Dims | None:
    if len(shapes) < 2 or min(len(shapes[0]), len(shapes[1])) < 2:
        return None
    rank = max(len(shapes[0]), len(shapes[1]))
    last_a = ("k", "i") if mark.get("transpose_a", False) else ("i", "k")
    # `dense` multiplies with the transposed weight by default.
    last_b = ("j", "k") if mark.get("transpose_b", mark.operator == "dense") else ("k", "j")
    batch = tuple(f"b{dim}" for dim in range(rank - 2))
    first, second = (batch[rank - len(shape) :] for shape in shapes[:2])
    # A bias has the columns of the result.
    rest = [("j",)] * (len(shapes) - 2)
    # Without batch dimensions the rows are the batch.
    rows = "" if batch else "i"
    return Dims(((*first, *last_a), (*second, *last_b), *rest), order=(*batch, "i", "k", "j"), batch=rows)


def _convolution(mark: OperatorMark, shapes: Shapes) -> Dims:
    """Height and width (or depth and height) may be sharded, the last dimension of three may not, the kernel never."""
    spatial = len(shapes[0]) - 2
    grouped = mark.get("group", mark.get("groups", 1)) != 1
    places = tuple(f"s{dim}{'!' if spatial == 3 and dim == 2 else ''}" for dim in range(spatial))
    # With groups, a channel belongs to one group, and slices would cut through groups.
    channel = "c!" if grouped else "c"
    last = "NHWC" in str(mark.get("data_format", "NCHW"))
    inputs = ("n", *places, channel) if last else ("n", channel, *places)
    windows = tuple(f"k{dim}!" for dim in range(spatial))
    outputs = "o!" if grouped else "o"
    kernel = (outputs, *windows, channel) if last else (outputs, channel, *windows)
    return Dims((inputs, kernel, *[("o",)] * (len(shapes) - 2)), leader=0)


def _pooling(mark: OperatorMark, shapes: Shapes) -> Dims:
    spatial = len(shapes[0]) - 2
    places = tuple(f"s{dim}{'!' if spatial == 3 and dim == 2 else ''}" for dim in range(spatial))
    last = "NHWC" in str(mark.get("data_format", "NCHW"))
    return Dims((("n", *places, "c") if last else ("n", "c", *places),))


# ----------------------------------------------------------------------------------------------------- looking up, writing


def lookup_axis(mark: OperatorMark, rank: int) -> int:
    """The dimension of the table that indices point into."""
    axis = mark.get("axis", 0)
    return axis % rank if isinstance(axis, int) and rank else 0


def _gather(mark: OperatorMark, shapes: Shapes) -> Dims | None:
    """A table ``p…`` and indices ``x…``; the first ``batch_dims`` of both are the same."""
    if len(shapes) < 2:
        return None
    if is_split(mark):
        return _split_gather(shapes)
    batch_dims = mark.get("batch_dims", 0)
    shared = batch_dims % (len(shapes[1]) + 1) if isinstance(batch_dims, int) else 0
    table, indices = _plain(len(shapes[0]), letter="p"), _plain(len(shapes[1]), letter="x")
    # Batch dimensions are shared, so the one that is pointed into must be looked up as a whole.
    if shared:
        axis = lookup_axis(mark, len(shapes[0]))
        table = tuple(f"{name}!" if dim == axis else name for dim, name in enumerate(table))
        table = (*indices[:shared], *table[shared:])
    rest = tuple(_plain(len(shape)) for shape in shapes[2:])
    return Dims((table, indices, *rest), order=(*indices, *table), leader=1)


def _split_gather(shapes: Shapes) -> Dims:
    """The parts of a table, and the fields that point into them, go together."""
    table = ("parts", *_plain(len(shapes[0]), letter="p")[1:])
    before = len(shapes[1]) - 1
    # Fields are split like the table; the other dimensions of the indices stay whole.
    indices = (*_plain(before, range(before), "x"), "parts")
    return Dims((table, indices), order=table, leader=1)


def _embedding(mark: OperatorMark, shapes: Shapes) -> Dims:
    return Dims((_plain(len(shapes[0]), letter="x"), _plain(len(shapes[1]), letter="p")), leader=0)


def _gather_nd(mark: OperatorMark, shapes: Shapes) -> Dims:
    table, indices = shapes
    last = len(indices) - 1
    return Dims((_plain(len(table), range(len(table)), "p"), _plain(len(indices), {last}, "x")), leader=1)


def _scatter_rows(mark: OperatorMark, shapes: Shapes) -> Dims:
    """Updates end like the input; the indices, and what they number among the updates, stay whole."""
    target, indices, updates = shapes
    # An overwritten element has one winner, which devices could not agree on if rows were sharded.
    keeps = mark.operator in ("ScatterUpdate", "ScatterMax", "ScatterMin")
    names = _plain(len(target), {0} if keeps else ())
    points = _plain(len(indices), range(len(indices)), "x")
    return Dims((names, points, (*points, *names[1:])[: len(updates)]), leader=0)


def _scatter_places(mark: OperatorMark, shapes: Shapes) -> Dims:
    """As `_scatter_rows`, with indices of as many dimensions as their last one is long."""
    target, indices, updates = shapes
    names, points = _plain(len(target)), _plain(len(indices), range(len(indices)), "x")
    return Dims((names, points, (*points[:-1], *names[indices[-1] :])[: len(updates)]), leader=0)


def _in_place(mark: OperatorMark, shapes: Shapes) -> Dims:
    """Rows are written at given numbers: they stay whole in both inputs."""
    names = _plain(len(shapes[0]))
    return Dims(tuple((f"r{number}!", *names[1:]) for number in range(len(shapes))))


def _segments(mark: OperatorMark, shapes: Shapes) -> Dims:
    names = _plain(len(shapes[0]))
    return Dims((names, *(names[: len(shape)] for shape in shapes[1:])), leader=0)


def _elements_along(mark: OperatorMark, shapes: Shapes) -> Dims:
    """A tensor and indices of as many dimensions; the one that is pointed into stays whole."""
    rank = len(shapes[0])
    whole = along(mark, "dim", 0, rank) | along(mark, "axis", mark.get("dim", 0), rank)  # type: ignore[arg-type]  # marks hold values of any type
    return Dims(tuple(_plain(len(shape), whole) for shape in shapes), leader=0)


# --------------------------------------------------------------------------------------------------- images and the like


def _given(*names: str) -> Callable[[OperatorMark, Shapes], Dims | None]:
    """Dimensions written down, one text per input; None where an input has others."""
    written = tuple(tuple(name.split()) for name in names)

    def make(mark: OperatorMark, shapes: Shapes) -> Dims | None:
        return Dims(written) if tuple(map(len, shapes)) == tuple(map(len, written)) else None

    return make


def _whole(mark: OperatorMark, shapes: Shapes) -> Dims:
    return Dims(tuple(_plain(len(shape), range(len(shape))) for shape in shapes))


# -------------------------------------------------------------------------------------------- sharded by their results


def _one_hot(mark: OperatorMark, shapes: Shapes) -> Dims | None:
    """Entries: the result, and empty ones for the values on and off."""
    depth, axis = mark.get("depth", 0), mark.get("axis", -1)
    if not isinstance(depth, int) or not isinstance(axis, int):
        return None
    indices = _plain(len(shapes[0]), letter="x")
    place = len(indices) if axis == -1 else axis
    names = (*indices[:place], "depth", *indices[place:])
    sizes = (*shapes[0][:place], depth, *shapes[0][place:])
    # Values on and off are scalars; their entries are empty and may be left out.
    others: list[Names] = [() for _ in shapes[1:]]
    scalars = [Entry((), ())] * 2
    return Dims((indices, *others), (Entry(names, sizes), *scalars), names, leader=0)


def _tile(mark: OperatorMark, shapes: Shapes) -> Dims | None:
    """One entry, for the numbers of copies; where there is one copy, for the dimension itself."""
    copies = mark.get("dims", mark.get("multiples", ()))
    if not isinstance(copies, tuple) or len(copies) < len(shapes[0]):
        return None
    # Missing dimensions on the left count as copies of one element.
    lead = len(copies) - len(shapes[0])
    sizes = ((1,) * lead) + shapes[0]
    result = tuple(f"m{dim}" if count > 1 else f"d{dim}" for dim, count in enumerate(copies))
    entry = Entry(result, tuple(count if count > 1 else size for count, size in zip(copies, sizes, strict=True)))
    # Where there is one copy, the dimension of the result is that of the input.
    inputs = tuple(f"d{dim}" if copies[dim] == 1 else f"d{dim}!" for dim in range(lead, len(copies)))
    return Dims((inputs,), (entry,), result)


def _lin_space(mark: OperatorMark, shapes: Shapes) -> Dims | None:
    """One entry, for the only dimension of the result."""
    num = mark.get("num", 0)
    return (
        Dims(tuple(() for _ in shapes), (Entry(("n",), (num,)),), ("n",))
        if isinstance(num, int) and not any(shapes)
        else None
    )


def _drawn(mark: OperatorMark, shapes: Shapes) -> Dims | None:
    """Entries: the shape that is drawn, then the parameters of the distribution, which stay whole. The key has none."""
    shape = mark.get("shape", ())
    if not isinstance(shape, tuple):
        return None
    # The random key is the first input and has no entry.
    inputs = tuple(_plain(len(shape), range(len(shape)), f"{number}.") for number, shape in enumerate(shapes))
    parameters = tuple(Entry(names, shape) for names, shape in zip(inputs[1:], shapes[1:], strict=True))
    rest = max(map(len, shapes[1:]), default=0)
    return Dims(
        inputs,
        (Entry(_plain(len(shape)), shape), *parameters),
        (*_plain(len(shape)), *_plain(rest, range(rest), "r")),
    )


def _choice(mark: OperatorMark, shapes: Shapes) -> Dims:
    """A random key, which has no entry, and an input that stays whole."""
    key, names = (_plain(len(shape), range(len(shape)), letter) for shape, letter in zip(shapes, "kd", strict=False))
    return Dims((key, names), (Entry(names, shapes[1]),))


_ATTENTION_LAYOUTS = {
    "BSH": ("b", "s", "n"),
    "SBH": ("s", "b", "n"),
    "BNSD": ("b", "n", "s", "d!"),
    "BSND": ("b", "s", "n", "d!"),
    "TH": ("s", "n"),
    "TND": ("s", "n", "d!"),
}


_SHAPED_AS_SCORES = ("real_shift", "drop_mask", "attn_mask", "pse_shift")
"""Inputs that are masks or shifts of the scores; all others are whole on every device."""


def _of_scores(three_dims: Names, rank: int) -> Names:
    """Dimensions of a mask or shift: batch, heads, queries, keys; the last two; or three, which mean different things."""
    return three_dims if rank == len(three_dims) else ("b", "n", "s", "k!")[-rank:]


def _attention(mark: OperatorMark, shapes: Shapes) -> Dims | None:
    """Query, key and value, then masks and shifts: batch, heads and the query's length; keys stay whole along theirs.

    A hidden size is sharded as its heads are. The random key has no entry.
    """
    query = _ATTENTION_LAYOUTS.get(str(mark.get("input_layout", "BSH")))
    given = mark.get("given", ())
    if query is None or not isinstance(given, tuple) or len(given) + 3 != len(shapes):
        return None
    # Keys and values stay whole along their length: each query needs all of them.
    key = tuple("k!" if name == "s" else name for name in query)
    scores = ("b", "s", "k!") if mark.operator == "_infer_attention" else ("b", "n", "s", "k!")
    named = [
        _of_scores(scores, len(shape)) if name in _SHAPED_AS_SCORES else _plain(len(shape), range(len(shape)), name)
        for name, shape in zip(given, shapes[3:], strict=True)
    ]
    inputs = (query, key, key, *named)
    entries = [Entry(names, shape) for names, shape in zip(inputs, shapes, strict=True)]
    # Everything from the random key on has no entry.
    drawn = len(given) - given.index("random_key") if "random_key" in given else 0
    return Dims(inputs, tuple(entries[: len(entries) - drawn]), leader=0, batch="" if query[0] == "b" else query[1])


def _bits(mark: OperatorMark, shapes: Shapes) -> Dims | None:
    """The strategy is for the tensor that a mask is drawn for; the key, the probability and the bits have no entry."""
    shape = mark.get("shape", ())
    if not isinstance(shape, tuple):
        return None
    inputs = tuple(_plain(len(size), range(len(size)), f"{number}.") for number, size in enumerate(shapes))
    return Dims(inputs, (Entry(_plain(len(shape)), shape),))


def _masked(mark: OperatorMark, shapes: Shapes) -> Dims:
    """An input, the bits of its mask and a probability, which have no entry."""
    names = _plain(len(shapes[0]))
    rest = (_plain(len(size), range(len(size)), f"{number}.") for number, size in enumerate(shapes[1:]))
    return Dims((names, *rest), (Entry(names, shapes[0]),), leader=0)


def _grouped_rows(mark: OperatorMark, shapes: Shapes) -> Dims:
    """Rows in groups, a matrix per group, numbers of rows, a bias per group or none: elements and columns are sharded."""
    inputs: tuple[Names, ...] = (("m!", "k"), ("g!", "k", "n"), ("g!",), ("g!", "n"))
    return Dims(inputs[: len(shapes)], leader=0)


def _with_key(mark: OperatorMark, shapes: Shapes) -> Dims:
    """An input, and a random key, which has no entry."""
    names, key = _plain(len(shapes[0])), _plain(len(shapes[1]), range(len(shapes[1])), "k")
    return Dims((names, key), (Entry(names, shapes[0]),), leader=0)


_DIMS: dict[str, Callable[[OperatorMark, Shapes], Dims | None]] = {
    **dict.fromkeys(("MatMul", "BatchMatMul", "matmul", "dense", "mm", "bmm", "MatMulExt", "BatchMatMulExt"), _matmul),
    "SplitWithSize": _works_along("dim", 0),
    "TopkExt": _works_along("dim", -1),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Argmax", "Argmin", "Sort", "sort"), _works_along("axis", -1)),
    **dict.fromkeys(("Concat", "Split", "L2Normalize", "CumSum", "CumProd", "Unstack"), _works_along("axis", 0)),
    **dict.fromkeys(("TopK", "SoftmaxCrossEntropyWithLogits"), _works_along("last", -1)),
    **dict.fromkeys(("GatherD", "gather_elements", "TensorScatterElements"), _elements_along),
    **dict.fromkeys(("Stack", "AddN"), _alike),
    **dict.fromkeys(("BiasAdd", "PReLU"), _channels),
    **dict.fromkeys(("batch_norm_train", "batch_norm_eval"), _batch_norm),
    "LayerNorm": _layer_norm,
    **dict.fromkeys(("Conv2D", "Conv3D", "conv2d", "conv3d", "conv1d"), _convolution),
    **dict.fromkeys(("MaxPool", "AvgPool", "MaxPool3D", "AvgPool3D"), _pooling),
    **dict.fromkeys(LOOKUPS, _gather),
    "embedding": _embedding,
    "GatherNd": _gather_nd,
    **{f"Scatter{entry}": _scatter_rows for entry in ("Update", "Add", "Sub", "Mul", "Div", "Max", "Min")},
    **{f"ScatterNd{entry}": _scatter_places for entry in ("Update", "Add", "Sub", "Mul", "Div", "Max", "Min")},
    **{f"TensorScatter{entry}": _scatter_places for entry in ("Update", "Add", "Sub", "Mul", "Div", "Max", "Min")},
    **dict.fromkeys(("InplaceAdd", "InplaceSub", "InplaceUpdate"), _in_place),
    **dict.fromkeys(
        ("UnsortedSegmentSum", "UnsortedSegmentMin", "UnsortedSegmentMax", "UnsortedSegmentProd"), _segments
    ),
    **dict.fromkeys(
        ("cross_entropy", "nll_loss", "NLLLoss", "SparseSoftmaxCrossEntropyWithLogits", "MultiMarginLoss", "InTopK"),
        _labels,
    ),
    **dict.fromkeys(("ResizeNearestNeighbor", "ResizeBilinear"), _given("n c h! w!")),
    "CropAndResize": _given("n h! w! c", "b four!", "b"),
    "ROIAlign": _given("n c h! w!", "r five!"),
    "BoundingBoxEncode": _given("b four!", "b four!"),
    "IOU": _given("a four!", "g four!"),
    "Cdist": _given("b p m!", "b r m!"),
    "Unique": _whole,
    "RandomChoiceWithMask": _choice,
    "OneHot": _one_hot,
    "Tile": _tile,
    "LinSpace": _lin_space,
    **dict.fromkeys(("Gamma", "_gamma"), _drawn),
    "Dropout": _with_key,
    "_bits": _bits,
    "DropoutDoMask": _masked,
    "_grouped_rows": _grouped_rows,
    **dict.fromkeys(("FlashAttentionScore", "_infer_attention"), _attention),
}
