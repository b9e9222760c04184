"""Maxima and minima across devices, of values that compilers treat in their own ways."""

import jax.numpy as jnp
import numpy as np
import pytest

from sporax.ir.placement import Placement
from sporax.lowering.execute.reductions import ALL_REDUCES

ROWS = np.array([
    [np.nan, 1, -np.inf, -0.0, 3, -2.5, 1e-40, -7],
    [1, np.nan, np.inf, 0.0, -3, -1.5, 0, -7],
    [2, 3, np.nan, -0.0, 2, -9, 2e-40, -np.inf],
    [-1, 5, 0, 0.0, 1, -2, -1e-40, -np.inf],
])  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int8", "uint32"])
def test_what_numpy_says_is_said_across_devices(devices, dtype):
    on = devices((4, 2))
    rows = ROWS if "float" in dtype else np.arange(32).reshape(4, 8) * 7 % 30
    x = jnp.asarray(rows, dtype).reshape(-1)

    numbers = np.asarray(x, np.float32).reshape(4, 8)  # JAX itself may take the smallest numbers for zero

    def program(part):
        return tuple(ALL_REDUCES[name](part, on.names[:1]) for name in ("max", "min"))

    spread, together = Placement(((0,),)), Placement(((),))
    compiled = on.compile(program, [spread], [together] * 2, on.put(x, spread))
    for found, function in zip(compiled(on.put(x, spread)), (np.max, np.min), strict=True):
        assert found.dtype == x.dtype
        np.testing.assert_array_equal(found.astype(jnp.float32), function(numbers, axis=0))
    assert compiled.as_text().count("all-reduce(") == 2
