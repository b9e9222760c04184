"""Transforms of pixel values and of the layout of an image.

Transforms that take the image for numbers in a row: with a padding channel, or times a matrix.
"""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np

from sporax.base.errors import SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.mindspore.dataset import _checks as check
from sporax.mindspore.dataset._checks import in_words, numpy_dtype
from sporax.mindspore.dataset._operations import Elementwise, OneToOne, Transform, Values
from sporax.mindspore.dataset._rows import Array, is_pillow
from sporax.mindspore.dataset.vision._images import check_fill, check_image, check_pixels
from sporax.mindspore.dataset.vision.enums import SliceMode

_F = np.float32


class Rescale(Elementwise):
    """`value * rescale + shift`, as float32, rounded once (fused multiply-add, as MindSpore does).

    Args:
        rescale: factor.
        shift: added afterwards.
    """

    def __init__(self, rescale: float, shift: float) -> None:
        self._factor = _F(check.number("Rescale", "rescale", rescale, types=(numbers.Number,)))
        self._shift = _F(check.number("Rescale", "shift", shift, types=(numbers.Number,)))
        # There are only 256 answers for bytes.
        self._of_byte = self._fused(np.arange(256, dtype=np.float32))

    def _one(self, value: Array) -> Array:
        if value.dtype.kind in "USO":
            raise self.fault(f"an image must be numeric, but got {value.dtype}.")
        # Without a shift a product rounds once anyway, so no table is needed.
        if value.dtype == np.uint8 and self._shift:
            return self._of_byte[value]
        # float64 is computed in double precision and rounded at the end.
        if self._shift or value.dtype == np.float64:
            return self._fused(value)
        # "unsafe", so that integers are read as float32 in the loop itself, without a copy.
        return np.multiply(value, self._factor, dtype=np.float32, casting="unsafe")

    def _fused(self, value: Array) -> Array:
        # The product of two float32 is exact in float64, so this rounds once, as a fused multiply-add does.
        return (value.astype(np.float64) * np.float64(self._factor) + np.float64(self._shift)).astype(np.float32)


class Normalize(OneToOne):
    """`(value - mean) / std` per channel, as float32.

    Args:
        mean: one number in [0, 255] per channel, or one for all.
        std: one number in (0, 255] per channel, or one for all.
        is_hwc: whether images are (…, H, W, C) or (C, H, W); (H, W) has one channel.

    Raises:
        SporaxRuntimeError: (when applied) the number of channels is another.
    """

    def __init__(self, mean: Sequence[float], std: Sequence[float], is_hwc: bool = True) -> None:
        for name, value in (("mean", mean), ("std", std)):
            check.instance("Normalize", name, value, list, tuple)
        if len(mean) != len(std) or not mean:
            raise in_words(SporaxValueError, "Normalize", "Length of mean and std must be equal.", (mean, std))
        types = (int, float)
        means = [check.number("Normalize", f"mean[{i}]", m, 0, 255, types=types) for i, m in enumerate(mean)]
        stds = [
            check.number("Normalize", f"std[{i}]", s, 0, 255, open_low=True, types=types) for i, s in enumerate(std)
        ]
        self._mean, self._std = np.array(means, np.float32), np.array(stds, np.float32)
        self._is_hwc = check.boolean("Normalize", "is_hwc", is_hwc)

    def _one(self, value: Array) -> Array:
        check_pixels("Normalize", value)
        return self._apply(value, value.ndim)

    def _many(self, values: Array) -> Array | None:
        # Stacks of (H, W) would be taken for one image with channels.
        return None if values.ndim < 3 else self._apply(values, values.ndim - 1)

    def _apply(self, value: Array, dims: int) -> Array:
        count = len(self._mean)
        channels = 1 if dims == 2 else value.shape[-1] if self._is_hwc else value.shape[-3]
        if count not in (1, channels):
            raise SporaxRuntimeError(
                "For 'Normalize', Normalize: number of channels does not match the size of mean and std vectors, but got "
                f"{channels} channels and {count} numbers."
            )
        if count == 1:
            return _normalized(value, self._mean, self._std)
        if not self._is_hwc:
            return _normalized(value, self._mean[:, None, None], self._std[:, None, None])
        # numpy is slow where it works on few numbers at a time: a line of the image rather than a pixel.
        *outer, width, _ = value.shape
        lines = value.reshape(*outer, width * channels)
        return _normalized(lines, np.tile(self._mean, width), np.tile(self._std, width)).reshape(value.shape)


