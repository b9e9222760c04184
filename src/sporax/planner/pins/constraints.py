"""Constraints of operators that their named dimensions cannot express: limits that depend on attributes and sizes.

They are those of MindSpore's documentation. Most of them ensure that a rank does not need the data of its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sporax.base.errors import SporaxRuntimeError
from sporax.ir.marks import OperatorMark
from sporax.ir.operation import Shape
from sporax.planner.pins.manual_split import LOOKUPS, READERS, is_split
from sporax.planner.pins.operator_dims import lookup_axis

Cuts = Sequence[tuple[int, ...]]
"""Per input the number of slices of each dimension."""


def check_limits(mark: OperatorMark, shapes: Sequence[Shape], cuts: Cuts, num_devices: int) -> None:
    """Check one call of an operator.

    Args:
        mark: the operator with its attributes.
        shapes, cuts: of its inputs.
        num_devices: of one stage.

    Raises:
        SporaxRuntimeError: it cannot be sharded in this way.
    """
    check = _LIMITS.get(mark.operator)
    # An input that stays whole meets every limit.
    if check is not None and any(parts > 1 for cut in cuts for parts in cut):
        check(mark, shapes, cuts, num_devices)


def _strided_slice(mark: OperatorMark, shapes: Sequence[Shape], cuts: Cuts, num_devices: int) -> None:
    for name in ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"):
        if mark.get(name, 0):
            raise SporaxRuntimeError(
                f"For '{mark.where}', '{name}' must be 0 where the input is sharded, but got {mark.get(name)} with {cuts[0]}."
            )
    # Compared as they are given: a negative number is refused like any other part of the dimension.
    begin, end, strides = _ints(mark, "begin"), _ints(mark, "end"), _ints(mark, "strides")
    for dim, (size, parts) in enumerate(zip(shapes[0], cuts[0], strict=True)):
        # Slices of one entry: an attribute that is too short gives an empty tuple, which matches nothing.
        taken = (begin[dim : dim + 1], end[dim : dim + 1], strides[dim : dim + 1])
        untouched = dim >= len(begin)
        if parts > 1 and not untouched and taken != ((0,), (size,), (1,)):
            _refuse_part(mark, dim, parts, f"{taken[0]}:{taken[1]}:{taken[2]}", size)


def _slice(mark: OperatorMark, shapes: Sequence[Shape], cuts: Cuts, num_devices: int) -> None:
    begin, sizes = _ints(mark, "begin"), _ints(mark, "size")
    for dim, (size, parts) in enumerate(zip(shapes[0], cuts[0], strict=True)):
        if parts > 1 and (begin[dim : dim + 1] != (0,) or sizes[dim : dim + 1] not in ((size,), (-1,))):
            _refuse_part(mark, dim, parts, f"{sizes[dim : dim + 1]} from {begin[dim : dim + 1]}", size)


def _refuse_part(mark: OperatorMark, dim: int, parts: int, taken: str, size: int) -> None:
    raise SporaxRuntimeError(
        f"For '{mark.where}', dimension {dim} has {parts} slices, so all of its {size} elements must be taken with a stride of "
        f"1, but got {taken}."
    )


def _ints(mark: OperatorMark, name: str) -> tuple[int, ...]:
    value = mark.get(name, ())
    return value if isinstance(value, tuple) else ()


def _lookup(mark: OperatorMark, shapes: Sequence[Shape], cuts: Cuts, num_devices: int) -> None:
    if is_split(mark):
        return  # uneven parts have rules of their own
    (table, indices), shapes = cuts[:2], shapes[:2]
    if mark.operator not in LOOKUPS:  # indices first
        (indices, table), shapes = (table, indices), shapes[::-1]
    # Positions in the table of this call: `axis` may be negative.
    axis = lookup_axis(mark, len(table))
    if not table or table[axis] == 1:
        return
    if len(table) > 2 or not indices:
        raise SporaxRuntimeError(
            f"For '{mark.where}', a table that is sharded where indices point must have 1 or 2 dimensions and indices at least "
            f"1, but got shapes {shapes[0]} and {shapes[1]}."
        )
    # MindSpore allows one case with both sharded: two dimensions each, rows times batch use every device.
    cut_ids = [parts for parts in indices if parts > 1]
    both = axis == 0 and indices[0] == num_devices // table[0] and len(indices) == len(table) == 2 and table[1] == 1
    if cut_ids and not (both and indices[1:] == (1,)):
        raise SporaxRuntimeError(
            f"For '{mark.where}', indices must stay whole where dimension {axis} of the table, which they point into, is sharded "
            f"into {table[axis]}, but they are sharded into {indices}. (With 2 dimensions each, the first one may be sharded if "
            f"both numbers multiply to {num_devices}.)"
        )
    if axis and table[axis] != num_devices:
        raise SporaxRuntimeError(
            f"For '{mark.where}', slices of dimension {axis}, which indices point into, must use all {num_devices} devices, but "
            f"got {table[axis]}."
        )


def _convolution(mark: OperatorMark, shapes: Sequence[Shape], cuts: Cuts, num_devices: int) -> None:
    """Windows of a sharded dimension stay inside the slice, or reach into the next one alone."""
    mode = str(mark.get("pad_mode", "valid")).lower()
    kernel, parts = _places(mark, shapes[1]), _places(mark, cuts[0])
    for dim, (size, cut) in enumerate(zip(_places(mark, shapes[0]), parts, strict=True)):
        if cut == 1:
            continue
        stride, dilation = _of_dim(mark, "stride", dim), _of_dim(mark, "dilation", dim)
        # Elements from the first to the last that a window reads.
        reach = dilation * (kernel[dim] - 1) + 1
        if mode == "valid":
            _window_inside(mark, dim, size, cut, reach, stride)
            # Without padding, MindSpore exchanges nothing, so windows may not cross slices at all.
            continue
        if size // cut % stride:
            raise SporaxRuntimeError(
                f"For '{mark.where}', the slices of spatial dimension {dim} must be a multiple of the stride {stride}, but "
                f"{size} elements in {cut} slices are {size // cut} each."
            )
        # The exchange reaches the next slice only, not the one after it.
        if reach - stride > size // cut:
            raise SporaxRuntimeError(
                f"For '{mark.where}', a window of spatial dimension {dim} must not reach beyond the next slice, but it reaches "
                f"{reach - stride} elements further than its stride, and slices are {size // cut} long."
            )


def _pooling(mark: OperatorMark, shapes: Sequence[Shape], cuts: Cuts, num_devices: int) -> None:
    for dim, (size, cut) in enumerate(zip(_places(mark, shapes[0]), _places(mark, cuts[0]), strict=True)):
        if cut > 1:
            _window_inside(mark, dim, size, cut, _of_dim(mark, "kernel_size", dim), _of_dim(mark, "strides", dim))


def _window_inside(mark: OperatorMark, dim: int, size: int, cut: int, reach: int, stride: int) -> None:
    # Windows that do not overlap read only elements of their own slice.
    if reach > stride:
        raise SporaxRuntimeError(
            f"For '{mark.where}', spatial dimension {dim} has {cut} slices, so its windows must not overlap: the window of "
            f"{reach} must be at most the stride, but that is {stride}."
        )
    if size // cut % stride:
        raise SporaxRuntimeError(
            f"For '{mark.where}', the slices of spatial dimension {dim} must be a multiple of the stride {stride}, but {size} "
            f"elements in {cut} slices are {size // cut} each."
        )


def _places(mark: OperatorMark, values: tuple[int, ...]) -> tuple[int, ...]:
    """What belongs to the spatial dimensions."""
    return values[1:-1] if "NHWC" in str(mark.get("data_format", "NCHW")) else values[2:]


def _of_dim(mark: OperatorMark, name: str, dim: int) -> int:
    """An attribute of one spatial dimension; given for all of them, for the last ones, or as one number."""
    # Attributes of four or five numbers include batch and channel; the spatial ones come last.
    value = mark.get(name, 1)
    if isinstance(value, tuple):
        spatial = value[-3:] if mark.operator.endswith("3D") else value[-2:]
        value = spatial[dim]
    return value if isinstance(value, int) else 1


_LIMITS: dict[str, Callable[[OperatorMark, Sequence[Shape], Cuts, int], None]] = {
    "StridedSlice": _strided_slice,
    "Slice": _slice,
    **dict.fromkeys(READERS, _lookup),
    **dict.fromkeys(("Conv2D", "Conv3D"), _convolution),
    **dict.fromkeys(("MaxPool", "AvgPool", "MaxPool3D", "AvgPool3D"), _pooling),
}
