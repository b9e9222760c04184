"""Enumerations of the vision transforms."""

from __future__ import annotations

import enum


class Inter(enum.IntEnum):
    """How an image is sampled between pixels."""

    NEAREST = 0
    ANTIALIAS = 1
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
