"""Words that layers take as settings, as types: a checker sees a wrong one before the layer refuses it."""

from typing import Literal

from sporax.mindspore.ops.nn.loss_reduction import Reduction as Reduction

PadMode = Literal["same", "valid", "pad"]
ImageFormat = Literal["NCHW", "NHWC"]
