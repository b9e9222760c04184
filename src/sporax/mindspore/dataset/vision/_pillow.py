"""Pillow, which some transforms need and which is imported only by them."""

from __future__ import annotations

import copy
import importlib
from typing import Any

from sporax.base.errors import SporaxImportError
from sporax.mindspore.dataset._operations import Transform


def pillow(where: str) -> Any:
    """The module `PIL.Image`.

    Args:
        where: name of the API, for the message.

    Raises:
        SporaxImportError: Pillow is not installed.
    """
    try:
        return importlib.import_module("PIL.Image")
    except ImportError as error:
        raise SporaxImportError(
            f"For '{where}', decoding and encoding images needs Pillow, which is not installed: pip install pillow"
        ) from error


class ByPillow(Transform):
    """A transform that has Pillow calculate where images are Pillow's, as MindSpore does."""

    by_pillow = False

    def for_pillow(self) -> Transform:
        """See Transform."""
        # A copy: the same transform may be applied to arrays at the same time.
        other = copy.copy(self)
        other.by_pillow = True
        return other
