"""Transforms for images: `mindspore.dataset.vision`. Videos are refused."""

from sporax.mindspore._names.doors import door
from sporax.mindspore._names.missing import homes_in

_HOMES = homes_in(
    __name__,
    """
    _color: AdjustBrightness AdjustContrast AdjustGamma AdjustHue AdjustSaturation AutoContrast Equalize Invert
        Posterize RandomAutoContrast RandomColor RandomColorAdjust RandomEqualize RandomInvert RandomLighting
        RandomPosterize RandomSolarize Solarize
    _colorspace: ConvertColor Grayscale HsvToRgb RandomGrayscale RgbToHsv
        AdjustSharpness GaussianBlur RandomAdjustSharpness RandomSharpness
    _crops: FiveCrop PadToSize RandomCropDecodeResize ResizedCrop TenCrop BoundingBoxAugment RandomCropWithBBox
        RandomHorizontalFlipWithBBox RandomResizedCropWithBBox RandomResizeWithBBox RandomVerticalFlipWithBBox ResizeWithBBox
    _erase: CutOut Erase RandomErasing CutMixBatch MixUp MixUpBatch
    _files: encode_jpeg encode_png get_image_num_channels get_image_size read_file read_image write_file write_jpeg
        write_png Decode ToNumpy ToPIL
    _geometry: CenterCrop Crop HorizontalFlip Pad RandomCrop RandomHorizontalFlip RandomResize RandomResizedCrop
        RandomVerticalFlip Resize VerticalFlip
    _pixels: HWC2CHW Normalize Rescale SlicePatches ToTensor ToType LinearTransformation NormalizePad
    _policies: AutoAugment RandAugment RandomSelectSubpolicy TrivialAugmentWide UniformAugment
    _rotate: Affine Perspective RandomAffine RandomPerspective RandomRotation Rotate
    enums: AutoAugmentPolicy Border ConvertMode ImageBatchFormat ImageReadMode Inter SliceMode
    """,
)

_UNLISTED = {"PyTensorOperation": "sporax.mindspore.dataset.transforms:PyTensorOperation"}
_VIDEO = ("DecodeVideo", "VideoDecoder", "read_video", "read_video_timestamps")
_NO_VIDEO = "no dependency of Sporax decodes videos. Decode them in a Python function or a GeneratorDataset."

__all__ = [*_HOMES]
__getattr__, __dir__ = door(__name__, _HOMES, _UNLISTED, reasons=dict.fromkeys(_VIDEO, _NO_VIDEO))
