"""Transforms for images: `mindspore.dataset.vision`."""

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
from sporax.dataset.vision.enums import Border, Inter, SliceMode

__all__ = [
    "Border",
    "CenterCrop",
    "Crop",
    "Decode",
    "HWC2CHW",
    "HorizontalFlip",
    "Inter",
    "Normalize",
    "Pad",
    "RandomCrop",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "RandomVerticalFlip",
    "Rescale",
    "Resize",
    "SliceMode",
    "SlicePatches",
    "ToTensor",
    "ToType",
    "VerticalFlip",
]
