"""Images out of files' bytes, and into and out of Pillow, which does the decoding."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np

from sporax.base.errors import SporaxRuntimeError, SporaxTypeError
from sporax.mindspore.dataset._checks import check_bool
from sporax.mindspore.dataset._operations import OneToOne
from sporax.mindspore.dataset._random import RowKey
from sporax.mindspore.dataset._rows import Array, Column
from sporax.mindspore.dataset._streams import Indices
from sporax.mindspore.dataset.vision._images import check_image, pillow


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
        raise SporaxRuntimeError(
            f"For '{where}', the image of {subject} claims more pixels than are decoded: {error}"
        ) from error
    # All that Pillow's plugins raise for broken files.
    except (OSError, SyntaxError, ValueError, MemoryError, OverflowError) as error:
        reason = str(error).split("<_io.")[0].strip()  # Pillow shows the object it reads from
        raise SporaxRuntimeError(f"For '{where}', the {subject} are not an image: {reason}.") from error


class Decode(OneToOne):
    """Bytes of an image file, as a 1-D array of any numbers, to RGB pixels (H, W, 3) uint8.

    Args:
        to_pil: give a Pillow image, which later operations of the same `map` get; what leaves `map` is an array.

    Raises:
        SporaxImportError: Pillow is not installed.
        SporaxRuntimeError: (when applied) the bytes are not an image.
    """

    def __init__(self, to_pil: bool = False) -> None:
        self.gives_pillow = check_bool("Decode", "to_pil", to_pil)

    # Row by row, to name the row in messages.
    def on_block(self, columns: Sequence[Column], rows: Indices, key: RowKey) -> list[Column]:
        if len(columns) != 1:
            return super().on_block(columns, rows, key)
        return [[self._pixels(value, int(row)) for value, row in zip(columns[0], rows, strict=True)]]

    def _one(self, value: Array) -> Array:
        return self._pixels(value)

    @staticmethod
    def _pixels(value: Array, row: int | None = None) -> Array:
        if value.ndim != 1 or value.dtype.kind in "USO":
            raise SporaxRuntimeError(
                f"For 'Decode', the input must be a 1-D array of numbers, but got {value.shape} {value.dtype}."
            )
        return decode(value.tobytes(), "Decode", row)


class ToPIL(OneToOne):
    """An array (H, W), (H, W, 1) or (H, W, 3 or 4) of bytes as a Pillow image. Needs Pillow.

    In a pipeline, later operations of the same `map` get the image; what leaves `map` is an array.
    """

    only_pillow = True

    # The value stays an array; what applies the transform makes the image of it.
    gives_pillow = True

    def _one(self, value: Array) -> Array:
        check_image("ToPIL", value)
        if value.dtype != np.uint8 or (value.ndim == 3 and value.shape[2] not in (1, 3, 4)):
            raise SporaxTypeError(
                f"For 'ToPIL', an image must be uint8 with 1, 3 or 4 channels, but got {value.shape} {value.dtype}."
            )
        return value


class ToNumpy(OneToOne):
    """A Pillow image, or an array, as an array."""

    # What applies the transform has handed over the pixels already.
    keeps_pillow = False

    def _one(self, value: Array) -> Array:
        return value
