"""Small things `mindspore` offers at its top level."""

from __future__ import annotations

from typing import Any

import numpy as np

from sporax.common.dtype import DType
from sporax.common.tensor import Tensor


def tensor(
    input_data: Any = None,
    dtype: DType | None = None,
    shape: Any = None,
    init: Any = None,
    const_arg: bool = False,
    device: str | None = None,
) -> Tensor:
    """Same as `Tensor`."""
    return Tensor(input_data, dtype, shape, init, const_arg, device)


def from_numpy(array: np.ndarray[Any, Any]) -> Tensor:
    """A Tensor with the values of a numpy array (a copy).

    Raises:
        SporaxTypeError: not a numpy array.
    """
    return Tensor.from_numpy(array)


def is_tensor(obj: Any) -> bool:
    """Whether `obj` is a Tensor."""
    return isinstance(obj, Tensor)
