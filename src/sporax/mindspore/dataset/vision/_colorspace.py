"""Images in other colour spaces: gray, HSV, and channels in another order."""

from __future__ import annotations

import numpy as np

from sporax.base.errors import SporaxRuntimeError, SporaxTypeError
from sporax.mindspore.dataset._checks import check_bool, check_int, check_probability, check_type
from sporax.mindspore.dataset._operations import OneToOne, RandomTransform
from sporax.mindspore.dataset._rows import Array
from sporax.mindspore.dataset.vision._color import gray
from sporax.mindspore.dataset.vision._images import check_image, check_rgb
from sporax.mindspore.dataset.vision.enums import ConvertMode

_PILLOW_GRAY = np.array([19595, 38470, 7471])  # 0.299, 0.587, 0.114 in 16-bit fixed point


def _luminance(value: Array) -> Array:
    """Gray (H, W) of bytes as Pillow rounds it."""
    if value.dtype != np.uint8:
        return gray(value)[..., 0]
    # 0x8000 is half of 2 ** 16.
    return ((value.astype(np.int64) @ _PILLOW_GRAY + 0x8000) >> 16).astype(np.uint8)


class Grayscale(OneToOne):
    """An RGB image made gray.

    Args:
        num_output_channels: 1 for (H, W), 3 for three equal channels.
    """

    only_pillow = True

    def __init__(self, num_output_channels: int = 1) -> None:
        self._channels = check_int("Grayscale", "num_output_channels", num_output_channels)
        if self._channels not in (1, 3):
            raise SporaxTypeError(
                f"For 'Grayscale', the argument 'num_output_channels' must be 1 or 3, but got {num_output_channels}."
            )

    def _one(self, value: Array) -> Array:
        check_rgb("Grayscale", value)
        plane = _luminance(value)
        return plane if self._channels == 1 else np.repeat(plane[..., None], 3, -1)


class RandomGrayscale(RandomTransform):
    """An RGB image made gray with probability `prob`; it keeps its three channels."""

    only_pillow = True

    def __init__(self, prob: float = 0.1) -> None:
        self._prob = check_probability("RandomGrayscale", "prob", prob)

    def _draw(self, value: Array, rng: np.random.Generator) -> bool:
        return bool(rng.random() < self._prob)

    def _apply(self, value: Array, choice: bool) -> Array:
        return Grayscale(3)._one(value) if choice else value


class _OfChannels(OneToOne):
    """Base of maps from three channels to three, first or last in (…, 3, H, W) or (…, H, W, 3)."""

    def __init__(self, is_hwc: bool = False) -> None:
        self._axis = -1 if check_bool(self.name, "is_hwc", is_hwc) else -3

    def _one(self, value: Array) -> Array:
        # Both layouts have three axes, so only the size of the channel axis can tell a mistake.
        if value.ndim not in (3, 4) or value.shape[self._axis] != 3 or value.dtype.kind in "USO":
            layout = "(…, H, W, 3)" if self._axis == -1 else "(…, 3, H, W)"
            raise SporaxTypeError(f"For '{self.name}', an image must be {layout}, but got {value.shape} {value.dtype}.")
        planes = np.moveaxis(value, self._axis, 0)
        # Integers compute in double precision; floats stay as they are.
        dtype = value.dtype if value.dtype.kind == "f" else np.float64
        return np.ascontiguousarray(np.stack(self._mapped(*planes.astype(dtype)), self._axis))

    def _mapped(self, first: Array, second: Array, third: Array) -> tuple[Array, Array, Array]:
        raise NotImplementedError


class RgbToHsv(_OfChannels):
    """Red, green and blue in [0, 1] to hue, saturation and value in [0, 1].

    Args:
        is_hwc: whether images are (…, H, W, 3) or (…, 3, H, W).
    """

    only_pillow = True

    def _mapped(self, first: Array, second: Array, third: Array) -> tuple[Array, Array, Array]:
        high, low = np.maximum(np.maximum(first, second), third), np.minimum(np.minimum(first, second), third)
        spread = high - low
        # Gray pixels: the sector is 0 by the first case, whatever the divisor.
        safe = np.where(spread == 0, 1, spread)
        sector = np.select(
            [spread == 0, high == first, high == second],
            [np.zeros_like(high), (second - third) / safe, 2 + (third - first) / safe],
            4 + (first - second) / safe,
        )
        return (sector / 6) % 1.0, spread / np.where(high == 0, 1, high), high


class HsvToRgb(_OfChannels):
    """Hue, saturation and value in [0, 1] to red, green and blue.

    Args:
        is_hwc: whether images are (…, H, W, 3) or (…, 3, H, W).
    """

    only_pillow = True

    def _mapped(self, first: Array, second: Array, third: Array) -> tuple[Array, Array, Array]:
        # Each channel is at its peak for a third of the circle and falls off linearly on both sides.
        red, green, blue = (
            third - third * second * np.clip(np.minimum(k, 4 - k), 0, 1)
            for k in ((first * 6 + n) % 6 for n in (5, 3, 1))
        )
        return red, green, blue


class ConvertColor(OneToOne):
    """Channels in another order, with or without an alpha channel, or made gray.

    Args:
        convert_mode: a ConvertMode: from what to what.
    """

    def __init__(self, convert_mode: ConvertMode) -> None:
        check_type("ConvertColor", "convert_mode", convert_mode, ConvertMode)
        # "COLOR_RGB2BGRA": the names of the modes say both sides.
        self._source, self._target = convert_mode.name.removeprefix("COLOR_").split("2")

    def _one(self, value: Array) -> Array:
        check_image("ConvertColor", value)
        channels = 1 if value.ndim == 2 else value.shape[2]
        count = 1 if self._source == "GRAY" else len(self._source)
        if channels != count:
            raise SporaxRuntimeError(
                f"For 'ConvertColor', a {self._source} image must have {count} channels, but got the shape {value.shape}."
            )
        if self._target == "GRAY":
            # By name, since BGR and RGB differ in the order only.
            return gray(value[..., [self._source.index(channel) for channel in "RGB"]])[..., 0]
        planes = value.reshape(*value.shape[:2], count)
        # Opaque alpha is the largest value of the dtype's range.
        opaque = np.full(value.shape[:2], 255 if value.dtype == np.uint8 else 1, value.dtype)
        # A gray image gives its plane to all three colors.
        named = dict.fromkeys("RGB", planes[..., 0]) if count == 1 else {}
        named |= {"A": opaque} | {channel: planes[..., i] for i, channel in enumerate(self._source) if count > 1}
        return np.stack([named[channel] for channel in self._target], -1)
