"""Transforms for images: `mindspore.dataset.vision`. Videos are refused."""

from typing import TYPE_CHECKING, Any

from sporax.base.errors import SporaxNotImplementedError
from sporax.mindspore._names.missing import missing_name
from sporax.mindspore.dataset.vision._boxes import (
    BoundingBoxAugment,
    RandomCropWithBBox,
    RandomHorizontalFlipWithBBox,
    RandomResizedCropWithBBox,
    RandomResizeWithBBox,
    RandomVerticalFlipWithBBox,
    ResizeWithBBox,
)
from sporax.mindspore.dataset.vision._color import (
    AdjustBrightness,
    AdjustContrast,
    AdjustGamma,
    AdjustHue,
    AdjustSaturation,
    AutoContrast,
    Equalize,
    Invert,
    Posterize,
    RandomAutoContrast,
    RandomColor,
    RandomColorAdjust,
    RandomEqualize,
    RandomInvert,
    RandomLighting,
    RandomPosterize,
    RandomSolarize,
    Solarize,
)
from sporax.mindspore.dataset.vision._colorspace import ConvertColor, Grayscale, HsvToRgb, RandomGrayscale, RgbToHsv
from sporax.mindspore.dataset.vision._crops import FiveCrop, PadToSize, RandomCropDecodeResize, ResizedCrop, TenCrop
from sporax.mindspore.dataset.vision._decode import Decode, ToNumpy, ToPIL
from sporax.mindspore.dataset.vision._erase import CutOut, Erase, RandomErasing
from sporax.mindspore.dataset.vision._files import (
    encode_jpeg,
    encode_png,
    get_image_num_channels,
    get_image_size,
    read_file,
    read_image,
    write_file,
    write_jpeg,
    write_png,
)
from sporax.mindspore.dataset.vision._filters import (
    AdjustSharpness,
    GaussianBlur,
    RandomAdjustSharpness,
    RandomSharpness,
)
from sporax.mindspore.dataset.vision._geometry import (
    CenterCrop,
    Crop,
    HorizontalFlip,
    Pad,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResize,
    RandomResizedCrop,
    RandomVerticalFlip,
    Resize,
    VerticalFlip,
)
from sporax.mindspore.dataset.vision._linear import LinearTransformation, NormalizePad
from sporax.mindspore.dataset.vision._mixing import CutMixBatch, MixUp, MixUpBatch
from sporax.mindspore.dataset.vision._pixels import HWC2CHW, Normalize, Rescale, SlicePatches, ToTensor, ToType
from sporax.mindspore.dataset.vision._policies import (
    AutoAugment,
    RandAugment,
    RandomSelectSubpolicy,
    TrivialAugmentWide,
    UniformAugment,
)
from sporax.mindspore.dataset.vision._rotate import (
    Affine,
    Perspective,
    RandomAffine,
    RandomPerspective,
    RandomRotation,
    Rotate,
)
from sporax.mindspore.dataset.vision.enums import (
    AutoAugmentPolicy,
    Border,
    ConvertMode,
    ImageBatchFormat,
    ImageReadMode,
    Inter,
    SliceMode,
)

__all__ = [
    "AdjustBrightness",
    "AdjustContrast",
    "AdjustGamma",
    "AdjustHue",
    "AdjustSaturation",
    "AdjustSharpness",
    "Affine",
    "AutoAugment",
    "AutoAugmentPolicy",
    "AutoContrast",
    "Border",
    "BoundingBoxAugment",
    "CenterCrop",
    "ConvertColor",
    "ConvertMode",
    "Crop",
    "CutMixBatch",
    "CutOut",
    "Decode",
    "Equalize",
    "Erase",
    "FiveCrop",
    "GaussianBlur",
    "Grayscale",
    "HWC2CHW",
    "HorizontalFlip",
    "HsvToRgb",
    "ImageBatchFormat",
    "ImageReadMode",
    "Inter",
    "Invert",
    "LinearTransformation",
    "MixUp",
    "MixUpBatch",
    "Normalize",
    "NormalizePad",
    "Pad",
    "PadToSize",
    "Perspective",
    "Posterize",
    "RandAugment",
    "RandomAdjustSharpness",
    "RandomAffine",
    "RandomAutoContrast",
    "RandomColor",
    "RandomColorAdjust",
    "RandomCrop",
    "RandomCropDecodeResize",
    "RandomCropWithBBox",
    "RandomEqualize",
    "RandomErasing",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomHorizontalFlipWithBBox",
    "RandomInvert",
    "RandomLighting",
    "RandomPerspective",
    "RandomPosterize",
    "RandomResize",
    "RandomResizeWithBBox",
    "RandomResizedCrop",
    "RandomResizedCropWithBBox",
    "RandomRotation",
    "RandomSelectSubpolicy",
    "RandomSharpness",
    "RandomSolarize",
    "RandomVerticalFlip",
    "RandomVerticalFlipWithBBox",
    "Rescale",
    "Resize",
    "ResizeWithBBox",
    "ResizedCrop",
    "RgbToHsv",
    "Rotate",
    "SliceMode",
    "SlicePatches",
    "Solarize",
    "TenCrop",
    "ToNumpy",
    "ToPIL",
    "ToTensor",
    "ToType",
    "TrivialAugmentWide",
    "UniformAugment",
    "VerticalFlip",
    "encode_jpeg",
    "encode_png",
    "get_image_num_channels",
    "get_image_size",
    "read_file",
    "read_image",
    "write_file",
    "write_jpeg",
    "write_png",
]

_VIDEO = ("DecodeVideo", "VideoDecoder", "read_video", "read_video_timestamps")
_NO_VIDEO = "no dependency of Sporax decodes videos. Decode them in a Python function or a GeneratorDataset."


if not TYPE_CHECKING:  # checkers should see a missing name themselves

    def __getattr__(name: str) -> Any:
        return missing_name(__name__, name, _NO_VIDEO if name in _VIDEO else None)
