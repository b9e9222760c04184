"""Transforms of pixel values and of the layout of an image.

Transforms that take the image for numbers in a row: with a padding channel, or times a matrix.
"""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np

from sporax.base.errors import For, SporaxRuntimeError, SporaxTypeError, SporaxValueError, named
from sporax.mindspore.dataset import _checks as check
from sporax.mindspore.dataset._arguments import argument, of
from sporax.mindspore.dataset._checks import in_words, numpy_dtype, refuse
from sporax.mindspore.dataset._operations import Elementwise, OneToOne, Transform, Values
from sporax.mindspore.dataset._random import Draws
from sporax.mindspore.dataset._rows import Array, is_pillow
from sporax.mindspore.dataset.vision._images import check_fill, check_image, check_pixels
from sporax.mindspore.dataset.vision.enums import SliceMode

_F = np.float32


class Rescale(Elementwise):
    """`value * rescale + shift`, as float32, rounded once (fused multiply-add, as MindSpore does)."""

    rescale: float = argument(check.number, "factor.", types=(numbers.Number,))
    shift: float = argument(check.number, "added afterwards.", types=(numbers.Number,))

    def _prepare(self) -> None:
        self._factor, self._shift = _F(self.rescale), _F(self.shift)
        # There are only 256 answers for bytes.
        self._of_byte = self._fused(np.arange(256, dtype=np.float32))

    def _one(self, value: Array) -> Array:
        self.refuse(value.dtype.kind in "USO", f"an image must be numeric, but got {value.dtype}.")
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

    Raises:
        SporaxRuntimeError: (when applied) the number of channels is another.
    """

    mean: Sequence[float] = argument(of(list, tuple), "one number in [0, 255] per channel, or one for all.")
    std: Sequence[float] = argument(of(list, tuple), "one number in (0, 255] per channel, or one for all.")
    is_hwc: bool = argument(
        check.boolean, "whether images are (…, H, W, C) or (C, H, W); (H, W) has one channel.", default=True
    )

    def _prepare(self) -> None:
        mean, std, types = self.mean, self.std, (int, float)
        if len(mean) != len(std) or not mean:
            raise in_words(SporaxValueError, "Normalize", "Length of mean and std must be equal.", (mean, std))
        means = [check.number("Normalize", f"mean[{i}]", m, 0, 255, types=types) for i, m in enumerate(mean)]
        stds = [
            check.number("Normalize", f"std[{i}]", s, 0, 255, open_low=True, types=types) for i, s in enumerate(std)
        ]
        self._mean, self._std = np.array(means, np.float32), np.array(stds, np.float32)

    def _one(self, value: Array) -> Array:
        check_pixels("Normalize", value)
        return self._apply(value, value.ndim)

    def _many(self, values: Array) -> Array | None:
        # Stacks of (H, W) would be taken for one image with channels.
        return None if values.ndim < 3 else self._apply(values, values.ndim - 1)

    def _apply(self, value: Array, dims: int) -> Array:
        count = len(self._mean)
        channels = 1 if dims == 2 else value.shape[-1] if self.is_hwc else value.shape[-3]
        if count not in (1, channels):
            raise SporaxRuntimeError(
                "For 'Normalize', Normalize: number of channels does not match the size of mean and std vectors, but got "
                f"{channels} channels and {count} numbers."
            )
        if count == 1:
            return _normalized(value, self._mean, self._std)
        if not self.is_hwc:
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
    """

    keeps_pillow = False

    output_type: Any = argument(numpy_dtype, "dtype of the result, float32 by default.", default=np.float32)

    def __call__(self, *inputs: Any) -> Any:
        if len(inputs) != 1 or not is_pillow(inputs[0]):
            return super().__call__(*inputs)
        pixels = np.array(inputs[0])
        planes = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
        # C order: the transposed input would give its own order to the result.
        return np.divide(planes, 255.0, dtype=np.float64, casting="unsafe", order="C").astype(self.output_type)

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
        return scaled.astype(self.output_type, copy=False)


class ToType(Elementwise):
    """Cast to a dtype."""

    refusal = ""

    data_type: Any = argument(numpy_dtype, "a `mindspore` dtype, a numpy dtype, or its name.")

    def _one(self, value: Array) -> Array:
        if value.dtype.kind in "US" != self.data_type.kind:
            raise self.fault(f"ToType: strings cannot be cast to numbers, but got {value.dtype} for {self.data_type}.")
        return value.astype(self.data_type)