def _normalized(value: Array, mean: Array, std: Array) -> Array:
    result = np.subtract(value, mean, dtype=np.float32, casting="unsafe")
    result /= std
    return result


class HWC2CHW(OneToOne):
    """(H, W, C) to (C, H, W); (H, W) stays as it is."""

    keeps_pillow = False

    def _one(self, value: Array) -> Array:
        check_image("HWC2CHW", value)
        return value if value.ndim == 2 else np.ascontiguousarray(value.transpose(2, 0, 1))

    def _many(self, values: Array) -> Array | None:
        if values.ndim != 4:
            return None
        rows, height, width, channels = values.shape
        if channels == 1:
            # One channel: the order in memory is the same already.
            return values.reshape(rows, 1, height, width)
        return np.ascontiguousarray(values.transpose(0, 3, 1, 2))


class ToTensor(OneToOne):
    """(H, W[, C]) in [0, 255] to (C, H, W) in [0, 1].

    As in MindSpore, the pixels of a Pillow image that it is called with are divided in double precision, those of arrays and
    those inside a `map` in single precision.

    Args:
        output_type: dtype of the result, float32 by default.
    """

    keeps_pillow = False

    def __init__(self, output_type: Any = np.float32) -> None:
        self._dtype = numpy_dtype("ToTensor", "output_type", output_type)

    def __call__(self, *inputs: Any) -> Any:
        if len(inputs) != 1 or not is_pillow(inputs[0]):
            return super().__call__(*inputs)
        pixels = np.array(inputs[0])
        planes = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
        # C order: the transposed input would give its own order to the result.
        return np.divide(planes, 255.0, dtype=np.float64, casting="unsafe", order="C").astype(self._dtype)

    def _one(self, value: Array) -> Array:
        self._check(value)
        check_image("ToTensor", value)
        planes = value[None] if value.ndim == 2 else value.transpose(2, 0, 1)
        return self._scaled(planes)

    def _many(self, values: Array) -> Array | None:
        if values.ndim not in (3, 4):
            return None
        self._check(values)
        return self._scaled(values[:, None] if values.ndim == 3 else values.transpose(0, 3, 1, 2))

    @staticmethod
    def _check(value: Array) -> None:
        if value.dtype.name in ("uint32", "int64", "uint64") or value.dtype.kind in "US":
            fault = "Input includes unsupported data type in [uint32, int64, uint64, string, bytes]."
            raise SporaxRuntimeError(f"For 'ToTensor', ToTensor: {fault} Got {value.dtype}.")

    def _scaled(self, planes: Array) -> Array:
        # Times 1/255 in single precision, as MindSpore computes it; a division differs in the last bit.
        scaled = np.multiply(planes, _F(1 / 255), dtype=np.float32, casting="unsafe", order="C")
        return scaled.astype(self._dtype, copy=False)


class ToType(Elementwise):
    """Cast to a dtype.

    Args:
        data_type: a `mindspore` dtype, a numpy dtype, or its name.
    """

    def __init__(self, data_type: Any) -> None:
        self._dtype = numpy_dtype("ToType", "data_type", data_type)

    def _one(self, value: Array) -> Array:
        return value.astype(self._dtype)


