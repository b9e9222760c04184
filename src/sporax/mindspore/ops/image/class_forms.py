"""Image operators in MindSpore's class forms, whose constructors take what the functions take as arguments."""

from __future__ import annotations

from typing import Any, Literal

from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.ops._core import check
from sporax.mindspore.ops._core.check import known
from sporax.mindspore.ops._core.operator import Array, operator
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
