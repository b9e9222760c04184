"""How the facade's operators may be cut by hand: from a user's strategy to placements.

Every operator has *named dimensions*, like the factors of a rule but those of MindSpore's documentation: the inputs of
MatMul are ``… i k`` and ``… k j``. A strategy gives a number of slices for each. Dimensions with one name must be cut in
the same way; some must stay whole. The numbers, in the order in which the names appear, are the operator's device matrix;
each takes the next axes of the mesh, and devices that are left repeat the computation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.errors import SporaxRuntimeError
from sporax.ir.marks import OperatorMark
from sporax.ir.operation import Shape, TensorSpec
from sporax.ir.placement import Axes, Placement, num_parts
from sporax.ir.strategy import Strategy

Names = tuple[tuple[str, ...], ...]
"""Per input, per dimension, the dimension's name. A name that ends in ``!`` must stay whole."""


def placements_for(mark: OperatorMark, specs: Sequence[TensorSpec], mesh: DeviceMatrix) -> list[Placement]:
    """Where the inputs of an operator lie under the strategy in `mark`, which is made of numbers.

    Raises:
        SporaxRuntimeError: the strategy does not fit the operator, the shapes or the number of devices.
    """
    shapes = [spec.shape for spec in specs]
    strategy = mark.in_strategy or ()
    where = mark.where
    _check_lengths(where, strategy, shapes, mesh.num_devices)
    names = dimension_names(mark, shapes)
    cuts: dict[str, int] = {}
    for number, (dims, slices, shape) in enumerate(zip(names, strategy, shapes, strict=True)):
        for dim, (name, parts, size) in enumerate(zip(dims, slices, shape, strict=True)):  # type: ignore[arg-type]
            if name.endswith("!") and parts != 1:
                raise SporaxRuntimeError(
                    f"For '{where}', dimension {dim} of input {number} must stay whole, but its cut is {parts} in {strategy}."
                )
            if size == 1 and parts == 1:
                continue  # stretched to the other operand's size, however that is cut
            if cuts.setdefault(name, parts) != parts:
                raise SporaxRuntimeError(
                    f"For '{where}', the inputs must be cut alike along the dimension they share, but dimension {dim} of "
                    f"input {number} is cut into {parts} and another into {cuts[name]}: {strategy}."
                )
    order = _order(mark, names)
    axes = _spread(where, [cuts.get(name, 1) for name in order], mesh, _repeats_left(mark, cuts))
    by_name = dict(zip(order, axes, strict=True))
    return [
        Placement(tuple(by_name[name] if size > 1 else () for name, size in zip(dims, shape, strict=True)))
        for dims, shape in zip(names, shapes, strict=True)
    ]


def batch_parallel(mark: OperatorMark, specs: Sequence[TensorSpec], mesh: DeviceMatrix) -> list[Placement | None]:
    """MindSpore's choice for operators without a strategy: the first dimension is cut over as many devices as divide it.

    Weights, and other inputs that do not have the batch, stay whole.
    """
    shapes = [spec.shape for spec in specs]
    if not any(shapes):
        return [Placement(()) for _ in shapes]
    leader = (
        1 if mark.operator in _LOOKUPS and len(shapes) > 1 else max(range(len(shapes)), key=lambda n: len(shapes[n]))
    )
    axes = _dividing(shapes[leader][0], mesh) if shapes[leader] else ()
    names = dimension_names(mark, shapes)
    found: list[Placement | None] = []
    for number, shape in enumerate(shapes):
        whole = Placement.replicated(len(shape))
        batch = bool(shape) and shape[0] == shapes[leader][0] and _same_first(names, number, leader, shapes)
        found.append(Placement((axes, *whole.dims[1:])) if batch else whole)
    return found


_LOOKUPS = frozenset({"Gather", "SparseGatherV2", "EmbeddingLookup", "embedding"})


def _same_first(names: Names, number: int, leader: int, shapes: Sequence[Shape]) -> bool:
    """Whether the first dimensions of two inputs are one and the same, as far as that is known."""
    if number == leader:
        return True
    if names == _separate(shapes):
        return len(shapes[number]) == len(shapes[leader]) or not _broadcasts([shapes[leader], shapes[number]])
    return names[number][0].rstrip("!") == names[leader][0].rstrip("!")