class SlicePatches(Transform):
    """An image (H, W[, C]) to num_height * num_width patches, row by row; each becomes a column.

    Args:
        num_height: patches from top to bottom.
        num_width: patches from left to right.
        slice_mode: PAD makes patches of ceil(H / num_height) x ceil(W / num_width), filled at the bottom and right;
            DROP makes patches of the floor sizes and leaves the rest out.
        fill_value: what padding holds.

    Raises:
        SporaxRuntimeError: (when applied) not an image, or fewer pixels than patches along a side.
    """

    makes_patches = True

    def __init__(
        self, num_height: int = 1, num_width: int = 1, slice_mode: SliceMode = SliceMode.PAD, fill_value: int = 0
    ) -> None:
        self._num_height = check.integer("SlicePatches", "num_height", num_height, 1)
        self._num_width = check.integer("SlicePatches", "num_width", num_width, 1)
        check.instance("SlicePatches", "slice_mode", slice_mode, SliceMode)
        self._pad = slice_mode is SliceMode.PAD
        self._fill = check_fill("SlicePatches", check.integer("SlicePatches", "fill_value", fill_value))[0]

    def on_row(self, values: Values, rng: np.random.Generator) -> Values:
        image = self.only(values)
        check_image("SlicePatches", image)
        height, width = self._side(image.shape[0], self._num_height), self._side(image.shape[1], self._num_width)
        # How much is missing to equal patches; negative with DROP, where nothing is padded.
        missing = (height * self._num_height - image.shape[0], width * self._num_width - image.shape[1])
        if self._pad and any(missing):
            image = np.pad(
                image, [(0, missing[0]), (0, missing[1])] + [(0, 0)] * (image.ndim - 2), constant_values=self._fill
            )
        return tuple(
            # Contiguous: patches leave the row one by one.
            np.ascontiguousarray(image[i * height : (i + 1) * height, j * width : (j + 1) * width])
            for i in range(self._num_height)
            for j in range(self._num_width)
        )

    def _side(self, length: int, patches: int) -> int:
        if patches > length:
            raise self.fault(
                f"there must be at least one pixel per patch, but got {patches} patches for {length} pixels."
            )
        return -(-length // patches) if self._pad else length // patches


class NormalizePad(OneToOne):
    """`Normalize`, with one more channel of zeros.

    Args:
        mean, std: see `Normalize`.
        dtype: of the result, ``"float32"`` or ``"float16"``.
        is_hwc: whether images are (H, W, C) or (C, H, W).
    """

    def __init__(
        self, mean: Sequence[float], std: Sequence[float], dtype: str = "float32", is_hwc: bool = True
    ) -> None:
        self._normalize = Normalize(mean, std, is_hwc)
        self._channels = len(mean)
        if not isinstance(dtype, str):
            raise in_words(SporaxTypeError, "NormalizePad", "dtype should be string.", dtype)
        if dtype not in ("float32", "float16"):
            raise in_words(SporaxValueError, "NormalizePad", "dtype only supports float32 or float16.", dtype)
        self._dtype = dtype
        # One channel of zeros behind the colors makes four, which Ascend's convolutions want.
        self._axis = 2 if is_hwc else 0

    def _one(self, value: Array) -> Array:
        check_image("NormalizePad", value, (3,))
        if value.shape[self._axis] != 3:
            raise self.fault(f"an image must have 3 channels, but got {value.shape}.")
        around = [(0, 0)] * 3
        around[self._axis] = (0, 1)
        return np.pad(self._normalize._one(value), around).astype(self._dtype)


class LinearTransformation(OneToOne):
    """``(image - mean_vector) @ transformation_matrix``, with the image as one vector of length D (whitening, say).

    Args:
        transformation_matrix: (D, D).
        mean_vector: (D,).

    Raises:
        SporaxValueError: sizes do not fit together; for the image when applied.
    """

    only_pillow = True

    def __init__(self, transformation_matrix: Any, mean_vector: Any) -> None:
        for name, value, dims in (("transformation_matrix", transformation_matrix, 2), ("mean_vector", mean_vector, 1)):
            if not isinstance(value, np.ndarray) or value.ndim != dims:
                check.instance("LinearTransformation", name, value, np.ndarray)
                raise SporaxValueError.must("LinearTransformation", name, f"have {dims} dimensions", value.shape)
        size, shape = len(mean_vector), transformation_matrix.shape
        words = (
            f"mean_vector length {size} should match either one dimension of the squaretransformation_matrix {shape}."
        )
        if shape[0] != shape[1]:
            words = f"transformation_matrix should be a square matrix. Got shape {shape} instead."
        if shape != (size, size):
            raise in_words(SporaxValueError, "LinearTransformation", words)
        self._matrix, self._mean = transformation_matrix, mean_vector

    def _one(self, value: Array) -> Array:
        if value.size != len(self._mean):
            raise SporaxValueError(
                f"For 'LinearTransformation', an image must have {len(self._mean)} values, but got the shape {value.shape}."
            )
        return np.asarray((value.reshape(-1) - self._mean) @ self._matrix).reshape(value.shape)
