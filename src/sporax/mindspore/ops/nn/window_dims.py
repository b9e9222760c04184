"""Dimensions of convolutions and pooling, and how windows limit their sharding.

The limits are those of MindSpore's documentation. Most of them ensure that a rank does not need the data of its neighbours.
"""

from __future__ import annotations

from sporax.base.errors import SporaxRuntimeError
from sporax.ir.operator_dims import Call, Dims, Names, NumSlices, OperatorDims, Shapes


def convolution(call: Call, shapes: Shapes) -> Dims:
    """Height and width (or depth and height) may be sharded, the last dimension of three may not, the kernel never."""
    grouped = call.get("group", call.get("groups", 1)) != 1
    windows = tuple(f"k{dim}!" for dim in range(len(shapes[0]) - 2))
    # With groups, a channel belongs to one group, and slices would divide groups.
    channel, outputs = ("c!", "o!") if grouped else ("c", "o")
    kernel = (outputs, *windows, channel) if _channels_last(call) else (outputs, channel, *windows)
    return Dims((_image(call, shapes, channel), kernel, *[("o",)] * (len(shapes) - 2)), leader=0)


def _pooled(call: Call, shapes: Shapes) -> Dims:
    return Dims((_image(call, shapes, "c"),))


def _image(call: Call, shapes: Shapes, channel: str) -> Names:
    spatial = len(shapes[0]) - 2
    names = tuple(f"s{dim}{'!' if spatial == 3 and dim == 2 else ''}" for dim in range(spatial))
    return ("n", *names, channel) if _channels_last(call) else ("n", channel, *names)


def _channels_last(call: Call) -> bool:
    return "NHWC" in str(call.get("data_format", "NCHW"))


def _convolution_limits(call: Call, shapes: Shapes, slices: NumSlices, num_devices: int) -> None:
    """Windows of a sharded dimension stay inside the slice, or reach into the next one alone."""
    mode = str(call.get("pad_mode", "valid")).lower()
    kernel, parts = _spatial(call, shapes[1]), _spatial(call, slices[0])
    for dim, (size, num_slices) in enumerate(zip(_spatial(call, shapes[0]), parts, strict=True)):
        if num_slices == 1:
            continue
        stride, dilation = (_of_dim(call, name, dim, len(parts)) for name in ("stride", "dilation"))
        reach = dilation * (kernel[dim] - 1) + 1
        if mode == "valid":
            _window_inside(call, dim, size, num_slices, reach, stride)
            # Without padding, MindSpore exchanges nothing, so windows may not reach across slices at all.
            continue
        if size // num_slices % stride:
            raise SporaxRuntimeError(
                f"For '{call.where}', the slices of spatial dimension {dim} must be a multiple of the stride {stride}, but "
                f"{size} elements in {num_slices} slices are {size // num_slices} each."
            )
        # The exchange reaches the next slice only, not the one after it.
        if reach - stride > size // num_slices:
            raise SporaxRuntimeError(
                f"For '{call.where}', a window of spatial dimension {dim} must not reach beyond the next slice, but it reaches "
                f"{reach - stride} elements further than its stride, and slices are {size // num_slices} long."
            )


def _pooling_limits(call: Call, shapes: Shapes, slices: NumSlices, num_devices: int) -> None:
    """Windows of volumes may reach into the next slice where there is padding; all others stay inside their slice."""
    parts = _spatial(call, slices[0])
    padded = len(parts) == 3 and str(call.get("pad_mode", "valid")).lower() != "valid"
    for dim, (size, num_slices) in enumerate(zip(_spatial(call, shapes[0]), parts, strict=True)):
        if num_slices > 1:
            reach, stride = (_of_dim(call, name, dim, len(parts)) for name in ("kernel_size", "strides"))
            if not padded or reach <= stride:
                _window_inside(call, dim, size, num_slices, reach, stride)
            if padded:
                _window_near(call, dim, size, num_slices, reach, stride)


def _window_near(call: Call, dim: int, size: int, num_slices: int, reach: int, stride: int) -> None:
    same, pad = str(call.get("pad_mode")).lower() == "same", call.get("pad_list", call.get("pad", 0))
    total = max(0, (-(-size // stride) - 1) * stride + reach - size)
    front, behind = pad[2 * dim : 2 * dim + 2] if isinstance(pad, tuple) else (pad, pad)
    front, behind = (total // 2, total - total // 2) if same else (int(str(front)), int(str(behind)))
    windows, slice_size = (size + front + behind - reach) // stride + 1, size // num_slices
    unread = size + front - reach - (windows - 1) * stride
    # The first and the last element that the windows of each side of a boundary read, from the boundary on.
    firsts = [slice_size * at - windows * at // num_slices * stride + front for at in range(1, num_slices)]
    reads = [*firsts, *(reach - stride - first for first in firsts)]
    if windows % num_slices or max(reads) > slice_size or (unread > 0 and not same):
        raise SporaxRuntimeError(
            f"For '{call.where}', spatial dimension {dim} has {num_slices} slices of {slice_size} elements, so its windows must "
            f"be a multiple of {num_slices}, read all elements and not reach beyond the next slice, but there are {windows} "
            f"of {reach} with a stride of {stride}, padding {front} and {behind}, and {max(0, unread)} elements unread."
        )


def _window_inside(call: Call, dim: int, size: int, num_slices: int, reach: int, stride: int) -> None:
    # Windows that do not overlap read only elements of their own slice.
    if reach > stride:
        raise SporaxRuntimeError(
            f"For '{call.where}', spatial dimension {dim} has {num_slices} slices, so its windows must not overlap: the window "
            f"of {reach} must be at most the stride, but that is {stride}."
        )
    if size // num_slices % stride:
        raise SporaxRuntimeError(
            f"For '{call.where}', the slices of spatial dimension {dim} must be a multiple of the stride {stride}, but {size} "
            f"elements in {num_slices} slices are {size // num_slices} each."
        )


def _spatial(call: Call, values: tuple[int, ...]) -> tuple[int, ...]:
    """The values of the spatial dimensions."""
    return values[1:-1] if _channels_last(call) else values[2:]


def _of_dim(call: Call, name: str, dim: int, num_spatial: int) -> int:
    """An attribute of one spatial dimension; set for all of them, for the last ones, or as one number."""
    # Attributes of four or five numbers include batch and channel; the spatial ones come last.
    value = call.get(name, 1)
    if isinstance(value, tuple):
        value = value[-num_spatial:][dim]
    return value if isinstance(value, int) else 1


CONVOLUTION = OperatorDims(convolution, _convolution_limits)
"""Of the classes; their functions have no limits."""

POOLING = OperatorDims(_pooled, _pooling_limits)
