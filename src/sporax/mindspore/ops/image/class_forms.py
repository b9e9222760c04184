"""Image operators in MindSpore's class forms, whose constructors take what the functions take as arguments.

Colours: between red, green and blue and hue, saturation and value, and images whose hue or saturation is changed.

All channels are in the last dim and in [0, 1].
"""

from __future__ import annotations

from typing import Any, Literal

import jax.numpy as jnp

from sporax.base.errors import SporaxValueError
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.ops._core import check, extremes
from sporax.mindspore.ops._core.check import known
from sporax.mindspore.ops._core.operator import Array, Operand, operator
from sporax.mindspore.ops.image.resize import interpolate
from sporax.mindspore.ops.image.sampling import affine_grid


@operator("AffineGrid(align_corners)", function="")
def _affine_grid_class(theta: Array, output_size: tuple[int, ...], align_corners: bool = False) -> Array:
    """The grid that samples an affine image of the output; see `ops.affine_grid`."""
    result: Array = affine_grid.kernel(theta, output_size, align_corners)
    # An assignment for the type checker: kernels are untyped.
    return result


@operator("UpsampleNearest3D()", function="", composed=True)
def _upsample_nearest(x: Any, output_size: Any = None, scales: Any = None) -> Any:
    """Volumes (n, c, d, h, w) resized to `output_size`, or by the factors `scales`, with the nearest elements."""
    return interpolate(x, output_size, None if scales is None else tuple(scales), "nearest")


@operator("UpsampleTrilinear3D(align_corners)", function="", composed=True)
def _upsample_trilinear(x: Any, output_size: Any = None, scales: Any = None, align_corners: bool = False) -> Any:
    """Volumes (n, c, d, h, w) resized to `output_size`, or by the factors `scales`, interpolated linearly."""
    return interpolate(x, output_size, None if scales is None else tuple(scales), "trilinear", align_corners)


@operator("ResizeLinear1D(coordinate_transformation_mode)", function="", composed=True)
def _resize_linear(
    x: Any, size: Any, coordinate_transformation_mode: Literal["align_corners", "half_pixel"] = "align_corners"
) -> Any:
    """Signals (n, c, w) resized to `size`, interpolated linearly."""
    sizes = known("ResizeLinear1D", "size", size).reshape(-1).tolist() if isinstance(size, Tensor) else size
    corners = coordinate_transformation_mode == "align_corners"
    return interpolate(x, check.shape("ResizeLinear1D", sizes, "size"), None, "linear", corners)


def _pixels(name: str, **images: Array) -> None:
    check.floating(name, **images)
    for what, image in images.items():
        if not image.ndim or image.shape[-1] != 3:
            raise SporaxValueError.must(name, what, "have 3 channels in its last dim", image.shape)


@operator("RGBToHSV()", function="")
def _rgb_to_hsv(images: Array) -> Array:
    """Hue, saturation and value of red, green and blue."""
    _pixels("RGBToHSV", images=images)
    red, green, blue = (images[..., channel] for channel in range(3))
    # Extremes whose gradient does not depend on rounding.
    value = extremes.largest(images, -1)
    spread = value - extremes.smallest(images, -1)
    # A gray pixel has no hue; 1 keeps the division harmless, also in the gradient.
    safe = jnp.where(spread > 0, spread, 1)
    hue = jnp.where(
        value == red,
        (green - blue) / safe,
        jnp.where(value == green, 2 + (blue - red) / safe, 4 + (red - green) / safe),
    )
    saturation = jnp.where(value > 0, spread / jnp.where(value > 0, value, 1), 0)
    # In turns, from 0 to 1.
    return jnp.stack([jnp.where(spread > 0, hue / 6 % 1, 0), saturation, value], -1)


@operator("HSVToRGB()", function="")
def _hsv_to_rgb(x: Array) -> Array:
    """Red, green and blue of hue, saturation and value."""
    _pixels("HSVToRGB", x=x)
    hue, saturation, value = (x[..., channel] for channel in range(3))

    def channel(offset: int) -> Array:
        # How far a corner of the colour hexagon is away decides how much of the saturation is taken off.
        away = (offset + hue * 6) % 6
        return value - value * saturation * jnp.clip(jnp.minimum(away, 4 - away), 0, 1)

    return jnp.stack([channel(5), channel(3), channel(1)], -1)


@operator("AdjustHue()", function="")
def _adjust_hue(image: Array, delta: Operand) -> Array:
    """Images whose hue is turned by `delta`, in [-1, 1] turns."""
    _pixels("AdjustHue", image=image)
    hsv = _rgb_to_hsv.kernel(image)
    # A turn more is the same hue.
    turned = (hsv[..., 0] + jnp.asarray(delta, image.dtype)) % 1
    result: Array = _hsv_to_rgb.kernel(jnp.stack([turned, hsv[..., 1], hsv[..., 2]], -1))
    return result


@operator("AdjustSaturation()", function="")
def _adjust_saturation(image: Array, scale: Operand) -> Array:
    """Images whose saturation is multiplied by `scale` and limited to [0, 1]."""
    _pixels("AdjustSaturation", image=image)
    hsv = _rgb_to_hsv.kernel(image)
    scaled = jnp.clip(hsv[..., 1] * jnp.asarray(scale, image.dtype), 0, 1)
    result: Array = _hsv_to_rgb.kernel(jnp.stack([hsv[..., 0], scaled, hsv[..., 2]], -1))
    return result
