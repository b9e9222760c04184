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

    CONSTANT, EDGE, REFLECT, SYMMETRIC = "constant", "edge", "reflect", "symmetric"


class SliceMode(enum.IntEnum):
    """What `SlicePatches` does with an image that does not divide evenly: pad it, or drop the rest."""

    PAD, DROP = range(2)


class ConvertMode(enum.IntEnum):
    """From which channels to which `ConvertColor` goes."""

    COLOR_BGR2BGRA, COLOR_BGRA2BGR, COLOR_BGR2RGBA, COLOR_RGBA2BGR, COLOR_BGR2RGB, COLOR_BGRA2RGBA = range(6)
    COLOR_BGR2GRAY, COLOR_RGB2GRAY, COLOR_GRAY2BGR, COLOR_GRAY2BGRA, COLOR_BGRA2GRAY, COLOR_RGBA2GRAY = range(6, 12)
    # RGB and BGR share a number where only alpha changes, or where both do.
    COLOR_RGB2RGBA, COLOR_RGBA2RGB, COLOR_RGB2BGRA, COLOR_BGRA2RGB, COLOR_RGB2BGR, COLOR_RGBA2BGRA = range(6)
    COLOR_GRAY2RGB, COLOR_GRAY2RGBA = 8, 9


class ImageBatchFormat(enum.IntEnum):
    """The layout of a batch of images."""

    NHWC, NCHW = range(2)


class ImageReadMode(enum.IntEnum):
    """How `read_image` gives an image: as it is in the file, gray, or in colour."""

    UNCHANGED, GRAYSCALE, COLOR = range(3)


class AutoAugmentPolicy(enum.StrEnum):
    """The data that a policy of `AutoAugment` was found for."""

    IMAGENET, CIFAR10, SVHN = "imagenet", "cifar10", "svhn"
