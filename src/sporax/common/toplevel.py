"""Small things `mindspore` offers at its top level."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from sporax._version import __version__
from sporax.common.dtype import DType
from sporax.common.tensor import Tensor
from sporax.ir.errors import SporaxRuntimeError


def tensor(input_data: Any = None, dtype: DType | None = None, shape: Any = None, init: Any = None) -> Tensor:
    """Same as `Tensor`."""
    return Tensor(input_data, dtype, shape, init)


def from_numpy(array: np.ndarray[Any, Any]) -> Tensor:
    """A Tensor with the values of a numpy array (a copy).

    Raises:
        SporaxTypeError: not a numpy array.
    """
    return Tensor.from_numpy(array)


def is_tensor(obj: Any) -> bool:
    """Whether `obj` is a Tensor."""
    return isinstance(obj, Tensor)


def run_check() -> None:
    """Multiply two small matrices on the default device and print whether that worked.

    Raises:
        SporaxRuntimeError: the result is wrong.
    """
    from sporax import ops

    product = ops.matmul(Tensor(np.full((2, 3), 2.0, np.float32)), Tensor(np.ones((3, 2), np.float32))).asnumpy()
    if not np.array_equal(product, np.full((2, 2), 6.0, np.float32)):
        raise SporaxRuntimeError(
            f"For 'run_check', a 2x3 by 3x2 product of twos and ones must be all 6, but got {product}."
        )
    device = jax.devices()[0]
    print(f"Sporax version: {__version__}")
    print(f"The result of multiplication calculation is correct; Sporax runs on {device.platform.upper()} ({device}).")
