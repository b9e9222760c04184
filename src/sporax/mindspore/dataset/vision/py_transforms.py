"""Vision transforms that work on PIL images and on (C, H, W) arrays: `mindspore.dataset.vision.py_transforms`, before 2.0.

Since then the same names work on both kinds; only `Normalize` must know the layout, which was (C, H, W) here. And colors of
arrays, one image or several, as scripts call MindSpore's inner functions for them (`py_transforms_util`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sporax.mindspore._names.missing import LISTED, missing_name
from sporax.mindspore.dataset import vision
from sporax.mindspore.dataset._rows import Array


class Normalize(vision.Normalize):
    """Subtract mean and divide by standard deviation, per channel of a (C, H, W) array. Errors as `vision.Normalize`."""

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        # (C, H, W), the layout behind the `ToTensor` of that time.
        super().__init__(mean, std, is_hwc=False)


def rgb_to_hsvs(np_rgb_imgs: Array, is_hwc: bool) -> Array:
    """`RgbToHsv` of (H, W, 3), (3, H, W), or several of them."""
    return np.asarray(vision.RgbToHsv(is_hwc)(np_rgb_imgs))


def hsv_to_rgbs(np_hsv_imgs: Array, is_hwc: bool) -> Array:
    """`HsvToRgb` of (H, W, 3), (3, H, W), or several of them."""
    return np.asarray(vision.HsvToRgb(is_hwc)(np_hsv_imgs))


def __getattr__(name: str) -> Any:
    # Dunder names are read by tools and must not be looked up in `vision`.
    if name.startswith("__") or name not in LISTED[vision.__name__]:
        return missing_name(__name__, name)
    return getattr(vision, name)
