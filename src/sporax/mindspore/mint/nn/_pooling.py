"""Pooling layers of `sporax.mindspore.mint.nn`."""

from __future__ import annotations

from typing import Any

from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.mint.nn import functional as F
from sporax.mindspore.mint.nn._layer import REQUIRED, FunctionLayer, layer
from sporax.mindspore.nn.cell import Cell


def _average(dims: int, function: Any) -> type[Cell]:
    extra: dict[str, Any] = {} if dims == 1 else {"divisor_override": None}
    return layer(
        f"AvgPool{dims}d",
        function,
        f"Means over windows of {dims} spatial dims; settings as `nn.functional.avg_pool{dims}d`.",
        kernel_size=REQUIRED,
        stride=None,
        padding=0,
        ceil_mode=False,
        count_include_pad=True,
        **extra,
    )


AvgPool1d = _average(1, F.avg_pool1d)
AvgPool2d = _average(2, F.avg_pool2d)
AvgPool3d = _average(3, F.avg_pool3d)
MaxPool2d = layer(
    "MaxPool2d",
    F.max_pool2d,
    "Maxima over windows of images, and their positions with `return_indices`; settings as `nn.functional.max_pool2d`.",
    kernel_size=1,
    stride=None,
    padding=0,
    dilation=1,
    return_indices=False,
    ceil_mode=False,
)


def _adaptive(name: str, function: Any, what: str, **extra: Any) -> type[Cell]:
    doc = f"{what} of cells that bring the spatial dims to `output_size`; None keeps a size."
    return layer(name, function, doc, output_size=REQUIRED, **extra)


AdaptiveAvgPool1d = _adaptive("AdaptiveAvgPool1d", F.adaptive_avg_pool1d, "Means")
AdaptiveAvgPool2d = _adaptive("AdaptiveAvgPool2d", F.adaptive_avg_pool2d, "Means")
AdaptiveAvgPool3d = _adaptive("AdaptiveAvgPool3d", F.adaptive_avg_pool3d, "Means")
AdaptiveMaxPool1d = _adaptive("AdaptiveMaxPool1d", F.adaptive_max_pool1d, "Maxima", return_indices=False)
AdaptiveMaxPool2d = _adaptive("AdaptiveMaxPool2d", F.adaptive_max_pool2d, "Maxima", return_indices=False)


class _Unpool(FunctionLayer):
    def construct(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        """`input` put at `indices` (as `MaxPool2d` gives them) of an image of zeros of size `output_size`."""
        settings = {name: getattr(self, name) for name in self.settings}
        return self.function(input, indices, **settings, output_size=output_size)


MaxUnpool2d = layer(
    "MaxUnpool2d",
    F.max_unpool2d,
    "The inverse of `MaxPool2d`, with zeros where no maximum was.",
    _Unpool,
    kernel_size=REQUIRED,
    stride=None,
    padding=0,
)
