"""Images out of files' bytes, and into and out of Pillow, which does the decoding."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from sporax.dataset._checks import check_bool
from sporax.dataset._operations import OneToOne
from sporax.dataset._rows import Array
from sporax.dataset.vision._images import check_image
from sporax.dataset.vision._pillow import pillow
from sporax.ir.errors import SporaxNotImplementedError, SporaxRuntimeError, SporaxTypeError


def decode(content: bytes, where: str) -> Array:
    """RGB pixels (H, W, 3) uint8 of an image file's bytes.

    Args:
        content: the file.
        where: name of the API or file, for messages.

    Raises:
        SporaxImportError: Pillow is not installed.
        SporaxRuntimeError: not an image.
    """
    image_module = pillow(where)
    try:
        with image_module.open(io.BytesIO(content)) as image:
            return np.array(image.convert("RGB"))
    except image_module.DecompressionBombError as error:
        raise SporaxRuntimeError(
            f"For '{where}', the image of {len(content)} bytes claims more pixels than are decoded: {error}"
        ) from error
    except (OSError, SyntaxError, ValueError, MemoryError, OverflowError) as error:
        reason = str(error).split("<_io.")[0].strip()  # Pillow shows the object it reads from
        raise SporaxRuntimeError(f"For '{where}', the {len(content)} bytes are not an image: {reason}.") from error


class Decode(OneToOne):
    """Bytes of an image file, as a 1-D uint8 array, to RGB pixels (H, W, 3) uint8.

    Args:
        to_pil: must be False; transforms here work on arrays.

    Raises:
        SporaxImportError: Pillow is not installed.
        SporaxRuntimeError: (when applied) the bytes are not an image.
    """

    def __init__(self, to_pil: bool = False) -> None:
        if check_bool("Decode", "to_pil", to_pil):
            raise SporaxNotImplementedError("For 'Decode', 'to_pil' must be False: all transforms here work on arrays.")

    def _one(self, value: Array) -> Array:
        if value.ndim != 1 or value.dtype != np.uint8:
            raise SporaxRuntimeError(
                f"For 'Decode', the input must be a 1-D uint8 array, but got {value.shape} {value.dtype}."
            )
        return decode(value.tobytes(), "Decode")


class ToPIL(OneToOne):
    """An array (H, W), (H, W, 1) or (H, W, 3 or 4) of bytes as a Pillow image, when it is called directly.

    Inside a pipeline columns are arrays, and all transforms here take them; there it only checks the image. Needs Pillow.
    """

    def __call__(self, *inputs: Any) -> Any:
        """The image."""
        if len(inputs) != 1:
            raise SporaxTypeError(f"For 'ToPIL', exactly one input is accepted, but got {len(inputs)}.")
        value = super().__call__(*inputs)
        return pillow("ToPIL").fromarray(value[..., 0] if value.shape[2:] == (1,) else value)

    def _one(self, value: Array) -> Array:
        check_image("ToPIL", value)
        if value.dtype != np.uint8 or (value.ndim == 3 and value.shape[2] not in (1, 3, 4)):
            raise SporaxTypeError(
                f"For 'ToPIL', an image must be uint8 with 1, 3 or 4 channels, but got {value.shape} {value.dtype}."
            )
        return value


class ToNumpy(OneToOne):
    """A Pillow image, or an array, as an array."""

    def _one(self, value: Array) -> Array:
        return value