class SlicePatches(Transform):
    """An image (H, W[, C]) to num_height * num_width patches, row by row; each becomes a column.

    Raises:
        SporaxRuntimeError: (when applied) not an image, or fewer pixels than patches along a side.
    """

    makes_patches = True

    num_height: int = argument(check.integer, "patches from top to bottom.", default=1, low=1)
    num_width: int = argument(check.integer, "patches from left to right.", default=1, low=1)
    slice_mode: SliceMode = argument(
        of(SliceMode),
        "PAD makes patches of ceil(H / num_height) x ceil(W / num_width), filled at the bottom and right; DROP makes patches "
        "of the floor sizes and leaves the rest out.",
        default=SliceMode.PAD,
    )
    fill_value: int = argument(check.integer, "what padding holds.", default=0)

    def _prepare(self) -> None:
        self._pad = self.slice_mode is SliceMode.PAD
        check_fill("SlicePatches", "fill_value", self.fill_value)

    def on_row(self, values: Values, rng: Draws) -> Values:
        image = self.only(values)
        check_image("SlicePatches", image)
        height, width = self._side(image.shape[0], self.num_height), self._side(image.shape[1], self.num_width)
        # How much is missing to equal patches; negative with DROP, where nothing is padded.
        missing = (height * self.num_height - image.shape[0], width * self.num_width - image.shape[1])
        if self._pad and any(missing):
            image = np.pad(
                image, [(0, missing[0]), (0, missing[1])] + [(0, 0)] * (image.ndim - 2), constant_values=self.fill_value
            )
        return tuple(
            # Contiguous: patches leave the row one by one.
            np.ascontiguousarray(image[i * height : (i + 1) * height, j * width : (j + 1) * width])
            for i in range(self.num_height)
            for j in range(self.num_width)
        )

    def _side(self, length: int, patches: int) -> int:
        if patches > length:
            raise self.fault(
                f"there must be at least one pixel per patch, but got {patches} patches for {length} pixels."
            )
        return -(-length // patches) if self._pad else length // patches


class NormalizePad(OneToOne):
    """`Normalize`, with one more channel of zeros."""

    mean: Sequence[float] = argument(None, "see `Normalize`.")
    std: Sequence[float] = argument(None, "see `Normalize`.")
    dtype: str = argument(None, 'of the result, "float32" or "float16".', default="float32")
    is_hwc: bool = argument(None, "whether images are (H, W, C) or (C, H, W).", default=True)

    def _prepare(self) -> None:
        self._normalize = Normalize(self.mean, self.std, self.is_hwc)
        refuse(not isinstance(self.dtype, str), SporaxTypeError, "NormalizePad", "dtype should be string.", self.dtype)
        if self.dtype not in ("float32", "float16"):
            raise in_words(SporaxValueError, "NormalizePad", "dtype only supports float32 or float16.", self.dtype)
        # One channel of zeros behind three colors makes four, which Ascend's convolutions want.
        self._axis = 2 if self.is_hwc else 0

    def _one(self, value: Array) -> Array:
        check_image("NormalizePad", value)
        image = value if value.ndim == 3 else np.expand_dims(value, self._axis)
        around = [(0, 0)] * 3
        around[self._axis] = (0, 1)
        return np.pad(self._normalize._one(image), around).astype(self.dtype)


def _array(where: str, name: str, value: Any, dims: int) -> Array:
    if not isinstance(value, np.ndarray) or value.ndim != dims:
        check.instance(where, name, value, np.ndarray)
        raise For(where).error(f"{named(name)} must have {dims} dimensions", value.shape)
    return value


class LinearTransformation(OneToOne):
    """``(image - mean_vector) @ transformation_matrix``, with the image as one vector of length D (whitening, say).

    Raises:
        SporaxValueError: sizes do not fit together; for the image when applied.
    """

    only_pillow = True

    transformation_matrix: Any = argument(_array, "(D, D).", dims=2)
    mean_vector: Any = argument(_array, "(D,).", dims=1)

    def _prepare(self) -> None:
        size, shape = len(self.mean_vector), self.transformation_matrix.shape
        words = (
            f"mean_vector length {size} should match either one dimension of the squaretransformation_matrix {shape}."
        )
        if shape[0] != shape[1]:
            words = f"transformation_matrix should be a square matrix. Got shape {shape} instead."
        refuse(shape != (size, size), SporaxValueError, "LinearTransformation", words)

    def _one(self, value: Array) -> Array:
        if value.size != len(self.mean_vector):
            raise SporaxValueError(
                f"For 'LinearTransformation', an image must have {len(self.mean_vector)} values, but got the shape {value.shape}."
            )
        return np.asarray((value.reshape(-1) - self.mean_vector) @ self.transformation_matrix).reshape(value.shape)
