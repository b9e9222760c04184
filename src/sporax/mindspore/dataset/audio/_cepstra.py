"""Cepstra: cosines of spectra on the mel scale."""

from __future__ import annotations

from typing import Any

import numpy as np

from sporax.base.errors import SporaxValueError
from sporax.mindspore.dataset._checks import check_bool, check_int, type_error
from sporax.mindspore.dataset._rows import Array
from sporax.mindspore.dataset.audio._levels import AmplitudeToDB
from sporax.mindspore.dataset.audio._spectra import MelSpectrogram, create_dct
from sporax.mindspore.dataset.audio._waves import WaveTransform
from sporax.mindspore.dataset.audio.enums import NormMode

_LOG_OFFSET = 1e-6
"""Added before the logarithm, so that silence has one: MindSpore's number."""


class MFCC(WaveTransform):
    """Mel frequency cepstral coefficients: (…, time) -> (…, n_mfcc, frames).

    Args:
        sample_rate: samples per second.
        n_mfcc: how many coefficients; at most as many as there are triangles of the mel scale.
        dct_type: only 2.
        norm: how the cosine transform is normalized.
        log_mels: logarithms of the powers instead of decibels within 80 of the loudest.
        melkwargs: arguments of `MelSpectrogram` but for `sample_rate`.

    Raises:
        SporaxTypeError, SporaxValueError: an argument is not valid.
    """

    def __init__(
        self,
        sample_rate: int = 16000,
        n_mfcc: int = 40,
        dct_type: int = 2,
        norm: NormMode = NormMode.ORTHO,
        log_mels: bool = False,
        melkwargs: dict[str, Any] | None = None,
    ) -> None:
        if melkwargs is not None and not isinstance(melkwargs, dict):
            raise type_error("MFCC", "melkwargs", "a dict", melkwargs)
        options = dict(melkwargs or {})
        if check_int("MFCC", "dct_type", dct_type) != 2:
            raise SporaxValueError(f"For 'MFCC', 'dct_type' must be 2, but got {dct_type}.")
        count, triangles = check_int("MFCC", "n_mfcc", n_mfcc, 1), options.get("n_mels", 128)
        self._spectrogram = MelSpectrogram(sample_rate, **options)
        if count > triangles:
            raise SporaxValueError(f"For 'MFCC', 'n_mfcc' must be at most n_mels = {triangles}, but got {n_mfcc}.")
        self._cosines = create_dct(count, triangles, norm).astype(np.float64)
        self._log = check_bool("MFCC", "log_mels", log_mels)
        self._decibels = AmplitudeToDB()

    def _of_wave(self, wave: Array) -> Array:
        mels = self._spectrogram._of_wave(wave)
        levels = np.log(mels + _LOG_OFFSET) if self._log else self._decibels._of_wave(mels)
        return np.swapaxes(np.swapaxes(levels, -1, -2) @ self._cosines, -1, -2)
