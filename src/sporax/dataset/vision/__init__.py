"""Transforms for images: `mindspore.dataset.vision`."""

from sporax.dataset.vision._color import (
    AdjustBrightness,
    AdjustContrast,
    AdjustHue,
    AdjustSaturation,
    Equalize,
    Invert,
    Posterize,
    RandomColorAdjust,
    Solarize,
)
from sporax.dataset.vision._decode import Decode
from sporax.dataset.vision._geometry import (
    CenterCrop,
    Crop,
    HorizontalFlip,
    Pad,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomVerticalFlip,
    VerticalFlip,
)
from sporax.dataset.vision._pixels import HWC2CHW, Normalize, Rescale, SlicePatches, ToTensor, ToType
from sporax.dataset.vision._resize import Resize
from sporax.dataset.vision._rotate import RandomRotation, Rotate
from sporax.dataset.vision.enums import Border, Inter, SliceMode

__all__ = [
    "AdjustBrightness",
    "AdjustContrast",
    "AdjustHue",
    "AdjustSaturation",
    "Border",
    "CenterCrop",
    "Crop",
    "Decode",
    "Equalize",
    "HWC2CHW",
    "HorizontalFlip",
    "Inter",
    "Invert",
    "Normalize",
    "Pad",
    "Posterize",
    "RandomColorAdjust",
    "RandomCrop",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomVerticalFlip",
    "Rescale",
    "Resize",
    "Rotate",
    "SliceMode",
    "SlicePatches",
    "Solarize",
    "ToTensor",
    "ToType",
    "VerticalFlip",
]
