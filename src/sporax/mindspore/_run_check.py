"""`run_check`: does the installation work?"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from sporax import __version__
from sporax.base.errors import For
from sporax.mindspore import ops
from sporax.mindspore.common.tensor import Tensor


def run_check() -> None:
    """Multiply two small matrices on the default device and print whether that worked.

    Raises:
        SporaxRuntimeError: the result is wrong.
    """
    product: Any = ops.matmul(Tensor(np.full((2, 3), 2.0, np.float32)), Tensor(np.ones((3, 2), np.float32))).asnumpy()
    if not np.array_equal(product, np.full((2, 2), 6.0, np.float32)):
        raise For("run_check").state_error("a 2x3 by 3x2 product of twos and ones must be all 6", product)
    device = jax.devices()[0]
    print(f"Sporax version: {__version__}")
    print(f"The result of multiplication calculation is correct; Sporax runs on {device.platform.upper()} ({device}).")
