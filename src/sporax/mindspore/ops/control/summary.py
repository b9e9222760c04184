"""Operators that put values of a program aside for `SummaryRecord`: `ScalarSummary`, `ImageSummary` and their kin.

Same as MindSpore: they give nothing back, the last value of a name counts, and `SummaryRecord.record` (or
`SummaryCollector`) writes it. Works in both modes, and inside gradients.

Values that summary operators have put aside, for `SummaryRecord` to write: kind and name to the newest value.

Compiled steps hand values over by a callback while they run, so who reads them waits for the callbacks first.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.errors import SporaxValueError, check_type
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.ops._core.operator import PRIMITIVES
from sporax.mindspore.ops.control import summary


class _Summary:
    """Puts `value` aside under `name`."""

    plugin = ""
    dims: tuple[int, ...] | None = None
    least_dims = 0

    def __call__(self, name: str, value: Any) -> None:
        """Put a value aside.

        Args:
            name: what the curve, image or distribution is called; not empty.
            value: Tensor (or number).

        Raises:
            SporaxTypeError: `name` is no string, or `value` no Tensor.
            SporaxValueError: `name` is empty, or the number of dimensions does not fit.
        """
        kind = type(self).__name__
        check_type(kind, "name", name, "a string", str)
        if not name:
            raise SporaxValueError(f"For '{kind}', 'name' must not be empty, but got ''.")
        # Arrays of numpy are refused, as in MindSpore.
        check_type(kind, "value", value, "a Tensor", Tensor | int | float)
        array = value.array if isinstance(value, Tensor) else jnp.asarray(value)
        self._check_dims(kind, array)
        # No gradient flows through: looking must not change what is computed.
        jax.debug.callback(functools.partial(summary.keep, self.plugin, name), jax.lax.stop_gradient(array))

    def _check_dims(self, kind: str, array: jax.Array) -> None:
        fits = array.ndim >= self.least_dims and (self.dims is None or array.ndim in self.dims)
        if not fits or (self.plugin == "scalar" and array.size != 1):
            expected = {"scalar": "one element", "image": "4 dimensions"}.get(self.plugin, "at least 1 dimension")
            raise SporaxValueError(f"For '{kind}', 'value' must have {expected}, but got shape {array.shape}.")


class ScalarSummary(_Summary):
    """Puts a number aside; `SummaryRecord` writes it as a point of a curve."""

    plugin = "scalar"
    dims = (0, 1)


class ImageSummary(_Summary):
    """Puts images [N, C, H, W] aside."""

    plugin = "image"
    dims = (4,)


class TensorSummary(_Summary):
    """Puts a tensor aside, which TensorBoard shows as a distribution."""

    plugin = "tensor"
    least_dims = 1


class HistogramSummary(_Summary):
    """Puts a tensor aside, which TensorBoard shows as a distribution."""

    plugin = "histogram"
    least_dims = 1


for _kind in (ScalarSummary, ImageSummary, TensorSummary, HistogramSummary):
    PRIMITIVES[_kind.__name__] = _kind


_stored: dict[tuple[str, str], np.ndarray[Any, Any]] = {}


def keep(plugin: str, name: str, value: np.ndarray[Any, Any]) -> None:
    """Put a value aside; the last one of a name counts."""
    _stored[plugin, name] = np.asarray(value)


def take() -> dict[tuple[str, str], np.ndarray[Any, Any]]:
    """What was put aside since the last time."""
    # Callbacks of a step may still be on their way when its results are there.
    jax.effects_barrier()
    taken = dict(_stored)
    _stored.clear()
    return taken
