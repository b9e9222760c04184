"""Enumerations of the vision transforms."""

import enum


class Inter(enum.IntEnum):
    """How an image is sampled between pixels."""

    NEAREST = 0
    ANTIALIAS = 1
    # Two names for one kind, as in MindSpore.
    BILINEAR = 2
    LINEAR = 2
    BICUBIC = 3
    CUBIC = 3
    AREA = 4
    PILCUBIC = 5


class Border(enum.StrEnum):
    """What padding holds: a constant, the edge pixel, or the image mirrored (without or with the edge pixel)."""

    CONSTANT = "constant"
    EDGE = "edge"
    REFLECT = "reflect"
    SYMMETRIC = "symmetric"


class SliceMode(enum.IntEnum):
    """What `SlicePatches` does with an image that does not divide evenly: pad it, or drop the rest."""

    PAD = 0
    DROP = 1


class ConvertMode(enum.IntEnum):
    """From which channels to which `ConvertColor` goes."""

    COLOR_BGR2BGRA = 0
    # RGB and BGR share a number where only alpha changes.
    COLOR_RGB2RGBA = 0
    COLOR_BGRA2BGR = 1
    COLOR_RGBA2RGB = 1
    COLOR_BGR2RGBA = 2
    COLOR_RGB2BGRA = 2
    COLOR_RGBA2BGR = 3
    COLOR_BGRA2RGB = 3
    COLOR_BGR2RGB = 4
    COLOR_RGB2BGR = 4
    COLOR_BGRA2RGBA = 5
    COLOR_RGBA2BGRA = 5
    COLOR_BGR2GRAY = 6
    COLOR_RGB2GRAY = 7
    COLOR_GRAY2BGR = 8
    COLOR_GRAY2RGB = 8
    COLOR_GRAY2BGRA = 9
    COLOR_GRAY2RGBA = 9
    COLOR_BGRA2GRAY = 10
    COLOR_RGBA2GRAY = 11


class ImageBatchFormat(enum.IntEnum):
    """The layout of a batch of images."""

    NHWC = 0
    NCHW = 1


class ImageReadMode(enum.IntEnum):
    """How `read_image` gives an image: as it is in the file, gray, or in colour."""

    UNCHANGED = 0
    GRAYSCALE = 1
    COLOR = 2


class AutoAugmentPolicy(enum.StrEnum):
    """The data that a policy of `AutoAugment` was found for."""

    IMAGENET = "imagenet"
    CIFAR10 = "cifar10"
    SVHN = "svhn"
