"""Image operators: resizing, sampling, boxes, colors."""

from sporax.ops.image import boxes, color, resize, sampling
