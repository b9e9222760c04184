"""The boxes of object detection: features of regions, overlaps, encoding, suppression."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from sporax.base.errors import For, SporaxNotImplementedError
from sporax.mindspore.ops._core import Array, check, operator
from sporax.mindspore.ops.image.sampling import between


@operator(
    "ROIAlign(pooled_height, pooled_width, spatial_scale, sample_num, roi_end_mode)",
    function="",
    dims="n c h! w!, r five!",
)
def _roi_align(
    features: check.Rank4,
    rois: Array,
    pooled_height: int,
    pooled_width: int,
    spatial_scale: float,
    sample_num: int = 2,
    roi_end_mode: int = 1,
) -> Array:
    """Features of regions, averaged over the cells of a grid (He et al. 2017).

    Args:
        features: (n, c, h, w).
        rois: (regions, 5): number of the image, then x1, y1, x2, y2 in pixels of the original image.
        pooled_height, pooled_width: the grid.
        spatial_scale: size of the features over size of the original image.
        sample_num: points a cell in each direction, > 0.
        roi_end_mode: 1: the region ends a pixel further (at x2 + 1, y2 + 1); 0: at x2, y2.

    Raises:
        SporaxNotImplementedError: `sample_num` 0, a number of points that depends on the size of the region.
    """
    check.same_dtype("ROIAlign", features=features, rois=rois)
    check.one_of("ROIAlign", roi_end_mode, (0, 1), "roi_end_mode")
    For("ROIAlign").refuse(rois.ndim != 2 or rois.shape[1] != 5, "'rois' must have shape (n, 5)", rois.shape)
    if sample_num < 1:
        raise SporaxNotImplementedError(
            f"For 'ROIAlign', 'sample_num' must be >= 1, but got {sample_num}: a number of points that depends on the "
            "size of the region is not offered."
        )
    height, width = features.shape[2:]

    def points(first: Array, last: Array, cells: int) -> Array:
        start = first * spatial_scale
        # With mode 1 MindSpore ends a pixel further.
        extent = (last + roi_end_mode) * spatial_scale - start
        # Degenerate regions count as one pixel there.
        extent = jnp.maximum(extent, 1.0) if roi_end_mode == 0 else extent
        # Points in the middle of equal parts of each cell.
        inner = (jnp.arange(cells * sample_num, dtype=rois.dtype) + 0.5) / sample_num
        return start + inner * extent / cells

    def one(roi: Array) -> Array:
        image = features[roi[0].astype(jnp.int32)]
        y, x = jnp.meshgrid(points(roi[2], roi[4], pooled_height), points(roi[1], roi[3], pooled_width), indexing="ij")
        # Points up to one pixel outside are read from the edge, those further away count as 0.
        outside = (y < -1) | (y > height) | (x < -1) | (x > width)
        values = between(image, jnp.clip(y, 0, height - 1), jnp.clip(x, 0, width - 1))
        values = jnp.where(outside, jnp.zeros((), features.dtype), values)
        return values.reshape(-1, pooled_height, sample_num, pooled_width, sample_num).mean((2, 4))

    return jax.vmap(one)(rois)


def _position_sensitive(features: Array, rois: Array, spatial_scale: float, grid: tuple[int, int], dim: int) -> Array:
    """Means over the cells of regions, each cell from channels of its own (R-FCN, Dai et al. 2016), as (regions, dim, *grid).

    Args:
        features: (n, dim * cells, h, w).
        rois: (regions, 5): number of the image, then x1, y1, x2, y2 in pixels of the original image.
        spatial_scale: size of the features over size of the original image.
        grid: cells of a region down and across.
        dim: channels of the result.
    """
    check.same_dtype("PSROIPooling", features=features, rois=rois)
    channels = dim * math.prod(grid)
    For("PSROIPooling").refuse(features.shape[1] != channels, f"dim 1 of 'features' must be {channels}", features.shape)

    def inside(first: Array, last: Array, cells: int, size: int) -> Array:
        """Which of `size` pixels belong to each cell, (cells, size)."""
        # C rounds halves away from zero. MindSpore leaves the last row and column of the features out.
        start, end = (jnp.trunc(at * spatial_scale + jnp.copysign(0.5, at)) for at in (first, last))
        edges = jnp.arange(cells + 1) * (jnp.maximum(end - start, 0.1) / cells)
        low, high = (
            jnp.clip(edge + start, 0, size - 1)[:, None] for edge in (jnp.floor(edges[:-1]), jnp.ceil(edges[1:]))
        )
        return ((jnp.arange(size) >= low) & (jnp.arange(size) < high)).astype(features.dtype)

    def one(roi: Array) -> Array:
        image = features[roi[0].astype(jnp.int32)].reshape(dim, *grid, *features.shape[2:])
        rows, columns = (inside(roi[2 - axis], roi[4 - axis], grid[axis], features.shape[2 + axis]) for axis in (0, 1))
        return jnp.einsum("dghyx,gy,hx->dgh", image, rows, columns) / jnp.maximum(
            rows.sum(1)[:, None] * columns.sum(1), 1
        )

    return jax.vmap(one)(rois)


@operator("PSROIPooling(spatial_scale, group_size, output_dim)", function="", dims="n c! h! w!, b five! r")
def _ps_roi_pooling(
    features: check.Rank4, rois: Array, spatial_scale: float, group_size: int, output_dim: int
) -> Array:
    """Position-sensitive pooling to (b * regions, output_dim, group_size, group_size); `rois` is (b, 5, regions).

    MindSpore reads the memory of `rois` as (b * regions, 5), whatever its dims; its kernel for gradients does not, and counts the
    last row and column, so that gradients here, which follow from the values, differ.
    """
    For("PSROIPooling").refuse(
        rois.ndim != 3 or rois.shape[1] != 5, "'rois' must have shape (n, 5, regions)", rois.shape
    )
    return _position_sensitive(features, rois.reshape(-1, 5), spatial_scale, (group_size, group_size), output_dim)


@operator("PsROIPooling(pooled_height, pooled_width, num_rois, spatial_scale, out_dim, group_size)", function="")
def _inner_ps_roi_pooling(
    features: check.Rank4,
    rois: check.Rank2,
    pooled_height: int,
    pooled_width: int,
    num_rois: int,
    spatial_scale: float,
    out_dim: int,
    group_size: int,
) -> tuple[Array, Array]:
    """The same of `rois` (num_rois, 5), and the channel that each cell came from (int32)."""
    grid = (pooled_height, pooled_width)
    refuse = For("PsROIPooling").refuse
    refuse(
        grid != (group_size, group_size), "'pooled_height' and 'pooled_width' must be 'group_size'", grid, group_size
    )
    pooled = _position_sensitive(features, rois[:num_rois], spatial_scale, grid, out_dim)
    return pooled, jnp.broadcast_to(
        jnp.arange(out_dim * math.prod(grid), dtype=jnp.int32).reshape(-1, *grid), pooled.shape
    )


def _corners(name: str, **boxes: Array) -> None:
    check.floating(name, **boxes)
    for label, array in boxes.items():
        For(name).refuse(array.ndim != 2 or array.shape[1] != 4, f"'{label}' must have shape (n, 4)", array.shape)


def _overlaps(name: str, anchor_boxes: Array, gt_boxes: Array, mode: str) -> Array:
    """Overlap of every box of `gt_boxes` (rows) with every one of `anchor_boxes`; both (n, 4): x1, y1, x2, y2.

    The sides include both ends. `mode` ``"iou"`` divides by the union, ``"iof"`` by the area of the true box.
    """
    _corners(name, anchor_boxes=anchor_boxes, gt_boxes=gt_boxes)
    check.one_of(name, mode, ("iou", "iof"), "mode")
    anchors, truth = anchor_boxes[None], gt_boxes[:, None]
    sides = jnp.maximum(
        jnp.minimum(anchors[..., 2:], truth[..., 2:]) - jnp.maximum(anchors[..., :2], truth[..., :2]) + 1, 0
    )
    common = sides[..., 0] * sides[..., 1]

    def area(boxes: Array) -> Array:
        return (boxes[..., 2] - boxes[..., 0] + 1) * (boxes[..., 3] - boxes[..., 1] + 1)

    return common / (area(truth) if mode == "iof" else area(anchors) + area(truth) - common)


@operator("IOU(mode)", function="iou", dims="a four!, g four!")
def iou(anchor_boxes: Array, gt_boxes: Array, mode: str = "iou") -> Array:
    """Intersection over union of boxes (n, 4) and (m, 4), as (m, n); ``"iof"``: over the area of the true box."""
    return _overlaps("IOU", anchor_boxes, gt_boxes, mode)


Four = tuple[float, ...]
_NO_SHIFT, _NO_SCALE = (0.0, 0.0, 0.0, 0.0), (1.0, 1.0, 1.0, 1.0)


def _centres(boxes: Array) -> tuple[Array, Array]:
    """Middles and sides (n, 2) of boxes whose sides include both ends."""
    return (boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2] + 1


@operator("BoundingBoxEncode(means, stds)", function="bounding_box_encode", dims="b four!, b four!")
def bounding_box_encode(
    anchor_box: Array, groundtruth_box: Array, means: Four = _NO_SHIFT, stds: Four = _NO_SCALE
) -> Array:
    """What moves and scales anchors (n, 4) to the true boxes: shifts over sides, logarithms of ratios; normalised."""
    _corners("BoundingBoxEncode", anchor_box=anchor_box, groundtruth_box=groundtruth_box)
    middle, sides = _centres(anchor_box)
    true_middle, true_sides = _centres(groundtruth_box)
    # Ratios as logarithms, so that growing and shrinking are symmetric.
    deltas = jnp.concatenate([(true_middle - middle) / sides, jnp.log(true_sides / sides)], 1)
    return (deltas - jnp.asarray(means, deltas.dtype)) / jnp.asarray(stds, deltas.dtype)


@operator("BoundingBoxDecode(max_shape, means, stds, wh_ratio_clip)", function="bounding_box_decode")
def bounding_box_decode(
    anchor_box: Array,
    deltas: Array,
    max_shape: tuple[int, ...],
    means: Four = _NO_SHIFT,
    stds: Four = _NO_SCALE,
    wh_ratio_clip: float = 0.016,
) -> Array:
    """Anchors (n, 4) moved and scaled by `deltas` and clipped at the image; undoes BoundingBoxEncode.

    `max_shape` is the image's height and width; sides grow or shrink at most by ``1 / wh_ratio_clip``.
    """
    _corners("BoundingBoxDecode", anchor_box=anchor_box, deltas=deltas)
    For("BoundingBoxDecode").refuse_type(len(max_shape) < 2, "'max_shape' must be height and width", max_shape)
    plain = deltas * jnp.asarray(stds, deltas.dtype) + jnp.asarray(means, deltas.dtype)
    # Limits how much a side may grow, in logarithms.
    limit = abs(math.log(wh_ratio_clip))
    middle, sides = _centres(anchor_box)
    middle = middle + sides * plain[:, :2]
    half = sides * jnp.exp(jnp.clip(plain[:, 2:], -limit, limit)) / 2
    highest = jnp.asarray((max_shape[1] - 1, max_shape[0] - 1), deltas.dtype)
    # Both ends are part of a box, hence half a pixel.
    corners = (middle - half + 0.5, middle + half - 0.5)
    return jnp.concatenate([jnp.clip(corner, 0, highest) for corner in corners], 1)


@operator("CheckValid", function="check_valid")
def check_valid(bboxes: Array, img_metas: Array) -> Array:
    """Whether boxes (n, 4) are inside the image of `img_metas`: height, width and ratio."""
    _corners("CheckValid", bboxes=bboxes)
    height, width, ratio = img_metas
    return (
        (bboxes[:, 0] >= 0)
        & (bboxes[:, 1] >= 0)
        & (bboxes[:, 2] <= width * ratio - 1)
        & (bboxes[:, 3] <= height * ratio - 1)
    )


@operator("NMSWithMask(iou_threshold)", function="")
def _nms_with_mask(bboxes: check.Float, iou_threshold: float = 0.5) -> tuple[Array, Array, Array]:
    """Boxes in descending order of score, of which those that overlap a kept one too much are marked as dropped.

    `bboxes` is (n, 5): x1, y1, x2, y2, score. Returns the boxes in order, where each came from (int32), and whether it
    is kept.
    """
    For("NMSWithMask").refuse(bboxes.ndim != 2 or bboxes.shape[1] != 5, "'bboxes' must have shape (n, 5)", bboxes.shape)
    # Stable, so that equal scores keep their order.
    order = jnp.argsort(bboxes[:, 4], descending=True, stable=True)
    ranked = bboxes[order]
    sides = jnp.minimum(ranked[:, None, 2:4], ranked[None, :, 2:4]) - jnp.maximum(
        ranked[:, None, :2], ranked[None, :, :2]
    )
    common = jnp.prod(jnp.maximum(sides, 0), -1)
    area = jnp.prod(ranked[:, 2:4] - ranked[:, :2], -1)
    too_near = common / (area[:, None] + area[None, :] - common) > iou_threshold
    number = jnp.arange(len(order))

    # A box that was dropped itself drops no other.
    def drop(index: Array, remaining: Array) -> Array:
        return remaining & ~(remaining[index] & too_near[index] & (number > index))

    # One step per box: whether it counts depends on those before it.
    remaining = jax.lax.fori_loop(0, len(order), drop, jnp.ones(len(order), bool))
    return ranked, order.astype(jnp.int32), remaining