def _broadcasts(shapes: Sequence[Shape]) -> bool:
    """Whether the shapes fit together aligned at the right, as those of element-wise operators do."""
    longest = max(shapes, key=len)
    for shape in shapes:
        for size, whole in zip(reversed(shape), reversed(longest), strict=False):
            if size not in (1, whole) and whole != 1:
                return False
    return True


def _dividing(size: int, mesh: DeviceMatrix) -> Axes:
    """The leading axes of the mesh that divide a dimension."""
    axes: list[int] = []
    for axis in range(mesh.num_axes):
        if size % num_parts(mesh, (*axes, axis)):
            break
        axes.append(axis)
    return tuple(axes)


# ------------------------------------------------------------------------------------------------------------- names


def dimension_names(mark: OperatorMark, shapes: Sequence[Shape]) -> Names:
    """The named dimensions of an operator's inputs."""
    make = _NAMES.get(mark.operator)
    names = make(mark, shapes) if make is not None else _aligned(mark, shapes)
    return names if names is not None else _separate(shapes)


def _aligned(mark: OperatorMark, shapes: Sequence[Shape]) -> Names | None:
    """Element-wise: dimensions are counted from the right."""
    if not _broadcasts(shapes):
        return None
    whole = _whole_dims(mark, len(shapes[0])) if shapes else set()
    rank = max(map(len, shapes), default=0)
    return tuple(
        tuple(
            f"d{rank - len(shape) + dim}{'!' if dim in whole and len(shape) == rank else ''}"
            for dim in range(len(shape))
        )
        for shape in shapes
    )


def _separate(shapes: Sequence[Shape]) -> Names:
    """Nothing is known of how dimensions belong together."""
    return tuple(tuple(f"{number}.{dim}" for dim in range(len(shape))) for number, shape in enumerate(shapes))


def _whole_dims(mark: OperatorMark, rank: int) -> set[int]:
    """Dimensions of an element-wise operator's input along which it works as a whole."""
    attribute, default = _WHOLE.get(mark.operator, ("", None))
    if not attribute:
        return set()
    value = mark.get(attribute, default)
    axes = value if isinstance(value, tuple) else (value,)
    return {axis % rank for axis in axes if isinstance(axis, int) and rank}


_WHOLE: dict[str, tuple[str, object]] = {
    **dict.fromkeys(("Softmax", "LogSoftmax", "L2Normalize", "Concat", "Split", "CumSum", "CumProd"), ("axis", -1)),
    "TopK": ("sorted_axis", -1),
    "SoftmaxCrossEntropyWithLogits": ("class_axis", -1),
    "GatherD": ("dim", 0),
}


def _matmul(mark: OperatorMark, shapes: Sequence[Shape]) -> Names | None:
    if len(shapes) < 2 or min(len(shapes[0]), len(shapes[1])) < 2:
        return None
    rank = max(len(shapes[0]), len(shapes[1]))
    last_a = ("k", "i") if mark.get("transpose_a", False) else ("i", "k")
    last_b = ("j", "k") if mark.get("transpose_b", mark.operator == "dense") else ("k", "j")
    batch = [tuple(f"b{rank - len(shape) + dim}" for dim in range(len(shape) - 2)) for shape in shapes[:2]]
    rest = [("j",)] * (len(shapes) - 2)
    return ((*batch[0], *last_a), (*batch[1], *last_b), *rest)


def _channels(mark: OperatorMark, shapes: Sequence[Shape]) -> Names:
    """An input with channels, and vectors with one entry per channel."""
    rank = len(shapes[0])
    channel = rank - 1 if "NHWC" in str(mark.get("data_format", "NCHW")) else min(1, rank - 1)
    first = tuple("c" if dim == channel else f"d{dim}" for dim in range(rank))
    return (first, *(tuple("c" if size > 1 else "one" for size in shape) for shape in shapes[1:]))


def _layer_norm(mark: OperatorMark, shapes: Sequence[Shape]) -> Names:
    rank = len(shapes[0])
    begin = mark.get("begin_norm_axis", -1)
    start = begin % rank if isinstance(begin, int) else rank - 1
    first = tuple(f"d{dim}{'!' if dim >= start else ''}" for dim in range(rank))
    return (first, *(first[rank - len(shape) :] for shape in shapes[1:]))


