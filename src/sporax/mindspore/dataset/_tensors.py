"""The seam between the pipeline, which is numpy throughout, and the Tensors its iterators hand out.

Tensors load JAX, which worker processes and numpy output do not need, so this module alone imports them, and late.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.dataset._rows import Array, convert_leaves, opened


def to_tensor(value: Array) -> Any:
    """A Tensor of a column's value, a dict of Tensors of a dict; strings, which no Tensor holds, stay numpy arrays."""
    if value.dtype == object:
        inner = opened(value)
        return convert_leaves(inner, lambda leaf: to_tensor(np.asarray(leaf))) if isinstance(inner, dict) else value
    return value if value.dtype.kind in "US" else Tensor(value)
