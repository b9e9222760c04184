"""Base of the transforms of sound: arrays (…, time) of samples, float32 unless they are float64."""

from __future__ import annotations

import numpy as np

from sporax.base.errors import SporaxRuntimeError
from sporax.mindspore.dataset._operations import OneToOne
from sporax.mindspore.dataset._rows import Array


class WaveTransform(OneToOne):
    """A transform of one wave, or of what became of one."""

    min_dims = 1
    """The fewest dimensions of what it takes."""

    def _one(self, value: Array) -> Array:
        if value.dtype.kind not in "iuf" or value.ndim < self.min_dims:
            raise SporaxRuntimeError(
                f"For '{self.name}', numbers with at least {self.min_dims} dimension(s) are required, but got "
                f"{value.dtype} of shape {value.shape}."
            )
        dtype = np.dtype(np.float64 if value.dtype == np.float64 else np.float32)
        return np.asarray(self._of_wave(value.astype(np.float64))).astype(dtype)

    def _of_wave(self, wave: Array) -> Array:
        """The result for float64 samples; it is rounded afterwards."""
        raise NotImplementedError
