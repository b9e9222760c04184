"""Image operators: resizing, sampling, boxes, colors."""

from sporax.mindspore.ops.image import boxes, resize, sampling
