"""Image operators: resizing, sampling, boxes, colors."""

from sporax.mindspore.ops.image import boxes, class_forms, resize, sampling
