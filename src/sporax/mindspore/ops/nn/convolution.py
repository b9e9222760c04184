"""Convolutions over one, two and three spatial dims, and their transposes."""

from __future__ import annotations

from typing import Any, Literal

import jax

from sporax.base.errors import For, SporaxValueError
from sporax.mindspore.ops._core import Array, check, operator
from sporax.mindspore.ops._core.check import ImageFormat, Pair, pair, per_dim
from sporax.mindspore.ops.nn.window_dims import CONVOLUTION, convolution

Padding = Literal["same", "valid", "pad", "SAME", "VALID", "PAD"]


def _padding(name: str, pad_mode: str, pad: Any) -> Any:
    """What `lax` wants: "SAME", "VALID", or ((top, bottom), (left, right))."""
    if pad_mode.lower() != "pad":
        return pad_mode.upper()
    sides = (pad,) * 4 if isinstance(pad, int) else tuple(pad)
    if len(sides) == 2:
        sides = (sides[0], sides[0], sides[1], sides[1])
    For(name).refuse(len(sides) != 4 or min(sides) < 0, "'pad' must be one, two or four ints >= 0", pad)
    return (sides[0], sides[1]), (sides[2], sides[3])


@operator(
    "Conv2D(out_channel, kernel_size, mode, pad_mode, pad, stride, dilation, group, data_format)",
    function="",
    dims=CONVOLUTION,
)
def _conv2d(
    x: Array,
    weight: Array,
    out_channel: int,
    kernel_size: int | Pair,
    mode: int = 1,
    pad_mode: Padding = "valid",
    pad: int | tuple[int, ...] = 0,
    stride: int | tuple[int, ...] = 1,
    dilation: int | tuple[int, ...] = 1,
    group: int = 1,
    data_format: ImageFormat = "NCHW",
) -> Array:
    """Cross-correlation of images with `out_channel` kernels.

    Args:
        x: (N, C_in, H, W), or (N, H, W, C_in) for NHWC.
        weight: (out_channel, C_in / group, kernel height, kernel width), or (…, kernel height, kernel width, C_in / group).
        out_channel: number of kernels.
        kernel_size: height and width of the kernels.
        mode: 1, cross-correlation; nothing else exists.
        pad_mode: ``"same"`` (output size is input size / stride), ``"valid"`` (no padding) or ``"pad"`` (`pad` cells).
        pad: cells on all sides, or (top, bottom, left, right); only with ``"pad"``.
        stride: step of the kernel.
        dilation: distance between the cells the kernel looks at.
        group: the channels are divided into so many independent groups.
        data_format: NCHW or NHWC.

    Raises:
        SporaxTypeError: the dtypes differ.
        SporaxValueError: channels, kernel or sizes do not fit together.
    """
    name = "Conv2D"
    check.one_of(name, mode, (1,), "mode")
    check.rank(name, 4, x=x, weight=weight)
    check.same_dtype(name, x=x, weight=weight)
    # MindSpore's kernels are output channels first in both layouts.
    kernel_layout = "OIHW" if data_format == "NCHW" else "OHWI"
    size = pair(name, kernel_size, "kernel_size")
    channels, expected = x.shape[data_format.index("C")], weight.shape[kernel_layout.index("I")] * group
    if channels != expected:
        raise SporaxValueError(
            f"For 'Conv2D', the channels of 'x' must be the channels of 'weight' times 'group', "
            f"but got {channels} and {expected} (x.shape {x.shape}, weight.shape {weight.shape}, group {group})."
        )
    got = weight.shape[0], *(weight.shape[kernel_layout.index(dim)] for dim in "HW")
    if got != (out_channel, *size):
        raise SporaxValueError(
            f"For 'Conv2D', 'weight' must have out_channel {out_channel} and kernel_size {size}, but its shape is {weight.shape}."
        )
    result = jax.lax.conv_general_dilated(
        x,
        weight,
        window_strides=pair(name, stride, "stride"),
        padding=_padding(name, pad_mode, pad),
        rhs_dilation=pair(name, dilation, "dilation"),
        dimension_numbers=(data_format, kernel_layout, data_format),
        feature_group_count=group,
    )
    # XLA gives an empty result where MindSpore raises.
    For("Conv2D").refuse(0 in result.shape, f"the kernel {size} does not fit into 'x' of shape {x.shape}")
    return result


