"""Images in files and out of files' bytes: reading, writing, encoding and decoding. Pillow does the work on image formats."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sporax.base.errors import For, SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.mindspore.dataset import _checks as check
from sporax.mindspore.dataset._checks import in_words
from sporax.mindspore.dataset._operations import OneToOne
from sporax.mindspore.dataset._random import RowKey
from sporax.mindspore.dataset._rows import Array, Column, as_value
from sporax.mindspore.dataset._streams import Indices
from sporax.mindspore.dataset.vision._images import pillow, sides
from sporax.mindspore.dataset.vision.enums import ImageReadMode

# Pillow's modes; UNCHANGED has none.
_MODES = {ImageReadMode.GRAYSCALE: "L", ImageReadMode.COLOR: "RGB"}


def read_file(filename: str) -> Array:
    """The bytes of a file, as a 1-D uint8 array.

    Raises:
        SporaxRuntimeError: it cannot be read, or is empty.
    """
    path = _path("read_file", filename)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise SporaxRuntimeError(
            f"For 'read_file', Invalid file path, {filename} {_path_fault(path)}. It cannot be read ({error.strerror})."
        ) from error
    # MindSpore refuses empty files as well.
    For("read_file").refuse_state(not content, f"the file '{path}' must not be empty")
    # A copy, since arrays over bytes are read-only.
    return np.frombuffer(content, np.uint8).copy()


def _path_fault(path: Path) -> str:
    return "is not a regular file" if path.exists() else "does not exist"


def write_file(filename: str, data: Any) -> None:
    """Write a 1-D uint8 array as the bytes of a file.

    Raises:
        SporaxRuntimeError: another array, or the file cannot be written.
    """
    where = "write_file"
    array = _checked(where, "data", data)
    if array.ndim != 1:
        words = f"The data has invalid dimensions. It should have only one dimension, but got {array.ndim} dimensions."
        raise SporaxRuntimeError(f"For '{where}', WriteFile: {words}")
    _write(where, filename, array.tobytes())


def read_image(filename: str, mode: ImageReadMode = ImageReadMode.UNCHANGED) -> Array:
    """Pixels (H, W, C) of an image file.

    Args:
        filename: the file.
        mode: as in the file, one channel, or RGB.

    Raises:
        SporaxImportError: Pillow is not installed.
        SporaxRuntimeError: the file cannot be read or is no image.
    """
    path = _path("read_image", filename)
    if not isinstance(mode, ImageReadMode):
        words = f"Input mode is not of type {ImageReadMode}, but got: {type(mode)}."
        raise in_words(SporaxTypeError, "read_image", words)
    image_module = pillow("read_image")
    try:
        with image_module.open(path) as image:
            if image.format in ("GIF", "WEBP"):  # MindSpore's reader lacks them
                raise SporaxRuntimeError(f"For 'read_image', ReadImage: Failed to read file {filename}")
            # A palette is no pixel value, and MindSpore leaves transparency out.
            mode_read = _MODES.get(mode) or ("RGB" if image.mode in ("P", "RGBA") else None)
            pixels = np.array(image.convert(mode_read) if mode_read else image)
    except (OSError, SyntaxError, ValueError) as error:
        raise SporaxRuntimeError(
            f"For 'read_image', Invalid file path, {filename} {_path_fault(Path(filename))}. It cannot be read: {error}."
        ) from error
    # MindSpore gives the channel of gray images, too.
    return pixels[..., None] if pixels.ndim == 2 else pixels


def encode_jpeg(image: Any, quality: int = 75) -> Array:
    """An image as the bytes of a JPEG file, a 1-D uint8 array.

    Args:
        image: (H, W), (H, W, 1) or (H, W, 3) of uint8.
        quality: in [1, 100].
    """
    level = _setting("EncodeJpeg", "quality", quality, 1, 100)
    return np.frombuffer(_encoded("encode_jpeg", image, "JPEG", quality=level), np.uint8)


def encode_png(image: Any, compression_level: int = 6) -> Array:
    """An image as the bytes of a PNG file, a 1-D uint8 array.

    Args:
        image: (H, W), (H, W, 1) or (H, W, 3) of uint8.
        compression_level: in [0, 9].
    """
    level = _setting("EncodePng", "compression_level", compression_level, 0, 9)
    return np.frombuffer(_encoded("encode_png", image, "PNG", compress_level=level), np.uint8)


def write_jpeg(filename: str, image: Any, quality: int = 75) -> None:
    """Write an image as a JPEG file; see `encode_jpeg`."""
    level = _setting("WriteJpeg", "quality", quality, 1, 100)
    _write("write_jpeg", filename, _encoded("write_jpeg", image, "JPEG", quality=level))


def write_png(filename: str, image: Any, compression_level: int = 6) -> None:
    """Write an image as a PNG file; see `encode_png`."""
    level = _setting("WritePng", "compression_level", compression_level, 0, 9)
    _write("write_png", filename, _encoded("write_png", image, "PNG", compress_level=level))


def get_image_size(image: Any) -> list[int]:
    """[height, width] of an image (H, W) or (…, H, W, C), an array or a Pillow image."""
    return list(sides(_image("get_image_size", image)))


def get_image_num_channels(image: Any) -> int:
    """Number of channels of an image (H, W) or (…, H, W, C), an array or a Pillow image."""
    value = _image("get_image_num_channels", image)
    return 1 if value.ndim == 2 else value.shape[-1]


def _image(where: str, image: Any) -> Array:
    # numpy would make an array of nearly everything.
    if isinstance(image, (int, float, str, bytes, list, tuple)) or image is None:
        raise SporaxTypeError(
            f"For '{where}', Input image is not of type {np.ndarray} or <class 'PIL.Image.Image'>, but got: {type(image)}."
        )
    value = as_value(image)
    if value.ndim < 2:
        raise For(where).state_error(
            f"{_cpp_name(where)}: invalid parameter, image should have at least two dimensions, but got: {value.ndim}"
        )
    return value


def _path(where: str, filename: object) -> Path:
    if not isinstance(filename, str):
        raise in_words(SporaxTypeError, where, f"Input filename is not of type {str}, but got: {type(filename)}.")
    return Path(filename)


def _checked(where: str, name: str, value: object) -> Array:
    if not isinstance(value, np.ndarray) and not hasattr(value, "asnumpy"):
        kinds = f"{np.ndarray} or <class 'mindspore.common.tensor.Tensor'>"
        subject = "The input image" if where == "write_png" else f"Input {name}"
        raise in_words(SporaxTypeError, where, f"{subject} is not of type {kinds}, but got: {type(value)}.")
    array = as_value(value)
    if array.dtype != np.uint8:
        what = "image data" if where.startswith("encode") else f"elements of {name}"
        words = f"{_cpp_name(where)}: The type of the {what} should be UINT8, but got {array.dtype}."
        raise SporaxRuntimeError(f"For '{where}', {words}")
    return array


def _cpp_name(where: str) -> str:
    return where.title().replace("_", "")


def _setting(where: str, name: str, value: Any, low: int, high: int) -> int:
    if not isinstance(value, (int, np.integer)):
        raise in_words(SporaxTypeError, where, f"Input {name} is not of type {int}, but got: {type(value)}.")
    if not low <= value <= high:
        words = f"{where}: Invalid {name} {value}, should be in range of [{low}, {high}]."
        raise in_words(SporaxRuntimeError, where, words)
    return int(value)


def _encoded(where: str, image: Any, file_format: str, **options: int) -> bytes:
    pixels, fault = _checked(where, "image", image), ""
    if pixels.ndim not in (2, 3):
        fault = f"The image has invalid dimensions. It should have two or three dimensions, but got {pixels.ndim} dimensions."
    elif pixels.ndim == 3 and pixels.shape[2] not in (1, 3):
        fault = f"The image has invalid channels. It should have 1 or 3 channels, but got {pixels.shape[2]} channels."
    elif not pixels.size:
        fault = "Load the image tensor failed."
    if fault:
        raise SporaxRuntimeError(f"For '{where}', {_cpp_name(where)}: {fault}")
    file = io.BytesIO()
    # Pillow wants (H, W) for gray.
    pillow(where).fromarray(pixels[..., 0] if pixels.shape[2:] == (1,) else pixels).save(file, file_format, **options)
    return file.getvalue()


def _write(where: str, filename: str, content: bytes) -> None:
    path = _path(where, filename)
    try:
        path.write_bytes(content)
    except OSError as error:
        raise SporaxRuntimeError(
            f"For '{where}', Invalid file path, {filename} {_path_fault(path)}. It cannot be written ({error.strerror})."
        ) from error


def decode(content: bytes, where: str, row: int | None = None) -> Array:
    """RGB pixels (H, W, 3) uint8 of an image file's bytes.

    Args:
        content: the file.
        where: name of the API or file, for messages.
        row: number of the row in its source, for messages, where no file is known.

    Raises:
        SporaxImportError: Pillow is not installed.
        SporaxRuntimeError: not an image.
    """
    # Imported before the `try`, so that a missing Pillow is not taken for a broken image.
    image_module = pillow(where)
    subject = f"{len(content)} bytes" if row is None else f"{len(content)} bytes of row {row}"
    try:
        with image_module.open(io.BytesIO(content)) as image:
            # Palettes, gray and alpha all become RGB, as MindSpore decodes.
            return np.array(image.convert("RGB"))
    # Pillow's limit against small files that claim huge sizes.
    except image_module.DecompressionBombError as error:
        raise SporaxRuntimeError(f"For '{where}', the image of {subject} has too many pixels: {error}") from error
    # All that Pillow's plugins raise for broken files.
    except (OSError, SyntaxError, ValueError, MemoryError, OverflowError) as error:
        reason = str(error).split("<_io.")[0].strip()  # Pillow shows the object it reads from
        raise SporaxRuntimeError(
            f"For '{where}', the {subject} are an Invalid image (Unsupported image type): {reason}; map operation: "
            "[Decode] failed."
        ) from error


class Decode(OneToOne):
    """Bytes of an image file, as a 1-D array of any numbers, to RGB pixels (H, W, 3) uint8.

    Args:
        to_pil: give a Pillow image, which later operations of the same `map` get; what leaves `map` is an array.

    Raises:
        SporaxImportError: Pillow is not installed.
        SporaxRuntimeError: (when applied) the bytes are not an image.
    """

    def __init__(self, to_pil: bool = False) -> None:
        self.gives_pillow = check.boolean("Decode", "to_pil", to_pil)

    # Row by row, to name the row in messages.
    def on_block(self, columns: Sequence[Column], rows: Indices, key: RowKey) -> list[Column]:
        if len(columns) != 1:
            return super().on_block(columns, rows, key)
        return [[self._pixels(value, int(row)) for value, row in zip(columns[0], rows, strict=True)]]

    def _one(self, value: Array) -> Array:
        return self._pixels(value)

    @staticmethod
    def _pixels(value: Array, row: int | None = None) -> Array:
        # A file's bytes may also be one value of numpy's type for them.
        if value.dtype.kind != "S" and (value.ndim != 1 or value.dtype.kind in "UO"):
            raise SporaxRuntimeError(
                f"For 'Decode', Decode: invalid input shape, only support 1D input, got rank: {value.ndim} of {value.dtype}."
            )
        return decode(value.tobytes(), "Decode", row)


class ToPIL(OneToOne):
    """An array (H, W) or (H, W, 1 to 4) of bytes as a Pillow image. Needs Pillow.

    In a pipeline, later operations of the same `map` get the image; what leaves `map` is an array.
    """

    only_pillow = True
    refusal = "The input image should be of type numpy.ndarray or PIL.Image.Image. Got {}."

    # The value stays an array; what applies the transform makes the image of it.
    gives_pillow = True

    def _one(self, value: Array) -> Array:
        if value.ndim not in (2, 3):
            words = f"The dimension of input image should be 2 or 3. Got {value.ndim}."
            raise in_words(SporaxValueError, "ToPIL", words)
        if value.ndim == 3 and value.shape[2] > 4:
            words = f"The channel of input image should not exceed 4. Got {value.shape[2]}."
            raise in_words(SporaxValueError, "ToPIL", words)
        if value.dtype != np.uint8:
            words = f"The input image type {value.dtype} is not supported when image shape is {[*value.shape]}."
            raise in_words(SporaxTypeError, "ToPIL", words)
        return value


class ToNumpy(OneToOne):
    """A Pillow image, an array, or whatever numpy makes one of, as an array."""

    # What applies the transform has handed over the pixels already.
    keeps_pillow = False

    def __call__(self, *inputs: Any) -> Any:
        """An array, also of what is no image."""
        return np.array(inputs[0]) if len(inputs) == 1 else super().__call__(*inputs)

    def _one(self, value: Array) -> Array:
        return value
