"""Arrays that go from the host to a device, or are copied, without compiling a program for their shape."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_ALIGNMENT_BYTES = 64  # of buffers that XLA's CPU back end takes over


def to_device(array: np.ndarray[Any, Any]) -> jax.Array:
    """The `jax.Array` with the values of a numpy array that no one else will write to."""
    # In a trace `device_put` would otherwise become an operator of the program.
    with jax.ensure_compile_time_eval():
        placed: jax.Array = jax.device_put(array)
    return placed


def copied(array: Any) -> Any:
    """A copy with a buffer of its own: in a compiled step an operator of the program, outside a plain copy of memory."""
    if isinstance(array, jax.core.Tracer) or not isinstance(array, jax.Array):
        return jnp.array(array, copy=True)
    devices = array.devices()
    # Copying by numpy compiles nothing, but works for plain dtypes on one CPU device of this process alone.
    on_cpu = len(devices) == 1 and next(iter(devices)).platform == "cpu" and array.is_fully_addressable
    if not on_cpu or jnp.issubdtype(array.dtype, jax.dtypes.extended):
        return jnp.array(array, copy=True)
    values = np.array(array)
    # A committed array must stay on its device; JAX may place the others as it likes.
    return jax.device_put(values, array.sharding) if array.committed else to_device(values)


def taken_over(array: np.ndarray[Any, Any]) -> jax.Array:
    """A `jax.Array` with the values of a numpy array that may change later, such as a view of a file: one copy of memory.

    On CPUs JAX takes memory over as it is when it is aligned as XLA requires, and copies what is not.
    """
    if jax.default_backend() != "cpu" or not array.size:
        return to_device(array)
    values = aligned(array.shape, array.dtype)
    np.copyto(values, array)
    return to_device(values)


def aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """An array without values, whose memory a CPU device takes over as it is."""
    num_bytes = math.prod(shape) * dtype.itemsize
    # Numpy aligns large arrays to 16 bytes; the extra bytes leave room to move the start.
    memory = np.empty(num_bytes + _ALIGNMENT_BYTES, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT_BYTES
    return memory[start : start + num_bytes].view(dtype).reshape(shape)
