"""The seam between the pipeline, which is numpy throughout, and the Tensors its iterators hand out."""

from __future__ import annotations

from typing import Any

from sporax.common.tensor import Tensor
from sporax.dataset._rows import Array


def to_tensor(value: Array) -> Any:
    """A Tensor of a column's value; strings, which no Tensor holds, stay numpy arrays."""
    return value if value.dtype.kind in "USO" else Tensor(value)
