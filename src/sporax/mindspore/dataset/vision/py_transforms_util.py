"""Colors of arrays, one image or several, as scripts call MindSpore's inner functions for them."""

from __future__ import annotations

import numpy as np

from sporax.mindspore.dataset._rows import Array
from sporax.mindspore.dataset.vision._colorspace import HsvToRgb, RgbToHsv


def rgb_to_hsvs(np_rgb_imgs: Array, is_hwc: bool) -> Array:
    """`RgbToHsv` of (H, W, 3), (3, H, W), or several of them."""
    return np.asarray(RgbToHsv(is_hwc)(np_rgb_imgs))


def hsv_to_rgbs(np_hsv_imgs: Array, is_hwc: bool) -> Array:
    """`HsvToRgb` of (H, W, 3), (3, H, W), or several of them."""
    return np.asarray(HsvToRgb(is_hwc)(np_hsv_imgs))