def _convolution(mark: OperatorMark, shapes: Sequence[Shape]) -> Names:
    spatial = len(shapes[0]) - 2
    inputs = ("n", "c", *(f"s{dim}" for dim in range(spatial)))
    kernel = ("o", "c", *(f"k{dim}!" for dim in range(spatial)))
    if mark.get("group", 1) != 1:
        inputs, kernel = ("n", "c!", *inputs[2:]), ("o!", "c!", *kernel[2:])
    return (inputs, kernel, *[("o",)] * (len(shapes) - 2))


def _gather(mark: OperatorMark, shapes: Sequence[Shape]) -> Names:
    table = tuple(f"p{dim}" for dim in range(len(shapes[0])))
    return (table, *(tuple(f"x{dim}" for dim in range(len(shape))) for shape in shapes[1:]))


def _labels(mark: OperatorMark, shapes: Sequence[Shape]) -> Names:
    """Logits ``n c …``, labels ``n …`` or like the logits, weights ``c``."""
    first = ("n", "c!", *(f"d{dim}" for dim in range(2, len(shapes[0]))))
    names = [first]
    for shape in shapes[1:]:
        names.append(
            first if len(shape) == len(first) else ("n", *first[2:]) if len(shape) == len(first) - 1 else ("c!",)
        )
    return tuple(names)


def _segments(mark: OperatorMark, shapes: Sequence[Shape]) -> Names:
    first = tuple(f"d{dim}" for dim in range(len(shapes[0])))
    return (first, *(first[: len(shape)] for shape in shapes[1:]))


_NAMES: dict[str, Callable[[OperatorMark, Sequence[Shape]], Names | None]] = {
    **dict.fromkeys(("MatMul", "BatchMatMul", "matmul", "dense"), _matmul),
    **dict.fromkeys(("BiasAdd", "BatchNorm", "PReLU"), _channels),
    "LayerNorm": _layer_norm,
    **dict.fromkeys(("Conv2D", "Conv3D", "conv2d", "conv3d"), _convolution),
    **dict.fromkeys(_LOOKUPS, _gather),
    **dict.fromkeys(("cross_entropy", "nll_loss", "NLLLoss"), _labels),
    **dict.fromkeys(("UnsortedSegmentSum", "UnsortedSegmentMin", "UnsortedSegmentMax"), _segments),
}


# -------------------------------------------------------------------------------------------------- the device matrix


def _order(mark: OperatorMark, names: Names) -> list[str]:
    """The names in the order of the operator's device matrix."""
    order = list(dict.fromkeys(name for dims in names for name in dims))
    if mark.operator in ("MatMul", "BatchMatMul", "matmul", "dense"):
        order = [name for name in order if name not in "ikj"] + [name for name in "ikj" if name in order]
    return order


def _repeats_left(mark: OperatorMark, cuts: dict[str, int]) -> bool:
    """A lookup in a table whose rows are cut has its repetition at the left of the device matrix."""
    return mark.operator in _LOOKUPS and cuts.get("p0", 1) > 1


def _spread(where: str, matrix: Sequence[int], mesh: DeviceMatrix, repeat_left: bool) -> list[Axes]:
    """Consecutive axes of the mesh for each number of slices."""
    used = math.prod(matrix)
    if mesh.num_devices % used:
        raise SporaxRuntimeError(
            f"For '{where}', the slices must divide the {mesh.num_devices} devices, but the strategy makes "
            f"{' x '.join(map(str, matrix))} = {used}."
        )
    left = mesh.num_devices // used if repeat_left else 1
    axes = list(range(mesh.num_axes))
    found: list[Axes] = []
    for parts in (left, *matrix):
        taken: list[int] = []
        while num_parts(mesh, tuple(taken)) < parts and axes:
            taken.append(axes.pop(0))
        if num_parts(mesh, tuple(taken)) != parts:
            raise SporaxRuntimeError(
                f"For '{where}', the device matrix {tuple(matrix)} does not fit the {mesh.num_devices} devices arranged as "
                f"{mesh}: no run of axes makes {parts}."
            )
        found.append(tuple(taken))
    return found[1:]


def _check_lengths(where: str, strategy: Sequence[object], shapes: Sequence[Shape], num_devices: int) -> None:
    """What holds for every operator, whatever it computes."""
    Strategy(tuple(strategy)).check(where, tuple(shapes), num_devices)  # type: ignore[arg-type]