Setting = int | tuple[int, ...]
PadMode = Literal["same", "valid", "pad", "SAME", "VALID", "PAD"]
Edges = tuple[tuple[int, int], ...]
_DIMS = {1: "W", 2: "HW", 3: "DHW"}


def edges(name: str, value: Any, dims: int) -> Edges:
    """Cells added before and after each spatial dim: one int for all, one for each dim, or two for each dim."""
    # In one dim two numbers could mean either; there they are one setting per dim.
    if isinstance(value, tuple) and len(value) == 2 * dims and dims > 1:
        flat = per_dim(name, "padding", value, 2 * dims, 0)
        return tuple(zip(flat[::2], flat[1::2], strict=True))
    return tuple((cells, cells) for cells in per_dim(name, "padding", value, dims, 0))


def same_edges(sizes: tuple[int, ...], window: tuple[int, ...], stride: tuple[int, ...]) -> Edges:
    """Cells to add so that the output has ``ceil(size / stride)`` elements; the odd one goes behind."""
    totals = [
        max((-(-size // step) - 1) * step + reach - size, 0)
        for size, reach, step in zip(sizes, window, stride, strict=True)
    ]
    return tuple((total // 2, total - total // 2) for total in totals)


def resolved_edges(name: str, pad_mode: str, padding: Any, sizes: Any, window: Any, stride: Any) -> Edges:
    """Cells to add for a pad mode: ``"valid"`` none, ``"same"`` as `same_edges`, ``"pad"`` those of `padding`.

    Raises:
        SporaxValueError: another mode, or `padding` without ``"pad"``.
    """
    mode = pad_mode.lower()
    check.one_of(name, mode, ("same", "valid", "pad"), "pad_mode")
    around = edges(name, padding, len(sizes))
    if mode == "pad":
        return around
    # Padding without the mode would be ignored.
    For(name).refuse(any(low or high for low, high in around), "'pad' must be 0 when 'pad_mode' is not 'pad'", padding)
    return tuple((0, 0) for _ in sizes) if mode == "valid" else same_edges(sizes, window, stride)


def _reach(kernel: tuple[int, ...], dilation: tuple[int, ...]) -> tuple[int, ...]:
    return tuple((size - 1) * gap + 1 for size, gap in zip(kernel, dilation, strict=True))


def _convolved(
    name: str, x: Array, weight: Array, stride: Any, pad_mode: str, padding: Any, dilation: Any, groups: int
) -> Array:
    """Cross-correlation of (n, c_in, …) with (c_out, c_in / groups, …)."""
    check.floating(name, input=x, weight=weight)
    check.same_dtype(name, input=x, weight=weight)
    dims = weight.ndim - 2
    For(name).refuse(x.ndim != weight.ndim, f"'input' must have {dims + 2} dims, but its shape is {x.shape}")
    if groups < 1 or x.shape[1] != weight.shape[1] * groups or weight.shape[0] % groups:
        raise SporaxValueError(
            f"For '{name}', the channels of 'input' must be those of 'weight' times 'groups', which must divide the "
            f"output channels, but got shapes {x.shape} and {weight.shape} with groups {groups}."
        )
    step, gap = per_dim(name, "stride", stride, dims), per_dim(name, "dilation", dilation, dims)
    around = resolved_edges(name, pad_mode, padding, x.shape[2:], _reach(weight.shape[2:], gap), step)
    layout = _DIMS[dims]
    result = jax.lax.conv_general_dilated(
        x, weight, step, around, rhs_dilation=gap, feature_group_count=groups,
        dimension_numbers=(f"NC{layout}", f"OI{layout}", f"NC{layout}"),
    )  # fmt: skip
    For(name).refuse(0 in result.shape[2:], f"the kernel {weight.shape[2:]} does not fit into 'input' {x.shape}")
    return result


def _biased(result: Array, bias: Array | None) -> Array:
    return result if bias is None else result + bias.reshape(-1, *[1] * (result.ndim - 2))


def _functional(dims: int) -> None:
    name = f"conv{dims}d"

    def kernel(
        input: Array,
        weight: Array,
        bias: Array | None = None,
        stride: Setting = 1,
        pad_mode: PadMode = "valid",
        padding: Setting = 0,
        dilation: Setting = 1,
        groups: int = 1,
    ) -> Array:
        check.rank(name, dims + 2, weight=weight)
        return _biased(_convolved(name, input, weight, stride, pad_mode, padding, dilation, groups), bias)

    def torch_like(
        input: Array,
        weight: Array,
        bias: Array | None = None,
        stride: Setting = 1,
        padding: Setting | Literal["valid", "same"] = 0,
        dilation: Setting = 1,
        groups: int = 1,
    ) -> Array:
        check.rank(name, dims + 2, weight=weight)
        # Torch allows one sample without its dim.
        batched = input if input.ndim == dims + 2 else input[None]
        mode, around = (padding, 0) if isinstance(padding, str) else ("pad", padding)
        result = _biased(_convolved(name, batched, weight, stride, mode, around, dilation, groups), bias)
        return result if input.ndim == dims + 2 else result[0]

    what = f"Cross-correlation of (n, c_in, {dims} dims) with kernels (c_out, c_in / groups, {dims} dims)"
    kernel.__name__ = torch_like.__name__ = name
    kernel.__doc__ = (
        f"{what}.\n\n"
        "    Args:\n"
        "        input, weight: of one floating dtype.\n"
        "        bias: (c_out,), added to each channel.\n"
        "        stride: step of the kernel.\n"
        '        pad_mode: "same" (output size is input size / stride), "valid" (no padding) or "pad" (`padding` cells).\n'
        '        padding: cells around, for each dim or for each of its ends; only with "pad".\n'
        "        dilation: distance between the cells the kernel looks at.\n"
        "        groups: number of independent groups of channels.\n"
    )
    torch_like.__doc__ = f'{what}; `padding` in cells, or "valid" or "same". The sample dim may be missing.'
    operator(function=name, dims=convolution)(kernel)
    operator(function="", mint=f"nn.functional.{name}", dims=convolution)(torch_like)


for _dims in (1, 2, 3):
    _functional(_dims)


def _check_kernel(name: str, weight: Array, channels: int, out_channel: int, kernel_size: object, mode: int) -> None:
    check.one_of(name, mode, (1,), "mode")
    size = per_dim(name, "kernel_size", kernel_size, weight.ndim - 2)
    if (channels, *weight.shape[2:]) != (out_channel, *size):
        raise For(name).error(
            f"'weight' must have out_channel {out_channel} and kernel_size {size}, but its shape is {weight.shape}"
        )


@operator(
    "Conv3D(out_channel, kernel_size, mode, pad_mode, pad, stride, dilation, group, data_format)",
    function="",
    dims=CONVOLUTION,
)
def _conv3d(
    x: check.Rank5,
    weight: check.Rank5,
    out_channel: int,
    kernel_size: Setting,
    mode: int = 1,
    pad_mode: PadMode = "valid",
    pad: Setting = 0,
    stride: Setting = 1,
    dilation: Setting = 1,
    group: int = 1,
    data_format: Literal["NCDHW"] = "NCDHW",
) -> Array:
    """Cross-correlation of volumes (n, c_in, d, h, w) with kernels (out_channel, c_in / group, d, h, w)."""
    _check_kernel("Conv3D", weight, weight.shape[0], out_channel, kernel_size, mode)
    return _convolved("Conv3D", x, weight, stride, pad_mode, pad, dilation, group)


def _transposed(
    name: str, x: Array, weight: Array, stride: tuple[int, ...], around: Edges, extra: Any, gap: Any, groups: int
) -> Array:
    """What the gradient of a convolution does: (n, c_in, …) and (c_in, c_out / groups, …) give (n, c_out, …).

    `around` is the padding of that convolution; `extra` cells are added behind to reach its input size.
    """
    check.floating(name, input=x, weight=weight)
    check.same_dtype(name, input=x, weight=weight)
    if x.ndim != weight.ndim or groups < 1 or x.shape[1] != weight.shape[0] or x.shape[1] % groups:
        raise SporaxValueError(
            f"For '{name}', the channels of the input must be dim 0 of 'weight' and divisible by the groups, "
            f"but got shapes {x.shape} and {weight.shape} with {groups} groups."
        )
    size = weight.shape[2:]
    # Channels of each group exchange roles, as the gradient's kernel needs it.
    turned = weight.reshape(groups, x.shape[1] // groups, *weight.shape[1:]).swapaxes(1, 2)
    turned = turned.reshape(-1, x.shape[1] // groups, *size)[(slice(None),) * 2 + (slice(None, None, -1),) * len(size)]
    padding = [
        (reach - 1 - low, reach - 1 - high + more)
        for reach, (low, high), more in zip(_reach(size, gap), around, extra, strict=True)
    ]
    layout = _DIMS[len(size)]
    # A stride of the convolution is a dilation of the input here.
    return jax.lax.conv_general_dilated(
        x, turned, (1,) * len(size), padding, lhs_dilation=stride, rhs_dilation=gap, feature_group_count=groups,
        dimension_numbers=(f"NC{layout}", f"OI{layout}", f"NC{layout}"),
    )  # fmt: skip


def _conv2d_backprop_input(name: str) -> None:
    def kernel(
        dout: Array,
        weight: Array,
        input_size: tuple[int, ...],
        out_channel: int,
        kernel_size: Setting,
        pad_mode: PadMode = "valid",
        pad: Setting = 0,
        pad_list: tuple[int, ...] | None = None,
        mode: int = 1,
        stride: Setting = 1,
        dilation: Setting = 1,
        group: int = 1,
        data_format: Literal["NCHW"] = "NCHW",
    ) -> Array:
        check.rank(name, 4, dout=dout, weight=weight)
        _check_kernel(name, weight, weight.shape[0], out_channel, kernel_size, mode)
        step, gap = per_dim(name, "stride", stride, 2), per_dim(name, "dilation", dilation, 2)
        reach, sizes = _reach(weight.shape[2:], gap), input_size[2:]
        around = resolved_edges(name, pad_mode, pad if pad_list is None else pad_list, sizes, reach, step)
        # What the stride had rounded away in the forward direction.
        extra = [
            size - ((length - 1) * jump + far - low - high)
            for size, length, jump, far, (low, high) in zip(sizes, dout.shape[2:], step, reach, around, strict=True)
        ]
        # Anything beyond the stride cannot come from rounding.
        if len(input_size) != 4 or any(not 0 <= more < jump for more, jump in zip(extra, step, strict=True)):
            raise SporaxValueError(
                f"For '{name}', no input of size {input_size} gives 'dout' of shape {dout.shape} with these settings."
            )
        return _transposed(name, dout, weight, step, around, extra, gap, group)

    kernel.__name__ = f"_{name.lower()}"
    kernel.__doc__ = (
        "Gradient of Conv2D with respect to its input of size `input_size`.\n\n"
        "    Args:\n"
        "        dout: (n, out_channel, h, w).\n"
        "        weight: (out_channel, c / group, kernel height, kernel width).\n"
        "        input_size: (n, c, H, W), the shape of the result.\n"
        "        out_channel, kernel_size, pad_mode, pad, mode, stride, dilation, group: as for Conv2D; `pad_list` takes\n"
        "            the place of `pad`.\n"
        "        data_format: NCHW.\n"
    )
    form = "out_channel, kernel_size, pad_mode, pad, pad_list, mode, stride, dilation, group, data_format"
    operator(f"{name}({form})", function="", dims="n o h w, o c kh! kw!")(kernel)


_conv2d_backprop_input("Conv2DTranspose")
_conv2d_backprop_input("Conv2DBackpropInput")


def _up(
    name: str, x: Array, weight: Array, stride: Any, pad_mode: str, padding: Any, extra: Any, dilation: Any, groups: int
) -> Array:
    dims = weight.ndim - 2
    step, gap = per_dim(name, "stride", stride, dims), per_dim(name, "dilation", dilation, dims)
    more = per_dim(name, "output_padding", extra, dims, 0)
    # As for PyTorch: more would be a row without any product.
    if any(addition >= max(jump, wide) for addition, jump, wide in zip(more, step, gap, strict=True)):
        raise For(name).error("'output_padding' must be smaller than the stride or the dilation", extra)
    # "same" refers to the size of the result here.
    sizes = tuple(size * jump for size, jump in zip(x.shape[2:], step, strict=True))
    around = resolved_edges(name, pad_mode, padding, sizes, _reach(weight.shape[2:], gap), step)
    return _transposed(name, x, weight, step, around, more, gap, groups)


@operator(function="conv_transpose2d", mint="nn.functional.conv_transpose2d")
def conv_transpose2d(
    input: Array,
    weight: Array,
    bias: Array | None = None,
    stride: Setting = 1,
    padding: Setting = 0,
    output_padding: Setting = 0,
    groups: int = 1,
    dilation: Setting = 1,
) -> Array:
    """Transposed convolution of images (n, c_in, h, w) with kernels (c_in, c_out / groups, h, w).

    The output size is ``(size - 1) * stride - 2 * padding + dilation * (kernel - 1) + output_padding + 1``.
    """
    check.rank("conv_transpose2d", 4, input=input, weight=weight)
    return _biased(
        _up("conv_transpose2d", input, weight, stride, "pad", padding, output_padding, dilation, groups), bias
    )


@operator(function="conv3d_transpose")
def conv3d_transpose(
    inputs: check.Rank5,
    weight: check.Rank5,
    pad_mode: PadMode = "valid",
    padding: Setting = 0,
    stride: Setting = 1,
    dilation: Setting = 1,
    group: int = 1,
    output_padding: Setting = 0,
) -> Array:
    """Transposed convolution of volumes (n, c_in, d, h, w) with kernels (c_in, c_out / group, d, h, w)."""
    return _up("conv3d_transpose", inputs, weight, stride, pad_mode, padding, output_padding, dilation, group)


@operator(
    "Conv3DTranspose(in_channel, out_channel, kernel_size, mode, pad_mode, pad, stride, dilation, group, "
    "output_padding, data_format)",
    function="",
)
def _conv3d_transpose_primitive(
    dout: check.Rank5,
    weight: check.Rank5,
    in_channel: int,
    out_channel: int,
    kernel_size: Setting,
    mode: int = 1,
    pad_mode: PadMode = "valid",
    pad: Setting = 0,
    stride: Setting = 1,
    dilation: Setting = 1,
    group: int = 1,
    output_padding: Setting = 0,
    data_format: Literal["NCDHW"] = "NCDHW",
) -> Array:
    """Transposed convolution of volumes (n, in_channel, d, h, w) with kernels (in_channel, out_channel / group, d, h, w)."""
    _check_kernel("Conv3DTranspose", weight, weight.shape[1] * group, out_channel, kernel_size, mode)
    For("Conv3DTranspose").refuse(
        dout.shape[1] != in_channel, f"'dout' must have in_channel {in_channel} channels, but its shape is {dout.shape}"
    )
    return _up("Conv3DTranspose", dout, weight, stride, pad_mode, pad, output_padding, dilation, group)
